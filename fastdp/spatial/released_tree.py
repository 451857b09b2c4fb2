"""A release: cells with counts, from which points are drawn and boxes are counted; and PrivTree, which makes one.

PrivTree (Zhang et al. 2016; PHDStream Algorithm 5) is a private decomposition of one set of points.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.counters.counter import Simple, counter_guarantee, event_guarantee
from fastdp.data.column import entry_at
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.kinds import Floats, Integers
from fastdp.noise.binding import step_key
from fastdp.noise.key import Key
from fastdp.releases.intervals import MODEL_WIDTH, checked_confidence, wider_quantile
from fastdp.spatial import decomposition
from fastdp.spatial.boxes import Box, as_points, axes_of
from fastdp.spatial.cells import CellParameters, Domain, Outside, encode, inside, make_plan
from fastdp.spatial.tree import Tree
from fastdp.state.machine import CallGuard, single_caller
from fastdp_kernels.points import cell_sampling, tree_queries

#: Points of 8 bytes and more; NumPy refuses the sizes of longer arrays in other words.
MAX_POINTS = 2.0**48


class ReleasedTree:
    """A private decomposition: disjoint cells that cover the domain, each with a count.

    All of it is released, so that whatever is computed from it costs no privacy.

    Attributes
    ----------
    lower, upper : float64[n, d]
        The cells (leaves of the tree), in the units of the points.
    counts : float64[n]
        Their counts, 0 or more; they sum to :attr:`total`.
    depths : int64[n]
        How often each cell was cut.

    ``variance`` is that of a cell's noise, for intervals.
    """

    def __init__(self, plan: CellParameters, tree: Tree, variance: float | None = None) -> None:
        self._fan_out, self._domain = plan.fan_out, plan.domain
        self._tree, self._counts, self._variance = tree, tree.projected, variance
        self._lower, self._upper = tree.bounds(plan)
        self.lower, self.upper = self._lower[tree.leaves], self._upper[tree.leaves]
        self.counts: Floats = self._counts[tree.leaves]
        self.depths: Integers = tree.depth[tree.leaves]
        for array in (self.lower, self.upper, self.counts, self.depths):
            array.flags.writeable = False

    @property
    def domain(self) -> Domain:
        """The region that the cells cover."""
        return self._domain

    @property
    def n_leaves(self) -> int:
        """Cells."""
        return self.counts.size

    @property
    def total(self) -> float:
        """Estimated number of points in the domain."""
        return float(self._counts[0])

    def __repr__(self) -> str:
        return f"ReleasedTree({self.n_leaves} cells, total {self.total:g})"

    def sample(self, generator: np.random.Generator | int | None = None) -> Floats:
        """Synthetic points, uniform in the domain's part of each cell (Eq. 5).

        Parameters
        ----------
        generator : numpy Generator or seed, optional
            Source of randomness; no secret, the cells and counts are released anyway.

        Returns
        -------
        float64[N, d]
            Points, cell by cell.  Each count is rounded up with the probability of its fraction, so that N is
            unbiased for :attr:`total`; the paper's ceiling adds half a point a cell.

        Raises
        ------
        StateError
            If so many points do not fit in memory: :meth:`count` draws none.
        """
        points = float(self.counts.sum())
        if points <= MAX_POINTS:
            source = np.random.default_rng(generator)
            counts: Integers = np.empty(self.counts.size, np.int64)
            cell_sampling.round_counts(self.counts, source.random(self.counts.size), counts)
            with contextlib.suppress(MemoryError):
                return self._domain.sample(self.lower, self.upper, counts, source)
        raise StateError(f"{points:g} synthetic points do not fit in memory: expected count(), which draws none")

    def count(self, lower: Any, upper: Any) -> Any:
        """Counts of boxes, straight from the tree: the expectation of the number of sampled points.

        Cells are half-open, so on a network a road along a box's upper side is not in the box.

        Parameters
        ----------
        lower, upper : array-like, d numbers or q rows of d
            Corners of one box, or of many.  Parts outside the domain count nothing.

        Returns
        -------
        float, or float64[q]

        Raises
        ------
        DataError
            For corners that are not finite, not of d coordinates, or not equally many.
        """
        low, high, one = self._boxes(lower, upper)
        out = np.empty(low.shape[0])
        query, leaf = self._whole_cells(low, high, self._counts, out, by_volume=isinstance(self._domain, Box))
        if query.size:
            inside = self._shares(low, high, query, leaf)
            out += np.bincount(query, self._counts[leaf] * inside, minlength=out.size)
        return float(out[0]) if one else out

    def std_error(self, lower: Any, upper: Any) -> Any:
        """Root mean square errors of :meth:`count` by a model: float, or float64[q].

        Every cell in the box, or cut by it, has the noise of all its counts.  A cut cell is taken to hold its points,
        and as many more as its noise may hide, anywhere.  What making counts consistent gains, and what rounding them
        up to 0 moves, is left out.

        Raises
        ------
        DataError
            As :meth:`count`.
        StateError
            Where the noise of the counts is not stated.
        """
        if self._variance is None:
            raise StateError("this tree does not state the noise of its counts: expected that of a PHDStream")
        low, high, one = self._boxes(lower, upper)
        sums, out = self._noise_sums, np.empty(low.shape[0])
        query, leaf = self._whole_cells(low, high, sums, out, by_volume=False)
        share = self._shares(low, high, query, leaf)
        # Points crowd at the same sides of neighbouring cells: what cut cells hide adds up.
        hidden = (self._counts[leaf] + np.sqrt(sums[leaf])) * np.sqrt(share * (1.0 - share))
        out += np.bincount(query, sums[leaf] * share**2, minlength=out.size)
        out += np.bincount(query, hidden, minlength=out.size) ** 2
        errors: Floats = np.sqrt(out)
        return float(errors[0]) if one else errors

    def interval(self, lower: Any, upper: Any, confidence: float = 0.95) -> Any:
        """Intervals for true counts of boxes, by the model of :meth:`std_error`: (low, high).

        Two floats, or two float64[q]; not below 0, and the answer of :meth:`count` lies between them.
        """
        level, answer = checked_confidence(confidence), self.count(lower, upper)
        half = MODEL_WIDTH * wider_quantile(level) * self.std_error(lower, upper)
        return np.maximum(answer - half, 0.0), answer + half

    @cached_property
    def _noise_sums(self) -> Floats:
        """Variance of the noise of each node's cells: float64[v]."""
        sums: Floats = np.zeros(self._counts.size)
        sums[self._tree.leaves] = self._variance
        starts, first = self._tree.starts.tolist(), self._tree.first
        for begin, end in zip(starts[-2::-1], starts[:0:-1], strict=True):
            cut = begin + np.flatnonzero(first[begin:end] >= 0)
            sums[cut] = sums[first[cut][:, None] + np.arange(self._fan_out)].sum(axis=1)
        return sums

    def _boxes(self, lower: Any, upper: Any) -> tuple[Floats, Floats, bool]:
        """Checked boxes, and whether it is one."""
        dim = self._domain.dim
        axes, _ = axes_of(lower, "lower"), axes_of(upper, "upper")
        one = axes == 0 or (axes == 1 and dim > 1)
        low = as_points(np.reshape(lower, (1, -1)) if one else lower, "lower", dim)
        high = as_points(np.reshape(upper, (1, -1)) if one else upper, "upper", dim)
        if low.shape != high.shape:
            raise DataError(f"upper has {high.shape[0]} rows: expected as many as lower, {low.shape[0]}")
        if (low > high).any():
            place = entry_at("lower, upper", (low > high).any(axis=1), "no box")
            raise DataError(f"{place}; expected lower <= upper")
        return low, high, one

    def _shares(self, low: Floats, high: Floats, query: Integers, leaf: Integers) -> Floats:
        """How much of cut leaves lies in their boxes."""
        corners = np.maximum(low[query], self._lower[leaf]), np.minimum(high[query], self._upper[leaf])
        return self._domain.measure(*corners) / self._domain.measure(self._lower[leaf], self._upper[leaf])

    def _whole_cells(
        self, low: Floats, high: Floats, numbers: Floats, out: Floats, *, by_volume: bool
    ) -> tuple[Integers, Integers]:
        """Add up ``numbers`` of the cells in each box; returns query and leaf of those that are cut and not added."""
        stack: Integers = np.empty(self._tree.first.size + 1, np.int64)
        tree, room = (self._fan_out, self._tree.first, numbers, self._lower, self._upper), 0
        while True:
            query: Integers = np.empty(room, np.int64)
            leaf: Integers = np.empty(room, np.int64)
            listed = tree_queries.count_boxes(*tree, low, high, by_volume, stack, query, leaf, out)
            if listed <= room:
                return query, leaf
            room = listed


def sampling_generator(key: Key, step: int) -> np.random.Generator:
    """The generator of a step's synthetic points: a function of the key and the step."""
    return np.random.Generator(np.random.SFC64(int.from_bytes(key.derive("synthetic points", step).reveal(), "big")))


class PrivTree:
    """One private release of a set of points; half of epsilon for the cells, half for their counts.

    Parameters
    ----------
    domain : Domain
        The public region, such as :class:`Box`.
    epsilon : float
        Privacy loss for one point that is there or not.
    max_depth : int
        D: cells of this depth are not cut any more; fan_out^D at most 2^62.
    fan_out : int
        beta: parts that a cell is cut into, along one axis; the axes take turns.
    threshold : float
        theta: cells that seem to hold more points, after a penalty for depth, are cut.
    outside : str
        ``"raise"`` refuses points outside the domain, ``"clip"`` moves them to its bounding box.
    seed, key
        As for a publisher.

    Notes
    -----
    Privacy: ``docs/phdstream.md``.  Cell counts have noise of scale 2 / epsilon; they are made non-negative and
    consistent from the root down.
    """

    rule: ClassVar[int] = 1

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        threshold: float = 0.0,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        self._guard = CallGuard()
        self.epsilon = validation.positive("epsilon", epsilon)
        self.outside = validation.choice("outside", outside, ("raise", "clip"))
        half = Fraction(self.epsilon) / 2
        self._plan = make_plan(domain, fan_out, max_depth, half, half, Simple(), threshold=threshold)
        self.domain, self.max_depth, self.fan_out = domain, self._plan.max_depth, self._plan.fan_out
        self._kept = decomposition.root_only(self._plan)
        self.threshold = validation.real("threshold", threshold)
        self._key = Key.choose(seed, key).bind(self)
        self._fitted = False

    def identity(self) -> dict[str, Any]:
        """The parameters, for noise keys."""
        names = ("domain", "epsilon", "max_depth", "fan_out", "threshold", "outside")
        return {name: getattr(self, name) for name in names}

    @property
    def noise_fingerprint(self) -> str | None:
        """As for an online publisher (:attr:`fastdp.state.publisher.Publisher.noise_fingerprint`)."""
        return None if self._key.simulated else self._key.fingerprint()

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one point, composed of the cells' and the counts' halves."""
        half = self.epsilon / 2
        cells = event_guarantee(
            half, "PrivTree: (2 beta - 1) / (beta - 1) decisions' worth of loss, whatever the depth"
        )
        counts = counter_guarantee(Simple(), half)
        whole = sequential(cells.of("cells"), counts.of("counts"))
        return replace(whole, unit="one point", adjacency="add or remove one point", simulated=self._key.simulated)

    @single_caller
    def fit(self, points: Any) -> ReleasedTree:
        """Release the decomposition of these points, once.

        Parameters
        ----------
        points : array-like, n rows of d numbers
            The points.

        Raises
        ------
        DataError
            For points that are not finite, of another dimension or outside the domain; nothing is released then.
        StateError
            At a second call: the same noise on other points would reveal their difference.
        """
        if self._fitted:
            raise StateError("this PrivTree has been fitted: expected a new one for other points")
        rows = inside(as_points(points, "points", self.domain.dim), self.domain, self.outside, "points")
        codes = encode(self._plan, rows)
        self._fitted = True
        key, _ = step_key(self._key, "", 0, codes)
        _, tree, _ = decomposition.take_step(self._plan, self._kept, codes, codes[:0], 0, key)
        return ReleasedTree(self._plan, tree)
