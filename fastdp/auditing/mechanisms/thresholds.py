"""Thresholds, chosen from one hold-out many times."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import AccuracyWarning
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId, WordStream
from fastdp.thresholds import NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask
from fastdp.thresholds.noisy_choice import CountedHoldout
from fastdp.thresholds.quantile import CELLS
from fastdp.thresholds.sorted_holdout import rank_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NoisyMaxTrials:
    """Noisy max on one hold-out: the rule's own choices, of which a publisher takes one."""

    rule: NoisyMax | ScaleFree
    task: ThresholdTask

    @property
    def guarantee(self) -> Guarantee:
        """The rule's."""
        return self.rule.guarantee(self.task)

    def chooser(self, data: Sequence[float]) -> CountedHoldout:
        """The rule's, with the hold-out in it."""
        with warnings.catch_warnings():
            # A hold-out small enough to enumerate is too short to be of use.
            warnings.simplefilter("ignore", AccuracyWarning)
            chooser = self.rule.start(self.task)
        chooser.observe(np.asarray(data, np.float64))
        return chooser

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: the hold-out."""
        return self.chooser(data).choices(key, trials_)


@dataclass(frozen=True)
class SmoothQuantileTrials:
    """A quantile with noise of its smooth sensitivity.

    A vectorised twin of the rules' release and ``SmoothNoise.draw`` for Laplace noise: the same words, rank,
    sensitivity, constants and cells, but tails below 2^-10 keep the bits of their first word, and cells are found in
    doubles.  The tests compare it with the rules themselves.
    """

    rule: SmoothQuantile | PAKQuantile
    task: ThresholdTask

    @property
    def guarantee(self) -> Guarantee:
        """The rule's."""
        return self.rule.guarantee(self.task)

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: the hold-out."""
        words: NDArray[np.uint64] = np.empty(trials_, np.uint64)
        WordStream(key, StreamId(Purpose.THRESHOLD)).fill(words)
        return self.thetas(data, words)

    def scale(self) -> tuple[float, float]:
        """Kappa and the offset of PAK Eq. 12; 1 and 0 for the plain quantile."""
        if isinstance(self.rule, PAKQuantile):
            return self.rule.kappa(self.task), self.rule.law(self.task).upper(self.rule.beta)
        return 1.0, 0.0

    def thetas(self, data: Sequence[float], words: NDArray[np.uint64]) -> Floats:
        """Theta by each word."""
        law, resolution = self.rule.law(self.task), self.task.resolution
        kappa, offset = self.scale()
        chooser = self.rule.start(self.task)
        chooser.observe(np.asarray(data, np.float64))
        steps, bound = np.sort(chooser.pack()), round(self.task.bound / resolution)
        rank = rank_of(self.rule.p, steps.size)
        scale = law.scale(steps, bound, rank, kappa)
        leading = (words >> np.uint64(1)).astype(np.float64)
        drawn = -np.log((2.0 * leading + 1.0) / 2.0**64)
        drawn = np.where(words & np.uint64(1), -drawn, drawn)
        cell = max(1, bound // CELLS)
        theta = np.floor((steps[rank - 1] + scale * (drawn + offset) + 0.5) / cell) * cell + cell // 2
        clipped: Floats = np.clip(theta * resolution, resolution, self.task.bound)
        return clipped
