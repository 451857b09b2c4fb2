"""What an answer of a release is uncertain by: draws of noise by their exact law, and a model of what blocks hide.

Every number here is a function of released sums and of public parameters (post-processing).  Derivations and the
measured coverage are in ``docs/intervals.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import NormalDist
from typing import Literal

import numpy as np

from fastdp.kinds import Floats, Indices
from fastdp.releases.intervals import DrawnNoise, checked_confidence
from fastdp_kernels.streams import hidden

#: What is model-based is widened by this factor, chosen on streams (``docs/intervals.md``).
MODEL_WIDTH = 1.25


@dataclass(frozen=True)
class SumNoise:
    """Which noise the sums of a release carry: public numbers, stated when it is made.

    Attributes
    ----------
    kind : "blocks", "tree", "nodes", "counter" or "correlated"
        One draw for each block; leaves of a hierarchy made consistent; its independent nodes; a binary counter; noise
        of values that follows that of earlier ones (:class:`fastdp.perturbers.Toeplitz`).
    per_threshold : float
        Scale, or sigma, of a draw over theta.
    resolution : float
        One grid step, in units of the input.
    bounded : bool
        Whether values are clipped to [0, theta].
    fan_out, levels, tree_blocks : int
        Shape of a consistent hierarchy: b, released levels, and blocks of one tree.
    gaussian : bool
        Whether draws are discrete Gaussian.
    more : float
        Grid steps by which the scale of a draw exceeds ``per_threshold`` times theta.
    rates, weights : tuple of float
        Of correlated noise: its sums have the coefficients B_n = sum over i of weights_i (1 - rates_i)^n, the
        constant first.
    epoch : int
        Of correlated noise: after so many values it begins again.
    """

    kind: Literal["blocks", "tree", "nodes", "counter", "correlated"]
    per_threshold: float
    resolution: float
    bounded: bool = True
    fan_out: int = 2
    levels: int = 1
    tree_blocks: int = 1
    gaussian: bool = False
    more: float = 0.0
    rates: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    epoch: int = 1

    def draw(self, threshold: float) -> DrawnNoise:
        """The law of a draw in grid steps, for a threshold in units of the input."""
        return DrawnNoise(max(1, round(threshold / self.resolution)) * self.per_threshold + self.more, self.gaussian)


@dataclass(frozen=True)
class ErrorBars:
    """Errors of some answers around their centres.

    Attributes
    ----------
    centre : float64[q]
        What errors are counted from: noisy sums of whole blocks, and the shares of those that a range cuts.
    noise : DrawnNoise
        Of a draw, in grid steps.
    resolution : float
        A step in units of the input.
    draws : int64[q]
        How many independent draws enter.
    weight : float64[q]
        By which their sum is multiplied; 1 where the law is exact.
    model : float64[q]
        Variance of what cut blocks hide, in squared units of the input; 0 where a range cuts none.
    width : float
        By which the model's part is widened.
    """

    centre: Floats
    noise: DrawnNoise
    resolution: float
    draws: Indices
    weight: Floats
    model: Floats
    width: float = MODEL_WIDTH

    def half_widths(self, confidence: float) -> Floats:
        """Half of the width of an interval about the centre, in units of the input: float64[q]."""
        level = checked_confidence(confidence)
        steps = self.noise.quantiles(self.draws, level) * self.weight
        # A resolution that is no power of two rounds: a sum at the very edge must still count.
        if math.frexp(self.resolution)[0] != 0.5:
            steps = steps + 0.25 * (steps > 0.0)
        ends = self.width * wider_quantile(level) * np.sqrt(self.model)
        return np.hypot(steps * self.resolution, ends)

    @property
    def variances(self) -> Floats:
        """In squared units of the input: float64[q]."""
        drawn = self.noise.variance * self.resolution**2
        return self.draws * self.weight**2 * drawn + self.model


def wider_quantile(confidence: float) -> float:
    """Two-sided quantile of variance 1, of the normal or of the Laplace law, whichever is larger."""
    return max(NormalDist().inv_cdf(0.5 + confidence / 2.0), -math.log1p(-confidence) / math.sqrt(2.0))


def counter_draws(first: Indices, last: Indices) -> Indices:
    """Nodes in which the running sums of a binary counter after ``first`` and after ``last`` values differ."""
    # A sum is one node for each binary digit 1; nodes of digits above the highest difference are the same.
    below = np.bitwise_or.reduce([(first ^ last) >> np.int64(shift) for shift in range(63)])
    draws: Indices = np.bitwise_count(first & below).astype(np.int64) + np.bitwise_count(last & below)
    return draws


def tree_variances(noise: SumNoise, first: Floats, last: Floats) -> Floats:
    """Variance of sums of consistent leaves over [first, last), in variances of one node's noise.

    Fractions of a leaf count as that share of it.  Consistency is least squares (ToPS Appendix C), whose covariance
    is (A^T A)^-1 = sum over j of (P_j - P_(j+1)) / (1 + b + ... + b^j): P_j averages over the blocks of b^j leaves,
    and P_h = 0 because tops are not tied.  Rounding to integers is left out.
    """
    whole = float(noise.tree_blocks)
    total: Floats = np.zeros(first.size)
    trees = np.floor(first / whole), np.floor(last / whole)
    same = trees[0] == trees[1]
    starts, stops = first - trees[0] * whole, last - trees[1] * whole
    total += _within_tree(noise, starts, np.where(same, stops, whole))
    total += np.where(same, 0.0, _within_tree(noise, np.zeros(first.size), stops))
    between = np.where(same, 0.0, trees[1] - trees[0] - 1.0)
    total += between * _within_tree(noise, np.zeros(1), np.array([whole]))[0]
    return total


def _within_tree(noise: SumNoise, first: Floats, last: Floats) -> Floats:
    """The same within one tree."""
    total: Floats = np.zeros(first.size)
    inverse = 0.0
    for level in range(noise.levels):
        width = float(noise.fan_out**level)
        # The quadratic form of P_j enters with 1 / lambda_j - 1 / lambda_(j-1).
        before, inverse = inverse, (noise.fan_out - 1.0) / (noise.fan_out * width - 1.0)
        total += (inverse - before) * _overlaps(width, first, last)
    return total


def correlated_variances(noise: SumNoise, first: Indices, last: Indices) -> Floats:
    """Variance of sums of correlated noise over [first, last), in variances of a draw, with what rounding may add."""
    whole = noise.epoch
    starts, stops = first // whole, last // whole
    same = starts == stops
    total = _within_epoch(noise, first - starts * whole, np.where(same, last - starts * whole, whole))
    total += np.where(same, 0.0, _within_epoch(noise, np.zeros_like(first), last - stops * whole))
    between = np.where(same, 0, stops - starts - 1)
    if between.any():
        total += between * _within_epoch(noise, np.zeros(1, np.int64), np.array([whole]))
    return total


def _within_epoch(noise: SumNoise, first: Indices, last: Indices) -> Floats:
    """The same within one epoch: draws in the range have B_n, earlier ones B_(n + length) - B_n."""
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
    """1 + q + ... + q^(count - 1), q = 1 - rate."""
    small = rate * counts < 1e-6
    series = -np.expm1(counts * math.log1p(-rate)) / (rate or 1.0)
    return np.where(small, counts * (1.0 - rate * (counts - 1.0) / 2.0), series)


def _overlaps(width: float, first: Floats, last: Floats) -> Floats:
    """Sum over blocks of ``width`` of the squared overlap with [first, last), over ``width``."""
    left, right = np.floor(first / width), np.floor(last / width)
    ends = ((left + 1.0) * width - first) ** 2 + (last - right * width) ** 2 + (right - left - 1.0) * width**2
    return np.where(left == right, (last - first) ** 2, ends) / width


def hidden_of_ends(first: Indices, last: Indices, edges: Indices, rates: Floats) -> tuple[Floats, Indices, Floats]:
    """What whole blocks a range holds, and what its ends hide.

    Parameters
    ----------
    first, last : int64[q]
        Ranges.
    edges : int64[J + 1]
        Borders of the closed blocks.
    rates : float64[J + 1]
        Variance a value of what each hides, and of the values behind the last block.

    Returns
    -------
    hidden : float64[q]
        Variance of what the ends hide; behind the last block, as if a block had ended with the range.
    whole : int64[q]
        How many blocks lie in the range.
    shares : float64[q]
        Sum of the squares of the shares of the blocks that it cuts.
    """
    closed = edges.size - 1
    own = np.searchsorted(edges, first, side="right") - 1, np.searchsorted(edges, last, side="right") - 1
    inside = own[0] == own[1]
    ending = edges[np.minimum(own[0] + 1, closed)]
    # At the left end what follows ``first`` in its block, at the right one what precedes ``last``.
    left = np.where(inside | (own[0] == closed), last - first, ending - first)
    left[~inside & (first == edges[own[0]])] = 0
    right = np.where(inside, 0, last - edges[own[1]])
    whole = np.maximum(own[1] - own[0] - (left > 0), 0) * ~inside
    hidden_variance: Floats = np.zeros(first.size)
    shares: Floats = np.zeros(first.size)
    for block, length in ((own[0], left), (own[1], right)):
        lengths = np.diff(edges)[np.minimum(block, closed - 1)] if closed else np.ones(first.size)
        share = np.where(block < closed, length / lengths, 0.0)
        hidden_variance += rates[block] * length * (1.0 - share)
        shares += share**2
    return hidden_variance, whole, shares


def rate_of_blocks(totals: Floats, noise: SumNoise, threshold: float, block: int) -> float:
    """What blocks of one length hide a value, in squared units of the input (``hidden``).

    Parameters
    ----------
    totals : float64[J]
        Released sums of the blocks.
    noise : SumNoise
        Of their noise.
    threshold : float
        Theta.
    block : int
        g.
    """
    drawn = noise.draw(threshold).variance * noise.resolution**2 / threshold**2
    sums = totals / threshold
    # Two leaves under one node of a consistent tree differ by their own noises alone.
    differences = np.diff(sums)[np.arange(1, sums.size) % noise.fan_out != 0] if noise.levels > 1 else np.diff(sums)
    energy = float(np.mean(differences**2)) - 2.0 * drawn if differences.size else 0.0
    level = float(sums.mean()) / block if sums.size else 0.5
    rate = hidden.cautious_rate(energy / (2.0 * block), level, drawn, block, 1.0 + differences.size / 2.0)
    return rate * threshold**2
