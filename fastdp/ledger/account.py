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

UNLIMITED = Budget(math.inf, math.inf)
#: How a line ends a reservation.
ENDS = {"commit": "spent", "cancel": "cancelled"}


@dataclass(frozen=True)
class Account:
    """Releases by number, and limits by stream (None: of all that have none of their own)."""

    entries: dict[int, Entry] = field(default_factory=dict)
    limits: dict[str | None, Budget] = field(default_factory=dict)

    def of(self, stream: str) -> list[Entry]:
        """The releases of a stream."""
        return [entry for entry in self.entries.values() if entry.stream == stream]

    def limit(self, stream: str) -> Budget:
        """What the ledger allows a stream."""
        return self.limits.get(stream, self.limits.get(None, UNLIMITED))

    def take(self, line: dict[str, Any]) -> None:
        """Add a line; ArithmeticError, LookupError, TypeError or ValueError if it makes no sense here."""
        kind = line["kind"]
        if kind == "limit":
            self.limits[line["stream"]] = budget("epsilon", line["epsilon"], "delta", line["delta"])
        elif kind in ("spend", "reserve"):
            entry = from_line(line, "spent" if kind == "spend" else "reserved")
            self.entries[entry.id] = entry
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
