"""Windows and periods: numbered half-open spans, by public parameters alone.

Times are int64 microseconds since 1970-01-01, in UTC with a zone, else by the local clock.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from fastdp.errors import ParameterError, argument
from fastdp.kinds import Duration, Instant, Integers
from fastdp.record import Checked, Choice, Kind, Text, parameter, record
from fastdp.units import (
    AWARE_EPOCH,
    EPOCH,
    FIRST,
    LAST,
    MICROSECOND,
    Period,
    as_length,
    as_name,
    instant,
    local_time,
    origin_of,
    parse_length,
    zone_name,
    zone_of,
)
from fastdp.validation import DAY, refusal

#: The years in which a zone is compared with another, unless windows begin later; no zone changed its clock before.
COMPARED = 1800, 2100
#: So many days are compared at least: weekdays and dates fall together in every way.
LONG_DAYS = 28 * 366
#: Handling of rows without a time or person.
Missing = Literal["raise", "drop"]
#: Instants, and the zone of clock times without one.
Clock: TypeAlias = tuple[Integers, tzinfo | None]
#: Units of Unix times.
TimeUnit = Literal["s", "ms", "us", "ns"]
POINTS = (str, date, np.datetime64)
MOMENT = "a datetime, a date or ISO text such as '2024-03-31T01:00'"


@dataclass(frozen=True)
class Moment(Kind):
    """A public point in time, in a zone known later."""

    def check(self, name: str, value: object) -> object:
        if not isinstance(value, POINTS):
            raise refusal(name, value, MOMENT)
        return value


#: Directives that Python's strptime has not, in those that it has.
_DIRECTIVES = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%h": "%b", "%e": "%d"}
#: No field is the least one.
_PROBE = datetime(2003, 11, 23, 17, 34, 56, 7, timezone(timedelta(hours=2)))


def python_format(form: str) -> str:
    """A format in Python's directives."""
    for directive, plain in _DIRECTIVES.items():
        form = form.replace(directive, plain)
    return form


def _says_a_time(form: str, zone: str | None) -> bool:
    # Reads what it writes: the date, and the hour if there is one.
    plain = python_format(form)
    try:
        read = datetime.strptime(_PROBE.strftime(plain), plain)
        same = read.replace(tzinfo=_PROBE.tzinfo).strftime(plain) == _PROBE.strftime(plain)
    except ValueError:
        return False
    # Beside a zone, a Z that is no directive would be passed over.
    return same and read.year == _PROBE.year and read.hour in (0, _PROBE.hour) and not (zone and form.endswith("Z"))


@record
class Time:
    """The times of a table: their column and windows.

    Parameters
    ----------
    column : str
        The column of times: dates, or datetimes of one time zone or none.
    every : str or timedelta
        Length of the half-open windows: "90s", "15min", "1h" are counted from ``origin``; "1d", "1w" (from Monday),
        "1mo", "1y" run from local midnight to local midnight.
    start, stop : datetime, date or ISO text, optional
        Public begin of the first window and end of the last; rows outside are dropped.  By default those of the
        table's rows, which are then public, as the guarantee says.
    origin : datetime, date or ISO text, optional
        Begin of any window; by default midnight of 1970-01-01 in the zone.
    zone : str, optional
        Zone of the windows; by default the time column's.  Times without a zone are its clock times: the first of
        two, moved forward if skipped.
    missing : "raise" or "drop"
        Treatment of rows without a time or person.
    unit : "s", "ms", "us" or "ns", optional
        Of Unix times, in UTC.
    format : str, optional
        Format for ``strptime`` of texts, or of integers such as 19970101 ("%Y%m%d"); ISO texts need none.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Time("at", "1h", start="2024-05-01", zone="Europe/Paris").every
    '1h'
    """

    column: str = parameter(Checked(as_name))
    every: Duration = parameter(Checked(as_length))
    start: Instant | None = parameter(Moment(optional=True), default=None)
    stop: Instant | None = parameter(Moment(optional=True), default=None)
    origin: Instant | None = parameter(Moment(optional=True), default=None)
    zone: str | None = parameter(Kind(optional=True), default=None)
    missing: Missing = parameter(Choice(("raise", "drop")), default="raise")
    unit: TimeUnit | None = parameter(Choice(("s", "ms", "us", "ns"), optional=True), default=None)
    format: str | None = parameter(Text(optional=True), default=None)

    def _check(self) -> None:
        if self.unit is not None and self.format is not None:
            raise refusal("format", self.format, f"None, because unit = {self.unit!r} is given")
        if self.format is not None and not _says_a_time(self.format, self.zone):
            accepted = (
                "one of Python's strptime with a year, %p beside %I, and %z for an offset or a final Z (%Z is a "
                f"name; seconds since 1970: {argument('Time', unit='s')})"
            )
            raise refusal("format", self.format, accepted)


def localised(clock: Integers, zone: tzinfo) -> Integers:
    """Instants of clock times, int64[n], by the offset before a clock change."""
    if not clock.size:
        return clock
    changes, offsets = _changes(int(clock.min()) // DAY, int(clock.max()) // DAY, zone)
    return clock - offsets[np.searchsorted(changes, clock, side="right")]


@lru_cache(maxsize=64)
def _changes(first_day: int, last_day: int, zone: tzinfo) -> tuple[Integers, Integers]:
    """Changes of the offset by clock, int64[c], and offsets between, int64[c + 1]."""
    # A zone changes its clock at most once in a day or so.
    first, end = max(first_day - 2, FIRST // DAY), min(last_day + 3, LAST // DAY) + 1
    days = [EPOCH + timedelta(day) for day in range(first, end)]
    shown = [zone.utcoffset(day) or timedelta() for day in days]
    changes, offsets = [], shown[:1]
    for low, before, after in zip(days, shown, shown[1:], strict=False):
        if before == after:
            continue
        high = low + timedelta(1)
        while high - low > MICROSECOND:
            middle = low + (high - low) // 2
            low, high = (middle, high) if zone.utcoffset(middle) == before else (low, middle)
        changes.append(high - EPOCH)
        offsets.append(after)
    found = [np.array([each // MICROSECOND for each in times], np.int64) for times in (changes, offsets)]
    for array in found:
        array.flags.writeable = False
    return found[0], found[1]


@lru_cache(maxsize=64)
def zone_rules(zone: tzinfo | None, begin: int | None) -> bytes | None:
    """Digest of a zone's clock from a window's begin on; None if it equals UTC.

    Zones with the same clock have equal digests.
    """
    if zone is None or zone.utcoffset(None) == timedelta():
        return None
    years = [(datetime(year, 1, 1) - EPOCH).days for year in COMPARED]
    first = years[0] if begin is None else begin // DAY
    changes, offsets = _changes(first, max(years[1], first + LONG_DAYS), zone)
    if not offsets.any():
        return None
    return hashlib.sha256(changes.astype("<i8").tobytes() + offsets.astype("<i8").tobytes()).digest()


def as_instant(name: str, value: object, zone: tzinfo | None) -> int:
    """Microseconds of a public point in time; else ParameterError."""
    given = value
    try:
        if isinstance(value, np.datetime64):
            given = value.astype("datetime64[us]").item()
        elif isinstance(value, str):
            given = datetime.fromisoformat(value)
        if isinstance(given, datetime):
            found = datetime(*given.timetuple()[:6], given.microsecond, given.tzinfo)
        elif isinstance(given, date):
            found = datetime(given.year, given.month, given.day)
        else:
            raise TypeError
    except (TypeError, ValueError):
        raise refusal(name, value, MOMENT) from None
    if found.tzinfo is None:
        return instant(found, zone)
    if zone is None:
        raise refusal(
            name, value, f"a time without a zone, because the table's times have none (or {argument(zone=...)})"
        )
    return (found - AWARE_EPOCH) // MICROSECOND


def as_instants(name: str, values: Any, clock: Callable[[], Clock | None]) -> Integers | None:
    """Microseconds of public points in time, int64[q]; None if `values` are others.

    ``clock`` gives times and their zone; without times ParameterError.
    """
    one = isinstance(values, POINTS)
    try:
        given = [values] if one else values if getattr(values, "dtype", None) != np.int64 else []
        if not isinstance(next(iter(given), None), POINTS):
            return None
    except TypeError:
        return None
    if (found := clock()) is None:
        raise ParameterError(f"{name}: expected whole numbers, because there are no times", parameter=name)
    if one:
        return np.array([as_instant(name, values, found[1])])
    instants = np.empty(len(given), np.int64)
    for i, each in enumerate(given):
        try:
            instants[i] = as_instant(name, each, found[1])
        except ParameterError:
            # A column that is given by mistake is not shown.
            wanted = f"{MOMENT}; with a zone, or none, as the times have"
            raise ParameterError(f"{name}[{i}]: expected {wanted}", parameter=name) from None
    return instants


#: Days that :func:`most_spans` examines: a full cycle of the calendar.
_CYCLE = 400 * 366


@lru_cache(maxsize=64)
def most_spans(every: str, period: str, time_zone: str | None, origin: Instant | None, begin: int) -> int:
    """Most windows that a period overlaps."""
    windows, periods = Calendar(every, time_zone, origin), Calendar(period, time_zone, origin, "period")
    if windows.fixed and periods.fixed:
        step = math.gcd(windows.fixed, periods.fixed)
        return (windows.fixed + periods.fixed - step - 1) // windows.fixed + 1
    first, last = periods.number(begin), periods.number(min(begin + _CYCLE * DAY, LAST))
    edges = periods.edges(first, max(last, first + 1))
    return int((windows.numbers(edges[1:] - 1) - windows.numbers(edges[:-1])).max()) + 1


class Calendar:
    """Numbered half-open spans without gaps: span n is [edge(n), edge(n + 1)).

    Up to hours the length is fixed; longer spans run from local midnight to local midnight.  The origin begins a
    span; for calendar units it is a date, for months and years a first of a month.
    """

    def __init__(
        self, every: Duration, time_zone: str | None = None, origin: Instant | None = None, name: str = "every"
    ) -> None:
        self.every, self.fixed, months, self._days = parse_length(name, every)
        self.time_zone, self.zone = zone_name(time_zone), zone_of(time_zone)
        self.origin = origin
        self.period = Period.of(self.every, self.time_zone)
        begin = instant(origin_of(self.every), self.zone)
        if origin is not None:
            begin = as_instant("origin", origin, self.zone)
            shown = local_time(begin, self.zone)
            if self.fixed:
                self.period = self.period._replace(begin=begin % self.fixed)
            elif shown != datetime(shown.year, shown.month, shown.day) or (months and shown.day != 1):
                date_of = "the first day of a month" if months else "a date"
                raise refusal("origin", origin, f"{date_of} for {name} = {every!r}")
            else:
                place = shown.year * 12 + shown.month - 1 if months else shown.toordinal()
                self.period = self.period._replace(begin=place % self.period.length)
        #: Number of the period's span that is span 0 here.
        self._zero = self.period.number(begin)
        self._cache: tuple[int, Integers] = 0, np.empty(0, np.int64)

    def edge(self, number: int) -> int:
        """Begin of a span; LAST or FIRST beyond all dates."""
        return self.period.edge(self._zero + number)

    def number(self, moment: int) -> int:
        return self.period.number(moment) - self._zero

    def edges(self, first: int, last: int) -> Integers:
        numbers = np.arange(first, last + 1, dtype=np.int64)
        if self.fixed:
            return self.edge(0) + numbers * self.fixed
        if self._days:
            days = self.period.begin - EPOCH.toordinal() + (self._zero + numbers) * self._days
            if days[0] * DAY > FIRST and days[-1] * DAY < LAST:
                return days * DAY if self.zone is None else localised(days * DAY, self.zone)
        return np.array([self.edge(number) for number in numbers.tolist()], np.int64)

    def numbers(self, times: Integers) -> Integers:
        if self.fixed:
            return (times - self.edge(0)) // self.fixed
        if not times.size:
            return np.empty(0, np.int64)
        low, high = self.number(int(times.min())), self.number(int(times.max()))
        first, edges = self._cache
        if not (edges.size and first <= low and high <= first + edges.size - 2):
            first, edges = low, self.edges(low, high + 1)
            self._cache = first, edges
        return np.searchsorted(edges, times, side="right") - 1 + first

    def divides(self, longer: Calendar, begin: int) -> bool:
        """True if another calendar's spans begin with spans of this one."""
        if longer.fixed and not self.fixed:
            return False
        if longer.fixed:
            return longer.fixed % self.fixed == 0 == (longer.edge(0) - self.edge(0)) % self.fixed
        end = max((datetime(COMPARED[1], 1, 1) - EPOCH) // MICROSECOND, begin + LONG_DAYS * DAY)
        edges = longer.edges(longer.number(begin) + 1, longer.number(min(end, LAST)))
        if self.fixed:
            return not ((edges - self.edge(0)) % self.fixed).any()
        return bool(np.isin(edges, self.edges(self.number(begin), self.number(min(end, LAST)))).all())

    def border(self, name: str, value: Instant) -> int:
        moment = as_instant(name, value, self.zone)
        number = self.number(moment)
        if self.edge(number) != moment:
            near = " or ".join(local_time(self.edge(n), self.zone).isoformat() for n in (number, number + 1))
            begin = f"the beginning of a window of {self.every}, such as {near}"
            raise refusal(name, value, f"{begin} ({argument(origin=...)} moves them)")
        return number
