"""Whole numbers as doubles, in vectors."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel, real_of


@kernel
def to_floats(numbers: np.ndarray, floats: np.ndarray) -> None:
    """Write int64[n] into float64[n], each rounded to the nearest, halves to even."""
    for i in range(numbers.size):
        floats[i] = real_of(numbers[i])
