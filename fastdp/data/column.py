"""One column from lists, NumPy, pandas, polars or Arrow: as numbers, or as Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastdp._lazy import imported
from fastdp.errors import DataError, ParameterError, StateError, argument
from fastdp.kinds import Array, Floats, Integers

if TYPE_CHECKING:
    import pyarrow as pa

#: Handling of NaN and infinity by a publisher: refuse them, or count them as 0.
Nonfinite = Literal["raise", "zero"]
#: Values of other types are converted in pieces that stay in the cache (1 MiB of floats).
PIECE = 2**17
FLOAT64, INT64 = np.dtype(np.float64), np.dtype(np.int64)
#: Entries from which on NumPy, which converts them one by one, takes longer than the call of a kernel.
MIN_COMPILED = 1024
#: Bits of an array's flags: C-contiguous and aligned.
IN_PLACE = 0x0101
NOT_FINITE = "not a finite number"
ACCEPTED = (
    "a one-dimensional list, NumPy array (or another library's with DLPack), pandas or polars series, or Arrow array "
    "of real numbers"
)


def no_library(name: str | None) -> ParameterError:
    """The error for a library that is not installed."""
    told = f"{(name or '').partition('.')[0]} is not installed, which reads tables and their files"
    return ParameterError(f"{told}: expected pip install 'fastdp-streams[tables]'")


class Module:
    """A library of an extra, imported on use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        member = getattr(imported(self._name, no_library(self._name)), attribute)
        setattr(self, attribute, member)
        return member


narwhals: Any = Module("narwhals.stable.v2")
arrow: Any = Module("pyarrow")
compute: Any = Module("pyarrow.compute")
#: Types whose entries Arrow does not take, or takes for others: of polars' objects it would get the addresses.
_BY_ENTRY = re.compile("Object|U?Int128|Sparse")
#: Kinds of NumPy's dtypes whose names show more, such as the length of the longest text.
_KINDS = {"U": "text", "T": "text", "S": "bytes", "V": "records", "O": "objects"}


def kind_of(dtype: object) -> str:
    """Kind of the entries, without lengths or categories, which would reveal data."""
    if isinstance(dtype, np.dtype) and dtype.kind in _KINDS:
        return _KINDS[dtype.kind]
    match = re.match(r"\w+", str(dtype))
    return match.group() if match else type(dtype).__name__


def entry_at(name: str, wrong: Array | np.bool_, fault: str) -> str:
    """The first wrong entry: ``values[17]: not a finite number (3 of 1,000 entries)``."""
    return f"{name}[{int(np.argmax(wrong))}]: {fault} ({np.count_nonzero(wrong):,} of {np.size(wrong):,} entries)"


def is_number(value: object) -> bool:
    """True for one real number."""
    return isinstance(value, (Real, np.bool_))


def as_column(values: object, name: str = "chunk") -> Array:
    """The values as one column of real numbers, shared with the caller if possible; else DataError.

    ``values``: as ACCEPTED says, or with the Arrow PyCapsule interface.
    """
    if type(values) is np.ndarray and values.dtype is FLOAT64 and values.ndim == 1:
        return values
    array = _as_numpy(values, name)
    if array.ndim == 0:
        raise _refused(name, f"is a single {type(values).__name__}")
    if array.ndim != 1:
        raise _refused(name, f"has shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise _refused(name, f"holds {_kind(array)}")
    return array


def _refused(name: str, said: str, more: str = "") -> DataError:
    return DataError(f"{name} {said}: expected {ACCEPTED}{more}")


def as_floats(column: Array) -> Floats:
    """`column` for kernels: float64, contiguous, aligned, read-only."""
    if is_in_order(column, FLOAT64):
        return read_only(column)
    if is_in_order(column, INT64):
        floats = np.empty(column.size)
        convert(column, floats)
    else:
        # A longdouble beyond float64 is infinite: publishers judge that, not NumPy's warnings.
        with np.errstate(over="ignore"):
            floats = np.require(column, np.float64, ("C", "A", "E"))
    return read_only(floats)


def as_finite(floats: Floats, nonfinite: str, name: str, hint: str = "") -> Floats:
    """`floats` with 0 for non-finite ones, or DataError with `hint`."""
    finite = np.isfinite(floats)
    if finite.all():
        return floats
    if nonfinite == "raise":
        raise DataError(f"{entry_at(name, ~finite, NOT_FINITE)}; expected finite values{hint}")
    return read_only(np.where(finite, floats, 0.0))


def read_only(column: Array) -> Array:
    """A read-only view, as kernels take it."""
    view = column[:]
    view.flags.writeable = False
    return view


def is_in_order(column: Array, dtype: np.dtype[np.generic]) -> bool:
    """True if kernels can read `column` without a copy."""
    return column.dtype == dtype and column.flags.num & IN_PLACE == IN_PLACE and type(column) is np.ndarray


def convert(column: Array, floats: Floats) -> None:
    """Write `column`, rounded to float64, into `floats`."""
    if column.size >= MIN_COMPILED and is_in_order(column, INT64):
        from fastdp_kernels.streams import online_pass  # loads Numba

        online_pass.to_floats(read_only(column), floats)
        return
    with np.errstate(over="ignore"):
        floats[:] = column


def pieces(column: Array) -> Iterable[tuple[int, Floats]]:
    """Chunks of `column` as float64, with offsets."""
    if column.dtype == np.float64:
        return [(0, as_floats(column))] if column.size else []
    return ((begin, as_floats(column[begin : begin + PIECE])) for begin in range(0, column.size, PIECE))


def _kind(array: Array) -> str:
    if array.dtype.kind != "O":
        return f"{kind_of(array.dtype)} entries"
    foreign = {type(entry).__name__ for entry in array.tolist() if entry is not None and not _is_real(entry)}
    return f"objects ({', '.join(sorted(foreign)[:3])})"


def _is_real(entry: object) -> bool:
    return isinstance(entry, (int, float, Decimal, np.floating, np.integer, np.bool_))


def _as_numpy(values: Any, name: str) -> Array:
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind == "O":
        values = np.array(values.tolist(), dtype=object)
    if isinstance(values, np.ndarray):
        return _objects_to_floats(np.asarray(values))
    if type(values) is not list:
        if isinstance(values, (str, bytes, bytearray, Mapping, set, frozenset)):
            raise _refused(name, f"is a {type(values).__name__}")
        if "pandas" in homes_of(values) and len(getattr(values, "shape", ())) == 2:
            # For Arrow its index would be a column.
            _one_column(values, values.shape[1], name)
            values = values.iloc[:, 0]
        if _BY_ENTRY.match(str(type_of(values))):
            return _as_numpy(values.to_list(), name)
        if is_arrow(values):
            return _from_arrow(values, name)
        if (array := numpy_of(values)) is not values:
            return _as_numpy(array, name)
        for method, hint in (("__next__", "call list() on it first"), ("collect", "collect it first")):
            if hasattr(values, method):
                raise _refused(name, f"is a {type(values).__name__}", f" ({hint})")
    array = as_array(values)
    if array is None:
        raise _refused(name, f"is a {type(values).__name__} that is no array (ragged?)")
    return _objects_to_floats(array)


def exports_arrow(values: object) -> bool:
    """True for objects that Arrow reads without a copy."""
    return hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__")


def is_arrow(values: object) -> bool:
    """True for columns and tables that Arrow reads."""
    return not isinstance(type_of(values), np.dtype) and (exports_arrow(values) or "pandas" in homes_of(values))


def type_of(values: object) -> object:
    """Type of the entries, of any library; None without one."""
    return getattr(values, "dtype", None)


def homes_of(values: object) -> set[str]:
    """Libraries of the type and its bases."""
    return {base.__module__.partition(".")[0] for base in type(values).__mro__}


def numpy_of(values: Any) -> Any:
    """NumPy's arrays for those of xarray and DLPack."""
    if isinstance(values, np.ndarray):
        return values
    if "xarray" in homes_of(values) and hasattr(values, "to_numpy"):
        return values.to_numpy()
    if not hasattr(values, "__dlpack__") or hasattr(values, "__arrow_c_array__"):
        return values
    array = as_array(values)
    return values if array is None else array


def as_array(values: Any) -> Array | None:
    """NumPy's array of `values`; None on an error, whose text may quote one."""
    exported = type(values) is not list and hasattr(values, "__dlpack__")
    if not exported or hasattr(values, "__array__"):
        try:
            return np.asarray(values)
        except Exception:
            if not exported:
                return None
    ways: tuple[dict[str, Any], ...] = ({}, {"device": "cpu", "copy": True})
    for options in ways:
        with suppress(Exception):
            return np.from_dlpack(values, **options)
    return None


def _objects_to_floats(array: Array) -> Array:
    if array.dtype.kind != "O" or array.ndim != 1:
        return array
    entries = array.tolist()
    if all(entry is None or _is_real(entry) for entry in entries):
        return np.array([np.nan if entry is None else _to_float(entry) for entry in entries])
    return array


def _to_float(entry: float | Decimal) -> float:
    try:
        return float(entry)
    except OverflowError:
        return float("inf") if entry > 0 else float("-inf")
    except ValueError:  # a signalling NaN of decimal numbers
        return float("nan")


def as_reals(values: object, name: str) -> Floats:
    """`values` of any shape as contiguous float64; else ParameterError."""
    array = as_array(values)
    if array is None:
        raise ParameterError(f"{name} is a {type(values).__name__} that is no array: expected real numbers")
    if array.dtype.kind not in "biuf":
        raise ParameterError(f"{name} holds {kind_of(array.dtype)} entries: expected real numbers")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float64)


def _one_column(values: object, width: int, name: str) -> None:
    if width != 1:
        raise DataError(f"{name} is a {type(values).__name__} of {width} columns: expected one column")


def open_arrow(values: object, name: str, accepted: str = ACCEPTED) -> pa.ChunkedArray:
    """Arrow column by PyCapsule; DataError without pyarrow, or if refused."""
    try:
        if isinstance(values, arrow.ChunkedArray):
            return values
        # A table's stream is a struct a chunk; a column's is the column.
        streams = hasattr(values, "__arrow_c_stream__")
        found = arrow.chunked_array(values if streams else [arrow.array(values, from_pandas=True)])
        kind = found.type
        if arrow.types.is_dictionary(kind) and arrow.types.is_string_view(kind.value_type):
            # Arrow takes no entries of views.
            texts = [(each.indices, each.dictionary.cast(arrow.large_string())) for each in found.chunks]
            found = arrow.chunked_array([arrow.DictionaryArray.from_arrays(*each) for each in texts])
        return found
    except ParameterError:
        raise
    except Exception:  # whatever a foreign exporter raises
        raise DataError(f"{name} is a {type(values).__name__} that Arrow cannot read: expected {accepted}") from None


def _from_arrow(values: object, name: str) -> Array:
    column = open_arrow(values, name)
    kind, types = column.type, arrow.types
    if types.is_struct(kind):
        _one_column(values, kind.num_fields, name)
        # flatten() passes a missing struct on to its field; field() would show what lies beneath.
        kind = kind.field(0).type
        column = arrow.chunked_array([chunk.flatten()[0] for chunk in column.chunks], type=kind)
    if types.is_null(kind) or types.is_decimal(kind):
        column, kind = column.cast("float64"), arrow.float64()
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise _refused(name, f"holds {kind_of(kind)} entries")
    # Missing entries, whatever the type, make a chunk float64 with NaN.
    chunks = [chunk.cast("int8") if types.is_boolean(kind) else chunk for chunk in column.chunks]
    parts = [chunk.to_numpy(zero_copy_only=False) for chunk in chunks]
    array: Array = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)
    return array


def as_whole(values: object, n_seen: int, holdout: int) -> Array:
    """`values` as a column longer than the hold-out; else DataError or StateError."""
    if n_seen:
        raise StateError(
            f"release() on a publisher that has seen {n_seen} values: expected a fresh one (use publish())"
        )
    column = as_column(values, "values")
    check_size(column.size, holdout)
    return column


def check_size(size: int, holdout: int, name: str = "values") -> None:
    """DataError unless the values outnumber the hold-out."""
    if not size and not holdout:
        raise DataError(f"{name} has no entries: expected at least one value")
    if size <= holdout:
        shorter = (
            f"a smaller {argument(holdout=...)} (ToPS, Adaptive: {argument(expected_length=size)}), or "
            if holdout > 1
            else ""
        )
        hint = f"; {shorter}a public {argument(threshold=...)} withholds none" if holdout and name == "values" else ""
        raise DataError(
            f"{name} has {size} entries: expected more than the hold-out of {holdout}, after which published values "
            f"begin{hint}"
        )


# Sums of 64-bit integers that may exceed 64 bits.

HALF = 32
LOW_HALF = (1 << HALF) - 1


def exact_sum(values: Integers) -> Any:
    """Sum fewer than 2^31 rows in Python integers."""
    high, low = (values >> HALF).sum(axis=0), (values & LOW_HALF).sum(axis=0)
    return np.asarray(high.astype(object) * (1 << HALF) + low.astype(object), object).tolist()


# Entries of lists and of columns of objects.

#: Types of one kind: the first that fits; any other type is a kind of its own.
_FAMILIES: tuple[tuple[type, ...], ...] = (
    (bool, np.bool_),
    (np.datetime64,),
    (np.timedelta64,),
    (int, float, Decimal, np.integer, np.floating),
    (str,),
    (bytes,),
    (datetime,),
)


def one_family(entries: Iterable[Any]) -> bool:
    """True if entries but missing ones are of one kind."""
    kinds = {kind for kind in set(map(type, entries)) if kind.__name__ not in ("NoneType", "NAType")}
    if len(kinds) == 1 and not any(issubclass(kind, datetime) for kind in kinds):
        return True
    families = set[Any]()
    for kind in kinds:
        family = next((family for family in _FAMILIES if issubclass(kind, family)), (kind,))
        # NaN and NaT are missing; times have a zone, or none.
        missing = issubclass(kind, (float, np.floating, datetime, np.datetime64))
        present = [entry for entry in entries if type(entry) is kind and entry == entry] if missing else [None]
        families |= {(family, getattr(entry, "tzinfo", None) is None) for entry in present}
    return len(families) <= 1


def _plain(entries: Sequence[Any]) -> Any:
    """NumPy's scalars in one array, or as Python's, which stay exact."""
    if isinstance(entries[0], np.datetime64):
        return np.array(entries, "datetime64[us]")
    if len(set(map(type, entries))) == 1:
        return np.asarray(entries)
    return [each.item() if isinstance(each, np.generic) else each for each in entries]


def as_arrow(values: Any, name: str) -> pa.Array:
    """A list, array or series as one Arrow array; else DataError."""
    try:
        if _BY_ENTRY.match(str(type_of(values))):
            values = values.to_list()
        if is_arrow(values):
            return open_arrow(values, name).combine_chunks()
        kind = type_of(values)
        if (not isinstance(kind, np.dtype) or kind.kind == "O") and not one_family(values):
            raise TypeError
        if isinstance(values, (list, tuple)) and values and isinstance(values[0], np.generic):
            values = _plain(values)
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            # Arrow has no minutes and hours.
            values = values.astype("datetime64[us]")
        return arrow.array(values, from_pandas=True)
    except Exception:  # Arrow's words may quote an entry
        raise DataError(f"{name} is a {type(values).__name__}: expected a column of one type") from None
