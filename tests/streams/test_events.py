"""Counts of events without a bound: against the oracle, how values are rounded, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import ParameterError
from fastdp.integer_grid import make_event_grid
from fastdp.perturbers import Blocks
from fastdp.streams import pipelines
from fastdp_kernels.streams import block_lengths as b
from tests.noise_values import chain_noise
from tests.oracles import adaptive


def counts(n: int) -> np.ndarray:
    """Days of 48 values, and weeks that differ."""
    generator = np.random.default_rng(3)
    t = np.arange(n)
    return generator.poisson(20 + 15 * np.sin(t * 2 * np.pi / 48) + 5 * (t // 336 % 2)).astype(float)


def make(epsilon: float = 1.0, sensitivity: float = 1.0, **options: Any) -> fastdp.Adaptive:
    blocks = Blocks(options.pop("closing", "spread"))
    usual = {"max_range": 4096, "seed": 1, "perturber": blocks}
    return fastdp.Adaptive(epsilon, sensitivity=sensitivity, **{**usual, **options})


def learner_of(publisher: fastdp.Adaptive) -> adaptive.Learner:
    shape = publisher._pipeline.shape
    public = adaptive.Public(
        noise=2.0 / publisher.epsilon**2,
        max_range=publisher.max_range,
        prior_white=1.0,
        prior_drift=0.0,
        least=0,
        most=int(shape["most"][0]),
        first=0,
        limit=0,
        spreads=publisher.composition.perturber.closing == "spread",
        constants=b,
        events=b,
    )
    return adaptive.Learner(public, 0.0, pipelines.FIRST_EVENTS * (1.0 + public.noise), 0)


def in_steps(values: np.ndarray, resolution: float, limit: int) -> list[int]:
    """Halves up, saturated."""
    exact = [math.floor(Fraction(value) / Fraction(resolution) + Fraction(1, 2)) for value in values.tolist()]
    return [min(max(step, -limit), limit) for step in exact]


@pytest.mark.parametrize(
    ("epsilon", "sensitivity", "closing"),
    [(0.05, 1.0, "spread"), (0.5, 0.3, "spread"), (3.0, 1.0, "spread"), (0.5, 1.0, "spike"), (0.5, 2.5, "none")],
)
def test_release_equals_the_oracle(epsilon: float, sensitivity: float, closing: str) -> None:
    values = counts(700) - 12.3
    publisher = make(epsilon, sensitivity, closing=closing)
    release = publisher.release(values)
    grid = publisher.composition.grid
    steps = math.ceil(Fraction(sensitivity) / Fraction(grid.resolution))
    learner = learner_of(publisher)
    noise = chain_noise(publisher._key, steps, epsilon)
    adaptive.release(in_steps(values, grid.resolution, grid.bound_steps), noise, steps, learner)
    theta = steps * grid.resolution
    assert release.threshold == theta
    assert release.revision.exponents.tolist() == [block.exponent for block in learner.blocks]
    assert min(release.revision.exponents) == 0
    expected = adaptive.published(learner, values.size, spikes=closing == "spike")
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-7, atol=1e-7)
    levels = adaptive.levels_given_all(learner)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels))
    # No stream has seen six such periods: without a pattern.
    release = release.with_season(2.0**40)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-5, atol=1e-5)
    assert release.offset == 0


@pytest.mark.parametrize("sensitivity", [1.0, 0.1, 3.0])
@given(value=st.floats(-1e9, 1e9), moved=st.floats(-1.0, 1.0), power=st.integers(0, 12))
@example(value=0.5, moved=1.0, power=0)
@example(value=-0.5, moved=-1.0, power=0)
@example(value=0.49999999999999994, moved=1.0, power=0)
@example(value=2.0**40 + 0.5, moved=0.0, power=0)
def test_an_event_moves_a_rounded_value_by_at_most_the_sensitivity(
    sensitivity: float, value: float, moved: float, power: int
) -> None:
    """Halves are rounded up: with ties to even 0.5 and 1.5 would be two steps apart."""
    resolution = 2.0 ** (math.frexp(sensitivity)[1] - 1 - power)
    grid, other = make_event_grid(sensitivity, resolution, 1.0, 16), value + moved * sensitivity
    if abs(Fraction(other) - Fraction(value)) > Fraction(sensitivity):
        other = value
    pair = np.array([value, other])
    sums = [steps_of(grid, pair[k : k + 1]) for k in range(2)]
    assert sums == in_steps(pair, resolution, grid.bound_steps)
    assert abs(sums[0] - sums[1]) <= grid.snap(0.0)


def steps_of(grid: Any, values: np.ndarray) -> int:
    """The open sum of a publisher's pass, without noise in it."""
    from fastdp_kernels.streams import adaptive_pass
    from tests.kernels.adaptive_runs import no_counts, sum_adaptive

    shape, memory = np.zeros(1, b.SHAPE), np.zeros(1, b.MEMORY)
    memory["exponent"][0] = 10.0
    counters = no_counts()
    places = {"counters": counters, "memory": memory, "blocks": np.empty(1, adaptive_pass.BLOCK)}
    public = 1.0 / grid.resolution, -float(grid.bound_steps), 1.0, shape, np.ones(5)
    assert sum_adaptive(values, *public, noise=np.empty(0, np.int64), **places) == values.size
    return int(counters["open_sum"][0])


def test_the_guarantee_names_the_event() -> None:
    said = make(0.5, 2.0).guarantee
    assert (said.epsilon, said.delta, said.arithmetic) == (0.5, 0.0, "exact")
    assert said.unit == "one event"
    assert said.adjacency == "add or remove one event (moves one value by at most 2)"
    several = make(0.5, 2.0, contributions=3).guarantee
    assert several.epsilon == 0.5
    assert several.unit == "any 3 events"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bound": 3.0}, "expected one of them, because a value that an event moves"),
        ({"holdout": 5}, "holdout = 5: expected None with a sensitivity"),
        ({"threshold": 3.0}, "expected None with a sensitivity, because nothing is clipped"),
        ({"sensitivity": None}, "bound = None: expected a number, the public upper bound of a value"),
        ({"resolution": 0.3}, "resolution = 0.3: expected a power of two"),
        ({"resolution": 2.0}, "resolution = 2.0: expected a power of two up to the sensitivity"),
        ({"epsilon": 1e-18}, "no grid fits"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make(**options)
