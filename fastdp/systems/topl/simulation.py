"""Users and server of ToPL in one process, as a machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.arrays.column import as_finite, as_floats
from fastdp.arrays.kinds import Floats
from fastdp.errors import StateError
from fastdp.local.random_words import MAX_START
from fastdp.randomness.key import Key
from fastdp.state import codec
from fastdp.state.content import Packed
from fastdp.state.machine import Column, Machine, Transition
from fastdp.systems.topl.machine import Op, ServerMachine, ServerState


@dataclass(frozen=True)
class SimulationState:
    """Where users and server stand.

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

    def news(self, before: SimulationState, after: SimulationState) -> Iterator[tuple[int, str]]:
        """What the server's log says."""
        return self.server.news(before.server, after.server)

    def step(self, state: SimulationState, batch: Column, key: Key) -> Transition[SimulationState]:
        """Ask the users, and let the server collect and publish."""
        values, name, used = batch.values, batch.name, max(state.n_held, state.n_published)
        if used + values.size > MAX_START:
            raise StateError(
                f"{name} has {values.size} values after {used}: expected at most {MAX_START} "
                "under one key; go on with a new ToPL"
            )
        values, server = self._finite(batch), self.server
        after, finish, held, out = state.server, None, 0, np.empty(0)
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
        counts = codec.whole(packed["n_held"]), codec.whole(packed["n_published"])
        if min(counts) < 0 or packed["n_seen"] != sum(counts):
            raise ValueError("counts out of range")
        return SimulationState(*counts, self.server.unpack(packed["server"], key))
