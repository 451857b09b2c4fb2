"""The doubles that scale S-P's and S-PAK's noise: every rounding is on the safe side, in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from fastdp.thresholds import PAKQuantile, ThresholdTask
from fastdp.thresholds.quantile import SmoothNoise, calibrate, decay_table, laplace_stretch_delta
from tests.oracles import smooth_sensitivity as oracle

UNIT = Fraction(1, 2**53)
SMOOTHINGS = [1e-20, 2.0**-50, 2.0**-48, 1e-12, 1e-6, 9e-4, 0.03, 0.3, 1.0, 5.0, 90.0]


def exact(number: float | Fraction) -> mpmath.mpf:
    fraction = Fraction(number)
    return mpmath.mpf(fraction.numerator) / fraction.denominator


@pytest.fixture(autouse=True)
def digits() -> object:
    with mpmath.workdps(oracle.DIGITS):
        yield


def holdouts(generator: np.random.Generator, m: int) -> tuple[list[int], int]:
    """Sorted values with a bound: even, with ties, with a gap whose far side decides."""
    bound = int(generator.choice([20, 1657, 2**33, 2**52]))
    kind = generator.integers(0, 3)
    if kind == 0:
        values = generator.integers(0, bound + 1, m)
    elif kind == 1:
        values = np.minimum(generator.geometric(0.2, m), bound)
    else:
        values = np.where(np.arange(m) < generator.integers(1, m + 1), 0, bound)
    return sorted(values.tolist()), bound


@pytest.mark.parametrize("b", SMOOTHINGS)
def test_weights_fall_by_less_than_the_smoothing(b: float) -> None:
    """By e^-b (1 + 12 u) at most, so that ten more roundings in a ratio of scales fit; or not at all."""
    decay = decay_table(b, 1500)
    assert decay.size == 1502
    assert decay[0] == 1.0
    least = mpmath.exp(-exact(Fraction(b) * (1 - Fraction(1, 2**40)))) * exact(1 + 12 * UNIT)
    if least > 1:
        assert (decay == 1.0).all()
        return
    kept = decay[decay > 0.0]
    for before, after in zip(kept[:-1].tolist(), kept[1:].tolist(), strict=True):
        assert exact(after) >= least * exact(before)
    # What counts as 0 lies below the kernels' floor, and the weights are no larger than they must be.
    assert kept.size == 1502 or exact(float(kept[-1])) * least < 2.0**-899
    for k in range(0, kept.size, 97):
        assert exact(float(kept[k])) <= mpmath.exp(-exact(b) * k) * (
            1 + mpmath.mpf(2) ** -30 + k * mpmath.mpf(2) ** -48
        )


@pytest.mark.parametrize("b", SMOOTHINGS)
def test_relative_error_of_the_scale(b: float) -> None:
    generator = np.random.default_rng(31)
    for _ in range(40):
        m = int(generator.integers(1, 40))
        values, bound = holdouts(generator, m)
        rank, a, kappa = int(generator.integers(1, m + 1)), float(generator.uniform(0.01, 2.0)), 1.7
        real = exact(kappa) * max(oracle.in_real_numbers(values, bound, rank, b), oracle.FLOOR) / exact(a)
        for distribution in (
            SmoothNoise("laplace", a, b, 2.0),
            SmoothNoise("laplace", float(np.nextafter(a, 0.0)), b, 2.0),
        ):
            scale = exact(distribution.scale(np.array(values, np.int64), bound, rank, kappa))
            assert real <= scale <= real * (1 + 2.0**-30 + (m + 40) * 2.0**-48)


@pytest.mark.parametrize("b", SMOOTHINGS)
def test_scales_of_neighbours_differ_by_at_most_the_smoothing(b: float) -> None:
    """Also where the real ones differ by e^b: a value more at the far side of the only gap."""
    generator = np.random.default_rng(32)
    most = mpmath.exp(exact(b))

    def scale(values: list[int], bound: int, rank: int, a: float, kappa: float) -> mpmath.mpf:
        return exact(SmoothNoise("laplace", a, b, 2.0).scale(np.array(values, np.int64), bound, rank, kappa))

    for trial in range(150):
        m, a, kappa = int(generator.integers(2, 60)), *generator.uniform(0.01, 3.0, 2).tolist()
        if trial % 2:
            values, bound = holdouts(generator, m)
            rank = int(generator.integers(1, m + 1))
            other = values.copy()
            other[generator.integers(0, m)] = int(generator.choice([0, bound, generator.integers(0, bound + 1)]))
        else:
            bound, rank = int(generator.integers(1, 2**52)), 1
            zeros = int(generator.integers(2, m + 1))
            values, other = [0] * zeros + [bound] * (m - zeros), [0] * (zeros - 1) + [bound] * (m - zeros + 1)
        other.sort()
        here, there = scale(values, bound, rank, a, kappa), scale(other, bound, rank, a, kappa)
        assert max(here, there) <= most * min(here, there)
        # Room for a that is wrong in its last bits.
        shift = abs(values[rank - 1] - other[rank - 1])
        assert exact(a) * min(here, there) >= exact(kappa) * shift * exact(1 + 8 * UNIT)


def test_without_room_neighbours_break_the_smoothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the nearest doubles, and a scale that is not rounded up, fail the two tests above."""
    monkeypatch.setattr("fastdp.thresholds.quantile.decay_table", lambda b, m: np.array(oracle.decay_table(b, m + 2)))
    with pytest.raises(AssertionError):
        test_scales_of_neighbours_differ_by_at_most_the_smoothing(9e-4)
    monkeypatch.undo()
    monkeypatch.setattr("fastdp.thresholds.quantile.SCALE_SLACK", 1.0)
    with pytest.raises(AssertionError):
        test_relative_error_of_the_scale(9e-4)


GRID = [(eps, delta) for eps in (1e-6, 0.05, 1.0, 7.7, 60.0) for delta in (0.25, 1e-3, 1e-9, 2.0**-60, 1e-15)]


def stretch_delta(epsilon: mpmath.mpf, b: mpmath.mpf) -> mpmath.mpf:
    return mpmath.exp(-(epsilon / 2 + b) / mpmath.expm1(b)) * -mpmath.expm1(-b)


def laplace_limit(delta: float) -> float:
    """The largest epsilon, by bisection, at which the printed b passes the check in doubles."""
    low, high = 1.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        fits = laplace_stretch_delta(middle, middle / (2.0 * math.log(1.0 / delta))) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low


def test_constants_in_doubles_keep_delta() -> None:
    """A b smaller by 2^-40 of itself, and an a up to eight units u too large, still give (epsilon, delta)."""
    slack = 1 - mpmath.mpf(2) ** -40
    for epsilon, delta in [*GRID, *((laplace_limit(delta), delta) for delta in (1e-3, 1e-9, 1e-15))]:
        laplace = calibrate("laplace", epsilon, delta, 2.0)
        assert laplace.a == epsilon / 2
        assert stretch_delta(exact(epsilon), exact(laplace.b) * slack) <= exact(delta)
        gaussian = calibrate("gaussian", epsilon, delta, 2.0)
        eps, l_twice = exact(epsilon), 2 * mpmath.log(2 / exact(delta)) + exact(epsilon)
        assert exact(gaussian.a) <= (mpmath.sqrt(l_twice + eps) - mpmath.sqrt(l_twice)) * exact(1 + 8 * UNIT)
        assert exact(gaussian.b) * slack <= mpmath.log1p(eps / l_twice) / 2
        for gamma in (1.125, 2.0, 16.0):
            cauchy, right = calibrate("cauchy", epsilon, delta, gamma), eps / (2 * (exact(gamma) + 1))
            assert exact(cauchy.a) <= right * exact(1 + 8 * UNIT)
            assert exact(cauchy.b) * slack <= right


def test_kappa_in_doubles_hides_the_offset() -> None:
    """Also where 1 - (e^b - 1) g / a nearly vanishes: beta by bisection, down to the last double that is accepted."""
    task = ThresholdTask(0.5, 1000, 100.0, 1000, 1.0)

    def rest_of(beta: float) -> float:
        distribution = calibrate("laplace", 0.5, 1e-6, 2.0)
        return 1.0 - math.expm1(distribution.b) * distribution.upper(beta) / distribution.a

    low, high = 1e-30, 0.4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rest_of(middle) > 0.0 else (middle, high)
    for beta in (0.3, 0.006, *(float(high * (1 + 2.0**-k)) for k in (1, 8, 20, 40, 50)), high):
        rule = PAKQuantile(beta=beta, delta=1e-6)
        distribution, kappa = rule.smooth_noise(task), rule.kappa(task)
        smoothing = exact(distribution.b) * (1 - mpmath.mpf(2) ** -40)
        rest = 1 - mpmath.expm1(smoothing) * exact(distribution.upper(beta)) / exact(distribution.a)
        assert exact(kappa) * rest * exact(1 + 8 * UNIT) >= 1
