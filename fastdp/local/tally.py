"""What a collector has added up, and the machine that adds to it."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data import column as columns
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Integers
from fastdp.local.encoding import as_bytes, read_messages
from fastdp.local.mechanisms import Hybrid, LogSquareWave, Piecewise, SquareWave, StochasticRounding
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.machine import Machine, Transition

if TYPE_CHECKING:
    from fastdp.local.collectors import Collector

#: Mechanisms that a state file may name.
MECHANISMS: codec.Parts = {
    kind.__name__: kind for kind in (SquareWave, LogSquareWave, StochasticRounding, Piecewise, Hybrid)
}


@dataclass(frozen=True)
class Refused:
    """What a collector has left out.

    Attributes
    ----------
    reports : int
        Reports that no client with the announced mechanism can have made.
    messages : int
        Messages that are malformed, or of another mechanism, epsilon or domain.
    """

    reports: int = 0
    messages: int = 0

    def plus(self, reports: int, messages: int) -> Refused:
        """After so many more."""
        return Refused(self.reports + reports, self.messages + messages)


NONE_REFUSED = Refused()


def as_given(raw: Sequence[Any]) -> tuple[Any, ...]:
    """What fingerprints are of: reports may be given again as another kind of numbers."""
    return tuple(
        bytes(part) if isinstance(part, (bytes, bytearray, memoryview)) else np.asarray(part, np.float64)
        for part in raw
    )


def as_most_reports(most_reports: object) -> int | None:
    """How many reports a message may have: ParameterError unless it is a whole number or None."""
    return None if most_reports is None else validation.integer("most_reports", most_reports, 0)


class Counted(NamedTuple):
    """A batch: reports that are in range with their slots, what is left out, and what fingerprints are of."""

    reports: list[tuple[Integers, Integers]]
    refused_reports: int
    refused_messages: int
    raw: tuple[Any, ...]


@dataclass(frozen=True)
class Tally:
    """What was collected.

    Attributes
    ----------
    totals : int64[any]
        Sums, advanced in place; they have yet to get ``pending``.
    refused : Refused
        What was left out.
    pending : list of (reports, slots)
        Not copied into the totals before they are recorded, as slots may be many.
    """

    totals: Integers
    refused: Refused = NONE_REFUSED
    pending: list[tuple[Integers, Integers]] = field(default_factory=list)


@dataclass(frozen=True)
class CollectorMachine(Machine[Tally]):
    """A collector as a machine.

    Attributes
    ----------
    kind : type of Collector
        Says how reports are added up.
    mechanism : Mechanism
        What the clients were told to use.
    parameters : dict
        The others of its constructor.
    """

    kind: type[Collector]
    mechanism: Any
    parameters: dict[str, int]

    @property
    def slots(self) -> int:
        """Places that reports may belong to."""
        return self.parameters.get("slots", 1)

    def start(self, key: Key) -> Tally:
        """Nothing collected."""
        return Tally(self.kind._zeros(self.mechanism, **self.parameters))

    def read(self, *batch: Any) -> Counted:
        """Reports and their slots, checked."""
        reports, slot = batch
        column = columns.as_column([reports] if columns.is_number(reports) else reports, "reports")
        if column.dtype.kind == "b":
            raise DataError("reports holds bool entries: expected whole numbers")
        slots = columns.as_array(slot)
        if slots is None or slots.dtype.kind not in "iu" or slots.shape not in ((), column.shape):
            raise ParameterError(f"slot is a {type(slot).__name__}: expected a whole number, or one for each report")
        wrong = (slots < 0) | (slots >= self.slots)
        if wrong.any():
            place = columns.entry_at("slot", np.atleast_1d(wrong), "out of range")
            raise ParameterError(f"{place}; expected 0 to {self.slots - 1}")
        good = self._good(column, slots)
        return Counted([good], column.size - good[0].size, 0, (column, slots))

    def read_messages(self, data: Any, slot: int, most_reports: int | None) -> Counted:
        """The messages of a buffer, checked."""
        reports, refused = read_messages(data, self.mechanism, most_reports)
        good = self._good(reports, np.asarray(slot))
        raw = as_bytes(data), str((slot, most_reports)).encode()
        return Counted([good], reports.size - good[0].size, refused, raw)

    def _good(self, column: NDArray[Any], slots: NDArray[Any]) -> tuple[Integers, Integers]:
        good = (column >= 0) & (column < self.mechanism.n_outputs)
        if column.dtype.kind == "f":
            # Numbers too long for 64 bits came as floats; so did NaN, which compares as False.
            good &= column == np.floor(column)
        return column[good].astype(np.int64), np.broadcast_to(slots, column.shape)[good].astype(np.int64)

    def parts(self, batch: Counted) -> tuple[Any, ...]:
        """What was given."""
        return as_given(batch.raw)

    def step(self, state: Tally, batch: Counted, key: Key) -> Transition[Tally]:
        """Collect."""
        count = sum([reports.size for reports, _ in batch.reports])
        refused = state.refused.plus(batch.refused_reports, batch.refused_messages)
        after = Tally(state.totals, refused, [*state.pending, *batch.reports])
        return Transition(after, lambda: count, partial(self.finish, after))

    def finish(self, state: Tally) -> None:
        """Add what is pending, in place; after an interrupt all of it is added, or all of it is still pending."""
        adds = [add for part in state.pending for add in self.kind._adds(self.mechanism, state.totals, *part)]
        # In one call of the interpreter, between whose parts no interrupt can occur.
        list(map(operator.call, [*adds, state.pending.clear]))

    def settled(self, state: Tally) -> Tally:
        """The state with nothing pending; a copy, if anything is."""
        if not state.pending:
            return state
        whole = Tally(state.totals.copy(), state.refused, state.pending.copy())
        self.finish(whole)
        return whole

    def n_reports(self, state: Tally) -> int:
        """Reports collected."""
        return self.kind._n_reports(state.totals) + sum([reports.size for reports, _ in state.pending])

    def consumed(self, state: Tally) -> int:
        """Reports and messages seen."""
        return self.n_reports(state) + state.refused.reports + state.refused.messages

    def rekeyed(self, state: Tally, key: Key) -> Tally:
        """The state for a copy."""
        whole = self.settled(state)
        return Tally(whole.totals.copy(), whole.refused)

    # State files.

    def describe(self) -> dict[str, Any]:
        """Mechanism and parameters."""
        return {"mechanism": codec.describe_part(self.mechanism, MECHANISMS), **self.parameters}

    @classmethod
    def from_description(cls, description: dict[str, Any], **own: Any) -> CollectorMachine:
        """The machine that was described, for a kind of collector."""
        fields = dict(description)
        mechanism = codec.build_part(fields.pop("mechanism"), MECHANISMS)
        machine: CollectorMachine = own["kind"](mechanism, **fields)._machine
        return machine

    def pack(self, state: Tally) -> dict[str, Any]:
        """The state as JSON."""
        whole = self.settled(state)
        totals, refused = codec.describe(whole.totals), codec.describe(whole.refused)
        return {"n_seen": self.consumed(whole), "totals": totals, "refused": refused}

    def unpack(self, packed: dict[str, Any], key: Key) -> Tally:
        """The state that was packed."""
        totals = codec.restore(Integers, packed["totals"])
        codec.expect(totals, self.start(key).totals)
        self.kind._check_totals(self.mechanism, totals)
        state = Tally(totals, codec.restore(Refused, packed["refused"]))
        if min(state.refused.reports, state.refused.messages) < 0 or packed["n_seen"] != self.consumed(state):
            raise ValueError("counts out of range")
        return state
