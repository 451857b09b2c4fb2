"""The baselines of PHDStream: what they release, and what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastdp.counters import BinaryTree, Block, Simple
from fastdp.errors import StateError
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import Box, PrivTree
from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch, OfflineOnStream
from tests.noise_values import step_keys, unbound_key

SQUARE = Box([0.0, 0.0], [1.0, 1.0])

ALL = [OfflineOnStream, OfflineOnBatch, FixedTree]


def points(n: int, seed: int) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).exponential(0.1, (n, 2)), 0, 1)


@pytest.mark.parametrize("baseline", ALL)
def test_the_first_step_is_privtree(baseline) -> None:
    batch = points(1000, 1)
    stream = baseline(SQUARE, 1.0, key=unbound_key(2))
    with pytest.raises(StateError, match="no tree yet"):
        _ = stream.tree
    assert stream.total == 0.0
    sample = stream.step(batch)
    tree = PrivTree(SQUARE, 1.0, key=unbound_key(2)).fit(batch)
    scale = 1000 / tree.total if baseline is OfflineOnBatch else 1.0
    assert np.allclose(stream.tree.counts, tree.counts * scale)
    assert abs(len(sample) - stream.total) < 6 * math.sqrt(stream.tree.n_leaves)
    assert stream.count([0, 0], [1, 1]) == pytest.approx(stream.total)


def test_baseline_1_sees_the_points_present() -> None:
    stream = OfflineOnStream(SQUARE, 1.0, key=unbound_key(3))
    first, second = points(2000, 1), points(1500, 2)
    stream.advance(first)
    stream.advance(second, first)
    # Additions and removals cancel cell by cell: the same tree as from the points that are left.
    alone = OfflineOnStream(SQUARE, 1.0, key=unbound_key(3))
    alone.advance(None)
    alone.advance(second)
    assert np.array_equal(stream.tree.counts, alone.tree.counts)
    assert stream.total == pytest.approx(1500, abs=250)
    assert stream.guarantee.epsilon == math.inf
    assert "NOT private" in stream.guarantee.derivation[0]


def test_baseline_2_scales_the_batch() -> None:
    stream = OfflineOnBatch(SQUARE, 1.0, seed=4)
    stream.advance(points(2000, 1))
    stream.advance(points(500, 2), points(100, 3))
    assert stream.total == pytest.approx(2400)
    assert stream.guarantee.epsilon == 1.0
    assert any("public" in line for line in stream.guarantee.derivation)
    stream.advance(None, points(5000, 1))
    assert stream.total == 0.0


@pytest.mark.parametrize("counter", [Simple(), Block(2), BinaryTree(8)])
def test_baseline_3_counts_in_fixed_cells(counter) -> None:
    stream = FixedTree(SQUARE, 0.8, counter, seed=5, max_depth=7)
    stream.advance(points(1500, 1))
    tree = stream.tree
    exact = stream._state.tree.released[stream._state.tree.leaves].copy()
    rule = counter
    state = np.zeros((tree.n_leaves, rule.width), np.int64)
    steps = [(points(1500, 1), points(0, 1)), *((points(300, 10 + t), points(200, 20 + t)) for t in range(1, 6))]
    keys = step_keys(stream, steps)
    for step, (added, removed) in list(enumerate(steps))[1:]:
        stream.advance(added, removed)
        noise = np.empty(tree.n_leaves, np.int64)
        distribution = sampler.laplace_distribution(stream._machine.distribution.scale)
        sampler.fill(noise, distribution, keys[step], StreamId(Purpose.CELL, number=step))
        exact += rule.step(state, noise)
        for sign, batch in ((1, added), (-1, removed)):
            last = tree.upper == 1.0
            held = [
                np.count_nonzero(((batch >= low) & ((batch < high) | top)).all(axis=1))
                for low, high, top in zip(tree.lower, tree.upper, last, strict=True)
            ]
            assert sum(held) == len(batch)
            exact += sign * np.array(held)
        assert np.array_equal(stream.tree.lower, tree.lower)
        visit = stream._state.tree
        assert np.array_equal(visit.released[visit.leaves], exact)
        assert stream.total == max(exact.sum(), 0)
    assert stream.guarantee.epsilon == 0.8
    assert stream.guarantee.simulated
