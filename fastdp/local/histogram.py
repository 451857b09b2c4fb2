"""Counts of square-wave reports, from which the server estimates a distribution."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Unpack

import numpy as np

from fastdp import validation
from fastdp.arrays.kinds import Integers
from fastdp.errors import ParameterError
from fastdp.local.collectors import MAX_REPORTS, Collector
from fastdp.local.square_wave import SquareWave

if TYPE_CHECKING:
    from fastdp.local.distribution import Distribution, EstimateOptions, Method


class HistogramCollector(Collector):
    """Counts square-wave reports in the cells from which the distribution is estimated.

    Parameters
    ----------
    mechanism : SquareWave
        The mechanism announced to the clients.
    bins : int
        Output cells, and bins of the estimate.
    """

    bins: int

    def __init__(self, mechanism: SquareWave, bins: int = 1024) -> None:
        if not isinstance(mechanism, SquareWave):
            raise ParameterError(f"mechanism = {validation.shown(mechanism)}: expected a fastdp.local.SquareWave")
        super().__init__(mechanism, bins=validation.integer("bins", bins, 1, mechanism.STEPS))

    @staticmethod
    def _zeros(mechanism: SquareWave, **parameters: int) -> Integers:
        return np.zeros(parameters["bins"], np.int64)

    @staticmethod
    def _n_reports(totals: Integers) -> int:
        return int(totals.sum())

    @staticmethod
    def _check_totals(mechanism: SquareWave, totals: Integers) -> None:
        if totals.min() < 0 or totals.max() > MAX_REPORTS:
            raise ParameterError(f"totals of a collector: expected counts from 0 to {MAX_REPORTS}")

    @staticmethod
    def _adds(
        mechanism: SquareWave, totals: Integers, reports: Integers, slots: Integers
    ) -> list[Callable[[], object]]:
        # Cell k holds the outputs j with floor(j bins / M) = k, as the estimate's matrix has it.
        cells = reports * totals.size // mechanism.n_outputs
        return [partial(np.add, totals, np.bincount(cells, minlength=totals.size), totals)]

    def estimate(self, method: Method = "em", **options: Unpack[EstimateOptions]) -> Distribution:
        """The distribution of the values behind the reports; as :meth:`SquareWave.estimate`.

        Parameters
        ----------
        method : "em" or "ems"
            Without or with smoothing.
        **options
            ``accelerate``, ``max_iterations``, ``tolerance`` of :func:`fastdp.local.distribution.estimate`.
        """
        found: Distribution = self.mechanism.estimate_counts(self.totals, bins=self.bins, method=method, **options)
        return found
