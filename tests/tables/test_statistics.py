"""A statistic is one object: a class and an entry of one list; without either it is refused, and never another's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.tables.answers import Answers
from fastdp.tables.statistics import KINDS, Answer, Mean, Quantile, Statistic, View, needed, statistic
from tests.tables.released import table

FRAME = pd.DataFrame({"v": np.append(np.random.default_rng(5).normal(30, 5, 20_000), np.full(6_000, 42.0))})


@dataclass(frozen=True)
class Halves(Statistic):
    """Half of the total: a statistic of someone's own."""

    column: str
    kind, needs, title = "half", ("total",), "Halves"

    def answer(self, view: View) -> Answer:
        found = view.sum("total", self.column)
        return Answer(*(each / 2.0 for each in (found.value, np.sqrt(found.variance), found.low, found.high)))


def test_a_new_statistic_is_a_class_and_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "half", Halves)
    monkeypatch.setitem(KINDS, "max", lambda column: Quantile(column, "max", 1.0))
    options = {"epsilon": 5.0, "bounds": fastdp.Value(clip=100.0), "seed": 1}
    found = fastdp.aggregate(FRAME, {"v": ["half", "sum", "max", "p100"]}, **options)
    assert found["v_half"].estimate(0, 1) == pytest.approx(found["v_sum"].estimate(0, 1) / 2.0, rel=1e-3)
    assert found["v_max"].estimate(0, 1) == found["v_p100"].estimate(0, 1)
    assert repr(fastdp.aggregate(FRAME, {"v": "half"}, **options)).startswith("Halves of all rows")
    assert {"v_half", "v_half_low", "v_max"} <= set(found.frame.columns)
    assert fastdp.plan({"v": "half"}, epsilon=1.0, bounds=100.0).half_width > 0.0
    with pytest.raises(ParameterError, match=r"expected estimate\(starts, stops\)"):
        found["v_half"].sum(0, 1)


@pytest.mark.parametrize(("kind", "column"), [("modes", "v"), ("count", "v"), ("sum", "*"), (3, "v"), ("p101", "v")])
def test_an_unknown_statistic_is_refused(kind: object, column: str) -> None:
    with pytest.raises(ParameterError, match="statistics"):
        statistic(kind, column)
    with pytest.raises(ParameterError, match="statistics"):
        fastdp.plan({column: [kind]}, epsilon=1.0, bounds=1.0)


@pytest.mark.parametrize("needs", [("count",), ("square", "count"), ("square", "histogram"), ("modes",), ()])
def test_needs_that_nothing_measures_are_refused(needs: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="expected 'first'"):
        type("Own", (Statistic,), {"needs": needs})


def test_a_sum_that_was_not_released_is_an_error() -> None:
    """Not another sum's number: this one forgot what it needs."""
    answers = Answers(table("totals", np.full((3, 1), 50.0)).released, 0.95)
    with pytest.raises(KeyError, match="count of '\\*' was not released"):
        answers.about(Mean("values"), np.zeros(1, int), np.ones(1, int))


def test_needs_are_listed_in_the_order_of_noise() -> None:
    kinds = ["p95", "nunique", "std", "mean"]
    counts = ["table", "histogram", "excess", "distinct"]
    assert needed([statistic(kind, "v") for kind in kinds], "v") == ["deviation", "square", *counts]
    assert needed([statistic(kind, "v") for kind in [*kinds, "sum"]], "v")[:2] == ["total", "square"]
