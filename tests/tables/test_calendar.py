"""Borders, numbers and clock times against datetime and zoneinfo; noise follows from a zone's clock, not its name."""

from __future__ import annotations

import importlib.resources
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp.data import calendar
from fastdp.data.calendar import Calendar, as_instant, localised, zone_rules
from fastdp.errors import ParameterError
from fastdp.units import FIRST, LAST, local_time, parse_length, zone_of
from tests.oracles import tables
from tests.tables import flat
from tests.tables.rows import FAMILIES, as_family
from tests.tables.zones import ROWS, released
from tests.tables.zones import ZONES as NAMED

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [
    "Europe/Paris",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Africa/Monrovia",
]
EVERY = st.sampled_from(["1d", "3d", "1w", "1mo", "5mo", "1y", "90s", "7h"])
CHANGES = [("Europe/Paris", "2024-03-31"), ("Europe/Paris", "2024-10-27"), ("Australia/Lord_Howe", "2024-04-07")]
#: The clock skips from 23:30 to 0:30; skips midnight; is put back over it; skips a day.
MIDNIGHTS = [
    ("America/Toronto", "1919-03-30"),
    ("America/Sao_Paulo", "2017-10-14"),
    ("America/Sao_Paulo", "2018-02-17"),
    ("Pacific/Apia", "2011-12-29"),
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


@pytest.mark.parametrize(
    ("every", "period"),
    [("3h", "5h"), ("2h", "5h"), ("6h", "4h"), ("1h", "12h"), ("7h", "1h"), ("1d", "1mo"), ("1w", "1mo")],
)
def test_most_windows_of_a_period_are_those_of_the_worst_one(every: str, period: str) -> None:
    windows, periods = Calendar(every), Calendar(period)
    edges = [periods.edge(number) for number in range(100)]
    worst = max(windows.number(end - 1) - windows.number(begin) + 1 for begin, end in pairwise(edges))
    assert calendar.most_spans(every, period, None, None, 0) == worst


@pytest.mark.parametrize(("name", "day"), CHANGES)
def test_every_minute_of_a_change(name: str, day: str) -> None:
    zone, begin = ZoneInfo(name), datetime.fromisoformat(day) - timedelta(hours=2)
    clocks = [begin + timedelta(minutes=i) for i in range(28 * 60)]
    wanted = [(clock.replace(tzinfo=zone) - EPOCH) // timedelta(microseconds=1) for clock in clocks]
    assert localised(np.array(clocks, "datetime64[us]").astype(np.int64), zone).tolist() == wanted


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


# Noise.

IN_2024 = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 10**6
IN_1930 = int(datetime(1930, 1, 1, tzinfo=UTC).timestamp()) * 10**6


@pytest.mark.parametrize("family", [each for each in FAMILIES if each != "reader"])
def test_every_family_draws_the_same(family: str, tmp_path: Path) -> None:
    found = {zone: released(as_family(ROWS, family, tmp_path), zone) for zone in NAMED}
    assert found["UTC"] == found["Etc/UTC"] != found["Europe/Berlin"]
    # Times without a zone are taken as they stand; the table says that there is none.
    assert found[None] == found["UTC"].replace(b"UTC", b"None", 1)
    assert found == {zone: released(as_family(ROWS, "pandas", tmp_path), zone) for zone in NAMED}
    if family in ("pandas", "polars", "pyarrow", "parquet"):
        # The zone of a column counts as one that is named.
        for zone in filter(None, NAMED):
            aware = [(row[0].replace(tzinfo=ZoneInfo(zone)), *row[1:]) for row in ROWS]
            assert released(as_family(aware, family, tmp_path), None) == found[zone]


@pytest.mark.parametrize(
    "names",
    [
        ("UTC", "Zulu", "Etc/UCT", "Etc/GMT", "GMT", "Greenwich", "+00:00", "-00:00", "UTC+00:00", "GMT+00:00"),
        ("+02:00", "UTC+02:00", "GMT+0200"),
        ("Europe/London", "Europe/Belfast", "GB"),
        ("America/New_York", "US/Eastern"),
    ],
)
def test_names_of_one_zone(names: tuple[str, ...], tmp_path: Path) -> None:
    table = as_family(ROWS, "pyarrow", tmp_path)
    found = {
        flat.counts(table, "at", "1h", epsilon=1.0, key=bytes(32), zone=name).released.cells("count").tobytes()
        for name in names
    }
    assert len(found) == 1
    if "UTC" in names:
        assert {Calendar("1h", name).time_zone for name in names} == {"UTC"}


SOME = ("Europe/Berlin", "Europe/Paris", "Europe/London", "Africa/Lagos", "Africa/Abidjan", "Asia/Tokyo", "UTC")


@pytest.mark.parametrize(("begin", "years"), [(IN_2024, (2024, 2030)), (IN_1930, (1930, 1960))])
def test_zones_share_noise_exactly_where_they_share_windows(begin: int, years: tuple[int, int]) -> None:
    def days(name: str) -> tuple[int, ...]:
        return tuple(
            Calendar("1d", name).edge((datetime(y, 7, 1) - datetime(1970, 1, 1)).days) for y in range(*years)
        )

    for one in SOME:
        for other in SOME:
            same = zone_rules(zone_of(one), begin) == zone_rules(zone_of(other), begin)
            # Summers differ by an hour wherever these zones do.
            assert not same or days(one) == days(other)
    assert (zone_rules(zone_of("Europe/Berlin"), begin) == zone_rules(zone_of("Europe/Paris"), begin)) is (
        begin == IN_2024
    )
    assert zone_rules(zone_of("Africa/Abidjan"), IN_2024) is zone_rules(None, None) is None
    assert zone_rules(zone_of("Europe/Berlin"), IN_2024) == tables.rules("Europe/Berlin", IN_2024)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Callable[[str, bytes], str]]:
    def clear() -> None:
        ZoneInfo.clear_cache()
        for cached in (calendar.zone_of, calendar.zone_rules, calendar._changes):
            cached.cache_clear()

    def put(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        clear()
        return name

    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(tmp_path)])
    yield put
    zoneinfo.reset_tzpath(before)
    clear()


def packaged(name: str) -> bytes:
    pytest.importorskip("tzdata")
    return importlib.resources.files("tzdata.zoneinfo").joinpath(name).read_bytes()


def test_zones_are_equal_by_their_rules_in_any_database(database: Callable[[str, bytes], str]) -> None:
    """A release may change them; builds have history apart or in links, and files that are long or short."""
    berlin = zone_rules(zone_of("Europe/Berlin"), IN_2024)
    assert zone_rules(zone_of(database("Town", packaged("Europe/Berlin"))), IN_2024) == berlin
    assert zone_rules(zone_of(database("Town", packaged("Africa/Lagos"))), IN_2024) != berlin
    for name in ("Europe/Berlin", "Europe/Amsterdam", "Asia/Tokyo"):
        system = Path("/usr/share/zoneinfo", name)
        if system.exists():
            builds = (packaged(name), system.read_bytes())
            assert len({zone_rules(zone_of(database("Town", data)), IN_2024) for data in builds}) == 1


def test_parameters_of_a_ledger_name_the_zone() -> None:
    plan = flat.windows("1h", 1.0, "2024-01-01", counts=True, zone="Europe/Berlin", seed=1).machine.plan
    assert plan.describe()["time_zone"] == "Europe/Berlin"
    assert plan.identity() == replace(plan, calendar=Calendar("1h", "Arctic/Longyearbyen")).identity()
