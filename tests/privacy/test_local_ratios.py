"""Local model: exact ratios of report weights over every pair of inputs, against e^epsilon in 200 digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

import mpmath
import pytest

from fastdp.guarantee import exp_below
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.local.reports import (
    WORDS,
    MixtureDistribution,
    ReportDistribution,
    WindowDistribution,
    bit_distribution,
    window_distribution,
)
from tests.oracles import local

TIGHT = mpmath.mpf(2) ** -40
SMALL_EPSILONS = [1e-6, 0.01, 0.3, 0.7, 1.0, 2.0, 5.0, 8.0, 32.0]


@pytest.mark.parametrize(
    "exponent", [*SMALL_EPSILONS, 0.1, 0.61, 2.0**-60, Fraction(1, 3), Fraction(10**30 + 1, 10**30)]
)
def test_the_power_is_below_its_true_value_by_next_to_nothing(exponent: float | Fraction) -> None:
    """Weights are made of it: above e^epsilon, however little, the claim would be false."""
    ratio = Fraction(exponent)
    with mpmath.workdps(200):
        true = mpmath.exp(mpmath.mpf(ratio.numerator) / ratio.denominator)
        below = exp_below(exponent)
        error = mpmath.mpf(below.numerator) / below.denominator / true - 1
    assert -(mpmath.mpf(10) ** -76) < error < 0
    assert exp_below(0) == 1


def square(epsilon: float, steps: int) -> ReportDistribution:
    return window_distribution(epsilon, local.window_length_square(epsilon, steps), steps)


def piecewise(epsilon: float, steps: int) -> ReportDistribution:
    return window_distribution(epsilon, local.window_length_piecewise(epsilon, steps), steps)


def hybrid(epsilon: float, steps: int) -> ReportDistribution:
    first = local.Mixture(epsilon, steps).first
    window = window_distribution(epsilon, local.window_length_piecewise(epsilon, steps), steps, first)
    return MixtureDistribution(window, bit_distribution(epsilon, steps, WORDS - first))


MAKERS: list[Callable[[float, int], ReportDistribution]] = [square, piecewise, bit_distribution, hybrid]


def excess(ratio: Fraction, epsilon: float) -> mpmath.mpf:
    """ratio / e^epsilon - 1."""
    with mpmath.workdps(200):
        return mpmath.mpf(ratio.numerator) / ratio.denominator / mpmath.exp(mpmath.mpf(epsilon)) - 1


def largest_ratio(distribution: ReportDistribution, inputs: Iterable[int], outputs: Iterable[int]) -> Fraction:
    """Over every pair of the inputs and every one of the outputs."""
    inputs = list(inputs)
    weights = ([distribution.weight(x, output) for x in inputs] for output in outputs)
    return max(Fraction(max(each), min(each)) for each in weights)


@pytest.mark.parametrize("epsilon", SMALL_EPSILONS)
@pytest.mark.parametrize("steps", [16, 64])
@pytest.mark.parametrize("make", MAKERS)
def test_no_ratio_exceeds_e_to_the_epsilon_on_small_grids(make, steps: int, epsilon: float) -> None:
    distribution = make(epsilon, steps)
    inputs, outputs = range(steps + 1), range(distribution.outputs)
    for x in inputs:
        assert sum(distribution.weight(x, output) for output in outputs) == distribution.total == WORDS
    over = excess(largest_ratio(distribution, inputs, outputs), epsilon)
    assert over <= 0
    assert over > -TIGHT or epsilon > 8.0


def border_outputs(window: WindowDistribution, inputs: Iterable[int]) -> set[int]:
    """Outputs on either side of every place where a weight changes."""
    places = {0, window.outputs, window.left_over % window.outputs}
    for x in inputs:
        places |= {x, x + window.near}
    return {place + by for place in places for by in (-1, 0)} & set(range(window.outputs))


@pytest.mark.parametrize("epsilon", [1e-6, 0.05, 0.61, 0.62, 1.0, 2.0, 6.0, 20.0, 32.0])
@pytest.mark.parametrize("mechanism", [SquareWave, StochasticRounding, Piecewise, Hybrid])
def test_no_ratio_exceeds_e_to_the_epsilon_on_the_real_grid(mechanism, epsilon: float) -> None:
    """A weight takes four values at most (near or far, with or without one more left-over word): all appear here."""
    client = mechanism(epsilon)
    steps = client.STEPS
    inputs = [0, 1, steps // 3, steps // 2, steps - 1, steps]
    distribution = client.distribution
    window = distribution.window if isinstance(distribution, MixtureDistribution) else distribution
    outputs = border_outputs(window, inputs) if isinstance(window, WindowDistribution) else set()
    outputs |= {client.n_outputs - 2, client.n_outputs - 1}
    over = excess(largest_ratio(distribution, inputs, outputs), epsilon)
    assert over <= 0
    # At large epsilon far weights are small numbers, and the distribution keeps a little below its budget.
    assert over > -(TIGHT if epsilon <= 2.0 else 2.0**-16)
    assert client.distribution.total == WORDS
    if isinstance(distribution, WindowDistribution):
        near, far = distribution.near_weight * distribution.near, distribution.far_weight * distribution.steps
        assert near + far + distribution.left_over == WORDS
        assert distribution.far_weight == local.Window(epsilon, distribution.near, steps).b


def test_the_rule_for_weights_leaves_no_room() -> None:
    """One more far word would not fit; one more near word would not either, or break the ratio."""
    for epsilon in (0.01, 1.0, 4.0):
        for steps in (16, 2**20):
            distribution = piecewise(epsilon, steps)
            assert isinstance(distribution, WindowDistribution)
            assert (
                local.Window(epsilon, distribution.near, steps).used(distribution.far_weight + 1) > distribution.total
            )
            full = distribution.left_over < distribution.near
            assert excess(Fraction(distribution.near_weight, distribution.far_weight), epsilon) <= 0
            assert full or excess(Fraction(distribution.near_weight + 1, distribution.far_weight), epsilon) > 0


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("steps", [16, 64])
def test_broken_laws_are_caught(steps: int, epsilon: float) -> None:
    """Weights wrong by one in 2^38 words break the claim."""
    both_epsilon = max(epsilon, 0.7)
    window, bit, both = square(epsilon, steps), bit_distribution(epsilon, steps), hybrid(both_epsilon, steps)
    assert isinstance(window, WindowDistribution)
    assert isinstance(both, MixtureDistribution)
    little = 2**64 >> 38
    broken: list[tuple[ReportDistribution, float]] = [
        (replace(window, near_weight=window.near_weight + little, total=WORDS + little * window.near), epsilon),
        (replace(window, far_weight=window.far_weight - little, total=WORDS - little * steps), epsilon),
        (replace(bit, high_weight=bit.high_weight + little, low_weight=bit.low_weight - little), epsilon),
        (replace(both, bit=replace(both.bit, high_weight=both.bit.high_weight + little)), both_epsilon),
    ]
    for distribution, claimed in broken:
        assert excess(largest_ratio(distribution, range(steps + 1), range(distribution.outputs)), claimed) > 0
