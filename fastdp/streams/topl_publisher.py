"""ToPL: streams in the local model, the server's role alone, or users and server simulated in one process.

Each user sends one report about one value.  The first m reports, square waves, give the threshold; every later user
clips at it and reports through the hybrid mechanism.  Range sums add up reports.  Source: CCS 2021, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast, get_args

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_column, as_whole, is_number
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, parallel
from fastdp.kinds import Floats, Indices
from fastdp.local import Hybrid
from fastdp.local.base import local_epsilon
from fastdp.local.client import Announcement
from fastdp.local.collectors import HistogramCollector
from fastdp.local.distribution import Distribution
from fastdp.local.encoding import as_bytes
from fastdp.local.tally import Refused, as_most_reports
from fastdp.noise.key import Key
from fastdp.releases.intervals import DrawnNoise, ErrorBars
from fastdp.releases.release import Release
from fastdp.state.machine import Column, single_caller
from fastdp.state.publisher import Publisher
from fastdp.streams.parameters import DEFAULT_HOLDOUT
from fastdp.streams.topl_machine import Op, ServerMachine, ServerState, SimulationMachine, SimulationState
from fastdp.thresholds import Fixed, SquareWave
from fastdp.thresholds.base import as_rule
from fastdp.thresholds.square_wave import Scale

#: What ToPL takes unless it is told otherwise.
LOGARITHMIC = SquareWave(scale="logarithmic", method="concave")


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
        threshold: SquareWave | Fixed | float | Scale | None = None,
        threshold_epsilon: float | None = None,
        publish_epsilon: float | None = None,
    ) -> None:
        given = "logarithmic" if threshold is None else threshold
        if isinstance(given, str):
            linear = validation.choice("threshold", given, get_args(Scale)) == "linear"
            given = SquareWave() if linear else LOGARITHMIC
        rule = as_rule("threshold", given)
        if not isinstance(rule, (SquareWave, Fixed)):
            raise ParameterError(
                f"threshold = {validation.shown(rule)}: expected 'linear', 'logarithmic', "
                "thresholds.SquareWave(...) or thresholds.Fixed(theta); the others need the values themselves"
            )
        if isinstance(rule, SquareWave) and None not in (rule.report_epsilon, threshold_epsilon):
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
        """The question that users answer now."""
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


@dataclass(frozen=True, eq=False, repr=False)
class LocalRelease(Release):
    """A stream of unbiased estimates, one a user.

    Attributes
    ----------
    value_variance : float
        Largest variance of one estimate around the value clipped at theta, in units of the input squared.
    """

    value_variance: float = math.nan

    def _scaled(self, shift: int) -> LocalRelease:
        scaled = cast("LocalRelease", super()._scaled(shift))
        return replace(scaled, value_variance=math.ldexp(self.value_variance, 2 * shift))

    def _error_bars(self, first: Indices, last: Indices) -> ErrorBars:
        """Independent reports: the largest variance, with the wider quantile of the normal and the Laplace law."""
        none = np.zeros(first.size, np.int64)
        variances: Floats = np.multiply(last - first, self.value_variance)
        sums, ones = self.sum(first, last), np.ones(first.size)
        return ErrorBars(sums, DrawnNoise(1.0), 1.0, none, ones, variances, width=1.0)


class ToPL(Publisher[SimulationState]):
    """Simulates users and server in one process, with the numbers that the two roles give apart.

    Parameters
    ----------
    epsilon, bound, holdout, max_range, threshold, threshold_epsilon, publish_epsilon
        As for :class:`ToPLServer`.
    nonfinite : "raise" or "zero"
        NaN and infinity are refused, or count as 0.
    seed, key
        Where the users' random words come from: user i takes word i.  By default a fresh secret key.

    Notes
    -----
    Anyone who runs this sees the true values, so it is for experiments, or for a curator who wants the local model's
    guarantee for what leaves.  Output does not depend on how the stream is cut into chunks.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> simulation = fastdp.ToPL(epsilon=1.0, bound=100, holdout=1000, max_range=4096, seed=1)
    >>> simulation.publish(np.full(1500, 20.0)).size
    500
    """

    _MACHINE: ClassVar[Any] = SimulationMachine
    _machine: SimulationMachine

    def __init__(
        self,
        epsilon: float,
        bound: float,
        holdout: int = DEFAULT_HOLDOUT,
        max_range: int = 2**20,
        *,
        threshold: SquareWave | Fixed | float | Scale | None = None,
        threshold_epsilon: float | None = None,
        publish_epsilon: float | None = None,
        nonfinite: Nonfinite = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        budgets = {"threshold_epsilon": threshold_epsilon, "publish_epsilon": publish_epsilon}
        server = ToPLServer(epsilon, bound, holdout, max_range, threshold=threshold, **budgets)
        checked = validation.choice("nonfinite", nonfinite, ("raise", "zero"))
        machine: Any = server.machine
        made = SimulationMachine(machine, checked)
        self._begin(made, made.bind(Key.choose(seed, key)))

    @property
    def server(self) -> ToPLServer:
        """The server that collects and publishes, as it stands now; another object at each call."""
        server = ToPLServer._of(self._machine.server, self._key)
        server._state = self._machine.server.rekeyed(self._state.server, self._key)
        return server

    @property
    def nonfinite(self) -> str:
        """What NaN and infinity count as."""
        return self._machine.nonfinite

    @property
    def threshold(self) -> float | None:
        """Theta in units of the input; None until the hold-out is complete."""
        return self._state.server.theta

    @property
    def holdout(self) -> int:
        """Users before the threshold."""
        return self._machine.server.holdout

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._machine.consumed(self._state)

    @property
    def n_published(self) -> int:
        """Values published."""
        return self._state.n_published

    @property
    def guarantee(self) -> Guarantee:
        """Of both groups of users; ``simulated`` with a seed."""
        return replace(self.server.guarantee, simulated=self._key.simulated)

    @single_caller
    def publish(self, chunk: Any) -> Floats:
        """Consume the next values, one a user; publish one estimate for each after the hold-out.

        Parameters
        ----------
        chunk : array-like
            Any number of values, in units of the input.

        Returns
        -------
        float64[n]
            Unbiased estimates of the values clipped to [0, theta].

        Raises
        ------
        DataError
            If the chunk is no column of real numbers, or holds NaN or infinity (with ``nonfinite="raise"``);
            nothing is consumed then.
        StateError
            After 2^33 values, when the key's words are used up; nothing is consumed then.
        """
        published: Floats = self._call(self._machine.read(chunk))
        return published

    @single_caller
    def release(self, values: Any) -> LocalRelease:
        """Publish a whole array at once (a fresh simulation only).

        Parameters
        ----------
        values : array-like
            Longer than the hold-out.

        Returns
        -------
        LocalRelease
            Bit for bit what :meth:`publish` gives for any chunking.
        """
        column = as_whole(values, self.n_seen, self.holdout)
        published: Floats = self._call(Column(column, "values"))
        published.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return LocalRelease(
            published, self.holdout, self.threshold, self.guarantee, value_variance=self.server.value_variance
        )


__all__ = ["LocalRelease", "ToPL"]
