"""What the lines of a ledger add up to: releases in their last state, and the limits that hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.ledger.accounting import Budget
from fastdp.ledger.chain import Session
from fastdp.ledger.entry import Entry, from_line

#: A limit as it was told: None where nothing was said, infinite where there is to be none.
Told = tuple[float | None, float | None]
#: How a line ends a reservation.
ENDS = {"commit": "spent", "cancel": "cancelled"}


@dataclass(frozen=True)
class Account:
    """Releases by number, and limits by stream (None: of all that have none of their own)."""

    entries: dict[int, Entry] = field(default_factory=dict)
    limits: dict[str | None, Told] = field(default_factory=dict)

    def of(self, stream: str) -> list[Entry]:
        """The releases of a stream."""
        return [entry for entry in self.entries.values() if entry.stream == stream]

    def limit(self, stream: str | None) -> Budget:
        """What the ledger allows a stream: what its own limit leaves unsaid, that of all others says."""
        own, general = (self.limits.get(name, (None, None)) for name in (stream, None))
        return Budget(
            *(
                next((part for part in parts if part is not None), math.inf)
                for parts in zip(own, general, strict=True)
            )
        )

    def take(self, line: dict[str, Any]) -> None:
        """Add a line; ArithmeticError, LookupError, TypeError or ValueError if it makes no sense here."""
        kind = line["kind"]
        if kind == "limit":
            read = budget("epsilon", line.get("epsilon"), "delta", line.get("delta"))
            before = self.limits.get(line["stream"], (None, None))
            # What a line does not name stays as it was; null is "no limit".
            epsilon, delta = (
                now if name in line else was for name, now, was in zip(Budget._fields, read, before, strict=True)
            )
            self.limits[line["stream"]] = epsilon, delta
        elif kind in ("spend", "reserve"):
            entry = from_line(line, "spent" if kind == "spend" else "reserved")
            self.entries[entry.id] = entry
        elif kind == "recover":
            pass  # It says what the last line was that had been cut off.
        elif kind in ENDS:
            entry = self.entries[line["of"]]
            if entry.state != "reserved":
                raise ValueError(f"it ends entry {entry.id}, which is {entry.state}")
            self.entries[entry.id] = replace(entry, state=ENDS[kind], stop=line.get("stop", entry.stop))
        else:
            raise ValueError(f"a line of kind {kind!r}")


def read_account(session: Session) -> Account:
    """The account of a checked file; StateError names the line that makes no sense."""
    account = Account()
    for number, line in enumerate(session.lines[1:], 1):
        try:
            account.take(line)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise StateError(f"ledger {session.name} is damaged at line {number}: {error}") from error
    return account


def budget(epsilon_name: str, epsilon: float | None, delta_name: str, delta: float | None) -> Budget:
    """A limit of which either part may be None."""
    amounts = []
    for name, value in ((epsilon_name, epsilon), (delta_name, delta)):
        amount = math.inf if value is None else validation.real(name, value)
        if amount < 0.0:
            raise ParameterError(f"{name} = {value!r}: expected at least 0, or None for no limit")
        amounts.append(amount)
    return Budget(*amounts)
