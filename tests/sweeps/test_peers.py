"""The peers compute what fastdp computes, so that their times may be compared."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import shared
from benchmarks.peers import numpy_peers, open_dp
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import Tree, client, output_counts
from benchmarks.speed.local import BINS, cell_counts, report_values
from fastdp.local import Hybrid
from fastdp.local.distribution import estimate
from fastdp_kernels.streams import online_pass


def test_consistency() -> None:
    tree = Tree.make(16, 2**16)
    theirs = numpy_peers.make_consistent(tree.float_levels(), 16)
    other = np.array(open_dp.consistent_leaves(16)(tree.breadth_first())) if open_dp.INSTALLED else None
    tree.make_consistent()
    # Rounding: at most one step a level on the way up and one on the way down.
    most = 2 * tree.shape.levels
    assert np.abs(tree.nodes[: 2**16] - theirs).max() < most
    assert other is None or other.size == 2**16


def test_online_pass() -> None:
    n, block, step = 2**16, 256, 2.0**-20
    values, noise = item_counts(n), np.random.default_rng(1).integers(-(2**30), 2**30, n // block)
    sums, totals, predictions = np.empty(n // block, np.int64), np.empty(n // block), np.empty(n // block + 1)
    out, expected, scratch = np.empty(n), np.empty(n), np.empty(n)
    online_pass.sum_blocks(values, 1 / step, shared.THETA / step, block, 0, sums)
    online_pass.add_noise(sums, noise, step, totals)
    predictions[0] = shared.THETA / 2.0
    np.divide(totals, block, out=predictions[1:])
    online_pass.emit_blocks(totals, predictions, block, 0, out)
    numpy_peers.publish(values, shared.THETA, noise * step, block, scratch, expected)
    assert np.allclose(out, expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("prune", [0, 2])
def test_whole_release(prune: int) -> None:
    values, shape = item_counts(shared.HOLDOUT + shared.PUBLISHED), numpy_peers.Shape(16, 5 - prune, prune)
    generator = np.random.default_rng(1)
    published = numpy_peers.release(
        values, shared.HOLDOUT, shared.BOUND, shared.EPSILON, shape, shared.MAX_RANGE, generator
    )
    assert published.sum() == pytest.approx(np.minimum(values[shared.HOLDOUT :], shared.THETA).sum(), rel=0.05)


def test_hybrid_reports() -> None:
    values = report_values()
    off = numpy_peers.hybrid(values, 1.0, np.random.default_rng(2)) - values
    assert np.mean(off) == pytest.approx(0.0, abs=0.02)
    assert np.var(off) == pytest.approx(Hybrid(1.0).worst_variance, rel=0.02)


def test_square_wave_em() -> None:
    cells, products = cell_counts(2.0), numpy_peers.products(client(2.0).distribution, BINS)
    same = estimate(client(2.0).distribution, 2.0, output_counts(2.0), accelerate=False)
    theta, steps = numpy_peers.estimate(*products, cells, 1e-3 * math.exp(2.0), 10_000)
    assert abs(same.iterations - steps) <= 1
    assert np.abs(same.frequencies - theta).max() < 1e-6
