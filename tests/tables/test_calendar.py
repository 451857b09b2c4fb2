"""Borders, numbers and clock times against datetime and zoneinfo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp.errors import ParameterError
from fastdp.tables.calendar import Calendar, as_instant, localised
from fastdp.units import FIRST, LAST, local_time, parse_length, zone_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [
    "Europe/Paris",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Africa/Monrovia",
]


@given(
    st.sampled_from(ZONES),
    st.lists(st.datetimes(datetime(1965, 1, 1), datetime(2040, 1, 1)), min_size=1, max_size=20),
)
def test_clock_times_are_the_first_of_two_and_move_forward(name: str, clocks: list[datetime]) -> None:
    zone = ZoneInfo(name)
    wanted = [(clock.replace(tzinfo=zone) - EPOCH) // timedelta(microseconds=1) for clock in clocks]
    given_clocks = np.array([(c - datetime(1970, 1, 1)) // timedelta(microseconds=1) for c in clocks])
    assert localised(given_clocks, zone).tolist() == wanted


EVERY = st.sampled_from(["1d", "3d", "1w", "1mo", "5mo", "1y", "90s", "7h"])
CHANGES = [("Europe/Paris", "2024-03-31"), ("Europe/Paris", "2024-10-27"), ("Australia/Lord_Howe", "2024-04-07")]


@pytest.mark.parametrize(("name", "day"), CHANGES)
def test_every_minute_of_a_change(name: str, day: str) -> None:
    zone, begin = ZoneInfo(name), datetime.fromisoformat(day) - timedelta(hours=2)
    clocks = [begin + timedelta(minutes=i) for i in range(28 * 60)]
    wanted = [(clock.replace(tzinfo=zone) - EPOCH) // timedelta(microseconds=1) for clock in clocks]
    assert localised(np.array(clocks, "datetime64[us]").astype(np.int64), zone).tolist() == wanted


#: The clock skips from 23:30 to 0:30; skips midnight; is put back over it; skips a day.
MIDNIGHTS = [
    ("America/Toronto", "1919-03-30"),
    ("America/Sao_Paulo", "2017-10-14"),
    ("America/Sao_Paulo", "2018-02-17"),
    ("Pacific/Apia", "2011-12-29"),
]


@pytest.mark.parametrize("every", ["1d", "1w", "1mo"])
@pytest.mark.parametrize(("name", "day"), MIDNIGHTS)
def test_days_around_a_midnight_that_the_clock_shows_twice_or_not(name: str, day: str, every: str) -> None:
    calendar = Calendar(every, name)
    begin = calendar.number(as_instant("day", f"{day}T12:00", ZoneInfo(name)))
    moments = as_instant("day", f"{day}T12:00", ZoneInfo(name)) + 60_000_000 * np.arange(0, 60 * 24, 5)
    numbers = [calendar.number(moment) for moment in moments.tolist()]
    assert calendar.numbers(moments).tolist() == numbers
    assert all(calendar.edge(n) <= m < calendar.edge(n + 1) for n, m in zip(numbers, moments.tolist(), strict=True))
    assert set(numbers) <= {begin, begin + 1, begin + 2}


def test_days_of_23_and_25_hours() -> None:
    calendar, hour = Calendar("1d", "Europe/Paris"), 3_600_000_000
    for day, hours in (("2024-03-31", 23), ("2024-10-27", 25), ("2024-06-01", 24)):
        number = calendar.border("start", day)
        assert calendar.edge(number + 1) - calendar.edge(number) == hours * hour


@given(EVERY, st.sampled_from([None, *ZONES]), st.integers(-5 * 10**14, 2 * 10**15))
def test_numbers_and_edges_agree(every: str, zone: str | None, moment: int) -> None:
    calendar = Calendar(every, zone)
    number = calendar.number(moment)
    assert calendar.edge(number) <= moment < calendar.edge(number + 1)
    assert calendar.numbers(np.array([moment])).tolist() == [number]
    assert calendar.edges(number, number + 2).tolist() == [calendar.edge(number + i) for i in range(3)]


def test_weeks_begin_on_monday() -> None:
    calendar = Calendar("1w", "Asia/Kolkata")
    assert (
        local_time(calendar.edge(calendar.border("start", "2024-05-06")), calendar.zone).strftime("%a %H") == "Mon 00"
    )
    with pytest.raises(ParameterError, match="such as 2024-05-06T00:00:00 or 2024-05-13T00:00:00"):
        calendar.border("start", "2024-05-07")


def test_lengths() -> None:
    assert parse_length("every", timedelta(minutes=90)) == ("90min", 5_400_000_000, 0, 0)
    assert parse_length("every", "h")[:2] == ("1h", 3_600_000_000)
    assert parse_length("every", "2w")[2:] == (0, 14)
    assert parse_length("every", "1.5h") == ("90min", 5_400_000_000, 0, 0)
    for wrong in ("", "1", "1m", "0h", "-1h", "1M", 3600, None, timedelta(0), "99999999999999y", "999999999999h"):
        with pytest.raises(ParameterError, match="expected a length such as '15min'"):
            parse_length("every", wrong)


@pytest.mark.parametrize(
    ("value", "zone", "wanted"),
    [
        ("1970-01-02", None, 86_400_000_000),
        (datetime(1970, 1, 1, 1), "Europe/Paris", 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=-2))), "Europe/Paris", 10_800_000_000),
        (np.datetime64("1970-01-01T00:00:01"), None, 1_000_000),
        ("1970-01-01T00:00:00Z", "+02:00", 0),
        (datetime(1970, 1, 1).date(), "+02:00", -7_200_000_000),
    ],
)
def test_public_points_in_time(value: Any, zone: str | None, wanted: int) -> None:
    assert as_instant("start", value, zone_of(zone)) == wanted


def test_wrong_points_and_zones() -> None:
    for wrong in ("yesterday", 3, None, np.datetime64("NaT")):
        with pytest.raises(ParameterError, match="expected a datetime, a date or ISO text"):
            as_instant("start", wrong, None)
    with pytest.raises(ParameterError, match="expected a time without a zone"):
        as_instant("start", "1970-01-01T00:00:00Z", None)
    for wrong in ("Mars/Olympus", "../etc/passwd", 3, ""):
        with pytest.raises(ParameterError, match="expected the name of a time zone"):
            zone_of(wrong)  # type: ignore[arg-type]
    for every, origin in (("1mo", "2024-01-02"), ("1d", "2024-01-02T01:00")):
        with pytest.raises(ParameterError, match="origin = "):
            Calendar(every, None, origin)


def test_borders_at_the_end_of_all_calendars() -> None:
    calendar = Calendar("1000y")
    assert calendar.edge(100) == calendar.edge(101) > calendar.edge(8) > calendar.edge(0)
    assert calendar.edge(-100) < calendar.edge(0)


@pytest.mark.parametrize("every", ["1d", "1w", "1mo", "1y"])
@pytest.mark.parametrize("zone", [None, "Etc/GMT+12", "Pacific/Kiritimati"])
def test_the_first_and_last_times_that_a_calendar_has_lie_in_a_window(every: str, zone: str | None) -> None:
    calendar = Calendar(every, zone)
    for moment in (FIRST, FIRST + 1, LAST - 1, LAST):
        number = int(calendar.numbers(np.array([moment]))[0])
        assert calendar.number(moment) == number
        assert calendar.edge(number) <= moment < calendar.edge(number + 1)
