"""What follows from public parameters: shares of the budget, clips in steps, what is said of the ends."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.tables import flat

PRIVATE: dict[str, Any] = {"by": "k", "delta": 1e-6, "who": "p", "bound": 10.0}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_shares_are_those_that_are_documented(noise: str) -> None:
    """A tenth for keys, at most a tenth for the clip, a hundredth for persons: of epsilon, or of rho."""
    plan = flat.make_plan("totals", every="1h", epsilon=2.0, noise=noise, **PRIVATE).settled(0, 10, 3)
    power = 2 if noise == "gaussian" else 1
    parts = [plan.key_epsilon, plan.person_epsilon, plan.sum_epsilon]
    keys, persons, sums = ((part / plan.loss) ** power for part in parts)
    clip = sum((part / plan.loss) ** power for part in plan.clip_epsilons)
    assert keys == pytest.approx(0.1)
    assert persons == pytest.approx(0.01)
    assert 0.0 < clip <= 0.1 * (1.0 + 1e-9)
    assert sums + keys + persons + clip <= 1.0 + 1e-9
    assert plan.loss == 2.0 or noise == "gaussian"


def test_a_clip_is_rounded_to_a_step_that_it_holds() -> None:
    plan = flat.make_plan("totals", every="1h", epsilon=1.0, clip=2.7, resolution=1.0)
    assert plan.steps(2.7) == 2
    assert (plan.steps(-2.7), plan.steps(0.3), plan.steps(0.0)) == (-2, 1, 0)
    # The float .01 is a little more than a hundredth.
    fine = flat.make_plan("totals", every="1h", epsilon=1.0, clip=10.0, resolution=0.01)
    assert math.isclose(fine.steps(10.0) * fine.step, 10.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the first and last window of the table is public"),
        ({"start": "2024-01-01"}, "the last window of the table is public"),
        ({"stop": "2024-01-02"}, "the first window of the table is public"),
        ({"start": "2024-01-01", "stop": "2024-01-02"}, None),
    ],
)
def test_ends_that_are_taken_are_said(given: dict[str, str], said: str | None) -> None:
    """Before the table is read, and after."""
    plan = flat.make_plan("counts", every="1h", epsilon=1.0, **given)
    for each in (plan, plan.settled(0, 5, 1)):
        lines = [line for line in each.guarantee(simulated=False).derivation if "public knowledge" in line]
        assert [line.startswith(said) for line in lines] == ([True] if said else [])


def test_the_callers_word_is_said() -> None:
    """Without persons nothing bounds the rows of a unit; with them nothing is taken on trust."""
    for given, said in (({}, False), ({"contributions": 3}, True), ({"contributions": 3, "who": "p"}, False)):
        plan = flat.make_plan("counts", every="1h", epsilon=1.0, start="2024-01-01", stop="2024-01-02", **given)
        lines = plan.guarantee(simulated=False).derivation
        assert any("a unit has at most 3 rows, on the caller's word" in line for line in lines) == said


@pytest.mark.parametrize("bound", [(-7.0, 3.0), (-3.0, 7.0), (-7.0, 0.0)])
def test_a_row_moves_a_total_by_the_farther_end(bound: tuple[float, float]) -> None:
    plan = flat.make_plan("totals", every="1h", epsilon=1.0, bound=bound, resolution=1.0)
    (total,) = plan.quantities()
    assert total.sensitivity == 7
