"""Query workloads: which ranges are asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastdp import validation


def random_ranges(
    n: int, count: int, max_range: int | None = None, seed: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranges [start, stop) drawn uniformly from all ranges of 1 to ``max_range`` values in a stream of n.

    Parameters
    ----------
    n : int
        Length of the published stream.
    count : int
        How many ranges.
    max_range : int, optional
        The longest; by default n.  Longer than n counts as n.
    seed : int, optional
        For a reproducible workload.

    Returns
    -------
    starts, stops : int64[count]
        0 <= start < stop <= n, stop - start <= max_range.  Source: ToPS section 3.3 (a range of length j
        has n - j + 1 places, so short ranges are more frequent).
    """
    n = validation.integer("n", n, 1)
    count = validation.integer("count", count, 0)
    longest = n if max_range is None else min(n, validation.integer("max_range", max_range, 1))
    generator = np.random.default_rng(seed)
    # Lengths 1 .. longest have n, n - 1, ... places: number the ranges and find the length by inversion.
    places = longest * n - longest * (longest - 1) // 2
    number = generator.integers(0, places, size=count)
    # Places of lengths up to j: j n - j (j - 1) / 2; solve for j in floats, then mend the rounding.
    length = np.floor((2 * n + 1 - np.sqrt((2 * n + 1.0) ** 2 - 8.0 * number)) / 2).astype(np.int64)
    for _ in range(2):
        length -= length * n - length * (length - 1) // 2 > number
        length += (length + 1) * n - (length + 1) * length // 2 <= number
    starts = number - (length * n - length * (length - 1) // 2)
    return starts, starts + length + 1
