"""Privacy of the smallest release: one value, one draw.

The one-draw test (noise design, section 9): no output that one input can produce may be impossible under
an adjacent one.  Textbook floating-point Laplace fails it with probability about 0.2 a draw.
"""

from __future__ import annotations

import numpy as np

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


def test_no_output_betrays_its_input() -> None:
    resolution = 2.0**-32
    for value, adjacent in ((0.0, 1.0), (1.0, 0.0), (0.3, 0.7)):
        out = release_constant(value, 1.0, resolution, stat.seed(21))
        steps = out / resolution
        # Every output is a whole number of steps, below 2^53: exactly what the adjacent input can give too.
        assert np.array_equal(steps, np.rint(steps))
        assert np.abs(steps).max() < 2.0**53
        noise = steps - np.rint(adjacent / resolution)
        assert np.array_equal((noise + np.rint(adjacent / resolution)) * resolution, out)


def test_the_one_draw_test_catches_floating_point_laplace() -> None:
    generator = np.random.default_rng(stat.seed(22))
    out = 0.0 + generator.laplace(0.0, 1.0, TRIALS)
    # Doubles y with fl(1 + y') = y for no y': (y - 1) + 1 misses y.
    impossible = (out - 1.0) + 1.0 != out
    assert impossible.mean() > 0.05


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
