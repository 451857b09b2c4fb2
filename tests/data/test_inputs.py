"""Every accepted kind of input gives the same released stream; everything else is a clear DataError."""

from __future__ import annotations

import array
import collections
import datetime
import fractions
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastdp
from fastdp.data.column import MIN_COMPILED, as_floats
from fastdp.data.column import as_column as any_column
from fastdp.errors import DataError, ParameterError

NUMPY_DTYPES = [np.dtype(code) for code in (*"bhilBHILefdg", *(">" + code for code in "hilHILefd"))]
ARROW_TYPES = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64"]
Build = Callable[[np.ndarray], Any]


def as_column(values: Any) -> np.ndarray:
    """An input as kernels get it."""
    return as_floats(any_column(values))


def only(name: str, method: str, inner: Any) -> Any:
    """An object with nothing but one method of `inner`."""
    return type(name, (), {method: lambda self, *given, **more: getattr(inner, method)(*given, **more)})()


StreamOnly = partial(only, "StreamOnly", "__arrow_c_stream__")
ArrayOnly = partial(only, "ArrayOnly", "__arrow_c_array__")
NumpyOnly = partial(only, "NumpyOnly", "__array__")


class OwnSeries(pd.Series):
    """A subclass defined outside pandas."""


class OwnPolarsSeries(pl.Series):
    """A subclass defined outside polars."""


def ints(x: np.ndarray) -> list[int]:
    return x.astype(int).tolist()


def unaligned(x: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"x" + x.tobytes(), np.float64, offset=1)


def chunked_polars(x: np.ndarray) -> pl.Series:
    whole = pl.Series("v", x[:70])
    return whole.append(pl.Series("v", x[70:90])).append(pl.Series("v", x[90:]))


def chunked_arrow(x: np.ndarray, kind: Any = None) -> pa.ChunkedArray:
    kind = kind or pa.float64()
    return pa.chunked_array([pa.array(part.tolist(), kind) for part in (x[:70], x[:0], x[70:71], x[71:])])


def padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([[99.0, 98.0], x, [97.0]])


#: The same whole numbers as users have them.
KINDS: dict[str, Build] = {
    "list of ints": ints,
    "list of both": lambda x: [int(v) if v > 20 else float(v) for v in x],
    "list of NumPy scalars": lambda x: [np.float32(v) if v > 20 else np.int16(v) for v in x],
    "deque": lambda x: collections.deque(x.tolist()),
    "array.array of bytes": lambda x: array.array("b", ints(x)),
    "memoryview": lambda x: memoryview(x),
    "memoryview of ints": lambda x: memoryview(array.array("i", ints(x))),
    "only __array__": lambda x: NumpyOnly(x),
    "object array": lambda x: np.array(ints(x), dtype=object),
    "NumPy, strided": lambda x: np.repeat(x, 3)[::3],
    "NumPy, reversed": lambda x: x[::-1].copy()[::-1],
    "NumPy, column of a Fortran array": lambda x: np.asfortranarray(np.stack([x, x + 1], axis=1))[:, 0],
    "NumPy, field of a record array": lambda x: np.array([(1, v) for v in x], dtype=[("a", "i1"), ("b", "f8")])["b"],
    "NumPy, unaligned": unaligned,
    "NumPy, masked, nothing masked": lambda x: np.ma.array(x),
    "NumPy, masked int, nothing masked": lambda x: np.ma.array(x.astype(int)),
    "NumPy, masked objects": lambda x: np.ma.array(ints(x), dtype=object),
    "pandas, Series": lambda x: pd.Series(x),
    "pandas, Series of objects": lambda x: pd.Series(ints(x), dtype=object),
    "pandas, Series with an index": lambda x: pd.Series(x.astype(int), index=np.arange(x.size)[::-1]),
    "pandas, Int64": lambda x: pd.Series(ints(x), dtype="Int64"),
    "pandas, Arrow double": lambda x: pd.Series(x, dtype="double[pyarrow]"),
    "pandas, sparse": lambda x: pd.Series(pd.arrays.SparseArray(x, fill_value=0.0)),
    "pandas, extension array": lambda x: pd.array(ints(x), dtype="Int32"),
    "pandas, Index": lambda x: pd.Index(x),
    "pandas, subclass": lambda x: OwnSeries(x),
    "pandas, DataFrame": lambda x: pd.DataFrame({"v": x}),
    "pandas, column of a mixed DataFrame": lambda x: pd.DataFrame({"v": x, "w": "text"})["v"],
    "polars, Series": lambda x: pl.Series(x),
    "polars, chunked": chunked_polars,
    "polars, slice": lambda x: pl.Series(padded(x)).slice(2, x.size),
    "polars, Int128": lambda x: pl.Series(ints(x), dtype=pl.Int128),
    "polars, Float32": lambda x: pl.Series(x.tolist(), dtype=pl.Float32),
    "polars, subclass": lambda x: OwnPolarsSeries("v", x),
    "polars, DataFrame": lambda x: pl.DataFrame({"v": x}),
    "Arrow, slice with an offset": lambda x: pa.array(padded(x)).slice(2, x.size),
    "Arrow, ChunkedArray": chunked_arrow,
    "Arrow, slice of a ChunkedArray": lambda x: chunked_arrow(padded(x)).slice(2, x.size),
    "Arrow, Table": lambda x: pa.table({"v": chunked_arrow(x)}),
    "Arrow, slice of a Table": lambda x: pa.table({"v": chunked_arrow(padded(x))}).slice(2, x.size),
    "Arrow, RecordBatch": lambda x: pa.record_batch({"v": x}),
    "Arrow, RecordBatchReader": lambda x: pa.table({"v": chunked_arrow(x)}).to_reader(),
    "Arrow, only a stream, of an array": lambda x: StreamOnly(chunked_arrow(x)),
    "Arrow, only a stream, of a table": lambda x: StreamOnly(pa.table({"v": chunked_arrow(x)})),
    "Arrow, only an array": lambda x: ArrayOnly(pa.array(padded(x)).slice(2, x.size)),
    **{f"NumPy, {dtype}": lambda x, dtype=dtype: x.astype(dtype) for dtype in NUMPY_DTYPES},
    **{f"Arrow, {kind}": lambda x, kind=kind: pa.array(ints(x), kind) for kind in ARROW_TYPES},
    "Arrow, float16": lambda x: pa.array(x.astype(np.float16)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_stream_to_kernels_of_one_layout(make, stream, kind: str) -> None:
    """Contiguous, aligned, native float64 and no subclass, or kernels would be compiled again."""
    expected, given = make().publish(stream), KINDS[kind](stream)
    published = make().publish(given)
    assert published.dtype == np.float64
    assert np.array_equal(published, expected)
    assert make().release(KINDS[kind](stream)).values.tobytes() == expected.tobytes()
    column = as_column(KINDS[kind](stream))
    assert type(column) is np.ndarray
    assert column.dtype == np.dtype("=f8")
    assert column.flags.c_contiguous
    assert column.flags.aligned
    assert not column.flags.writeable or "NumPy" in kind
    assert not np.array_equal(make().publish(stream + 0.5), expected)


BOOLEANS: list[Build] = [
    *(lambda b: b.tolist(), lambda b: b, np.ma.array, pd.Series, pl.Series, pa.array),
    lambda b: pd.Series(b, dtype="boolean"),
    lambda b: pd.Series(b, dtype="bool[pyarrow]"),
    lambda b: pa.array([True, *b.tolist(), False]).slice(1, b.size),
    lambda b: pa.chunked_array([pa.array(b[:9]), pa.array(b[9:])]),
]


@pytest.mark.parametrize("build", BOOLEANS)
def test_booleans_count_as_0_and_1_and_missing_ones_as_nan(make, stream, build: Build) -> None:
    flags = stream > 25
    options = {"bound": 1, "resolution": 2.0**-10}
    assert np.array_equal(make(**options).publish(build(flags)), make(**options).publish(flags.astype(float)))
    missing = [pd.Series([None, True], dtype=kind) for kind in ("boolean", "bool[pyarrow]", object)]
    for values in ([None, True], *missing, pl.Series([None, True]), pa.array([None, True])):
        assert np.array_equal(as_column(values), [np.nan, 1.0], equal_nan=True)
    for nothing in ([None, None], pl.Series([None, None]), pa.nulls(2), pd.Series([None, None])):
        assert np.isnan(as_column(nothing)).tolist() == [True, True]


GAPS: dict[str, Callable[[list[float | None]], Any]] = {
    "list with None": lambda v: v,
    "masked float": lambda v: np.ma.array([9.0 if e is None else e for e in v], mask=[e is None for e in v]),
    "masked int": lambda v: np.ma.array([9 if e is None else int(e) for e in v], mask=[e is None for e in v]),
    "masked objects": lambda v: np.ma.array(
        [9 if e is None else e for e in v], mask=[e is None for e in v], dtype=object
    ),
    "pandas Int64": lambda v: pd.Series(v, dtype="Int64"),
    "pandas double[pyarrow]": lambda v: pd.Series(v, dtype="double[pyarrow]"),
    "pandas object": lambda v: pd.Series(v, dtype=object),
    "polars": lambda v: pl.Series(v),
    "polars Int128": lambda v: pl.Series([None if e is None else int(e) for e in v], dtype=pl.Int128),
    "polars chunked": lambda v: pl.Series(v[:50], dtype=pl.Float64).append(pl.Series(v[50:], dtype=pl.Float64)),
    "Arrow": lambda v: pa.array(v, pa.float64()),
    "Arrow float16": lambda v: pa.array([None if e is None else np.float16(e) for e in v], pa.float16()),
    "Arrow slice": lambda v: pa.array([1.0, None, *v, None], pa.float64()).slice(2, len(v)),
    "Arrow chunked": lambda v: pa.chunked_array([pa.array(v[:50], pa.int64()), pa.array(v[50:], pa.int64())]),
    "Arrow Table": lambda v: pa.table({"v": pa.array(v, pa.int64())}),
    "Arrow structs": lambda v: pa.StructArray.from_arrays(
        [pa.array([9.0 if e is None else e for e in v])], ["v"], mask=pa.array([e is None for e in v])
    ),
}


@pytest.mark.parametrize("build", GAPS.values(), ids=GAPS)
def test_missing_entries_are_nan(make, stream, build) -> None:
    gaps = [None if i % 7 == 3 else float(v) for i, v in enumerate(stream)]
    zeroed = [0.0 if v is None else v for v in gaps]
    published = make(nonfinite="zero").publish(build(gaps))
    assert np.array_equal(published, make(nonfinite="zero").publish(zeroed))
    publisher = make()
    with pytest.raises(DataError, match=r"^chunk\[3\]: not a finite number; expected finite"):
        publisher.publish(build(gaps))
    assert publisher.n_seen == 0


EMPTY = [
    *([], (), range(0), np.empty(0), np.empty(0, np.int8), np.empty(0, object), array.array("d"), np.ma.array([])),
    *(pd.Series([]), pd.Series([], dtype="Int64"), pd.DataFrame({"v": []}), pl.Series([]), pl.DataFrame({"v": []})),
    *(pa.array([]), pa.array([], pa.float64()), pa.chunked_array([], pa.float64()), pa.table({"v": pa.array([])})),
    StreamOnly(pa.chunked_array([], pa.int8())),
]


@pytest.mark.parametrize("nothing", EMPTY, ids=lambda v: type(v).__name__)
def test_empty_chunks_change_nothing(make, stream, nothing: Any) -> None:
    publisher = make()
    parts = [publisher.publish(part) for part in (nothing, stream[:30], nothing, stream[30:50], nothing, stream[50:])]
    assert [part.size for part in parts] == [0, 0, 0, 10, 0, stream.size - 50]
    assert np.array_equal(np.concatenate(parts), make().publish(stream))


@pytest.mark.parametrize(
    ("shared", "memory"),
    [
        (lambda x: x, lambda v: v),
        (lambda x: array.array("d", x.tolist()), np.asarray),
        (lambda x: NumpyOnly(x), np.asarray),
        (lambda x: pd.Series(x), lambda v: v.to_numpy()),
        (lambda x: pd.DataFrame({"v": x}), lambda v: v["v"].to_numpy()),
        (lambda x: pl.Series(x), lambda v: v.to_numpy(allow_copy=False)),
        (lambda x: pa.array(x), lambda v: v.to_numpy()),
        (lambda x: pa.array(x).slice(3, 50), lambda v: v.to_numpy()),
        (lambda x: pa.chunked_array([pa.array(x)]), lambda v: v.chunk(0).to_numpy()),
        (lambda x: pa.table({"v": x}), lambda v: v["v"].chunk(0).to_numpy()),
    ],
    ids=lambda f: None,
)
def test_no_copy(stream, shared, memory) -> None:
    values = shared(stream)
    column = as_column(values)
    assert column.size
    assert np.shares_memory(column, memory(values))


#: Halves between doubles go to the even one; the ends of int64.
FAR = [0, 1, -1, 2**32 - 1, 2**32, -(2**32), 2**53, -(2**53), 2**62 + 2**9, 2**62 + 2**9 + 1, 2**63 - 1, -(2**63)]
FAR += [sign * (2**53 + k) for sign in (1, -1) for k in (1, 2, 3, 5)]


@pytest.mark.parametrize("size", [MIN_COMPILED - 1, MIN_COMPILED, 5003])
def test_whole_numbers_are_the_nearest_doubles(size: int) -> None:
    generator = np.random.default_rng(size)
    values = generator.integers(-(2**63), 2**63, size) >> generator.integers(0, 63, size)
    values[: len(FAR)] = FAR
    expected = np.array([float(value) for value in values.tolist()])
    apart = np.repeat(values, 2)[::2]
    for given in (values, apart, values.astype(">i8")):
        assert as_floats(given).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "parts", [{"prune": prune} for prune in range(3)] + [{"prune": 1, "smoother": "mean"}], ids=str
)
@pytest.mark.parametrize("size", [1_024, 1_264, 20_001])
def test_long_columns_of_whole_numbers_are_released_as_doubles_are(make, size: int, parts: dict[str, Any]) -> None:
    """Several trees; around borders of blocks, and of what is summed together."""
    values = np.random.default_rng(size).integers(-5, 70, 200 + size)
    values[300 : 300 + len(FAR)] = FAR
    frozen = values.copy()
    frozen.flags.writeable = False
    options = {"max_range": 4_096, "epsilon": 8.0, **parts}
    expected = make(**options).release(values.astype(float)).values
    given = [values, frozen, np.repeat(values, 2)[::2], values.astype(">i8"), values.view(np.uint64).view(np.int64)]
    for column in given:
        assert make(**options).release(column).values.tobytes() == expected.tobytes()
    # Piece by piece, through other kernels.
    publisher = make(**options)
    parts_of = [publisher.publish(piece) for piece in np.split(values, [150, 260, 777])]
    assert np.concatenate(parts_of).tobytes() == expected.tobytes()
    assert values.tobytes() == frozen.tobytes()


def test_numbers_beyond_float64_are_infinite(make) -> None:
    for values in ([1, 10**400], [1, -(10**400)], [1.0, np.longdouble("1e4000")]):
        for build in (list, lambda v: np.array(v, dtype=object), lambda v: pd.Series(v, dtype=object)):
            with pytest.raises(DataError, match=r"chunk\[1\]: not a finite"):
                make().publish(build(values))
    with pytest.raises(DataError, match=r"chunk\[1\]: not a finite"):
        make().publish(np.array([1, "1e4000"], dtype=np.longdouble))


DATE, WIDE = datetime.date(2020, 1, 1), {"a": [1], "b": [2]}
#: What is refused, by what the error says it is.
REJECTED: dict[str, list[Callable[[], Any]]] = {
    "a str": [lambda: "123"],
    "text": [lambda: ["1", "2"], lambda: [1, "a"], lambda: np.array(["1"]), lambda: np.ma.array(["a"])],
    "date": [lambda: [DATE]],
    "datetime64": [
        *(lambda: np.array(["2020-01-01"], "M8[D]"), lambda: np.ma.array(np.array(["2020"], "M8[D]"))),
        lambda: pd.Series([pd.Timestamp(0)]),
    ],
    "timestamp": [lambda: pd.Series([pd.Timestamp(0, tz="UTC")])],
    "complex128": [lambda: [1j], lambda: np.ma.array([1j]), lambda: pd.Series([1j])],
    "records": [lambda: np.zeros(2, [("a", "f8")])],
    r"shape \(3, 2\)": [lambda: np.ones((3, 2))],
    r"shape \(2, 2\)": [lambda: [[1, 2], [3, 4]], lambda: np.ma.array(np.ones((2, 2)))],
    "a single ndarray": [lambda: np.array(3.0)],
    "a single MaskedConstant": [lambda: np.ma.masked],
    "a single int": [lambda: 3],
    "a single NoneType": [lambda: None],
    "a single Int64Scalar": [lambda: pa.scalar(1)],
    "a dict": [lambda: {"a": 1}],
    "a set": [lambda: {1, 2}],
    r"a generator.*call list\(\) on it first": [lambda: (v for v in [1, 2])],
    r"objects \(Fraction\)": [lambda: [fractions.Fraction(1, 2), None]],
    r"objects \(str\)": [
        *(lambda: np.array([1, "a", None], dtype=object), lambda: pd.Series([1, "a"], dtype=object))
    ],
    r"objects \(list\)": [lambda: np.array([[1], [1, 2]], dtype=object)],
    "a list that is no array": [lambda: [[1], [1, 2]], lambda: [1.0, [2.0], 3.0]],
    "str": [lambda: pd.Series(["a"])],
    "a DataFrame of 2 columns": [lambda: pd.DataFrame(WIDE), lambda: pl.DataFrame(WIDE)],
    "a DataFrame of 0 columns": [pd.DataFrame, pl.DataFrame, lambda: pd.DataFrame(index=[3, 4])],
    "DataFrameGroupBy": [lambda: pd.DataFrame(WIDE).groupby("a")],
    "LazyFrame.*collect it first": [lambda: pl.LazyFrame({"a": [1]})],
    "string": [
        lambda: pa.array(["a"]),
        lambda: StreamOnly(pa.chunked_array([["a"]])),
        lambda: ArrayOnly(pa.array(["a"])),
    ],
    "dictionary": [
        lambda: pd.Series([1, 2], dtype="category"),
        lambda: pa.array(["a"]).dictionary_encode(),
        lambda: pa.array([1.5]).dictionary_encode(),
    ],
    "2 columns": [lambda: pa.array([{"a": 1, "b": 2}])],
    "a Table of 2 columns": [lambda: pa.table(WIDE)],
    "a StreamOnly of 2 columns": [lambda: StreamOnly(pa.table(WIDE))],
    "a StreamOnly that Arrow cannot read": [lambda: StreamOnly(3)],
    "an? ArrayOnly that Arrow cannot read": [lambda: ArrayOnly(3)],
}


@pytest.mark.parametrize("what", REJECTED)
def test_what_is_no_column_of_numbers_is_rejected_by_its_name(make, stream, what: str) -> None:
    for build in REJECTED[what]:
        publisher = make()
        first, hint = publisher.publish(stream[:60]), what.partition(".*")[2]
        with pytest.raises(DataError, match=rf"^chunk (is|holds|has) .*{what}.*") as caught:
            publisher.publish(build())
        assert hint or re.search(": expected .*(series|Series|column)", str(caught.value))
        assert np.array_equal(np.concatenate([first, publisher.publish(stream[60:])]), make().publish(stream))
        with pytest.raises(DataError, match=r"^values (is|holds|has) "):
            make().release(build())


def test_a_foreign_array_that_raises(make) -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            raise RuntimeError("needs detach()")

    with pytest.raises(DataError, match=r"chunk is a Broken that is no array \(ragged\?\): expected") as caught:
        make().publish(Broken())
    # Of an earlier test that interrupts calls the interpreter may still handle an exception.
    assert not isinstance(caught.value.__context__, RuntimeError), "a foreign message may quote a value"


HOURS = pd.date_range("2026-03-28", periods=200, freq="h", name="at")
#: Libraries of a stream, and the columns of its release as a frame, without the revised values.
LIBRARIES: dict[str, tuple[Build, type, list[str]]] = {
    "pandas": (lambda x: pd.Series(x, name="kwh"), pd.DataFrame, ["position", "kwh"]),
    "pandas of times": (lambda x: pd.Series(x, HOURS, name="kwh"), pd.DataFrame, ["at", "kwh"]),
    "pandas of a zone": (lambda x: pd.Series(x, HOURS.tz_localize("UTC")), pd.DataFrame, ["at", "value"]),
    "pandas, one column": (lambda x: pd.DataFrame({"kwh": x}, HOURS.rename(None)), pd.DataFrame, ["time", "kwh"]),
    "polars": (lambda x: pl.Series("kwh", x), pl.DataFrame, ["position", "kwh"]),
    "polars, one column": (lambda x: pl.DataFrame({"kwh": x}), pl.DataFrame, ["position", "kwh"]),
    "Arrow": (lambda x: pa.array(x), pa.Table, ["position", "value"]),
    "Arrow, one column": (lambda x: pa.table({"kwh": x}), pa.Table, ["position", "kwh"]),
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("holdout", [0, 30])
def test_a_release_has_the_frame_and_the_times_of_its_input(library: str, holdout: int) -> None:
    build, kind, columns = LIBRARIES[library]
    x = np.random.default_rng(1).gamma(2.0, 3.0, 200)
    options = {"holdout": holdout} if holdout else {"threshold": 20.0}
    made = fastdp.Adaptive(1.0, 90.0, seed=1, **options).release(build(x))
    found = pa.table(made.frame)
    assert isinstance(made.frame, kind)
    assert found.column_names == [*columns, "revised"]
    np.testing.assert_array_equal(found[columns[1]].to_numpy(), made.values)
    ends = ["2026-03-29T05:30", "2026-03-31"], ["2026-03-29T06:00", "2026-04-30"]
    if columns[0] == "position":
        assert found["position"].to_pylist() == list(range(holdout, 200))
        with pytest.raises(ParameterError, match=r"starts: expected whole numbers, because there are no times"):
            made.sum("2026-03-28", 5)
        return
    at = found[columns[0]].to_numpy()
    np.testing.assert_array_equal(at, HOURS[holdout:])
    for given in (ends, [np.array(each, "M8[us]") for each in ends], [pd.DatetimeIndex(each) for each in ends]):
        for ask in (made.sum, made.std_error, lambda *of: made.interval(*of)[0]):
            within = [(at >= np.datetime64(a)) & (at < np.datetime64(b)) for a, b in zip(*ends, strict=True)]
            begins = [int(np.argmax(each)) for each in within]
            same = ask(begins, [begin + int(each.sum()) for begin, each in zip(begins, within, strict=True)])
            np.testing.assert_array_equal(ask(*given), same)
    assert made.sum(datetime.date(2026, 3, 30), 170 - holdout) == made.sum(48 - holdout, 170 - holdout)
    if holdout:
        with pytest.raises(ParameterError, match="starts: expected times after the hold-out of 30 values"):
            made.sum("2026-03-28", "2026-03-31")


def test_many_streams_are_asked_by_their_own_times() -> None:
    x = np.arange(400.0)
    rows = pd.DataFrame({"at": [*HOURS, *(HOURS + pd.Timedelta("240h"))], "who": np.repeat(["a", "b"], 200), "v": x})
    rows = rows.sample(frac=1.0, random_state=1)
    many = fastdp.release_many(rows, 1.0, 500.0, value="v", by="who", time="at", threshold=400.0, seed=1)
    day = "2026-04-08", "2026-04-09"
    np.testing.assert_allclose(many.sum(*day, streams=["a", "b"]), [0.0, many["b"].values[24:48].sum()], rtol=1e-14)
    assert many["b"].sum(*day) == many.sum(*day, streams="b")
    assert list(many["b"].frame.columns) == ["at", "v"]
