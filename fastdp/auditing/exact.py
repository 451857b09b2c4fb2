"""Exact privacy loss where the law of a mechanism is finite, or its probabilities are sums: no trials, no confidence.

For evaluation, never for release.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.analysis.tree_loss import tree_step_loss
from fastdp.auditing.mechanisms import NoisyMaxTrials, SplitTrials
from fastdp.local.base import Mechanism
from fastdp.local.laws import CONTEXT, BitLaw, Law, MixtureLaw, WindowLaw
from fastdp.randomness.key import Key
from fastdp.spatial import decomposition
from fastdp.spatial.cells import encode
from fastdp.thresholds.smooth_noise import SmoothNoise

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Noise further out than so many scales has probability below e^-60.
REACH = 60
#: One count, in the integers that noisy max is enumerated with; the rules' own are too fine for sums.
UNIT = 64


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
    delta : float
        At which the worst is taken.
    """

    epsilon: float
    worst: float
    cases: int
    delta: float = 0.0

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


def noisy_max_loss(mechanism: NoisyMaxTrials, *, noise_factor: float = 1.0) -> ExactLoss:
    """Noisy max over every pair of adjacent hold-outs of a small instance: the chooser's own scores and law.

    Parameters
    ----------
    mechanism : NoisyMaxTrials
        The rule, and a task with few values held out, among 0, ..., bound.
    noise_factor : float
        Times the noise of the law: below 1 for a broken one.
    """
    most = round(mechanism.task.bound)

    def probabilities(values: tuple[int, ...]) -> Floats:
        chooser = mechanism.chooser(values)
        # Rounded after they were made coarser, which keeps a difference of one sensitivity what it is.
        coarser = UNIT / chooser.sensitivity
        scores = np.rint(chooser.scores() * coarser).astype(np.int64)
        scale = noise_factor * float(chooser.law.scale) * coarser
        return winner_probabilities(scores, scale, one_sided=chooser.law.one_sided)

    holdouts = itertools.combinations_with_replacement(range(most + 1), mechanism.task.holdout)
    laws = {values: probabilities(values) for values in holdouts}
    worst, cases = 0.0, 0
    for values, law in laws.items():
        for position, value in itertools.product(range(len(values)), range(most + 1)):
            there = laws[tuple(sorted((*values[:position], value, *values[position + 1 :])))]
            worst = max(worst, float(np.abs(np.log(law / there)).max()))
            cases += law.size
    # Sums of 10^4 doubles: right to 10^-11, which is no violation.
    return ExactLoss(mechanism.guarantee.epsilon, round(worst, 10), cases)


def smooth_noise_loss(
    law: SmoothNoise, epsilon: float, delta: float, *, kappa: float = 1.0, offset: float = 0.0
) -> ExactLoss:
    """Noise of a smooth upper bound of the sensitivity: the least epsilon at which delta is enough, by an integral.

    Neighbouring releases are x + kappa S (Z + c) / a and y + kappa S' (Z + c) / a with |x - y| <= min(S, S') and
    |ln S / S'| <= b, so over kappa S / a they are Z + c and shift + e^s (Z + c), the worst at the corners of what the
    two may be.

    Parameters
    ----------
    law : SmoothNoise
        The noise with the rule's own constants a and b; its density is written anew.
    epsilon, delta : float
        The claim; delta = 0 takes the largest log-ratio of densities.
    kappa, offset : float
        Factor and c of PAK Eq. 11 and 12.
    """
    z = np.concatenate([-np.geomspace(1e4, 40.0, 2001)[:-1], np.linspace(-40.0, 40.0, 160_001)])
    z = np.concatenate([z, -z[2000::-1]])
    widths = np.gradient(z)
    here = _density(law, z - offset)
    pairs = []
    for stretch in (-law.b, 0.0, law.b):
        farthest = law.a / kappa * min(1.0, math.exp(stretch))
        # Without an offset either sign gives the same.
        for shift in {0.0, farthest, -farthest if offset else 0.0}:
            there = _density(law, (z - shift) * math.exp(-stretch) - offset) * math.exp(-stretch)
            pairs += [(here, there), (there, here)]
    if delta == 0.0:
        worst = max(float(np.log(p / q).max()) for p, q in pairs)
    else:
        low, worst = 0.0, 8.0 * epsilon
        while worst - low > 1e-6 * epsilon:
            middle = (low + worst) / 2.0
            left = max(float((np.maximum(p - math.exp(middle) * q, 0.0) * widths).sum()) for p, q in pairs)
            low, worst = (middle, worst) if left > delta else (low, middle)
    return ExactLoss(epsilon, worst, len(pairs), delta)


def _density(law: SmoothNoise, z: Floats) -> Floats:
    if law.name == "laplace":
        return 0.5 * np.exp(-np.abs(z))
    if law.name == "gaussian":
        # Far out both densities of a ratio are nothing.
        return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return law.gamma * math.sin(math.pi / law.gamma) / (2.0 * math.pi) / (1.0 + np.abs(z) ** law.gamma)


def split_loss(mechanism: SplitTrials, data: tuple[Any, Any], outcomes: int, key: Key, **changes: Any) -> ExactLoss:
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
    changes
        Of the plan: a ``split_law`` with less noise, for a broken one.
    """
    plan = replace(mechanism.plan, **changes)
    residents = decomposition.root_only(plan)
    added, removed = (encode(plan, np.asarray(p, np.float64).reshape(-1, 1)) for p in data)
    worst, cases = 0.0, 0
    for step in range(outcomes):
        _, visit, evidence = decomposition.take_step(plan, residents, added, removed, step, key)
        loss = tree_step_loss(plan, visit, evidence)
        worst = max(worst, loss.worst)
        cases += 2 * loss.more.size
    return ExactLoss(mechanism.epsilon, worst, cases)
