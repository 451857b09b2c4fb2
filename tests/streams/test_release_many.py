"""Many streams at once: each what its own publisher releases; frames, mappings, threads."""

from __future__ import annotations

import copy
import datetime
from itertools import count as numbers
from threading import Barrier, Event, Thread, get_ident
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import DataError, MissingError, ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.streams import release_many as rows
from fastdp.streams.release_many import concurrently
from fastdp.thresholds import Fixed, NoisyMax
from tests.shared import release_many

EPSILON, BOUND = 1.0, 100.0


SECRET = bytes(range(32))
NAMES = ["kitchen", "7", "Zähler 3", "b"]
COMMON: dict[str, Any] = {"threshold": Fixed(25.0), "max_range": 64}


def ragged(n: int = 40, seed: int = 5) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.gamma(2.0, 9.0, int(size)) for size in generator.integers(41, 400, n)]


def alone(values: np.ndarray, number: int | str, key: Key, **parts: Any) -> fastdp.Release:
    return fastdp.StreamPublisher(epsilon=EPSILON, bound=BOUND, key=key.of_stream(number), **parts).release(values)


def assert_same(many: fastdp.Release, streams: Any, key: Key, **parts: Any) -> None:
    for i, stream in enumerate(streams):
        one = alone(stream, int(many.ids[i]), key, **parts)
        assert np.array_equal(one.values, many[i].values)
        assert one.threshold == many[i].threshold
        if one.nodes is not None:
            assert np.array_equal(one.nodes.sums, many[i].nodes.sums, equal_nan=True)


def test_a_publisher_releases_many_streams_once() -> None:
    """A fresh key's noise for stream 0 would meet other values."""
    streams = np.full((2, 40), 5.0)
    publisher = fastdp.ToPS(EPSILON, BOUND, threshold=9.0, max_range=40)
    with pytest.raises(DataError):
        publisher.release_many(np.full((2, 40), np.nan))
    assert publisher.release_many(streams).matrix.shape == (2, 40)
    for spent in (publisher, copy.copy(publisher), fastdp.ToPS.from_bytes(publisher.to_bytes())):
        with pytest.raises(StateError, match=r"^release_many.. of a publisher that has released many streams"):
            spent.release_many(streams)


@pytest.mark.parametrize("chunk", [sampler.CHUNK, 300])
def test_doubtful_draws_are_settled_as_for_one_stream(chunk: int, monkeypatch) -> None:
    """Scales of about 2^39 make one draw in some hundred doubtful, under several scales at once; drawn in parts."""
    monkeypatch.setattr(sampler, "CHUNK", chunk)
    streams, key = [np.full(200, 50.0 + 5 * (i % 8)) for i in range(40)], Key.from_seed(4)
    parts = {"perturber": Hierarchy(5, prune=0), "smoother": None, "resolution": BOUND / 2**38, "holdout": 80}
    parts |= {"threshold": NoisyMax(), "max_range": 120}
    many = release_many(streams, EPSILON, BOUND, key=key, **parts)
    assert np.unique(many.thresholds).size > 2
    assert_same(many, streams, key, **parts)


def test_draws_of_the_last_stage_are_those_of_one_stream(monkeypatch) -> None:
    """A second stage that settles nothing leaves all doubtful draws to exact arithmetic and further words."""
    idle = SimpleNamespace(draw_double_double=lambda *arguments: arguments[-2])
    monkeypatch.setattr(sampler, "double_double", idle)
    drawn = []
    monkeypatch.setattr(sampler, "resolve_at", lambda *of, settle=sampler.resolve_at: drawn.append(of) or settle(*of))
    streams, key = [np.full(200, 40.0 + i) for i in range(50)], Key.from_seed(7)
    parts = {"perturber": Hierarchy(3, prune=0), "smoother": None, "resolution": BOUND / 2**38, "holdout": 20}
    parts |= {"threshold": NoisyMax(), "max_range": 15}
    many = release_many(streams, EPSILON, BOUND, key=key, ids=np.arange(50) * 11, **parts)
    # Word, distribution, key, stream id and position: all that a draw, and further words for it, depend on.
    together, drawn[:] = set(drawn), []
    assert_same(many, streams, key, **parts)
    assert set(drawn) == together
    assert len({(of[2], of[3]) for of in together}) > 4


def inputs() -> dict[str, tuple[Any, Any, list[np.ndarray]]]:
    matrix = np.random.default_rng(1).integers(0, 90, (9, 64))
    rows = list(matrix.astype(float))
    flat, offsets = np.concatenate(ragged(9)), np.cumsum([0] + [each.size for each in ragged(9)])
    return {
        "float64": (matrix.astype(float), None, rows),
        "float32": (matrix.astype(np.float32), None, rows),
        "int16": (matrix.astype(np.int16), None, rows),
        "Fortran order": (np.asfortranarray(matrix.astype(float)), None, rows),
        "every other column": (np.repeat(matrix.astype(float), 2, axis=1)[:, ::2], None, rows),
        "read-only": (np.frombuffer(matrix.astype(float).tobytes()).reshape(9, 64), None, rows),
        "lists": (matrix.tolist(), None, rows),
        "ragged columns": (tuple(ragged(9)), None, ragged(9)),
        "offsets": (flat, offsets, ragged(9)),
        "offsets, strided": (np.repeat(flat, 2)[::2], offsets.tolist(), ragged(9)),
        "offsets, list": (np.rint(flat).astype(int).tolist(), offsets, [np.rint(each) for each in ragged(9)]),
    }


@pytest.mark.parametrize("kind", inputs())
def test_any_form_of_input(kind) -> None:
    streams, offsets, rows = inputs()[kind]
    parts = {"threshold": NoisyMax(), "holdout": 30, "max_range": 64}
    parts |= {"perturber": Hierarchy(4, prune=1), "smoother": Recent()}
    many = release_many(streams, EPSILON, BOUND, offsets=offsets, seed=1, **parts)
    assert np.array_equal(many.values, release_many(rows, EPSILON, BOUND, seed=1, **parts).values)


def test_columns_of_lists() -> None:
    pa = pytest.importorskip("pyarrow")
    rows = ragged(6)
    expected = release_many(rows, EPSILON, BOUND, seed=1).values
    plain = pa.array([row.tolist() for row in rows])
    forms = [plain, plain.cast(pa.large_list(pa.float64())), pa.chunked_array([plain[:2], plain[2:]]), plain]
    forms.append(pa.array([[0.0]] + [row.tolist() for row in rows])[1:])
    for column in forms:
        assert np.array_equal(release_many(column, EPSILON, BOUND, seed=1).values, expected)
    square = pa.array([row[:40].tolist() for row in rows], pa.list_(pa.float64(), 40))
    same = release_many([row[:40] for row in rows], EPSILON, BOUND, seed=1).values
    assert np.array_equal(release_many(square, EPSILON, BOUND, seed=1).values, same)
    for wrong, told in ((pa.array([1.0]), "double entries"), (pa.array([[1.0], None]), "missing streams")):
        with pytest.raises(DataError, match=told):
            release_many(wrong, EPSILON, BOUND, seed=1)
    polars = pytest.importorskip("polars")
    series = polars.Series([row.tolist() for row in rows])
    assert np.array_equal(release_many(series, EPSILON, BOUND, seed=1).values, expected)


def test_a_fresh_key_each_time_and_its_guarantee() -> None:
    streams = np.full((4, 60), 7.0)
    first, second = (release_many(streams, 0.5, 10.0) for _ in range(2))
    assert not np.array_equal(first.values, second.values)
    assert not first.guarantee.simulated
    seeded = release_many(streams, 0.5, 10.0, threshold=9.0, seed=1)
    said = seeded.guarantee
    assert (said.epsilon, said.delta, said.arithmetic, said.simulated) == (0.5, 0.0, "exact", True)
    assert "one of the streams" in said.derivation[-1]
    assert seeded[0].guarantee == said
    # Equal streams get different noise.
    assert not (seeded.matrix[1:] == seeded.matrix[:-1]).all(axis=1).any()


def test_values_that_are_not_finite() -> None:
    streams = [np.full(60, 5.0) for _ in range(5)]
    streams[3][[50, 51]] = np.nan, np.inf
    streams[1][2] = -np.inf
    fixed, key = {"threshold": Fixed(9.0), "max_range": 60}, Key.from_seed(1)
    with pytest.raises(DataError, match=r"^streams\[1\]\[2\]: not a finite number; expected .*nonfinite='zero'"):
        release_many(streams, EPSILON, BOUND, seed=1, **fixed)
    nodes = {"perturber": Hierarchy(2, consistent=False, prune=0), "smoother": None, **fixed}
    held = [{"threshold": rule, "holdout": m, "max_range": 64} for rule, m in ((Fixed(9.0), 5), (NoisyMax(), 20))]
    trees = [{"perturber": Hierarchy(4, prune=prune), "smoother": Recent()} for prune in (0, 1)]
    for parts in ({**nodes, "max_range": 64}, *({**tree, **rule} for tree in trees for rule in held)):
        many = release_many(streams, EPSILON, BOUND, key=key, nonfinite="zero", **parts)
        assert_same(many, streams, key, nonfinite="zero", **parts)
    streams[1][2] = 5.0
    with pytest.raises(DataError, match=r"^streams\[3\]\[50\]: not a finite"):
        release_many(streams, EPSILON, BOUND, holdout=20, seed=1, **fixed)


def test_queries_that_are_not_accepted() -> None:
    many = release_many(ragged(3), EPSILON, BOUND, seed=1)
    size = many[1].values.size
    for (starts, stops, streams), told in (
        ((0, 1, 3), r"streams\[0\] = 3: expected a whole number of at least 0, below 3"),
        ((0, size + 1, 1), rf"starts\[0\] = 0, stops\[0\] = {size + 1}: expected 0 <= start <= stop <= {size}"),
        (([0, 5], [1, 4], [0, 1]), r"starts\[1\] = 5"),
        (([0, 0, 0], 1, [0, 1]), "have 2, 3, 1 entries"),
        ((0, 1, 0.5), "streams has shape"),
        ((0, 1, None), r"^streams = None: expected each query's stream"),
    ):
        with pytest.raises(ParameterError, match=told):
            many.sum(starts, stops, streams=streams)
    for ask, told in (
        (lambda: many.matrix, "streams of one length"),
        (lambda: many.threshold, r"^this release has 3 streams: expected one of them, such as many\[0\]"),
        (lambda: many[0].sum(0, 1, streams=0), r"^streams = 0: expected None for the release of one stream"),
    ):
        with pytest.raises((MissingError, ParameterError), match=told):
            ask()
    for wrong in (lambda: many[3], lambda: many[0]["0"]):
        with pytest.raises(IndexError):
            wrong()
    assert np.array_equal(many[-1].values, many[2].values)
    assert len(list(many)) == len(many) == 3


def few(n: int = 4, seed: int = 5) -> list[np.ndarray]:
    return [stream[:150] for stream in ragged(n, seed)]


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


def table_with(name: str, first: Any) -> pa.Table:
    table = long_table(few(), NAMES)
    return table.set_column(table.column_names.index(name), name, pa.array([first, *table[name].to_pylist()[1:]]))


ROWS, ONES = np.ones((3, 50)), [1.0] * 50


TABLE, COLUMNS = long_table(few(), NAMES), {"value": "kwh", "by": "meter"}


@pytest.mark.parametrize(
    ("streams", "options", "told"),
    [
        (np.zeros(5), {}, r"^streams is a ndarray of shape \(5,\): expected a two-dimensional array"),
        (np.zeros((2, 30), complex), {}, "^streams holds complex128 entries"),
        ([np.zeros(9), "abc"], {}, r"^streams\[1\]"),
        ({1: 2}, {}, r"^streams\[0\] is a single int"),
        (np.zeros(9), {"offsets": [0, 4]}, "^offsets has 2 entries: expected borders that ascend"),
        (np.zeros(9), {"offsets": [0, 5, 4, 9]}, "^offsets has 4 entries"),
        (np.zeros(9), {"offsets": [0.0, 9.0]}, "^offsets holds float64 entries"),
        ([np.zeros(99), np.zeros(9)], {"holdout": 9}, r"^streams\[1\] has 9 entries: expected more"),
        (ROWS, {"ids": [1, 2]}, "^ids has 2 entries: expected 3, one for each"),
        (ROWS, {"ids": [1, 2, 1]}, "^ids has 1 more than once"),
        (ROWS, {"ids": [1, -2, 3]}, r"^ids\[1\]: expected whole numbers of at least 0"),
        (ROWS, {"ids": [1, 2**32 - 1, 3]}, r"^ids\[1\]: expected whole numbers of at least 0"),
        (ROWS, {"ids": ["a", None, "b"]}, r"^ids\[1\] is no text: expected"),
        (ROWS, {"key": Key.from_seed(1).of_stream(0)}, "^key = .*without a stream"),
        (TABLE, {"value": "kwh"}, "^by = None: expected the name of a column, because value is given"),
        (TABLE, {"by": "meter"}, "^value = None: expected the name of a column"),
        (TABLE, {**COLUMNS, "value": "kw"}, "^column 'kw': expected one of the table's columns, .*meter"),
        (TABLE, {**COLUMNS, "time": "kwh"}, "expected different columns, none of them called"),
        (TABLE.rename_columns({"kwh": "position"}), {**COLUMNS, "value": "position"}, "called 'position' or"),
        (TABLE, {**COLUMNS, "by": "at"}, "^at holds timestamp entries: expected texts or whole numbers"),
        (TABLE, {**COLUMNS, "time": "noted"}, "^noted holds string entries: expected timestamps, dates or"),
        (TABLE, {**COLUMNS, "value": "noted"}, "^noted holds string entries: expected"),
        (table_with("at", None), {**COLUMNS, "time": "at"}, "^at: 1 of .* rows have no time"),
        (table_with("meter", None), COLUMNS, "^meter: 1 of .* rows have no"),
        (table_with("kwh", None), COLUMNS, r"^streams\[0\]\[0\]: not a finite number"),
        (TABLE, {}, r"^streams\[0\] holds string entries"),
        (ROWS, COLUMNS, "^streams is a ndarray: expected a pandas or polars frame"),
        (TABLE, {**COLUMNS, "offsets": [0, 9]}, "^offsets: expected None where columns of a frame"),
        ({"a": ONES, 0.5: ONES}, {}, r"^ids\[1\] is no text: expected"),
    ],
)
def test_streams_and_names_that_are_not_accepted(streams: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises((ParameterError, DataError), match=told):
        release_many(streams, EPSILON, BOUND, **{"seed": None if "key" in options else 1, **COMMON, **options})


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


def alone_by_default(values: np.ndarray, name: int | str, **parts: Any) -> fastdp.Release:
    parts = {"perturber": Hierarchy(), "smoother": Recent(), **parts}
    return alone(values, name, Key.from_bytes(SECRET), **parts)


def test_a_mapping() -> None:
    streams = dict(zip(NAMES, few(), strict=True))
    many = release_many(streams, EPSILON, BOUND, key=SECRET, **COMMON)
    for name, stream in streams.items():
        assert np.array_equal(many[name].values, alone_by_default(stream, name, **COMMON).values)
    again = release_many(dict(reversed(streams.items())), EPSILON, BOUND, key=SECRET, **COMMON)
    assert np.array_equal(again["kitchen"].values, many["kitchen"].values)
    numbers = release_many({7: [1.0] * 50, 3: [2.0] * 50}, EPSILON, BOUND, key=SECRET, **COMMON)
    assert numbers.ids.tolist() == [7, 3]
    assert np.array_equal(numbers[0].values, alone_by_default(np.ones(50), 7, **COMMON).values)
    assert len(release_many({}, EPSILON, BOUND, key=SECRET)) == 0
    with pytest.raises(MissingError, match=r"^frame: expected streams that came in a data frame"):
        _ = many.frame


def as_arrow(frame: Any) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False) if isinstance(frame, pd.DataFrame) else pa.table(frame)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shuffled", [False, True], ids=["by time", "in any order"])
def test_long_frames(family: str, shuffled: bool) -> None:
    streams = few()
    make, kind = FAMILIES[family]
    table = long_table(streams, NAMES, shuffled)
    many = release_many(
        make(table), EPSILON, BOUND, value="kwh", by="meter", time="at", key=SECRET, holdout=3, **COMMON
    )
    assert sorted(many.ids) == sorted(NAMES)
    for name, stream in zip(NAMES, streams, strict=True):
        assert np.array_equal(many[name].values, alone_by_default(stream, name, holdout=3, **COMMON).values)
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
    streams, ids = few(), [4, 0, 9, 2]
    frame = long_table(streams, ids).to_pandas()
    many = release_many(frame, EPSILON, BOUND, value="kwh", by="meter", key=SECRET, holdout=2, **COMMON)
    assert many.ids.tolist() == ids
    for place, (number, stream) in enumerate(zip(ids, streams, strict=True)):
        assert np.array_equal(many[place].values, alone_by_default(stream, number, holdout=2, **COMMON).values)
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
    assert np.array_equal(ordered.values, alone_by_default(values, "a", **COMMON).values)
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
        assert np.array_equal(many[name].values, alone_by_default(stream, name, holdout=5, **COMMON).values)
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
    assert np.array_equal(renamed["y"].values, alone_by_default(frame[1].to_numpy(), "y", **COMMON).values)
    assert renamed.frame["stream"].unique().tolist() == ["x", "y", "z"]


def test_queries_by_name() -> None:
    many = release_many(few(), EPSILON, BOUND, ids=NAMES, seed=1, **COMMON)
    expected = many.sum([0, 2], [5, 9], streams=[1, 3])
    assert np.array_equal(many.sum([0, 2], [5, 9], streams=["7", "b"]), expected)
    assert np.array_equal(many.sum(0, 5, streams="7"), expected[:1])
    for each in (many, many.revised):
        assert np.array_equal(each.interval(2, 9, streams="b"), each[3].interval(2, 9))
    with pytest.raises(ParameterError, match=r"^stream = 'c': expected a whole number, .* or the name of a stream"):
        many["c"]
    with pytest.raises(ParameterError, match=r"^streams\[1\] names no stream of this release"):
        many.sum(0, 1, streams=["b", "c"])


@pytest.mark.parametrize("wrong", [{3}, {4, 3, 20}, set(range(40))])
def test_the_first_error_in_the_order_of_slabs_is_raised(wrong) -> None:
    """After batches 3 and 4 fail together, nothing is begun."""
    later, begun = Barrier(2), []

    def work(slab: int) -> None:
        begun.append(slab)
        if slab in (3, 4) and 4 in wrong:
            later.wait(60)
        if slab in wrong:
            raise ArithmeticError(slab)

    with pytest.raises(ArithmeticError, match=f"^{min(wrong)}$"):
        concurrently(2, work, range(40))
    assert 4 not in wrong or max(begun) <= 4


def test_no_thread_works_on_where_another_cannot_start(monkeypatch) -> None:
    begun, over = [], Event()

    class Scarce(Thread):
        def start(self) -> None:
            if begun:
                raise RuntimeError("can't start new thread")
            begun.append(self)
            super().start()

    def work(_slab: int) -> None:
        # The running thread ends here if concurrently does not stop it.
        if over.is_set():
            raise InterruptedError

    monkeypatch.setattr(rows, "Thread", Scarce)
    try:
        with pytest.raises(RuntimeError, match="can't start"):
            concurrently(3, work, numbers())
        assert not begun[0].is_alive()
    finally:
        over.set()


def test_an_interrupt_waits_for_the_slabs_that_are_worked_on(monkeypatch) -> None:
    caller, both, goes_on, joins, done = get_ident(), Barrier(2), Event(), [], []

    class Awaited(Thread):
        def join(self, timeout: float | None = None) -> None:
            joins.append(self)
            if len(joins) == 1:
                raise KeyboardInterrupt
            goes_on.set()
            super().join(timeout)

    def work(slab: int) -> None:
        both.wait(60)
        if get_ident() != caller:
            goes_on.wait(60)
            done.append(slab)

    monkeypatch.setattr(rows, "Thread", Awaited)
    try:
        with pytest.raises(KeyboardInterrupt):
            concurrently(2, work, range(2))
        assert len(done) == 1
    finally:
        goes_on.set()


@pytest.mark.parametrize(
    "options", [{"bound": 50.0}, {"sensitivity": 1.0}, {"bound": 50.0, "threshold": 9.0}], ids=str
)
@pytest.mark.parametrize("ids", [None, [7, 3, 5, 0], ["a", "b", "c", "d"]])
def test_each_stream_of_the_function_is_its_own_release(options: dict[str, Any], ids: Any) -> None:
    rng, key = np.random.default_rng(4), Key.from_bytes(SECRET)
    streams = [rng.poisson(6.0, size).astype(float) for size in (1, 90, 1500, 1500)]
    many = fastdp.release_many(streams, 0.8, **options, ids=ids, threads=2, key=key)
    assert many.offset == 0
    starts, stops = np.array([0, 0]), np.array([1, 1])
    for i, values in enumerate(streams):
        one = fastdp.release(values, 0.8, **options, key=key.of_stream(i if ids is None else ids[i]))
        mine = many[i]
        assert np.array_equal(one.values, mine.values)
        stops[1] = values.size
        for method in ("sum", "interval", "std_error"):
            expected = np.asarray(getattr(one, method)(starts, stops))
            assert np.array_equal(expected, getattr(mine, method)(starts, stops))
            assert np.array_equal(expected, getattr(many, method)(starts, stops, streams=[i, i]))
        assert many.guarantee.epsilon == one.guarantee.epsilon
        assert one.threshold == mine.threshold
