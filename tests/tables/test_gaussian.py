"""Tables with Gaussian noise: which noise, what it costs, and that it is bound to the sums."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.errors import AccuracyWarning
from fastdp.guarantee import zcdp_delta
from fastdp.tables import arguments
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import Quantity
from tests.tables import flat

DAY = {"every": "30min", "start": "2024-05-01", "stop": "2024-05-02"}
PERSON = {"who": "home", "contributions": 48, "per_window": 1, "period": "1d"}


def homes(count: int = 40) -> pd.DataFrame:
    at = pd.date_range("2024-05-01", periods=48, freq="30min")
    rng = np.random.default_rng(3)
    frames = [pd.DataFrame({"at": at, "home": f"h{i}", "kwh": rng.random(48)}) for i in range(count)]
    return pd.concat(frames, ignore_index=True)


def plan_of(kind="totals", **options) -> TablePlan:
    bound = {} if kind == "counts" else {"clip": 1.0}
    return flat.make_plan(kind, **{**DAY, **PERSON, **bound, "epsilon": 1.0, "delta": 1e-6, **options})


@pytest.mark.parametrize(
    "other", [{"name": "count"}, {"low": -1}, {"high": 7}, {"centre": 1}, {"resolution": 0.5}, {"grid": 0.5}]
)
def test_noise_under_another_clip_has_words_of_its_own(other: dict[str, Any]) -> None:
    (total,) = flat.make_plan("totals", every="1h", epsilon=1.0, bound=(0.0, 5.0), resolution=1.0).quantities()
    assert replace(total, **other).labels != total.labels


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
@pytest.mark.parametrize("options", [{}, {"period": None}, {"by": "k", "noise": "gaussian"}], ids=["", "all", "keys"])
def test_rhos_of_all_parts_fit_the_budget(kind, options) -> None:
    if kind != "counts":
        options = {**options, "clip": None, "bound": 1.0}
    made = plan_of(kind, **options)
    budget = made.budget
    assert budget.gaussian
    # From the distributions that are drawn.
    rho = Fraction(0)
    for level in budget.levels:
        for q in made.quantities():
            square = budget.moved(q, level.each) * q.sensitivity**2
            rho += Fraction(square) / (2 * budget.distribution(q, level).sigma ** 2)
    parts = [budget.helper(each) for each in ("counted", "dropped", "keys")]
    parts += [budget.helper(each, column.name) for column in made.columns for each in ("rows", "clip", "tail")]
    for part in parts:
        rho += Fraction(part) ** 2 / 2
    assert zcdp_delta(float(rho), 1.0) <= budget.noise_delta * (1.0 + 1e-9)
    assert float(rho) == pytest.approx(budget.loss**2 / 2, rel=1e-6)
    promised = budget.guarantee(simulated=False)
    assert (promised.epsilon, promised.delta) == (1.0, 1e-6)
    assert math.isinf(promised.rho) == (made.key_rule == "private")


def test_a_person_moves_the_sums_by_the_root() -> None:
    assert plan_of().budget.moved(Quantity("count"), True) == 48
    assert plan_of(contributions=50, per_window=4).budget.moved(Quantity("count"), True) == 12 * 16 + 4
    # Over all windows a person's rows are in one sum.
    assert plan_of().budget.moved(Quantity("count"), False) == 48**2
    made = plan_of()
    (total,), budget = made.quantities(), made.budget
    sigma = float(budget.distribution(total, budget.levels[0]).sigma)
    # Shares of rho for the rows that count, for those that are dropped and, of the rest, for those beyond the clip.
    assert sigma == pytest.approx(math.sqrt(48) * total.high / (budget.loss * math.sqrt(0.96 * 0.99)))


def test_a_delta_brings_the_better_noise() -> None:
    assert plan_of().noise == "gaussian"
    few = plan_of(contributions=4)
    assert (few.noise, few.delta, few.budget.guarantee(simulated=False).delta) == ("laplace", 0.0, 0.0)
    # All rows of a person may lie in one window.
    assert plan_of(per_window=None).noise == "laplace"
    # Persons' private keys need the delta themselves, or share the Gaussian noise's; those of rows have half of it.
    assert plan_of(by="k", noise="laplace").budget.key_delta == 1e-6
    assert plan_of(by="k", contributions=1).noise == "laplace"
    assert plan_of(by="k").noise == "gaussian"
    assert plan_of(by="k").budget.key_delta == 0.0


def test_several_sums_of_a_row_bring_gaussian_noise() -> None:
    """One row in m sums: m times the noise with Laplace noise, sqrt(m) times with Gaussian."""

    def of(m: int) -> TablePlan:
        asked = arguments.statistics_of({f"c{i}": "sum" for i in range(m)})
        return arguments.make_plan(
            asked, None, epsilon=1.0, delta=1e-6, bounds={f"c{i}": fastdp.Value(clip=1.0) for i in range(m)}
        )

    one, many = of(1), of(40)
    assert (one.noise, many.noise) == ("laplace", "gaussian")
    laplace, gaussian = replace(many, noise="laplace").budget, many.budget
    alone = replace(one, noise="gaussian", delta=1e-6).budget
    (q, *_), level = many.quantities(), gaussian.levels[0]
    ratio = float(gaussian.distribution(q, level).sigma / alone.distribution(q, level).sigma)
    assert ratio == pytest.approx(math.sqrt(40), rel=1e-6)
    assert float(gaussian.distribution(q, level).sigma) < math.sqrt(2.0) * float(laplace.distribution(q, level).scale)


def test_noise_is_bound_to_the_sums_and_smaller() -> None:
    frame = homes()
    given = {**DAY, **PERSON, "clip": 1.0, "epsilon": 1.0, "seed": 4}
    gaussian = flat.totals(frame, "kwh", "at", delta=1e-6, **given)
    laplace = flat.totals(frame, "kwh", "at", **given)
    again = flat.totals(frame.sample(frac=1.0, random_state=1), "kwh", "at", delta=1e-6, **given)
    one, two, other = (t.released.cells("total") for t in (gaussian, again, laplace))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    noises = {t: flat.noise(t.released, "total") for t in (gaussian, laplace)}
    assert noises[gaussian].variance < 0.25 * noises[laplace].variance
    # An altered row meets other noise in its window.
    frame.loc[frame["at"] == frame["at"].iloc[20], "kwh"] += 0.25
    altered = flat.totals(frame, "kwh", "at", delta=1e-6, **given).released.cells("total")
    assert np.flatnonzero(altered != one).tolist() == [20]
    assert abs(int(altered[20, 0] - one[20, 0])) > 2**20
    assert gaussian.released.guarantee.delta == 1e-6


def test_intervals_cover() -> None:
    """Normal quantiles of sums of draws: 95 % of 1,440 windows."""
    frame, inside = homes(10), 0
    exact = frame.groupby("at")["kwh"].sum().to_numpy()
    for seed in range(30):
        table = flat.totals(frame, "kwh", "at", clip=1.0, epsilon=1.0, delta=1e-6, seed=seed, **DAY, **PERSON)
        found = table.frame
        inside += int(((found["low"] <= exact) & (exact <= found["high"])).sum())
    assert 0.92 < inside / 1440 < 0.98


def test_a_clip_that_is_chosen_costs_its_share_of_rho() -> None:
    with pytest.warns(AccuracyWarning):
        table = flat.totals(homes(), "kwh", "at", bound=8.0, epsilon=1.0, delta=1e-6, seed=1, **DAY, **PERSON)
    assert any(line.startswith("clip") for line in table.released.guarantee.derivation)
    assert table.released.guarantee.rho < 0.0244


@pytest.mark.parametrize("who", [None, "p"])
def test_keys_and_noise_share_delta(who) -> None:
    made = flat.make_plan(
        "totals", every="1h", epsilon=2.0, noise="gaussian", by="k", delta=1e-6, who=who, bound=10.0
    )
    budget = made.budget
    assert (budget.key_delta, budget.noise_delta) == ((5e-7, 5e-7) if who is None else (0.0, 1e-6))
    assert math.isinf(budget.guarantee(simulated=False).rho)
