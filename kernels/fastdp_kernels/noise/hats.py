"""Noise of a hierarchy of hat functions made consistent: maps between levels of knots, and tridiagonal systems.

Leaves are at 0, 1, ..., n - 1; level j has n / b^j + 1 knots, b^j apart.  The order of operations is fixed, so every
machine gives the same numbers (``docs/streams.md``).
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel


@kernel
def restrict_whole(x: np.ndarray, fan_out: int, out: np.ndarray) -> None:
    """Sums of int64[m b (+ 1)] with integer weights b - abs(k - i b): int64[m + 1]."""
    out[:] = 0
    last = out.size - 1
    for i in range(last):
        for k in range(fan_out):
            value = x[i * fan_out + k]
            out[i] += (fan_out - k) * value
            out[i + 1] += k * value
    if x.size > last * fan_out:
        out[last] += fan_out * x[last * fan_out]


@inline
def restrict(x: np.ndarray, fan_out: int, out: np.ndarray) -> None:
    """As :func:`restrict_whole` for floats, with weights 1 - abs(k / b - i)."""
    out[:] = 0.0
    last = out.size - 1
    for i in range(last):
        for k in range(fan_out):
            value = x[i * fan_out + k]
            part = np.float64(k) / fan_out * value
            out[i] += value - part
            out[i + 1] += part
    if x.size > last * fan_out:
        out[last] += x[last * fan_out]


@inline
def interpolate(q: np.ndarray, fan_out: int, out: np.ndarray) -> None:
    """The transpose: linear between knots, float64[m + 1], at m b (+ 1) places."""
    last = q.size - 1
    for i in range(last):
        rise = (q[i + 1] - q[i]) / fan_out
        for k in range(fan_out):
            out[i * fan_out + k] = q[i] + k * rise
    if out.size > last * fan_out:
        out[last * fan_out] = q[last]


@kernel
def solve(diagonal: np.ndarray, beside: np.ndarray, more: float, x: np.ndarray, scratch: np.ndarray) -> None:
    """Replace x by (T + more I)^-1 x, T symmetric with this diagonal, and ``beside`` it."""
    pivot = diagonal[0] + more
    x[0] /= pivot
    for i in range(1, x.size):
        scratch[i] = beside[i - 1] / pivot
        pivot = diagonal[i] + more - beside[i - 1] * scratch[i]
        x[i] = (x[i] - beside[i - 1] * x[i - 1]) / pivot
    for i in range(x.size - 2, -1, -1):
        x[i] -= scratch[i + 1] * x[i + 1]


@kernel
def gram(diagonal: np.ndarray, beside: np.ndarray, fan_out: int, leaves: bool, out: np.ndarray) -> None:
    """Covariances of the next level's sums of estimates, float64[m + 1, m + 1], on a patch.

    ``leaves``: of noise of variance 1 on m b leaves; else on knots of covariance I - (I + T)^-1, T as for
    :func:`solve`.
    """
    knots = out.shape[0]
    size = (knots - 1) * fan_out + (0 if leaves else 1)
    unit, fine, smooth, scratch = np.zeros(knots), np.empty(size), np.empty(size), np.empty(size)
    for i in range(knots):
        unit[:] = 0.0
        unit[i] = 1.0
        interpolate(unit, fan_out, fine)
        if not leaves:
            smooth[:] = fine
            solve(diagonal, beside, 1.0, smooth, scratch)
            fine -= smooth
        restrict(fine, fan_out, out[i])


@kernel
def spread(
    fan_out: int,
    starts: np.ndarray,
    diagonals: np.ndarray,
    besides: np.ndarray,
    residuals: np.ndarray,
    sums: np.ndarray,
    scratch: np.ndarray,
    out: np.ndarray,
) -> None:
    """Correction of the leaves' noise by least squares, from each level's noise less theirs.

    Parameters
    ----------
    fan_out : int
        b.
    starts : int64[levels]
        First knot of levels 1, 2, ... below, and their number.
    diagonals, besides : float64[knots]
        Covariances of sums given by the levels below: of a knot, and with the next.
    residuals : float64[knots]
        Noise of each sum less the leaves'; overwritten.
    sums, scratch : float64[knots]
        Memory.
    out : float64[leaves]
        Filled.
    """
    levels = starts.size - 1
    for j in range(levels):
        at = slice(starts[j], starts[j + 1])
        if j > 0:
            below = slice(starts[j - 1], starts[j])
            restrict(residuals[below], fan_out, sums[at])
        else:
            sums[at] = 0.0
        own = scratch[at]
        own[:] = residuals[at] - sums[at]
        room = np.empty(own.size)
        solve(diagonals[at], besides[at], 1.0, own, room)
        residuals[at] -= own
    for j in range(levels - 1, -1, -1):
        at = slice(starts[j], starts[j + 1])
        own = scratch[at]
        own[:] = residuals[at] - sums[at]
        room = np.empty(own.size)
        solve(diagonals[at], besides[at], 0.0, own, room)
        if j == 0:
            interpolate(own, fan_out, out)
        else:
            below = slice(starts[j - 1], starts[j])
            found = np.empty(starts[j] - starts[j - 1])
            interpolate(own, fan_out, found)
            residuals[below] += found
            wide = np.empty(found.size)
            solve(diagonals[below], besides[below], 1.0, found, wide)
            residuals[below] -= found


@kernel
def add_rounded(parts: np.ndarray, noise: np.ndarray) -> None:
    """Add float64[n] to int64[n]; every running sum is rounded once."""
    total = 0.0
    before = np.int64(0)
    for i in range(noise.size):
        total += parts[i]
        now = np.int64(np.rint(total))
        noise[i] += now - before
        before = now
