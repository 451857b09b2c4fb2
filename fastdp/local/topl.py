"""ToPL: streams in the local model (ToPS section 4), as a server or with simulated users."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast, get_args

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_column, as_finite, as_floats, as_whole, is_number
from fastdp.data.frames import source_of
from fastdp.errors import AccuracyWarning, ParameterError, StateError, argument, warn
from fastdp.guarantee import Guarantee, parallel
from fastdp.kinds import Array, Floats, Json, NumberColumn
from fastdp.local import Hybrid
from fastdp.local.client import Announcement
from fastdp.local.collectors import (
    NONE_REFUSED,
    HistogramCollector,
    HistogramMachine,
    Refused,
    Tally,
    as_fingerprint_inputs,
    as_most_reports,
)
from fastdp.local.distribution import Distribution
from fastdp.local.encoding import as_bytes, read_messages
from fastdp.local.mechanisms import LOCAL_EPSILON
from fastdp.local.mechanisms import SquareWave as SquareWaveMechanism
from fastdp.local.reports import MAX_START
from fastdp.local.square_wave import Scale, SquareWave
from fastdp.noise.key import Key
from fastdp.record import Choice, Kind, Real, Whole, parameter, put, record
from fastdp.releases.intervals import SumNoise
from fastdp.releases.release import Release
from fastdp.state import codec
from fastdp.state.codec import COUNT
from fastdp.state.driver import Publisher
from fastdp.state.machine import Column, Machine, Transition, single_caller
from fastdp.thresholds.base import DEFAULT_HOLDOUT, Fixed, ThresholdTask, as_rule

#: Default rule of ToPL.
LOGARITHMIC = SquareWave(scale="logarithmic", method="concave")
#: Values grow if a stretch's mean estimate exceeds the hold-out's by this factor, and so many standard errors.
GROWN, GROWN_ERRORS = 1.5, 4.0


class Op(NamedTuple):
    """A batch: name of the call, data, input of the fingerprint."""

    name: str
    data: Any
    raw: tuple[object, ...] = ()
    most_reports: int | None = None


@dataclass(frozen=True)
class ServerState:
    """State of the server."""

    #: Reports for the threshold; None if public.
    tally: Tally | None
    #: The threshold, chosen from ``distribution``.
    theta: Annotated[float | None, Real(above=0.0)] = None
    distribution: Distribution | None = None
    #: Reports and messages refused later.
    refused: Refused = NONE_REFUSED
    #: Estimates published.
    n_published: Annotated[int, COUNT] = 0


@record
class ServerMachine(Machine[ServerState]):
    """Transition function of :class:`ToPLServer`."""

    PARTS: ClassVar[codec.Parts] = {kind.__name__: kind for kind in (SquareWave, Fixed)}
    rule: ClassVar[int] = 1

    epsilon: float = parameter(Real(above=0.0))
    bound: float = parameter(Real(above=0.0))
    holdout: int = parameter(Kind(), default=DEFAULT_HOLDOUT)
    max_range: int = parameter(Whole(1, 2**40), default=2**20)
    threshold: Any = parameter(Kind(), default=None)
    threshold_epsilon: float | None = parameter(Real(above=0.0), default=None)
    publish_epsilon: float | None = parameter(LOCAL_EPSILON, default=None)

    def _check(self) -> None:
        rule = "logarithmic" if self.threshold is None else self.threshold
        if isinstance(rule, str):
            linear = validation.choice("threshold", rule, get_args(Scale)) == "linear"
            rule = SquareWave() if linear else LOGARITHMIC
        rule = as_rule("threshold", rule)
        if not isinstance(rule, (SquareWave, Fixed)):
            raise ParameterError(
                f"threshold = {validation.shown(rule)}: expected 'linear', 'logarithmic', "
                "thresholds.SquareWave(...) or thresholds.Fixed(theta); the others need the values themselves"
            )
        if isinstance(rule, SquareWave) and None not in (rule.report_epsilon, self.threshold_epsilon):
            raise ParameterError(
                f"threshold_epsilon = {self.threshold_epsilon!r}: expected None, because the threshold has "
                f"report_epsilon = {rule.report_epsilon!r}"
            )
        used = validation.integer("holdout", self.holdout, 1, 2**50) if rule.uses_holdout else 0
        put(self, threshold=rule, holdout=used)
        # Parameters that the second group could not use are refused before the first group reports.
        _ = self.widest

    @cached_property
    def task(self) -> ThresholdTask:
        first = self.epsilon if self.threshold_epsilon is None else self.threshold_epsilon
        later = self.epsilon if self.publish_epsilon is None else self.publish_epsilon
        resolution = self.bound / SquareWaveMechanism.STEPS
        return ThresholdTask(first, self.bound, self.holdout, self.max_range, resolution, later)

    @cached_property
    def widest(self) -> Hybrid:
        return Hybrid(cast("float", self.task.publish_epsilon), 0.0, self.bound)

    @cached_property
    def collector(self) -> HistogramMachine:
        return HistogramMachine(self.threshold.client(self.task), self.threshold.n_bins)

    def hybrid(self, state: ServerState) -> Hybrid | None:
        return None if state.theta is None else _hybrid(self.widest.epsilon, state.theta)

    def start(self, key: Key) -> ServerState:
        if isinstance(self.threshold, Fixed):
            return ServerState(None, self.threshold.start(self.task).theta)
        return ServerState(self.collector.start(key))

    def consumed(self, state: ServerState) -> int:
        counted = state.n_published + state.refused.reports + state.refused.messages
        if state.tally is None:
            return counted + 1
        return counted + self.collector.consumed(state.tally) + int(state.theta is not None)

    def log_messages(self, before: ServerState, after: ServerState) -> Iterator[tuple[int, str]]:
        if before.theta is None and after.theta is not None:
            yield logging.INFO, f"threshold chosen: {after.theta:g}"

    def read(self, *batch: Any) -> Op:
        return Op(*batch)

    def parts(self, batch: Op) -> tuple[Array | bytes, ...]:
        return as_fingerprint_inputs(batch.raw)

    def step(self, state: ServerState, batch: Op, key: Key) -> Transition[ServerState]:
        hybrid = self.hybrid(state)
        if batch.name == "publish" and hybrid is None:
            raise StateError("publish() before the threshold was chosen: expected square-wave reports, for collect()")
        if batch.name in ("publish", "receive") and hybrid is not None:
            reports, refused = batch.data, 0
            if batch.name == "receive":
                reports, refused = read_messages(batch.data, hybrid, batch.most_reports)
            after, estimates = self._published(state, hybrid, reports)
            return Transition(replace(after, refused=after.refused.plus(0, refused)), lambda: estimates)
        tally, collector = self.tally(state, batch.name), self.collector
        if batch.name == "merge":
            tally = collector.merged(tally, *(other.state for other in batch.data))
        elif batch.name == "receive":
            tally = collector.step(tally, collector.read_messages(batch.data, 0, batch.most_reports), key).state
        else:
            tally = collector.step(tally, collector.read(batch.data, 0), key).state
        after = replace(state, tally=tally)
        if collector.n_reports(tally) >= self.holdout:
            distribution = self.threshold.estimate(collector.mechanism, collector.settled(tally).totals)
            theta = self.threshold.choose_from(distribution, self.task)
            after = replace(after, theta=theta, distribution=distribution)
        return Transition(after, lambda: np.empty(0), partial(collector.finish, tally))

    def tally(self, state: ServerState, call: str) -> Tally:
        if state.theta is not None or state.tally is None:
            raise StateError(f"{call}() after the threshold was chosen: expected hybrid reports, for publish()")
        return state.tally

    def _published(self, state: ServerState, hybrid: Hybrid, column: Array) -> tuple[ServerState, Floats]:
        good = (column >= 0) & (column < hybrid.n_outputs) & (column == np.floor(column))
        count = int(np.count_nonzero(good))
        after = replace(state, n_published=state.n_published + count)
        if good.all():
            return after, hybrid.estimate(column.astype(np.int64, copy=False) if column.dtype.kind == "f" else column)
        estimates = np.full(column.size, np.nan)
        estimates[good] = hybrid.estimate(column[good].astype(np.int64))
        return replace(after, refused=after.refused.plus(column.size - count, 0)), estimates

    def settled(self, state: ServerState) -> ServerState:
        return state if state.tally is None else replace(state, tally=self.collector.settled(state.tally))

    def rekeyed(self, state: ServerState, key: Key) -> ServerState:
        return state if state.tally is None else replace(state, tally=self.collector.rekeyed(state.tally, key))

    def restored(self, state: ServerState, key: Key) -> ServerState:
        begun = self.start(key)
        if (state.tally is None) != (begun.tally is None):
            raise ValueError("counts out of range")
        if state.tally is not None:
            self.collector.restored(state.tally, key)
        # A public threshold is there from the start.
        if begun.theta not in (None, state.theta) or (state.theta is not None and state.theta > self.bound):
            raise ValueError("a threshold out of range")
        return state


@lru_cache(maxsize=64)
def _hybrid(epsilon: float, theta: float) -> Hybrid:
    return Hybrid(epsilon, 0.0, theta)


@dataclass(frozen=True)
class SimulationState:
    """Users before and after the threshold, and the server."""

    n_held: Annotated[int, COUNT]
    n_published: Annotated[int, COUNT]
    server: ServerState


@record
class SimulationMachine(Machine[SimulationState]):
    """Transition function of :class:`ToPL`."""

    SPLITS: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    server: ServerMachine
    nonfinite: Nonfinite = parameter(Choice(("raise", "zero")))

    def start(self, key: Key) -> SimulationState:
        return SimulationState(0, 0, self.server.start(key))

    def parts(self, batch: Column) -> tuple[Floats]:
        return (self._finite(batch),)

    def consumed(self, state: SimulationState) -> int:
        return state.n_held + state.n_published

    def log_messages(self, before: SimulationState, after: SimulationState) -> Iterator[tuple[int, str]]:
        return self.server.log_messages(before.server, after.server)

    def step(self, state: SimulationState, batch: Column, key: Key) -> Transition[SimulationState]:
        values, name, used = batch.values, batch.name, max(state.n_held, state.n_published)
        if used + values.size > MAX_START:
            raise StateError(
                f"{name} has {values.size} values after {used}: expected at most {MAX_START} "
                "under one key; go on with a new ToPL"
            )
        values, server, after = self._finite(batch), self.server, state.server
        held, finish, out = 0, None, np.empty(0)
        if after.theta is None:
            held = min(values.size, server.holdout - server.collector.n_reports(server.tally(after, "publish")))
        if held:
            reports = server.collector.mechanism.perturb(values[:held], key=key, start=state.n_held)
            made = server.step(after, Op("collect", reports), key)
            after, finish = made.state, made.finish
        hybrid = server.hybrid(after)
        if held < values.size and hybrid is not None:
            reports = hybrid.perturb(values[held:], key=key, start=state.n_published)
            published = server.step(after, Op("publish", reports), key)
            after, out = published.state, published.emit()
        counts = state.n_held + held, state.n_published + values.size - held
        return Transition(SimulationState(*counts, after), lambda: out, finish)

    def _finite(self, batch: Column) -> Floats:
        return as_finite(as_floats(batch.values), self.nonfinite, batch.name, f" (or {argument(nonfinite='zero')})")

    def settled(self, state: SimulationState) -> SimulationState:
        return replace(state, server=self.server.settled(state.server))

    def rekeyed(self, state: SimulationState, key: Key) -> SimulationState:
        return replace(state, server=self.server.rekeyed(state.server, key))

    def describe(self) -> Json:
        return {**self.server.describe(), "nonfinite": self.nonfinite}

    @classmethod
    def from_description(cls, description: Json, **own: Any) -> Self:
        fields = dict(description)
        nonfinite = fields.pop("nonfinite")
        return cls(ServerMachine.from_description(fields, **own), nonfinite)

    def restored(self, state: SimulationState, key: Key) -> SimulationState:
        self.server.restored(state.server, key)
        return state


def _warn_of_growth(hybrid: Hybrid | None, state: ServerState, published: Floats) -> None:
    known = published[~np.isnan(published)]
    if hybrid is None or state.distribution is None or state.theta is None or not known.size:
        return
    expected = float(state.distribution.excess(0.0) - state.distribution.excess(state.theta))
    mean, error = float(known.mean()), math.sqrt(hybrid.worst_variance / known.size)
    if mean > GROWN * expected + GROWN_ERRORS * error:
        warn(
            f"values grow behind the hold-out: {mean:.3g} on average of {known.size:,}, clipped at theta = "
            f"{state.theta:.3g}, after {expected:.3g} in the hold-out (both estimated), so sums are too low; "
            f"expected a hold-out of values like the later ones, or {argument(threshold=...)}, a public theta",
            AccuracyWarning,
        )


class ToPLServer(Publisher[ServerState]):
    """Collects reports, announces the threshold, and publishes an estimate for each later report.

    Parameters
    ----------
    epsilon : float
        Privacy loss of a report, in [1e-6, 32].
    bound : float
        Public upper bound of a value, in units of the input.
    holdout : int
        m: the first users, who choose the threshold.
    max_range : int
        r: the longest range that the threshold is chosen for.
    threshold : SquareWave, Fixed, float, "linear" or "logarithmic", optional
        Of :mod:`fastdp.thresholds`.  "logarithmic", the default: ``SquareWave(scale="logarithmic",
        method="concave")``; "linear": ``SquareWave()``, the paper's SW-W, Eq. 8 corrected.
        ``Fixed(theta)`` or a number is public.
    threshold_epsilon, publish_epsilon : float, optional
        Budgets of the users before and after the threshold; by default ``epsilon``.

    Warns
    -----
    AccuracyWarning
        If estimates of a call show that values have outgrown the hold-out.

    Notes
    -----
    Privacy: every user sends one report (local model, pure epsilon, exact); the larger epsilon of both groups counts.

    Examples
    --------
    >>> import fastdp
    >>> server = fastdp.ToPLServer(epsilon=2.0, bound=10.0, threshold=10.0)
    >>> client = fastdp.local.Client(epsilon=2.0)  # on the user's device
    >>> message = client.answer(server.announcement, 3.5)
    >>> server.receive(message).shape  # one unbiased estimate
    (1,)
    """

    _MACHINE = ServerMachine
    _machine: ServerMachine
    #: Reports are private already.
    _PUBLIC: ClassVar[bool] = True
    epsilon: float
    bound: float
    holdout: int
    max_range: int

    @validation.spelled
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
        budgets = threshold_epsilon, publish_epsilon
        self._begin(ServerMachine(epsilon, bound, holdout, max_range, threshold, *budgets), Key.choose(None, None))

    def _begin(self, machine: ServerMachine, key: Key) -> None:
        self.epsilon, self.bound = machine.epsilon, machine.bound
        self.holdout, self.max_range = machine.holdout, machine.max_range
        super()._begin(machine, key)

    @property
    def _hybrid(self) -> Hybrid | None:
        return self._machine.hybrid(self._state)

    @property
    def announcement(self) -> Announcement:
        """Announcement for the next users."""
        return Announcement(self._machine.collector.mechanism if self._hybrid is None else self._hybrid)

    @property
    def threshold(self) -> float | None:
        """Theta; None until it is chosen."""
        return self._state.theta

    @property
    def distribution(self) -> Distribution | None:
        """Distribution from which theta was chosen, if any."""
        return self._state.distribution

    @property
    def n_collected(self) -> int:
        """Number of reports for the threshold."""
        tally = self._state.tally
        return 0 if tally is None else self._machine.collector.n_reports(tally)

    @property
    def n_published(self) -> int:
        """Number of estimates published."""
        return self._state.n_published

    @property
    def refused(self) -> Refused:
        """Numbers of reports and messages refused."""
        tally, later = self._state.tally, self._state.refused
        return later if tally is None else later.plus(tally.refused.reports, tally.refused.messages)

    @property
    def value_variance(self) -> float:
        """Largest variance of one estimate; NaN until theta is chosen."""
        return math.nan if self._hybrid is None else self._hybrid.worst_variance

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of both groups together."""
        machine = self._machine
        published = (self._hybrid or machine.widest).guarantee.of("users after the threshold")
        if isinstance(machine.threshold, Fixed):
            return published
        return parallel(machine.collector.mechanism.guarantee.of("users before the threshold"), published)

    @single_caller
    def receive(self, data: bytes | bytearray | memoryview, *, most_reports: int | None = None) -> Floats:
        """Process messages of :meth:`fastdp.local.Client.answer`; return estimates of hybrid reports, float64[k].

        ``refused`` counts reports out of range and messages that are malformed, for another announcement or of more
        than `most_reports`.  Theta is chosen after m reports.
        """
        most = as_most_reports(most_reports)
        published: Floats = self._call(Op("receive", data, (as_bytes(data), str(most).encode()), most))
        _warn_of_growth(self._hybrid, self._state, published)
        return published

    @single_caller
    def collect(self, reports: int | NumberColumn) -> None:
        """Process square-wave reports as numbers."""
        column = as_column([reports] if is_number(reports) else reports, "reports")
        self._call(Op("collect", column, (column,)))

    def shard(self) -> HistogramCollector:
        """Empty collector for another machine; StateError after theta is chosen."""
        self._machine.tally(self._state, "shard")
        machine = self._machine.collector
        return HistogramCollector(machine.mechanism, machine.bins)

    @single_caller
    def merge(self, *collectors: HistogramCollector) -> None:
        """Add other machines' reports for the threshold, all or none."""
        self._machine.tally(self._state, "merge")
        for collector in collectors:
            if type(collector) is not HistogramCollector or collector.machine != self._machine.collector:
                raise ParameterError(f"collectors holds a {type(collector).__name__}: expected collectors of shard()")
        self._call(Op("merge", collectors, tuple(other.fingerprint for other in collectors)))

    @single_caller
    def publish(self, reports: int | NumberColumn) -> Floats:
        """Estimates from hybrid reports as numbers, float64[n]; NaN out of range."""
        column = as_column([reports] if is_number(reports) else reports, "reports")
        published: Floats = self._call(Op("publish", column, (column,)))
        _warn_of_growth(self._hybrid, self._state, published)
        return published


class ToPL(Publisher[SimulationState]):
    """Simulates ToPL's users and server in one process.

    Parameters
    ----------
    epsilon, bound, holdout, max_range, threshold, threshold_epsilon, publish_epsilon
        As for :class:`ToPLServer`.
    nonfinite : "raise" or "zero"
        NaN and infinity are refused, or count as 0.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    The process sees the true values and must be trusted: for experiments, or a curator.  Output does not depend on
    chunking.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> simulation = fastdp.ToPL(
    ...     epsilon=1.0, bound=100, holdout=1000, max_range=4096, seed=1
    ... )
    >>> simulation.publish(np.full(1500, 20.0)).size
    500
    """

    _MACHINE = SimulationMachine
    _machine: SimulationMachine

    @validation.spelled
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
        budgets = threshold_epsilon, publish_epsilon
        server = ServerMachine(epsilon, bound, holdout, max_range, threshold, *budgets)
        machine = SimulationMachine(server, nonfinite)
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def server(self) -> ToPLServer:
        """Copy of the server."""
        server = ToPLServer._of(self._machine.server, self._key)
        server._state = self._machine.server.rekeyed(self._state.server, self._key)
        return server

    @property
    def nonfinite(self) -> str:
        """Treatment of NaN and infinity: "raise" or "zero"."""
        return self._machine.nonfinite

    @property
    def threshold(self) -> float | None:
        """Theta; None during the hold-out."""
        return self._state.server.theta

    @property
    def holdout(self) -> int:
        """Number of held-out users."""
        return self._machine.server.holdout

    @property
    def n_seen(self) -> int:
        """Number of values consumed."""
        return self._machine.consumed(self._state)

    @property
    def n_published(self) -> int:
        """Number of values published."""
        return self._state.n_published

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of both groups; ``simulated`` with a seed."""
        return replace(self.server.guarantee, simulated=self._key.simulated)

    @single_caller
    def publish(self, chunk: NumberColumn) -> Floats:
        """Unbiased estimates, float64[n], of the next users' values clipped to [0, theta].

        Raises
        ------
        DataError
            If the chunk is not a column of finite real numbers; nothing is consumed.
        StateError
            After 2^33 values, the words of a key.
        """
        published: Floats = self._call(self._machine.read(chunk))
        server = self._state.server
        _warn_of_growth(self._machine.server.hybrid(server), server, published)
        return published

    @single_caller
    def release(self, values: NumberColumn) -> Release:
        """Publish a full array, longer than the hold-out, by a fresh simulation.

        AccuracyWarning if estimates show that later values have outgrown the hold-out.
        """
        column = as_whole(values, self.n_seen, self.holdout)
        published: Floats = self._call(Column(column, "values"))
        largest = max(np.array_split(published, min(4, published.size)), key=np.mean)
        _warn_of_growth(self.server._hybrid, self._state.server, largest)
        published.flags.writeable = False
        noise = SumNoise("reports", 1.0, 1.0, bounded=False, report_variance=self.server.value_variance)
        return Release(
            published,
            self.holdout,
            np.array([self.threshold]),
            self.guarantee,
            noise=noise,
            source=source_of(values),
            noise_fingerprint=self.noise_fingerprint,
            online=True,
        )
