"""Several statistics of several columns in one call: sums by the oracle, levels, times of every form, no times."""

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

import fastdp
from fastdp.errors import DataError, ParameterError
from tests.oracles import tables
from tests.tables.rows import SECRET, as_family, below, column, expected, random_rows

HOUR = 3_600_000_000
ROWS = [(at, key, (value, 3.0 - value), person) for at, key, value, person in random_rows(300, 9)]
FRAME = pd.DataFrame({"at": [r[0] for r in ROWS], "meter": [r[1] for r in ROWS], "who": [r[3] for r in ROWS]})
FRAME["kwh"], FRAME["euro"] = ([r[2][i] for r in ROWS] for i in (0, 1))
ASKED = {"kwh": ["sum", "var"], "euro": "mean", "*": "count"}
BOUNDS = {"kwh": fastdp.Value(clip=(-1.0, 2.0), resolution=0.125), "euro": fastdp.Value(clip=4.0, resolution=0.25)}
DAYS = {"start": "2024-03-29", "stop": "2024-04-02"}


@pytest.mark.parametrize("person", [None, fastdp.Person("who", rows=7, per="1d")])
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_sums_of_several_columns_are_the_oracles(person: fastdp.Person | None) -> None:
    """Total, squared deviation, deviation and count in one vector; a person's rows by the hash of all values."""
    time = fastdp.Time("at", "1d", **DAYS)
    options: dict[str, Any] = {"by": "meter", "keys": ["b", "a"], "epsilon": 4.0, "key": SECRET, "bounds": BOUNDS}
    options["levels"] = False
    options |= {} if person is None else {"unit": person}
    found = fastdp.aggregate(FRAME, ASKED, time, **options).released
    k = 1 if person is None else 7
    rest = Fraction(4) * (Fraction(99, 100) if person is None else Fraction(96, 100))
    own = rest / 3 - Fraction(below(rest / 3 / 100))
    half, whole, all_rows = below(own / 2), below(own), below(rest / 3)
    sums = [
        ("total", -8, 16, 0, 0.125, 0.125, half),
        ("square", -8, 16, 4, 0.125, 0.015625, half),
        ("deviation", 0, 16, 8, 0.25, 0.25, whole),
        ("count", 0, 1, 0, 1.0, 1.0, all_rows),
    ]
    scales = [k * most / Fraction(each[-1]) for each, most in zip(sums, (16, 144, 8, 1), strict=True)]
    first = tables.window(tables.instant(datetime(2024, 3, 29), None), "1d", None)
    wanted = expected(
        ROWS,
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
        scales=scales,
        places={"total": 0, "square": 0, "deviation": 1},
        **({} if person is None else {"who": True, "contributions": 7, "period": ("1d", 0, 24 * HOUR)}),
    )
    for name, steps in wanted.items():
        assert found.cells(name).tolist() == steps, name


def exact(steps: np.ndarray, found: Any, depth: int) -> np.ndarray:
    """Sums of the cells added up to a depth, naively."""
    for d in range(len(found.parents), depth, -1):
        parents = found.parents[d - 1]
        steps = np.stack([steps[..., parents == p].sum(axis=-1) for p in range(int(parents.max()) + 1)], axis=-1)
    return steps


def test_levels_are_sums_of_the_cells() -> None:
    """Next to no noise: prefixes of the keys, all keys, and all windows."""
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
    """The shares of the levels add up to the whole, and each is noisy."""
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
    bounds = {"kwh": fastdp.Value(clip=(-9.0, 9.0)), "euro": fastdp.Value(clip=(-9.0, 9.0))}
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
        wanted = fastdp.aggregate(FRAME, ASKED, time, unit=unit, levels=False, **options).released
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
        ([1, 2], {}, "time = 'at' holds Int64 entries"),
        (["1", "2"], {"unit": "s"}, "time = 'at' holds String entries"),
        ([1, 2], {"unit": "s", "format": "%Y"}, "format = '%Y': expected None"),
    ],
)
def test_what_are_no_times(times: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ParameterError), match=message) as error:
        fastdp.counts(pa.table({"at": times}), fastdp.Time("at", "1d", **options), epsilon=1.0)
    assert "secret" not in str(error.value)


def test_categories_without_rows_are_no_keys(tmp_path: Path) -> None:
    frame = pd.DataFrame({"k": pd.Categorical(["a", "b"], categories=["c", "b", "a"])})
    frame.iloc[:1].to_parquet(tmp_path / "rows.parquet")
    for given in (frame.iloc[:1], tmp_path / "rows.parquet"):
        assert fastdp.counts(given, by="k", keys="public", epsilon=1.0).released.keys == {"k": ["a"]}


@pytest.mark.parametrize("coded", [False, True])
def test_missing_entries_among_given_keys(coded: bool) -> None:
    """In the order in which they are given, of one and of two key columns, whatever the column's type."""
    column = pa.array(["x", None, "x", "y", None, "x", "z"])
    frame = pa.table({"k": column.dictionary_encode() if coded else column, "j": [1, 2, 1, 2, 2, 3, 3]})
    options: dict[str, Any] = {"epsilon": 1e5, "seed": 1}
    found = fastdp.counts(frame, by="k", keys=["y", None, "x"], **options)
    assert found.sum(0, 1).round().tolist() == [[1, 2, 3]]
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
        ({}, {}, "expected a mapping"),
        ({"kwh": "total"}, {}, "expected 'sum' or 'mean' or 'var' or 'std' or 'median' or 'nunique', a percentile"),
        ({"kwh": []}, {}, "or a list of them"),
        ({"*": "sum"}, {}, "expected 'count'"),
        ({"kwh": "sum"}, {}, "bound = None: expected a public upper bound"),
        ({"kwh": "sum", "euro": "sum"}, {"bounds": 1.0}, "expected a mapping of 2 columns"),
        ({"kwh": "sum"}, {"bounds": {"kwh": 1.0, "euro": 1.0}}, "bounds of 1 columns without statistics"),
        ({"*": "count"}, {"bounds": 1.0}, "expected a mapping of 0 columns"),
        ({"*": "count"}, {"every": "1h"}, "every = '1h': expected None, or the column of times"),
        ({"*": "count"}, {"unit": fastdp.Person("who", per="1d")}, "per = '1d': expected None without time="),
        ({"*": "count"}, {"by": "meter", "keys": fastdp.PrivateKeys()}, "delta = 0: expected above 0"),
        ({"*": "count"}, {"levels": "yes"}, "levels = 'yes': expected True or False"),
    ],
)
def test_refusals(asked: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fastdp.aggregate(FRAME, asked, epsilon=1.0, **options)
