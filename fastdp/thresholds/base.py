"""Protocols of threshold rules, the public threshold, and noisy max over a histogram."""

from __future__ import annotations

import hashlib
import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, Protocol, Self, cast, runtime_checkable

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, pure
from fastdp.kinds import Array, Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.record import Real, parameter, record
from fastdp.validation import refusal

#: Values that choose theta, where a publisher names no number of them.
DEFAULT_HOLDOUT = 65_536


@dataclass(frozen=True)
class ThresholdTask:
    """Public inputs of a choice."""

    #: Budget for the hold-out.
    epsilon: float
    #: B, in units of the input.
    bound: float
    #: m, the number of values that choose theta.
    holdout: int
    #: r, the longest query.
    max_range: int
    #: Grid step, in units of the input.
    resolution: float
    #: Budget of the noise; by default `epsilon`.
    publish_epsilon: float | None = None
    #: K of :meth:`fastdp.perturbers.Perturber.noise_constant`.
    noise_constant: float | None = None

    @property
    def noise_epsilon(self) -> float:
        return self.epsilon if self.publish_epsilon is None else self.publish_epsilon


class Chooser(Protocol):
    """Collects the hold-out and chooses theta."""

    def copy(self) -> Chooser:
        """Independent copy, to drop a rejected chunk."""

    def observe(self, values: Floats) -> None:
        """Add finite `values`, copied."""

    def choose(self, key: Key) -> float:
        """Theta in units of the input, in (0, bound]."""

    def pack(self) -> Integers:
        """Collected data, for a state file."""

    def unpack(self, packed: Integers) -> None:
        """Restore data from :meth:`pack`; else raise ValueError or IndexError."""


@runtime_checkable
class RowChooser(Protocol):
    """Chooser for many streams in one call."""

    @property
    def row_words(self) -> int: ...

    def histograms(self, values: Floats, starts: Integers) -> Integers:
        """Histograms of hold-outs that begin at `starts`: int64[n, bins]."""

    def choose_rows(self, histograms: Integers, key: Key, streams: Integers) -> Floats:
        """Theta of each stream, float64[n], by ``choose`` under ``held_out(key, hold-out).of_stream(number)``.

        One histogram may be shared.
        """


def held_out(key: Key, values: Array) -> Key:
    """Derive the key of a choice from its hold-out or ``Chooser.pack``."""
    # Not BLAKE2b: this is the one long message, and processors have instructions for SHA-256.
    return key.within("holdout", hashlib.sha256(values.data).digest())


class Threshold(Protocol):
    """Rule that chooses theta from a hold-out, or knows it."""

    @property
    def uses_holdout(self) -> bool:
        """True if the rule chooses from data."""

    def start(self, task: ThresholdTask) -> Chooser:
        """Empty chooser for one publisher."""

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """Privacy cost of the choice; None without data."""


@runtime_checkable
class TailRule(Protocol):
    """Rule that bounds the fraction of values above theta."""

    def fraction_above(self, task: ThresholdTask) -> tuple[float, float]:
        """Fraction for any theta, and its growth with theta."""


@record
class Fixed:
    """Uses a public theta: no hold-out, no budget.

    Parameters
    ----------
    theta : float
        In units of the input, above 0, at most the bound; not from the data.

    Examples
    --------
    >>> import fastdp
    >>> public = fastdp.thresholds.Fixed(50)
    >>> publisher = fastdp.ToPS(1.0, bound=1000, threshold=public)
    >>> publisher.threshold
    50.0
    """

    theta: float = parameter(Real(above=0.0))
    uses_holdout: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def start(self, task: ThresholdTask) -> _FixedChooser:
        if self.theta > task.bound:
            raise ParameterError(
                f"theta = {self.theta!r} (the threshold): expected at most the bound, {task.bound!r}"
            )
        return _FixedChooser(self.theta)

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        return None


def as_rule(name: str, threshold: object) -> Threshold:
    """`threshold` as a rule, a number as :class:`Fixed`."""
    if type(threshold) is not bool and isinstance(threshold, numbers.Real):
        return Fixed(validation.positive(name, threshold))
    validation.part(name, threshold, Threshold, "fastdp.thresholds")
    return cast("Threshold", threshold)


@dataclass(frozen=True)
class _FixedChooser:
    theta: float

    def copy(self) -> _FixedChooser:
        return self

    def observe(self, values: Floats) -> None: ...

    def choose(self, key: Key) -> float:
        return self.theta

    def pack(self) -> Integers:
        return np.empty(0, np.int64)

    def unpack(self, packed: Integers) -> None:
        if packed.size:
            raise ValueError("a fixed threshold holds no data")


# Noisy max: the integers that scores are made of, their noise, and a histogram to score.
#
# Privacy of every rule built on this: replacing one value moves all scores in one direction and by at most the
# sensitivity s (an integer).  Discrete noise of scale s / epsilon, one- or two-sided, has a survival function S
# with S(k + s) >= e^-epsilon S(k) for every integer k; fixing the other candidates' noise gives e^epsilon both ways,
# without a factor of 2.  Ties go to the lowest index, a rule that does not depend on data.

NoiseKind = Literal["laplace", "exponential"]
#: The noise's scale stays below this, so that scores and noise are far from the ends of int64.
MAX_NOISE = 2**44
MAX_SCORE = 2**61
MAX_PENALTY = float(MAX_SCORE)
MAX_EPSILON = 2.0**40


@lru_cache(maxsize=256)
def score_unit(epsilon: float, holdout: int, counts: int = 1) -> int:
    """Integer weight of a count, a power of two, in scores of `counts` counts."""
    room = math.floor(Fraction(MAX_NOISE) * Fraction(epsilon) / counts)
    if room < 1:
        least = (counts - 1).bit_length() - 44
        raise refusal("epsilon", epsilon, f"at least 2^{least} for noisy max")
    if epsilon > MAX_EPSILON:
        raise refusal("epsilon", epsilon, "at most 2^40")
    # Scores, up to the unit times the counts of m values, stay below 2^61 too.
    largest = MAX_SCORE // (counts * holdout)
    return int(min(2**20, 2 ** (room.bit_length() - 1), 2 ** (largest.bit_length() - 1)))


@lru_cache(maxsize=256)
def candidate_noise(kind: NoiseKind, sensitivity: int, epsilon: float) -> sampler.LaplaceDistribution:
    """Distribution of a candidate's noise, of scale `sensitivity` / `epsilon`."""
    scale = Fraction(sensitivity) / Fraction(epsilon)
    return sampler.laplace_distribution(scale) if kind == "laplace" else sampler.geometric_distribution(scale)


def draw_noise(
    distribution: sampler.LaplaceDistribution, choices: int, candidates: int, key: Key, level: int = 0
) -> Integers:
    """Noise of all candidates for several choices: int64[choices, candidates]."""
    noise: Integers = np.empty((choices, candidates), np.int64)
    sampler.fill_pieces(noise.reshape(-1), distribution, key, ((StreamId(Purpose.THRESHOLD, level), noise.size),), 0)
    return noise


def exact_guarantee(task: ThresholdTask, kind: NoiseKind, scored: str) -> Guarantee:
    """Guarantee of a noisy max over the scores that `scored` names."""
    scores, noise = scored.format(task.holdout), f"discrete {kind} noise of scale 1 / epsilon: epsilon"
    return pure(task.epsilon, f"noisy max over {scores}: monotone, sensitivity 1, {noise}")


class CountedHoldout(ABC):
    """Chooser whose scores add up `counted` counts of a histogram."""

    def __init__(self, noise: NoiseKind, task: ThresholdTask, bins: int, counted: int, epsilon: float) -> None:
        self._noise, self._task, self._epsilon = noise, task, epsilon
        #: Integer weight of a count in a score.
        self.unit = score_unit(epsilon, task.holdout, counted)
        #: Largest change of a score by one value.
        self.sensitivity = counted * self.unit
        #: Histogram of the hold-out, int64[bins].
        self.counts: Integers = np.zeros(bins, np.int64)

    @property
    def distribution(self) -> sampler.LaplaceDistribution:
        return candidate_noise(self._noise, self.sensitivity, self._epsilon)

    @abstractmethod
    def scores(self) -> Integers: ...

    @abstractmethod
    def choices(self, key: Key, count: int) -> Floats:
        """Thetas of `count` independent choices: float64[count]."""

    def choose(self, key: Key) -> float:
        return float(self.choices(key, 1)[0])

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin.counts = self.counts.copy()
        return twin

    def pack(self) -> Integers:
        return pack_counts(self.counts)

    def unpack(self, packed: Integers) -> None:
        bins, counts = packed.reshape(2, -1)
        if min(bins.min(initial=0), counts.min(initial=0)) < 0:
            raise ValueError("negative bins or counts")
        self.counts[bins] = counts


def pack_counts(counts: Integers) -> Integers:
    """Indices of nonempty bins, then their counts: int64[2 k]."""
    filled = counts.nonzero()[0]
    return np.concatenate([filled, counts[filled]])
