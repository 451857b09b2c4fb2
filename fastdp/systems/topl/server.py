"""The server's role in ToPL: it sees reports, never values (CCS 2021, section 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_column, is_number
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee, parallel
from fastdp.local import Hybrid, SquareWave
from fastdp.local.base import local_epsilon
from fastdp.local.client import Announcement
from fastdp.local.collectors import NONE_REFUSED, CollectorMachine, Refused, Tally, as_most_reports
from fastdp.local.distribution import Distribution
from fastdp.local.encoding import as_bytes, split
from fastdp.local.histogram import HistogramCollector
from fastdp.randomness.key import Key
from fastdp.state import codec
from fastdp.state.journal import Packed
from fastdp.state.machine import Machine, Transition
from fastdp.state.publisher import Publisher
from fastdp.state.single_caller import single_caller
from fastdp.systems.stream.parameters import DEFAULT_HOLDOUT
from fastdp.thresholds import Fixed, ThresholdTask
from fastdp.thresholds import SquareWave as SquareWaveRule
from fastdp.thresholds.fixed import as_rule
from fastdp.thresholds.square_wave import SCALES, Scale

Floats = NDArray[np.float64]


class Op(NamedTuple):
    """A batch: what is done with what, and what fingerprints are of."""

    name: str
    data: Any
    raw: tuple[Any, ...] = ()
    most_reports: int | None = None


@dataclass(frozen=True)
class ServerState:
    """Where the server stands.

    Attributes
    ----------
    tally : Tally or None
        Reports for the threshold; None where it is public.
    theta : float or None
        The threshold, in units of the input; None until it is chosen.
    distribution : Distribution or None
        What it was chosen from.
    refused : Refused
        What was left out after the threshold.
    n_published : int
        Estimates published.
    """

    tally: Tally | None
    theta: float | None = None
    distribution: Distribution | None = None
    refused: Refused = NONE_REFUSED
    n_published: int = 0


@dataclass(frozen=True)
class ServerMachine(Machine[ServerState]):
    """The server as a machine.

    Attributes
    ----------
    epsilon, bound, holdout, max_range, threshold, threshold_epsilon, publish_epsilon
        As of :class:`ToPLServer`.
    """

    PARTS: ClassVar[codec.Parts] = {kind.__name__: kind for kind in (SquareWaveRule, Fixed)}

    epsilon: float
    bound: float
    holdout: int
    max_range: int
    threshold: SquareWaveRule | Fixed
    threshold_epsilon: float | None = None
    publish_epsilon: float | None = None

    @cached_property
    def task(self) -> ThresholdTask:
        """What the threshold is chosen for."""
        first = self.epsilon if self.threshold_epsilon is None else self.threshold_epsilon
        later = self.epsilon if self.publish_epsilon is None else self.publish_epsilon
        return ThresholdTask(first, self.bound, self.holdout, self.max_range, self.bound / SquareWave.STEPS, later)

    @cached_property
    def widest(self) -> Hybrid:
        """The mechanism of the second group for the highest threshold."""
        return Hybrid(cast("float", self.task.publish_epsilon), 0.0, self.bound)

    @cached_property
    def collector(self) -> CollectorMachine | None:
        """Of the first group; None where the threshold is public."""
        if isinstance(self.threshold, Fixed):
            return None
        made: Any = HistogramCollector(self.threshold.client(self.task), self.threshold.n_bins).machine
        return cast("CollectorMachine", made)

    def hybrid(self, state: ServerState) -> Hybrid | None:
        """The mechanism of the second group; None until the threshold is chosen."""
        if state.theta is None:
            return None
        made: Hybrid | None = self.__dict__.get("_hybrid")
        if made is None or made.high != state.theta:
            made = self.__dict__["_hybrid"] = Hybrid(self.widest.epsilon, 0.0, state.theta)
        return made

    def start(self, key: Key) -> ServerState:
        """Before the first report."""
        if isinstance(self.threshold, Fixed):
            return ServerState(None, self.threshold.start(self.task).theta)
        return ServerState(self.sought().start(key))

    def sought(self) -> CollectorMachine:
        """The collector of a threshold that is not public."""
        assert self.collector is not None  # noqa: S101 - the caller has looked
        return self.collector

    def consumed(self, state: ServerState) -> int:
        """Reports and messages seen, and whether theta was chosen."""
        counted = state.n_published + state.refused.reports + state.refused.messages
        if state.tally is None:
            return counted + 1
        return counted + self.sought().consumed(state.tally) + int(state.theta is not None)

    def read(self, *batch: Any) -> Op:
        """What is done with what."""
        return Op(*batch)

    def parts(self, batch: Op) -> tuple[Any, ...]:
        """What was given; reports may be given again as another kind of numbers."""
        return tuple(
            bytes(part) if isinstance(part, (bytes, bytearray, memoryview)) else np.asarray(part, np.float64)
            for part in batch.raw
        )

    def step(self, state: ServerState, batch: Op, key: Key) -> Transition[ServerState]:
        """Collect for the threshold, or publish."""
        if batch.name == "choose":
            return self._collected(state, state.tally)
        if batch.name == "merge":
            return self._collected(state, self._merged(state, batch.data))
        hybrid = self.hybrid(state)
        if batch.name == "publish":
            if hybrid is None:
                raise StateError(
                    "publish() before the threshold was chosen: expected square-wave reports, for collect()"
                )
            after, estimates = self._published(state, hybrid, batch.data)
            return Transition(after, lambda: estimates)
        if batch.name == "receive" and hybrid is not None:
            found = [np.empty(0)]
            for reports in split(batch.data, hybrid):
                if reports is None or (batch.most_reports is not None and reports.size > batch.most_reports):
                    state = replace(state, refused=state.refused.plus(0, 1))
                else:
                    state, estimates = self._published(state, hybrid, reports)
                    found.append(estimates)
            return Transition(state, lambda: np.concatenate(found))
        tally = self.tally(state, batch.name)
        if batch.name == "receive":
            counted = self.sought().read_messages(batch.data, 0, batch.most_reports)
        else:
            counted = self.sought().read(batch.data, 0)
        return self._collected(state, self.sought().step(tally, counted, key).state)

    def tally(self, state: ServerState, call: str) -> Tally:
        """What was collected, while the threshold is sought."""
        if state.theta is not None or state.tally is None:
            raise StateError(f"{call}() after the threshold was chosen: expected hybrid reports, for publish()")
        return state.tally

    def _collected(self, state: ServerState, tally: Tally | None) -> Transition[ServerState]:
        """The state with these reports, and the threshold once there are enough."""
        if tally is None:
            return Transition(state, lambda: np.empty(0))
        after, collector = replace(state, tally=tally), self.sought()
        if state.theta is None and collector.n_reports(tally) >= self.holdout:
            rule = cast("SquareWaveRule", self.threshold)
            found = rule.estimate(collector.mechanism, collector.settled(tally).totals)
            after = replace(after, theta=rule.choose_from(found, self.task), distribution=found)
        return Transition(after, lambda: np.empty(0), partial(collector.finish, tally))

    def _merged(self, state: ServerState, collectors: tuple[HistogramCollector, ...]) -> Tally:
        own = collector_of(self.sought(), self.tally(state, "merge"))
        merged: Tally = own.merge(*collectors).state
        return merged

    def _published(self, state: ServerState, hybrid: Hybrid, column: NDArray[Any]) -> tuple[ServerState, Floats]:
        good = (column >= 0) & (column < hybrid.n_outputs) & (column == np.floor(column))
        count = int(np.count_nonzero(good))
        after = replace(state, n_published=state.n_published + count)
        if good.all():
            return after, hybrid.estimate(column.astype(np.int64, copy=False) if column.dtype.kind == "f" else column)
        estimates = np.full(column.size, np.nan)
        estimates[good] = hybrid.estimate(column[good].astype(np.int64))
        return replace(after, refused=after.refused.plus(column.size - count, 0)), estimates

    def settled(self, state: ServerState) -> ServerState:
        """The state with nothing pending."""
        return state if state.tally is None else replace(state, tally=self.sought().settled(state.tally))

    def rekeyed(self, state: ServerState, key: Key) -> ServerState:
        """The state for a copy."""
        return state if state.tally is None else replace(state, tally=self.sought().rekeyed(state.tally, key))

    # State files.

    def pack(self, state: ServerState) -> Packed:
        """The state as JSON."""
        return {
            "n_seen": self.consumed(state),
            "n_published": state.n_published,
            "theta": state.theta,
            "refused": codec.describe(state.refused),
            "collector": None if state.tally is None else self.sought().pack(state.tally),
            "distribution": codec.describe(state.distribution),
        }

    def unpack(self, packed: Packed, key: Key) -> ServerState:
        """The state that was packed."""
        refused, n_published = codec.restore(Refused, packed["refused"]), codec.whole(packed["n_published"])
        state = self.start(key)
        if state.tally is not None:
            tally = self.sought().unpack(packed["collector"], key)
            found = codec.restore(Distribution | None, packed["distribution"])
            if found is not None:
                found.frequencies.flags.writeable = False
            theta = None if packed["theta"] is None else codec.restore(float, packed["theta"])
            state = ServerState(tally, theta, found)
        state = replace(state, refused=refused, n_published=n_published)
        if min(n_published, refused.reports, refused.messages) < 0 or packed["n_seen"] != self.consumed(state):
            raise ValueError("counts out of range")
        if state.theta != packed["theta"] or (state.theta is not None and not 0.0 < state.theta <= self.bound):
            raise ValueError("a threshold out of range")
        return state


def collector_of(machine: CollectorMachine, tally: Tally) -> HistogramCollector:
    """A collector with this state."""
    made = HistogramCollector(machine.mechanism, **machine.parameters)
    made.take(machine.settled(tally))
    return made


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

    _MACHINE: ClassVar[Any] = ServerMachine
    _machine: ServerMachine
    #: Reports are private already.
    _FORKS: ClassVar[bool] = True
    noise_fingerprint = None
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
        rule = SquareWaveRule() if threshold is None else as_rule(threshold)
        if isinstance(rule, str):
            validation.choice("threshold", rule, SCALES)
            rule = SquareWaveRule(scale="logarithmic" if rule == "logarithmic" else "linear")
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

    def __reduce__(self) -> Any:
        return self._unpickled, (self._machine, self._machine.pack(self._state))

    @classmethod
    def _unpickled(cls, machine: ServerMachine, packed: Packed) -> Self:
        twin = cls._of(machine, Key.choose(None, None))
        twin._state = machine.unpack(packed, twin._key)
        return twin
