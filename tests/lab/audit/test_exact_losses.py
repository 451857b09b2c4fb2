"""Losses that are computed exactly: of the package's rules within the claim, of negative controls above it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.audit.parts import with_split_noise
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.noise.key import Key
from fastdp.thresholds import PAKQuantile
from fastdp.thresholds.quantile import calibrate
from fastdp_lab.audit import exact
from fastdp_lab.audit.exact import RULES, WIDE, small_task, split_plan
from tests import stat
from tests.grid import exhaustive


def test_the_sum_of_a_choice_and_its_kernel_is_the_same() -> None:
    """Scores that are enumerated are those that win."""
    for rule in RULES.values():
        chooser = exact.observed(rule, small_task(1.0), [1, 2, 2], winner=True)
        distribution = exact.winner_probabilities(
            np.rint(chooser.scores() * (64 / chooser.sensitivity)).astype(np.int64),
            64.0,
            one_sided=chooser.distribution.one_sided,
        )
        thetas = chooser.choices(Key.from_seed(stat.seed(309)), 20_000)
        assert chooser.choose(Key.from_seed(5)) == chooser.choices(Key.from_seed(5), 1)[0]
        found = [int((thetas == candidate).sum()) for candidate in np.arange(1.0, 5.0)]
        stat.accept(stat.chi_square_p(np.array(found), distribution))
        stat.reject(stat.chi_square_p(np.array(found), distribution[::-1]))


@pytest.mark.parametrize("name", ["laplace", "gaussian", "cauchy"])
def test_exact_loss_of_smooth_noise(name: str) -> None:
    delta = 0.0 if name == "cauchy" else 1e-3
    distribution = calibrate(name, 1.0, delta, 2.0)
    loss = exact.smooth_noise_loss(distribution, 1.0, delta)
    assert 0.2 < loss.worst <= 1.0
    assert exact.smooth_noise_loss(replace(distribution, a=16 * distribution.a), 1.0, delta).violated


@pytest.mark.parametrize(
    ("noise", "beta"),
    [
        *(("laplace", 0.006), ("gaussian", 0.1)),
        *exhaustive(("laplace", 0.1), ("laplace", 0.4), ("gaussian", 0.006), ("gaussian", 0.4)),
    ],
)
def test_kappa_hides_the_offset_and_costs_nothing(noise: str, beta: float) -> None:
    """PAK Eq. 11: with it the loss is the plain quantile's; without it more, at the paper's beta than is claimed."""
    rule = PAKQuantile(beta=beta, delta=1e-3, noise=noise)
    distribution, offset = rule.smooth_noise(WIDE), rule.smooth_noise(WIDE).upper(beta)
    plain = exact.smooth_noise_loss(distribution, 1.0, 1e-3)
    hidden = exact.smooth_noise_loss(distribution, 1.0, 1e-3, kappa=rule.kappa(WIDE), offset=offset)
    open_ = exact.smooth_noise_loss(distribution, 1.0, 1e-3, offset=offset)
    assert abs(hidden.worst - plain.worst) < 1e-3
    assert open_.worst > hidden.worst + 0.01
    assert open_.violated == (noise == "laplace" and beta == 0.006)


def test_exact_loss_of_a_step_with_half_of_its_noise() -> None:
    plan, data = split_plan(1.0, 12), (np.zeros(5), np.zeros(0))
    less = with_split_noise(plan, plan.split_distribution.scale / 2)
    assert not exact.split_loss(plan, 1.0, data, 300, Key.from_seed(1)).violated
    assert exact.split_loss(less, 1.0, data, 300, Key.from_seed(1)).violated


@pytest.mark.parametrize("distribution", [SquareWave, StochasticRounding, Piecewise, Hybrid])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_exact_loss_of_reports(distribution, epsilon: float) -> None:
    loss = exact.local_report_loss(distribution(epsilon))
    assert epsilon * (1 - 1e-9) < loss.worst <= epsilon
    assert not loss.violated


@pytest.mark.parametrize("name", ["noisy-max-laplace", "noisy-max-exponential", "scale-free-laplace"])
def test_exact_loss_of_noisy_max(name: str) -> None:
    rule, task = RULES[name], small_task(0.7)
    loss = exact.noisy_max_loss(rule, task)
    assert 0.9 * 0.7 < loss.worst <= 0.7
    assert not loss.violated
    halved = exact.noisy_max_loss(rule, task, noise_factor=0.5)
    assert halved.violated
    assert halved.worst > 1.8 * 0.7
