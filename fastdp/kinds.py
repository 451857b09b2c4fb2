"""Names of types in annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
#: Records with named fields, as kernels take them.
Records: TypeAlias = NDArray[Any]
#: Indices into other arrays.
Indices = NDArray[np.int64]
#: An array of any type.
Array = NDArray[Any]
#: A column of numbers: a list, NumPy array, pandas or polars series, Arrow array.
Values: TypeAlias = ArrayLike


class SupportsArray(Protocol):
    """Series or array that NumPy can convert."""

    def __array__(self) -> Array: ...


#: A column of numbers, never a single number (:data:`Values` allows one).
NumberColumn: TypeAlias = Sequence[float] | SupportsArray
#: An object of a JSON text.
Json: TypeAlias = dict[str, Any]
#: A length of time: a timedelta, or a text such as "90s", "15min", "1h", "1d", "1w", "1mo", "1y".
Duration: TypeAlias = str | timedelta
#: A point in time: a datetime, a date, a NumPy datetime64, or ISO text such as "2024-03-31T01:00".
Instant: TypeAlias = str | date | np.datetime64
#: Public bounds of a value: an upper one, from 0, or a lower and an upper one.
Bounds: TypeAlias = float | tuple[float, float]
#: Keys of a table: a list of entries, or of tuples for several columns; a mapping of columns to lists; "public".
Keys: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]] | Literal["public"]


class Frame(Protocol):
    """Frame of pandas, polars or pyarrow, LazyFrame, DuckDB relation, Dataset, Arrow stream, or path."""
