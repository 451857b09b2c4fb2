"""The split decisions' exact privacy loss: below epsilon / 2 with the repaired score, above it with the paper's."""

from __future__ import annotations

import itertools
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import stats

from fastdp.noise.key import Key
from fastdp.points import Box, decomposition
from fastdp.points.phdstream import PHDStream
from fastdp_lab.audit import tree_loss
from tests import stat

SQUARE = Box([0.0, 0.0], [1.0, 1.0])

#: As in the paper, with half of epsilon for decisions.
phd_stream = partial(PHDStream, total_share=0.0)


def advance(stream: PHDStream, added, removed=None) -> tree_loss.TreeLoss:
    """One step, and the loss of its decisions."""
    with tree_loss.noted_steps() as steps:
        stream.advance(added, removed)
    return tree_loss.tree_step_loss(stream._plan, steps[stream.n_steps - 1])


@pytest.mark.parametrize("scale", [0.4, 3.0, 12.5, 1e6])
def test_tails_are_those_of_the_law(scale: float) -> None:
    with mpmath.workdps(700):
        q = mpmath.exp(-1 / mpmath.mpf(scale))

        def at_least(k: int) -> mpmath.mpf:
            return q**k / (1 + q) if k >= 1 else 1 - q ** (1 - k) / (1 + q)

        for excess in (-400, -37, -2, -1, 0, 1, 2, 50, 300):
            above = float(mpmath.log(at_least(1 - excess)))
            below = float(mpmath.log(1 - at_least(1 - excess)))
            array = np.array([excess])
            assert tree_loss.log_above(array, scale)[0] == pytest.approx(above, rel=1e-12)
            assert tree_loss.log_at_most(array, scale)[0] == pytest.approx(below, rel=1e-12)


def decisions_probability(plan, residents, codes: list[int], tree: frozenset, depth: int) -> float:
    """ln P[this tree comes out], naively: score by score, from the distribution's tails."""
    scale = float(plan.split_distribution.scale)
    total = 0.0

    def visit(path: tuple[int, ...]) -> None:
        nonlocal total
        if len(path) == depth:
            return
        own = sum(1 for code in codes if code >> (depth - len(path)) == int("0" + "".join(map(str, path)), 2))
        score = max(plan.unit * own - len(path) * plan.bias, plan.threshold - plan.bias)
        excess = np.array([score - plan.threshold])
        if path in tree:
            total += tree_loss.log_above(excess, scale)[0]
            visit((*path, 0))
            visit((*path, 1))
        else:
            total += tree_loss.log_at_most(excess, scale)[0]

    visit(())
    return total


def test_the_loss_is_the_log_ratio_of_whole_trees() -> None:
    """All trees of depth 2: probabilities sum to 1, and the loss along a path is the ratio of two of them."""
    stream = phd_stream(Box(0, 1), 1.5, max_depth=2, seed=1, threshold=1.0)
    plan, residents = stream._plan, stream._state.kept
    trees = [
        frozenset(),
        *(frozenset({(), *inner}) for r in range(3) for inner in itertools.combinations([(0,), (1,)], r)),
    ]
    for codes in ([], [0], [1, 1, 2], [0] * 9 + [3] * 4):
        logs = [decisions_probability(plan, residents, codes, tree, 2) for tree in trees]
        assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-12)
    seen = set()
    for seed in range(60):
        codes = np.array([0, 0, 1, 3, 3, 3], np.int64)
        _, visit = decomposition.take_step(plan, residents, codes, codes[:0], 0, Key.from_seed(seed))
        loss = tree_loss.tree_step_loss(plan, visit)
        depth = visit.depth
        tree = frozenset(
            tuple(int(x) for x in np.binary_repr(int(c), int(k))) if k else ()
            for c, k, first in zip(visit.code, depth, visit.first, strict=True)
            if first >= 0
        )
        seen.add(tree)
        here = decisions_probability(plan, residents, codes.tolist(), tree, 2)
        for j, leaf in enumerate(visit.leaves):
            extra = int(visit.code[leaf]) << int(2 - depth[leaf])
            there = decisions_probability(plan, residents, [*codes.tolist(), extra], tree, 2)
            assert loss.more[j] == pytest.approx(here - there, abs=1e-9)
            inside = [c for c in codes.tolist() if c >> int(2 - depth[leaf]) == int(visit.code[leaf])]
            if inside:
                fewer = codes.tolist()
                fewer.remove(inside[0])
                there = decisions_probability(plan, residents, fewer, tree, 2)
                assert loss.fewer[j] == pytest.approx(here - there, abs=1e-9)
            else:
                assert np.isnan(loss.fewer[j])
    assert len(seen) >= 4


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("fan_out", [2, 3])
def test_no_scores_whatever_make_a_path_cost_more(fan_out: int, epsilon: float) -> None:
    """The worst case of the proof, by search: scores on a path that fall by the bias or more, all of them split."""
    plan = phd_stream(Box(0, 1), epsilon, max_depth=12, fan_out=fan_out)._plan
    scale, floor = float(plan.split_distribution.scale), plan.threshold - plan.bias
    generator = np.random.default_rng(5)
    worst = 0.0
    lasts = np.concatenate([generator.integers(-2 * plan.unit, 3 * plan.unit, 300), np.arange(-3, 4), [plan.unit]])
    for last in lasts.tolist():
        for slack in (0, 1, plan.unit // 3):
            path = floor + last + (plan.bias + slack) * np.arange(12)
            now = tree_loss.log_above(np.maximum(path, floor) - plan.threshold, scale)
            less = tree_loss.log_above(np.maximum(path - plan.unit, floor) - plan.threshold, scale)
            worst = max(worst, float(np.sum(now - less)))
    budget = float(plan.epsilon_tree)
    assert worst <= budget + 1e-9
    if epsilon <= 1.0:
        assert worst > 0.8 * budget, "the bound is nearly met: noise 0.8 times as large would break the claim"


def random_batch(generator: np.random.Generator, size: int) -> np.ndarray:
    return np.clip(generator.exponential(0.1, (int(generator.integers(0, size)), 2)), 0, 1)


@pytest.mark.parametrize("counter", ["simple", "block", "binary"])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_whole_runs_stay_below_the_budget(epsilon: float, counter: str) -> None:
    generator = np.random.default_rng(3)
    stream = phd_stream(SQUARE, epsilon, counter, max_depth=14, seed=6)
    worst = 0.0
    for _ in range(60):
        worst = max(worst, advance(stream, random_batch(generator, 300), random_batch(generator, 300)).worst)
    assert 0.3 * epsilon / 2 < worst <= epsilon / 2


def attack(score: str, seed: int, depth: int = 18, epsilon: float = 1.0) -> float:
    """Removals of siblings keep every score on one deep path at the threshold: F rises from parent to child."""
    stream = phd_stream(Box(0, 1), epsilon, max_depth=depth, score=score, seed=seed, retention=100)
    penalty = stream._plan.bias / stream._plan.unit
    # The cell at depth i on the path to 0 is to hold i * penalty more than nothing.
    wanted = [round((i + 0.15) * penalty) for i in range(depth)]
    siblings = [0.75 * 2.0**-i for i in range(depth - 1)]
    removed = np.repeat(siblings, np.diff(wanted))
    added = np.full(wanted[-1], 0.0)
    return advance(stream, added[:, None], removed[:, None]).worst


def test_an_adversary_breaks_the_papers_score_and_not_the_repaired_one() -> None:
    budget = 0.5
    papers = [attack("paper", seed) for seed in range(200)]
    repaired = [attack("repaired", seed) for seed in range(200)]
    assert max(papers) > 2 * budget
    assert np.mean(np.array(papers) > budget) > 0.05, "and not by a rare accident"
    assert max(repaired) <= budget
    bound = phd_stream(Box(0, 1), 1.0, max_depth=18, score="paper").guarantee.epsilon - 0.5
    assert max(papers) <= bound


@pytest.mark.statistical
def test_split_frequencies_are_those_of_the_exact_law() -> None:
    """The loss is computed from the distribution that the decisions really have."""
    plan = phd_stream(Box(0, 1), 2.0, max_depth=1, threshold=1.0)._plan
    residents, codes, trials = decomposition.root_only(plan), np.array([0, 1], np.int64), 40_000
    base, splits = Key.from_seed(stat.seed(83)), 0
    for step in range(trials):
        _, visit = decomposition.take_step(plan, residents, codes, codes[:0], step, base)
        splits += int(visit.first[0] >= 0)

    def p_value(scale: float) -> float:
        exact = float(np.exp(tree_loss.log_above(np.array([2 * plan.unit - plan.threshold]), scale)[0]))
        return float(2 * stats.norm.sf(abs(splits - trials * exact) / np.sqrt(trials * exact * (1 - exact))))

    stat.accept(p_value(float(plan.split_distribution.scale)))
    stat.reject(p_value(float(plan.split_distribution.scale) / 1.2))
