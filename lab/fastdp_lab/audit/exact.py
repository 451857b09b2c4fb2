"""Exact privacy loss of mechanisms whose probabilities can be computed: no trials, no confidence level."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np

from fastdp import Key, local
from fastdp.counters import Simple
from fastdp.errors import AccuracyWarning
from fastdp.guarantee import CONTEXT
from fastdp.kinds import Floats, Integers
from fastdp.local.mechanisms import Mechanism
from fastdp.local.reports import BitDistribution, MixtureDistribution, ReportDistribution, WindowDistribution
from fastdp.points import Box, decomposition
from fastdp.points.domains import CellParameters, encode
from fastdp.thresholds import NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds.base import CountedHoldout, ThresholdTask
from fastdp.thresholds.quantile import SmoothNoise
from fastdp_lab.audit.tree_loss import tree_step_loss

#: Beyond this many scales noise has probability below e^-60.
REACH = 60
#: Unit of the scores in the enumeration of noisy max; the rules' own unit gives sums that are too long.
UNIT = 64
#: Of Gaussian noise: large enough to be seen in an audit's runs.
DELTA = 1e-3
#: Trees whose exact log-ratios are computed.
OUTCOMES = 20_000
#: The noisy-max rules that are audited, and the mechanisms of local reports.
RULES: dict[str, NoisyMax | ScaleFree] = {
    "noisy-max-laplace": NoisyMax(step=1.0),
    "noisy-max-exponential": NoisyMax(step=1.0, noise="exponential"),
    "scale-free-laplace": ScaleFree("laplace"),
    "scale-free-exponential": ScaleFree("exponential"),
}
LOCAL = ("SquareWave", "StochasticRounding", "Piecewise", "Hybrid")
#: The task of the quantiles.
WIDE = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)


def small_task(epsilon: float) -> ThresholdTask:
    """A choice from three held-out values, few enough to enumerate."""
    return ThresholdTask(epsilon, 4.0, 3, max_range=4, resolution=1.0, publish_epsilon=1.0, noise_constant=1.0)


@dataclass(frozen=True)
class ExactLoss:
    """The largest log-ratio of probabilities found by enumeration."""

    epsilon: float
    worst: float
    cases: int
    delta: float = 0.0

    @property
    def violated(self) -> bool:
        """True if the worst is above the claim."""
        return self.worst > self.epsilon


def local_report_loss(mechanism: Mechanism) -> ExactLoss:
    """The largest ratio of a report's integer weights, over inputs and reports of the whole grid.

    A weight is near or far, with one left-over word more or not, or linear in the input.  The inputs and reports next
    to each place where it changes therefore include the largest ratio.
    """
    inputs = (0, 1, mechanism.STEPS // 2, mechanism.STEPS - 1, mechanism.STEPS)
    worst, cases = Fraction(1), 0
    for output in sorted(_borders(mechanism.distribution, inputs)):
        weights = [mechanism.distribution.weight(x, output) for x in inputs]
        worst = max(worst, Fraction(max(weights), min(weights)))
        cases += len(inputs) * (len(inputs) - 1)
    ratio = CONTEXT.divide(Decimal(worst.numerator), Decimal(worst.denominator))
    # Compared in 80 digits, so that rounding to a float cannot carry the loss past the claim.
    loss = CONTEXT.ln(ratio)
    shown = float(loss)
    if loss <= Decimal(mechanism.epsilon):
        shown = min(shown, mechanism.epsilon)
    elif shown <= mechanism.epsilon:
        shown = math.nextafter(mechanism.epsilon, math.inf)
    return ExactLoss(mechanism.epsilon, shown, cases)


def _borders(distribution: ReportDistribution, inputs: Iterable[int]) -> set[int]:
    """Reports on either side of every place where a weight changes."""
    if isinstance(distribution, MixtureDistribution):
        return _borders(distribution.window, inputs) | {distribution.window.outputs, distribution.window.outputs + 1}
    if isinstance(distribution, BitDistribution):
        return {0, 1}
    assert isinstance(distribution, WindowDistribution)  # noqa: S101 - there are no other distributions
    places = {0, distribution.outputs, distribution.left_over % distribution.outputs}
    for x in inputs:
        places |= {x, x + distribution.near}
    return {place + by for place in places for by in (-1, 0)} & set(range(distribution.outputs))


def winner_probabilities(scores: Integers, scale: float, *, one_sided: bool) -> Floats:
    """P[candidate j has the largest score + noise, the lowest index among ties], by sums over its own noise."""
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
                # Ties go to the lowest index: a later candidate may be level.
                least = k + own - other + int(i > j)
                wins *= below[np.clip(least + reach, 0, below.size - 1)]
        found[j] = wins.sum()
    return found


def observed(
    rule: NoisyMax | ScaleFree, task: ThresholdTask, holdout: Sequence[float], *, winner: bool = False
) -> CountedHoldout:
    """The rule's chooser with a hold-out in it, however short.

    With `winner`, ScaleFree gives the winner itself, of which theta is a function: few values resolve no theta.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        if winner and isinstance(rule, ScaleFree):
            chooser: Any = rule.chooser(task, above=task.holdout)
        else:
            chooser = rule.start(task)
    chooser.observe(np.asarray(holdout, np.float64))
    return cast("CountedHoldout", chooser)


def noisy_max_loss(rule: NoisyMax | ScaleFree, task: ThresholdTask, *, noise_factor: float = 1.0) -> ExactLoss:
    """Noisy max over every pair of adjacent hold-outs of a small instance: the chooser's scores and noise."""
    highest = round(task.bound)
    # Each number of values above the lowest candidate that ScaleFree may release before it chooses.
    released = range(task.holdout + 1) if isinstance(rule, ScaleFree) else (None,)

    def probabilities(values: tuple[int, ...]) -> tuple[float, Floats]:
        """Loss of each number of values above the lowest candidate, and the winners' probabilities."""
        chooser: Any = observed(rule, task, values)
        # Scores are rounded after the change of unit, which keeps a difference of one sensitivity as it is.
        coarser = UNIT / chooser.sensitivity
        scores = [chooser.scores() if number is None else chooser.scores(number) for number in released]
        rounded = (np.rint(each * coarser).astype(np.int64) for each in scores)
        scale = noise_factor * float(chooser.distribution.scale) * coarser
        distributions = [
            winner_probabilities(each, scale, one_sided=chooser.distribution.one_sided) for each in rounded
        ]
        counted = chooser.count_epsilon * chooser.above_lowest / noise_factor if isinstance(rule, ScaleFree) else 0.0
        return counted, np.stack(distributions)

    holdouts = itertools.combinations_with_replacement(range(highest + 1), task.holdout)
    distributions = {values: probabilities(values) for values in holdouts}
    worst, cases = 0.0, 0
    for values, (counted, distribution) in distributions.items():
        for position, value in itertools.product(range(len(values)), range(highest + 1)):
            other, there = distributions[tuple(sorted((*values[:position], value, *values[position + 1 :])))]
            worst = max(worst, abs(counted - other) + float(np.abs(np.log(distribution / there)).max()))
            cases += distribution.size
    # Sums of 10^4 doubles are right to 10^-11, so a difference below that is no violation.
    return ExactLoss(rule.guarantee(task).epsilon, round(worst, 10), cases)


def smooth_noise_loss(
    distribution: SmoothNoise, epsilon: float, delta: float, *, kappa: float = 1.0, offset: float = 0.0
) -> ExactLoss:
    """Noise of a smooth upper bound of the sensitivity: the least epsilon at which delta is enough, by an integral.

    Adjacent inputs give releases x + kappa S (Z + c) / a and y + kappa S' (Z + c) / a with ``|x - y| <= min(S, S')``
    and ``|ln S / S'| <= b``, so in units of kappa S / a they are Z + c and shift + e^s (Z + c); the largest loss is
    at a corner of the region of (shift, s).
    """
    z = np.concatenate([-np.geomspace(1e4, 40.0, 2001)[:-1], np.linspace(-40.0, 40.0, 160_001)])
    z = np.concatenate([z, -z[2000::-1]])
    widths = np.gradient(z)
    here = _density(distribution, z - offset)
    pairs = []
    for stretch in (-distribution.b, 0.0, distribution.b):
        farthest = distribution.a / kappa * min(1.0, math.exp(stretch))
        # Without an offset either sign gives the same.
        for shift in {0.0, farthest, -farthest if offset else 0.0}:
            there = _density(distribution, (z - shift) * math.exp(-stretch) - offset) * math.exp(-stretch)
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


def _density(distribution: SmoothNoise, z: Floats) -> Floats:
    if distribution.name == "laplace":
        return 0.5 * np.exp(-np.abs(z))
    if distribution.name == "gaussian":
        # Far out both densities of a ratio are 0.
        return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return (
        distribution.gamma
        * math.sin(math.pi / distribution.gamma)
        / (2.0 * math.pi)
        / (1.0 + np.abs(z) ** distribution.gamma)
    )


def split_loss(plan: CellParameters, epsilon: float, points: tuple[Any, Any], outcomes: int, key: Key) -> ExactLoss:
    """PrivTree's decisions: exact log-ratios at many drawn trees, for one event more or less in any leaf."""
    kept = decomposition.root_only(plan)
    added, removed = (encode(plan, np.asarray(p, np.float64).reshape(-1, 1)) for p in points)
    worst, cases = 0.0, 0
    for step in range(outcomes):
        _, tree = decomposition.take_step(plan, kept, added, removed, step, key)
        loss = tree_step_loss(plan, tree)
        worst = max(worst, loss.worst)
        cases += 2 * loss.more.size
    return ExactLoss(epsilon, worst, cases)


def split_plan(epsilon: float, max_depth: int, *, repaired: bool = True) -> CellParameters:
    """PrivTree's split tests on [0, 1], with this epsilon for the decisions alone."""
    part = Fraction(epsilon)
    return CellParameters(Box(0, 1), 2, max_depth, part, part, Simple(), 0.0, repaired, 16)


def pak_noise_loss(noise: str, kappa: float | None = None) -> ExactLoss:
    """The loss of PAK's quantile with its offset, by the rule's own kappa or another one."""
    rule = PAKQuantile(delta=DELTA, noise=noise)  # type: ignore[arg-type]
    distribution = rule.smooth_noise(WIDE)
    factor = rule.kappa(WIDE) if kappa is None else kappa
    return smooth_noise_loss(distribution, WIDE.epsilon, DELTA, kappa=factor, offset=distribution.upper(rule.beta))


def exact_losses(seed: int | str | None) -> dict[str, Callable[[], ExactLoss]]:
    """Computations by name; the seed is for the trees that are drawn."""
    smooth = {name: SmoothQuantile(delta=DELTA, noise=name) for name in ("laplace", "gaussian")}
    smooth["cauchy"] = SmoothQuantile(noise="cauchy")
    step = partial(
        split_loss, split_plan(1.0, 12), 1.0, (np.zeros(22), np.zeros(0)), OUTCOMES, Key.choose(seed, None)
    )
    losses = {
        **{f"local-{name.lower()}": partial(local_report_loss, getattr(local, name)(1.0)) for name in LOCAL},
        **{name: partial(noisy_max_loss, rule, small_task(1.0)) for name, rule in RULES.items()},
        **{
            f"smooth-{name}": partial(smooth_noise_loss, rule.smooth_noise(WIDE), 1.0, rule.delta or 0.0)
            for name, rule in smooth.items()
        },
        **{f"pak-{name}": partial(pak_noise_loss, name) for name in ("laplace", "gaussian")},
        "phdstream-step": step,
    }
    return {f"exact-{name}": loss for name, loss in losses.items()}
