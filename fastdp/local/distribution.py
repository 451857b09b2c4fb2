"""Estimate the distribution of values from square-wave reports: post-processing.

Source: ToPS section 4.1 and Appendix E.1; Li et al. 2020 (EM, EMS).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

import numpy as np

from fastdp import validation
from fastdp.data import column
from fastdp.errors import DataError, MissingError, ParameterError
from fastdp.kinds import Floats, Integers, Values
from fastdp.local.mechanisms import octave, ratios_at
from fastdp.local.reports import WindowDistribution
from fastdp.releases.intervals import checked_confidence
from fastdp.validation import refusal

if TYPE_CHECKING:
    from fastdp.local.strict_bounds import StrictBounds
    from fastdp_kernels.local.band_matrix import Band
    from fastdp_kernels.local.square_wave_em import Reports

Method = Literal["em", "ems"]
#: Stopping rule of the published code: gain of one step in log-likelihood; EM multiplies it by e^epsilon.
TOLERANCE = 1e-3
MAX_ITERATIONS = 10_000


class EstimateOptions(TypedDict, total=False):
    """Options of :func:`estimate` for its iterations."""

    accelerate: bool
    max_iterations: int
    tolerance: float | None


@dataclass(frozen=True, eq=False)
class Distribution:
    """Estimated distribution on [low, high]: a histogram, uniform within its bins.

    Attributes
    ----------
    frequencies : float64[bins]
        Of bins of equal width on the scale; read-only.
    low, high : float
        The domain, in units of the input.
    method : str
        ``"em"`` or ``"ems"``, and any later processing.
    iterations, converged
        EM steps; True if the last gained less than the tolerance.
    log_likelihood : float
        Natural logarithm of the reports' likelihood.
    n_reports : int
        Number of reports.
    scale : "linear" or "logarithmic"
        Bins have equal widths in units of the input, or in octaves of v / low.
    reports : tuple or None
        Distribution of a report and counts by cell.
    """

    frequencies: Floats
    low: float
    high: float
    method: str
    iterations: int
    converged: bool
    log_likelihood: float
    n_reports: int
    scale: str = "linear"
    reports: tuple[WindowDistribution, Integers] | None = None

    def __post_init__(self) -> None:
        # Of a damaged file.
        least = -np.inf if self.scale == "linear" else 0.0
        if not least < self.low < self.high < np.inf:
            raise refusal("high", self.high, f"a number above low = {self.low!r}")
        self.frequencies.flags.writeable = False

    @property
    def edges(self) -> Floats:
        """Bin edges, float64[bins + 1]."""
        return self.divide(self.frequencies.size)

    def divide(self, count: int) -> Floats:
        """Edges of `count` equal intervals, float64[count + 1]."""
        if self.scale == "linear":
            return np.linspace(self.low, self.high, count + 1)
        edges = self.low * ratios_at(np.linspace(0.0, octave(self.high / self.low), count + 1))
        edges[-1] = self.high
        return edges

    def mean(self) -> float:
        """Mean, in units of the input."""
        edges = self.edges
        return float(self.frequencies @ (edges[:-1] + edges[1:])) / 2.0

    def quantile(self, q: float) -> float:
        """Smallest v with a share of at least q, in [0, 1], below it."""
        fraction = validation.real("q", q)
        if not 0.0 <= fraction <= 1.0:
            raise refusal("q", q, "a share from 0 to 1")
        below = np.cumsum(self.frequencies)
        fraction *= float(below[-1])
        i = int(np.searchsorted(below, fraction))
        within = (fraction - (float(below[i - 1]) if i else 0.0)) / max(float(self.frequencies[i]), math.ulp(0.0))
        edges = self.edges
        return float(edges[i] + min(max(within, 0.0), 1.0) * (edges[i + 1] - edges[i]))

    def quantile_interval(self, q: float, confidence: float = 0.95) -> tuple[float, float]:
        """Interval for the true quantile, as of :meth:`interval`."""
        likely, bounds = self.quantile(q), self._bounds()
        steps = np.array(bounds.quantile(validation.real("q", q), bounds.deviations(checked_confidence(confidence))))
        places = steps / bounds.atoms[-1]
        if self.scale == "linear":
            ends = self.low + (self.high - self.low) * places
        else:
            ends = self.low * ratios_at(places * octave(self.high / self.low))
        return min(likely, float(ends[0])), min(self.high, max(likely, float(ends[1])))

    def sum(self, starts: Values, stops: Values) -> Floats:
        """Estimated numbers of values in [start, stop); `high` is in a range that ends there."""
        first, last = _as_ranges(starts, stops)
        return self.n_reports * (self.tail(first) - self.tail(last))

    def interval(self, starts: Values, stops: Values, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Intervals (low, high) for the true answers of :meth:`sum`.

        They cover every distribution of values that agrees with the reports, and need hundreds of reports.  Ends are
        rounded to 2^-20 of the scale.

        Parameters
        ----------
        starts, stops : float or float[q]
            In units of the input.
        confidence : float
            Above 0, at most 1 - 10^-9.

        Raises
        ------
        MissingError
            If the distribution was not estimated from reports.
        """
        first, last = _as_ranges(starts, stops)
        likely, wanted = self.sum(first, last), checked_confidence(confidence)
        low, high = np.empty(first.shape), np.empty(first.shape)
        for i in np.ndindex(first.shape):
            ends = self._step_of(float(first[i])), self._step_of(float(last[i]))
            bounds = self._bounds(*ends)
            low[i], high[i] = bounds.share(*ends, bounds.deviations(wanted))
        # Iterations that ended early may leave an estimate outside.
        return np.minimum(low * self.n_reports, likely)[()], np.maximum(high * self.n_reports, likely)[()]

    def _step_of(self, value: float) -> int:
        top = self._reported[0].steps
        within = min(max(value, self.low), self.high)
        if self.scale == "linear":
            return round((within - self.low) / (self.high - self.low) * top)
        return round(octave(within / self.low) / octave(self.high / self.low) * top)

    def _bounds(self, *steps: int) -> StrictBounds:
        from fastdp.local.strict_bounds import StrictBounds

        window, counts = self._reported
        return StrictBounds(window, cell_edges(window, counts.size), counts, *steps)

    def tail(self, theta: Values) -> Floats:
        """Share above each theta."""
        above: Floats = np.interp(np.asarray(theta, np.float64), self.edges, self._tails())[()]
        return above

    def excess(self, theta: Values) -> Floats:
        """Mean of max(v - theta, 0) for each theta."""
        edges, tails = self.edges, self._tails()
        areas = np.append(np.cumsum(((tails[:-1] + tails[1:]) * np.diff(edges) / 2.0)[::-1])[::-1], 0.0)
        at = np.asarray(theta, np.float64)
        i = np.clip(np.searchsorted(edges, at, "right"), 1, self.frequencies.size)
        rest = np.clip(edges[i] - at, 0.0, edges[i] - edges[i - 1])
        below = np.maximum(self.low - at, 0.0) * tails[0]
        mean: Floats = (areas[i] + rest * (tails[i] + self.tail(at)) / 2.0 + below)[()]
        return mean

    @property
    def _reported(self) -> tuple[WindowDistribution, Integers]:
        if self.reports is None:
            raise MissingError("this distribution has no reports: expected one that was estimated from them")
        return self.reports

    def _tails(self) -> Floats:
        return np.append(np.cumsum(self.frequencies[::-1])[::-1], 0.0)


def _as_ranges(starts: Values, stops: Values) -> tuple[Floats, Floats]:
    first, last = np.broadcast_arrays(np.asarray(starts, np.float64), np.asarray(stops, np.float64))
    if not (first <= last).all():
        raise ParameterError("starts, stops: expected numbers, each start at most its stop")
    return first, last


def estimate(
    distribution: WindowDistribution,
    epsilon: float,
    output_counts: Values,
    *,
    bins: int = 1024,
    method: Method = "em",
    low: float = 0.0,
    high: float = 1.0,
    accelerate: bool = True,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float | None = None,
) -> Distribution:
    """Estimate the distribution of values from counts of reports.

    Parameters
    ----------
    distribution : WindowDistribution
        Of a report, with M outputs.
    epsilon : float
        Sets EM's tolerance.
    output_counts : int[M], or int[cells] with fewer cells than M
        Reports by output, or by cell k = floor(j cells / M) of outputs j.
    bins : int
        From 1 to D.
    method : "em" or "ems"
        Maximum likelihood, or smoothed by (1, 2, 1) / 4 after each step.
    low, high : float
        Values of grid steps 0 and D.
    accelerate, max_iterations, tolerance
        SQUAREM for EM; most steps; least gain of a step (by default 1e-3 e^epsilon for EM, 1e-3 for EMS).

    Raises
    ------
    DataError, ParameterError
        If counts are negative, not whole, or all 0; for another argument.
    """
    cells = validation.integer("bins", bins, 1, distribution.steps)
    validation.choice("method", method, get_args(Method))
    steps = validation.integer("max_iterations", max_iterations, 1, 2**40)
    left, right = validation.real("low", low), validation.real("high", high)
    if not left < right:
        raise refusal("high", high, f"a number above low, {left!r}")
    budget = validation.positive("epsilon", epsilon)
    usual = TOLERANCE * (math.exp(min(budget, 700.0)) if method == "em" else 1.0)
    least = usual if tolerance is None else validation.positive("tolerance", tolerance)
    counts = in_cells(distribution, _checked_counts(output_counts, distribution.outputs), cells)

    from fastdp_kernels.local import square_wave_em

    reports = transition(distribution, cells, counts)
    frequencies = np.full(cells, 1.0 / cells)
    if accelerate and method == "em":
        done = square_wave_em.iterate_accelerated(reports, least, steps, frequencies)
    else:
        done = square_wave_em.iterate_plain(reports, method == "ems", least, steps, frequencies)
    iterations, converged, likelihood = done
    total, reported = int(counts.sum()), (distribution, counts)
    return Distribution(frequencies, left, right, method, iterations, converged, likelihood, total, reports=reported)


def _checked_counts(output_counts: object, outputs: int) -> Integers:
    accepted = f"one count, a whole number of at least 0, for each of {outputs} outputs (or of fewer cells)"
    array = column.as_array(output_counts)
    if array is None:
        raise DataError(f"output_counts is a {type(output_counts).__name__}: expected {accepted}")
    if array.ndim != 1 or array.dtype.kind not in "iu" or not 0 < array.size <= outputs:
        kind = column.kind_of(array.dtype)
        raise DataError(f"output_counts of shape {array.shape} and type {kind}: expected {accepted}")
    counts = array.astype(np.int64)
    if counts.min() < 0:
        raise DataError(f"{column.entry_at('output_counts', counts < 0, 'below 0')}; expected {accepted}")
    if not counts.any():
        raise DataError("output_counts holds no report at all: expected at least one")
    return counts


def cell_edges(distribution: WindowDistribution, cells: int) -> Integers:
    """First output of each cell, then M: int64[cells + 1]."""
    return -(-np.arange(cells + 1, dtype=np.int64) * distribution.outputs // cells)


def in_cells(distribution: WindowDistribution, counts: Integers, cells: int) -> Integers:
    """Add up counts of outputs by cell; counts by cell stay unchanged."""
    return (
        np.add.reduceat(counts, cell_edges(distribution, cells)[:-1])
        if counts.size == distribution.outputs
        else counts
    )


def transition(distribution: WindowDistribution, bins: int, counts: Integers) -> Reports:
    """Counts by cell, with the transition matrix flat_k + peak_k F_ki."""
    from fastdp_kernels.local.square_wave_em import Reports

    return Reports(counts.astype(np.float64), *_transition(distribution, bins, counts.size))


# Resampled reports ask for the same one.
@lru_cache(maxsize=1)
def _transition(distribution: WindowDistribution, bins: int, cells: int) -> tuple[Floats, Floats, Band, Band]:
    outputs = cell_edges(distribution, cells)
    # In units of a step divided by bins, all edges are integers.
    rows = outputs * bins
    columns = np.arange(bins + 1, dtype=np.int64) * distribution.steps
    width = distribution.near * bins
    everywhere = (
        distribution.far_weight + Fraction(distribution.left_over, distribution.outputs)
    ) / distribution.total
    on_top = Fraction(distribution.near_weight - distribution.far_weight, distribution.total)
    lengths = np.diff(outputs).astype(np.float64)
    return (
        lengths * float(everywhere),
        lengths * float(on_top),
        _band(rows, columns, 0, width),
        _band(columns, rows, -width, 0),
    )


def _band(rows: Integers, columns: Integers, low: int, high: int) -> Band:
    """Band low <= y - t < high between intervals with edges `rows` (y) and `columns` (t)."""
    from fastdp_kernels.local.band_matrix import Band

    n, c = rows.size - 1, columns.size - 1
    first = np.searchsorted(columns[1:] + high, rows[:-1], "right")
    begin = np.searchsorted(columns[:-1] + high, rows[1:], "left")
    stop = np.searchsorted(columns[1:] + low, rows[:-1], "right")
    end = np.searchsorted(columns[:-1] + low, rows[1:], "left")
    begin = np.minimum(begin, stop)
    # Without a core all is the left flank's.
    left_end, right_begin = np.where(begin < stop, (begin, stop), end)
    windows, flanks = [], []
    for before, after in ((first, left_end), (right_begin, end)):
        width = max(0, int((after - before).max()))
        # A window must not reach beyond the last column.
        window = np.minimum(before, c - width)
        i = window + np.arange(width)[:, None]
        fractions = _fraction_of_band(rows[:-1], rows[1:], columns[i], columns[i + 1], low, high)
        windows.append(window)
        flanks.append(np.where((before <= i) & (i < after), fractions, 0.0).reshape(width, n))
    return Band(np.stack([windows[0], begin, stop, windows[1]]).astype(np.int64), *flanks)


def _fraction_of_band(y0: Integers, y1: Integers, t0: Integers, t1: Integers, low: int, high: int) -> Floats:
    """Fraction of [y0, y1) x [t0, t1) with low <= y - t < high."""
    rise, fall = y0 - high, y1 - low
    tallest = np.minimum(y1 - y0, high - low)
    flat, falling = rise + tallest, fall - tallest
    area: Floats = np.zeros(t0.shape)
    # Trapezoids: length in t, times the sum of the two heights; twice the area.
    for left, right in ((rise, flat), (flat, falling), (falling, fall)):
        begin, stop = np.maximum(t0, left), np.minimum(t1, right)
        heights = [np.minimum(np.minimum(at - rise, tallest), fall - at).astype(np.float64) for at in (begin, stop)]
        area += np.maximum(stop - begin, 0).astype(np.float64) * (heights[0] + heights[1])
    return area / (2.0 * (y1 - y0).astype(np.float64) * (t1 - t0).astype(np.float64))
