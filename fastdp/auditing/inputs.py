"""Adjacent inputs that hurt, and likelihood ratios of mechanisms whose law is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastdp.auditing.mechanisms import SplitTrials

Floats = NDArray[np.float64]
#: Points added and removed, batch by batch.
Batches = list[tuple[Sequence[float], Sequence[float]]]

#: Values are clipped to so many grid steps.
THETA = 64

#: One value more in the first leaf, and one event more.
VALUE: tuple[list[int], list[int]] = [THETA, 0, 0, 0], [0, 0, 0, 0]
EVENT: tuple[list[int], list[int]] = [1, 0, 0, 0], [0, 0, 0, 0]
#: The same for a counter that is left after two values, and goes on; and after five.
LEFT: tuple[list[int | None], list[int | None]] = [1, 0, None, 0], [0, 0, None, 0]
LEFT_LATE: tuple[list[int | None], list[int | None]] = [1, 0, 0, 0, 0, None], [0, 0, 0, 0, 0, None]
#: One value in a leaf that is not the first.
SECOND: tuple[list[int], list[int]] = [0, THETA, 0, 0], [0, 0, 0, 0]
#: Points on [0, 1], added and removed, without any that was removed.
POINTS: tuple[tuple[Floats, Floats], tuple[Floats, Floats]] = (np.zeros(3), np.zeros(0)), (np.zeros(2), np.zeros(0))

#: For each of them a pair of hold-outs with nearly the largest exact loss, at a candidate that wins often.
HOLDOUTS: dict[str, tuple[list[float], list[float]]] = {
    "noisy-max-laplace": ([2, 2, 2], [0, 2, 2]),
    "noisy-max-exponential": ([2, 2, 3], [2, 2, 2]),
    "scale-free-laplace": ([2, 2, 2], [0, 2, 2]),
    "scale-free-exponential": ([0, 2, 2], [2, 2, 2]),
}

#: Four values held out and one published, theta at its likeliest to tell the hold-outs apart (by enumeration).
CHOICE: tuple[list[float], list[float]] = [1, 1, 2, 2, 4], [1, 1, 1, 2, 4]
#: One value of two trees, behind the hold-out.
TREES: tuple[list[float], list[float]] = [1, 2, 3, 4, 4, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0]
TREES_IN_PIECES = [TREES[0][:4], TREES[0][4:]], [TREES[1][:4], TREES[1][4:]]
#: Hold-out, a published period, a later hold-out: one value differs in the later hold-out, or in the period.
LATER_HOLDOUT: tuple[list[list[float]], list[list[float]]] = (
    [[4, 4, 4, 4], [0, 0], [1, 1, 2, 2]],
    [[4, 4, 4, 4], [0, 0], [1, 1, 1, 2]],
)
PERIOD: tuple[list[list[float]], list[list[float]]] = (
    [[4, 4, 4, 4], [4, 0], [0, 0, 0, 0]],
    [[4, 4, 4, 4], [0, 0], [0, 0, 0, 0]],
)
#: One value of a stream of blocks of four.
REVISED: tuple[list[float], list[float]] = [4.0] + [0.0] * 15, [0.0] * 16
#: A stream and its altered copy: a value differs that is in front of their first difference, or behind it.
Replay = tuple[list[float], list[float]]
REPLAY_PREFIX: tuple[Replay, Replay] = ([4, 0], [4, 4]), ([0, 0], [0, 4])
REPLAY_AFTER: tuple[Replay, Replay] = ([0, 4], [4, 0]), ([0, 0], [4, 4])


def attack(depth: int, epsilon: float) -> tuple[Floats, Floats]:
    """Additions and removals on [0, 1] that keep the paper's score at its threshold all along one path.

    The cell of depth i around 0 is to hold i penalties of a level more than nothing: additions go into the deepest
    one, removals into the siblings.
    """
    plan = SplitTrials(epsilon, depth, repaired=False).plan
    penalty = plan.bias / plan.unit
    wanted = [round((i + 0.15) * penalty) for i in range(depth)]
    siblings = 0.75 * 2.0 ** -np.arange(depth - 1.0)
    return np.zeros(wanted[-1]), np.repeat(siblings, np.diff(wanted))


def additions(*batches: Sequence[float]) -> Batches:
    """Batches of points that appear."""
    return [(batch, []) for batch in batches]


def late_events(batches: int, events: int = 1) -> tuple[Batches, Batches]:
    """Streams on [0, 1], the second with one addition more in each of the first batches after the first one."""
    first = [0.1] * 40
    return (
        additions(first, *[[]] * (batches - 1)),
        additions(first, *[[0.1]] * events, *[[]] * (batches - 1 - events)),
    )


def repeated_counts(outputs: Floats) -> Floats:
    """Log-likelihood ratio of one point more in every count after the first, from the totals after each batch."""
    ratio: Floats = np.clip(np.diff(outputs[:, 3::4], axis=1), 0.0, 1.0).sum(axis=1)
    return ratio


def open_sums(outputs: Floats) -> Floats:
    """Log-likelihood ratio of a binary counter's outputs for a first value of 0 or THETA, times the scale.

    Node [1, 2^j] is released alone at time 2^j; a shift of Laplace noise by THETA has a clipped linear ratio.
    """
    times = [2**j - 1 for j in range(outputs.shape[1].bit_length())]
    total: Floats = np.clip(outputs[:, times], 0.0, THETA).sum(axis=1)
    return total


def open_nodes(outputs: Floats) -> Floats:
    """The same for all nodes of a tree with two children a node: those that hold the first leaf."""
    leaves = (outputs.shape[1] + 1) // 2
    first = np.cumsum([0, *(leaves >> height for height in range(leaves.bit_length() - 1))])
    total: Floats = np.clip(outputs[:, first], 0.0, THETA).sum(axis=1)
    return total


def open_lag_sums(outputs: Floats) -> Floats:
    """The same for PAK's running sums of a hold-out 4, 4, 4, 4 (behind theta), or 0, 4, 4, 4."""
    total: Floats = np.clip(outputs[:, [1, 2, 4]] - np.array([0.0, 4.0, 12.0]), 0.0, 4.0).sum(axis=1)
    return total


def open_tree(outputs: Floats) -> Floats:
    """The same for PAK's running sums of four values in two pieces, theta before each."""
    total: Floats = np.clip(outputs[:, [1, 2, 5]], 0.0, 4.0).sum(axis=1)
    return total
