"""Every accepted kind of input gives the same released stream; everything else is a clear DataError."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fastdp.data.column import MIN_COMPILED, as_floats
from fastdp.data.column import as_column as any_column
from fastdp.errors import DataError

NUMPY_DTYPES = [np.dtype(code) for code in (*"bhilBHILefdg", *(">" + code for code in "hilHILefd"))]
ARROW_TYPES = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
]
Build = Callable[[np.ndarray], Any]


def as_column(values: Any) -> np.ndarray:
    """What kernels see of an input."""
    return as_floats(any_column(values))


class StreamOnly:
    """Nothing but ``__arrow_c_stream__``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._inner.__arrow_c_stream__(requested_schema)


class ArrayOnly:
    """Nothing but ``__arrow_c_array__``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._inner.__arrow_c_array__(requested_schema)


class NumpyOnly:
    """Nothing but ``__array__``."""

    def __init__(self, inner: np.ndarray) -> None:
        self._inner = inner

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._inner


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


PYTHON: dict[str, Build] = {
    "list of ints": ints,
    "list of floats": lambda x: x.tolist(),
    "list of both": lambda x: [int(v) if v > 20 else float(v) for v in x],
    "list of NumPy scalars": lambda x: [np.float32(v) if v > 20 else np.int16(v) for v in x],
    "tuple": lambda x: tuple(x.tolist()),
    "deque": lambda x: collections.deque(x.tolist()),
    "array.array of doubles": lambda x: array.array("d", x.tolist()),
    "array.array of bytes": lambda x: array.array("b", ints(x)),
    "array.array of floats": lambda x: array.array("f", x.tolist()),
    "memoryview": lambda x: memoryview(x),
    "memoryview of ints": lambda x: memoryview(array.array("i", ints(x))),
    "only __array__": lambda x: NumpyOnly(x),
    "object array": lambda x: np.array(ints(x), dtype=object),
}
NUMPY: dict[str, Build] = {
    "strided": lambda x: np.repeat(x, 3)[::3],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "read-only": lambda x: x,
    "column of a Fortran array": lambda x: np.asfortranarray(np.stack([x, x + 1], axis=1))[:, 0],
    "column of a C array": lambda x: np.stack([x, x + 1], axis=1)[:, 0],
    "field of a record array": lambda x: np.array([(1, v) for v in x], dtype=[("a", "i1"), ("b", "f8")])["b"],
    "unaligned": unaligned,
    "masked, nothing masked": lambda x: np.ma.array(x),
    "masked int, nothing masked": lambda x: np.ma.array(x.astype(int)),
    "masked objects": lambda x: np.ma.array(ints(x), dtype=object),
}
PANDAS: dict[str, Build] = {
    "Series": lambda x: pd.Series(x),
    "Series of int8": lambda x: pd.Series(x.astype(np.int8)),
    "Series of objects": lambda x: pd.Series(ints(x), dtype=object),
    "Series with an index": lambda x: pd.Series(x.astype(int), index=np.arange(x.size)[::-1]),
    "Series with a repeated index": lambda x: pd.Series(x, index=np.zeros(x.size)),
    "Int64": lambda x: pd.Series(ints(x), dtype="Int64"),
    "UInt8": lambda x: pd.Series(ints(x), dtype="UInt8"),
    "Float64": lambda x: pd.Series(x, dtype="Float64"),
    "Arrow double": lambda x: pd.Series(x, dtype="double[pyarrow]"),
    "Arrow int16": lambda x: pd.Series(ints(x), dtype="int16[pyarrow]"),
    "sparse": lambda x: pd.Series(pd.arrays.SparseArray(x, fill_value=0.0)),
    "extension array": lambda x: pd.array(ints(x), dtype="Int32"),
    "Index": lambda x: pd.Index(x),
    "subclass": lambda x: OwnSeries(x),
    "DataFrame": lambda x: pd.DataFrame({"v": x}),
    "DataFrame of Int64": lambda x: pd.DataFrame({"v": pd.Series(ints(x), dtype="Int64")}),
    "column of a mixed DataFrame": lambda x: pd.DataFrame({"v": x, "w": "text"})["v"],
}
POLARS: dict[str, Build] = {
    "Series": lambda x: pl.Series(x),
    "chunked": chunked_polars,
    "slice": lambda x: pl.Series(padded(x)).slice(2, x.size),
    "Int8": lambda x: pl.Series(ints(x), dtype=pl.Int8),
    "UInt64": lambda x: pl.Series(ints(x), dtype=pl.UInt64),
    "Int128": lambda x: pl.Series(ints(x), dtype=pl.Int128),
    "Float32": lambda x: pl.Series(x.tolist(), dtype=pl.Float32),
    "subclass": lambda x: OwnPolarsSeries("v", x),
    "DataFrame": lambda x: pl.DataFrame({"v": x}),
}
ARROW: dict[str, Build] = {
    "slice with an offset": lambda x: pa.array(padded(x)).slice(2, x.size),
    "ChunkedArray": chunked_arrow,
    "ChunkedArray of int16": lambda x: chunked_arrow(x.astype(int), pa.int16()),
    "slice of a ChunkedArray": lambda x: chunked_arrow(padded(x)).slice(2, x.size),
    "Table": lambda x: pa.table({"v": chunked_arrow(x)}),
    "slice of a Table": lambda x: pa.table({"v": chunked_arrow(padded(x))}).slice(2, x.size),
    "RecordBatch": lambda x: pa.record_batch({"v": x}),
    "slice of a RecordBatch": lambda x: pa.record_batch({"v": padded(x)}).slice(2, x.size),
    "RecordBatchReader": lambda x: pa.table({"v": chunked_arrow(x)}).to_reader(),
    "only a stream, of an array": lambda x: StreamOnly(chunked_arrow(x)),
    "only a stream, of a table": lambda x: StreamOnly(pa.table({"v": chunked_arrow(x)})),
    "only a stream, of polars": lambda x: StreamOnly(chunked_polars(x)),
    "only an array": lambda x: ArrayOnly(pa.array(padded(x)).slice(2, x.size)),
    "only an array, of a batch": lambda x: ArrayOnly(pa.record_batch({"v": padded(x)}).slice(2, x.size)),
}


def named(**groups: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(build, id=f"{group}: {name}") for group, kinds in groups.items() for name, build in kinds.items()
    ]


@pytest.mark.parametrize("build", named(Python=PYTHON, NumPy=NUMPY, pandas=PANDAS, polars=POLARS, Arrow=ARROW))
def test_every_kind_gives_the_same_stream(make, stream, build: Build) -> None:
    expected = make().publish(stream)
    published = make().publish(build(stream))
    assert published.dtype == np.float64
    assert np.array_equal(published, expected)
    assert make().release(build(stream)).values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_every_numpy_dtype_gives_the_same_stream(make, stream, dtype: np.dtype) -> None:
    assert np.array_equal(make().publish(stream.astype(dtype)), make().publish(stream))


@pytest.mark.parametrize("kind", ARROW_TYPES)
def test_every_arrow_type_gives_the_same_stream(make, stream, kind: str) -> None:
    values = stream.astype(np.float16) if kind == "float16" else ints(stream)
    assert np.array_equal(make().publish(pa.array(values, kind)), make().publish(stream))


def test_another_stream_gives_another_release(make, stream) -> None:
    """Otherwise the equalities above would say nothing."""
    assert not np.array_equal(make().publish(stream + 0.5), make().publish(stream))


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b.tolist(),
        lambda b: tuple(b.tolist()),
        lambda b: b,
        lambda b: np.ma.array(b),
        lambda b: pd.Series(b),
        lambda b: pd.Series(b, dtype="boolean"),
        lambda b: pd.Series(b, dtype="bool[pyarrow]"),
        lambda b: pl.Series(b),
        lambda b: pa.array(b),
        lambda b: pa.array([True, *b.tolist(), False]).slice(1, b.size),
        lambda b: pa.chunked_array([pa.array(b[:9]), pa.array(b[9:])]),
        lambda b: pa.table({"v": pa.array(b)}),
    ],
)
def test_booleans_count_as_0_and_1(make, stream, build: Build) -> None:
    flags = stream > 25
    options = {"bound": 1, "resolution": 2.0**-10}
    assert np.array_equal(make(**options).publish(build(flags)), make(**options).publish(flags.astype(float)))


def test_range_counts(make) -> None:
    assert np.array_equal(make().publish(range(300)), make().publish(np.arange(300.0)))


def test_memmap(make, stream, tmp_path) -> None:
    stream.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.float64, mode="r")
    column = as_column(mapped)
    assert type(column) is np.ndarray
    assert np.shares_memory(column, mapped)
    assert np.array_equal(make().publish(mapped), make().publish(stream))


GAPS: dict[str, Callable[[list[float | None]], Any]] = {
    "list with None": lambda v: v,
    "list with NaN": lambda v: [np.nan if e is None else e for e in v],
    "masked float": lambda v: np.ma.array([9.0 if e is None else e for e in v], mask=[e is None for e in v]),
    "masked int": lambda v: np.ma.array([9 if e is None else int(e) for e in v], mask=[e is None for e in v]),
    "masked objects": lambda v: np.ma.array(
        [9 if e is None else e for e in v], mask=[e is None for e in v], dtype=object
    ),
    "pandas Int64": lambda v: pd.Series(v, dtype="Int64"),
    "pandas Float64": lambda v: pd.Series(v, dtype="Float64"),
    "pandas double[pyarrow]": lambda v: pd.Series(v, dtype="double[pyarrow]"),
    "pandas int64[pyarrow]": lambda v: pd.Series(v, dtype="int64[pyarrow]"),
    "pandas object": lambda v: pd.Series(v, dtype=object),
    "polars": lambda v: pl.Series(v),
    "polars Int32": lambda v: pl.Series([None if e is None else int(e) for e in v], dtype=pl.Int32),
    "polars Int128": lambda v: pl.Series([None if e is None else int(e) for e in v], dtype=pl.Int128),
    "polars chunked": lambda v: pl.Series(v[:50], dtype=pl.Float64).append(pl.Series(v[50:], dtype=pl.Float64)),
    "polars DataFrame": lambda v: pl.DataFrame({"v": v}),
    "Arrow": lambda v: pa.array(v, pa.float64()),
    "Arrow int8": lambda v: pa.array(v, pa.int8()),
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


@pytest.mark.parametrize(
    "values",
    [
        [None, True],
        pd.Series([None, True], dtype="boolean"),
        pd.Series([None, True], dtype="bool[pyarrow]"),
        pd.Series([None, True], dtype=object),
        pl.Series([None, True]),
        pa.array([None, True]),
    ],
)
def test_missing_booleans_are_nan(values: Any) -> None:
    assert np.array_equal(as_column(values), [np.nan, 1.0], equal_nan=True)


@pytest.mark.parametrize("values", [[None, None], pl.Series([None, None]), pa.nulls(2), pd.Series([None, None])])
def test_nothing_but_missing_entries(values: Any) -> None:
    assert np.isnan(as_column(values)).tolist() == [True, True]


EMPTY = [
    [],
    (),
    range(0),
    np.empty(0),
    np.empty(0, np.int8),
    np.empty(0, object),
    array.array("d"),
    np.ma.array([]),
    pd.Series([]),
    pd.Series([], dtype="Int64"),
    pd.DataFrame({"v": []}),
    pl.Series([]),
    pl.Series([], dtype=pl.Float64),
    pl.DataFrame({"v": []}),
    pa.array([]),
    pa.array([], pa.float64()),
    pa.chunked_array([], pa.float64()),
    pa.table({"v": pa.array([], pa.float64())}),
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
        (lambda x: x[5:90], lambda v: v),
        (lambda x: array.array("d", x.tolist()), np.asarray),
        (lambda x: memoryview(x), np.asarray),
        (lambda x: NumpyOnly(x), np.asarray),
        (lambda x: pd.Series(x), lambda v: v.to_numpy()),
        (lambda x: pd.DataFrame({"v": x}), lambda v: v["v"].to_numpy()),
        (lambda x: pl.Series(x), lambda v: v.to_numpy(allow_copy=False)),
        (lambda x: pl.DataFrame({"v": x}), lambda v: v["v"].to_numpy(allow_copy=False)),
        (lambda x: pa.array(x), lambda v: v.to_numpy()),
        (lambda x: pa.array(x).slice(3, 50), lambda v: v.to_numpy()),
        (lambda x: pa.chunked_array([pa.array(x)]), lambda v: v.chunk(0).to_numpy()),
        (lambda x: pa.table({"v": x}), lambda v: v["v"].chunk(0).to_numpy()),
        (lambda x: pa.record_batch({"v": x}), lambda v: v["v"].to_numpy()),
    ],
    ids=lambda f: None,
)
def test_no_copy(stream, shared, memory) -> None:
    values = shared(stream)
    column = as_column(values)
    assert column.size
    assert np.shares_memory(column, memory(values))


def test_no_copy_through_the_capsules(stream) -> None:
    column = pa.array(stream)
    for values in (StreamOnly(pa.chunked_array([column])), ArrayOnly(column)):
        assert np.shares_memory(as_column(values), column.to_numpy())


def test_one_layout_for_the_kernels(stream) -> None:
    """Contiguous, aligned, native float64 and no subclass, or kernels would be compiled again."""
    for build in [*PYTHON.values(), *NUMPY.values(), *PANDAS.values(), *POLARS.values(), *ARROW.values()]:
        column = as_column(build(stream))
        assert type(column) is np.ndarray
        assert column.dtype == np.dtype("=f8")
        assert column.flags.c_contiguous
        assert column.flags.aligned
        assert not column.flags.writeable


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


def test_the_callers_values_are_left_alone(make, stream) -> None:
    values = stream - 10.0
    before = values.copy()
    make().publish(values)
    make(prune=0).publish(values)
    assert np.array_equal(values, before)


def test_numbers_beyond_float64_are_infinite(make) -> None:
    for values in ([1, 10**400], [1, -(10**400)], [1.0, np.longdouble("1e4000")]):
        for build in (list, lambda v: np.array(v, dtype=object), lambda v: pd.Series(v, dtype=object)):
            with pytest.raises(DataError, match=r"chunk\[1\]: not a finite"):
                make().publish(build(values))
    with pytest.raises(DataError, match=r"chunk\[1\]: not a finite"):
        make().publish(np.array([1, "1e4000"], dtype=np.longdouble))


DATE = datetime.date(2020, 1, 1)
REJECTED: dict[str, tuple[Callable[[], Any], str]] = {
    "string": (lambda: "123", "a str"),
    "bytes": (lambda: b"123", "a bytes"),
    "bytearray": (lambda: bytearray(b"123"), "a bytearray"),
    "list of strings": (lambda: ["1", "2"], "text"),
    "number and string": (lambda: [1, "a"], "text"),
    "string array": (lambda: np.array(["1"]), "text"),
    "dates": (lambda: [DATE], "date"),
    "datetime64": (lambda: np.array(["2020-01-01"], "M8[D]"), "datetime64"),
    "timedelta64": (lambda: np.array([1], "m8[s]"), "timedelta64"),
    "complex list": (lambda: [1j], "complex128"),
    "complex array": (lambda: np.ones(3, np.complex64), "complex64"),
    "structured": (lambda: np.zeros(2, [("a", "f8")]), "records"),
    "2-D": (lambda: np.ones((3, 2)), r"shape \(3, 2\)"),
    "2-D of one column": (lambda: np.ones((3, 1)), r"shape \(3, 1\)"),
    "matrix": (lambda: [[1, 2], [3, 4]], r"shape \(2, 2\)"),
    "0-d array": (lambda: np.array(3.0), "a single ndarray"),
    "int": (lambda: 3, "a single int"),
    "float": (lambda: 3.0, "a single float"),
    "None": (lambda: None, "a single NoneType"),
    "object": (lambda: object(), "a single object"),
    "dict": (lambda: {"a": 1}, "a dict"),
    "dict values": (lambda: {"a": 1}.values(), "dict_values"),
    "set": (lambda: {1, 2}, "a set"),
    "generator": (lambda: (v for v in [1, 2]), "a generator"),
    "map": (lambda: map(float, "12"), "a map"),
    "decimals": (lambda: [decimal.Decimal(1)], "Decimal"),
    "fractions": (lambda: [fractions.Fraction(1, 2), None], r"objects \(Fraction\)"),
    "ragged": (lambda: [[1], [1, 2]], "a list that is no array"),
    "ragged in the middle": (lambda: [1.0, [2.0], 3.0], "a list that is no array"),
    "object array": (lambda: np.array([1, "a", None], dtype=object), r"objects \(str\)"),
    "object array of lists": (lambda: np.array([[1], [1, 2]], dtype=object), r"objects \(list\)"),
    "masked strings": (lambda: np.ma.array(["a"]), "text"),
    "masked complex": (lambda: np.ma.array([1j]), "complex128"),
    "masked dates": (lambda: np.ma.array(np.array(["2020"], "M8[D]")), "datetime64"),
    "masked 2-D": (lambda: np.ma.array(np.ones((2, 2))), r"shape \(2, 2\)"),
    "np.ma.masked": (lambda: np.ma.masked, "a single MaskedConstant"),
    "pandas strings": (lambda: pd.Series(["a"]), "str"),
    "pandas dates": (lambda: pd.Series([pd.Timestamp(0)]), "datetime64"),
    "pandas zoned dates": (lambda: pd.Series([pd.Timestamp(0, tz="UTC")]), "datetime64"),
    "pandas categories": (lambda: pd.Series([1, 2], dtype="category"), "category"),
    "pandas objects": (lambda: pd.Series([1, "a"], dtype=object), r"objects \(str\)"),
    "pandas complex": (lambda: pd.Series([1j]), "complex128"),
    "pandas decimals": (lambda: pd.Series([1], dtype=pd.ArrowDtype(pa.decimal128(5, 2))), "decimal128"),
    "pandas frame": (lambda: pd.DataFrame({"a": [1], "b": [2]}), "a DataFrame of 2 columns"),
    "pandas frame, no column": (lambda: pd.DataFrame(), "a DataFrame of 0 columns"),
    "pandas timestamp": (lambda: pd.Timestamp(0), "Timestamp"),
    "pandas NA": (lambda: pd.NA, "NAType"),
    "pandas groups": (lambda: pd.DataFrame({"a": [1], "b": [2]}).groupby("a"), "DataFrameGroupBy"),
    "polars strings": (lambda: pl.Series(["a"]), "String"),
    "polars dates": (lambda: pl.Series([DATE]), "Date"),
    "polars decimals": (lambda: pl.Series([decimal.Decimal(1)]), "Decimal"),
    "polars lists": (lambda: pl.Series([[1]]), "List"),
    "polars objects": (lambda: pl.Series([object()], dtype=pl.Object), "Object"),
    "polars frame": (lambda: pl.DataFrame({"a": [1], "b": [2]}), "a DataFrame of 2 columns"),
    "polars frame, no column": (lambda: pl.DataFrame(), "a DataFrame of 0 columns"),
    "polars lazy frame": (lambda: pl.LazyFrame({"a": [1]}), "LazyFrame"),
    "polars expression": (lambda: pl.col("a"), "Expr"),
    "arrow strings": (lambda: pa.array(["a"]), "string"),
    "arrow dates": (lambda: pa.array([DATE]), "date32"),
    "arrow decimals": (lambda: pa.array([decimal.Decimal(1)]), "decimal128"),
    "arrow dictionary": (lambda: pa.array(["a"]).dictionary_encode(), "dictionary"),
    "arrow dictionary of numbers": (lambda: pa.array([1.5]).dictionary_encode(), "dictionary"),
    "arrow lists": (lambda: pa.array([[1]]), "list"),
    "arrow structs": (lambda: pa.array([{"a": 1, "b": 2}]), "2 columns"),
    "arrow nested structs": (lambda: pa.array([{"a": {"b": 1}}]), "struct"),
    "arrow table": (lambda: pa.table({"a": [1], "b": [2]}), "a Table of 2 columns"),
    "arrow table, no column": (lambda: pa.table({}), "a Table of 0 columns"),
    "arrow batch": (lambda: pa.record_batch({"a": [1], "b": [2]}), "a RecordBatch of 2 columns"),
    "arrow scalar": (lambda: pa.scalar(1), "a single Int64Scalar"),
    "stream of strings": (lambda: StreamOnly(pa.chunked_array([["a"]])), "string"),
    "stream of a wide table": (lambda: StreamOnly(pa.table({"a": [1], "b": [2]})), "a StreamOnly of 2 columns"),
    "array of strings": (lambda: ArrayOnly(pa.array(["a"])), "string"),
    "broken stream": (lambda: StreamOnly(3), "a StreamOnly that Arrow cannot read"),
    "broken array": (lambda: ArrayOnly(3), "an? ArrayOnly that Arrow cannot read"),
}


@pytest.mark.parametrize(("build", "what"), REJECTED.values(), ids=REJECTED)
def test_rejected(make, stream, build: Callable[[], Any], what: str) -> None:
    publisher = make()
    first = publisher.publish(stream[:60])
    with pytest.raises(DataError, match=rf"^chunk (is|holds|has) .*{what}.*: expected .*(series|Series|column)"):
        publisher.publish(build())
    assert np.array_equal(np.concatenate([first, publisher.publish(stream[60:])]), make().publish(stream))
    with pytest.raises(DataError, match=r"^values (is|holds|has) "):
        make().release(build())


@pytest.mark.parametrize(
    ("values", "hint"),
    [((v for v in [1]), r"call list\(\) on it first"), (pl.LazyFrame({"a": [1]}), "collect it first")],
)
def test_hints(make, values: Any, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        make().publish(values)


def test_a_foreign_array_that_raises(make) -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            raise RuntimeError("needs detach()")

    with pytest.raises(DataError, match=r"chunk is a Broken that is no array \(ragged\?\): expected") as caught:
        make().publish(Broken())
    # Of an earlier test that interrupts calls the interpreter may still handle an exception.
    assert not isinstance(caught.value.__context__, RuntimeError), "a foreign message may quote a value"


def test_without_pyarrow(make, stream, monkeypatch) -> None:
    wrapped = StreamOnly(pa.chunked_array([pa.array(stream)]))
    expected = make().publish(stream)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"chunk is a StreamOnly.*expected pyarrow to be installed.*or a NumPy array"):
        make().publish(wrapped)
    # Everything else does without.
    assert np.array_equal(make().publish(pl.Series(stream)), expected)
    assert np.array_equal(make().publish(pd.Series(stream)), expected)
    assert np.array_equal(make().publish(OwnSeries(stream)), expected)
    assert np.array_equal(make().publish(OwnPolarsSeries("v", stream)), expected)
    assert np.array_equal(make().publish(stream.tolist()), expected)
