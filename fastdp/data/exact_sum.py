"""Sums of 64-bit integers that may exceed 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp.data.kinds import Integers

HALF = 32
LOW_HALF = (1 << HALF) - 1


def exact_sum(values: Integers) -> Any:
    """Sum along the first axis in Python integers: an int, or nested lists of them; fewer than 2^31 rows."""
    high, low = (values >> HALF).sum(axis=0), (values & LOW_HALF).sum(axis=0)
    return np.asarray(high.astype(object) * (1 << HALF) + low.astype(object), object).tolist()
