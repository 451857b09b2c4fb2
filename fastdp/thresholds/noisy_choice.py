"""What the noisy-max rules share: the integers that scores are made of, their noise, and a histogram to score.

Privacy of every rule built on this: replacing one value moves all scores in one direction and by at most the
sensitivity s (an integer).  Discrete noise of scale s / epsilon, one- or two-sided, has a survival function S with
S(k + s) >= e^-epsilon S(k) for every whole k; fixing the other candidates' noise gives e^epsilon both ways, without a
factor of 2.  Ties go to the lowest index, a rule that does not depend on data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.thresholds.base import ThresholdTask

NoiseKind = Literal["laplace", "exponential"]
NOISE_KINDS = ("laplace", "exponential")
#: The noise's scale stays below this, so that scores and noise are far from the ends of int64.
MAX_NOISE = 2**44
MAX_SCORE = 2**61
MAX_PENALTY = float(MAX_SCORE)
MAX_EPSILON = 2.0**40


@lru_cache(maxsize=256)
def score_unit(task: ThresholdTask, counts: int = 1) -> int:
    """One count in the integers that scores are made of, a power of two, for scores that add up several counts."""
    room = math.floor(Fraction(MAX_NOISE) * Fraction(task.epsilon) / counts)
    if room < 1:
        least = (counts - 1).bit_length() - 44
        raise ParameterError(f"epsilon = {task.epsilon!r}: expected at least 2^{least} for noisy max")
    if task.epsilon > MAX_EPSILON:
        raise ParameterError(f"epsilon = {task.epsilon!r}: expected at most 2^40")
    # Scores, up to the unit times the counts of m values, stay below 2^61 too.
    largest = MAX_SCORE // (counts * task.holdout)
    return int(min(2**20, 2 ** (room.bit_length() - 1), 2 ** (largest.bit_length() - 1)))


@lru_cache(maxsize=256)
def noise_law(kind: NoiseKind, sensitivity: int, epsilon: float) -> sampler.Law:
    """The law of one candidate's noise."""
    scale = Fraction(sensitivity) / Fraction(epsilon)
    return sampler.discrete_laplace_law(scale) if kind == "laplace" else sampler.geometric_law(scale)


def draw_noise(law: sampler.Law, choices: int, candidates: int, key: Key, level: int = 0) -> NDArray[np.int64]:
    """Independent noise of all candidates, for several choices: int64[choices, candidates]."""
    noise: NDArray[np.int64] = np.empty((choices, candidates), np.int64)
    sampler.fill_pieces(noise.reshape(-1), law, key, ((StreamId(Purpose.THRESHOLD, level), noise.size),), 0)
    return noise


def exact_guarantee(task: ThresholdTask, kind: NoiseKind, scored: str) -> Guarantee:
    """Pure epsilon on the hold-out; ``scored`` says what of its values the scores are."""
    return Guarantee(
        epsilon=task.epsilon,
        arithmetic="exact",
        derivation=(
            f"noisy max over {scored.format(task.holdout)}: monotone, sensitivity 1, "
            f"discrete {kind} noise of scale 1 / epsilon: epsilon",
        ),
    )


class CountedHoldout(ABC):
    """A histogram of the hold-out, from which theta is chosen; the hold-out itself is not kept."""

    def __init__(self, noise: NoiseKind, task: ThresholdTask, counts: NDArray[np.int64]) -> None:
        self._noise, self._task, self._counts = noise, task, counts

    @property
    def counts(self) -> NDArray[np.int64]:
        """The histogram."""
        return self._counts

    @property
    def law(self) -> sampler.Law:
        """Of one candidate's noise."""
        return noise_law(self._noise, self.sensitivity, self._task.epsilon)

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """Most that one value moves a score by."""

    @abstractmethod
    def scores(self) -> NDArray[np.int64]:
        """Of each candidate, before the noise."""

    @abstractmethod
    def choices(self, key: Key, count: int) -> NDArray[np.float64]:
        """Thetas of independent choices, each of them private: more than one is for audits."""

    def choose(self, key: Key) -> float:
        """Theta."""
        return float(self.choices(key, 1)[0])

    def copy(self) -> Self:
        """An independent copy: what else there is never changes."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._counts = self._counts.copy()
        return twin

    def pack(self) -> NDArray[np.int64]:
        """Bins that hold values, then how many they hold."""
        return pack_counts(self._counts)

    def unpack(self, packed: NDArray[np.int64]) -> None:
        """Take over what :meth:`pack` gave."""
        bins, counts = packed.reshape(2, -1)
        if min(bins.min(initial=0), counts.min(initial=0)) < 0:
            raise ValueError("negative bins or counts")
        self._counts[:] = 0
        self._counts[bins] = counts


def pack_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bins of a histogram that hold values, then how many they hold."""
    filled = counts.nonzero()[0]
    return np.concatenate([filled, counts[filled]])
