"""Exact privacy loss of a step's split decisions (PHDStream section 3.5; the proof is in ``docs/points.md``).

For evaluation, never for release: it looks at the secret scores. A decision is whether score + noise exceeds the
threshold; its probabilities are tails of discrete Laplace noise, in closed form. One event moves the scores on the
path from the root to the leaf that holds it, by one point each, and what all other decisions were has the same
probability with and without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.points import decomposition
from fastdp.points.decomposition import Tree
from fastdp.points.domains import CellParameters

#: Number of a step, and its tree with the scores of its decisions.
Steps = dict[int, Tree]


@contextlib.contextmanager
def noted_steps() -> Iterator[Steps]:
    """Trees with the scores of PrivTree's decisions, step by step, while entered."""
    steps: Steps = {}
    real = decomposition.take_step

    def noting(plan: CellParameters, kept: Any, added: Any, removed: Any, step: int, *others: Any) -> Any:
        found = real(plan, kept, added, removed, step, *others)
        steps[step] = found[1]
        return found

    with mock.patch.object(decomposition, "take_step", noting):
        yield steps


@dataclass(frozen=True)
class TreeLoss:
    """Log-likelihood ratios of one step's decisions, at every leaf of the tree that came out."""

    more: Floats
    fewer: Floats

    @property
    def worst(self) -> float:
        """The largest absolute value."""
        there = self.fewer[~np.isnan(self.fewer)]
        return float(np.abs(np.concatenate([self.more, there])).max(initial=0.0))


def log_above(excess: Integers, scale: float) -> Floats:
    """ln P[noise > -excess] for discrete Laplace noise: a score that exceeds the threshold by ``excess``.

    P[N >= k] is q^k / (1 + q) for k >= 1 and 1 - q^(1 - k) / (1 + q) for k <= 0, q = exp(-1 / scale).
    """
    least = 1.0 - excess.astype(np.float64)
    one = np.log1p(np.exp(-1.0 / scale))
    upper = -np.maximum(least, 1.0) / scale - one
    lower = np.log1p(-np.exp((np.minimum(least, 0.0) - 1.0) / scale - one))
    logs: Floats = np.where(least >= 1.0, upper, lower)
    return logs


def log_at_most(excess: Integers, scale: float) -> Floats:
    """ln P[noise <= -excess], by symmetry P[noise >= excess]."""
    return log_above(1 - excess, scale)


def tree_step_loss(plan: CellParameters, tree: Tree) -> TreeLoss:
    """The loss of all split decisions of one step, for one more or one fewer event at any leaf."""
    floor = plan.threshold - plan.bias
    scale = float(plan.split_distribution.scale)
    split = tree.first >= 0
    decided = (tree.depth < plan.max_depth) & (tree.measure > 0.0)

    def log_probability(score: Integers) -> Floats:
        excess = np.maximum(score, floor) - plan.threshold
        logs = np.where(split, log_above(excess, scale), log_at_most(excess, scale))
        return np.where(decided, logs, 0.0)

    here = log_probability(tree.score)
    paths = [_along_paths(tree, here - log_probability(tree.score + sign * plan.unit)) for sign in (1, -1)]
    more, fewer = paths[0][tree.leaves], paths[1][tree.leaves]
    if plan.repaired:
        ends = tree.ends[tree.leaves]
        fewer = np.where(ends[:, 1] > ends[:, 0], fewer, np.nan)
    return TreeLoss(more, fewer)


def _along_paths(tree: Tree, losses: Floats) -> Floats:
    sums = losses.copy()
    for begin, end in zip(tree.starts[1:-1].tolist(), tree.starts[2:].tolist(), strict=True):
        sums[begin:end] += sums[tree.parent[begin:end]]
    return sums
