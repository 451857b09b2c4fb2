"""Names of types in annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Indices into other arrays.
Indices = NDArray[np.int64]
#: An array of any type.
Array = NDArray[Any]
#: A column of numbers as users have it: a list, NumPy array, pandas or polars series, Arrow array.
Values: TypeAlias = ArrayLike


class SupportsArray(Protocol):
    """A series of pandas or polars, or an array of Arrow or NumPy."""

    def __array__(self) -> Array: ...


#: The same, but never a single number, which :data:`Values` may be.
NumberColumn: TypeAlias = Sequence[float] | SupportsArray
#: An object of a JSON text.
Json: TypeAlias = dict[str, Any]
