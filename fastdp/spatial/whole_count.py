"""A noisy count of all points beside those of the cells, and what least squares makes of both.

The sum of the cells' counts has the noise of every cell; a count of the whole with a small share of epsilon has far
less.  Both are unbiased and independent, so each has weight in proportion to the other's variance, and the difference
goes to the counts in proportion to their variances: post-processing (``docs/phdstream.md``, "A count of the whole").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from fastdp import validation
from fastdp.arrays.kinds import Integers
from fastdp.counters.base import Counter, check_rows, counter_guarantee, noise_scale
from fastdp.counters.blocks import Block
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, remainder
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.releases.intervals import laplace_variance
from fastdp.state.codec import expect

#: Counts the whole.  That is active at every step, so Block is unbiased, with far less noise than Simple.
COUNTER = Block(16)
#: Level of the words' stream id; 0 is the cells' and 1 that of cells which settle.
LEVEL = 2
#: Largest share of epsilon, largest scale of the noise, and largest count.
MAX_SHARE, MAX_SCALE, MAX_COUNT = 0.5, 2**40, 2**62


def _row() -> Integers:
    return np.zeros((1, COUNTER.width), np.int64)


@dataclass(frozen=True)
class WholeCount:
    """What was counted of the whole.

    Attributes
    ----------
    steps : int
        How often.
    released : int
        The noisy count of all points.
    row : int64[1, width]
        The counter.  Secret.
    """

    steps: int = 0
    released: int = 0
    row: Integers = field(default_factory=_row, repr=False)


def split(epsilon: float, share: float) -> tuple[float, float]:
    """Epsilon of the count of the whole, and what is left for the cells; they never exceed ``epsilon`` together."""
    total = share * epsilon
    return total, remainder(epsilon, total)


def as_share(share: object) -> float:
    """A share from 0 to 1/2, or ParameterError."""
    number = validation.real("total_share", share)
    if not 0.0 <= number <= MAX_SHARE:
        raise ParameterError(f"total_share = {validation.shown(share)}: expected from 0 to {MAX_SHARE}, such as 0.05")
    return number


@dataclass(frozen=True)
class WholeParameters:
    """What is fixed.

    Attributes
    ----------
    epsilon : Fraction
        For one event.
    counter : Counter
        Of the whole.
    """

    epsilon: Fraction
    counter: Counter = COUNTER

    @classmethod
    def of_share(cls, epsilon: float, sensitivity: int, share: float) -> WholeParameters | None:
        """For so many events of a person; None where no share is spent."""
        if not share:
            return None
        made = cls(Fraction(split(epsilon, share)[0]) / sensitivity)
        if not made.epsilon or noise_scale(made.counter, made.epsilon) > MAX_SCALE:
            raise ParameterError("epsilon is too small: expected a noise scale of at most 2^40 points for the whole")
        return made

    @staticmethod
    def guarantee(epsilon: float) -> Guarantee:
        """Of all counts of the whole."""
        return counter_guarantee(COUNTER, epsilon).of("count of the whole")

    @cached_property
    def law(self) -> sampler.Law:
        """Of the counter's noise."""
        return sampler.discrete_laplace_law(noise_scale(self.counter, self.epsilon))

    def step(self, whole: WholeCount, net: int, step: int, key: Key) -> WholeCount:
        """The count after so many additions less removals."""
        row: Integers = whole.row.copy()
        noise = sampler.draws(1, self.law, key, StreamId(Purpose.CELL, level=LEVEL, number=step))
        return WholeCount(whole.steps + 1, whole.released + net + int(self.counter.step(row, noise)[0]), row)

    def missing(self, whole: WholeCount, counted: int, variance: float) -> float:
        """What least squares adds to the sum of the cells' counts, which has this variance, in points^2."""
        own = laplace_variance(self.law.scale) * COUNTER.open_draws(whole.steps)
        return (whole.released - counted) * (variance / (variance + own)) if variance > 0.0 else 0.0

    def check(self, whole: WholeCount | None) -> None:
        """ValueError for a count that no step leaves."""
        if whole is None or abs(whole.released) > MAX_COUNT or not 0 <= whole.steps <= MAX_COUNT:
            raise ValueError("a count of the whole out of range")
        expect(whole.row, _row())
        check_rows(self.counter, whole.row)
        if whole.row[0, 0] != whole.steps % COUNTER.size:
            raise ValueError("a counter of the whole out of step")
