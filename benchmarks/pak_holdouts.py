"""Sorted hold-outs for the smooth sensitivity of a quantile: like POS, full of ties, and as hard as we know."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import sizes
from benchmarks.streams import DATA, item_counts
from fastdp.thresholds.smooth_noise import calibrate, decay_table


class Task(NamedTuple):
    """What the kernels take."""

    values: NDArray[np.int64]
    bound: int
    rank: int
    decay: NDArray[np.float64]


def pos() -> Task:
    """BMS-POS at eps = .05, or its like where the file is absent; a grid step of 2^-20."""
    file = DATA / "pos_length.npz"
    if file.exists():
        with np.load(file) as archive:
            first = archive["values"][: sizes.HOLDOUT].astype(np.float64)
    else:
        first = item_counts(sizes.HOLDOUT)
    return _task((np.sort(first) * 2.0**20).astype(np.int64), sizes.BOUND * 2**20, 0.995, _smoothing())


def ties() -> Task:
    """Eight different values."""
    values = np.sort(np.random.default_rng(21).integers(0, 8, sizes.HOLDOUT)) * 100
    return _task(values, sizes.BOUND, 0.995, _smoothing())


def worst() -> Task:
    """Differences D (1 + b (j - i)), b = 10^-12: all pairs lie within rounding of the best, none is left out."""
    b, spread, half = 1e-12, 2**49, sizes.HOLDOUT // 2
    step = round(spread * b)
    low = np.arange(half - 1) * step
    values = np.concatenate([low, spread + low[-1] + np.arange(1, half + 2) * step])
    return Task(values, 2**50, half + 1, decay_table(b, values.size))


def _task(values: NDArray[np.int64], bound: int, p: float, b: float) -> Task:
    return Task(values, bound, round(p * values.size), decay_table(b, values.size))


def _smoothing() -> float:
    """b of Laplace noise at the papers' eps and delta."""
    n = sizes.HOLDOUT + sizes.PUBLISHED
    return calibrate("laplace", sizes.EPSILON, 1.0 / n**2, 2.0).b


HOLDOUTS = {"POS": pos, "heavy ties": ties, "worst": worst}
