"""What the lines of a ledger add up to: totals, reservations that nobody has ended, and the limits that hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.ledger.chain import Line
from fastdp.ledger.entry import Entry, from_line
from fastdp.ledger.tally import Budget, Tally

#: A limit as it was told: None where nothing was said, infinite where there is to be none.
Told = tuple[float | None, float | None]
#: How a line ends a reservation.
ENDS = {"commit": "spent", "cancel": "cancelled"}


class Account:
    """Limits by stream (None: of all that have none of their own), and what the releases of each stream add up to.

    Of the releases themselves it keeps what a further line may need, a few hundred bytes each.
    """

    def __init__(self) -> None:
        self.limits: dict[str | None, Told] = {}
        self.tallies: dict[str, Tally] = {}
        #: Those that nobody has ended, by number.
        self.reserved: dict[int, Entry] = {}
        #: Number and stream of the release, by the fingerprint of its noise.
        self.noises: dict[str, tuple[int, str]] = {}
        self._states: dict[int, str] = {}

    def tally(self, stream: str) -> Tally:
        """What the releases of a stream add up to."""
        return self.tallies.get(stream, Tally())

    def state(self, number: int) -> str:
        """What became of a release, in words."""
        return self._states.get(number, "not there")

    def limit(self, stream: str | None) -> Budget:
        """What the ledger allows a stream: what its own limit leaves unsaid, that of all others says."""
        own, general = (self.limits.get(name, (None, None)) for name in (stream, None))
        return Budget(
            *(
                next((part for part in parts if part is not None), math.inf)
                for parts in zip(own, general, strict=True)
            )
        )

    def take(self, line: Line) -> Entry | None:
        """Add a line; ArithmeticError, LookupError, TypeError or ValueError if it makes no sense here.

        Returns
        -------
        Entry or None
            The release that it makes or ends, as it is from now on.
        """
        kind = line["kind"]
        if kind in ("spend", "reserve"):
            entry = from_line(line, "spent" if kind == "spend" else "reserved")
            self._states[entry.id] = entry.state
            if kind == "reserve":
                self.reserved[entry.id] = entry
            if entry.fingerprint is not None:
                self.noises[entry.fingerprint] = entry.id, entry.stream
            if entry.stream not in self.tallies:
                self.tallies[entry.stream] = Tally()
            self.tallies[entry.stream].add(entry)
            return entry
        if kind in ENDS:
            return self._end(line["of"], ENDS[kind], line.get("stop"))
        if kind == "limit":
            read = budget("epsilon", line.get("epsilon"), "delta", line.get("delta"))
            before = self.limits.get(line["stream"], (None, None))
            # What a line does not name stays as it was; null is "no limit".
            epsilon, delta = (
                now if name in line else was for name, now, was in zip(Budget._fields, read, before, strict=True)
            )
            self.limits[line["stream"]] = epsilon, delta
        elif kind != "recover":  # which says what the last line was that had been cut off
            raise ValueError(f"a line of kind {kind!r}")
        return None

    def _end(self, number: int, state: str, stop: object) -> Entry:
        if self._states[number] != "reserved":
            raise ValueError(f"it ends entry {number}, which is {self._states[number]}")
        before = self.reserved.pop(number)
        ended = replace(before, state=state, stop=ending(before, stop))
        self._states[number] = state
        if before.fingerprint is not None and state == "cancelled":
            # Nothing was released with this noise.
            self.noises.pop(before.fingerprint, None)
        if (ended.counts, ended.stop) != (before.counts, before.stop):
            self.tallies[before.stream].add(before, -1)
            self.tallies[before.stream].add(ended)
        return ended


def ending(reserved: Entry, stop: object) -> int | None:
    """Where a reserved release ended, within what was reserved; None says nothing else than that."""
    if stop is None:
        return reserved.stop
    if reserved.start is None:
        raise ParameterError(f"stop = {stop!r}: expected None, because the reservation has no start")
    return validation.integer("stop", stop, reserved.start + 1, reserved.stop)


def taking(account: Account, name: str, entries: dict[int, Entry] | None = None) -> Callable[[int, Line], None]:
    """What adds lines to an account, and the releases to entries; StateError names a line that makes no sense."""

    def take(number: int, line: Line) -> None:
        try:
            entry = account.take(line)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise StateError(f"ledger {name} is damaged at line {number}: {error}") from error
        if entries is not None and entry is not None:
            entries[entry.id] = entry

    return take


def budget(epsilon_name: str, epsilon: float | None, delta_name: str, delta: float | None) -> Budget:
    """A limit of which either part may be None."""
    amounts = []
    for name, value in ((epsilon_name, epsilon), (delta_name, delta)):
        amount = math.inf if value is None else validation.real(name, value)
        if amount < 0.0:
            raise ParameterError(f"{name} = {value!r}: expected at least 0, or None for no limit")
        amounts.append(amount)
    return Budget(*amounts)
