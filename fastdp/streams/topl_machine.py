"""The machines of ToPL: the server, and users and server in one process (CCS 2021, section 4).

Reports choose the threshold, later ones are published.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.column import as_finite, as_floats
from fastdp.errors import StateError
from fastdp.kinds import Floats
from fastdp.local import Hybrid, SquareWave
from fastdp.local.base import MAX_START
from fastdp.local.collectors import HistogramCollector
from fastdp.local.distribution import Distribution
from fastdp.local.encoding import read_messages
from fastdp.local.tally import NONE_REFUSED, CollectorMachine, Refused, Tally, as_given
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.codec import Packed
from fastdp.state.machine import Column, Machine, Transition
from fastdp.thresholds import Fixed, ThresholdTask
from fastdp.thresholds import SquareWave as SquareWaveRule


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
    rule: ClassVar[int] = 1

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

    def log_messages(self, before: ServerState, after: ServerState) -> Iterator[tuple[int, str]]:
        """The threshold, once it is chosen."""
        if before.theta is None and after.theta is not None:
            yield logging.INFO, f"threshold chosen: {after.theta:g}"

    def read(self, *batch: Any) -> Op:
        """What is done with what."""
        return Op(*batch)

    def parts(self, batch: Op) -> tuple[Any, ...]:
        """What was given."""
        return as_given(batch.raw)

    def step(self, state: ServerState, batch: Op, key: Key) -> Transition[ServerState]:
        """Collect for the threshold, or publish."""
        hybrid = self.hybrid(state)
        if batch.name == "publish" and hybrid is None:
            raise StateError("publish() before the threshold was chosen: expected square-wave reports, for collect()")
        if batch.name in ("publish", "receive") and hybrid is not None:
            reports, refused = batch.data, 0
            if batch.name == "receive":
                reports, refused = read_messages(batch.data, hybrid, batch.most_reports)
            after, estimates = self._published(state, hybrid, reports)
            return Transition(replace(after, refused=after.refused.plus(0, refused)), lambda: estimates)
        tally, collector = self.tally(state, batch.name), self.sought()
        if batch.name == "merge":
            tally = collector_of(collector, tally).merge(*batch.data).state
        elif batch.name == "receive":
            tally = collector.step(tally, collector.read_messages(batch.data, 0, batch.most_reports), key).state
        else:
            tally = collector.step(tally, collector.read(batch.data, 0), key).state
        after = replace(state, tally=tally)
        if collector.n_reports(tally) >= self.holdout:
            rule = cast("SquareWaveRule", self.threshold)
            found = rule.estimate(collector.mechanism, collector.settled(tally).totals)
            after = replace(after, theta=rule.choose_from(found, self.task), distribution=found)
        return Transition(after, lambda: np.empty(0), partial(collector.finish, tally))

    def tally(self, state: ServerState, call: str) -> Tally:
        """What was collected, while the threshold is sought."""
        if state.theta is not None or state.tally is None:
            raise StateError(f"{call}() after the threshold was chosen: expected hybrid reports, for publish()")
        return state.tally

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
        refused, n_published = codec.restore(Refused, packed["refused"]), codec.require_int(packed["n_published"])
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


@dataclass(frozen=True)
class SimulationState:
    """State of users and server.

    Attributes
    ----------
    n_held, n_published : int
        Users before and after the threshold.
    server : ServerState
        The server.
    """

    n_held: int
    n_published: int
    server: ServerState


@dataclass(frozen=True)
class SimulationMachine(Machine[SimulationState]):
    """Users and server as one machine.

    Attributes
    ----------
    server : ServerMachine
        The server.
    nonfinite : str
        As of :class:`ToPL`.
    """

    SPLITS: ClassVar[bool] = True

    server: ServerMachine
    nonfinite: str
    rule: ClassVar[int] = 1

    def start(self, key: Key) -> SimulationState:
        """Before the first user."""
        return SimulationState(0, 0, self.server.start(key))

    def parts(self, batch: Column) -> tuple[Floats]:
        """The values, with zeros for NaN and infinity where that is allowed."""
        return (self._finite(batch),)

    def consumed(self, state: SimulationState) -> int:
        """Users so far."""
        return state.n_held + state.n_published

    def log_messages(self, before: SimulationState, after: SimulationState) -> Iterator[tuple[int, str]]:
        """Messages of the server's log."""
        return self.server.log_messages(before.server, after.server)

    def step(self, state: SimulationState, batch: Column, key: Key) -> Transition[SimulationState]:
        """Ask the users, and let the server collect and publish."""
        values, name, used = batch.values, batch.name, max(state.n_held, state.n_published)
        if used + values.size > MAX_START:
            raise StateError(
                f"{name} has {values.size} values after {used}: expected at most {MAX_START} "
                "under one key; go on with a new ToPL"
            )
        values, server, after = self._finite(batch), self.server, state.server
        held, finish, out = 0, None, np.empty(0)
        if after.theta is None:
            held = min(values.size, server.holdout - server.sought().n_reports(server.tally(after, "publish")))
        if held:
            reports = server.sought().mechanism.perturb(values[:held], key=key, start=state.n_held)
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
        return as_finite(as_floats(batch.values), self.nonfinite, batch.name, " (or nonfinite='zero')")

    def settled(self, state: SimulationState) -> SimulationState:
        """The state with nothing pending."""
        return replace(state, server=self.server.settled(state.server))

    def rekeyed(self, state: SimulationState, key: Key) -> SimulationState:
        """The state for a copy."""
        return replace(state, server=self.server.rekeyed(state.server, key))

    # State files.

    def describe(self) -> dict[str, Any]:
        """The server's parameters, and this one's."""
        return {**self.server.describe(), "nonfinite": self.nonfinite}

    @classmethod
    def from_description(cls, description: dict[str, Any], **own: Any) -> SimulationMachine:
        """The machine that was described."""
        fields = dict(description)
        nonfinite = validation.choice("nonfinite", fields.pop("nonfinite"), ("raise", "zero"))
        return cls(ServerMachine.from_description(fields, **own), nonfinite)

    def pack(self, state: SimulationState) -> Packed:
        """The state as JSON."""
        counts = {"n_held": state.n_held, "n_published": state.n_published}
        return {"n_seen": self.consumed(state), **counts, "server": self.server.pack(state.server)}

    def unpack(self, packed: Packed, key: Key) -> SimulationState:
        """The state that was packed."""
        counts = codec.require_int(packed["n_held"]), codec.require_int(packed["n_published"])
        if min(counts) < 0 or packed["n_seen"] != sum(counts):
            raise ValueError("counts out of range")
        return SimulationState(*counts, self.server.unpack(packed["server"], key))
