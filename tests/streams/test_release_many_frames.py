"""``release_many`` on mappings, long and wide data frames, streams with names, and blocks that follow each stream."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.noise.key import Key
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed
from tests.shared import release_many

EPSILON, BOUND = 1.0, 100.0
SECRET = bytes(range(32))
NAMES = ["kitchen", "7", "Zähler 3", "b"]
COMMON: dict[str, Any] = {"threshold": Fixed(25.0), "max_range": 64}


def ragged(n: int = 4, seed: int = 5) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.gamma(2.0, 9.0, int(size)) for size in generator.integers(45, 150, n)]


def long_table(streams: list[np.ndarray], ids: list[Any], shuffled: bool = False) -> pa.Table:
    """Rows by time, all streams' first values first; or in any order."""
    rows = [(t, name, value) for name, values in zip(ids, streams, strict=True) for t, value in enumerate(values)]
    rows.sort(key=lambda row: row[0])
    if shuffled:
        np.random.default_rng(3).shuffle(rows)  # type: ignore[arg-type]
    begin = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "meter": [row[1] for row in rows],
            "noted": ["x"] * len(rows),
            "at": [begin + datetime.timedelta(minutes=30 * int(row[0])) for row in rows],
            "kwh": [float(row[2]) for row in rows],
        }
    )


FAMILIES: dict[str, tuple[Any, type]] = {
    "pandas": (lambda table: table.to_pandas(), pd.DataFrame),
    "pandas, an index": (lambda table: table.to_pandas().set_index(np.arange(len(table))[::-1]), pd.DataFrame),
    "pandas, categories": (lambda table: table.to_pandas().astype({"meter": "category"}), pd.DataFrame),
    "polars": (pl.from_arrow, pl.DataFrame),
    "polars, lazy": (lambda table: pl.from_arrow(table).lazy(), pl.DataFrame),
    "polars, categories": (
        lambda table: pl.from_arrow(table).with_columns(pl.col("meter").cast(pl.Categorical)),
        pl.DataFrame,
    ),
    "pyarrow": (lambda table: table, pa.Table),
    "pyarrow, chunks": (lambda table: pa.concat_tables([table[:50], table[50:90], table[90:]]), pa.Table),
    "duckdb": (duckdb.from_arrow, duckdb.DuckDBPyRelation),
}


def alone(values: np.ndarray, name: int | str, **parts: Any) -> fastdp.Release:
    parts = {"perturber": Hierarchy(), "smoother": Recent(), **parts}
    own = Key.from_bytes(SECRET).of_stream(name)
    return fastdp.StreamPublisher(epsilon=EPSILON, bound=BOUND, key=own, **parts).release(values)


def test_a_mapping() -> None:
    streams = dict(zip(NAMES, ragged(), strict=True))
    many = release_many(streams, EPSILON, BOUND, key=SECRET, **COMMON)
    for name, stream in streams.items():
        assert np.array_equal(many[name].values, alone(stream, name, **COMMON).values)
    again = release_many(dict(reversed(streams.items())), EPSILON, BOUND, key=SECRET, **COMMON)
    assert np.array_equal(again["kitchen"].values, many["kitchen"].values)
    numbers = release_many({7: [1.0] * 50, 3: [2.0] * 50}, EPSILON, BOUND, key=SECRET, **COMMON)
    assert numbers.ids.tolist() == [7, 3]
    assert np.array_equal(numbers[0].values, alone(np.ones(50), 7, **COMMON).values)
    assert len(release_many({}, EPSILON, BOUND, key=SECRET)) == 0
    with pytest.raises(ParameterError, match=r"^frame: expected streams that came in a data frame"):
        _ = many.frame


def as_arrow(frame: Any) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False) if isinstance(frame, pd.DataFrame) else pa.table(frame)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shuffled", [False, True], ids=["by time", "in any order"])
def test_long_frames(family: str, shuffled: bool) -> None:
    streams = ragged()
    make, kind = FAMILIES[family]
    table = long_table(streams, NAMES, shuffled)
    many = release_many(
        make(table), EPSILON, BOUND, value="kwh", by="meter", time="at", key=SECRET, holdout=3, **COMMON
    )
    assert sorted(many.ids) == sorted(NAMES)
    for name, stream in zip(NAMES, streams, strict=True):
        assert np.array_equal(many[name].values, alone(stream, name, holdout=3, **COMMON).values)
    assert isinstance(many.frame, kind)
    out = as_arrow(many.frame)
    assert out.column_names == ["meter", "at", "kwh"]
    assert np.array_equal(out["kwh"].to_numpy(), many.values)
    unit, clock = {"us": 1, "ns": 1000}[str(out["at"].type.unit)], out["at"].cast(pa.int64()).to_numpy()
    for name, stream in zip(NAMES, streams, strict=True):
        times = clock[np.array(out["meter"].to_pylist()) == name]
        begin = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()) * 10**6 * unit
        assert np.array_equal(times, begin + np.arange(3, stream.size) * 1800 * 10**6 * unit)


def test_long_frames_without_a_time_keep_their_order() -> None:
    streams, ids = ragged(), [4, 0, 9, 2]
    frame = long_table(streams, ids).to_pandas()
    many = release_many(frame, EPSILON, BOUND, value="kwh", by="meter", key=SECRET, holdout=2, **COMMON)
    assert many.ids.tolist() == ids
    for place, (number, stream) in enumerate(zip(ids, streams, strict=True)):
        assert np.array_equal(many[place].values, alone(stream, number, holdout=2, **COMMON).values)
    out = many.frame
    assert list(out.columns) == ["meter", "position", "kwh"]
    assert out[out["meter"] == 9]["position"].tolist() == list(range(2, streams[2].size))


@pytest.mark.parametrize("dates", ["date", "number", "timestamp"])
def test_times_of_every_kind(dates: str) -> None:
    values, order = np.arange(30.0), np.random.default_rng(1).permutation(30)
    times = {
        "date": [datetime.date(2026, 1, 1) + datetime.timedelta(days=i) for i in range(30)],
        "number": [i / 4 for i in range(30)],
        "timestamp": [datetime.datetime(2026, 1, 1, i // 2, 30 * (i % 2)) for i in range(30)],
    }[dates]
    table = pa.table({"m": ["a"] * 30, "t": times, "v": values}).take(order)
    options = {"value": "v", "by": "m", "key": SECRET, **COMMON}
    ordered = release_many(table, EPSILON, BOUND, time="t", **options)
    assert np.array_equal(ordered.values, alone(values, "a", **COMMON).values)
    assert ordered.frame["t"].to_pylist() == times
    assert not np.array_equal(release_many(table, EPSILON, BOUND, **options).values, ordered.values)


@pytest.mark.parametrize("family", ["pandas", "polars", "polars, lazy", "pyarrow", "duckdb"])
@pytest.mark.parametrize("time", [None, "at"])
def test_wide_frames(family: str, time: str | None) -> None:
    matrix = np.random.default_rng(6).gamma(2.0, 9.0, (4, 60))
    make, kind = FAMILIES[family]
    table = pa.table({"at": np.arange(60) * 10, **dict(zip(NAMES, matrix, strict=True))})
    table = table.take(np.random.default_rng(1).permutation(60)) if time else table.drop_columns("at")
    many = release_many(make(table), EPSILON, BOUND, time=time, key=SECRET, holdout=5, **COMMON)
    for name, stream in zip(NAMES, matrix, strict=True):
        assert np.array_equal(many[name].values, alone(stream, name, holdout=5, **COMMON).values)
    out = many.frame
    assert isinstance(out, kind)
    out = as_arrow(out)
    assert out.column_names == ["stream", time or "position", "value"]
    assert out["stream"].to_pylist() == [name for name in NAMES for _ in range(55)]
    assert out[time or "position"].to_pylist() == [(10 if time else 1) * t for t in range(5, 60)] * 4
    assert np.array_equal(out["value"].to_numpy(), many.values)


def test_pandas_columns_may_be_numbers_and_ids_may_be_given() -> None:
    frame = pd.DataFrame(np.random.default_rng(6).gamma(2.0, 9.0, (60, 3)))
    many = release_many(frame, EPSILON, BOUND, key=SECRET, **COMMON)
    assert many.ids.tolist() == [0, 1, 2]
    renamed = release_many(frame, EPSILON, BOUND, ids=["x", "y", "z"], key=SECRET, **COMMON)
    assert np.array_equal(renamed["y"].values, alone(frame[1].to_numpy(), "y", **COMMON).values)
    both = release_many(frame, EPSILON, BOUND, ids=["x", 1, "z"], key=SECRET, **COMMON)
    assert both.frame["stream"].unique().tolist() == ["x", "1", "z"]


def test_queries_by_name() -> None:
    many = release_many(ragged(), EPSILON, BOUND, ids=NAMES, seed=1, **COMMON)
    expected = many.sum([0, 2], [5, 9], streams=[1, 3])
    assert np.array_equal(many.sum([0, 2], [5, 9], streams=["7", "b"]), expected)
    assert np.array_equal(many.sum(0, 5, streams="7"), expected[:1])
    for revised in (False, True):
        own = many[3].interval(2, 9, revised=revised)
        assert np.array_equal(many.interval(2, 9, revised=revised, streams="b"), own)
    with pytest.raises(ParameterError, match=r"^stream = 'c': expected a whole number, .* or the name of a stream"):
        many["c"]
    with pytest.raises(ParameterError, match=r"^streams\[1\] names no stream of this release"):
        many.sum(0, 1, streams=["b", "c"])


FRAME = long_table(ragged(), NAMES)
LONG = {"value": "kwh", "by": "meter"}


def with_column(name: str, column: Any) -> pa.Table:
    return FRAME.set_column(FRAME.column_names.index(name), name, pa.array(column))


def renamed(name: str) -> pa.Table:
    return FRAME.rename_columns({"kwh": name})


FIFTY, ONE_MISSING = [1.0] * 50, [None, *[1.0] * (len(FRAME) - 1)]
NO_TIME = with_column("at", [None, *FRAME["at"].to_pylist()[1:]])
NO_METER = with_column("meter", [None, *FRAME["meter"].to_pylist()[1:]])


@pytest.mark.parametrize(
    ("streams", "options", "told"),
    [
        (FRAME, {"value": "kwh"}, "^by = None: expected the name of a column, because value is given"),
        (FRAME, {"by": "meter"}, "^value = None: expected the name of a column"),
        (FRAME, {**LONG, "value": "kw"}, "^column 'kw': expected one of the table's columns, .*meter"),
        (FRAME, {**LONG, "time": 5}, "^column 5: expected the name of a column"),
        (FRAME, {**LONG, "time": "kwh"}, "expected different columns, none of them called"),
        (renamed("position"), {**LONG, "value": "position"}, "called 'position' or"),
        (renamed("revised"), {**LONG, "value": "revised", "time": "at"}, "called 'rev"),
        (FRAME, {**LONG, "by": "at"}, "^at holds timestamp entries: expected texts or whole numbers"),
        (FRAME, {**LONG, "time": "noted"}, "^noted holds string entries: expected timestamps, dates or"),
        (FRAME, {**LONG, "value": "noted"}, "^noted holds string entries: expected"),
        (NO_TIME, {**LONG, "time": "at"}, "^at: 1 of .* time"),
        (NO_METER, LONG, "^meter: 1 of .* rows have no"),
        (with_column("kwh", ONE_MISSING), LONG, r"^streams\[0\]\[0\]: not a finite number"),
        (with_column("at", ONE_MISSING), {**LONG, "time": "at"}, "^at: 1 of .* rows have no time"),
        (FRAME, {"time": "no"}, "^column 'no': expected one of the table's columns"),
        (FRAME, {}, r"^streams\[0\] holds string entries"),
        (np.ones((2, 50)), LONG, "^streams is a ndarray: expected a pandas or polars frame"),
        ({"a": FIFTY}, {"time": "at"}, "^streams is a dict: expected a pandas or polars frame"),
        (FRAME, {**LONG, "offsets": [0, 9]}, "^offsets: expected None where columns of a frame"),
        (FRAME, {**LONG, "ids": ["a"]}, "^ids has 1 entries: expected 4, one for each stream"),
        ({"": FIFTY}, {}, r"^ids\[0\] = '': expected a text"),
        ({"a": FIFTY, 0.5: FIFTY}, {}, r"^ids\[1\] = 0.5: expected a whole number"),
        ({"a": FIFTY, -1: FIFTY}, {}, r"^ids\[1\] = -1: expected a whole number"),
        (np.ones((2, 50)), {"ids": ["a", "a"]}, "^ids has 'a' more than once: expected distinct"),
        (np.ones((2, 50)), {"ids": ["a", None]}, r"^ids\[1\] = None: expected"),
        (pl.DataFrame({"a": ["x"] * 50}), {}, r"^streams\[0\] holds String entries"),
    ],
)
def test_frames_and_names_that_are_not_accepted(streams: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises((ParameterError, DataError), match=told):
        release_many(streams, EPSILON, BOUND, seed=1, **COMMON, **options)
