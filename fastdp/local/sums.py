"""Sums of reports of means, slot by slot, with their standard error."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from fastdp import validation
from fastdp.arrays.exact_sum import exact_sum
from fastdp.arrays.kinds import Integers
from fastdp.errors import ParameterError
from fastdp.local.base import MeanMechanism
from fastdp.local.collectors import MAX_REPORTS, Collector

MAX_SLOTS = 2**30


class SumCollector(Collector):
    """Adds up reports of means, slot by slot: sums over ranges of slots with their standard error.

    Parameters
    ----------
    mechanism : StochasticRounding, Piecewise or Hybrid
        The mechanism announced to the clients.
    slots : int
        For example hours, or places: each report is counted in one.
    """

    def __init__(self, mechanism: MeanMechanism, slots: int = 1) -> None:
        if not isinstance(mechanism, MeanMechanism):
            raise ParameterError(
                f"mechanism = {validation.shown(mechanism)}: expected StochasticRounding, Piecewise or Hybrid"
            )
        super().__init__(mechanism, slots=validation.integer("slots", slots, 1, MAX_SLOTS))

    @staticmethod
    def _zeros(mechanism: MeanMechanism, **parameters: int) -> Integers:
        # Of each slot and term: how many reports, and their sum.
        return np.zeros((parameters["slots"], len(mechanism.law.terms()), 2), np.int64)

    @staticmethod
    def _n_reports(totals: Integers) -> int:
        return int(totals[:, :, 0].sum())

    @staticmethod
    def _adds(
        mechanism: MeanMechanism, totals: Integers, reports: Integers, slots: Integers
    ) -> list[Callable[[], object]]:
        adds: list[Callable[[], object]] = []
        for k, term in enumerate(mechanism.law.terms()):
            mine = (reports >= term.first) & (reports < term.last)
            adds.append(partial(np.add.at, totals[:, k, 0], slots[mine], 1))
            adds.append(partial(np.add.at, totals[:, k, 1], slots[mine], reports[mine]))
        return adds

    @staticmethod
    def _check_totals(mechanism: MeanMechanism, totals: Integers) -> None:
        terms, counts, sums = mechanism.law.terms(), totals[:, :, 0], totals[:, :, 1]
        first = np.array([term.first for term in terms])
        last = np.array([term.last - 1 for term in terms])
        # At most 2^40 reports of less than 2^22: products and sums fit int64.
        if counts.min() < 0 or counts.max() > MAX_REPORTS or (sums < first * counts).any():
            raise ParameterError(f"totals of a collector: expected counts from 0 to {MAX_REPORTS}, and sums that fit")
        if (sums > last * counts).any():
            raise ParameterError("totals of a collector: expected sums that fit the counts")

    def sum(self, start: int = 0, stop: int | None = None) -> float:
        """Unbiased estimate of the sum of the clipped values in the slots [start, stop), in units of the input."""
        totals = self._between(start, stop)
        m = self.mechanism
        steps = Fraction(0)
        for term, (count, total) in zip(m.law.terms(), totals, strict=True):
            steps += term.offset * count + term.gain * (total - term.first * count)
        unit = Fraction(m.high - m.low) / m.STEPS
        return float(Fraction(m.low) * _count_of(totals) + unit * steps)

    def standard_error(self, start: int = 0, stop: int | None = None) -> float:
        """Standard error of :meth:`sum`, at most: every value may be the one with the largest variance."""
        return math.sqrt(_count_of(self._between(start, stop)) * self.mechanism.worst_variance)

    def mean(self, start: int = 0, stop: int | None = None) -> float:
        """Unbiased estimate of the mean of the clipped values; NaN without reports."""
        count = _count_of(self._between(start, stop))
        return self.sum(start, stop) / count if count else math.nan

    def _between(self, start: int, stop: int | None) -> list[tuple[int, int]]:
        """Number and sum of the reports of each term, exactly."""
        first = validation.integer("start", start, 0, self.slots)
        last = validation.integer("stop", self.slots if stop is None else stop, first, self.slots)
        return [(count, total) for count, total in exact_sum(self.totals[first:last])]


def _count_of(totals: list[tuple[int, int]]) -> int:
    return sum(count for count, _ in totals)
