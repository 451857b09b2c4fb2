"""Intervals: exact quantiles of sums of noise, and a model of the variance hidden in cut blocks.

Derivations and measured coverage: ``docs/streams_proofs.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from fastdp import validation
from fastdp.kinds import Floats, Indices, Integers
from fastdp.validation import refusal
from fastdp_kernels.noise import laplace_sums
from fastdp_kernels.streams import revision

#: The errors of the numerical inversion, proved in the kernel, stay far below 1 - MAX_CONFIDENCE.
MAX_CONFIDENCE = 1.0 - 1e-9


def checked_confidence(confidence: object) -> float:
    """`confidence` in (0, 1 - 10^-9]; else ParameterError."""
    level = validation.real("confidence", confidence)
    if not 0.0 < level <= MAX_CONFIDENCE:
        raise refusal("confidence", confidence, "above 0 and at most 1 - 1e-9, such as 0.95")
    return level


def laplace_variance(scale: Fraction | float) -> float:
    """Variance of a discrete Laplace draw, in squared steps."""
    half = 0.5 / float(scale)
    # Beyond 350 the variance, about 2 exp(-2 half), is no ordinary float any more.
    return 0.5 / math.sinh(half) ** 2 if half < 350.0 else 0.0


def laplace_sum_quantile(scale: Fraction | float, m: int, confidence: float) -> int:
    """Least t with P[-t <= S <= t] >= confidence, S the sum of m discrete Laplace draws.

    Above 2^40 steps it may be one part in 2^40 too large.
    """
    return int(_quantiles(_scale(scale), (validation.integer("m", m, 0, 2**62),), checked_confidence(confidence))[0])


def laplace_sum_quantiles(scale: Fraction | float, counts: Integers, confidence: float) -> Floats:
    """:func:`laplace_sum_quantile` of each count: float64[q]."""
    distinct = np.unique(counts)
    found = _quantiles(_scale(scale), tuple(distinct.tolist()), checked_confidence(confidence))
    return found[np.searchsorted(distinct, counts)]


class DrawnNoise(NamedTuple):
    """Discrete Laplace of this scale, or Gaussian of this sigma, in steps."""

    scale: Fraction | float
    gaussian: bool = False

    @property
    def variance(self) -> float:
        return float(self.scale) ** 2 if self.gaussian else laplace_variance(self.scale)

    def quantiles(self, counts: Integers, confidence: float) -> Floats:
        """Half-widths, in steps, for sums of so many draws: float64[q]."""
        if not self.gaussian:
            return laplace_sum_quantiles(self.scale, counts, confidence)
        level = NormalDist().inv_cdf(0.5 + checked_confidence(confidence) / 2.0)
        return np.ceil(level * float(self.scale) * np.sqrt(counts)) + (counts > 0)


def _scale(scale: Fraction | float) -> float:
    # Divided, so that the quotient is rounded once; up by one float where it was rounded down.
    number = validation.positive("scale", float(scale) if isinstance(scale, Fraction) else scale)
    return math.nextafter(number, math.inf) if isinstance(scale, Fraction) and Fraction(number) < scale else number


@lru_cache(maxsize=4096)
def _quantiles(scale: float, counts: tuple[int, ...], confidence: float) -> Floats:
    out, memory = np.empty(len(counts)), np.empty(laplace_sums.MAX_TERMS + 1)
    laplace_sums.laplace_sum_quantiles(scale, np.array(counts, np.int64), confidence, memory, out)
    out.flags.writeable = False
    return out


#: Factor on model-based half-widths, chosen on streams (``docs/streams_proofs.md``).
MODEL_WIDTH = 1.25
#: Mean of the sum beyond theta that is allowed for, over theta and the number of values that its rule leaves above
#: it: theta over HEAVY released means, because a theta far above the mean says that the tail is heavy; between the
#: least and the most.  Chosen on the same streams.
LEAST_EXCESS, MOST_EXCESS, HEAVY = 1.5, 4.0, 6.5
#: Of values that the noise of theta's choice hides, that mean is a part of the bound less theta: all of it at 95 %.
UNSEEN = 3.0
#: Where a part of the stream, of so many, has a larger mean than the first, or than so many deviations of its noise,
#: the sum beyond theta is taken to grow by the power TAIL of the ratio.
PARTS, CERTAIN, TAIL = 64, 2.0, 2.0
TINY = 1e-100


@dataclass(frozen=True)
class SumNoise:
    """Noise of a release's sums, in public numbers."""

    #: "blocks": one draw per block; "tree": leaves of a consistent hierarchy; "nodes": independent nodes; "counter":
    #: a binary counter; "correlated": :class:`fastdp.perturbers.Toeplitz`; "reports": one per value.
    kind: Literal["blocks", "tree", "nodes", "counter", "correlated", "reports"]
    #: `per_threshold`, `more`: Scale, or sigma, of a draw: ``per_threshold`` times theta, and ``more`` grid steps.
    per_threshold: float
    #: One grid step, in units of the input.
    resolution: float
    #: True if values are clipped to [0, theta].
    bounded: bool = True
    #: `fan_out`, `levels`, `tree_blocks`: Of a consistent hierarchy: b, released levels, blocks of one tree.
    fan_out: int = 2
    levels: int = 1
    tree_blocks: int = 1
    #: True if draws are discrete Gaussian.
    gaussian: bool = False
    more: float = 0.0
    #: `rates`, `weights`, `epoch`: Correlated noise: coefficients B_n = sum over i of weights_i (1 - rates_i)^n, the
    #: constant first, restarted after ``epoch`` values.
    rates: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    epoch: int = 1
    #: Reports: the largest variance of one, in squared steps.
    report_variance: float = 0.0
    #: `above`, `slope`, `bound`: Fraction of values that theta's rule leaves above it, 0 if none says so; what a unit
    #: of the theta that it chose adds to it; bound of a value.
    above: float = 0.0
    slope: float = 0.0
    bound: float = math.inf

    def draw(self, threshold: float) -> DrawnNoise:
        return DrawnNoise(max(1, round(threshold / self.resolution)) * self.per_threshold + self.more, self.gaussian)

    def excess(self, thresholds: Floats | float, mean: float, chosen: float) -> Floats:
        """Allowed mean of a value beyond these thresholds."""
        room = self.bound - thresholds
        heavy = thresholds / np.maximum(HEAVY * mean, thresholds / MOST_EXCESS)
        sizes = np.clip(LEAST_EXCESS * room, 0.0, thresholds * np.maximum(heavy, LEAST_EXCESS))
        hidden, added = min(self.above, 1.0), self.slope * chosen
        excess: Floats = min(hidden + added, 1.0) * sizes
        if added:
            # Noise alone reaches above / slope: of values beyond such a theta the hold-out shows no sizes.
            blind = hidden * hidden / max(added, hidden) * np.maximum(room / UNSEEN - sizes, 0.0)
            excess = excess + blind
        # Where theta has risen it follows the stream late.
        return excess * thresholds / chosen


def hidden_beyond(
    rates: Floats | float,
    levels: Floats,
    sure: Floats,
    lengths: Integers,
    room: Floats | float,
    *,
    deviation: float,
    share: float,
    resolved: bool = True,
) -> Floats:
    """Means beyond theta allowed for in each block, at least `rates`: more where released levels rose.

    Parameters
    ----------
    rates : float64[J] or float
        Of a stream like its hold-out.
    levels, sure : float64[J]
        Mean of a value in each block, in thetas, and its least.
    lengths : int64[J]
    room : float64[J] or float
        Bound less theta.
    deviation : float
        Of a block's noise, in thetas.
    share : float
        Largest share of values above theta.
    resolved : bool
        False if all of the hold-out's values may be above theta.
    """
    before = np.cumsum(lengths) - lengths
    part = PARTS * before // max(int(lengths.sum()), 1)
    values = np.maximum(np.bincount(part, lengths, 1), 1.0)
    means = np.bincount(part, levels * lengths, 1) / values
    noise = deviation * math.sqrt(np.count_nonzero(part == 0)) / values[0]
    risen = np.maximum(means / max(means[0], CERTAIN * noise, TINY), 1.0)
    # As of a heavy tail, or of an exponential one whose mean rose, where hardly any value was above theta.
    grown = np.maximum(risen**TAIL, max(min(share, 1.0), TINY) ** (1.0 / risen - 1.0))
    # Blocks near theta show nothing of what it cuts off.
    cut = sure > max(0.5, 2.0 * means[0] * resolved)
    allowed: Floats = np.maximum(rates, np.minimum(np.where(cut, np.inf, rates * grown[part]), levels * room))
    return allowed


@dataclass(frozen=True)
class ErrorBars:
    """Errors of some answers around their centres."""

    #: float64[q]. Noisy sums of full blocks, and fractions of cut ones.
    centre: Floats
    #: `noise`, `resolution`: Distribution of a draw in grid steps, and a step in units of the input.
    noise: DrawnNoise
    resolution: float
    #: int64[q]. Number of independent draws.
    draws: Indices
    #: float64[q] or float. Factor of their sum; 1 if exact.
    weight: Floats | float = 1.0
    #: `model`, `width`: Variance hidden in cut blocks, and the factor on its interval.
    model: Floats | float = 0.0
    width: float = MODEL_WIDTH

    def half_widths(self, confidence: float) -> Floats:
        level = checked_confidence(confidence)
        steps = self.noise.quantiles(self.draws, level) * self.weight
        # A resolution that is no power of two rounds: a sum at the very edge must still count.
        if math.frexp(self.resolution)[0] != 0.5:
            steps = steps + 0.25 * (steps > 0.0)
        ends = self.width * wider_quantile(level) * np.sqrt(self.model)
        return np.hypot(steps * self.resolution, ends)

    @property
    def variances(self) -> Floats:
        drawn = self.noise.variance * self.resolution**2
        total: Floats = np.multiply(self.draws, np.square(self.weight)) * drawn + self.model
        return total


def wider_quantile(confidence: float) -> float:
    """Two-sided quantile at variance 1, the larger of normal and Laplace."""
    return max(NormalDist().inv_cdf(0.5 + confidence / 2.0), -math.log1p(-confidence) / math.sqrt(2.0))


def counter_draws(first: Indices, last: Indices) -> Indices:
    """Nodes that differ between two sums of a binary counter: int64[q]."""
    # A sum is one node for each binary digit 1; nodes of digits above the highest difference are the same.
    below = np.bitwise_or.reduce([(first ^ last) >> np.int64(shift) for shift in range(63)])
    draws: Indices = np.bitwise_count(first & below).astype(np.int64) + np.bitwise_count(last & below)
    return draws


def tree_variances(noise: SumNoise, first: Floats, last: Floats) -> Floats:
    """Variance of sums of consistent leaves [first, last), in a node's: float64[q].

    From the covariance of ToPS Appendix C, (A^T A)^-1, with averages over blocks of b^j leaves.
    """
    values = float(noise.tree_blocks)
    total: Floats = np.zeros(first.size)
    trees = np.floor(first / values), np.floor(last / values)
    same = trees[0] == trees[1]
    starts, stops = first - trees[0] * values, last - trees[1] * values
    total += _within_tree(noise, starts, np.where(same, stops, values))
    total += np.where(same, 0.0, _within_tree(noise, np.zeros(first.size), stops))
    between = np.where(same, 0.0, trees[1] - trees[0] - 1.0)
    total += between * _within_tree(noise, np.zeros(1), np.array([values]))[0]
    return total


def _within_tree(noise: SumNoise, first: Floats, last: Floats) -> Floats:
    total: Floats = np.zeros(first.size)
    inverse = 0.0
    for level in range(noise.levels):
        width = float(noise.fan_out**level)
        # The quadratic form of P_j enters with 1 / lambda_j - 1 / lambda_(j-1).
        before, inverse = inverse, (noise.fan_out - 1.0) / (noise.fan_out * width - 1.0)
        total += (inverse - before) * _overlaps(width, first, last)
    return total


def correlated_variances(noise: SumNoise, first: Indices, last: Indices) -> Floats:
    """Variance of sums of correlated noise over [first, last), in draws'."""
    epoch = noise.epoch
    starts, stops = first // epoch, last // epoch
    same = starts == stops
    total = _within_epoch(noise, first - starts * epoch, np.where(same, last - starts * epoch, epoch))
    total += np.where(same, 0.0, _within_epoch(noise, np.zeros_like(first), last - stops * epoch))
    between = np.where(same, 0, stops - starts - 1)
    if between.any():
        total += between * _within_epoch(noise, np.zeros(1, np.int64), np.array([epoch]))
    return total


def _within_epoch(noise: SumNoise, first: Indices, last: Indices) -> Floats:
    lengths, before = (last - first).astype(np.float64), first.astype(np.float64)
    # The constant cancels.
    change = [w * np.expm1(lengths * math.log1p(-rate)) for rate, w in zip(noise.rates, noise.weights, strict=True)]
    total: Floats = np.zeros(first.size)
    for i, j in combinations_with_replacement(range(len(noise.rates)), 2):
        times = 1.0 if i == j else 2.0
        both = noise.rates[i] + noise.rates[j] - noise.rates[i] * noise.rates[j]
        total += times * noise.weights[i] * noise.weights[j] * _geometric(both, lengths)
        if i:
            total += times * change[i] * change[j] * _geometric(both, before)
    return np.maximum(total, 0.0)


def _geometric(rate: float, counts: Floats) -> Floats:
    small = rate * counts < 1e-6
    series = -np.expm1(counts * math.log1p(-rate)) / (rate or 1.0)
    return np.where(small, counts * (1.0 - rate * (counts - 1.0) / 2.0), series)


def _overlaps(width: float, first: Floats, last: Floats) -> Floats:
    left, right = np.floor(first / width), np.floor(last / width)
    ends = ((left + 1.0) * width - first) ** 2 + (last - right * width) ** 2 + (right - left - 1.0) * width**2
    return np.where(left == right, (last - first) ** 2, ends) / width


def hidden_of_ends(first: Indices, last: Indices, edges: Indices, rates: Floats) -> tuple[Floats, Indices, Floats]:
    """Variance hidden in cut blocks, number of full ones, squares cut: [q] each."""
    closed = edges.size - 1
    blocks = np.searchsorted(edges, first, side="right") - 1, np.searchsorted(edges, last, side="right") - 1
    inside = blocks[0] == blocks[1]
    ending = edges[np.minimum(blocks[0] + 1, closed)]
    # At the left end the values from ``first`` to its block's end, at the right one those before ``last``.
    left = np.where(inside | (blocks[0] == closed), last - first, ending - first)
    left[~inside & (first == edges[blocks[0]])] = 0
    right = np.where(inside, 0, last - edges[blocks[1]])
    complete = np.maximum(blocks[1] - blocks[0] - (left > 0), 0) * ~inside
    hidden_variance: Floats = np.zeros(first.size)
    squares: Floats = np.zeros(first.size)
    for block, length in ((blocks[0], left), (blocks[1], right)):
        lengths = np.diff(edges)[np.minimum(block, closed - 1)] if closed else np.ones(first.size)
        fraction = np.where(block < closed, length / lengths, 0.0)
        hidden_variance += rates[block] * length * (1.0 - fraction)
        squares += fraction**2
    return hidden_variance, complete, squares


def rate_of_blocks(totals: Floats, noise: SumNoise, threshold: float, block: int) -> float:
    """Variance per value hidden in blocks, by their released sums."""
    drawn = noise.draw(threshold).variance * noise.resolution**2 / threshold**2
    sums = totals / threshold
    # Two leaves under one node of a consistent tree differ by their own noises alone.
    differences = np.diff(sums)[np.arange(1, sums.size) % noise.fan_out != 0] if noise.levels > 1 else np.diff(sums)
    if sums.size == 1:
        # One block shows no change: the level may have stepped from 0 within it.
        differences = sums
    energy = float(np.mean(differences**2)) - 2.0 * drawn if differences.size else 0.0
    level = float(sums.mean()) / block if sums.size else 0.5
    rate = revision.cautious_rate(energy / (2.0 * block), level, drawn, block, 1.0 + differences.size / 2.0)
    return rate * threshold**2
