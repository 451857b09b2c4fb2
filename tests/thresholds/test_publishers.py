"""Publishers that choose theta by a rule: their guarantee, and the same values through a saved state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.perturbers import Flat, Hierarchy
from fastdp.thresholds import PAKQuantile, ScaleFree, SmoothQuantile, SquareWave, TruePercentile

TREE, NODES = Hierarchy(4, prune=1), Hierarchy(2, consistent=False, prune=0)
HOLDOUT = 1500
CASES = [
    (SmoothQuantile(0.9), TREE, (1.0, 1.0 / (HOLDOUT + 256) ** 2, "real")),
    (SmoothQuantile(0.9, noise="cauchy"), TREE, (1.0, 0.0, "real")),
    (PAKQuantile(0.9, beta=0.2), TREE, (1.0, 1.0 / (HOLDOUT + 256) ** 2, "real")),
    (TruePercentile(0.9), TREE, (math.inf, 0.0, "exact")),
    (SquareWave(bins=64), TREE, (1.0, 0.0, "exact")),
    *((ScaleFree(), perturber, (1.0, 0.0, "exact")) for perturber in (TREE, NODES, Flat())),
]


@pytest.mark.parametrize(("rule", "perturber", "promise"), CASES)
def test_publishers_take_each_rule(rule: Any, perturber: Any, promise: tuple[float, float, str]) -> None:
    def made() -> fastdp.StreamPublisher:
        parts = {"threshold": rule, "perturber": perturber, "smoother": fastdp.smoothers.Recent()}
        if perturber != TREE:
            del parts["smoother"]
        return fastdp.StreamPublisher(**parts, epsilon=1.0, bound=100, holdout=HOLDOUT, max_range=256, seed=3)

    values = np.random.default_rng(9).gamma(2.0, 10.0, HOLDOUT + 200)
    release, publisher = made().release(values), made()
    guarantee, task = release.guarantee, publisher.composition.task
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == promise
    assert any("NOT PRIVATE" in step for step in guarantee.derivation) == math.isinf(promise[0])
    assert task.noise_constant == perturber.noise_constant(publisher.plan, 256)
    assert 0.0 < release.threshold <= 100.0
    publisher.publish(values[:123])
    loaded = fastdp.StreamPublisher.from_bytes(publisher.to_bytes())
    rest = [loaded.publish(part) for part in np.split(values[123:], [HOLDOUT - 124, HOLDOUT - 122])]
    assert (np.concatenate(rest) == release.values).all()
    assert loaded.threshold == release.threshold
