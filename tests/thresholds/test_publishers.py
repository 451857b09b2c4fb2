"""Every rule: chunks, copies and saved states of its chooser, and publishers that choose theta by it."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import AccuracyWarning
from fastdp.noise.key import Key
from fastdp.perturbers import Flat, Hierarchy
from fastdp.thresholds import (
    NoisyMax,
    PAKQuantile,
    ScaleFree,
    SmoothQuantile,
    SquareWave,
    ThresholdTask,
    TruePercentile,
)

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


RULES: list[Any] = [
    *(SmoothQuantile(0.9), SmoothQuantile(0.9, noise="cauchy"), PAKQuantile(0.9, beta=0.2), TruePercentile(0.9)),
    *(SquareWave(bins=128), ScaleFree(), NoisyMax(step=1.0)),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_chunks_order_copies_and_packing_do_not_matter(rule: Any) -> None:
    generator = np.random.default_rng(6)
    values = generator.gamma(2.0, 20.0, 3000) - 5.0
    facts = ThresholdTask(2.0, 150.0, 3000, 2**20, 2.0**-10, noise_constant=100.0, publish_epsilon=4.0)
    key = Key.from_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        whole, parts, again, other = (rule.start(facts) for _ in range(4))
    whole.observe(values)
    # Reports go out in the order of the values.
    ordered = values if isinstance(rule, SquareWave) else generator.permutation(values)
    for piece in np.split(ordered, [0, 1, 2, 1023, 1024, 1025, 2500, 3000]):
        before = parts.pack().tolist()
        parts, older = parts.copy(), parts
        parts.observe(piece)
        assert older.pack().tolist() == before
    again.unpack(parts.pack())
    other.observe(values[:9])
    other.unpack(parts.pack())
    # Choosing changes nothing.
    thetas = [chooser.choose(key) for chooser in (whole, parts, again, other, whole)]
    assert len(set(thetas)) == 1
    assert facts.resolution <= thetas[0] <= facts.bound
    if isinstance(rule, (NoisyMax, ScaleFree)):
        spent = Fraction(getattr(whole, "count_epsilon", 0.0)) + whole.sensitivity / whole.distribution.scale
        assert Fraction(2.0) * (1 - Fraction(1, 2**50)) <= spent <= Fraction(2.0), "the hold-out's"
        for packed in ([-1, 1], [0, -1]):
            with pytest.raises(ValueError, match="negative"):
                other.unpack(np.array(packed, np.int64))
