"""NM-E: theta by noisy max over integer scores (ToPS sections 2.3 and 3.3, Eq. 5 and 6; ``docs/streams.md``)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, Self, get_args

import numpy as np

from fastdp.data.column import as_column, as_floats
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, pure
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, RowWords, StreamId
from fastdp.record import Choice, Real, Whole, parameter, record
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp_kernels.streams import threshold_choice

# What the noisy-max rules share: the integers that scores are made of, their noise, and a histogram to score.
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
def score_unit(task: ThresholdTask, counts: int = 1) -> int:
    """Integer weight of one count, a power of two, if a score adds up `counts` counts."""
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
def noise_distribution(kind: NoiseKind, sensitivity: int, epsilon: float) -> sampler.LaplaceDistribution:
    """Distribution of one candidate's noise, of scale `sensitivity` / `epsilon`."""
    scale = Fraction(sensitivity) / Fraction(epsilon)
    return sampler.laplace_distribution(scale) if kind == "laplace" else sampler.geometric_distribution(scale)


def draw_noise(
    distribution: sampler.LaplaceDistribution, choices: int, candidates: int, key: Key, level: int = 0
) -> Integers:
    """Independent noise of all candidates for several choices: int64[choices, candidates]."""
    noise: Integers = np.empty((choices, candidates), np.int64)
    sampler.fill_pieces(noise.reshape(-1), distribution, key, ((StreamId(Purpose.THRESHOLD, level), noise.size),), 0)
    return noise


def exact_guarantee(task: ThresholdTask, kind: NoiseKind, scored: str) -> Guarantee:
    """Pure epsilon on the hold-out, with scores `scored`."""
    scores, noise = scored.format(task.holdout), f"discrete {kind} noise of scale 1 / epsilon: epsilon"
    return pure(task.epsilon, f"noisy max over {scores}: monotone, sensitivity 1, {noise}")


class CountedHoldout(ABC):
    """Chooser that keeps a histogram."""

    def __init__(self, noise: NoiseKind, task: ThresholdTask, counts: Integers) -> None:
        self._noise, self._task, self._counts = noise, task, counts

    @property
    def counts(self) -> Integers:
        """Histogram of the hold-out, int64[bins]."""
        return self._counts

    @property
    def distribution(self) -> sampler.LaplaceDistribution:
        """Distribution of one candidate's noise."""
        return noise_distribution(self._noise, self.sensitivity, self._task.epsilon)

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """Largest change of a score by one value."""

    @abstractmethod
    def scores(self) -> Integers:
        """Score of each candidate without noise, int64[candidates]."""

    @abstractmethod
    def choices(self, key: Key, count: int) -> Floats:
        """Thetas of `count` independent choices, float64[count]; several are for audits."""

    def choose(self, key: Key) -> float:
        """Theta of one private choice, in units of the input."""
        return float(self.choices(key, 1)[0])

    def copy(self) -> Self:
        """Independent copy; all but the counts is immutable and shared."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._counts = self._counts.copy()
        return twin

    def pack(self) -> Integers:
        """Indices of nonempty bins, then their counts: int64[2 k]."""
        return pack_counts(self._counts)

    def unpack(self, packed: Integers) -> None:
        """Restore the counts from :meth:`pack`, into a new chooser; ValueError for negative numbers."""
        bins, counts = packed.reshape(2, -1)
        if min(bins.min(initial=0), counts.min(initial=0)) < 0:
            raise ValueError("negative bins or counts")
        self._counts[bins] = counts


def pack_counts(counts: Integers) -> Integers:
    """Indices of nonempty bins, then their counts: int64[2 k]."""
    filled = counts.nonzero()[0]
    return np.concatenate([filled, counts[filled]])


MAX_CANDIDATES = 2**22
#: Target number of candidates of the default step, if integers are too few or too many.
DEFAULT_CANDIDATES = 2**12
MIN_WHOLE = 64
MAX_WHOLE = 2**20


@record
class NoisyMax:
    """Theta maximises -#{v > theta} - (3 m theta) / (c r epsilon) sqrt(2 (b - 1) log_b(r)^3), noisily.

    Parameters
    ----------
    c : float
        Constant of Eq. 6, in units of a value: about the mean excess above theta.
    noise : "laplace" or "exponential"
        Two-sided or one-sided discrete noise; both are pure epsilon.
    step : float, optional
        Distance of candidates; by default 1 (the paper's), or a power of two that gives about 4,096 of them where the
        bound is below 64 or above 2^20.
    fan_out : int
        b of Eq. 6, that of the hierarchy.

    Notes
    -----
    Privacy: a replaced value moves all counts by at most 1 in one direction, so epsilon needs no factor of 2
    (``docs/privacy.md``, section 2).
    """

    c: float = parameter(Real(above=0.0), default=60.0)
    noise: NoiseKind = parameter(Choice(get_args(NoiseKind)), default="laplace")
    step: float | None = parameter(Real(above=0.0), default=None)
    fan_out: int = parameter(Whole(2, 1024), default=16)
    uses_holdout: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    def candidate_step(self, bound: float) -> float:
        """Distance of candidates; ParameterError if `step` does not fit the bound."""
        if self.step is None:
            if MIN_WHOLE <= bound <= MAX_WHOLE:
                return 1.0
            return 2.0 ** (math.frexp(bound / DEFAULT_CANDIDATES)[1] - 1)
        if not self.step <= bound <= self.step * MAX_CANDIDATES:
            accepted = f"between bound / {MAX_CANDIDATES} and the bound, {bound!r}"
            raise ParameterError(f"step = {self.step!r}: expected {accepted}")
        return self.step

    def start(self, task: ThresholdTask) -> _NoisyMaxChooser:
        """Chooser with an empty histogram over the candidates."""
        step = self.candidate_step(task.bound)
        candidates = math.ceil(task.bound / step)
        chooser = _NoisyMaxChooser(self, task, step, np.zeros(candidates + 1, np.int64))
        chooser.unit()  # refuses an epsilon out of reach now, not at the end of the hold-out
        return chooser

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        """Pure epsilon on the hold-out."""
        return exact_guarantee(task, self.noise, "counts of {} held-out values")


class _NoisyMaxChooser(CountedHoldout):
    """Bin j counts values in ((j - 1) step, j step]."""

    def __init__(self, rule: NoisyMax, task: ThresholdTask, step: float, counts: Integers) -> None:
        super().__init__(rule.noise, task, counts)
        self._rule, self._step = rule, step

    def observe(self, values: Floats) -> None:
        self._bin(as_floats(as_column(values, "values")), self._counts)

    def observe_unchecked(self, values: Floats) -> bool:
        """Count `values`; True if all are finite, else discard this chooser."""
        return not self._bin(values, self._counts)

    def _bin(self, values: Floats, counts: Integers) -> bool:
        if values.size < counts.size * threshold_choice.PARTED:
            return threshold_choice.bin_values(values, self._step, counts)
        piece, lanes = np.empty(threshold_choice.PIECE, np.uint32), np.zeros((3, counts.size), np.int64)
        return threshold_choice.bin_pieces(values, self._step, piece, lanes, counts)

    def unit(self) -> int:
        """Integer weight K of one count in a score."""
        return score_unit(self._task)

    def penalties(self) -> Integers:
        """K times the public term of Eq. 6, int64[candidates]."""
        return _penalties(self._rule, self._task, self._step, self._counts.size - 1)

    @property
    def sensitivity(self) -> int:
        return self.unit()

    def scores(self) -> Integers:
        return self.unit() * np.cumsum(self._counts)[1:] - self.penalties()

    def choices(self, key: Key, count: int) -> Floats:
        return self._best(
            self._counts.reshape(1, -1), draw_noise(self.distribution, count, self._counts.size - 1, key)
        )

    def _best(self, histograms: Integers, noise: Integers) -> Floats:
        """Theta for each row of noise."""
        best: Integers = np.empty(noise.shape[0], np.int64)
        threshold_choice.choose_rows(histograms, self.unit(), self.penalties(), noise, best)
        thetas: Floats = np.minimum(best * self._step, self._task.bound)
        return thetas

    @property
    def row_words(self) -> int:
        """Number of draws for one stream."""
        return self._counts.size

    def histograms(self, values: Floats, starts: Integers) -> Integers:
        """Histograms of many hold-outs that begin at `starts`: int64[n, bins]."""
        rows: Integers = np.zeros((starts.size, self._counts.size), np.int64)
        count = self._task.holdout
        if count < self._counts.size * threshold_choice.PARTED:
            threshold_choice.bin_rows(values, starts, count, self._step, rows)
        else:
            for row, start in zip(rows, starts.tolist(), strict=True):
                self._bin(values[start : start + count], row)
        return rows

    def choose_rows(self, histograms: Integers, key: Key, streams: Integers) -> Floats:
        """Theta of each stream, float64[n], in units of the input."""
        packed = [held_out(key, pack_counts(counts)) for counts in histograms]
        owners = np.arange(streams.size) if len(packed) > 1 else None
        words = RowWords(packed, [(StreamId(Purpose.THRESHOLD), self._counts.size - 1)], owners)
        none = np.zeros(streams.size, np.int64)
        noise = self.distribution
        return self._best(histograms, sampler.draw_rows(words, none, lambda _: noise, streams, none))


@lru_cache(maxsize=4)
def _penalties(rule: NoisyMax, task: ThresholdTask, step: float, candidates: int) -> Integers:
    """Penalty of each candidate beyond the first's, capped below overflow."""
    b, unit = rule.fan_out, score_unit(task)
    depth = math.log(max(task.max_range, 2)) / math.log(b)
    # Only differences count, so the first candidate's term is taken off: a term that is cut off is then
    # one that cannot win.  In logarithms, so that no factor overflows.
    logs = math.log(3.0 * task.holdout) - math.log(rule.c) - math.log(task.max_range) - math.log(task.noise_epsilon)
    logs += 0.5 * math.log(2.0 * (b - 1) * depth**3) + math.log(unit) + math.log(task.bound)
    slope = math.exp(min(logs, 700.0))
    parts = np.minimum(step / task.bound * np.arange(1, candidates + 1), 1.0)
    penalties: Integers = np.rint(np.minimum(slope * (parts - parts[0]), MAX_PENALTY)).astype(np.int64)
    penalties.flags.writeable = False
    return penalties
