"""Names of types in annotations."""

from __future__ import annotations

from typing import Any, TypeAlias

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
#: An object of a JSON text.
Json: TypeAlias = dict[str, Any]
