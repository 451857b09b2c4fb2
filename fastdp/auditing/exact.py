"""Exact privacy loss where the law of a mechanism is finite, or its probabilities are sums: no trials, no confidence.

For evaluation, never for release.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.analysis.tree_loss import tree_step_loss
from fastdp.auditing.mechanisms import SplitTrials
from fastdp.local.base import Mechanism
from fastdp.local.laws import CONTEXT, BitLaw, Law, MixtureLaw, WindowLaw
from fastdp.randomness.key import Key
from fastdp.spatial import decomposition

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Noise further out than so many scales has probability below e^-60.
REACH = 60
#: The grid that noisy max is enumerated on: K, and candidates at 1, 2, 3, 4.
UNIT, CANDIDATES = 4, 4


@dataclass(frozen=True)
class ExactLoss:
    """The largest log-ratio of probabilities found by enumeration.

    Attributes
    ----------
    epsilon : float
        The claim.
    worst : float
        The largest log-ratio.
    cases : int
        How many ratios were compared.
    """

    epsilon: float
    worst: float
    cases: int

    @property
    def violated(self) -> bool:
        """Whether the worst is above the claim."""
        return self.worst > self.epsilon


def local_report_loss(mechanism: Mechanism) -> ExactLoss:
    """The largest ratio of a report's integer weights, over inputs and reports of the whole grid.

    A weight takes few values: near or far, with one more left-over word or none, or linear in the input.  The inputs
    and reports next to every place where it changes therefore show the largest ratio of all.
    """
    inputs = (0, 1, mechanism.STEPS // 2, mechanism.STEPS - 1, mechanism.STEPS)
    worst, cases = Fraction(1), 0
    for output in sorted(_borders(mechanism.law, inputs)):
        weights = [mechanism.law.weight(x, output) for x in inputs]
        worst = max(worst, Fraction(max(weights), min(weights)))
        cases += len(inputs) * (len(inputs) - 1)
    ratio = CONTEXT.divide(Decimal(worst.numerator), Decimal(worst.denominator))
    # Compared in 80 digits: a float of the logarithm may round up to the claim, never past it.
    loss = CONTEXT.ln(ratio)
    shown = float(loss)
    if loss <= Decimal(mechanism.epsilon):
        shown = min(shown, mechanism.epsilon)
    elif shown <= mechanism.epsilon:
        shown = math.nextafter(mechanism.epsilon, math.inf)
    return ExactLoss(mechanism.epsilon, shown, cases)


def _borders(law: Law, inputs: Iterable[int]) -> set[int]:
    """Reports on either side of every place where a weight changes."""
    if isinstance(law, MixtureLaw):
        return _borders(law.window, inputs) | {law.window.outputs, law.window.outputs + 1}
    if isinstance(law, BitLaw):
        return {0, 1}
    assert isinstance(law, WindowLaw)  # noqa: S101 - there are no other laws
    places = {0, law.outputs, law.left_over % law.outputs}
    for x in inputs:
        places |= {x, x + law.near}
    return {place + by for place in places for by in (-1, 0)} & set(range(law.outputs))


def winner_probabilities(scores: Integers, scale: float, *, one_sided: bool) -> Floats:
    """P[candidate j has the largest score + noise, the lowest index among ties], by sums over its own noise.

    Parameters
    ----------
    scores : int64[J]
        Before the noise.
    scale : float
        Of the discrete Laplace, or geometric, noise.
    one_sided : bool
        Geometric noise.
    """
    reach = int(REACH * scale)
    k = np.arange(-reach, reach + 1)
    q = math.exp(-1.0 / scale)
    mass = np.where(k >= 0, (1 - q) * q ** np.maximum(k, 0), 0.0) if one_sided else (1 - q) / (1 + q) * q ** np.abs(k)
    below = np.concatenate([[0.0], np.cumsum(mass)])
    found = np.empty(scores.size)
    for j, own in enumerate(scores):
        wins = mass.copy()
        for i, other in enumerate(scores):
            if i != j:
                # A later candidate may be level, an earlier one must stay strictly below.
                least = k + own - other + int(i > j)
                wins *= below[np.clip(least + reach, 0, below.size - 1)]
        found[j] = wins.sum()
    return found


def noisy_max_loss(epsilon: float, *, one_sided: bool, holdout: int = 3, noise_factor: float = 1.0) -> ExactLoss:
    """Noisy max over every pair of adjacent hold-outs of a small instance.

    Parameters
    ----------
    epsilon : float
        The claim.
    one_sided : bool
        Geometric noise.
    holdout : int
        m values among 0, ..., 4.
    noise_factor : float
        Times the noise that the claim needs: below 1 for a broken one.
    """
    penalties = np.array([0, 1, 3, 6])
    scale = noise_factor * UNIT / epsilon

    def probabilities(values: tuple[int, ...]) -> Floats:
        scores = UNIT * np.cumsum(np.bincount(values, minlength=CANDIDATES + 1))[1:] - penalties
        return winner_probabilities(scores, scale, one_sided=one_sided)

    laws = {
        values: probabilities(values)
        for values in itertools.combinations_with_replacement(range(CANDIDATES + 1), holdout)
    }
    worst, cases = 0.0, 0
    for values, law in laws.items():
        for position, value in itertools.product(range(holdout), range(CANDIDATES + 1)):
            there = laws[tuple(sorted((*values[:position], value, *values[position + 1 :])))]
            worst = max(worst, float(np.abs(np.log(law / there)).max()))
            cases += CANDIDATES
    # Sums of 10^3 doubles: right to 10^-12, which is no violation.
    return ExactLoss(epsilon, round(worst, 11), cases)


def split_loss(mechanism: SplitTrials, data: tuple[Any, Any], outcomes: int, key: Key) -> ExactLoss:
    """PrivTree's decisions: exact log-ratios at many outcomes that do come out, for an event more or less anywhere.

    Parameters
    ----------
    mechanism : SplitTrials
        The decisions and their claim.
    data : pair of arrays
        Points added and removed.
    outcomes : int
        Trees to draw; at each all leaves are looked at (``fastdp.analysis.tree_loss``).
    key : Key
        For the trees.
    """
    plan = mechanism.plan
    residents = decomposition.root_only(plan)
    added, removed = (decomposition.encode(plan, np.asarray(p, np.float64).reshape(-1, 1)) for p in data)
    worst, cases = 0.0, 0
    for step in range(outcomes):
        _, visit, evidence = decomposition.take_step(plan, residents, added, removed, step, key)
        loss = tree_step_loss(plan, visit, evidence)
        worst = max(worst, loss.worst)
        cases += 2 * loss.more.size
    return ExactLoss(mechanism.epsilon, worst, cases)
