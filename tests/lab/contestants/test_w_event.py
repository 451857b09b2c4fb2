"""w-event level: the schemes of Kellaris et al. step by step, and budgets of every window."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp_lab.contestants import w_event
from fastdp_lab.contestants.budget import UNITS, draws, parts
from fastdp_lab.contestants.w_event import W_EVENT

KEY = bytes(range(32))
LEVELS = np.repeat([3, 90, 5, 40, 100, 41], 25) + np.arange(150) % 3


def step_by_step(scheme: str, values: list[int], epsilon: float, moved: int, w: int) -> tuple[list[float], list[int]]:
    """Releases, and parts of epsilon that each step spends, as sections 5.2 and 5.3 say."""
    total, noise = parts(epsilon), draws(KEY, 2 * len(values)).tolist()
    testing, last, blocked_until = total // (2 * w), 0.0, -1
    out, spent, given_by_step = [], [], []
    for i, value in enumerate(values):
        if scheme == "distribution":
            given = (total // 2 - sum(given_by_step[max(0, i - w + 1) :])) // 2
        else:
            given = testing * min(max(i - blocked_until, 0), w)
        known = round(last * testing / moved)
        distance = (abs(value * testing // moved - known) + noise[2 * i]) * moved / testing
        if given and distance > moved * UNITS / given:
            last = (value * given // moved + noise[2 * i + 1]) * moved / given
            blocked_until = i + given // testing - 1
        else:
            given = 0
        out.append(last)
        given_by_step.append(given)
        spent.append(testing + given)
    return out, spent


@pytest.mark.parametrize("w", [1, 2, 7])
@pytest.mark.parametrize("scheme", ["distribution", "absorption"])
def test_far_values_are_released_with_what_the_window_has_left(scheme, w):
    epsilon, moved = 20.0, 100
    expected, spent = step_by_step(scheme, LEVELS.tolist(), epsilon, moved, w)
    found = getattr(w_event, scheme)(LEVELS, epsilon, KEY, sensitivity=moved, w=w)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert max(sum(spent[i : i + w]) for i in range(len(spent))) <= parts(epsilon)
    assert 10 <= len(set(expected)) < 150


def test_uniform_and_sample_spend_epsilon_in_every_window():
    zeros = np.zeros(5_000, np.int64)
    values = w_event.uniform(zeros, 1.0, KEY, sensitivity=3.0, w=10)
    assert np.abs(values).mean() == pytest.approx(30.0, rel=0.05)
    values = w_event.sample(zeros, 1.0, KEY, sensitivity=3.0, w=10)
    assert (values.reshape(-1, 10) == values[::10, None]).all()
    assert np.abs(values).mean() == pytest.approx(3.0, rel=0.2)


@pytest.mark.parametrize("name", ["DSAT", "FAST_w"])
def test_samples_of_a_window_are_as_many_as_its_budget_pays_for(name):
    values = np.random.default_rng(2).integers(0, 100, 600)
    mechanism = next(each for each in W_EVENT if each.name == name)
    released = mechanism.run(values, 50.0, KEY, sensitivity=1.0, w=20)
    changes = np.diff(released, prepend=0.0) != 0
    windows = np.convolve(changes, np.ones(20, int), "valid")
    # 15 % of 20; FAST_w's first samples of a block are its first values.
    assert windows.max() == 3


def test_rescue_samples_a_still_stream_less_and_less_and_a_moving_one_each_step():
    still = w_event.rescue(np.full(400, 50), 500.0, KEY, sensitivity=1.0, w=10)
    assert np.count_nonzero(np.diff(still)) < 40
    assert np.abs(still - 50).max() < 0.5
    moving = w_event.rescue(np.arange(400) * 20 % 3_000, 500.0, KEY, sensitivity=1.0, w=10, drift=1e9)
    assert np.count_nonzero(np.diff(moving)) > 350


def test_adapub_takes_medians_of_runs_of_alike_values():
    still = w_event.adapub(np.full(2_000, 50), 100.0, KEY, sensitivity=1.0, w=10)
    alone = w_event.uniform(np.full(2_000, 50), 80.0, KEY, sensitivity=1.0, w=10)
    assert 0 < np.abs(still - 50).mean() < 0.9 * np.abs(alone - 50).mean()
    values = np.arange(500) * 50 % 1_000 + 1_000
    far = w_event.adapub(values, 100.0, KEY, sensitivity=1.0, w=10)
    assert np.abs(far - values).max() < 5


@pytest.mark.parametrize("mechanism", W_EVENT, ids=lambda each: each.name)
def test_without_noise_levels_are_followed(mechanism):
    values = np.repeat([0, 100, 20], 200)
    released = mechanism.run(values, 1e5, KEY, sensitivity=1.0, w=4)
    assert np.abs(released - values).mean() < 25
