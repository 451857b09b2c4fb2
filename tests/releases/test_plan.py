"""Plans before any data: half-widths, the epsilon that a width needs, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fastdp
from tests.tables import flat


def test_a_window_has_one_draw() -> None:
    plan = fastdp.plan(epsilon=0.5, bound=10.0, contributions=3)
    # On the default grid the law is the real one to nine digits.
    assert plan.half_width == pytest.approx(-math.log(0.05) * 60.0, rel=1e-8)
    assert plan.std_error == pytest.approx(math.sqrt(2.0) * 60.0, rel=1e-8)
    assert plan.relative_error is None
    assert plan.half_width_of(10_000) == pytest.approx(1.95996 * 100.0 * plan.std_error, rel=1e-4)


def test_relative_errors_need_rows_and_a_mean() -> None:
    plan = fastdp.plan(epsilon=1.0, bound=10.0, rows_per_window=400, mean=0.5)
    assert plan.relative_error == pytest.approx(plan.half_width / 200.0)
    assert "Relative to 400 rows of 0.5: +- 15 %" in str(plan)
    assert "Mean of 400 rows" in str(fastdp.plan(epsilon=1.0, bound=10.0, rows_per_window=400))


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("contributions", [1, 20])
def test_the_epsilon_of_a_width_gives_that_width(confidence: float, contributions: int) -> None:
    wanted = {"bound": 3.0, "confidence": confidence, "contributions": contributions}
    plan = fastdp.plan(half_width=7.5, **wanted)
    assert plan.half_width == pytest.approx(7.5, rel=1e-8)
    assert fastdp.plan(epsilon=plan.epsilon, **wanted) == plan
    assert plan.epsilon_for(3.75) == pytest.approx(2.0 * plan.epsilon)


@pytest.mark.parametrize(
    ("every", "day", "week"),
    [
        *[("1h", 24, 168), ("15min", 96, 672), ("90s", 960, 6720), ("h", 24, 168), ("1d", None, 7), ("7h", None, 24)],
        *[("1mo", None, None), ("0h", None, None), ("later", None, None), (None, None, None)],
    ],
)
def test_sums_over_days_and_weeks(every: str | None, day: int | None, week: int | None) -> None:
    text = str(fastdp.plan(epsilon=1.0, bound=1.0, every=every))
    for name, count in (("day", day), ("week", week)):
        assert (f"A {name} of {count} windows" in text) == (count is not None)
        assert (f"A {name} of" in text) == (count is not None)


def test_noise_is_as_wide_as_the_plan_says() -> None:
    plan = fastdp.plan(epsilon=0.1, bound=4.0)
    noise = fastdp.StreamPublisher(
        threshold=4.0, perturber=fastdp.perturbers.Flat(), epsilon=0.1, bound=4.0, seed=3
    ).release(np.zeros(20_000))
    outside = np.mean(np.abs(noise.values) > plan.half_width)
    assert 0.042 < outside < 0.058


@pytest.mark.parametrize(
    ("contributions", "delta", "noise"),
    [
        (1, 1e-6, "laplace"),
        (10, 1e-6, "laplace"),
        (20, 1e-6, "gaussian"),
        (20, 1e-9, "gaussian"),
        (16, 1e-9, "laplace"),
        (48, 1e-9, "gaussian"),
        (100, 1e-6, "gaussian"),
    ],
)
def test_a_plan_with_a_delta_says_which_noise_is_better(contributions: int, delta: float, noise: str) -> None:
    plan = fastdp.plan(epsilon=1.0, bound=2.0, contributions=contributions, per_window=1, delta=delta)
    assert plan.noise == noise
    assert plan.std_error == min(plan.std_error_with("laplace"), plan.std_error_with("gaussian"))
    assert f"{noise.capitalize()} noise is better" in str(plan)
    assert fastdp.plan(epsilon=plan.epsilon_for(9.0), **{**vars_of(plan), "bound": 2.0}).half_width == pytest.approx(
        9.0
    )


def vars_of(plan: fastdp.Plan) -> dict:
    return {name: getattr(plan, name) for name in ("bound", "contributions", "per_window", "delta")}


def test_a_plan_is_what_a_release_does() -> None:
    """The noise that is planned is the law that a table draws from."""
    plan = fastdp.plan(epsilon=1.0, bound=1.0, contributions=48, per_window=1, delta=1e-6)
    made = flat.make_plan(
        "totals",
        every="1h",
        who="home",
        period="1d",
        clip=1.0,
        epsilon=1.0,
        contributions=48,
        per_window=1,
        delta=1e-6,
    )
    (total,), budget = made.quantities(), made.budget
    sigma = float(budget.distribution(total, budget.levels[0]).sigma) * total.resolution
    # Four hundredths of rho are for rows that count and that are dropped, 11 of the rest for those beyond the clip.
    assert sigma * math.sqrt(0.96 * 0.89) == pytest.approx(plan.std_error, rel=1e-9)
