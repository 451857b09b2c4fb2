"""Query workloads: which ranges are asked."""

from __future__ import annotations

import numpy as np

from fastdp import validation
from fastdp.kinds import Integers

#: Twice the length of the longest stream still fits int64.
MAX_STREAM_LENGTH = 2**62
MAX_RANGES = 2**40


def random_ranges(
    n: int, count: int, max_range: int | None = None, seed: int | None = None
) -> tuple[Integers, Integers]:
    """Ranges [start, stop) drawn uniformly from all ranges of 1 to ``max_range`` values in a stream of n.

    A range of length j has n - j + 1 places, so short ranges are more frequent (ToPS section 3.3).

    Parameters
    ----------
    n, count : int
        Length of the published stream; how many ranges.
    max_range : int, optional
        The longest; by default n.  Longer than n counts as n.
    seed : int, optional
        For a reproducible workload.
    """
    n = validation.integer("n", n, 1, MAX_STREAM_LENGTH)
    count = validation.integer("count", count, 0, MAX_RANGES)
    longest = n if max_range is None else min(n, validation.integer("max_range", max_range, 1))
    generator = np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))
    # Lengths j and longest + 1 - j have 2 n - longest + 1 places between them, whatever j is.  So draw a
    # length and one of these places; a place beyond the length's own belongs to the other length.  Each
    # range comes from exactly two of the equally likely draws.
    length = generator.integers(1, longest, size=count, endpoint=True)
    starts = generator.integers(0, 2 * n - longest + 1, size=count)
    own = n - length + 1
    other = starts >= own
    starts -= np.where(other, own, 0)
    length = np.where(other, longest + 1 - length, length)
    return starts, starts + length
