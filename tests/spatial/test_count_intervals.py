"""Intervals of counts in boxes: noise of the cells inside, and what cut cells hide."""

from __future__ import annotations

import numpy as np
import pytest

import fastdp
from fastdp.counters import BinaryTree, Block, Simple
from fastdp.errors import ParameterError, StateError
from fastdp.releases.intervals import MODEL_WIDTH, laplace_variance, wider_quantile
from fastdp.spatial import Box, PrivTree

POINTS = np.random.default_rng(1).beta(2.0, 5.0, (3000, 2))


def stream(**options) -> fastdp.PHDStream:
    made = fastdp.PHDStream(Box([0.0, 0.0], [1.0, 1.0]), **({"epsilon": 1.0, "max_depth": 6, "seed": 1} | options))
    for batch in np.array_split(POINTS, 3):
        made.advance(batch)
    return made


@pytest.mark.parametrize("counter", [Simple(), Block(4), BinaryTree(16), BinaryTree(6)])
def test_open_draws_are_those_of_the_counters_errors(counter) -> None:
    # One draw of size 1 in each of many counters: a draw that is open shows in that counter's error.
    steps = 40
    state = np.zeros((steps, counter.width), np.int64)
    errors = np.zeros(steps, np.int64)
    for number in range(steps):
        errors += counter.step(state, (np.arange(steps) == number).astype(np.int64))
        assert np.abs(errors).sum() == counter.open_draws(number + 1)


def test_whole_cells_have_their_noise() -> None:
    made = stream()
    cells = made.tree
    variance = 3 * laplace_variance(made._plan.cell_distribution.scale)
    alone = made.std_error(cells.lower[:9], cells.upper[:9])
    np.testing.assert_allclose(alone, np.sqrt(variance))
    everything = made.std_error([0.0, 0.0], [1.0, 1.0])
    assert everything == pytest.approx(np.sqrt(cells.n_leaves * variance))
    nothing = made.interval([0.5, 0.5], [0.5, 0.7])
    assert nothing == (0.0, 0.0)


def test_cut_cells_hide_their_points() -> None:
    made = stream(max_depth=0)
    variance, count = 3 * laplace_variance(made._plan.cell_distribution.scale), made.total
    found = made.std_error([0.0, 0.0], [0.5, 0.5])
    assert found**2 == pytest.approx(variance / 16 + (count + np.sqrt(variance)) ** 2 * 3 / 16)
    low, high = made.interval([0.0, 0.0], [0.5, 0.5], 0.8)
    half = MODEL_WIDTH * wider_quantile(0.8) * found
    assert high == pytest.approx(count / 4 + half)
    assert low == max(0.0, count / 4 - half)


def test_intervals_hold_their_answers_and_most_of_the_truth() -> None:
    made = stream()
    corners = np.sort(np.random.default_rng(2).random((2, 200, 2)), axis=0)
    low, high = made.interval(*corners)
    answers = made.count(*corners)
    assert (low <= answers).all()
    assert (answers <= high).all()
    truth = ((corners[0][:, None] <= POINTS) & (corners[1][:, None] > POINTS)).all(axis=2).sum(axis=1)
    assert np.mean((low <= truth) & (truth <= high)) > 0.94


def test_what_has_no_interval_says_why() -> None:
    with pytest.raises(ParameterError, match="confidence"):
        stream().interval([0.0, 0.0], [0.5, 0.5], 2.0)
    adaptive = fastdp.AdaptivePHDStream(Box([0.0, 0.0], [1.0, 1.0]), 1.0, seed=1)
    adaptive.advance(POINTS)
    # Points that wait for the next count are in no released number.
    with pytest.raises(StateError, match="does not state the noise"):
        adaptive.interval([0.0, 0.0], [0.5, 0.5])
    tree = PrivTree(Box([0.0, 0.0], [1.0, 1.0]), epsilon=1.0, seed=1).fit(POINTS)
    with pytest.raises(StateError, match="does not state the noise"):
        tree.std_error([0.0, 0.0], [0.5, 0.5])
