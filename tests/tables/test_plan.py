"""Consequences of public parameters: shares of the budget, clips in steps, texts about the ends."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

import fastdp
from fastdp.tables import arguments
from fastdp.tables.budget import OF_ALL
from fastdp.tables.plan import _steps
from fastdp.tables.sums import Quantity
from tests.tables import flat

PRIVATE: dict[str, Any] = {"by": "k", "delta": 1e-6, "who": "p", "bound": 10.0}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_shares_are_those_that_are_documented(noise: str) -> None:
    """A quarter for keys; for all helpers together at most a quarter: of epsilon, or of rho."""
    made = flat.make_plan("totals", every="1h", epsilon=2.0, noise=noise, **PRIVATE).settled(0, 10, 3)
    power, budget = 2 if noise == "gaussian" else 1, made.budget
    parts = [budget.helper(each) for each in ("keys", "counted", "dropped")]
    parts += [budget.of(Quantity("total", "values"), budget.levels[0])]
    parts += [budget.helper(each, "values") for each in ("rows", "clip", "tail")]
    keys, counted, dropped, sums, rows, clip, tail = ((part / budget.loss) ** power for part in parts)
    assert (keys, counted, dropped) == pytest.approx((0.25, 0.01, 0.03))
    # Of what these leave.
    assert (rows, clip, tail) == pytest.approx((0.71 * 0.005, 0.71 * 0.075, 0.71 * 0.08))
    assert counted + dropped + 0.005 + 0.075 + 0.08 + float(OF_ALL["auto"]) == pytest.approx(0.22)
    assert sums + keys + counted + dropped + rows + clip + tail == pytest.approx(1.0)
    assert budget.loss == 2.0 or noise == "gaussian"


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_columns_share_by_weight_and_sums_and_levels_within(noise: str) -> None:
    asked = arguments.statistics_of({"a": ["sum", "var"], "b": "mean", "*": "count"})
    bounds = {"a": fastdp.Value(clip=1.0, weight=2.0), "b": fastdp.Value(clip=(-1.0, 2.0))}
    options = {"epsilon": 1.0, "delta": 1e-6, "by": ["k", "j"], "keys": {"k": [1, 2], "j": [3, 4, 5]}, "levels": True}
    with flat.noise_is(noise):
        made = arguments.make_plan(asked, fastdp.Time("at", "1h"), bounds=bounds, **options)
    before = made.budget.guarantee(simulated=False).derivation
    made = made.settled(0, 24, 1, 2, 6)
    budget, power = made.budget, 2 if noise == "gaussian" else 1
    names = [(q.name, q.column) for q in made.quantities()]
    assert names == [("total", "a"), ("square", "a"), ("deviation", "b"), ("count", "*")]
    assert budget.levels[0] == (2, True)
    assert set(budget.levels) <= {(2, True), (1, True), (0, True), (2, False), (1, False), (0, False)}
    assert sum(budget.level_shares.values()) == 1

    def share(loss: float) -> float:
        return float(loss / budget.loss) ** power

    found = {name: [share(budget.of(Quantity(*name), level)) for level in budget.levels] for name in names}
    for name, shares in found.items():
        whole = share(budget.of(Quantity(*name), None))
        assert shares == pytest.approx([whole * float(each) for each in budget.level_shares.values()])
    beyond = {name: share(budget.helper("tail", name)) for name in "ab"}
    totals = {name: sum(sum(found[each]) for each in names if each[1] == name) for name in ("a", "b", "*")}
    assert totals["a"] + beyond["a"] == pytest.approx(0.99 / 2)
    assert totals["b"] + beyond["b"] == pytest.approx(totals["*"]) == pytest.approx(0.99 / 4)
    assert sum(found["total", "a"]) == pytest.approx(sum(found["square", "a"]))
    exact = [Fraction(budget.of(Quantity(*name), level)) ** power for name in names for level in budget.levels]
    exact += [Fraction(budget.helper("tail", name)) ** power for name in "ab"]
    exact.append(Fraction(budget.helper("counted")) ** power)
    assert 1 - Fraction(1, 10**12) < sum(exact) / Fraction(budget.loss) ** power <= 1
    said = budget.guarantee(simulated=False).derivation
    assert sum(line.startswith("sums") for line in said) == 4 * len(budget.levels) > 4
    # Before windows and keys are known, each sum's cells and totals have what is stated together.
    assert sum("cells and totals together" in line for line in before) == 4


def test_a_clip_is_rounded_to_a_step_that_it_holds() -> None:
    made = flat.make_plan("totals", every="1h", epsilon=1.0, clip=2.7, resolution=1.0)
    assert made.quantities()[0].high == 2
    assert [_steps(end, 1.0) for end in (-2.7, 0.3, 0.0)] == [-2, 1, 0]
    # The float .01 is a little more than a hundredth.
    fine = flat.make_plan("totals", every="1h", epsilon=1.0, clip=10.0, resolution=0.01)
    assert math.isclose(fine.quantities()[0].ends[1], 10.0)


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
    made = flat.make_plan("counts", every="1h", epsilon=1.0, **given)
    for each in (made, made.settled(0, 5, 1)):
        lines = [line for line in each.budget.guarantee(simulated=False).derivation if "public knowledge" in line]
        assert [line.startswith(said) for line in lines] == ([True] if said else [])


def test_the_callers_word_is_said() -> None:
    """Without persons nothing bounds the rows of a unit; with them nothing is taken on trust."""
    for given, said in (({}, False), ({"contributions": 3}, True), ({"contributions": 3, "who": "p"}, False)):
        made = flat.make_plan("counts", every="1h", epsilon=1.0, start="2024-01-01", stop="2024-01-02", **given)
        lines = made.budget.guarantee(simulated=False).derivation
        assert any("a unit has at most 3 rows, on the caller's word" in line for line in lines) == said


@pytest.mark.parametrize("bound", [(-7.0, 3.0), (-3.0, 7.0), (-7.0, 0.0)])
def test_a_row_moves_a_total_by_the_farther_end(bound: tuple[float, float]) -> None:
    made = flat.make_plan("totals", every="1h", epsilon=1.0, bound=bound, resolution=1.0)
    (total,) = made.quantities()
    assert total.sensitivity == 7
