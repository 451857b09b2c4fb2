"""Privacy of the smallest release: one value, one draw.

The one-draw test (noise design, section 9): no output that one input can produce may be impossible under
an adjacent one.  Textbook floating-point Laplace fails it with probability about 0.2 a draw.
"""

from __future__ import annotations

import numpy as np
import pytest

import fastdp
from tests import stat

TRIALS = 2**20


def release_constant(value: float, epsilon: float, resolution: float, seed: int) -> np.ndarray:
    """Independent releases of one value: a hierarchy of one level gives each value noise of its own."""
    publisher = fastdp.StreamPublisher(
        threshold=fastdp.thresholds.Fixed(1.0),
        perturber=fastdp.perturbers.Hierarchy(fan_out=1024, prune=0),
        epsilon=epsilon,
        bound=1.0,
        max_range=1024,
        resolution=resolution,
        seed=seed,
    )
    return publisher.publish(np.full(TRIALS, value))


def residues(out: np.ndarray, resolution: float, modulus: int) -> np.ndarray:
    """How often each residue of the released integers occurs."""
    steps = (out / resolution).astype(np.int64)
    assert np.array_equal(steps * resolution, out), "outputs are whole steps"
    return np.bincount(np.mod(steps, modulus) * 64 // modulus, minlength=64)


@pytest.mark.parametrize("modulus", [64, 2**20])
def test_no_output_betrays_its_input(modulus: int) -> None:
    """Low-order digits of outputs are uniform whatever the value: each output is possible under each input.

    The scale is 2^32 steps, so a discrete Laplace variable modulo 2^20 is uniform to 2^-24.
    """
    resolution, uniform = 2.0**-32, np.full(64, 1 / 64)
    for value in (0.0, 1.0, 0.3):
        out = release_constant(value, 1.0, resolution, stat.seed(21))
        stat.accept(stat.chi_square_p(residues(out, resolution, modulus), uniform))
    # Power: noise rounded to multiples of 64 steps leaves the value's digits bare.
    floored = np.floor(out / (64 * resolution)) * 64 * resolution
    stat.reject(stat.chi_square_p(residues(floored, resolution, 64), uniform))


@pytest.mark.statistical
def test_empirical_epsilon_of_a_tree_with_levels() -> None:
    """Through two levels, consistency and block closing: the sum over one block, value 0 against theta."""

    def first_block(value: float, epsilon: float, seed: int) -> np.ndarray:
        publisher = fastdp.StreamPublisher(
            threshold=fastdp.thresholds.Fixed(1.0),
            perturber=fastdp.perturbers.Hierarchy(fan_out=4, prune=1),
            smoother=fastdp.smoothers.Recent(),
            epsilon=epsilon,
            bound=1.0,
            max_range=64,
            resolution=2.0**-10,
            seed=seed,
        )
        values = np.zeros((2**15, 64))
        values[:, 2] = value
        return publisher.publish(values.ravel()).reshape(-1, 64)[:, :4].sum(axis=1)

    def bound(epsilon: float) -> float:
        ones, zeros = first_block(1.0, epsilon, stat.seed(27)), first_block(0.0, epsilon, stat.seed(28))
        return max(
            stat.epsilon_lower_bound(int((ones >= t).sum()), int((zeros >= t).sum()), ones.size)
            for t in (0.0, 1.0, 3.0, 6.0)
        )

    claimed = bound(1.0)
    assert 0.3 < claimed < 1.0
    assert bound(5.0) > 1.0, "noise a fifth of what the claim needs must be seen"


def test_empirical_epsilon_stays_below_the_claim_and_sees_halved_noise() -> None:
    claimed = 1.0
    zeros = release_constant(0.0, claimed, 2.0**-10, stat.seed(23))
    ones = release_constant(1.0, claimed, 2.0**-10, stat.seed(24))
    bound = stat.epsilon_lower_bound(int((ones >= 1.0).sum()), int((zeros >= 1.0).sum()), TRIALS)
    assert 0.9 * claimed < bound < claimed
    halved = release_constant(0.0, 2 * claimed, 2.0**-10, stat.seed(25))
    halved_ones = release_constant(1.0, 2 * claimed, 2.0**-10, stat.seed(26))
    broken = stat.epsilon_lower_bound(int((halved_ones >= 1.0).sum()), int((halved >= 1.0).sum()), TRIALS)
    assert broken > 1.5 * claimed
