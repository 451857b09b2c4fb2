"""Discrete Laplace draws against the exact law P[X >= k] = q^k / (1 + q), k >= 0, q = exp(-1 / scale)."""

from __future__ import annotations

import argparse
import math
from time import perf_counter

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.shared import table
from fastdp.randomness import Key, discrete_laplace

SCALES = {"1": 1, "10": 10, "10^3": 1000, "2^22": 2**22, "2^40": 2**40}
BATCH = 2**20
#: Bins are 2^shift wide, about an eighth of the scale (or 1), and end where a bin expects this many draws.
MIN_COUNT = 50.0
#: The low bits are uniform to 2^-16 or better from this scale on.
LOW_BITS_FROM = 2**22
LOW_BITS = 64


@numba.njit(nogil=True)
def count_draws(
    draws: NDArray[np.int64], shift: int, half: int, counts: NDArray[np.int64], low: NDArray[np.int64]
) -> None:
    """Add draws to bins floor(x / 2^shift) + half, clipped to the tails, and their low bits to ``low``."""
    for i in range(draws.size):
        x = draws[i]
        low[x & (LOW_BITS - 1)] += 1
        counts[min(max((x >> shift) + half, 0), 2 * half - 1)] += 1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=float, default=1e8, help="draws a scale (default 1e8)")
    parser.add_argument("--seed", type=int, default=None, help="a seed; by default a fresh key")


def run(options: argparse.Namespace) -> None:
    n = int(options.draws)
    key = Key.choose(options.seed, None)
    count_draws(np.zeros(1, np.int64), 0, 1, np.zeros(2, np.int64), np.zeros(LOW_BITS, np.int64))
    table(
        f"Chi-square of {n:,} draws against the exact law, and with its scale 2 % off",
        ["scale", "bins", "p", "p, scale 2 % less", "p, scale 2 % more", "p, low six bits", "s"],
        (one_scale(label, scale, n, key.derive(label)) for label, scale in SCALES.items()),
    )


def one_scale(label: str, scale: int, n: int, key: Key) -> list[str]:
    shift = max(0, round(math.log2(scale / 8)))
    half = half_bins(scale, shift, n)
    counts, low = np.zeros(2 * half, np.int64), np.zeros(LOW_BITS, np.int64)
    start = perf_counter()
    for begin in range(0, n, BATCH):
        draws = discrete_laplace(scale, min(BATCH, n - begin), key=key.derive(begin))
        count_draws(draws, shift, half, counts, low)
    seconds = perf_counter() - start
    ps = [p_value(counts, n * bin_probabilities(s, shift, half)) for s in (scale, 0.98 * scale, 1.02 * scale)]
    low_p = p_value(low, np.full(LOW_BITS, n / LOW_BITS)) if scale >= LOW_BITS_FROM else None
    return [label, str(2 * half), *(show_p(p) for p in (*ps, low_p)), f"{seconds:.1f}"]


def half_bins(scale: float, shift: int, n: int) -> int:
    """Bins on each side: the last one, which takes the whole tail, still expects ``MIN_COUNT`` draws."""
    return max(2, math.floor(math.log(n / 2 / MIN_COUNT) * scale / 2**shift))


def bin_probabilities(scale: float, shift: int, half: int) -> NDArray[np.float64]:
    """Exact probabilities of the bins, from the negative tail to the positive one.

    [j w, (j + 1) w) has q^(j w) (1 - q^w) / (1 + q) for j >= 0, its mirror image [-(j + 1) w, -j w) has
    q times that; a tail has no factor 1 - q^w.  Differences come from expm1, so nothing cancels.
    """
    w = 2.0**shift
    upper = np.exp(-np.arange(half) * (w / scale)) / (2.0 + math.expm1(-1.0 / scale))
    upper[:-1] *= -math.expm1(-w / scale)
    return np.concatenate([upper[::-1] * math.exp(-1.0 / scale), upper])


def p_value(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return float(stats.chi2.sf(statistic, counts.size - 1))


def show_p(p: float | None) -> str:
    if p is None:
        return "-"
    return "below 1e-300" if p < 1e-300 else f"{p:.3g}"
