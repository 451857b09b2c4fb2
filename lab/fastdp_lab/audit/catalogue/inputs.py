"""Adjacent inputs with a large loss, and likelihood ratios of mechanisms whose law is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: Points added and removed, batch by batch.
Batches = list[tuple[Sequence[float], Sequence[float]]]

#: One event more at the first step.
EVENT: tuple[list[int], list[int]] = [1, 0, 0, 0], [0, 0, 0, 0]
#: Hold-outs with nearly the largest exact loss, at a candidate that wins often.
HOLDOUTS: dict[str, tuple[list[float], list[float]]] = {
    "noisy-max-laplace": ([2, 2, 2], [0, 2, 2]),
    "noisy-max-exponential": ([2, 2, 3], [2, 2, 2]),
    "scale-free-laplace": ([2, 2, 2], [0, 2, 2]),
    "scale-free-exponential": ([0, 2, 2], [2, 2, 2]),
}
#: Four held-out values and a published one, which is most likely to show theta (by enumeration).
CHOICE: tuple[list[float], list[float]] = [1, 1, 2, 2, 4], [1, 1, 1, 2, 4]
#: One value of two trees, after the hold-out.
TREES: tuple[list[float], list[float]] = [1, 2, 3, 4, 4, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0]
#: Hold-out, a published period, a later hold-out: one value differs in the later hold-out, or in the period.
LATER_HOLDOUT: tuple[list[list[float]], list[list[float]]] = (
    [[4, 4, 4, 4], [0, 0], [1, 1, 2, 2]],
    [[4, 4, 4, 4], [0, 0], [1, 1, 1, 2]],
)
PERIOD: tuple[list[list[float]], list[list[float]]] = (
    [[4, 4, 4, 4], [4, 0], [0, 0, 0, 0]],
    [[4, 4, 4, 4], [0, 0], [0, 0, 0, 0]],
)
#: The last held-out value and the first published one: both of one window.
WINDOW: tuple[list[float], list[float]] = [1, 1, 2, 2, 4], [1, 1, 2, 1, 0]
#: Two published values, of one window.
PAIR: tuple[list[list[float]], list[list[float]]] = [[4, 4, 0, 0]], [[0, 0, 0, 0]]
#: One value of a stream of blocks of four.
REVISED: tuple[list[float], list[float]] = [4.0] + [0.0] * 15, [0.0] * 16
#: A hold-out, and so much growth behind it that theta rises to the bound of 64; then the value that differs,
#: and the rest of its block.
GROWTH: list[float] = [0.0, 0.0, 0.0, 8.0] * 256 + [64.0] * 640
RISEN: tuple[list[float], list[float]] = [*GROWTH, 64.0, *[0.0] * 31], [*GROWTH, 0.0, *[0.0] * 31]
#: A stream and its altered copy: a value differs before their first difference, or after it.
Replay = tuple[list[float], list[float]]
REPLAY_PREFIX: tuple[Replay, Replay] = ([4, 0], [4, 4]), ([0, 0], [0, 4])
REPLAY_AFTER: tuple[Replay, Replay] = ([0, 4], [4, 0]), ([0, 0], [4, 4])


def additions(*batches: Sequence[float]) -> Batches:
    """Batches of points that are added."""
    return [(batch, []) for batch in batches]


def late_events(batches: int, events: int = 1) -> tuple[Batches, Batches]:
    """Streams on [0, 1]; the second has one addition more in each of the first ``events`` batches after batch 0."""
    first = [0.1] * 40
    return (
        additions(first, *[[]] * (batches - 1)),
        additions(first, *[[0.1]] * events, *[[]] * (batches - 1 - events)),
    )


def repeated_counts(outputs: Floats) -> Floats:
    """Log-likelihood ratio of one point more in every count after the first, from the totals after each batch."""
    ratio: Floats = np.clip(np.diff(outputs[:, 3::4], axis=1), 0.0, 1.0).sum(axis=1)
    return ratio


def open_lag_sums(outputs: Floats) -> Floats:
    """Log-likelihood ratio, times the scale, of PAK's running sums for a hold-out 4, 4, 4, 4 or 0, 4, 4, 4.

    Node [1, 2^j] is released alone at time 2^j; a shift of Laplace noise has a clipped linear log-ratio.
    """
    total: Floats = np.clip(outputs[:, [1, 2, 4]] - np.array([0.0, 4.0, 12.0]), 0.0, 4.0).sum(axis=1)
    return total


def open_tree(outputs: Floats) -> Floats:
    """The same for PAK's running sums of four values in two pieces, with theta before each piece."""
    total: Floats = np.clip(outputs[:, [1, 2, 5]], 0.0, 4.0).sum(axis=1)
    return total
