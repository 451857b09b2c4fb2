"""Quantiles with noise of their smooth sensitivity, many runs at once, for Laplace noise.

Words, rank, sensitivity, constants and cells are those of the rules, but tails below 2^-10 keep the bits of their
first word, and cells are found in doubles.  The tests compare it with the rules themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp.thresholds import PAKQuantile, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask
from fastdp.thresholds.quantile import CELLS, rank_of
from fastdp_lab.audit.runs import ManyRuns

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]


def quantile(rule: SmoothQuantile | PAKQuantile, task: ThresholdTask) -> ManyRuns:
    """Data: the hold-out."""

    def draw(data: Sequence[float], trials: int, key: Key) -> Floats:
        words: Words = np.empty(trials, np.uint64)
        WordStream(key, StreamId(Purpose.THRESHOLD)).fill(words)
        return thetas(rule, task, data, words)

    return ManyRuns(rule.guarantee(task), draw)


def thetas(rule: SmoothQuantile | PAKQuantile, task: ThresholdTask, data: Sequence[float], words: Words) -> Floats:
    """Theta by each word."""
    law, resolution = rule.law(task), task.resolution
    with_offset = isinstance(rule, PAKQuantile)
    kappa, offset = (rule.kappa(task), law.upper(rule.beta)) if with_offset else (1.0, 0.0)
    chooser = rule.start(task)
    chooser.observe(np.asarray(data, np.float64))
    steps, bound = np.sort(chooser.pack()), round(task.bound / resolution)
    rank = rank_of(rule.p, steps.size)
    scale = law.scale(steps, bound, rank, kappa)
    leading = (words >> np.uint64(1)).astype(np.float64)
    drawn = -np.log((2.0 * leading + 1.0) / 2.0**64)
    drawn = np.where(words & np.uint64(1), -drawn, drawn)
    cell = max(1, bound // CELLS)
    theta = np.floor((steps[rank - 1] + scale * (drawn + offset) + 0.5) / cell) * cell + cell // 2
    return np.clip(theta * resolution, resolution, task.bound)
