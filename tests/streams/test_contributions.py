"""Several values protected together: a w-th of epsilon each, restated for w; a default leaves keys as they were."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, fraction_of, of_group
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax, SmoothQuantile
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from tests.noise_values import bound_key

PARTS: dict[str, dict[str, Any]] = {
    "adaptive": {"perturber": Blocks()},
    "tops": {"perturber": Hierarchy(4, prune=1), "smoother": Recent()},
    "flat": {"perturber": Flat(), "renewal": RenewFromPublished(0.25, 1)},
    "withheld": {"perturber": Hierarchy(2, prune=0), "renewal": RenewFromHoldout(1, 8)},
}
VALUES = np.arange(400.0) * 7 % 31


def make(name: str, **options: Any) -> fastdp.StreamPublisher:
    usual = {"threshold": NoisyMax(step=1.0), "bound": 64.0, "holdout": 32, "max_range": 64, "resolution": 2.0**-8}
    return fastdp.StreamPublisher(**{**usual, **PARTS[name], "key": bound_key(1), **options})


@pytest.mark.parametrize("name", PARTS)
def test_each_value_has_its_part_of_epsilon(name: str) -> None:
    together, alone = make(name, epsilon=2.0, contributions=8), make(name, epsilon=0.25)
    assert np.array_equal(together.publish(VALUES), alone.publish(VALUES))
    assert together.threshold == alone.threshold
    said, each = together.guarantee, alone.guarantee
    assert (said.epsilon, each.epsilon) == (2.0, 0.25)
    assert (said.unit, said.adjacency) == ("any 8 consecutive values", "replace them")
    assert said.arithmetic == each.arithmetic == "exact"
    assert set(each.derivation) < set(said.derivation)
    assert "contributions=8" in repr(together)
    again = fastdp.StreamPublisher.from_bytes(together.to_bytes())
    assert (again.contributions, again.guarantee) == (8, said)
    assert np.array_equal(again.publish(VALUES), together.publish(VALUES))


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.3, 1e-3, 7.7])
@pytest.mark.parametrize("w", [1, 3, 7, 10, 49, 1000])
def test_parts_never_add_up_to_more(epsilon: float, w: int) -> None:
    part = fraction_of(epsilon, w)
    assert w * Fraction(part) <= Fraction(epsilon) < w * Fraction(part) * (1 + Fraction(1, 2**50))


def test_a_group_with_a_delta_or_without_privacy() -> None:
    member = Guarantee(fraction_of(0.5, 5), delta=1e-6)
    said = of_group(member, 5, 0.5, "five", "replace them", "step")
    exact = 1e-6 * sum(np.exp(member.epsilon * k) for k in range(5))
    assert exact <= said.delta <= 5e-6 * np.exp(0.4) * 1.001
    assert of_group(Guarantee(np.inf), 2, 1.0, "two", "replace them", "step").epsilon == np.inf
    with pytest.raises(ValueError, match="lose more"):
        of_group(Guarantee(0.3), 2, 0.5, "two", "replace them", "step")
    quantile = fastdp.Adaptive(1.0, 50.0, 100, threshold=SmoothQuantile(delta=1e-6), contributions=4, seed=1)
    assert quantile.guarantee.delta > 4e-6


def test_systems_and_release_pass_it_on() -> None:
    for made in (
        fastdp.ToPS(1.0, 64.0, 32, 64, contributions=4, seed=1),
        fastdp.Adaptive(1.0, 64.0, threshold=Fixed(31.0), contributions=4, seed=1),
    ):
        assert made.guarantee.unit == "any 4 consecutive values"
    released = fastdp.release(VALUES, 1.0, 64.0, threshold=31.0, seed=1, contributions=4)
    assert released.guarantee.unit == "any 4 consecutive values"
    with pytest.raises(ParameterError, match="share of epsilon above 0"):
        fastdp.ToPS(5e-324, 64.0, 32, 64, contributions=4, seed=1)
