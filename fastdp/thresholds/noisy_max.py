"""NM-E: theta by noisy max over integer scores (ToPS sections 2.3 and 3.3, Eq. 5 and 6)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, get_args

import numpy as np

from fastdp.data.column import as_column, as_floats
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, RowWords, StreamId
from fastdp.record import Choice, Real, Whole, parameter, record
from fastdp.thresholds.base import (
    MAX_PENALTY,
    CountedHoldout,
    NoiseKind,
    ThresholdTask,
    draw_noise,
    exact_guarantee,
    held_out,
    pack_counts,
    score_unit,
)
from fastdp.validation import refusal
from fastdp_kernels.streams import threshold_choice

MAX_CANDIDATES = 2**22
#: Target number of candidates of the default step, if integers are too few or too many.
DEFAULT_CANDIDATES = 2**12
#: Noise scales by which the best candidate may lose.
CLEAR = 8.0
#: Logarithms of factors stay within it, so that they are floats.
STEEP = 700.0
#: Bounds between which candidates are 1 apart by default.
MIN_UNIT_STEP = 64
MAX_UNIT_STEP = 2**20


@record
class NoisyMax:
    """Theta maximises -#{v > theta} - (3 m theta) / (c r epsilon) sqrt(2 (b - 1) log_b(r)^3), noisily.

    Parameters
    ----------
    c : float
        Constant of Eq. 6: about the mean excess above theta.
    noise : "laplace" or "exponential"
        Two-sided or one-sided discrete noise.
    step : float, optional
        Distance of candidates; by default 1, or a power of two for about 4,096 if the bound is below 64 or above
        2^20.
    fan_out : int
        b of Eq. 6, that of the hierarchy.

    Notes
    -----
    Privacy: pure epsilon, without a factor of 2 (``docs/privacy.md``, section 2).

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> rule = fastdp.thresholds.NoisyMax(c=60.0)
    >>> publisher = fastdp.ToPS(
    ...     1.0, bound=1000, holdout=5000, threshold=rule, seed=1
    ... )
    >>> _ = publisher.publish(np.random.default_rng(1).integers(0, 100, 6000))
    >>> 50 < publisher.threshold < 150  # near the largest value
    True
    """

    c: float = parameter(Real(above=0.0), default=60.0)
    noise: NoiseKind = parameter(Choice(get_args(NoiseKind)), default="laplace")
    step: float | None = parameter(Real(above=0.0), default=None)
    fan_out: int = parameter(Whole(2, 1024), default=16)
    uses_holdout: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    def candidate_step(self, bound: float) -> float:
        """Distance of candidates; ParameterError where `step` does not fit."""
        if self.step is None:
            if MIN_UNIT_STEP <= bound <= MAX_UNIT_STEP:
                return 1.0
            return 2.0 ** (math.frexp(bound / DEFAULT_CANDIDATES)[1] - 1)
        if not self.step <= bound <= self.step * MAX_CANDIDATES:
            accepted = f"between bound / {MAX_CANDIDATES} and the bound, {bound!r}"
            raise refusal("step", self.step, accepted)
        return self.step

    def start(self, task: ThresholdTask) -> _NoisyMaxChooser:
        step = self.candidate_step(task.bound)
        candidates = math.ceil(task.bound / step)
        return _NoisyMaxChooser(self, task, step, candidates)

    def fraction_above(self, task: ThresholdTask) -> tuple[float, float]:
        """Fraction above theta that noise may hide, and its growth with theta (``docs/streams_proofs.md``)."""
        # A fraction above 1 counts as 1.
        slope = _log_penalty(self, task, 1.0, 1.0) - math.log(task.holdout)
        return CLEAR / (task.epsilon * task.holdout), math.exp(min(max(slope, -STEEP), STEEP))

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        return exact_guarantee(task, self.noise, "counts of {} held-out values")


class _NoisyMaxChooser(CountedHoldout):
    """Chooser whose bin j counts values in ((j - 1) step, j step]."""

    def __init__(self, rule: NoisyMax, task: ThresholdTask, step: float, candidates: int) -> None:
        super().__init__(rule.noise, task, candidates + 1, 1, task.epsilon)
        self._rule, self._step = rule, step

    def observe(self, values: Floats) -> None:
        self._bin(as_floats(as_column(values, "values")), self.counts)

    def observe_unchecked(self, values: Floats) -> bool:
        return not self._bin(values, self.counts)

    def _bin(self, values: Floats, counts: Integers) -> bool:
        if values.size < counts.size * threshold_choice.PARTED:
            return threshold_choice.bin_values(values, self._step, counts)
        piece, lanes = np.empty(threshold_choice.PIECE, np.uint32), np.zeros((3, counts.size), np.int64)
        return threshold_choice.bin_pieces(values, self._step, piece, lanes, counts)

    def penalties(self) -> Integers:
        return _penalties(self._rule, self._task, self._step, self.counts.size - 1)

    def scores(self) -> Integers:
        return self.unit * np.cumsum(self.counts)[1:] - self.penalties()

    def choices(self, key: Key, count: int) -> Floats:
        noise = draw_noise(self.distribution, count, self.counts.size - 1, key)
        return self._best(self.counts.reshape(1, -1), noise)

    def _best(self, histograms: Integers, noise: Integers) -> Floats:
        best: Integers = np.empty(noise.shape[0], np.int64)
        threshold_choice.choose_rows(histograms, self.unit, self.penalties(), noise, best)
        thetas: Floats = np.minimum(best * self._step, self._task.bound)
        return thetas

    @property
    def row_words(self) -> int:
        return self.counts.size

    def histograms(self, values: Floats, starts: Integers) -> Integers:
        rows: Integers = np.zeros((starts.size, self.counts.size), np.int64)
        count = self._task.holdout
        if count < self.counts.size * threshold_choice.PARTED:
            threshold_choice.bin_rows(values, starts, count, self._step, rows)
        else:
            for row, start in zip(rows, starts.tolist(), strict=True):
                self._bin(values[start : start + count], row)
        return rows

    def choose_rows(self, histograms: Integers, key: Key, streams: Integers) -> Floats:
        packed = [held_out(key, pack_counts(counts)) for counts in histograms]
        owners = np.arange(streams.size) if len(packed) > 1 else None
        words = RowWords(packed, [(StreamId(Purpose.THRESHOLD), self.counts.size - 1)], owners)
        none = np.zeros(streams.size, np.int64)
        noise = self.distribution
        return self._best(histograms, sampler.draw_rows(words, none, lambda _: noise, streams, none))


def _log_penalty(rule: NoisyMax, task: ThresholdTask, unit: float, theta: float) -> float:
    b = rule.fan_out
    depth = math.log(max(task.max_range, 2)) / math.log(b)
    logs = math.log(3.0 * task.holdout) - math.log(rule.c) - math.log(task.max_range) - math.log(task.noise_epsilon)
    return logs + (0.5 * math.log(2.0 * (b - 1) * depth**3) + math.log(unit) + math.log(theta))


@lru_cache(maxsize=4)
def _penalties(rule: NoisyMax, task: ThresholdTask, step: float, candidates: int) -> Integers:
    # Only differences count, so the first candidate's term is taken off: a term that is cut off is then
    # one that cannot win.  In logarithms, so that no factor overflows.
    slope = math.exp(min(_log_penalty(rule, task, score_unit(task.epsilon, task.holdout), task.bound), STEEP))
    fractions = np.minimum(step / task.bound * np.arange(1, candidates + 1), 1.0)
    penalties: Integers = np.rint(np.minimum(slope * (fractions - fractions[0]), MAX_PENALTY)).astype(np.int64)
    penalties.flags.writeable = False
    return penalties
