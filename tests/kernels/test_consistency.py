"""The integer consistency map: exactly consistent, shift-equivariant, equal to the oracle, near least squares."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastdp.perturbers.hierarchy import HierarchyShape, consistency_weights
from fastdp_kernels.streams import hierarchy_nodes
from tests.oracles import tops

SHAPES = [(2, 1, 1), (2, 1, 5), (2, 3, 4), (3, 2, 4), (5, 1, 3), (16, 1, 2), (16, 3, 2), (16, 2, 3), (7, 5, 1)]


def plan(fan_out: int, tops_: int, levels: int) -> HierarchyShape:
    leaves = tops_ * fan_out ** (levels - 1)
    return HierarchyShape(fan_out, levels, 0, levels, 1, tops_, leaves, leaves)


def split(nodes: np.ndarray, shape: HierarchyShape) -> list[np.ndarray]:
    """Levels from the flat layout, leaves first."""
    levels, start, width = [], 0, shape.leaves
    for _ in range(shape.levels):
        levels.append(nodes[start : start + width])
        start, width = start + width, width // shape.fan_out
    return levels


def truth_tree(leaves: np.ndarray, shape: HierarchyShape) -> np.ndarray:
    """A consistent integer tree with these leaves."""
    levels = [leaves]
    for _ in range(shape.levels - 1):
        levels.append(levels[-1].reshape(-1, shape.fan_out).sum(axis=1))
    return np.concatenate(levels)


def run(nodes: np.ndarray, shape: HierarchyShape) -> np.ndarray:
    out = nodes.copy()
    hierarchy_nodes.make_consistent(out[None], shape.tops, shape.fan_out, shape.levels, consistency_weights(shape))
    return out


def random_nodes(shape: HierarchyShape, generator: np.random.Generator) -> np.ndarray:
    scale = int(generator.choice([1, 3, 1000, 2**33, 2**50]))
    return np.rint(generator.laplace(0, scale, shape.nodes)).astype(np.int64)


def test_a_thousand_random_trees() -> None:
    generator = np.random.default_rng(31)
    for number in range(1000):
        shape = plan(*SHAPES[number % len(SHAPES)])
        noise = random_nodes(shape, generator)
        done = run(noise, shape)
        levels = split(done, shape)
        for below, above in itertools.pairwise(levels):
            assert np.array_equal(below.reshape(-1, shape.fan_out).sum(axis=1), above), "children sum to the parent"
        truth = truth_tree(generator.integers(0, int(generator.choice([1, 100, 2**40])) + 1, shape.leaves), shape)
        assert np.array_equal(run(noise + truth, shape), done + truth), "f(T + N) = T + f(N)"


def test_wrapping_around_keeps_both_properties() -> None:
    """Even where sums overflow int64, f is a map of the noisy counts modulo 2^64."""
    generator = np.random.default_rng(32)
    for shape in (plan(16, 2, 3), plan(2, 3, 4), plan(3, 2, 4)):
        noise = generator.integers(-(2**63), 2**63, shape.nodes)
        truth = truth_tree(generator.integers(-(2**63), 2**63, shape.leaves), shape)
        assert np.array_equal(run(noise + truth, shape), run(noise, shape) + truth)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_oracle(shape: tuple[int, int, int]) -> None:
    generator = np.random.default_rng(33)
    for _ in range(10):
        form = plan(*shape)
        noise = random_nodes(form, generator)
        expected = tops.consistent_integers(split(noise, form), form.fan_out)
        for ours, theirs in zip(split(run(noise, form), form), expected, strict=True):
            assert ours.tolist() == theirs


@pytest.mark.parametrize(("fan_out", "levels"), [(16, 2), (2, 13), (3, 11)])
def test_trees_that_are_settled_in_groups_do_not_touch_each_other(fan_out: int, levels: int) -> None:
    each = max(1, hierarchy_nodes.CACHED // fan_out ** (levels - 1))
    shape = plan(fan_out, 2 * each + 1, levels)
    noise = random_nodes(shape, np.random.default_rng(36))
    rows = np.concatenate([level.reshape(shape.tops, -1) for level in split(noise, shape)], axis=1)
    hierarchy_nodes.make_consistent(rows, 1, fan_out, levels, consistency_weights(shape))
    done = np.concatenate([level.reshape(shape.tops, -1) for level in split(run(noise, shape), shape)], axis=1)
    assert np.array_equal(done, rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_is_least_squares_but_for_rounding(shape: tuple[int, int, int]) -> None:
    form = plan(*shape)
    noise = np.rint(np.random.default_rng(34).laplace(0, 1e6, form.nodes)).astype(np.int64)
    exact = tops.least_squares(split(noise, form), form.fan_out)
    ours = run(noise, form)[: form.leaves]
    assert np.abs(ours - exact).max() <= 2.0 * form.levels
    unfinished = noise[: form.leaves]
    assert form.levels == 1 or np.abs(unfinished - exact).max() > 1e4, "the comparison must be able to fail"
