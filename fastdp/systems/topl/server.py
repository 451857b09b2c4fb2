"""The server's role in ToPL: it sees reports, never values (CCS 2021, section 4)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from fastdp import validation
from fastdp.arrays.column import as_column, is_number
from fastdp.arrays.kinds import Floats
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, parallel
from fastdp.local import Hybrid
from fastdp.local.base import local_epsilon
from fastdp.local.client import Announcement
from fastdp.local.collectors import HistogramCollector
from fastdp.local.distribution import Distribution
from fastdp.local.encoding import as_bytes
from fastdp.local.tally import Refused, as_most_reports
from fastdp.randomness.key import Key
from fastdp.state.publisher import Publisher
from fastdp.state.single_caller import single_caller
from fastdp.systems.stream.parameters import DEFAULT_HOLDOUT
from fastdp.systems.topl.machine import Op, ServerMachine, ServerState
from fastdp.thresholds import Fixed
from fastdp.thresholds import SquareWave as SquareWaveRule
from fastdp.thresholds.base import as_rule
from fastdp.thresholds.square_wave import SCALES, Scale

#: What ToPL takes unless it is told otherwise.
LOGARITHMIC = SquareWaveRule(scale="logarithmic", method="concave")


class ToPLServer(Publisher[ServerState]):
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
        The threshold optimiser, from :mod:`fastdp.thresholds`.  "logarithmic", the default, stands for
        ``SquareWave(scale="logarithmic", method="concave")``; "linear" for ``SquareWave()``, the paper's SW-W with
        the corrected objective.  ``Fixed(theta)`` or the number theta is public and needs no hold-out.
    threshold_epsilon, publish_epsilon : float, optional
        Budgets of the users before and after the threshold, where they differ from ``epsilon``.

    Notes
    -----
    Privacy: every user sends one report of one mechanism (local model, pure epsilon, exact integers); the groups are
    disjoint, so the larger epsilon counts (parallel composition).

    Examples
    --------
    >>> import fastdp
    >>> server = fastdp.ToPLServer(epsilon=2.0, bound=10.0, threshold=10.0)
    >>> message = fastdp.local.Client(epsilon=2.0).answer(server.announcement, 3.5)  # on the user's device
    >>> server.receive(message).shape  # one unbiased estimate
    (1,)
    """

    _MACHINE: ClassVar[Any] = ServerMachine
    _machine: ServerMachine
    #: Reports are private already.
    _PUBLIC: ClassVar[bool] = True
    epsilon: float
    bound: float
    holdout: int
    max_range: int

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
        rule = as_rule("logarithmic" if threshold is None else threshold)
        if isinstance(rule, str):
            validation.choice("threshold", rule, SCALES)
            rule = LOGARITHMIC if rule == "logarithmic" else SquareWaveRule()
        if not isinstance(rule, (SquareWaveRule, Fixed)):
            raise ParameterError(
                f"threshold = {validation.shown(rule)}: expected 'linear', 'logarithmic', "
                "thresholds.SquareWave(...) or thresholds.Fixed(theta); the others need the values themselves"
            )
        if isinstance(rule, SquareWaveRule) and None not in (rule.report_epsilon, threshold_epsilon):
            raise ParameterError(
                f"threshold_epsilon = {threshold_epsilon!r}: expected None, because the threshold has "
                f"report_epsilon = {rule.report_epsilon!r}"
            )
        machine = ServerMachine(
            validation.positive("epsilon", epsilon),
            validation.positive("bound", bound),
            validation.integer("holdout", holdout, 1, 2**50) if rule.uses_holdout else 0,
            validation.integer("max_range", max_range, 1, 2**40),
            rule,
            None if threshold_epsilon is None else validation.positive("threshold_epsilon", threshold_epsilon),
            None if publish_epsilon is None else local_epsilon("publish_epsilon", publish_epsilon),
        )
        # What the second group could not use is refused before the first one reports.
        _ = machine.widest
        self._begin(machine, Key.choose(None, None))

    def _begin(self, machine: ServerMachine, key: Key) -> None:
        self.__dict__.update({name: getattr(machine, name) for name in ("epsilon", "bound", "holdout", "max_range")})
        super()._begin(machine, key)

    @property
    def _hybrid(self) -> Hybrid | None:
        return self._machine.hybrid(self._state)

    @property
    def announcement(self) -> Announcement:
        """What users are asked for now."""
        return Announcement(self._machine.sought().mechanism if self._hybrid is None else self._hybrid)

    @property
    def threshold(self) -> float | None:
        """Theta, in units of the input; None until it is chosen."""
        return self._state.theta

    @property
    def distribution(self) -> Distribution | None:
        """The estimated distribution that theta was chosen from, its tail pruned if the optimiser does."""
        return self._state.distribution

    @property
    def n_collected(self) -> int:
        """Reports collected for the threshold."""
        tally = self._state.tally
        return 0 if tally is None else self._machine.sought().n_reports(tally)

    @property
    def n_published(self) -> int:
        """Estimates published, those of refused reports not counted."""
        return self._state.n_published

    @property
    def refused(self) -> Refused:
        """Reports and messages left out so far."""
        tally, own = self._state.tally, self._state.refused
        return own if tally is None else own.plus(tally.refused.reports, tally.refused.messages)

    @property
    def value_variance(self) -> float:
        """Largest variance of one estimate; NaN until theta is chosen."""
        return math.nan if self._hybrid is None else self._hybrid.worst_variance

    @property
    def guarantee(self) -> Guarantee:
        """Of both groups together, derived from their mechanisms."""
        hybrid, collector = self._hybrid, self._machine.collector
        published = (self._machine.widest if hybrid is None else hybrid).guarantee.of("users after the threshold")
        if collector is None:
            return published
        return parallel(collector.mechanism.guarantee.of("users before the threshold"), published)

    @single_caller
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
        published: Floats = self._call(Op("receive", data, (as_bytes(data), str(most).encode()), most))
        return published

    @single_caller
    def collect(self, reports: Any) -> None:
        """Take in square-wave reports, without their messages; those out of range are counted and left out."""
        column = as_column([reports] if is_number(reports) else reports, "reports")
        self._call(Op("collect", column, (column,)))

    def shard(self) -> HistogramCollector:
        """An empty collector for another machine, to be merged later."""
        self._machine.tally(self._state, "shard")
        machine = self._machine.sought()
        return HistogramCollector(machine.mechanism, **machine.parameters)

    @single_caller
    def merge(self, *collectors: HistogramCollector) -> None:
        """Take in what other machines have collected for the threshold; all or nothing."""
        for collector in collectors:
            if not isinstance(collector, HistogramCollector):
                raise ParameterError(f"collectors holds a {type(collector).__name__}: expected collectors of shard()")
        self._call(Op("merge", collectors, tuple(each.to_bytes() for each in collectors)))

    @single_caller
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
        published: Floats = self._call(Op("publish", column, (column,)))
        return published

    @single_caller
    def choose(self) -> None:
        """Choose theta if it is sought and m reports are in.

        Collecting does so by itself; call it if that was interrupted.
        """
        self._call(Op("choose", None))
