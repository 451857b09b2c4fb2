"""Rows of a table in which two adjacent tables differ, as a value: which changes are made of which others.

Proofs are in ``docs/privacy.md``, section 11.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self


class Period(NamedTuple):
    """Spans of time without gaps, in any one of which a unit has its rows.

    Attributes
    ----------
    measure : "months", "days" or "microseconds"
        Of the length; months begin on their first day, days at midnight.
    length : int
        Of one span.
    begin : int
        Where a span begins, below the length: a month counted from the year 0, an ordinal day, an instant.
    time_zone : str or None
        Whose midnight.
    """

    measure: Literal["months", "days", "microseconds"]
    length: int
    begin: int
    time_zone: str | None

    def is_within(self, longer: Period) -> bool:
        """Whether each span lies in one of the longer ones."""
        if self.time_zone != longer.time_zone:
            return False
        if self.measure == longer.measure:
            return longer.length % self.length == 0 and (longer.begin - self.begin) % self.length == 0
        return longer.measure == "months" and self.measure == "days" and self.length == 1


class Rows(NamedTuple):
    """A unit of privacy: the rows that are added or removed.

    Attributes
    ----------
    who : str or None
        The column of persons: all rows of one of them.  None: up to ``most`` rows of anyone.
    most : int
        How many; 1 beside ``who``.
    period : Period or None
        The rows lie in one of these spans; None: anywhere.
    """

    who: str | None = None
    most: int = 1
    period: Period | None = None

    def times(self, weaker: Rows) -> int | None:
        """The number of changes of this unit that make any one change of the weaker unit; None where none do.

        Rows of a person are removed, all of them, and those that stay are added again: two changes.
        """
        if self == weaker:
            return 1
        one_row = weaker.who is None and weaker.most == 1
        # One row lies in one period, whatever the periods are.
        apart = weaker.period is None or (self.period is not None and not weaker.period.is_within(self.period))
        if self.period is not None and apart and not one_row:
            return None
        if self.who is not None:
            return 2 if one_row or weaker.who == self.who else None
        return 1 if weaker.who is None and weaker.most <= self.most else None

    def __str__(self) -> str:
        """What the words of a guarantee leave out."""
        who = "rows" if self.who is None else f"column {self.who!r}"
        if self.period is None:
            return who
        measure, length, begin, zone = self.period
        return f"{who}, periods of {length} {measure} from {begin} on, {zone or 'no zone'}"

    @classmethod
    def read(cls, said: Any) -> Self | None:
        """From what JSON made of it; TypeError or ValueError if it is none."""
        if said is None:
            return None
        who, most, period = said
        if period is not None:
            measure, length, begin, zone = period
            period = Period(measure, length, begin, zone)
            whole = type(length) is type(begin) is int and 0 <= begin < length
            if not (measure in ("months", "days", "microseconds") and whole and _is_text(zone)):
                raise ValueError("no period")
        if not (_is_text(who) and type(most) is int and most > 0):
            raise ValueError("no unit of rows")
        return cls(who, most, period)


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)
