"""What arrays are called in annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Places in other arrays.
Indices = NDArray[np.int64]
