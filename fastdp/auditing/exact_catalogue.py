"""What is enumerated on the page ``docs/audit.md``, and whether it should violate its claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from fastdp.auditing.catalogue import choices
from fastdp.auditing.exact import ExactLoss, local_report_loss, noisy_max_loss, smooth_noise_loss, split_loss
from fastdp.auditing.inputs import attack
from fastdp.auditing.mechanisms import SmoothQuantileTrials, SplitTrials
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.thresholds import PAKQuantile, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask

#: Trees whose exact log-ratios are taken.
OUTCOMES = 20_000
DELTA = 1e-3

#: Computes a loss; whether it should be above the claim.
ExactCase = tuple[Callable[[], ExactLoss], bool]


def exact_losses(seed: int | str | None) -> dict[str, ExactCase]:
    """Names of all that is computed exactly; the seed is for the trees that come out."""
    key = Key.choose(seed, None)
    split, paper = SplitTrials(1.0, 12), SplitTrials(1.0, 12, repaired=False)
    less = sampler.discrete_laplace_law(split.plan.split_law.scale / 2)
    points = {count: (np.zeros(count), np.zeros(0)) for count in (5, 22)}
    return {
        **{
            f"exact-local-{law.__name__.lower()}": (partial(local_report_loss, law(1.0)), False)
            for law in (SquareWave, StochasticRounding, Piecewise, Hybrid)
        },
        **{f"exact-{name}": (partial(noisy_max_loss, rule), False) for name, rule in choices(1.0).items()},
        **_smooth_losses(),
        "exact-phdstream-step": (partial(split_loss, split, points[22], OUTCOMES, key), False),
        **{
            f"exact-broken-half-{name}": (partial(noisy_max_loss, rule, noise_factor=0.5), True)
            for name, rule in choices(1.0).items()
        },
        "exact-broken-half-phdstream-step": (
            partial(split_loss, split, points[5], OUTCOMES, key, split_law=less),
            True,
        ),
        "exact-broken-papers-score": (partial(split_loss, paper, attack(12, 1.0), OUTCOMES, key), True),
    }


def _smooth_losses() -> dict[str, ExactCase]:
    """The quantiles' noise; half of the Gaussian and of the Cauchy-type one is enough on any pair."""
    task = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)
    plain = {
        "laplace": SmoothQuantile(delta=DELTA),
        "gaussian": SmoothQuantile(delta=DELTA, noise="gaussian"),
        "cauchy": SmoothQuantile(noise="cauchy"),
    }
    offset = {"laplace": PAKQuantile(delta=DELTA), "gaussian": PAKQuantile(delta=DELTA, noise="gaussian")}
    laws = {name: rule.law(task) for name, rule in plain.items()}
    deltas = {"laplace": DELTA, "gaussian": DELTA, "cauchy": 0.0}
    scales = {name: SmoothQuantileTrials(rule, task).scale() for name, rule in offset.items()}

    def pak(name: str, kappa: float) -> Callable[[], ExactLoss]:
        return partial(smooth_noise_loss, laws[name], 1.0, DELTA, kappa=kappa, offset=scales[name][1])

    halved = replace(laws["laplace"], a=2.0 * laws["laplace"].a)
    return {
        **{
            f"exact-smooth-{name}": (partial(smooth_noise_loss, law, 1.0, deltas[name]), False)
            for name, law in laws.items()
        },
        **{f"exact-pak-{name}": (pak(name, kappa), False) for name, (kappa, _) in scales.items()},
        "exact-broken-half-smooth-laplace": (partial(smooth_noise_loss, halved, 1.0, DELTA), True),
        "exact-broken-pak-without-kappa": (pak("laplace", 1.0), True),
    }
