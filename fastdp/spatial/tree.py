"""What a step releases: cells with counts, from which points are drawn and boxes are counted."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any

import numpy as np

from fastdp.arrays.column import entry_at
from fastdp.arrays.kinds import Floats, Integers
from fastdp.errors import DataError, StateError
from fastdp.randomness.key import Key
from fastdp.releases.error_bars import MODEL_WIDTH, wider_quantile
from fastdp.releases.intervals import checked_confidence
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.spatial.cells import StepTree, tree_cells
from fastdp.spatial.checks import as_points, axes_of
from fastdp.spatial.domain import Box, Domain
from fastdp_kernels import cell_sampling, tree_queries

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

    def __init__(self, plan: CellParameters, visit: StepTree, variance: float | None = None) -> None:
        self._fan_out = plan.fan_out
        self._domain = plan.domain
        self._first = visit.first
        self._starts = visit.starts
        self._counts = visit.projected
        self._leaves = visit.leaves
        self._variance = variance
        self._lower, self._upper = tree_cells(plan, visit)
        self.lower, self.upper = self._lower[self._leaves], self._upper[self._leaves]
        self.counts: Floats = self._counts[self._leaves]
        self.depths: Integers = visit.depth[self._leaves]
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
        self._answer(low, high, out)
        return float(out[0]) if one else out

    def count_std_error(self, lower: Any, upper: Any) -> Any:
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

    def count_interval(self, lower: Any, upper: Any, confidence: float = 0.95) -> Any:
        """Intervals for true counts of boxes, by the model of :meth:`count_std_error`: (low, high).

        Two floats, or two float64[q]; not below 0, and the answer of :meth:`count` lies between them.
        """
        level, answer = checked_confidence(confidence), self.count(lower, upper)
        half = MODEL_WIDTH * wider_quantile(level) * self.count_std_error(lower, upper)
        return np.maximum(answer - half, 0.0), answer + half

    @cached_property
    def _noise_sums(self) -> Floats:
        """Variance of the noise of each node's cells: float64[v]."""
        sums: Floats = np.zeros(self._counts.size)
        sums[self._leaves] = self._variance
        for begin, end in zip(self._starts[-2::-1].tolist(), self._starts[:0:-1].tolist(), strict=True):
            cut = begin + np.flatnonzero(self._first[begin:end] >= 0)
            sums[cut] = sums[self._first[cut][:, None] + np.arange(self._fan_out)].sum(axis=1)
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

    def _answer(self, low: Floats, high: Floats, out: Floats) -> None:
        query, leaf = self._whole_cells(low, high, self._counts, out, by_volume=isinstance(self._domain, Box))
        if query.size:
            inside = self._shares(low, high, query, leaf)
            out += np.bincount(query, self._counts[leaf] * inside, minlength=out.size)

    def _shares(self, low: Floats, high: Floats, query: Integers, leaf: Integers) -> Floats:
        """How much of cut leaves lies in their boxes."""
        corners = np.maximum(low[query], self._lower[leaf]), np.minimum(high[query], self._upper[leaf])
        return self._domain.measure(*corners) / self._domain.measure(self._lower[leaf], self._upper[leaf])

    def _whole_cells(
        self, low: Floats, high: Floats, numbers: Floats, out: Floats, *, by_volume: bool
    ) -> tuple[Integers, Integers]:
        """Add up ``numbers`` of the cells in each box; returns query and leaf of those that are cut and not added."""
        stack: Integers = np.empty(self._first.size + 1, np.int64)
        tree, room = (self._fan_out, self._first, numbers, self._lower, self._upper), 0
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
