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
