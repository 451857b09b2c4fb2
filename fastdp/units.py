"""Units of privacy of tables: as users give them, and as values of which one covers another.

Proofs are in ``docs/privacy.md``, section 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Self

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Duration
from fastdp.record import Kind, Whole, parameter, record
from fastdp.validation import DAY, FIXED, split_duration

MICROSECOND = timedelta(microseconds=1)
#: Calendar units as (months, days).
CALENDAR = {"d": (0, 1), "w": (0, 7), "mo": (1, 0), "y": (12, 0)}
ACCEPTED = "a length such as '15min', '1h', '90s', '1d', '1w', '1mo' or '1y'"
MAX_ROWS = 2**40


def parse_length(name: str, length: object) -> tuple[str, int, int, int]:
    """A length as text, and as (microseconds, months, days), of which one is not 0."""
    if isinstance(length, timedelta) and length > timedelta():
        return _fixed(length // MICROSECOND), length // MICROSECOND, 0, 0
    count, unit = split_duration(length)
    microseconds = count * FIXED.get(unit, 0)
    if microseconds.denominator == 1 and 0 < microseconds <= 10_000 * 365 * DAY:
        whole = int(microseconds)
        return f"{count}{unit}" if count.denominator == 1 else _fixed(whole), whole, 0, 0
    if unit in CALENDAR and count.denominator == 1 and 0 < count <= 10_000:
        months, days = CALENDAR[unit]
        return f"{count}{unit}", 0, int(count) * months, int(count) * days
    raise ParameterError(f"{name} = {validation.shown(length)}: expected {ACCEPTED}")


def _fixed(microseconds: int) -> str:
    unit = next(unit for unit in ("h", "min", "s", "ms", "us") if microseconds % FIXED[unit] == 0)
    return f"{microseconds // FIXED[unit]}{unit}"


@dataclass(frozen=True)
class Length(Kind):
    """A length of time; the record holds its text."""

    def check(self, name: str, value: object) -> str:
        """The length as text."""
        return parse_length(name, value)[0]


@dataclass(frozen=True)
class Column(Kind):
    """The name of a column."""

    def check(self, name: str, value: object) -> str:
        """The name."""
        if not isinstance(value, str):
            raise ParameterError(f"{name} = {validation.shown(value)}: expected the name of a column, a text")
        return value


@record
class Rows:
    """Unit of privacy of a table: up to k of its rows, which one person may have; that they do is your word.

    Parameters
    ----------
    k : int
        How many rows.
    per : str or timedelta, optional
        Up to k rows in any one period of this length, such as "1d", aligned as windows are; by default in all.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Rows(24, per="1d")
    Rows(k=24, per='1d')
    """

    k: int = parameter(Whole(1, MAX_ROWS), default=1)
    per: Duration | None = parameter(Length(optional=True), default=None)

    def _check(self) -> None:
        if self.per is not None and self.k == 1:
            raise ParameterError(f"per = {self.per!r}: expected k above 1, or a Person; one row lies in one period")


@record
class Person:
    """Unit of privacy of a table: all rows of a person, of whom a bounded number count.

    Parameters
    ----------
    column : str
        The column of persons; equal values of other types are one person (``docs/tables.md``).
    rows : int
        Rows of a person that count, those of least keyed hash, evenly spread over a period; further ones are
        dropped.  The choice depends neither on the order of rows nor on other persons.
    per : str or timedelta, optional
        The unit is what a person adds in any one period of this length, such as "1d", aligned as windows are; by
        default in all.
    per_window : int, optional
        Rows of a person that count in one window, those of least hash.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Person("household", rows=48, per="1d")
    Person(column='household', rows=48, per='1d', per_window=None)
    """

    column: str = parameter(Column())
    rows: int = parameter(Whole(1, MAX_ROWS), default=1)
    per: Duration | None = parameter(Length(optional=True), default=None)
    per_window: int | None = parameter(Whole(1, MAX_ROWS, optional=True), default=None)


#: The unit of privacy of a table.
Unit = Rows | Person
ONE_ROW = Rows()


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


class UnitRows(NamedTuple):
    """The rows that a unit adds or removes, as a value.

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

    def times(self, weaker: UnitRows) -> int | None:
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
