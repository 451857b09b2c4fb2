"""Estimates with error bars of sums, counts and means over consecutive windows.

A sum over m windows carries m draws of noise, whose law is known.  A mean is a quotient of
two independent noisy sums; Fieller's interval inverts |D - mu C| <= z sd(D - mu C), where z is the largest of the
standardised quantiles of the parts and the normal one: the tails of a sum of both lie between them.

Post-processing: everything here is a function of released numbers and of public ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fastdp.tables.revised import Revised, local_patterns, revise
from fastdp.tables.sums import NoisySums, WindowSums

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Answer:
    """Estimates with their error bars, in units of the input: float64[q, K] each.

    Attributes
    ----------
    estimate, std_error, low, high : float64[q, K]
        The answer, its standard error, and its interval.
    """

    estimate: Floats
    std_error: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class _Part:
    """A sum over ranges: its value, variance, and interval; float64[q, K]."""

    value: Floats
    variance: Floats
    low: Floats
    high: Floats

    @property
    def quantile(self) -> Floats:
        """Half of the interval in standard deviations; 0 where the noise is none."""
        half, deviation = (self.high - self.low) / 2.0, np.sqrt(self.variance)
        out: Floats = np.divide(half, deviation, out=np.zeros_like(half), where=deviation > 0.0)
        return out


class Answers:
    """What the released windows say about ranges of windows.

    Parameters
    ----------
    sums : WindowSums
        What was released.
    confidence : float
        Of the intervals.
    """

    def __init__(self, sums: WindowSums, confidence: float) -> None:
        self._sums = sums
        self._confidence = confidence
        self._normal = float(norm.ppf(0.5 + confidence / 2.0))

    def exact(self, starts: Integers, stops: Integers, *, pooled: bool = False) -> Answer:
        """Answers from the noisy sums of windows [start, stop) alone; ``pooled`` adds up the keys."""
        parts = {name: self._exact(noisy, starts, stops, pooled) for name, noisy in self._sums.columns.items()}
        return self._answer(parts)

    def revised(self, starts: Integers, stops: Integers, *, pooled: bool = False) -> Answer:
        """The same in the light of all windows, with the model's error bars."""
        parts = {name: self._smooth(name, starts, stops, pooled) for name in self._sums.columns}
        return self._answer(parts)

    def _exact(self, noisy: NoisySums, starts: Integers, stops: Integers, pooled: bool) -> _Part:
        steps = noisy.steps.sum(axis=1, keepdims=True) if pooled else noisy.steps
        if np.array_equal(stops, starts + 1):
            sums = steps[starts]
        else:
            prefix = np.zeros((steps.shape[0] + 1, steps.shape[1]), np.int64)
            np.cumsum(steps, axis=0, out=prefix[1:])
            sums = prefix[stops] - prefix[starts]
        draws = (stops - starts) * (noisy.steps.shape[1] if pooled else 1)
        value: Floats = sums * np.float64(noisy.resolution)
        variance = draws * noisy.noise.variance * noisy.resolution**2
        half = _column(noisy.noise.quantiles(draws, self._confidence))
        # In whole steps: the ends belong to the interval, and rounding must not move them inwards.
        low, high = ((sums.astype(np.float64) + side * half) * noisy.resolution for side in (-1, 1))
        return _Part(value, np.broadcast_to(_column(variance), value.shape), low, high)

    def _smooth(self, name: str, starts: Integers, stops: Integers, pooled: bool) -> _Part:
        revised = self._revisions[name]
        if np.array_equal(stops, starts + 1):
            value, variance = revised.values[starts], revised.variances[starts]
        else:
            prefix = np.zeros((revised.values.shape[0] + 1, revised.values.shape[1]))
            np.cumsum(revised.values, axis=0, out=prefix[1:])
            value = prefix[stops] - prefix[starts]
            listed = [revised.sum_variance(*pair) for pair in zip(starts.tolist(), stops.tolist(), strict=True)]
            variance = np.array(listed).reshape(value.shape)
        if pooled:
            value, variance = value.sum(axis=1, keepdims=True), variance.sum(axis=1, keepdims=True)
        # Where windows say little about each other the error is their noise, whose tails are longer than normal ones.
        noise = self._exact(self._sums.columns[name], starts, stops, pooled)
        half = np.sqrt(variance) * np.maximum(noise.quantile, self._normal)
        return _Part(value, variance, value - half, value + half)

    @cached_property
    def _revisions(self) -> dict[str, Revised]:
        patterns = local_patterns(self._sums.edges, self._sums.time_zone)
        return {
            name: revise(noisy.values, noisy.noise.variance * noisy.resolution**2, patterns)
            for name, noisy in self._sums.columns.items()
        }

    def _answer(self, parts: dict[str, _Part]) -> Answer:
        if self._sums.kind == "means":
            return self._mean(parts["deviation"], parts["count"])
        part = next(iter(parts.values()))
        return Answer(part.value, np.sqrt(part.variance), part.low, part.high)

    def _mean(self, deviation: _Part, count: _Part) -> Answer:
        """Centre + deviation / count; where the count is not clearly above 0, all that clipping allows."""
        low, high = self._sums.clip or (-np.inf, np.inf)
        centre = self._sums.centre
        quantile = np.maximum(np.maximum(deviation.quantile, count.quantile), self._normal)
        size = np.maximum(count.value, 1.0)
        mean = np.clip(deviation.value / size, low - centre, high - centre)
        error = np.sqrt(deviation.variance + mean**2 * count.variance) / size
        clear = count.value**2 - quantile**2 * count.variance
        known = (clear > 0.0) & (count.value > 0.0)
        clear = np.where(known, clear, 1.0)
        inside = count.variance * deviation.value**2 + deviation.variance * clear
        middle, half = deviation.value * count.value / clear, quantile * np.sqrt(np.maximum(inside, 0.0)) / clear
        lower = np.clip(np.where(known, middle - half, low - centre), low - centre, mean)
        upper = np.clip(np.where(known, middle + half, high - centre), mean, high - centre)
        return Answer(centre + mean, np.minimum(error, high - low), centre + lower, centre + upper)


def _column(row: Any) -> Floats:
    return np.asarray(row, np.float64).reshape(-1, 1)
