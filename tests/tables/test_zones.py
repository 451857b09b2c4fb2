"""Noise follows from what a zone's clock shows from the first window on: not from its name, nor from who knows it."""

from __future__ import annotations

import importlib.resources
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fastdp.tables import calendar
from fastdp.tables.calendar import Calendar, zone_rules
from fastdp.units import zone_of
from tests.oracles import tables
from tests.tables import flat
from tests.tables.rows import FAMILIES, as_family
from tests.tables.zones import ROWS, ZONES, released

IN_2024 = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 10**6
IN_1930 = int(datetime(1930, 1, 1, tzinfo=UTC).timestamp()) * 10**6


@pytest.mark.parametrize("family", [each for each in FAMILIES if each != "reader"])
def test_every_family_draws_the_same(family: str, tmp_path: Path) -> None:
    def in_zone(zone: str | None, made: str = family) -> bytes:
        return released(as_family(ROWS, made, tmp_path), zone)

    found = {zone: in_zone(zone) for zone in ZONES}
    assert found["UTC"] == found["Etc/UTC"] != found["Europe/Berlin"]
    # Times without a zone are taken as they stand; the table says that there is none.
    assert found[None] == found["UTC"].replace(b"UTC", b"None", 1)
    assert found == {zone: in_zone(zone, "pandas") for zone in ZONES}


@pytest.mark.parametrize("family", ["pandas", "polars", "pyarrow", "parquet"])
def test_the_zone_of_a_column_counts_as_one_that_is_named(family: str, tmp_path: Path) -> None:
    for zone in filter(None, ZONES):
        aware = [(row[0].replace(tzinfo=ZoneInfo(zone)), *row[1:]) for row in ROWS]
        found = released(as_family(aware, family, tmp_path), None)
        assert found == released(as_family(ROWS, family, tmp_path), zone)


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
    """Puts a zone under a name into a database of its own, which is the only one until the test ends."""

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


def test_a_zone_whose_rules_were_changed_has_other_noise(database: Callable[[str, bytes], str]) -> None:
    """As a release of the database does; a copy under another name, as a build without links has it, is the same."""
    berlin = zone_rules(zone_of("Europe/Berlin"), IN_2024)
    assert zone_rules(zone_of(database("Town", packaged("Europe/Berlin"))), IN_2024) == berlin
    assert zone_rules(zone_of(database("Town", packaged("Africa/Lagos"))), IN_2024) != berlin


@pytest.mark.parametrize("name", ["Europe/Berlin", "Europe/Amsterdam", "Europe/Stockholm", "Asia/Tokyo"])
def test_two_builds_of_the_database(name: str, database: Callable[[str, bytes], str]) -> None:
    """One has history apart that the other has in links; files are long in one and short in the other."""
    system = Path("/usr/share/zoneinfo", name)
    if not system.exists():
        pytest.skip("this machine has no database of its own")
    found = {zone_rules(zone_of(database("Town", data)), IN_2024) for data in (packaged(name), system.read_bytes())}
    assert len(found) == 1


def test_parameters_of_a_ledger_name_the_zone() -> None:
    plan = flat.windows("1h", 1.0, "2024-01-01", counts=True, zone="Europe/Berlin", seed=1).machine.plan
    assert plan.describe()["time_zone"] == "Europe/Berlin"
    assert plan.identity() == replace(plan, calendar=Calendar("1h", "Arctic/Longyearbyen")).identity()
