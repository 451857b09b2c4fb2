"""A released tree of cells, and PrivTree, which releases one (Zhang et al. 2016; PHDStream Algorithm 5)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from fastdp.counters.counter import Simple, counter_guarantee, event_guarantee
from fastdp.data.column import as_array, entry_at
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.kinds import Floats, Integers, Values
from fastdp.noise.chain_keys import step_key
from fastdp.noise.key import Key
from fastdp.points import decomposition
from fastdp.points.decomposition import Tree
from fastdp.points.domains import Box, CellParameters, Domain, Outside, PointParameters, as_points
from fastdp.record import Real, constructor, parameter, record, values_of
from fastdp.releases.intervals import MODEL_WIDTH, checked_confidence, wider_quantile
from fastdp.state.machine import CallGuard, single_caller
from fastdp_kernels.points import box_queries, cell_codes

#: Points of 8 bytes and more; NumPy refuses the sizes of longer arrays in other words.
MAX_POINTS = 2.0**48
#: Answer for one box, or for many.
Counts: TypeAlias = float | Floats


class ReleasedTree:
    """Holds disjoint cells that cover the domain, each with a private count; all of it is public.

    Attributes
    ----------
    lower, upper : float64[n, d]
        Corners of the cells, in units of the points.
    counts : float64[n]
        0 or more; they sum to :attr:`total`.
    depths : int64[n]
        Number of cuts that made each cell.
    domain : Domain
        Covered region.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> square = fastdp.points.Box((0, 0), (1, 1))
    >>> points = np.random.default_rng(1).random((1000, 2))
    >>> released = fastdp.points.PrivTree(square, epsilon=1.0).fit(points)
    >>> float((released.upper - released.lower).prod(axis=1).sum())
    1.0
    """

    def __init__(self, plan: CellParameters, tree: Tree, variance: float | None = None) -> None:
        self._fan_out, self.domain = plan.fan_out, plan.domain
        #: `variance` is that of a cell's noise, for intervals.
        self._tree, self._counts, self._variance = tree, tree.projected, variance
        self._lower, self._upper = tree.bounds(plan)
        self.lower, self.upper = self._lower[tree.leaves], self._upper[tree.leaves]
        self.counts: Floats = self._counts[tree.leaves]
        self.depths: Integers = tree.depth[tree.leaves]
        for array in (self.lower, self.upper, self.counts, self.depths):
            array.flags.writeable = False

    @property
    def n_leaves(self) -> int:
        """Number of cells."""
        return self.counts.size

    @property
    def total(self) -> float:
        """Estimated number of points."""
        return float(self._counts[0])

    def __repr__(self) -> str:
        return f"ReleasedTree({self.n_leaves} cells, total {self.total:g})"

    def sample(self, generator: np.random.Generator | int | None = None) -> Floats:
        """Draw synthetic points, uniform in each cell (Eq. 5): float64[N, d], cell by cell.

        N is unbiased for :attr:`total`; `generator` need not be secret.  StateError if memory is too small.
        """
        points = float(self.counts.sum())
        if points <= MAX_POINTS:
            source = np.random.default_rng(generator)
            counts: Integers = np.empty(self.counts.size, np.int64)
            cell_codes.round_counts(self.counts, source.random(self.counts.size), counts)
            with contextlib.suppress(MemoryError):
                return self.domain.sample(self.lower, self.upper, counts, source)
        raise StateError(f"{points:g} synthetic points do not fit in memory: expected count(), which draws none")

    def count(self, lower: Values, upper: Values) -> Counts:
        """Expected number of sampled points in each box: float, or float64[q].

        Parameters
        ----------
        lower, upper : array-like, d numbers or q rows of d
            Corners; boxes are half-open, so a road along the upper side is not in them.  Outside the domain counts 0.

        Raises
        ------
        DataError
            For corners that are not finite, of another dimension, of unequal number or in another order.
        """
        low, high, one = self._boxes(lower, upper)
        out = np.empty(low.shape[0])
        query, leaf = self._add_inside(low, high, self._counts, out, by_volume=isinstance(self.domain, Box))
        if query.size:
            inside = self._fractions(low, high, query, leaf)
            out += np.bincount(query, self._counts[leaf] * inside, minlength=out.size)
        return float(out[0]) if one else out

    def std_error(self, lower: Values, upper: Values) -> Counts:
        """Root mean square error of :meth:`count`, by a model: float, or float64[q].

        Points of a cut cell, and points that its noise hides, may be anywhere in it; effects of consistency are
        ignored.  StateError if the noise is unknown, as of PrivTree and AdaptivePHDStream.
        """
        if self._variance is None:
            raise StateError("this tree does not state the noise of its counts: expected that of a PHDStream")
        low, high, one = self._boxes(lower, upper)
        sums, out = self._noise_sums, np.empty(low.shape[0])
        query, leaf = self._add_inside(low, high, sums, out, by_volume=False)
        fraction = self._fractions(low, high, query, leaf)
        # Points crowd at the same sides of neighbouring cells: the errors of cut cells add up.
        hidden = (self._counts[leaf] + np.sqrt(sums[leaf])) * np.sqrt(fraction * (1.0 - fraction))
        out += np.bincount(query, sums[leaf] * fraction**2, minlength=out.size)
        out += np.bincount(query, hidden, minlength=out.size) ** 2
        errors: Floats = np.sqrt(out)
        return float(errors[0]) if one else errors

    def interval(self, lower: Values, upper: Values, confidence: float = 0.95) -> tuple[Counts, Counts]:
        """Intervals (low, high) for true counts, not below 0, by :meth:`std_error`."""
        level, answer = checked_confidence(confidence), self.count(lower, upper)
        half = MODEL_WIDTH * wider_quantile(level) * self.std_error(lower, upper)
        return np.maximum(answer - half, 0.0), answer + half

    @cached_property
    def _noise_sums(self) -> Floats:
        sums: Floats = np.zeros(self._counts.size)
        sums[self._tree.leaves] = self._variance
        starts, first = self._tree.starts.tolist(), self._tree.first
        for begin, end in zip(starts[-2::-1], starts[:0:-1], strict=True):
            cut = begin + np.flatnonzero(first[begin:end] >= 0)
            sums[cut] = sums[first[cut][:, None] + np.arange(self._fan_out)].sum(axis=1)
        return sums

    def _boxes(self, lower: Values, upper: Values) -> tuple[Floats, Floats, bool]:
        dim, axes = self.domain.dim, []
        for name, corner in (("lower", lower), ("upper", upper)):
            array = as_array(corner)
            if array is None:
                raise DataError(f"{name} is no array: expected numbers, or rows with as many numbers each")
            axes.append(array.ndim)
        one = axes[0] == 0 or (axes[0] == 1 and dim > 1)
        low = as_points(np.reshape(lower, (1, -1)) if one else lower, "lower", dim)
        high = as_points(np.reshape(upper, (1, -1)) if one else upper, "upper", dim)
        if low.shape != high.shape:
            raise DataError(f"upper has {high.shape[0]} rows: expected as many as lower, {low.shape[0]}")
        if (low > high).any():
            entry = entry_at("lower, upper", (low > high).any(axis=1), "no box")
            raise DataError(f"{entry}; expected lower <= upper")
        return low, high, one

    def _fractions(self, low: Floats, high: Floats, query: Integers, leaf: Integers) -> Floats:
        corners = np.maximum(low[query], self._lower[leaf]), np.minimum(high[query], self._upper[leaf])
        return self.domain.measure(*corners) / self.domain.measure(self._lower[leaf], self._upper[leaf])

    def _add_inside(
        self, low: Floats, high: Floats, numbers: Floats, out: Floats, *, by_volume: bool
    ) -> tuple[Integers, Integers]:
        """Add `numbers` of cells inside each box to `out`; return box and leaf of cut cells."""
        stack: Integers = np.empty(self._tree.first.size + 1, np.int64)
        tree, capacity = (self._fan_out, self._tree.first, numbers, self._lower, self._upper), 0
        while True:
            query, leaf = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
            listed = box_queries.count_boxes(*tree, low, high, by_volume, stack, query, leaf, out)
            if listed <= capacity:
                return query, leaf
            capacity = listed


@record
class PrivTreeParameters(PointParameters):
    """Parameters of :class:`PrivTree`."""

    threshold: float = parameter(Real(), default=0.0)

    @cached_property
    def plan(self) -> CellParameters:
        half = Fraction(self.epsilon) / 2
        return CellParameters(self.domain, self.fan_out, self.max_depth, half, half, Simple(), self.threshold)


class PrivTree:
    """Releases one set of points, once, with half of epsilon for cells and half for counts.

    Parameters
    ----------
    domain, max_depth, fan_out, threshold, outside
        As for :class:`fastdp.PHDStream`.
    epsilon : float
        Privacy loss for the presence of one point.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Privacy: ``docs/points.md``.  Counts have noise of scale 2 / epsilon, and are made non-negative and consistent.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> points = np.random.default_rng(1).random((10_000, 2)) ** 2
    >>> square = fastdp.points.Box((0, 0), (1, 1))
    >>> tree = fastdp.points.PrivTree(square, epsilon=1.0)
    >>> released = tree.fit(points)
    >>> abs(released.count((0, 0), (0.25, 0.25)) - 2500) < 300
    True
    """

    rule: ClassVar[int] = 1
    domain: Domain
    epsilon: float
    max_depth: int
    fan_out: int
    threshold: float
    outside: Outside

    @constructor(PrivTreeParameters)
    def __init__(self, parameters: PrivTreeParameters, seed: int | str | None, key: Key | bytes | None) -> None:
        self._guard = CallGuard()
        self._parameters, self._plan = parameters, parameters.plan
        self.__dict__.update(values_of(parameters))
        self._root = decomposition.root_only(self._plan)
        self._key = Key.choose(seed, key).bind(self)
        self._fitted = False

    def identity(self) -> dict[str, object]:
        return values_of(self._parameters)

    @property
    def noise_fingerprint(self) -> str | None:
        """Fingerprint of the noise; None in a simulation."""
        return None if self._key.simulated else self._key.fingerprint()

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee for one point."""
        half = self.epsilon / 2
        decisions = "PrivTree: (2 beta - 1) / (beta - 1) decisions' worth of loss, whatever the depth"
        cells, counts = event_guarantee(half, decisions), counter_guarantee(Simple(), half)
        both = sequential(cells.of("cells"), counts.of("counts"))
        return replace(both, unit="one point", adjacency="add or remove one point", simulated=self._key.simulated)

    @single_caller
    def fit(self, points: Values) -> ReleasedTree:
        """Release a tree of these points, n rows of d numbers, once.

        Raises
        ------
        DataError
            For points that are not finite, of another dimension or outside the domain; nothing is released.
        StateError
            At a second call: equal noise on other points would reveal their difference.
        """
        if self._fitted:
            raise StateError("this PrivTree has been fitted: expected a new one for other points")
        codes = self._parameters.codes(points, "points")
        self._fitted = True
        key, _ = step_key(self._key, "", 0, codes)
        tree = decomposition.take_step(self._plan, self._root, codes, codes[:0], 0, key)[1]
        return ReleasedTree(self._plan, tree.shown)
