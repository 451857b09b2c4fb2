"""ScaleFree: theta by noisy max over integer scores that have no unit, unlike ToPS Eq. 6 with its constant c.

A chooser counts the hold-out by candidate, releases a noisy number of values above the lowest, and takes the
candidate with the largest noisy score (``docs/streams_proofs.md``; noise: ToPS section 2.3).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.column import as_column, as_floats
from fastdp.errors import AccuracyWarning, ParameterError, argument, warn
from fastdp.guarantee import Guarantee, remainder, sequential
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Integers
from fastdp.noise.key import Key
from fastdp.noise.sampler import laplace_distribution
from fastdp.record import Choice, parameter, record
from fastdp.thresholds.base import (
    MAX_PENALTY,
    MAX_SCORE,
    CountedHoldout,
    NoiseKind,
    ThresholdTask,
    draw_noise,
    exact_guarantee,
)
from fastdp_kernels.streams import threshold_choice

#: Neighbouring candidates: three of them make a factor of 1.5, which is where the second count is taken.
PER_REACH = 3
REACH = Fraction(3, 2)
#: Expected ranks above theta, in units of the noise: below MIN_COUNT one count and a warning; ENOUGH are recommended.
MIN_COUNT = 1.0
ENOUGH = 2.0
#: A candidate loses as much by being e times larger as SLOPE values above it, or as SLOPE noise scales.
MIN_SLOPE = 1.0
NOISE_SLOPE = 4.0
#: With few ranks: one count instead of two, the target higher, the slope lower.
SMALL_TARGET = 1.5
SMALL_NOISE_SLOPE = 3.0
#: The same for ranges of all lengths, below ENOUGH.
ALL_TARGET = 1.25
ALL_NOISE_SLOPE = 2.5
#: The target is at most this fraction of the values above the lowest candidate, and that candidate's gain at most
#: this fraction of its loss.
MAX_FRACTION = 0.5
#: Largest fraction of epsilon for the number of values above the lowest candidate; largest ratio of the hold-out to
#: its noise scale; below the least ratio all values are assumed to lie above.
COUNT_FRACTION, COUNTED, LEAST_COUNTED = 0.05, 600.0, 4.0
#: A theta is used only if the lowest candidate gains so many noise scales more: one that all values above the lowest
#: exceed loses as much as the lowest does, and wins with probability at most e^-CLEAR.
CLEAR = 8.0
#: The gain of small candidates, where it is limited, bends about e^BEND below the bound.
BEND = 2.0
#: Where that number is below a tenth of the hold-out, and times epsilon below FEW_ABOVE, noise chooses among small
#: candidates: those below 2^-DEEPEST of the bound, which clip all that a stream of many zeros has, are left out.
MOSTLY_ZEROS, FEW_ABOVE, DEEPEST = 0.1, 60.0, 12
#: Level of that number's words; 0 is the candidates'.
COUNT_LEVEL = 1
#: Ranges that theta is chosen for: those of up to max_range values, or of all lengths.
Lengths = Literal["longest", "all"]


@record
class ScaleFree:
    """Theta that about m p* values exceed, p* the fraction that balances clipping and the noise in use; by noisy max.

    With k = m p*, p* = sqrt(6 K) / (r epsilon), candidate theta has the score

        -max(0, (#{v > theta} + #{v > 1.5 theta}) / 2 - k) - max(1, 4 / (k epsilon)) k ln(theta).

    Candidates are bound / 1.5^(i / 3) in whole grid steps; K is the perturber's noise constant, r the longest range.
    A noisy number of values above the lowest candidate limits k and the gain of small thetas, for at most a twentieth
    of epsilon.  Where all values may lie above the winner, theta is the bound.

    Parameters
    ----------
    noise : "exponential" or "laplace"
        One-sided discrete noise, which errs less, or two-sided.
    lengths : "longest" or "all"
        Weigh ranges of up to max_range values, or of all lengths, under blocks that follow the stream
        (:class:`fastdp.Adaptive`): if k epsilon < 2, one count against 1.25 k, slope max(1, 2.5 / (k epsilon)).

    Warns
    -----
    AccuracyWarning
        If k epsilon < 1: the hold-out is too short; names a sufficient length.

    Notes
    -----
    Privacy: pure epsilon (``docs/privacy.md``, section 2).

    If k epsilon < 1, one count is held against 1.5 k, slope 3 / (k epsilon) (``docs/streams_proofs.md``).

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.StreamPublisher(
    ...     threshold=fastdp.thresholds.ScaleFree(),
    ...     perturber=fastdp.perturbers.Hierarchy(fan_out=4, prune=0),
    ...     epsilon=1.0, bound=1e6, holdout=5000, max_range=4096, seed=1,
    ... )
    >>> values = np.random.default_rng(1).exponential(1000.0, 5000)
    >>> publisher.publish(values).size
    0
    >>> 2000.0 < publisher.threshold < 8000.0
    True
    """

    noise: NoiseKind = parameter(Choice(get_args(NoiseKind)), default="exponential")
    lengths: Lengths = parameter(Choice(get_args(Lengths)), default="longest")
    uses_holdout: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    def start(self, task: ThresholdTask) -> _ScaleFreeChooser:
        chooser = self.chooser(task)
        if chooser.resolved < MIN_COUNT:
            shorter = f"a max_range below {task.max_range:,}, " if task.max_range > task.holdout else ""
            warn(
                f"holdout: {task.holdout:,} values are too few to choose a threshold at epsilon = {task.epsilon:g}; "
                f"expected a hold-out of at least {chooser.enough:,} values, {shorter}or a threshold known publicly "
                f"({argument(threshold=50.0)})",
                AccuracyWarning,
            )
        return chooser

    def chooser(self, task: ThresholdTask, above: float | None = None) -> _ScaleFreeChooser:
        """Empty chooser; `above`: number above the lowest candidate, if released."""
        return _ScaleFreeChooser(self, task, above)

    def fraction_above(self, task: ThresholdTask) -> tuple[float, float]:
        """Fraction of values that may lie above theta, and its growth with theta."""
        return self.chooser(task).target / task.holdout, 0.0

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        count, choice = _budgets(task)
        scored = "pairs of counts of {} held-out values, cut off at a public number"
        chosen = exact_guarantee(replace(task, epsilon=choice), self.noise, scored)
        if not count:
            return chosen
        step = f"values above the lowest candidate: sensitivity 1, discrete Laplace noise of scale 1 / {count:g}"
        counted = replace(chosen, epsilon=count, derivation=(step,))
        return replace(sequential(counted.of("their number"), chosen.of("choice")), epsilon=task.epsilon)


def _budgets(task: ThresholdTask) -> tuple[float, float]:
    count = min(COUNT_FRACTION * task.epsilon, COUNTED / task.holdout)
    if count * task.holdout < LEAST_COUNTED:
        count = 0.0
    return count, remainder(task.epsilon, count)


def _constant(task: ThresholdTask) -> float:
    if task.noise_constant is None:
        raise ParameterError(
            "noise_constant = None: expected the perturber's, Perturber.noise_constant(plan, max_range), because "
            "ScaleFree weighs theta against the noise in use"
        )
    return validation.positive("noise_constant", task.noise_constant)


@lru_cache(maxsize=256)
def _candidates(top: int) -> tuple[Integers, Integers, Floats]:
    count = math.ceil(PER_REACH * math.log(top) / math.log(REACH)) + 1
    steps = np.rint(top * float(REACH) ** (np.arange(1 - count, 1) / PER_REACH)).astype(np.int64)
    candidates = np.unique(np.maximum(steps, 1))
    tables = candidates, *first_of_eighths(candidates)
    for array in tables:
        array.flags.writeable = False
    return tables


def first_of_eighths(candidates: Integers) -> tuple[Integers, Floats]:
    """Index of the first candidate not below 2^e (1 + k / 8), at 8 e + k, and itself."""
    eighth = np.arange(63 * 8)
    first = np.searchsorted(candidates, np.ldexp(1.0 + eighth % 8 / 8.0, eighth // 8))
    return first, candidates[np.minimum(first, candidates.size - 1)].astype(np.float64)


def _nearest(candidates: Integers) -> NDArray[np.intp]:
    # Everything times 4, so that middles and 1.5 times are integers.
    middles = 2 * (candidates[1:] + candidates[:-1])
    return np.searchsorted(middles, candidates * (4 * REACH.numerator // REACH.denominator))


def _weights(lengths: Lengths, resolved: float) -> tuple[bool, float, float]:
    if lengths == "all" and resolved < ENOUGH:
        return True, ALL_TARGET, ALL_NOISE_SLOPE
    few = resolved < MIN_COUNT
    return few, SMALL_TARGET if few else 1.0, SMALL_NOISE_SLOPE if few else NOISE_SLOPE


class _ScaleFreeChooser(CountedHoldout):
    """Chooser whose bin j counts values between candidates j - 1 and j."""

    def __init__(self, rule: ScaleFree, task: ThresholdTask, above: float | None) -> None:
        self._top = Grid(task.bound, task.resolution).bound_steps
        self.candidates, self._first, self._borders = _candidates(self._top)
        self.count_epsilon, epsilon = _budgets(task) if above is None else (0.0, task.epsilon)
        super().__init__(rule.noise, task, self.candidates.size, 2, epsilon)
        self._above = task.holdout if above is None else above
        #: False for callers that released the number themselves, and judge theta by it.
        self._falls = above is None
        #: True if released numbers did not show that theta cuts off less than the lowest candidate.
        self.unresolved = False
        constant = _constant(task)
        #: k = m p*, in logarithms so that no factor overflows.
        logs = math.log(task.holdout) + 0.5 * math.log(6.0 * constant)
        self.expected = math.exp(min(logs - math.log(task.max_range) - math.log(task.noise_epsilon), 700.0))
        self._single, target, slope = _weights(rule.lengths, self.expected * task.epsilon)
        self.expected = min(self.expected, MAX_FRACTION * task.holdout / target)
        #: Number of values above theta without a penalty.
        self.target = self.expected * target
        wanted = max(MIN_SLOPE * self.expected, slope / task.epsilon)
        # Otherwise a candidate far below all values could win by its logarithm alone.
        self._span = max(math.log(self._top), 1.0)
        most = MAX_FRACTION * (task.holdout - self.target) / self._span
        self.slope = min(wanted, most)
        #: Noise scales that separate candidates: k epsilon, or less if the slope is limited.
        self.resolved = min(self.expected, self.slope) * task.epsilon
        #: Length of a sufficient hold-out.
        self.enough = math.ceil(
            max(
                ENOUGH * task.holdout / max(self.expected * task.epsilon, 1e-300),
                (ENOUGH * self._span / MAX_FRACTION) / (task.epsilon * (1.0 - self.target / task.holdout)),
            )
        )

    def observe(self, values: Floats) -> None:
        floats = as_floats(as_column(values, "values"))
        scratch = np.empty(threshold_choice.PIECE, np.uint32), np.zeros((3, self.counts.size), np.int64)
        grid = 1.0 / self._task.resolution, float(self._top)
        threshold_choice.bin_eighths(floats, *grid, self._first, self._borders, *scratch, self.counts)

    @property
    def above_lowest(self) -> int:
        return int(self.counts.sum() - self.counts[0])

    def released_above(self, key: Key, count: int) -> Floats:
        if not self.count_epsilon:
            return np.full(count, float(self._above))
        scale = 1 / Fraction(self.count_epsilon)
        noise = draw_noise(laplace_distribution(scale), count, 1, key, COUNT_LEVEL)[:, 0]
        numbers: Floats = np.maximum(self.above_lowest + noise, 0) + float(scale)
        return np.minimum(numbers, self._task.holdout)

    def _free(self, filled: float) -> float:
        return min(self.target, MAX_FRACTION * filled)

    def gains(self, filled: float) -> Floats:
        # Gains of candidates by being small, in units of scores.
        # The lowest candidate gains at most this; a limit bends the gains, so that they stay steep near the bound.
        most = MAX_FRACTION * (filled - self._free(filled))
        depths = np.log(self.candidates[-1] / self.candidates)
        limited = most / math.log1p(self._span / BEND) * np.log1p(depths / BEND)
        gains: Floats = np.minimum(2.0 * self.unit * np.minimum(self.slope * depths, limited), MAX_PENALTY)
        return gains

    def _lowest(self, filled: float) -> int:
        few = filled < min(MOSTLY_ZEROS * self._task.holdout, FEW_ABOVE / self._task.epsilon)
        if not (self.count_epsilon and few):
            return 0
        return int(np.searchsorted(self.candidates, math.ldexp(self._top, -DEEPEST)))

    def scores(self, released: float | None = None) -> Integers:
        filled = self._task.holdout if released is None else released
        above = self.counts.sum() - np.cumsum(self.counts)
        second = above if self._single else above[_nearest(self.candidates)]
        target = min(2.0 * self.unit * self._free(filled), MAX_PENALTY)
        beyond: Integers = np.maximum(self.unit * (above + second) - round(target), 0)
        scores: Integers = np.rint(self.gains(filled)).astype(np.int64) - beyond
        scores[: self._lowest(filled)] = -MAX_SCORE
        return scores

    def choices(self, key: Key, count: int) -> Floats:
        # From the bound down: a finer grid adds candidates at the lower end and leaves the others their noise.
        noise = draw_noise(self.distribution, count, self.candidates.size, key)[:, ::-1]
        released = self.released_above(key, count).tolist()
        best = np.argmax(np.stack([self.scores(filled) for filled in released]) + noise, axis=1)
        thetas: Floats = np.minimum(self.candidates[best] * self._task.resolution, self._task.bound)
        if self._falls:
            clear = [self._clear(index, filled) for index, filled in zip(best.tolist(), released, strict=True)]
            thetas = np.where(clear, thetas, self._task.bound)
            self.unresolved = not all(clear)
        return thetas

    def _clear(self, index: int, filled: float) -> bool:
        gains = self.gains(filled)
        more = gains[self._lowest(filled)] - gains[index]
        return bool(more >= CLEAR * float(self.distribution.scale))
