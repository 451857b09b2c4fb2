"""Whole series: epsilon protects all n values together, as where one person has the whole series.

Every value may move by the sensitivity s: by n s in L1 and by sqrt(n) s in L2.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fastdp import discrete_laplace, validation
from fastdp.kinds import Floats, Integers
from fastdp.tables.calendar_basis import best_size, calendar_basis
from fastdp_lab.contestants.budget import UNITS, draws, parts, spendable, steps_of
from fastdp_lab.contestants.event import whole_array
from fastdp_lab.mechanism import Mechanism


def laplace(values: Integers, epsilon: float, key: bytes, *, sensitivity: float) -> Floats:
    """Noise of scale n s / epsilon on each value."""
    steps, unit = steps_of(values, sensitivity, parts(epsilon))
    return (steps + draws(key, values.size, times=values.size)).astype(np.float64) * unit


def wavelet(values: Integers, epsilon: float, key: bytes, *, sensitivity: float) -> Floats:
    """Noise on the sum, and on differences of halves, quarters and so on."""
    levels = (values.size - 1).bit_length()
    padded = np.zeros(2**levels, np.int64)
    padded[: values.size] = values
    steps, unit = steps_of(padded, sensitivity, parts(epsilon) // (levels + 1))
    sums = [steps]
    for _ in range(levels):
        sums.append(sums[-1].reshape(-1, 2).sum(1))
    found: Floats = (sums[-1] + draws(key, 1, levels, values.size)).astype(np.float64)
    for level in range(levels - 1, -1, -1):
        pairs = sums[level].reshape(-1, 2)
        differences = pairs[:, 0] - pairs[:, 1] + draws(key, found.size, level, values.size)
        found = np.stack([found + differences, found - differences], 1).reshape(-1) / 2
    return found[: values.size] * unit


# The first coefficients of an orthonormal Fourier transform.


def _transformed(values: Integers) -> Floats:
    """Real coefficients by frequency: cosine, then sine."""
    turned = np.fft.rfft(values, norm="ortho")
    pairs = np.stack([turned.real, turned.imag], 1) * math.sqrt(2.0)
    flat = pairs.reshape(-1)
    flat[0] /= math.sqrt(2.0)
    if values.size % 2 == 0:
        flat[-2] /= math.sqrt(2.0)
    return np.delete(flat, 1)[: values.size]


def _turned_back(coefficients: Floats, size: int) -> Floats:
    flat = np.zeros(2 * (size // 2 + 1))
    flat[0] = coefficients[0] * math.sqrt(2.0)
    flat[2 : coefficients.size + 1] = coefficients[1:]
    if size % 2 == 0:
        flat[-2] *= math.sqrt(2.0)
    turned = (flat[0::2] + 1j * flat[1::2]) / math.sqrt(2.0)
    return np.fft.irfft(turned, size, norm="ortho")


def _kept(coefficients: Floats, keep: int, budget: int, key: bytes, moved: float, size: int) -> Floats:
    """The first coefficients with noise, and the series that they make; they move by sqrt(keep) `moved` in L1."""
    # A step for the rounding of each.
    scale = spendable(budget - keep) / (math.sqrt(keep) * moved)
    steps = np.rint(coefficients[:keep] * scale).astype(np.int64) + draws(key, keep, 1)
    return _turned_back(steps / scale, size)


def fourier(values: Integers, epsilon: float, key: bytes, *, sensitivity: float, keep: int = 20) -> Floats:
    """A public number of coefficients."""
    moved, keep = math.sqrt(values.size) * sensitivity, min(keep, values.size)
    return _kept(_transformed(values), keep, parts(epsilon), key, moved, values.size)


def chosen_fourier(values: Integers, epsilon: float, key: bytes, *, sensitivity: float) -> Floats:
    """As many coefficients as a noisy maximum of the expected error chooses."""
    coefficients, moved = _transformed(values), math.sqrt(values.size) * sensitivity
    half = spendable(parts(epsilon) // 2)
    left = np.sqrt(np.maximum(np.cumsum(coefficients[::-1] ** 2)[::-1] - coefficients**2, 0.0))
    sizes = np.arange(1, values.size + 1)
    # All scores may move by `moved`, half of a quarter of epsilon each way; a step for the rounding.
    quarter = spendable(half // 2 - 1)
    scores = np.rint((left + math.sqrt(2.0) * sizes * moved * UNITS / half) * (quarter / moved)).astype(np.int64)
    keep = int(np.argmin(scores + draws(key, sizes.size, 2))) + 1
    return _kept(coefficients, keep, half, key, moved, values.size)


def by_calendar(values: Integers, epsilon: float, key: bytes, *, bound: int, sensitivity: float) -> Floats:
    """Numbers of a calendar of hours, whose number follows from half of the bound, public, as the expected level."""
    full = calendar_basis(validation.FIXED["h"] * np.arange(values.size + 1), None)
    square = values.size * max(int(sensitivity), 1) ** 2
    scale = [full.first(m + 1).moved(square, 1, gaussian=False) / epsilon for m in range(full.size)]
    basis = full.first(best_size(full, lambda m: math.sqrt(2.0) * scale[m - 1] * full.first(m).window, bound / 2)[0])
    moved = Fraction(basis.moved(square, 1, gaussian=False))
    numbers = basis.numbers(values[None, :, None])[0, :, 0]
    noisy = numbers + discrete_laplace(moved / Fraction(epsilon), numbers.size, key=key)
    columns = basis.columns.astype(np.float64)
    return columns @ np.linalg.solve(columns.T @ columns, noisy.astype(np.float64))


_RASTOGI = "Rastogi and Nath 2010 (SIGMOD), Fourier perturbation: sqrt(k) times the L2 sensitivity over epsilon"
_ACS = "Acs, Castelluccia and Chen 2012 (ICDM), EFPA: epsilon / 2 for k, by a noisy maximum, and for coefficients"
SERIES = (
    Mechanism("Laplace, series", "series", laplace, "Dwork, McSherry, Nissim and Smith 2006: epsilon / n a value"),
    Mechanism("wavelet", "series", wavelet, "Xiao, Wang and Gehrke 2010 (ICDE), Haar: epsilon / (n (1 + log2 n))"),
    Mechanism("FPA", "series", fourier, _RASTOGI, {"keep": 20}),
    Mechanism("EFPA", "series", chosen_fourier, _ACS),
    Mechanism("calendar, series", "series", by_calendar, "fastdp.totals by a calendar (docs/tables.md), no residual"),
    Mechanism("release, series", "series", whole_array, "fastdp.release(contributions=n) (docs/streams.md)"),
    Mechanism(
        *("release, series, Gaussian", "series", whole_array),
        *("fastdp.release(contributions=n, delta=1e-9) (docs/streams.md)", {"delta": 1e-9}),
    ),
)
