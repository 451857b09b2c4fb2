"""ToPS in careful, vectorised NumPy with float noise: as fast as NumPy gets, but not safe to release.

The same mathematics as fastdp (Eq. 6 with the sign corrected, consistency Eq. 10 and 11, Recent smoother),
in doubles; one call publishes one whole tree, not any chunk of an endless stream.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Floats
from fastdp.local.distribution import cell_edges
from fastdp.local.reports import WindowDistribution


@dataclass(frozen=True)
class Shape:
    """b, released levels, pruned levels and top nodes of a tree."""

    fan_out: int
    levels: int
    pruned: int
    tops: int = 16

    @property
    def block(self) -> int:
        return self.fan_out**self.pruned

    @property
    def leaves(self) -> int:
        return self.tops * self.fan_out ** (self.levels - 1)


def make_consistent(levels: list[Floats], fan_out: int) -> Floats:
    """Consistent leaves from independent noise, the leaf level first; the arrays are overwritten."""
    ones = np.ones(fan_out)
    sums: list[Floats] = []
    for height in range(2, len(levels) + 1):
        weight = (fan_out**height - fan_out ** (height - 1)) / (fan_out**height - 1)
        total = levels[height - 2].reshape(-1, fan_out) @ ones
        own = levels[height - 1]
        own *= weight
        own += (1.0 - weight) * total
        sums.append(total)
    for height in range(len(levels), 1, -1):
        share = (levels[height - 1] - sums[height - 2]) / fan_out
        children = levels[height - 2].reshape(-1, fan_out)
        children += share[:, None]
    return levels[0]


def leaf_noise(shape: Shape, theta: float, epsilon: float, generator: np.random.Generator) -> Floats:
    """Consistent float Laplace noise of the released leaves."""
    scale = theta * shape.levels / epsilon
    widths = (shape.leaves // shape.fan_out**level for level in range(shape.levels))
    return make_consistent([generator.laplace(0.0, scale, width) for width in widths], shape.fan_out)


def choose_threshold(
    holdout: Floats, bound: int, epsilon: float, max_range: int, generator: np.random.Generator, c: float = 60.0
) -> float:
    """NM-E over whole numbers up to the bound."""
    counts = np.bincount(np.minimum(np.ceil(holdout), bound).astype(np.int64), minlength=bound + 1)
    at_most = np.cumsum(counts)[1:]
    slope = 3.0 * holdout.size / (c * max_range * epsilon) * math.sqrt(30.0 * math.log(max_range, 16) ** 3)
    scores = at_most - slope * np.arange(1, bound + 1) + generator.laplace(0.0, 1.0 / epsilon, bound)
    return float(np.argmax(scores) + 1)


def publish(values: Floats, theta: float, noise: Floats, block: int, scratch: Floats, out: Floats) -> Floats:
    """The online pass for whole blocks whose noise is ready; ``scratch`` and ``out`` are as long as ``values``."""
    np.clip(values, 0.0, theta, out=scratch)
    if block == 1:
        return np.add(scratch, noise[: values.size], out=out)
    totals = scratch.reshape(-1, block) @ np.ones(block)
    totals += noise[: totals.size]
    predictions = np.empty_like(totals)
    predictions[0] = theta / 2.0
    np.divide(totals[:-1], block, out=predictions[1:])
    blocks = out.reshape(-1, block)
    blocks[:] = predictions[:, None]
    blocks[:, -1] = totals - predictions * (block - 1)
    return out


def release(
    values: Floats,
    holdout: int,
    bound: int,
    epsilon: float,
    shape: Shape,
    max_range: int,
    generator: np.random.Generator,
) -> Floats:
    """Threshold, noise and online pass of one whole stream of at most one tree."""
    theta = choose_threshold(values[:holdout], bound, epsilon, max_range, generator)
    noise = leaf_noise(shape, theta, epsilon, generator)
    body = values[holdout:]
    return publish(body, theta, noise, shape.block, np.empty(body.size), np.empty(body.size))


def range_sums(published: Floats, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Floats:
    """Range answers by prefix sums, the prefix sums included."""
    prefix = np.empty(published.size + 1)
    prefix[0] = 0.0
    np.cumsum(published, out=prefix[1:])
    return prefix[stops] - prefix[starts]


def piecewise(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Unbiased reports in [-s, s]."""
    root = np.exp(epsilon / 2)
    s = (root + 1) / (root - 1)
    left = (root * values - 1) / (root - 1)
    length = 2 / (root - 1)
    near = generator.random(values.size) < root / (root + 1)
    # Uniform on the window, or on the rest: the interval of length 2 s - length with the window cut out.
    place = generator.random(values.size)
    far = -s + place * (2 * s - length)
    far += length * (far >= left)
    return np.where(near, left + place * length, far)


def rounding(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Unbiased reports, one of two numbers."""
    power = np.exp(epsilon)
    size = (power + 1) / (power - 1)
    return np.where(generator.random(values.size) < 0.5 + values / (2 * size), size, -size)


def hybrid(values: Floats, epsilon: float, generator: np.random.Generator) -> Floats:
    """Piecewise with probability 1 - e^(-epsilon / 2), else rounding (epsilon > 0.61)."""
    windowed = generator.random(values.size) < 1 - np.exp(-epsilon / 2)
    out = np.empty(values.size)
    out[windowed] = piecewise(values[windowed], epsilon, generator)
    out[~windowed] = rounding(values[~windowed], epsilon, generator)
    return out


Product = Callable[[Floats], Floats]


class SecondIntegral:
    """Of a density that is constant between edges, at fixed points: two prefix sums and one look-up of each."""

    def __init__(self, edges: Floats, points: Floats) -> None:
        self.lengths = np.diff(edges)
        self.place = np.clip(np.searchsorted(edges, points, "right") - 1, 0, self.lengths.size)
        self.further = np.maximum(points - edges[self.place], 0.0)
        self.half = self.further / 2.0
        self.table = np.zeros((3, edges.size))

    def __call__(self, shares: Floats) -> Floats:
        twice, once, density = self.table
        np.cumsum(shares, out=once[1:])
        np.divide(shares, self.lengths, out=density[:-1])
        np.cumsum((once[:-1] + 0.5 * shares) * self.lengths, out=twice[1:])
        integral, slope, bend = self.table.take(self.place, axis=1)
        bend *= self.half
        bend += slope
        bend *= self.further
        bend += integral
        return bend


def products(distribution: WindowDistribution, bins: int) -> tuple[Product, Product]:
    """The matrix P[cell | bin] and its transpose times a vector, in time O(bins)."""
    cells, inputs = cell_edges(distribution, bins).astype(np.float64), np.linspace(0.0, distribution.steps, bins + 1)
    into = SecondIntegral(inputs, np.concatenate([cells, cells - distribution.near]))
    back = SecondIntegral(cells, np.concatenate([inputs + distribution.near, inputs]))
    lengths, width = np.diff(cells), distribution.steps / bins
    flat = lengths * ((distribution.far_weight + distribution.left_over / distribution.outputs) / distribution.total)
    peak = (distribution.near_weight - distribution.far_weight) / distribution.total

    def forward(theta: Floats) -> Floats:
        steps = np.diff(into(theta))
        return flat * theta.sum() + (steps[:bins] - steps[bins + 1 :]) * peak

    def backward(ratios: Floats) -> Floats:
        steps = np.diff(back(ratios * lengths))
        return flat @ ratios + (steps[:bins] - steps[bins + 1 :]) * (peak / width)

    return forward, backward


def estimate(forward: Product, backward: Product, counts: Floats, tolerance: float, most: int) -> tuple[Floats, int]:
    """EM from the uniform distribution until a step gains less than the tolerance."""
    theta = np.full(counts.size, 1.0 / counts.size)
    p = forward(theta)
    before = counts @ np.log(p)
    for step in range(1, most + 1):
        theta *= backward(counts / p)
        theta /= theta.sum()
        p = forward(theta)
        now = counts @ np.log(p)
        if now - before < tolerance:
            return theta, step
        before = now
    return theta, most
