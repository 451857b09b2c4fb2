"""All nodes of a tree in one pass: equal to sums level by level, whatever the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp_kernels.streams.hierarchy_nodes import PIECE, release_tree
from tests.oracles import nodes as oracle

RESOLUTION = 2.0**-3


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("fan_out", "levels", "tops"),
    # Pieces of one leaf, of whole trees, of parts of a tree; nodes wider than a piece; several tops.
    [(2, 1, 5), (2, 4, 1), (2, 4, 3), (2, 13, 1), (3, 8, 1), (16, 4, 1), (1500, 2, 2)],
)
def test_every_node_is_its_leaves_and_its_noise(fan_out: int, levels: int, tops: int, in_place: bool) -> None:
    leaves = tops * fan_out ** (levels - 1)
    widths = [leaves // fan_out**level for level in range(levels)]
    generator = np.random.default_rng(leaves)
    for n in {1, leaves // 2, leaves - 1, leaves, min(leaves, PIECE + 1)} - {0}:
        values = generator.uniform(-1.0, 30.0, n)
        noise = generator.integers(-(2**40), 2**40, sum(widths))
        rounded = np.rint(np.clip(values / RESOLUTION, 0.0, 160.0)).astype(np.int64)
        expected = np.array(oracle.noisy_sums(rounded.tolist(), noise, leaves, fan_out, levels)) * RESOLUTION
        out = noise.copy().view(np.float64) if in_place else np.empty(noise.size)
        given = out.view(np.int64) if in_place else noise
        scratch = np.empty(2 * max(PIECE, fan_out) + leaves, np.int64)
        release_tree(values, 1.0 / RESOLUTION, 160.0, given, fan_out, levels, leaves, RESOLUTION, scratch, out)
        start = 0
        for level, width in enumerate(widths):
            complete = n // fan_out**level
            assert np.array_equal(out[start : start + complete], expected[start : start + complete])
            assert np.isnan(out[start + complete : start + width]).all()
            start += width
