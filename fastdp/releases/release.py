"""A finished release: the private stream, its guarantee, and answers to range queries."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastdp import validation
from fastdp.data.column import as_array, kind_of
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers
from fastdp.releases import intervals
from fastdp.releases.intervals import (
    ErrorBars,
    SumNoise,
    correlated_variances,
    counter_draws,
    hidden_of_ends,
    rate_of_blocks,
    tree_variances,
)
from fastdp.releases.revised import RevisedStream
from fastdp_kernels.streams import ranges


@dataclass(frozen=True, eq=False)
class ReleasedNodes:
    """Noisy sums of all nodes of an inconsistent hierarchy.

    Attributes
    ----------
    sums : float64[trees, nodes]
        In units of the input, the leaf level first.  Nodes that were not complete when the stream ended are NaN;
        no range needs them.
    leaves, fan_out, levels, tree_values : int
        Shape of a tree, and how many values each serves.
    """

    sums: Floats
    leaves: int
    fan_out: int
    levels: int
    tree_values: int

    @classmethod
    def of(cls, sums: Floats, plan: Any) -> ReleasedNodes:
        """Sums of trees of this :class:`fastdp.perturbers.HierarchyShape`, each of whose leaves is one value."""
        return cls(sums, plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks)

    def sum(self, starts: Integers, stops: Integers) -> Floats:
        """Answers from the fewest nodes that tile each range (ToPS section 3, the hierarchy approach)."""
        out = np.empty(starts.size)
        ranges.sum_nodes(self.sums, self.leaves, self.fan_out, self.levels, self.tree_values, starts, stops, out)
        return out

    def draws(self, starts: Integers, stops: Integers) -> Integers:
        """How many nodes each answer adds up."""
        ones = replace(self, sums=np.broadcast_to(np.float64(1.0), self.sums.shape))
        return ones.sum(starts, stops).astype(np.int64)


PREFIX_BLOCK = 256
#: Points of a picture.
MAX_DRAWN = 1_000
#: Thetas within 2^300 have squares, and so have their steps and their noise, that are ordinary floats.
MAX_EXPONENT = 300


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """What a publisher released from a whole array.

    Attributes
    ----------
    values : float64[n_published]
        The private stream, in units of the input.
    offset : int
        Index, in the input, of the first published value (the hold-out's length).
    threshold : float
        Theta: values were clipped to [0, theta]; where it was renewed the last one, where it rose the highest one,
        and other values were clipped to that of their time.
    guarantee : Guarantee
        What the release promises.
    block : int
        g: values under one noisy sum.  Within a block values are predictions, and the last one closes the
        account, so sums over whole blocks are the noisy sums.  1 with ``revision``, which knows each block's length.
    nodes : ReleasedNodes or None
        All released sums of an inconsistent hierarchy, from which ranges are then answered.
    revision : RevisedStream or None
        The stream seen again from all released sums, where blocks follow the stream (:class:`fastdp.Adaptive`).
    noise : SumNoise or None
        Which noise the sums carry, for intervals; None where it is not one law, as after a renewed threshold.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> released = fastdp.release(np.full(4000, 20.0), epsilon=1.0, bound=100, threshold=40.0, seed=1)
    >>> len(released)
    4000
    >>> low, high = released.interval([0], [1000], revised=True)
    >>> bool(low[0] < released.sum([0], [1000], revised=True)[0] < high[0])
    True
    """

    values: Floats
    offset: int
    threshold: float
    guarantee: Guarantee
    block: int = 1
    nodes: ReleasedNodes | None = None
    revision: RevisedStream | None = None
    noise: SumNoise | None = None
    _prefix: dict[int, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.values.size

    def __repr__(self) -> str:
        behind = f" after a hold-out of {self.offset:,}" if self.offset else ""
        return "\n".join(
            [
                f"{type(self).__name__} of {self.values.size:,} values{behind}",
                f"  values     {preview(self.values)}",
                f"  threshold  {self.threshold:g}",
                f"  guarantee  {self.guarantee}",
            ]
        )

    @validation.plain
    def sum(self, starts: Any, stops: Any, revised: bool = False) -> Floats:
        """Private answers to sums over [start, stop).

        Parameters
        ----------
        starts, stops : int or int[q]
            Indices into ``values``; 0 <= start <= stop <= n_published.
        revised : bool
            False: the sum of the values as they were published.  True: from everything released so far.  With
            ``revision`` that is the revised stream; else a block that the range cuts is answered from its own noisy
            sum, spread evenly, which avoids the last value of a block, with the noise of the whole block.

        Returns
        -------
        float64[q]
            In units of the input.  Post-processing: no further privacy loss.

        Raises
        ------
        ParameterError
            If the indices are no whole numbers in order and in range, naming the first that is not.
        """
        first, last = self._ranges(starts, stops)
        if self.nodes is not None:
            return self.nodes.sum(first, last)
        if revised and self.revision is not None:
            return self.revision.sums_before(last) - self.revision.sums_before(first)
        if revised and self.block > 1:
            return self._spread_before(last) - self._spread_before(first)
        out = np.empty(first.size)
        ranges.sum_ranges(self.values, self._block_prefix(PREFIX_BLOCK), PREFIX_BLOCK, first, last, out)
        return out

    def interval(
        self, starts: Any, stops: Any, confidence: float = 0.95, revised: bool = False
    ) -> tuple[Floats, Floats]:
        """Interval for the true sum of the clipped stream over each [start, stop).

        Parameters
        ----------
        starts, stops, revised
            As for :meth:`sum`.
        confidence : float
            Above 0, at most 1 - 10^-9.

        Returns
        -------
        low, high : float64[q]
            In units of the input; the answer of :meth:`sum` lies between them.

        Raises
        ------
        ParameterError
            For ranges as :meth:`sum`, and for a confidence out of range.
        StateError
            If the release does not state its noise: its threshold was renewed, or its perturber is not fastdp's.

        Notes
        -----
        Post-processing: a function of released numbers, no further privacy loss.  Where the range consists of whole
        blocks the interval is the exact law of the noise (hierarchies made consistent: a bound).  The part of a block
        that a range cuts, published values that lag behind released sums, and revised values rest on a model of
        what blocks hide (``docs/intervals.md``).  The interval of a revised answer also leaves out what no sum of
        values of [0, theta] can be.

        The interval is for values clipped to [0, theta] and rounded to the grid: what clipping removed is not known.
        Where theta rose (:class:`fastdp.Adaptive`) that is the theta of each value's block, not the last one.
        """
        first, last = self._ranges(starts, stops)
        if shift := self._shift:
            low, high = self._scaled(-shift).interval(first, last, confidence, revised)
            return np.ldexp(low, shift), np.ldexp(high, shift)
        bars, answers = self._error_bars(first, last), self.sum(first, last, revised)
        half = bars.half_widths(confidence)
        low, high = bars.centre - half, bars.centre + half
        if revised and self.noise is not None and self.noise.bounded:
            low, high = np.maximum(low, 0.0), np.minimum(high, (last - first) * self.threshold)
        return np.minimum(low, answers), np.maximum(high, answers)

    def std_error(self, starts: Any, stops: Any, revised: bool = False) -> Floats:
        """Root mean square error of :meth:`sum` about the true sum of the clipped stream: float64[q].

        In units of the input.  Of the released noise and of what cut blocks hide, as in :meth:`interval`, and the
        known distance between the answer and the released sums.  Post-processing.
        """
        first, last = self._ranges(starts, stops)
        if shift := self._shift:
            return np.ldexp(self._scaled(-shift).std_error(first, last, revised), shift)
        bars = self._error_bars(first, last)
        return np.hypot(np.sqrt(bars.variances), self.sum(first, last, revised) - bars.centre)

    @validation.plain
    def plot(self, path: str | Path | None = None, ax: Any = None, *, revised: bool = True) -> Any:
        """Draw the mean value over time, the revised one with its 95 % interval; needs matplotlib.

        Parameters
        ----------
        path : str or Path, optional
            Where to save the picture; the suffix chooses the format.
        ax : matplotlib.axes.Axes, optional
            Receives the lines; by default axes of a new figure.
        revised : bool
            Whether to draw the revised stream, where there is one; the interval is then that of the revised means.

        Returns
        -------
        matplotlib.axes.Axes
            Its ``figure`` has the picture.  At most 1,000 points are drawn; each is the mean of a range of values.

        Raises
        ------
        ParameterError
            If nothing was published, or the suffix is no picture's.
        StateError
            As for :meth:`interval`.
        ImportError
            If matplotlib is not installed.
        """
        if not self.values.size:
            raise ParameterError("this release has no values: expected at least one to draw")
        edges = np.linspace(0, self.values.size, min(self.values.size, MAX_DRAWN) + 1).astype(np.int64)
        ranges_drawn, lengths = (edges[:-1], edges[1:]), np.diff(edges)
        middles = self.offset + (edges[:-1] + edges[1:]) / 2.0
        own = revised and (self.revision is not None or self.block > 1)
        low, high = (border / lengths for border in self.interval(*ranges_drawn, revised=own))
        line = self.sum(*ranges_drawn, revised=True) / lengths if own else None
        axes = intervals.new_axes() if ax is None else ax
        intervals.band(axes, middles, self.sum(*ranges_drawn) / lengths, low, high, line, label="published")
        axes.set_xlabel("position in the input")
        axes.set_ylabel("value" if lengths.max() == 1 else f"mean of about {round(float(lengths.mean())):,} values")
        axes.legend(frameon=False, loc="best")
        axes.margins(x=0.0)
        if path is not None:
            intervals.save(axes, path)
        return axes

    @property
    def _shift(self) -> int:
        """The binary exponent of theta where its square, or a step's, is no ordinary float; else 0."""
        exponent = math.frexp(self.threshold)[1]
        return exponent if abs(exponent) > MAX_EXPONENT else 0

    def _scaled(self, shift: int) -> Release:
        """The release of the same stream in units that are a power of two larger, exactly."""
        factor = math.ldexp(1.0, shift)
        return replace(
            self,
            values=self.values * factor,
            threshold=self.threshold * factor,
            nodes=self.nodes and replace(self.nodes, sums=self.nodes.sums * factor),
            revision=self.revision and replace(self.revision, threshold=self.revision.threshold * factor),
            noise=self.noise and replace(self.noise, resolution=self.noise.resolution * factor),
            _prefix={},
        )

    def _error_bars(self, first: Integers, last: Integers) -> ErrorBars:
        """Errors of checked ranges."""
        noise = self.noise
        if noise is None:
            raise StateError(
                "this release does not state its noise, because its threshold was renewed or its perturber is not "
                "fastdp's: expected a release with one threshold, for intervals and standard errors"
            )
        draw, ones, none = noise.draw(self.threshold), np.ones(first.size), np.zeros(first.size)
        if self.revision is not None:
            return self.revision.error_bars(noise, first, last)
        if self.nodes is not None:
            draws = self.nodes.draws(first, last)
            return ErrorBars(self.nodes.sum(first, last), draw, noise.resolution, draws, ones, none)
        if noise.kind == "counter":
            draws = counter_draws(first, last)
            return ErrorBars(self.sum(first, last), draw, noise.resolution, draws, ones, none)
        if noise.kind == "correlated":
            variances = correlated_variances(noise, first, last)
            # Each value's noise is rounded by half a step: at most so much in a sum (Cauchy and Schwarz).
            rounded = 1.0 + np.sqrt(np.minimum(last, noise.epoch)) / float(draw.scale)
            draws = (last > first).astype(np.int64)
            return ErrorBars(
                *(self.sum(first, last), draw, noise.resolution, draws, np.sqrt(variances) * rounded, none)
            )
        edges, rates, behind = self._hidden
        model, whole, shares = hidden_of_ends(first, last, edges, rates)
        centre = self._spread_before(last) - self._spread_before(first)
        drawn = draw.variance * noise.resolution**2
        model += (last - np.maximum(first, edges[-1])).clip(0) ** 2.0 * behind
        if noise.kind == "blocks":
            return ErrorBars(centre, draw, noise.resolution, whole, ones, model + shares * drawn)
        closed = edges.size - 1
        leaves = (np.minimum(index / self.block, closed) for index in (first, last))
        variances = tree_variances(noise, *leaves)
        # A weighted sum of nodes, bounded by the law of fewer draws of one weight.
        draws = np.where(variances > 0.0, np.maximum(np.floor(variances + 1e-9), 1.0), 0.0)
        weight = np.sqrt(variances / np.maximum(draws, 1.0))
        return ErrorBars(centre, draw, noise.resolution, draws.astype(np.int64), weight, model)

    @cached_property
    def _hidden(self) -> tuple[Integers, Floats, float]:
        """Borders of blocks of one length, what each hides a value, and the variance of a prediction."""
        assert self.noise is not None  # noqa: S101 - checked by the caller
        prefix = self._block_prefix(self.block)
        edges: Integers = np.arange(prefix.size, dtype=np.int64) * self.block
        if self.block == 1:
            return edges, np.zeros(prefix.size), 0.0
        rate = rate_of_blocks(np.diff(prefix), self.noise, self.threshold, self.block)
        drawn = self.noise.draw(self.threshold).variance * self.noise.resolution**2
        # The prediction is a released mean, or half of theta before there is one.
        behind = 2.0 * rate / self.block + drawn / self.block**2 if prefix.size > 1 else self.threshold**2 / 4.0
        return edges, np.full(prefix.size, rate), behind

    @property
    def revised(self) -> Floats:
        """The stream in the light of everything released, in units of the input: float64[n_published].

        Post-processing.  Where no block was ever longer than one value these are the values themselves.
        """
        if self.revision is not None:
            return self.revision.values(self.values.size)
        if self.block == 1:
            return self.values
        return np.diff(self._spread_before(np.arange(self.values.size + 1)))

    def with_season(self, period: float) -> Release:
        """The same release with revised answers for a stream that repeats, say by day.

        Post-processing: no further privacy loss.  Where the released sums do not show the period nothing changes.
        Without it a period is looked for, but only one of at least four blocks can be found.

        Parameters
        ----------
        period : float
            Public: after how many values the stream repeats, at least 2 (1,440 for days of counts a minute).  Seven
            times as many (a week) are tried as well.

        Returns
        -------
        Release
            With other ``revised`` values and revised range sums.

        Raises
        ------
        ParameterError
            The release has no blocks that follow the stream.

        Examples
        --------
        >>> import numpy as np, fastdp
        >>> rate = 3 + 3 * np.sin(np.arange(60_000) * 2 * np.pi / 480)
        >>> counts = np.random.default_rng(1).poisson(rate)
        >>> release = fastdp.release(counts, epsilon=0.02, sensitivity=1, seed=1)
        >>> errors = [np.abs(each.revised - rate).mean() for each in (release, release.with_season(480))]
        >>> bool(errors[1] < errors[0])
        True
        """
        if self.revision is None:
            raise ParameterError(
                "with_season changes revised answers of Adaptive, and this release is of another method: "
                "publish with method='adaptive'"
            )
        revision = replace(self.revision, season=validation.period("period", period))
        return replace(self, revision=revision, _prefix={})

    def _ranges(self, starts: Any, stops: Any) -> tuple[Integers, Integers]:
        """Checked ranges, as two arrays of one length."""
        first, last = as_indices("starts", starts), as_indices("stops", stops)
        if first.size != last.size:
            if 1 not in (first.size, last.size):
                raise ParameterError(f"stops has {last.size} entries: expected {first.size}, as starts has")
            size = last.size if first.size == 1 else first.size
            first, last = (np.ascontiguousarray(np.broadcast_to(index, size)) for index in (first, last))
        check_ranges(first, last, np.broadcast_to(self.values.size, first.shape))
        return first, last

    def _block_prefix(self, block: int) -> Floats:
        prefix = self._prefix.get(block)
        if prefix is None:
            prefix = np.empty(self.values.size // block + 1)
            ranges.prefix_blocks(self.values, block, prefix)
            self._prefix[block] = prefix
        return prefix

    def _spread_before(self, stops: Integers) -> Floats:
        """Sum before ``stops`` of the stream in which each closed block is spread evenly."""
        prefix = self._block_prefix(self.block)
        closed = prefix.size - 1
        j, rest = np.divmod(stops, self.block)
        # The block left open at the end still holds its predictions, which are all equal.
        tail = self.values[closed * self.block] if closed * self.block < self.values.size else 0.0
        means = np.append(np.diff(prefix) / self.block, tail)
        sums: Floats = prefix[j] + rest * means[np.minimum(j, closed)]
        return sums


def preview(values: Floats) -> str:
    """The first values and the last one, for a repr."""
    shown = [f"{value:.6g}" for value in values[:4].tolist()]
    return ", ".join(shown if values.size <= 4 else [*shown, "...", f"{values[-1]:.6g}"])


def check_ranges(first: Integers, last: Integers, lengths: Integers) -> None:
    """ParameterError unless each range lies in as many values."""
    wrong = np.flatnonzero((first < 0) | (last > lengths) | (first > last))
    if wrong.size:
        k = int(wrong[0])
        raise ParameterError(
            f"starts[{k}] = {first[k]}, stops[{k}] = {last[k]}: expected 0 <= start <= stop <= {lengths[k]}"
        )


def as_indices(name: str, values: Any) -> Integers:
    """One row of whole numbers: int64[q], contiguous; ParameterError for anything else."""
    found = as_array(values)
    if found is None:
        raise ParameterError(f"{name} is a {type(values).__name__} that is no array: expected whole numbers, one row")
    array = np.atleast_1d(found)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ParameterError(
            f"{name} has shape {array.shape} and dtype {kind_of(array.dtype)}: expected whole numbers, one row"
        )
    return np.ascontiguousarray(array, dtype=np.int64)
