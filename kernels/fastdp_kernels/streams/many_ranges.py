"""Sums over ranges of many published streams that lie one after another, stream i in [borders[i], borders[i + 1])."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel
from fastdp_kernels.streams.ranges import prefix_blocks, sum_before


@kernel
def prefix_streams(
    values: np.ndarray, borders: np.ndarray, block: int, places: np.ndarray, prefix: np.ndarray
) -> None:
    """Block prefix sums of each stream: those of stream i fill prefix[places[i]:places[i + 1]]."""
    for i in range(borders.size - 1):
        prefix_blocks(values[borders[i] : borders[i + 1]], block, prefix[places[i] : places[i + 1]])


@kernel
def sum_stream_ranges(
    values: np.ndarray,
    borders: np.ndarray,
    prefix: np.ndarray,
    places: np.ndarray,
    block: int,
    streams: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    out: np.ndarray,
) -> None:
    """Sum of values[start:stop] of stream streams[k] for each query k: out is float64[q], the others int64[q]."""
    for k in range(out.size):
        i = streams[k]
        own = values[borders[i] : borders[i + 1]]
        sums = prefix[places[i] : places[i + 1]]
        out[k] = sum_before(own, sums, block, stops[k]) - sum_before(own, sums, block, starts[k])
