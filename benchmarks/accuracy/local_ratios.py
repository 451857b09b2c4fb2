"""The largest ratio of report probabilities over all pairs of inputs, as integers, against e^epsilon."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

from benchmarks.shared import table
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.local.mechanisms import Mechanism
from fastdp.local.reports import CONTEXT, ReportDistribution, exp_below

MECHANISMS: tuple[type[Mechanism], ...] = (SquareWave, StochasticRounding, Piecewise, Hybrid)
EPSILONS = (1e-6, 0.01, 0.2, 0.61, 1.0, 2.0, 5.0, 8.0, 32.0)
SMALL_GRID = 64


def small(mechanism: type[Mechanism]) -> type[Mechanism]:
    """The same mechanism on a grid of 64 steps."""
    return type(mechanism.__name__, (mechanism,), {"STEPS": SMALL_GRID})


def largest_ratio(law: ReportDistribution, inputs: Iterable[int], outputs: Iterable[int]) -> Fraction:
    """Over every pair of the inputs and every one of the outputs."""
    inputs = list(inputs)
    worst = Fraction(1)
    for output in outputs:
        weights = [law.weight(x, output) for x in inputs]
        worst = max(worst, Fraction(max(weights), min(weights)))
    return worst


def extreme_outputs(client: Mechanism) -> set[int]:
    """Where the largest ratio is: the last output of each part of the law, and the bit 0.

    Input 0 has the last output of a window law far and input D has it near, and it gets the fewer of the left-over
    words, so no output is further apart; a bit is furthest apart between inputs 0 and D.
    """
    ends = {term.last - 1 for term in client.distribution.terms()}
    return ends | {max(end - 1, 0) for end in ends}


def below(ratio: Fraction, epsilon: float) -> Decimal:
    """1 - ratio / e^epsilon."""
    quotient = ratio / exp_below(epsilon)
    return CONTEXT.subtract(Decimal(1), CONTEXT.divide(Decimal(quotient.numerator), Decimal(quotient.denominator)))


def show() -> None:
    rows = []
    for mechanism in MECHANISMS:
        for epsilon in EPSILONS:
            client, tiny = mechanism(epsilon), small(mechanism)(epsilon)
            steps = client.STEPS
            all_pairs = largest_ratio(tiny.distribution, range(SMALL_GRID + 1), range(tiny.n_outputs))
            real = largest_ratio(client.distribution, (0, steps), extreme_outputs(client))
            rows.append([
                mechanism.__name__, f"{epsilon:g}",
                *(f"{below(found, epsilon):.1e}" for found in (all_pairs, real)),
                "yes" if min(below(found, epsilon) for found in (all_pairs, real)) >= 0 else "NO",
            ])  # fmt: skip
    table(
        "1 - (largest ratio of weights) / e^eps, in exact integers: 0 is the budget to the last digit, below 0 would "
        "break it",
        ["mechanism", "eps", f"grid of {SMALL_GRID} steps, every pair and output", "grid of 2^20 steps, extremes",
         "within e^eps"],
        rows,
    )  # fmt: skip
