"""The server's role in ToPL: it sees reports, never values (CCS 2021, section 4)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_column, is_number
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee, parallel
from fastdp.local import Hybrid, SquareWave
from fastdp.local.base import local_epsilon
from fastdp.local.client import Announcement
from fastdp.local.collectors import Refused, as_most_reports
from fastdp.local.distribution import Distribution
from fastdp.local.encoding import as_bytes, split
from fastdp.local.histogram import HistogramCollector
from fastdp.state import codec
from fastdp.state.persistence import Position
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Reports
from fastdp.systems.stream.parameters import DEFAULT_HOLDOUT
from fastdp.thresholds import Fixed, ThresholdTask
from fastdp.thresholds import SquareWave as SquareWaveRule
from fastdp.thresholds.fixed import as_rule
from fastdp.thresholds.square_wave import SCALES, Scale

Floats = NDArray[np.float64]


class ToPLServer(Reports):
    """Collects reports for the threshold, announces it, and publishes one estimate for each later report.

    Parameters
    ----------
    epsilon : float
        Privacy loss of a report, in [1e-6, 32].
    bound : float
        Public upper bound of a value, in units of the input.
    holdout : int
        m: the first users, whose reports choose the threshold.
    max_range : int
        r: the longest range that the threshold is chosen for.
    threshold : SquareWave, Fixed, float, "linear" or "logarithmic", optional
        The threshold optimiser, from :mod:`fastdp.thresholds`; by default ``SquareWave()``, the paper's SW-W with
        the corrected objective.  A name stands for ``SquareWave(scale=name)``: "logarithmic" where values lie far
        below the bound.  ``Fixed(theta)`` or the number theta is public and needs no hold-out.
    threshold_epsilon, publish_epsilon : float, optional
        Budgets of the users before and after the threshold, where they differ from ``epsilon``.

    Notes
    -----
    Privacy: every user sends one report of one mechanism (local model, pure epsilon, exact integers); the groups are
    disjoint, so the larger epsilon counts (parallel composition).
    """

    _PARTS: ClassVar[codec.Parts] = {kind.__name__: kind for kind in (SquareWaveRule, Fixed)}
    _CHANGING = ("_hybrid", "_collector", "_distribution", "_refused", "_n_published")

    def __init__(
        self,
        epsilon: float,
        bound: float,
        holdout: int = DEFAULT_HOLDOUT,
        max_range: int = 2**20,
        *,
        threshold: SquareWaveRule | Fixed | float | Scale | None = None,
        threshold_epsilon: float | None = None,
        publish_epsilon: float | None = None,
    ) -> None:
        super().__init__()
        self.epsilon = validation.positive("epsilon", epsilon)
        self.bound = validation.positive("bound", bound)
        self.max_range = validation.integer("max_range", max_range, 1, 2**40)
        rule = SquareWaveRule() if threshold is None else as_rule(threshold)
        if isinstance(rule, str):
            validation.choice("threshold", rule, SCALES)
            rule = SquareWaveRule(scale="logarithmic" if rule == "logarithmic" else "linear")
        if not isinstance(rule, (SquareWaveRule, Fixed)):
            raise ParameterError(
                f"threshold = {validation.shown(rule)}: expected 'linear', 'logarithmic', "
                "thresholds.SquareWave(...) or thresholds.Fixed(theta); the others need the values themselves"
            )
        self.holdout = validation.integer("holdout", holdout, 1, 2**50) if rule.uses_holdout else 0
        if isinstance(rule, SquareWaveRule) and None not in (rule.report_epsilon, threshold_epsilon):
            raise ParameterError(
                f"threshold_epsilon = {threshold_epsilon!r}: expected None, because the threshold has "
                f"report_epsilon = {rule.report_epsilon!r}"
            )
        first = (
            self.epsilon if threshold_epsilon is None else validation.positive("threshold_epsilon", threshold_epsilon)
        )
        later = self.epsilon if publish_epsilon is None else local_epsilon("publish_epsilon", publish_epsilon)
        self._task = ThresholdTask(
            first, self.bound, self.holdout, self.max_range, self.bound / SquareWave.STEPS, later
        )
        # What the second group could not use is refused before the first one reports.
        self._widest = Hybrid(later, 0.0, self.bound)
        self._hybrid: Hybrid | None = None
        self._collector: HistogramCollector | None = None
        self._distribution: Distribution | None = None
        self._refused = Refused()
        self._n_published = 0
        self._given = {
            "threshold": rule,
            "threshold_epsilon": None if threshold_epsilon is None else first,
            "publish_epsilon": None if publish_epsilon is None else later,
        }
        if isinstance(rule, Fixed):
            self._hybrid = Hybrid(later, 0.0, rule.start(self._task).theta)
        else:
            self._rule = rule
            self._collector = HistogramCollector(rule.client(self._task), rule.n_bins)

    @property
    def announcement(self) -> Announcement:
        """What users are asked for now."""
        return Announcement(self._sought("announcement").mechanism if self._hybrid is None else self._hybrid)

    @property
    def threshold(self) -> float | None:
        """Theta, in units of the input; None until it is chosen."""
        return None if self._hybrid is None else self._hybrid.high

    @property
    def distribution(self) -> Distribution | None:
        """The estimated distribution that theta was chosen from, its tail pruned if the optimiser does."""
        return self._distribution

    @property
    def n_collected(self) -> int:
        """Reports collected for the threshold."""
        return 0 if self._collector is None else self._collector.n_reports

    @property
    def n_published(self) -> int:
        """Estimates published, those of refused reports not counted."""
        return self._n_published

    @property
    def refused(self) -> Refused:
        """Reports and messages left out so far."""
        first = Refused() if self._collector is None else self._collector.refused
        return Refused(first.reports + self._refused.reports, first.messages + self._refused.messages)

    @property
    def value_variance(self) -> float:
        """Largest variance of one estimate; NaN until theta is chosen."""
        return math.nan if self._hybrid is None else self._hybrid.worst_variance

    @property
    def guarantee(self) -> Guarantee:
        """Of both groups together, derived from their mechanisms."""
        published = (self._widest if self._hybrid is None else self._hybrid).guarantee.of("users after the threshold")
        if self._collector is None:
            return published
        return parallel(self._collector.mechanism.guarantee.of("users before the threshold"), published)

    @exclusive
    def receive(self, data: bytes | bytearray | memoryview, *, most_reports: int | None = None) -> Floats:
        """Take in messages.

        Parameters
        ----------
        data : bytes
            One or several messages of :meth:`fastdp.local.Client.answer`.  What is malformed, out of range or answers
            another announcement is counted in ``refused`` and left out.
        most_reports : int, optional
            A message with more reports is refused too: 1 where every message comes from one user.  Who may send one,
            and how often, is up to the transport (``docs/sharp_edges.md``).

        Returns
        -------
        float64[k]
            The estimates of the values behind hybrid reports, in order, in units of the input; none while the
            threshold is sought.  As soon as m reports are in, theta is chosen (the buffer's others count too); the
            next announcement has it.
        """
        most = as_most_reports(most_reports)
        words = str(most).encode()
        return self._consume(lambda server: server._receive(data, most), as_bytes(data), words)

    def _receive(self, data: bytes | bytearray | memoryview, most_reports: int | None) -> Floats:
        if self._hybrid is None:
            self._sought("receive").receive(data, most_reports=most_reports)
            self._choose()
            return np.empty(0)
        parts = [np.empty(0)]
        for reports in split(data, self._hybrid):
            if reports is None or (most_reports is not None and reports.size > most_reports):
                self._refused.messages += 1
            else:
                parts.append(self._publish(reports))
        return np.concatenate(parts)

    @exclusive
    def collect(self, reports: Any) -> None:
        """Take in square-wave reports, without their messages; those out of range are counted and left out."""
        column = as_column([reports] if is_number(reports) else reports, "reports")
        self._consume(lambda server: server._collect(column), column)

    def _collect(self, column: NDArray[Any]) -> None:
        self._sought("collect").add(column)
        self._choose()

    def shard(self) -> HistogramCollector:
        """An empty collector for another machine, to be merged later."""
        collector = self._sought("shard")
        return HistogramCollector(collector.mechanism, collector.bins)

    @exclusive
    def merge(self, *collectors: HistogramCollector) -> None:
        """Take in what other machines have collected for the threshold; all or nothing."""
        self._consume(lambda server: server._merge(collectors), *(c.to_bytes() for c in collectors))

    def _merge(self, collectors: tuple[HistogramCollector, ...]) -> None:
        merged = self._sought("merge").merge(*collectors)
        if merged.n_reports >= self.holdout:
            self._choose_from(merged)
        self._collector = merged

    @exclusive
    def publish(self, reports: Any) -> Floats:
        """Estimates from hybrid reports, without their messages.

        Parameters
        ----------
        reports : one column of whole numbers
            Those out of range are counted in ``refused``.

        Returns
        -------
        float64[n]
            One estimate a report, in units of the input; NaN for those refused, so that the others keep their places.
        """
        column = as_column([reports] if is_number(reports) else reports, "reports")
        return self._consume(lambda server: server._publish(column), column)

    def _publish(self, column: NDArray[Any]) -> Floats:
        if self._hybrid is None:
            raise StateError("publish() before the threshold was chosen: expected square-wave reports, for collect()")
        good = (column >= 0) & (column < self._hybrid.n_outputs) & (column == np.floor(column))
        self._n_published += int(np.count_nonzero(good))
        if good.all():
            return self._hybrid.estimate(column.astype(np.int64, copy=False) if column.dtype.kind == "f" else column)
        self._refused.reports += int(np.count_nonzero(~good))
        estimates = np.full(column.size, np.nan)
        estimates[good] = self._hybrid.estimate(column[good].astype(np.int64))
        return estimates

    @exclusive
    def choose(self) -> None:
        """Choose theta if it is sought and m reports are in.

        Collecting does so by itself; call it if that was interrupted.
        """
        self._consume(lambda server: server._choose())

    def _choose(self) -> None:
        if self._hybrid is None and self._sought("choose").n_reports >= self.holdout:
            self._choose_from(self._sought("choose"))

    def _sought(self, call: str) -> HistogramCollector:
        if self._hybrid is not None or self._collector is None:
            raise StateError(f"{call}() after the threshold was chosen: expected hybrid reports, for publish()")
        return self._collector

    def _choose_from(self, collector: HistogramCollector) -> None:
        found = self._rule.estimate(collector.mechanism, collector.totals)
        hybrid = Hybrid(self._widest.epsilon, 0.0, self._rule.choose_from(found, self._task))
        self._distribution, self._hybrid = found, hybrid

    # State files.

    @property
    def _consumed(self) -> int:
        refused = self.refused
        counted = self.n_collected + self._n_published + refused.reports + refused.messages
        return counted + int(self._hybrid is not None)

    @property
    def _arguments(self) -> dict[str, Any]:
        names = ("epsilon", "bound", "holdout", "max_range")
        return {**{name: getattr(self, name) for name in names}, **self._given}

    def _position(self) -> Position:
        return {
            "n_seen": self._consumed,
            "n_published": self._n_published,
            "theta": self.threshold,
            "refused": codec.describe(self._refused),
            "collector": None if self._collector is None else self._collector._position(),
            "distribution": codec.describe(self._distribution),
        }

    def _resume(self, saved: Position) -> None:
        self._n_published = codec.whole(saved["n_published"])
        self._refused = codec.restore(Refused, saved["refused"])
        if self._collector is not None:
            self._collector._resume(saved["collector"])
            self._distribution = codec.restore(Distribution | None, saved["distribution"])
            if self._distribution is not None:
                self._distribution.frequencies.flags.writeable = False
            if saved["theta"] is not None:
                self._hybrid = Hybrid(self._widest.epsilon, 0.0, codec.restore(float, saved["theta"]))
        counts = (self._n_published, self._refused.reports, self._refused.messages)
        high = self.threshold
        if min(counts) < 0 or saved["n_seen"] != self._consumed or high != saved["theta"]:
            raise ValueError("counts out of range")
        if high is not None and (high > self.bound or self.n_collected < self.holdout):
            raise ValueError("a threshold out of range")
