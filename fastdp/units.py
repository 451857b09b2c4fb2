"""Units of privacy of tables (``docs/privacy.md``, section 3)."""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args
from zoneinfo import ZoneInfo

from fastdp import validation
from fastdp.errors import ParameterError, argument
from fastdp.kinds import Duration
from fastdp.record import Checked, Kind, Text, Whole, parameter, put, record
from fastdp.validation import DAY, FIXED, refusal, split_duration

MICROSECOND = timedelta(microseconds=1)
#: Calendar units as (months, days).
CALENDAR = {"d": (0, 1), "w": (0, 7), "mo": (1, 0), "y": (12, 0)}
ACCEPTED = "a length such as '15min', '1h', '90s', '1d', '1w', '1mo' or '1y'"
MAX_ROWS = 2**40
#: Rows dropped of a person count up to so many times those that are kept.
MOST_DROPPED = 4
#: Numbers of a table that get noise, where a person has rows in most windows.
BasisName = Literal["auto", "calendar", "windows"]


def parse_length(name: str, length: object) -> tuple[str, int, int, int]:
    """`length` as text and (microseconds, months, days); else ParameterError."""
    if isinstance(length, timedelta) and length > timedelta():
        return _fixed(length // MICROSECOND), length // MICROSECOND, 0, 0
    count, unit = split_duration(length)
    microseconds = count * FIXED.get(unit, 0)
    if microseconds.denominator == 1 and 0 < microseconds <= 10_000 * 365 * DAY:
        number = int(microseconds)
        return f"{count}{unit}" if count.denominator == 1 else _fixed(number), number, 0, 0
    if unit in CALENDAR and count.denominator == 1 and 0 < count <= 10_000:
        months, days = CALENDAR[unit]
        return f"{count}{unit}", 0, int(count) * months, int(count) * days
    raise refusal(name, length, ACCEPTED)


def _fixed(microseconds: int) -> str:
    unit = next(unit for unit in ("h", "min", "s", "ms", "us") if microseconds % FIXED[unit] == 0)
    return f"{microseconds // FIXED[unit]}{unit}"


def as_length(name: str, value: object) -> str:
    """Text of a length of time; else ParameterError."""
    return parse_length(name, value)[0]


def as_name(name: str, value: object) -> str:
    """Name of a column; else ParameterError."""
    if not isinstance(value, str):
        raise refusal(name, value, "the name of a column, a text")
    return value


def _as_basis(name: str, value: object) -> str | tuple[float, ...]:
    if isinstance(value, str):
        return validation.choice(name, value, get_args(BasisName))
    listed: Any = next((getattr(value, way)() for way in ("tolist", "to_list") if hasattr(value, way)), value)
    try:
        found = tuple(validation.real(name, each) for each in listed) if isinstance(listed, (list, tuple)) else ()
    except ParameterError:
        found = ()
    if len(set(found)) < 2 or not all(map(math.isfinite, found)):
        raise refusal(name, None, "'auto', 'calendar', 'windows', or a curve: finite numbers that are not all equal")
    return found


@record
class Rows:
    """Unit of privacy of a table: k rows of one person, who is assumed to have no more.

    Parameters
    ----------
    k : int
        Number of rows.
    per : str or timedelta, optional
        The limit holds in each period of this length, such as "1d", aligned as windows; by default for all.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Rows(24, per="1d")
    Rows(k=24, per='1d')
    """

    k: int = parameter(Whole(1, MAX_ROWS), default=1)
    per: Duration | None = parameter(Checked(as_length, optional=True), default=None)
    #: No column names the unit, and no rule bounds its rows.
    column: ClassVar[None] = None
    per_window: ClassVar[None] = None
    basis: ClassVar[Literal["windows"]] = "windows"
    most: ClassVar[None] = None
    keys: ClassVar[None] = None

    @property
    def rows(self) -> int:
        """Rows of one unit that count."""
        return self.k

    def _check(self) -> None:
        if self.per is not None and self.k == 1:
            raise refusal("per", self.per, "k above 1, or a Person; one row lies in one period")


@record
class Person:
    """Unit of privacy of a table: all rows of a person, of which a bounded number count.

    Parameters
    ----------
    column : str
        Column of persons; equal values of other types are one person (``docs/tables.md``).
    rows : int or "auto"
        Rows of a person that count, by least keyed hash, spread evenly over a period. "auto": chosen with a fiftieth
        of the budget, so that noise and dropped rows err alike.
    per : str or timedelta, optional
        The unit is a person's rows in any one period of this length, such as "1d", aligned as windows; by default
        all.
    per_window : int, optional
        Rows of a person that count in one window.
    basis : "auto", "calendar", "windows" or tuple of float
        For persons with rows in most windows: noise in every window, or in the numbers of a calendar (mean, waves of
        a day, weekdays, slow changes), or of a calendar and a public curve that repeats from the first window on.
        "auto": a calendar if it is expected to err three times less.
    most : int, optional
        Publicly known most rows of a person (in each ``per``), from ``rows`` to four times ``rows`` plus
        ``per_window`` (or ``rows``): intervals then have both ends.  If all of them count, none are dropped, and
        their share is for the sums.  Privacy does not depend on it.
    keys : int, optional
        Keys of a person (in each ``per``) whose rows count, by least keyed hash; by default all.  It reduces a
        person's part in a calendar's numbers, and in reach by key (there the first ones, of all periods): 1 for homes
        that stay in one district.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Person("household", rows=48, per="1d")
    Person(column='household', rows=48, per='1d', per_window=None, basis='auto', most=None, keys=None)
    """

    column: str = parameter(Checked(as_name))
    rows: int | Literal["auto"] = parameter(Whole(1, MAX_ROWS, words=("auto",)), default=1)
    per: Duration | None = parameter(Checked(as_length, optional=True), default=None)
    per_window: int | None = parameter(Whole(1, MAX_ROWS, optional=True), default=None)
    basis: BasisName | tuple[float, ...] = parameter(Kind(), default="auto")
    most: int | None = parameter(Whole(1, MAX_ROWS, optional=True), default=None)
    keys: int | None = parameter(Whole(1, MAX_ROWS, optional=True), default=None)

    def _check(self) -> None:
        put(self, basis=_as_basis("basis", self.basis))
        if self.basis not in ("auto", "windows") and self.per_window is None:
            rows = f"{argument(per_window=...)}, the rows of a person that count in one window"
            accepted = f"'auto' or 'windows' without {rows}"
            raise refusal("basis", self.basis if isinstance(self.basis, str) else None, accepted)
        if self.most is None or self.rows == "auto":
            return
        if self.per_window is None and self.most < self.rows:
            raise refusal(
                "most", self.most, f"at least rows = {self.rows}, or fewer rows, because noise grows with rows"
            )
        if self.most > (known := self.known_rows(self.rows)):
            raise refusal("most", self.most, f"at most {known}: no number holds more rows of a person")

    def known_rows(self, rows: int) -> int:
        """Largest known number of a person's rows, if `rows` count."""
        # Of a person with any rows at least so many count.
        counted = min(rows, self.per_window or rows) if self.keys is None else 1
        return MOST_DROPPED * rows + counted


#: The unit of privacy of a table: its column, the rows of it that count (in each ``per``), and ``per_window``.
Unit = Rows | Person
ONE_ROW = Rows()


# Times as instants: int64 microseconds since 1970-01-01, in UTC if there is a zone, else by the local clock.

EPOCH = datetime(1970, 1, 1)
AWARE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A Monday, so that windows of a week begin on one.
MONDAY = datetime(1970, 1, 5)
#: The first and last microsecond that a datetime can hold in every zone.
FIRST, LAST = -62_135_510_400_000_000, 253_402_214_400_000_000
#: Zones without a name; those with GMT are Java's.
OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)")


def zone_name(name: str | None) -> str | None:
    """Arrow's name of a zone; "UTC" for all equal to it."""
    zone, fixed = zone_of(name), OFFSET.fullmatch(str(name))
    if zone is not None and zone.utcoffset(None) == timedelta():
        return "UTC"
    return "{}{}:{}".format(*fixed.groups()) if fixed else name


@lru_cache(maxsize=64)
def zone_of(name: str | None) -> tzinfo | None:
    """Zone with this name, or None; else ParameterError."""
    if name is None:
        return None
    fixed = OFFSET.fullmatch(str(name))
    try:
        if fixed:
            offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3]))
            return timezone(-offset if fixed[1] == "-" else offset)
        return ZoneInfo(name)
    except Exception:  # a wrong name, or no database of zones
        raise ParameterError(
            f"zone = {validation.shown(name)}: expected the name of a time zone, such as 'Europe/Paris' or 'UTC'"
            " (on Windows the package tzdata has them)",
            parameter="zone",
        ) from None


def origin_of(length: str) -> datetime:
    """Default beginning of spans: 1970-01-01, or the Monday after for weeks."""
    return MONDAY if length.endswith("w") else EPOCH


def instant(local: datetime, zone: tzinfo | None) -> int:
    """Microseconds of a clock time, the first of two; a skipped one moves forward."""
    if zone is None:
        return (local - EPOCH) // MICROSECOND
    return (local.replace(tzinfo=zone, fold=0) - AWARE_EPOCH) // MICROSECOND


def local_time(moment: int, zone: tzinfo | None) -> datetime:
    """Clock time in `zone` at `moment`, in microseconds."""
    shown = AWARE_EPOCH + timedelta(microseconds=moment)
    return shown.replace(tzinfo=None) if zone is None else shown.astimezone(zone).replace(tzinfo=None)


class Period(NamedTuple):
    """Consecutive spans of time, one of which has a unit's rows."""

    #: Unit of the length; months begin on their first day, days at midnight.
    measure: Literal["months", "days", "microseconds"]
    #: Length of one span.
    length: int
    #: Offset of a span's start: a month since year 0, an ordinal day or an instant.
    begin: int
    #: Of midnight.
    time_zone: str | None

    def is_within(self, longer: Period) -> bool:
        if self.time_zone != longer.time_zone:
            return False
        if self.measure == longer.measure:
            return longer.length % self.length == 0 and (longer.begin - self.begin) % self.length == 0
        return longer.measure == "months" and self.measure == "days" and self.length == 1

    @classmethod
    def of(cls, length: str, time_zone: str | None) -> Self:
        _, fixed, months, days = parse_length("per", length)
        origin = origin_of(length)
        if fixed:
            return cls("microseconds", fixed, instant(origin, zone_of(time_zone)) % fixed, time_zone)
        if days:
            return cls("days", days, origin.toordinal() % days, time_zone)
        return cls("months", months, (origin.year * 12 + origin.month - 1) % months, time_zone)

    def edge(self, number: int) -> int:
        position, zone = self.begin + number * self.length, zone_of(self.time_zone)
        if self.measure == "microseconds":
            return position
        try:
            year, month = divmod(position, 12)
            local = datetime.fromordinal(position) if self.measure == "days" else datetime(year, month + 1, 1)
            return instant(local, zone)
        except (OverflowError, ValueError):
            return LAST + 1 if position > 0 else FIRST

    def number(self, moment: int) -> int:
        if self.measure == "microseconds":
            return (moment - self.begin) // self.length
        shown = local_time(moment, zone_of(self.time_zone))
        position = shown.toordinal() if self.measure == "days" else shown.year * 12 + shown.month - 1
        number = (position - self.begin) // self.length
        # A clock that is put back over midnight shows the day before again.
        while self.edge(number) > moment:
            number -= 1
        while self.edge(number + 1) <= moment:
            number += 1
        return number

    @property
    def size(self) -> int:
        return self.length * {"months": 30 * DAY, "days": DAY, "microseconds": 1}[self.measure]

    def between(self, start: int, stop: int) -> int | None:
        """Number of spans in [start, stop); None if one is cut."""
        first, last = self.number(start), self.number(stop)
        return last - first if (self.edge(first), self.edge(last)) == (start, stop) else None


class Times(NamedTuple):
    """Public instants [start, stop) of a column; other rows do not change a release."""

    #: The column of times.
    column: str
    #: Of the windows.
    time_zone: str | None
    #: `start`, `stop`: Microseconds since 1970-01-01, in UTC, or of the local clock without a zone.
    start: int
    stop: int

    def __str__(self) -> str:
        first, last = (shown_time(moment, self.time_zone) for moment in self[2:])
        return f"{self.column!r} from {first} to {last}"

    @classmethod
    def read(cls, said: Any) -> Self | None:
        if said is None:
            return None
        column, zone, start, stop = said
        if not (isinstance(column, str) and _is_text(zone) and type(start) is type(stop) is int):
            raise ValueError("no times")
        if not FIRST <= start < stop <= LAST + 1:
            raise ValueError("no times")
        return cls(column, zone, start, stop)


def shown_time(moment: int, time_zone: str | None) -> str:
    """ISO text of an instant, a date at midnight."""
    local = local_time(moment, zone_of(time_zone))
    return local.isoformat().removesuffix("T00:00:00")


class UnitRows(NamedTuple):
    """Rows that one unit adds or removes."""

    #: Column of persons, all of whose rows are the unit; None for up to `most` rows of anyone.
    who: str | None = None
    #: Number of rows; 1 together with `who`.
    most: int = 1
    #: The rows lie in one of these spans.
    period: Period | None = None

    def times(self, weaker: UnitRows) -> int | None:
        """Number of changes of this unit that cover one of `weaker`, or None."""
        if self == weaker:
            return 1
        one_row = weaker.who is None and weaker.most == 1
        # One row lies in one period of any length.
        apart = weaker.period is None or (self.period is not None and not weaker.period.is_within(self.period))
        if self.period is not None and apart and not one_row:
            return None
        if self.who is not None:
            return 2 if one_row or weaker.who == self.who else None
        return 1 if weaker.who is None and weaker.most <= self.most else None

    def keeps(self, times: Times) -> bool:
        """True if no unit lies both inside and outside these times."""
        if self.period is None:
            return self.who is None and self.most == 1
        return self.period.between(times.start, times.stop) is not None

    def __str__(self) -> str:
        who = "rows" if self.who is None else f"column {self.who!r}"
        if self.period is None:
            return who
        measure, length, begin, zone = self.period
        return f"{who}, periods of {length} {measure} from {begin} on, {zone or 'no zone'}"

    @classmethod
    def read(cls, said: Any) -> Self | None:
        if said is None:
            return None
        who, most, period = said
        if period is not None:
            measure, length, begin, zone = period
            period = Period(measure, length, begin, zone)
            valid = type(length) is type(begin) is int and 0 <= begin < length
            if not (measure in ("months", "days", "microseconds") and valid and _is_text(zone)):
                raise ValueError("no period")
        if not (_is_text(who) and type(most) is int and most > 0):
            raise ValueError("no unit of rows")
        return cls(who, most, period)


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


# Names of streams and tables: one text for all its spellings, as a key and a ledger compare them.

LONGEST_NAME = 200
NAME = Text(LONGEST_NAME)


def normal_name(field: str, value: object) -> str:
    """Name in normal form C; ParameterError for invisible characters."""
    name = unicodedata.normalize("NFC", NAME.check(field, value))
    if not name.isprintable() or name != name.strip() or len(name) > LONGEST_NAME:
        wanted = "expected printable characters, without a blank at either end"
        raise ParameterError(f"{field} = {validation.shown(value)}: {wanted}")
    for at, character in enumerate(name):
        if ord(character) in UNSEEN:
            code_point = f"U+{ord(character):04X} at {at}"
            raise refusal(field, name, f"characters that can be seen, got {code_point}")
    return name


#: Characters that Python calls printable and displays leave out: of Default_Ignorable_Code_Point of Unicode 15.1, and
#: braille without dots, hieroglyph blanks, a filler, a null note head.
UNSEEN = frozenset(
    chain(
        *(range(0x34F, 0x350), range(0x115F, 0x1161), range(0x17B4, 0x17B6), range(0x180B, 0x1810)),
        *(range(0x2800, 0x2801), range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFFA0, 0xFFA1)),
        *(range(0x13441, 0x13443), range(0x16FE4, 0x16FE5), range(0x1D159, 0x1D15A), range(0xE0100, 0xE01F0)),
    )
)
