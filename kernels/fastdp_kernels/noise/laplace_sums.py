"""Distribution of a sum S of m independent discrete Laplace variables of scale s, by its characteristic function.

For odd N, u_j = 2 pi j / N and phi(u) = 1 / (1 + (sin(u / 2) / sinh(1 / (2 s)))^2),

    (1 / N) sum over |j| <= (N - 1) / 2 of phi(u_j)^m sin((2 t + 1) u_j / 2) / sin(u_j / 2)

is P[|S| <= t], and at most P[|S| >= N - t] too much (``docs/streams_proofs.md``, "Intervals").  For m = 2 and 3 the
tail has a closed form.
"""

from __future__ import annotations

import math

import numpy as np

from fastdp_kernels._jit import inline, kernel

#: -log of the probability beyond which aliasing is left out, and the same for the end of the sum: 10^-12.
TINY = 27.7
#: More than all errors together; added to the confidence that a quantile must reach.
SLACK = 1e-11
#: Terms of a sum at the most; m = 4 needs 2,000.
MAX_TERMS = 40_000


@inline
def _reach(sinh: float, count: float) -> float:
    # x with P[|S| >= x] < 10^-12, by Chernoff's bound.
    u = min(0.5, TINY / count)
    slope = 2.0 * math.asinh(math.sqrt(u) * sinh)
    return float(np.ceil((-count * math.log1p(-u) + TINY + 1.0) / slope))


@inline
def _weigh(m: float, sinh: float, period: float, weights: np.ndarray) -> int:
    # sin(u / 2) >= u / pi, so the rest after term J is at most
    # (1 + y)^(1 - m) / (2 (m - 1) y), y = (2 J / (N sinh))^2.
    y = math.expm1(TINY / m)
    while (1.0 - m) * math.log1p(y) - math.log(2.0 * (m - 1.0) * y) > -TINY:
        y *= 1.1
    terms = int(min(np.ceil(math.sqrt(y) * period * sinh / 2.0), (period - 1.0) / 2.0, np.float64(MAX_TERMS)))
    for j in range(1, terms + 1):
        sine = math.sin(math.pi * j / period)
        weights[j] = 2.0 / period * math.exp(-m * math.log1p((sine / sinh) ** 2)) / sine
    return terms


@inline
def _inside(t: float, period: float, weights: np.ndarray, terms: int) -> float:
    """P[|S| <= t], t >= 0."""
    share = (2.0 * t + 1.0) / period
    total = share
    for j in range(1, terms + 1):
        total += weights[j] * math.sin(math.pi * share * j)
    return total


@inline
def _beyond(t: float, scale: float, m: float) -> float:
    """P[|S| > t], t >= 0, for m = 2 or 3."""
    # With p = exp(-1 / s), a = coth(1 / s), P[S = k] = tanh(1 / (2 s))^m p^|k| f(|k|), f = k + a for m = 2 and
    # (k^2 + 3 a k + 3 a^2 - 1) / 2 for m = 3.
    mean = 1.0 / math.expm1(1.0 / scale)
    first, a = t + 1.0, 1.0 / math.tanh(1.0 / scale)
    if m == 2.0:
        average = first + mean + a
    else:
        squares = first * first + 2.0 * first * mean + mean * (1.0 + 2.0 * mean)
        average = 0.5 * (squares + 3.0 * a * (first + mean) + 3.0 * a * a - 1.0)
    return float(2.0 * math.tanh(0.5 / scale) ** m * math.exp(-first / scale) * (1.0 + mean) * average)


@kernel
def laplace_sum_quantiles(
    scale: float, counts: np.ndarray, confidence: float, weights: np.ndarray, out: np.ndarray
) -> None:
    """Least t with P[|S_m| <= t] >= confidence, float64[q], for each m in ``counts``.

    It is never too small, and too large by at most one part in 2^40; ``weights``, float64[MAX_TERMS + 1], is scratch.
    """
    wanted = confidence + SLACK
    for i in range(counts.size):
        m = np.float64(counts[i])
        # Noise of so small a scale is zero but for a probability below e^-600.
        if m == 0.0 or scale < 1e-3:
            out[i] = 0.0
            continue
        if m == 1.0:
            # P[|X| > t] = 2 p^(t + 1) / (1 + p) with p = exp(-1 / s).
            tail = (1.0 - wanted) * (1.0 + math.exp(-1.0 / scale)) / 2.0
            out[i] = max(0.0, np.ceil(-scale * math.log(tail) * (1.0 + 1e-14) - 1.0))
            continue
        sinh = math.sinh(0.5 / scale)
        reach = _reach(sinh, m)
        period = 2.0 * reach + 1.0
        terms = 0 if m <= 3.0 else _weigh(m, sinh, period, weights)
        # Between low, where too little lies inside, and high, where enough does: false position, with halving.
        low, below, high, above = -1.0, -wanted, reach, 1.0 - wanted
        turn = 0
        while high - low > max(1.0, high * 2.0**-40):
            guess = low + (high - low) * (below / (below - above)) if turn % 3 < 2 else 0.5 * (low + high)
            guess = min(max(np.floor(guess), low + 1.0), high - 1.0)
            inside = _inside(guess, period, weights, terms) if m > 3.0 else 1.0 - _beyond(guess, scale, m)
            value = inside - wanted
            if value >= 0.0:
                high, above = guess, value
            else:
                low, below = guess, value
            turn += 1
        out[i] = high
