"""Plans of finished arrays beside what releases of such arrays then print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError

AWKWARD = {
    "zeros": lambda n: np.zeros(n),
    "bursts": lambda n: np.where(np.arange(n) % 1000 < 10, 300.0, 1.0),
    "constant": lambda n: np.full(n, 70.0),
    "growth": lambda n: 300.0 * np.exp(4.0 * np.arange(n) / n - 4.0),
    "noise": lambda n: np.random.default_rng(1).gamma(2.0, 20.0, n),
}


@pytest.mark.parametrize(
    ("size", "epsilon", "options"),
    [
        (1, 1.0, {}),
        (24, 1.0, {}),
        (400, 1.0, {}),
        (3000, 1.0, {"delta": 1e-6}),
        (20_000, 0.5, {}),
        (400_000, 1.0, {}),
    ],
)
def test_a_plan_has_the_shares_and_widths_of_releases(size: int, epsilon: float, options: dict[str, Any]) -> None:
    for name, shape in AWKWARD.items():
        values, bound = shape(size), 450.0
        release = fastdp.release(values, epsilon, bound, seed=name, **options)
        mean = release.values.mean()
        plan = fastdp.plan(size=size, epsilon=epsilon, bounds=bound, mean=mean, **options)
        assert (plan.unit, plan.size) == (release.guarantee.unit, size)
        printed = dict(line.strip().split(maxsplit=1) for line in repr(release).splitlines()[1:])
        outcomes = plan.shares.outcomes
        like = [
            each
            for each in outcomes
            if (each.theta < 0.2 * bound) == (release.threshold < 0.2 * bound)
            and (each.blocks == 1) == (release.answer.sums.size <= 1)
            and ("groups" in each.shares) == ("groups" in printed["shares"])
        ]
        if like and not (like[0].blocks == 1 and 0.2 < release.threshold / bound <= 0.35):
            expected = ", ".join(f"{step} {fraction:.1%}" for step, fraction in like[0].shares.items())
            assert printed["shares"] == expected, name
        low, high = release.interval(0, size)
        # Ends stay within [0, n bound], and a tail that was seen is wider than one that is not there.
        assert high[0] - low[0] < 8.0 * plan.half_width, name
    for outcome in outcomes:
        assert sum(outcome.shares.values()) == pytest.approx(1.0)
    assert plan.half_width == max(each.half_widths[0] for each in outcomes)


def test_a_width_gives_its_epsilon() -> None:
    plan = fastdp.plan(size=5000, half_width=400.0, bounds=(0.0, 100.0), unit=fastdp.Rows(2))
    again = fastdp.plan(size=5000, epsilon=plan.epsilon, bounds=100.0, unit=fastdp.Rows(2))
    assert plan.half_width <= 400.0
    assert str(plan) == str(again)
    assert "any 2 consecutive values" in str(plan)
    assert "Finished array of 5,000 values" in plan._repr_html_()
    assert plan.shares._repr_html_().count("<tr>") == 1 + len(plan.shares.outcomes)


def test_a_hidden_total_is_said() -> None:
    plan = fastdp.plan(size=100, epsilon=0.1, bounds=10.0, mean=0.01)
    assert "noise is as large as the number" in str(plan)
    assert not fastdp.plan(size=10_000, epsilon=1.0, bounds=10.0, mean=5.0).errors["total"].drowned


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"statistics": {"v": "sum"}}, "statistics"),
        ({"every": "1h"}, "every"),
        ({"windows": 3}, "windows"),
        ({"keys": 2}, "keys"),
        ({"rows": 4.0}, "rows"),
        ({"levels": True}, "levels"),
        ({"unit": fastdp.Rows(2, per="1d")}, "unit"),
        ({"unit": fastdp.Person("p")}, "unit"),
        ({"bounds": {"v": 2.0}}, "bounds"),
        ({"bounds": (1.0, 2.0)}, "bounds"),
        ({"mean": {"v": 2.0}}, "mean"),
        ({"size": 0}, "size"),
    ],
    ids=str,
)
def test_what_is_of_tables_is_refused_beside_size(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=rf"^{named}\b.*expected") as refused:
        fastdp.plan(**{"size": 100, "epsilon": 1.0, "bounds": 5.0, **given})
    assert refused.value.parameter == named


@pytest.mark.parametrize("asked", [{"epsilon": 1.0}, {"half_width": 1000.0}], ids=str)
def test_more_blocks_than_memory_holds_are_refused(asked: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=r"expected at most .* blocks") as refused:
        fastdp.plan(size=2**45, bounds=100.0, **asked)
    assert refused.value.parameter == "size"
