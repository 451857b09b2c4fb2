"""Mechanisms whose loss is computed exactly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from fastdp.counters import Simple
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.randomness.key import Key
from fastdp.spatial import Box
from fastdp.spatial.cells import CellParameters, make_plan
from fastdp.thresholds import PAKQuantile, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask
from fastdp_lab.audit.catalogue.sums import RULES, small_task
from fastdp_lab.audit.exact import ExactLoss, local_report_loss, noisy_max_loss, smooth_noise_loss, split_loss

#: Trees whose exact log-ratios are computed.
OUTCOMES = 20_000
DELTA = 1e-3
#: The task of the quantiles.
WIDE = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)


def split_plan(epsilon: float, max_depth: int, *, repaired: bool = True) -> CellParameters:
    """PrivTree's split tests on [0, 1], with this epsilon for the decisions alone."""
    part = Fraction(epsilon)
    return make_plan(Box(0, 1), 2, max_depth, part, part, Simple(), threshold=0.0, repaired=repaired, retention=16)


def pak_noise_loss(noise: str, kappa: float | None = None) -> ExactLoss:
    """The loss of PAK's quantile with its offset, by the rule's own kappa or another one."""
    rule = PAKQuantile(delta=DELTA, noise=noise)  # type: ignore[arg-type]
    law = rule.law(WIDE)
    factor = rule.kappa(WIDE) if kappa is None else kappa
    return smooth_noise_loss(law, WIDE.epsilon, DELTA, kappa=factor, offset=law.upper(rule.beta))


def exact_losses(seed: int | str | None) -> dict[str, Callable[[], ExactLoss]]:
    """Computations by name; the seed is for the trees that are drawn."""
    smooth = {
        "laplace": (SmoothQuantile(delta=DELTA), DELTA),
        "gaussian": (SmoothQuantile(delta=DELTA, noise="gaussian"), DELTA),
        "cauchy": (SmoothQuantile(noise="cauchy"), 0.0),
    }
    added = np.zeros(22), np.zeros(0)
    return {
        **{
            f"exact-local-{law.__name__.lower()}": partial(local_report_loss, law(1.0))
            for law in (SquareWave, StochasticRounding, Piecewise, Hybrid)
        },
        **{f"exact-{name}": partial(noisy_max_loss, rule, small_task(1.0)) for name, rule in RULES.items()},
        **{
            f"exact-smooth-{name}": partial(smooth_noise_loss, rule.law(WIDE), 1.0, delta)
            for name, (rule, delta) in smooth.items()
        },
        **{f"exact-pak-{name}": partial(pak_noise_loss, name) for name in ("laplace", "gaussian")},
        "exact-phdstream-step": partial(
            split_loss, split_plan(1.0, 12), 1.0, added, OUTCOMES, Key.choose(seed, None)
        ),
    }
