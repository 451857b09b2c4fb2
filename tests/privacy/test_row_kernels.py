"""Many trials at once are the mechanisms' own kernels, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.audit import row_kernels
from tests.oracles import binary_counter


@pytest.mark.parametrize("length", [1, 4, 7])
def test_every_row_is_a_running_sum_of_its_own(length: int) -> None:
    generator = np.random.default_rng(2)
    levels, steps = length.bit_length(), generator.integers(0, 9, length)
    nodes = [length >> height for height in range(levels)]
    noise = generator.integers(-50, 50, (6, sum(nodes)))
    offsets = np.cumsum([0, *nodes[:-1]])
    out = np.empty((6, length), np.int64)
    row_kernels.count_streams(steps, levels, noise, offsets, out)
    for row, sums in zip(noise, out, strict=True):
        by_height = np.split(row, offsets[1:])
        expected = binary_counter.running_sums(steps.tolist(), lambda height, k, own=by_height: own[height][k])
        assert sums.tolist() == expected
