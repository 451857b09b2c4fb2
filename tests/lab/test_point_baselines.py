"""The baselines of PHDStream: what they release, and what they promise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fastdp.counters import BinaryTree, Block, Simple
from fastdp.errors import StateError
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import Box
from fastdp.points.decomposition import root_only, take_step
from fastdp.points.released_tree import PrivTreeParameters
from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch, OfflineOnStream
from tests.noise_values import unbound_key

SQUARE = Box([0.0, 0.0], [1.0, 1.0])
PRIVTREE = PrivTreeParameters(SQUARE, 1.0)

ALL = [OfflineOnStream, OfflineOnBatch, FixedTree]


def points(n: int, seed: int) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).exponential(0.1, (n, 2)), 0, 1)


def even(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 2))


@pytest.mark.parametrize("baseline", ALL)
def test_the_first_step_is_privtree(baseline) -> None:
    batch = points(1000, 1)
    stream = baseline(SQUARE, 1.0, key=unbound_key(2))
    with pytest.raises(StateError, match="no tree yet"):
        _ = stream.tree
    assert stream.total == 0.0
    stream.advance(batch)
    plan, codes = PRIVTREE.plan, PRIVTREE.codes(batch, "batch")
    key = unbound_key(2).derive("noise", 0)
    tree = take_step(plan, root_only(plan), codes, codes[:0], 0, key)[1].shown
    counts = tree.projected[tree.leaves]
    scale = 1000 / counts.sum() if baseline is OfflineOnBatch else 1.0
    assert np.allclose(stream.tree.counts, counts * scale)
    assert abs(len(stream.sample()) - stream.total) < 6 * math.sqrt(stream.tree.n_leaves)
    assert np.array_equal(stream.sample(), stream.sample())
    assert stream.tree.count([0, 0], [1, 1]) == pytest.approx(stream.total)


def test_baseline_1_sees_the_points_present() -> None:
    stream = OfflineOnStream(SQUARE, 1.0, key=unbound_key(3))
    first, second = points(2000, 1), points(1500, 2)
    stream.advance(first)
    stream.advance(second, first)
    # The same tree as from the points that are left.
    alone = OfflineOnStream(SQUARE, 1.0, key=unbound_key(3))
    alone.advance(None)
    alone.advance(second)
    assert np.array_equal(stream.tree.counts, alone.tree.counts)
    assert stream.total == pytest.approx(1500, abs=250)


def test_baseline_2_scales_the_batch() -> None:
    stream = OfflineOnBatch(SQUARE, 1.0, seed=4)
    stream.advance(points(2000, 1))
    stream.advance(points(500, 2), points(100, 3))
    assert stream.total == pytest.approx(2400)
    stream.advance(None, points(5000, 1))
    assert stream.total == 0.0


@pytest.mark.parametrize("counter", [Simple(), Block(2), BinaryTree(8)])
def test_baseline_3_counts_in_fixed_cells(counter) -> None:
    """By hand: the counter's noise in each cell of the first tree, and the points that come and go there."""
    stream = FixedTree(SQUARE, 0.8, counter, key=unbound_key(5), max_depth=5)
    stream.advance(even(6000, 1))
    tree, batches = stream.tree, [(even(300, 10 + t), even(200, 20 + t)) for t in range(1, 6)]
    state: np.ndarray = np.zeros((tree.n_leaves, counter.width), np.int64)
    exact = np.rint(tree.counts)
    for step, (added, removed) in enumerate(batches, 1):
        stream.advance(added, removed)
        noise, key = np.empty(tree.n_leaves, np.int64), unbound_key(5).derive("noise", step)
        distribution = sampler.laplace_distribution(Fraction(counter.draws) / Fraction(0.8))
        sampler.fill(noise, distribution, key, StreamId(Purpose.CELL, number=step))
        exact += counter.step(state, noise)
        for sign, batch in ((1, added), (-1, removed)):
            last = tree.upper == 1.0
            held = [
                np.count_nonzero(((batch >= low) & ((batch < high) | top)).all(axis=1))
                for low, high, top in zip(tree.lower, tree.upper, last, strict=True)
            ]
            assert sum(held) == len(batch)
            exact += sign * np.array(held)
        assert np.array_equal(stream.tree.lower, tree.lower)
        assert stream.total == exact.sum()
        assert exact.min() > 0, "nothing is projected"
        assert np.allclose(stream.tree.counts, exact)
