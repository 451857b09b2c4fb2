"""Sums of every family of tables, of one and several columns, equal to the oracle's integer by integer; no times."""

from __future__ import annotations

import warnings
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.noise.key import Key
from fastdp.tables.columns import Keys
from fastdp.tables.quantities import CellRows
from fastdp.tables.shares import shares_of
from fastdp.tables.sums import release
from tests.oracles import tables
from tests.tables import flat
from tests.tables.rows import FAMILIES, SECRET, as_family, below, column, composition, expected, random_rows

ROWS = random_rows(400, 1)
HOUR = 3_600_000_000
#: 2^-31 of a bound between 2 and 4.
STEP = 2.0**-31
NO_KEYS = bytes.fromhex("4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945")


def borders(every: str, zone: str | None) -> tuple[int, int]:
    """Of windows 0 and 1, by trial."""
    origin = tables.instant(datetime(1970, 1, 5 if every.endswith("w") else 1), zone)
    low, high = origin, origin + 800 * 24 * HOUR
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tables.window(middle, every, zone) == 0 else (low, middle)
    return origin, high


def without_sizes(of: Fraction) -> float:
    return below(of - Fraction(below(of / 100)))


def whole_span(rows: list[tuple], every: str, zone: str | None) -> tuple[int, int]:
    numbers = [tables.window(tables.instant(row[0], zone), every, zone) for row in rows]
    return min(numbers), max(numbers) + 1


def instant_of(text: str) -> int:
    return tables.instant(datetime.fromisoformat(text), "Europe/Paris")


EPSILON = without_sizes(Fraction(1))
TOTAL = ("total", 0, 2 * 2**31 + 2**30, 0, STEP, STEP, EPSILON)


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
        ("2024-03-29", None), ("2024-03-29", "Europe/Paris"), ("2018-11-02", "America/Sao_Paulo"),
        ("2018-02-16", "America/Sao_Paulo"), ("2024-04-05", "Australia/Lord_Howe"), ("2024-02-27", "Asia/Kolkata"),
        ("2011-12-28", "Pacific/Apia"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("every", ["90s", "2h", "1d", "1w", "1mo", "1y"])
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
        parameters["keys"] = NO_KEYS
        own = tables.words.bound(SECRET, "TablePlan", 2, parameters)
        (wanted,) = tables.noisy([exact], own, [("count", 0, 1, 0, 1.0, 1.0, 0.5)], span[0], [()], [Fraction(2)])
        assert found.cells("count").tolist() == wanted


@pytest.mark.parametrize("kind", ["totals", "means"])
def test_bounds_of_two_ends(kind: str) -> None:
    call = getattr(fastdp, kind)
    found = call(
        as_family(ROWS, "pandas", Path()), "kwh", "at", "1d", epsilon=2.0, clip=(-1.0, 2.5), key=SECRET
    ).released
    low, high, left = -(2**31), 2**32 + 2**30, Fraction(2)
    centre = (low + high) // 2 if kind == "means" else 0
    if kind == "means":
        own, rest = without_sizes(left * 3 / 5), below(left * 2 / 5)
        sums = [("deviation", low, high, centre, STEP, STEP, own), ("count", 0, 1, 0, 1.0, 1.0, rest)]
        scales = [Fraction(high - centre) / Fraction(own), 1 / Fraction(rest)]
    else:
        own = without_sizes(left)
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


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@given(st.permutations(random_rows(40, 5)), st.lists(st.integers(0, 40), max_size=5).map(sorted))
def test_order_and_batches_change_nothing(shuffled: list[tuple], cuts: list[int]) -> None:
    import pyarrow as pa

    parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, 40], strict=True)]
    whole = as_family(random_rows(40, 5), "pandas", Path())
    options = {"by": "meter", "keys": ["a", "b"], "epsilon": 1.0, "clip": 2.5, "seed": 1, "zone": "Europe/Paris"}
    found, wanted = (
        flat.totals(table, "kwh", "at", "6h", **options).released.cells("total")
        for table in (pa.concat_tables([as_family(part, "pyarrow", Path()) for part in parts]), whole)
    )
    assert np.array_equal(found, wanted)


def test_empty_windows_are_released() -> None:
    table = as_family(ROWS, "pandas", Path()).iloc[:0]
    options = {"epsilon": 1.0, "clip": 1.0, "start": "2024-01-01", "stop": "2024-01-02", "seed": 1}
    found = flat.totals(table, "kwh", "at", "1h", **options).released.cells("total")
    assert found.shape == (24, 1)
    assert np.unique(found).size == 24


def test_sums_beyond_int64_wrap() -> None:
    plan = flat.make_plan("totals", every="1h", epsilon=1.0, clip=2.0**40, resolution=1.0)
    (total,) = shares_of(plan).quantities
    (near,) = release(shares_of(plan), [total], [np.array([[[2**63 - 1]]])], Key.from_seed(1), (0, 1), Keys(()))
    assert int(near.steps[0, 0, 0]) != 2**63 - 1
    sums = np.full((1, 1), 2**63 - 2**30)
    values = np.full(3, 2.0**30)
    assert total.add(CellRows(np.zeros(3, np.int64), np.zeros(3, np.int32), values[None]), values, 0, sums)
    assert int(sums[0, 0]) == (2**63 + 2 * 2**30) - 2**64


# Several statistics of several columns in one call.

OF_TWO = [(at, key, (value, 3.0 - value), person) for at, key, value, person in random_rows(300, 9)]
FRAME = pd.DataFrame({"at": [r[0] for r in OF_TWO], "meter": [r[1] for r in OF_TWO], "who": [r[3] for r in OF_TWO]})
FRAME["kwh"], FRAME["euro"] = ([r[2][i] for r in OF_TWO] for i in (0, 1))
ASKED = {"kwh": ["sum", "var"], "euro": "mean", "*": "count"}
BOUNDS = {"kwh": fastdp.Value(clip=(-1.0, 2.0), resolution=0.125), "euro": fastdp.Value(clip=4.0, resolution=0.25)}
DAYS = {"start": "2024-03-29", "stop": "2024-04-02"}


@pytest.mark.parametrize("person", [None, fastdp.Person("who", rows=7, per="1d")])
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_sums_of_several_columns_are_the_oracles(person: fastdp.Person | None) -> None:
    """Total, squared deviation, deviation and count in one vector; a person's rows by the hash of all values."""
    options: dict[str, Any] = {"by": "meter", "keys": ["b", "a"], "epsilon": 4.0, "key": SECRET, "bounds": BOUNDS}
    options |= {"levels": False, "unit": fastdp.Rows() if person is None else person}
    found = fastdp.aggregate(FRAME, ASKED, fastdp.Time("at", "1d", **DAYS), **options).released
    k = 1 if person is None else 7
    rest = Fraction(4) * (1 if person is None else Fraction(94, 100))
    own = rest / 3 - Fraction(below(rest / 3 / 100))
    sums = [
        ("total", -8, 16, 0, 0.125, 0.125, below(own / 2)),
        ("square", -8, 16, 4, 0.125, 0.015625, below(own / 2)),
        ("deviation", 0, 16, 8, 0.25, 0.25, below(own)),
        ("count", 0, 1, 0, 1.0, 1.0, below(rest / 3)),
    ]
    first = tables.window(tables.instant(datetime(2024, 3, 29), None), "1d", None)
    wanted = expected(
        OF_TWO,
        every="1d",
        borders=(0, 24 * HOUR),
        span=(first, first + 4),
        zone=None,
        epsilon=4.0,
        keys=[("b",), ("a",)],
        by=["meter"],
        key_rule="given",
        statistics=[["sum", 0], ["var", 0], ["mean", 1], ["count", -1]],
        columns=[column(-1.0, 2.0, resolution=0.125), column(0.0, 4.0, resolution=0.25)],
        sums=sums,
        scales=[k * most / Fraction(each[-1]) for each, most in zip(sums, (16, 144, 8, 1), strict=True)],
        places={"total": 0, "square": 0, "deviation": 1},
        **({} if person is None else {"who": True, "contributions": 7, "period": ("1d", 0, 24 * HOUR)}),
    )
    for name, steps in wanted.items():
        assert found.cells(name).tolist() == steps, name


def exact(steps: np.ndarray, found: Any, depth: int) -> np.ndarray:
    for d in range(len(found.parents), depth, -1):
        parents = found.parents[d - 1]
        steps = np.stack([steps[..., parents == p].sum(axis=-1) for p in range(int(parents.max()) + 1)], axis=-1)
    return steps


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_levels_are_sums_of_the_cells() -> None:
    by = ["meter", "who"]
    options: dict[str, Any] = {"by": by, "keys": "public", "epsilon": 1e7, "bounds": BOUNDS, "seed": 1}
    found = fastdp.aggregate(FRAME, ASKED, "at", "1d", levels=True, **options).released
    cells, *others = found.measured
    # Least squares need not have a number of each.
    assert cells.level == (2, True)
    assert {each.level for each in others} <= {(1, True), (0, True), (2, False), (1, False), (0, False)}
    assert others
    for each in others:
        wanted = exact(cells.steps, found, each.level.depth)
        wanted = wanted if each.level.each else wanted.sum(axis=1, keepdims=True)
        assert np.array_equal(each.steps, wanted)
    assert [list(names) for names in found.nodes] == [[], ["meter"], by]
    leaf = found.nodes[2]["meter"]
    assert [found.nodes[1]["meter"][p] for p in found.parents[1]] == leaf == sorted(leaf)


def test_noise_of_levels() -> None:
    options: dict[str, Any] = {"by": ["meter", "who"], "keys": "public", "seed": 3, "levels": True}

    found, near = (
        fastdp.aggregate(FRAME, {"*": "count"}, fastdp.Time("at", "1d", **DAYS), epsilon=epsilon, **options).released
        for epsilon in (2.0, 1e7)
    )
    assert sum(1 / (2 * each.noise[0].scale) for each in found.measured) == pytest.approx(1.0)
    assert len(found.measured) > 1
    for noisy, exactly in zip(found.measured, near.measured, strict=True):
        assert 0 < np.abs(noisy.steps - exactly.steps).max() < 60


def test_statistics_without_noise_are_those_of_pandas() -> None:
    asked = {"kwh": ["mean", "var", "std", "sum"], "euro": ["std", "mean"], "*": "count"}
    bounds = dict.fromkeys(("kwh", "euro"), fastdp.Value((-9.0, 9.0), clip=(-9.0, 9.0)))
    for time, every in (("at", "1d"), (None, None)):
        found = fastdp.aggregate(FRAME, asked, time, every, "meter", "public", epsilon=1e7, bounds=bounds, seed=1)
        groups = FRAME.groupby(([FRAME["at"].dt.floor("1D")] if time else []) + ["meter"])
        frame = found.frame
        assert found.names == ["kwh_mean", "kwh_var", "kwh_std", "kwh_sum", "euro_std", "euro_mean", "count"]
        for name in ("kwh", "euro"):
            for kind in asked[name]:
                wanted = getattr(groups[name], kind)(**({} if kind in ("mean", "sum") else {"ddof": 0}))
                np.testing.assert_allclose(frame[f"{name}_{kind}"], wanted, atol=2e-4)
                assert (frame[f"{name}_{kind}_low"] <= frame[f"{name}_{kind}_high"]).all()
        np.testing.assert_allclose(frame["count"], groups.size())
        one = found["kwh_var"]
        assert one.estimate(0, 1).ravel().tolist() == frame["kwh_var"][: len(one.released.keys["meter"])].tolist()
        with pytest.raises(ParameterError, match="expected one statistic"):
            found.estimate(0, 1)


def test_windows_of_several_columns_are_those_of_a_table() -> None:
    time = fastdp.Time("at", "1d", start="2024-03-29", stop="2024-04-02")
    unit = fastdp.Person("who", rows=3, per="1d")
    options: dict[str, Any] = {"by": "meter", "keys": ["a", "c"], "epsilon": 1.0, "key": SECRET, "bounds": BOUNDS}
    windows = fastdp.Windows(ASKED, time, unit=unit, **options)
    for part in (FRAME[:100], FRAME[100:]):
        windows.add(part["at"], part[["kwh", "euro"]].to_dict("series"), part["meter"], part["who"])
    windows = fastdp.Windows.from_bytes(windows.to_bytes(SECRET), SECRET)
    found = windows.advance("2024-04-02").released
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = fastdp.aggregate(FRAME, ASKED, time, unit=unit, **options).released
    assert np.array_equal(found.measured[0].steps, wanted.measured[0].steps)
    with pytest.raises(DataError, match="expected a mapping with a column for each"):
        windows.add(FRAME["at"], FRAME["kwh"], FRAME["meter"], FRAME["who"])


MICROS = FRAME["at"].astype("datetime64[us]").astype("int64")
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "seconds": (MICROS // 10**6, {"unit": "s"}),
    "float seconds": (MICROS / 1e6, {"unit": "s"}),
    "milliseconds": (MICROS // 1000, {"unit": "ms"}),
    "nanoseconds": (MICROS * 1000, {"unit": "ns"}),
    "ISO texts": (FRAME["at"].dt.strftime("%Y-%m-%dT%H:%M:%S"), {}),
    "ISO texts of instants": (FRAME["at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"), {"zone": "UTC"}),
    "texts": (FRAME["at"].dt.strftime("%d.%m.%Y %H:%M:%S"), {"format": "%d.%m.%Y %H:%M:%S"}),
    "numbers of days": (FRAME["at"].dt.strftime("%Y%m%d").astype(int), {"format": "%Y%m%d"}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["pandas", "polars", "pyarrow"])
def test_times_as_users_have_them(form: str, family: str) -> None:
    times, options = FORMS[form]
    frame: Any = FRAME.assign(at=times)
    if family != "pandas":
        frame = pa.Table.from_pandas(frame)
    if family == "polars":
        frame = pytest.importorskip("polars").from_arrow(frame)
    found = fastdp.counts(frame, fastdp.Time("at", "1d", **DAYS, **options), epsilon=1.0, seed=1)
    assert found.released.time_zone == (None if not options or "format" in options else "UTC")
    zone = {} if found.released.time_zone is None else {"zone": "UTC"}
    wanted = fastdp.counts(FRAME, fastdp.Time("at", "1d", **DAYS, **zone), epsilon=1.0, seed=1)
    assert np.array_equal(found.released.cells("count"), wanted.released.cells("count"))


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        (["2024-03-29", "secret"], {}, "an entry is no time; expected ISO texts"),
        (["2024-03-29T01:00Z", "2024-03-29T01:00"], {"zone": "UTC"}, "an entry is no time"),
        (["2024-03-29T01:00Z"] * 2, {}, "time has a zone: expected zone="),
        (["29.3.2024", "secret"], {"format": "%d.%m.%Y"}, "expected texts of the format"),
        ([1.0, np.nan], {"unit": "s"}, "row 1 has no time"),
        (["1", "2"], {"unit": "s"}, "time = 'at' holds String entries"),
        ([1, 2], {"unit": "s", "format": "%Y"}, "format = '%Y': expected None"),
        (["1", "2"], {"format": "%s"}, r"seconds since 1970: Time\(unit='s'\)"),
        (["2024-03-29Z"], {"format": "%Y-%m-%dZ", "zone": "UTC"}, "%z for an offset or a final Z"),
    ],
)
def test_what_are_no_times(times: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ParameterError), match=message) as error:
        fastdp.counts(pa.table({"at": times}), fastdp.Time("at", "1d", **options), epsilon=1.0)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_and_dates(unit: str) -> None:
    moments = [m * 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit] for m in (-1, 0, 86_399, 86_400, -86_401)]
    table = pa.table({"at": pa.array(moments, pa.timestamp(unit))})
    options = {"epsilon": 1000.0, "seed": 1}
    found = fastdp.counts(table, fastdp.Time("at", "1d"), **options).released
    assert found.cells("count")[:, 0].tolist() == [1, 1, 2, 1]
    assert found.edges.tolist() == [day * 24 * HOUR for day in range(-2, 3)]
    dates = table.set_column(0, "at", table["at"].cast(pa.date32(), safe=False))
    by_date = fastdp.counts(dates, fastdp.Time("at", "1d", zone="Asia/Tokyo"), **options).released
    assert by_date.cells("count").tolist() == found.cells("count").tolist()


def test_categories_without_rows_are_no_keys(tmp_path: Path) -> None:
    frame = pd.DataFrame({"k": pd.Categorical(["a", "b"], categories=["c", "b", "a"])})
    frame.iloc[:1].to_parquet(tmp_path / "rows.parquet")
    for table in (frame.iloc[:1], tmp_path / "rows.parquet"):
        assert fastdp.counts(table, by="k", keys="public", epsilon=1.0).released.keys == {"k": ["a"]}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("coded", [False, True])
def test_missing_entries_among_given_keys(coded: bool) -> None:
    column = pa.array(["x", None, "x", "y", None, "x", "z"])
    frame = pa.table({"k": column.dictionary_encode() if coded else column, "j": [1, 2, 1, 2, 2, 3, 3]})
    options: dict[str, Any] = {"epsilon": 1e5, "seed": 1}
    found = fastdp.counts(frame, by="k", keys=["y", None, "x"], **options)
    assert found.sum(0, 1).round().tolist() == [[1, 2, 3]]
    found = fastdp.counts(frame, by="k", keys="public", **options)
    assert (found.keys, found.sum(0, 1).round().tolist()) == ({"k": ["x", "y", "z", None]}, [[3, 1, 1, 2]])
    # A column, or the keys of a call, without any entry.
    empty = pa.table({"k": pa.nulls(2)})
    for keys, wanted in ((["y", None], [[0, 2]]), ([7, 8], [[0, 0]])):
        assert fastdp.counts(empty, by="k", keys=keys, **options).sum(0, 1).round().tolist() == wanted
    pairs = [("x", 3), (None, 2), ("y", 2), (None, 1), ("x", 1)]
    found = fastdp.counts(frame, by=["k", "j"], keys=pairs, **options)
    assert found.sum(0, 1).round().tolist() == [[1, 2, 1, 0, 2]]
    assert list(zip(*found.released.keys.values(), strict=True)) == pairs


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_tables_without_times() -> None:
    found = fastdp.counts(as_family(random_rows(50, 2), "pandas", Path()), by="meter", keys=["a", "zz"], epsilon=1e5)
    assert found.frame.columns[0] == "meter"
    assert found.sum(0, 1).round().ravel().tolist() == [sum(r[1] == "a" for r in random_rows(50, 2)), 0]
    assert str(found).startswith("Counts of all rows x 2 keys (meter)")
    person = fastdp.Person("person", rows=1)
    kept = fastdp.counts(as_family(random_rows(50, 2), "pandas", Path()), epsilon=1e5, unit=person)
    assert kept.released.sums[0].steps.ravel().tolist() == [len({r[3] for r in random_rows(50, 2)})]


@pytest.mark.parametrize(
    ("asked", "options", "message"),
    [
        ("kwh", {}, "statistics = 'kwh': expected a mapping"),
        ({"kwh": "total"}, {}, "or 'std' or 'median' or 'nunique' or 'reach', a percentile"),
        ({"kwh": []}, {}, "or a list of them"),
        ({"*": "sum"}, {}, "expected 'count'"),
        ({"kwh": "sum"}, {}, "bounds: column 'kwh' has none; expected a public upper bound"),
        ({"kwh": "sum", "euro": "sum"}, {"bounds": 1.0}, "expected a mapping of 2 columns"),
        ({"kwh": "sum"}, {"bounds": {"kwh": 1.0, "euro": 1.0}}, "bounds of columns without statistics of values: 1"),
        ({"*": "count"}, {"every": "1h"}, "every = '1h': expected None, or the column of times"),
        (
            {"*": "count"},
            {"unit": fastdp.Person("who", per="1d")},
            "per = '1d': expected None without windows, or the column of times",
        ),
    ],
)
def test_refusals(asked: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fastdp.aggregate(FRAME, asked, epsilon=1.0, **options)
