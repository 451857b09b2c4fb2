"""Totals, counts and means of every family of tables, equal to the oracle's integer by integer."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.noise.key import Key
from fastdp.tables.columns import Keys
from fastdp.tables.sums import CellRows, release
from tests.oracles import tables
from tests.tables import flat
from tests.tables.rows import FAMILIES, SECRET, as_family, below, column, composition, expected, random_rows

ROWS = random_rows(400, 1)
HOUR = 3_600_000_000
#: 2^-31 of a bound between 2 and 4.
STEP = 2.0**-31
#: A hundredth of epsilon says how many rows there are, one of the rest how many lie beyond the clip.
EPSILON = below(Fraction(99, 100) - Fraction(below(Fraction(99, 100) / 100)))
TOTAL = ("total", 0, 2 * 2**31 + 2**30, 0, STEP, STEP, EPSILON)


def borders(every: str, zone: str | None) -> tuple[int, int]:
    """Of windows 0 and 1, by trial."""
    origin = tables.instant(datetime(1970, 1, 5 if every.endswith("w") else 1), zone)
    low, high = origin, origin + 800 * 24 * HOUR
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tables.window(middle, every, zone) == 0 else (low, middle)
    return origin, high


def without_tail(of: Fraction) -> float:
    """Budget left by the share for rows beyond the clip."""
    return below(of - Fraction(below(of / 100)))


def whole_span(rows: list[tuple], every: str, zone: str | None) -> tuple[int, int]:
    numbers = [tables.window(tables.instant(row[0], zone), every, zone) for row in rows]
    return min(numbers), max(numbers) + 1


def instant_of(text: str) -> int:
    return tables.instant(datetime.fromisoformat(text), "Europe/Paris")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_oracles_integers(family: str, tmp_path: Path) -> None:
    begin, end = "2024-03-30", "2024-04-01"
    found = flat.totals(
        as_family(ROWS, family, tmp_path),
        *("kwh", "at", "1h"),
        by="meter",
        keys=["a", "c"],
        epsilon=1.0,
        clip=2.5,
        start=begin,
        stop=end,
        zone="Europe/Paris",
        key=SECRET,
    ).released
    first, last = (tables.window(instant_of(each), "1h", "Europe/Paris") for each in (begin, end))
    wanted = expected(
        ROWS,
        every="1h",
        borders=(-HOUR, 0),
        span=(first, last),
        zone="Europe/Paris",
        epsilon=1.0,
        keys=[("a",), ("c",)],
        statistics=[["sum", 0]],
        columns=[column(0.0, 2.5)],
        by=["meter"],
        key_rule="given",
        sums=[TOTAL],
        scales=[TOTAL[2] / Fraction(EPSILON)],
    )
    # The day on which the clock skips an hour.
    assert last - first == 47
    assert found.cells("total").tolist() == wanted["total"]
    assert flat.noise(found, "total").scale == TOTAL[2] / Fraction(EPSILON)
    assert (found.keys, found.every, found.time_zone) == ({"meter": ["a", "c"]}, "1h", "Europe/Paris")
    assert found.edges[[0, -1]].tolist() == [instant_of(begin), instant_of(end)]
    names = {"lazy": "polars", "pandas": "pandas", "polars": "polars", "duckdb": "duckdb"}
    assert found.family == names.get(family, "pyarrow")


@pytest.mark.parametrize(
    ("begin", "zone"),
    [
        ("2024-03-29", None),
        ("2024-03-29", "Europe/Paris"),
        ("2024-10-25", "Europe/Paris"),
        ("2018-11-02", "America/Sao_Paulo"),
        ("2018-02-16", "America/Sao_Paulo"),
        ("2024-04-05", "Australia/Lord_Howe"),
        ("2024-10-04", "Australia/Lord_Howe"),
        ("2024-02-27", "Asia/Kolkata"),
        ("2011-12-28", "Pacific/Apia"),
    ],
)
@pytest.mark.parametrize("every", ["90s", "15min", "2h", "1d", "2d", "1w", "1mo", "1y"])
def test_counts_in_every_zone_and_length(begin: str, zone: str | None, every: str) -> None:
    rows = random_rows(60, 7, begin)
    found = flat.counts(as_family(rows, "pyarrow", Path()), "at", every, epsilon=0.5, zone=zone, key=SECRET).released
    span = whole_span(rows, every, zone)
    edges, numbers = found.edges, range(*span)
    # Samoa skipped the 30th of December 2011: a window without length.
    for begin_at, end_at, number in zip(edges[:-1].tolist(), edges[1:].tolist(), numbers, strict=True):
        if begin_at < end_at:
            assert {tables.window(moment, every, zone) for moment in (begin_at, end_at - 1)} == {number}
    if len(numbers) < 500:
        exact = tables.exact_sums([(row[0], (), 1.0) for row in rows], every, zone, [()], *span, lambda _: 1)
        parameters = composition(every=[every, tables.rules(zone), *borders(every, zone)], epsilon=0.5, start=None)
        parameters["keys"] = bytes.fromhex("4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945")
        own = tables.words.bound(SECRET, "TablePlan", 2, parameters)
        (wanted,) = tables.noisy([exact], own, [("count", 0, 1, 0, 1.0, 1.0, 0.5)], span[0], [()], [Fraction(2)])
        assert found.cells("count").tolist() == wanted


def test_times_with_a_zone_are_converted(tmp_path: Path) -> None:
    from zoneinfo import ZoneInfo

    aware = [(row[0].replace(tzinfo=ZoneInfo("UTC")), *row[1:]) for row in ROWS]
    local = [(row[0].astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None), *row[1:]) for row in aware]
    wanted = flat.counts(as_family(local, "pandas", tmp_path), "at", "1d", epsilon=1.0, zone="Asia/Tokyo", seed=1)
    options: dict[str, Any] = {"epsilon": 1.0, "zone": "Asia/Tokyo", "seed": 1}
    for family in ("pandas", "polars", "pyarrow", "duckdb"):
        frame = as_family(aware, family, tmp_path)
        found = flat.counts(frame, "at", "1d", **options).released
        assert np.array_equal(found.cells("count"), wanted.released.cells("count"))
        assert np.array_equal(found.edges, wanted.released.edges)
    # By default the column's own zone.
    assert (
        flat.counts(as_family(aware, "polars", tmp_path), "at", "1d", epsilon=1.0, seed=1).released.time_zone == "UTC"
    )


@pytest.mark.parametrize("kind", ["totals", "means"])
def test_bounds_of_two_ends(kind: str) -> None:
    """Bounds below 0 are clips from both sides; deviations are from the middle."""
    call = getattr(fastdp, kind)
    found = call(
        as_family(ROWS, "pandas", Path()), "kwh", "at", "1d", epsilon=2.0, clip=(-1.0, 2.5), key=SECRET
    ).released
    low, high, left = -(2**31), 2**32 + 2**30, Fraction(2) * 99 / 100
    centre = (low + high) // 2 if kind == "means" else 0
    if kind == "means":
        own, rest = without_tail(left * 3 / 5), below(left * 2 / 5)
        sums = [("deviation", low, high, centre, STEP, STEP, own), ("count", 0, 1, 0, 1.0, 1.0, rest)]
        scales = [Fraction(high - centre) / Fraction(own), 1 / Fraction(rest)]
    else:
        own = without_tail(left)
        sums, scales = [("total", low, high, 0, STEP, STEP, own)], [high / Fraction(own)]
    wanted = expected(
        ROWS,
        every="1d",
        borders=(0, 24 * HOUR),
        span=whole_span(ROWS, "1d", None),
        zone=None,
        epsilon=2.0,
        statistics=[["mean" if kind == "means" else "sum", 0]],
        columns=[column(-1.0, 2.5)],
        sums=sums,
        scales=scales,
        start=False,
    )
    for name, steps in wanted.items():
        assert found.cells(name).tolist() == steps
    assert flat.clip(found) == (-1.0, 2.5)
    assert flat.centre(found) == centre * STEP


def test_several_key_columns(tmp_path: Path) -> None:
    """Combinations of lists, and tuples: the same keys give the same release."""
    frame = as_family(ROWS, "pandas", tmp_path)
    lists = {"meter": ["b", "a"], "person": [3, 1]}
    pairs = [("b", 3), ("b", 1), ("a", 3), ("a", 1)]
    options: dict[str, Any] = {"by": ["meter", "person"], "epsilon": 1000.0, "seed": 1}
    found = flat.counts(frame, "at", "1d", keys=lists, **options).released
    again = flat.counts(as_family(ROWS, "duckdb", tmp_path), "at", "1d", keys=pairs, **options).released
    wanted = [sum(row[1] == meter and row[3] == person for row in ROWS) for meter, person in pairs]
    assert found.cells("count").sum(axis=0).tolist() == wanted
    assert np.array_equal(found.cells("count"), again.cells("count"))
    assert found.keys == again.keys == {"meter": ["b", "b", "a", "a"], "person": [3, 1, 3, 1]}


def test_dictionaries_and_missing_keys() -> None:
    import polars as pl

    frame = pl.DataFrame({"at": [datetime(2024, 1, 1)] * 6, "meter": ["x", None, "y", "x", None, "z"]})
    coded = frame.with_columns(pl.col("meter").cast(pl.Categorical))
    for each in (frame, coded):
        found = flat.counts(each, "at", "1d", by="meter", keys=["y", None, "x"], epsilon=1000.0, seed=1).released
        assert found.cells("count").tolist() == [[1, 2, 2]]
        found = flat.counts(each, "at", "1d", by="meter", keys="public", epsilon=1000.0, seed=1).released
        assert found.keys == {"meter": ["x", "y", "z", None]}
        assert found.cells("count").tolist() == [[2, 1, 1, 2]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_of_time(unit: str) -> None:
    import pyarrow as pa

    moments = [-1, 0, 86_399, 86_400, -86_401]
    table = pa.table(
        {"at": pa.array([m * 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit] for m in moments], pa.timestamp(unit))}
    )
    found = flat.counts(table, "at", "1d", epsilon=1000.0, seed=1).released
    assert found.cells("count")[:, 0].tolist() == [1, 1, 2, 1]
    assert found.edges.tolist() == [day * 24 * HOUR for day in range(-2, 3)]


def test_dates_are_midnights() -> None:
    import pandas as pd

    frame = pd.DataFrame({"at": [datetime(2024, 1, 1).date(), datetime(2024, 1, 3).date()]})
    frame["at"] = frame["at"].astype("date32[pyarrow]")
    found = flat.counts(frame, "at", "1d", epsilon=1000.0, seed=1, zone="Asia/Tokyo").released
    assert found.cells("count")[:, 0].tolist() == [1, 0, 1]


def test_origins_move_windows() -> None:
    frame = as_family(ROWS, "pandas", Path())
    found = flat.counts(frame, "at", "1h", epsilon=1.0, origin="2024-01-01T00:20", seed=1).released
    assert (found.edges % HOUR == HOUR // 3).all()
    found = flat.counts(frame, "at", "1w", epsilon=1.0, origin="2024-03-27", seed=1).released
    assert (found.edges // (24 * HOUR) % 7 == (datetime(2024, 3, 27) - datetime(1970, 1, 1)).days % 7).all()
    found = flat.counts(frame, "at", "1y", epsilon=1.0, origin="2000-04-01", seed=1).released
    assert [str(np.datetime64(int(edge), "us"))[:10] for edge in found.edges] == [
        f"{year}-04-01" for year in (2023, 2024, 2025)
    ]


@given(st.data())
def test_order_and_batches_change_nothing(data: st.DataObject) -> None:
    """Rows in any order, cut in any way: the same sums, so the same noise."""
    import pyarrow as pa

    rows = random_rows(40, 5)
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, 40), max_size=5)))
    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, 40], strict=True)]
    table = pa.concat_tables([as_family(part, "pyarrow", Path()) for part in parts])
    options: dict[str, Any] = {"by": "meter", "keys": ["a", "b"], "epsilon": 1.0, "clip": 2.5, "seed": 1}
    found = flat.totals(table, "kwh", "at", "6h", zone="Europe/Paris", **options).released
    wanted = flat.totals(
        as_family(rows, "pandas", Path()), "kwh", "at", "6h", zone="Europe/Paris", **options
    ).released
    assert flat.clip(found) == flat.clip(wanted)
    assert np.array_equal(found.cells("total"), wanted.cells("total"))


def test_empty_windows_are_released() -> None:
    import pandas as pd

    empty = pd.DataFrame({"at": pd.to_datetime([]), "kwh": np.array([], float)})
    found = flat.totals(
        empty, "kwh", "at", "1h", epsilon=1.0, clip=1.0, start="2024-01-01", stop="2024-01-02", seed=1
    )
    assert found.released.cells("total").shape == (24, 1)
    assert np.unique(found.released.cells("total")).size == 24


def test_a_window_longer_than_the_data() -> None:
    found = flat.counts(as_family(ROWS, "pandas", Path()), "at", "10y", epsilon=1000.0, seed=1).released
    assert found.cells("count").tolist() == [[400]]


def test_sums_beyond_int64_wrap() -> None:
    """Privacy does not depend on how many rows there are: sums and noise are taken modulo 2^64."""
    plan = flat.make_plan("totals", every="1h", epsilon=1.0, clip=2.0**40, resolution=1.0)
    (total,) = plan.quantities()
    (near,) = release(plan.budget, [total], [np.array([[[2**63 - 1]]])], Key.from_seed(1), (0, 1), Keys(()))
    assert int(near.steps[0, 0, 0]) != 2**63 - 1
    sums = np.full((1, 1), 2**63 - 2**30)
    values = np.full(3, 2.0**30)
    assert total.add(CellRows(np.zeros(3, np.int64), np.zeros(3, np.int32), values[None]), values, 0, sums)
    assert int(sums[0, 0]) == (2**63 + 2 * 2**30) - 2**64
