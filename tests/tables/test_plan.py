"""Consequences of public parameters: shares of the budget, which noise and its costs, errors before any data."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.guarantee import zcdp_delta
from fastdp.tables import functions
from fastdp.tables.plan import TablePlan
from fastdp.tables.promise import promise
from fastdp.tables.quantities import Quantity
from fastdp.tables.shares import OF_ALL, shares_of
from fastdp.tables.statistics import statistics_of
from tests.tables import flat

PRIVATE: dict[str, Any] = {"by": "k", "delta": 1e-6, "who": "p", "bound": 10.0}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_shares_are_those_that_are_documented(noise: str) -> None:
    made = flat.make_plan("totals", every="1h", epsilon=2.0, noise=noise, **PRIVATE).settled(0, 10, 3)
    power, budget = 2 if noise == "gaussian" else 1, shares_of(made)
    parts = [budget.helper(each) for each in ("keys", "counted", "dropped")]
    parts += [budget.loss_of(Quantity("total", "values"), budget.cells)]
    parts += [budget.helper(each, "values") for each in ("sizes", "tail")]
    keys, counted, dropped, sums, sizes, tail = ((part / budget.loss) ** power for part in parts)
    assert (keys, counted, dropped) == pytest.approx((0.5, 0.01, 0.05))
    # Of what these leave.
    assert (sizes, tail) == pytest.approx((0.44 * 0.15, 0.44 * 0.05))
    assert float(OF_ALL["auto"]) == pytest.approx(0.02)
    assert sums + keys + counted + dropped + sizes + tail == pytest.approx(1.0)
    # What a choice leaves goes to the other sums.
    for outcome, name in (((True, False), "sums"), ((False, True), "tail")):
        after = shares_of(replace(made, outcomes={"values": outcome}))
        assert after[name] == pytest.approx(0.44 * 0.85)
        assert sum(after[each] for each in after) == pytest.approx(1.0)
    assert budget.loss == 2.0 or noise == "gaussian"


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_columns_share_by_weight_and_sums_and_levels_within(noise: str) -> None:
    asked = statistics_of({"a": ["sum", "var"], "b": "mean", "*": "count"})
    bounds = {"a": fastdp.Value(clip=1.0, weight=2.0), "b": fastdp.Value(clip=(-1.0, 2.0))}
    options = {"epsilon": 1.0, "delta": 1e-6, "by": ["k", "j"], "keys": {"k": [1, 2], "j": [3, 4, 5]}, "levels": True}
    with flat.noise_is(noise):
        made = functions.make_plan(asked, fastdp.Time("at", "1h"), bounds=bounds, **options)
    together = shares_of(made)
    before = promise(together, simulated=False).derivation
    made = made.settled(0, 24, 1, 2, 6)
    budget, power = shares_of(made), 2 if noise == "gaussian" else 1
    names = [(q.name, q.column) for q in shares_of(made).quantities]
    assert names == [("total", "a"), ("square", "a"), ("deviation", "b"), ("count", "*")]
    assert budget.cells == (2, True)
    assert set(budget.levels) <= {(2, True), (1, True), (0, True), (2, False), (1, False), (0, False)}
    assert sum(budget.levels.values()) == 1

    def share(loss: float) -> float:
        return float(loss / budget.loss) ** power

    found = {name: [share(budget.loss_of(Quantity(*name), level)) for level in budget.levels] for name in names}
    for name, shares in found.items():
        whole = share(together.loss_of(Quantity(*name), None))
        assert shares == pytest.approx([whole * float(each) for each in budget.levels.values()])
    beyond = {name: share(budget.helper("sizes", name)) for name in "ab"}
    totals = {name: sum(sum(found[each]) for each in names if each[1] == name) for name in ("a", "b", "*")}
    assert totals["a"] + beyond["a"] == pytest.approx(1 / 2)
    assert totals["b"] + beyond["b"] == pytest.approx(totals["*"]) == pytest.approx(1 / 4)
    assert sum(found["total", "a"]) == pytest.approx(sum(found["square", "a"]))
    exact = [Fraction(budget.loss_of(Quantity(*name), level)) ** power for name in names for level in budget.levels]
    exact += [Fraction(budget.helper("sizes", name)) ** power for name in "ab"]
    assert 1 - Fraction(1, 10**12) < sum(exact) / Fraction(budget.loss) ** power <= 1
    said = promise(budget, simulated=False).derivation
    assert sum(line.startswith("sums") for line in said) == 4 * len(budget.levels) > 4
    # Before windows and keys are known, each sum's cells and totals have what is stated together.
    assert sum("cells and totals together" in line for line in before) == 4


def test_a_clip_is_rounded_to_a_step_that_it_holds() -> None:
    made = flat.make_plan("totals", every="1h", epsilon=1.0, clip=2.7, resolution=1.0)
    assert shares_of(made).quantities[0].high == 2
    # The float .01 is a little more than a hundredth.
    fine = flat.make_plan("totals", every="1h", epsilon=1.0, clip=10.0, resolution=0.01)
    assert math.isclose(shares_of(fine).quantities[0].ends[1], 10.0)


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
    made = flat.make_plan("counts", every="1h", epsilon=1.0, **given)
    for each in (made, made.settled(0, 5, 1)):
        lines = [line for line in promise(shares_of(each), simulated=False).derivation if "public knowledge" in line]
        assert [line.startswith(said) for line in lines] == ([True] if said else [])


def test_the_callers_word_is_said() -> None:
    for given, said in (({}, False), ({"contributions": 3}, True), ({"contributions": 3, "who": "p"}, False)):
        made = flat.make_plan("counts", every="1h", epsilon=1.0, start="2024-01-01", stop="2024-01-02", **given)
        lines = promise(shares_of(made), simulated=False).derivation
        assert any("a unit has at most 3 rows, on the caller's word" in line for line in lines) == said


@pytest.mark.parametrize("bound", [(-7.0, 3.0), (-3.0, 7.0), (-7.0, 0.0)])
def test_a_row_moves_a_total_by_the_farther_end(bound: tuple[float, float]) -> None:
    made = flat.make_plan("totals", every="1h", epsilon=1.0, bound=bound, resolution=1.0)
    (total,) = shares_of(made).quantities
    assert total.sensitivity == 7


# fastdp.plan.

UNITS = [fastdp.Rows(), fastdp.Rows(5), fastdp.Person("who", rows=4, per="1d")]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("levels", [None, True, False])
def test_errors_are_those_of_a_release(unit: fastdp.Rows, delta: float, levels: bool | None) -> None:
    wanted = {"kwh": ["sum", "mean", "median"], "*": "count"}
    given = {"epsilon": 0.8, "unit": unit, "delta": delta, "levels": levels, "bounds": fastdp.Value(clip=2.0)}
    plan = fastdp.plan(wanted, every="1h", windows=48, keys=3, rows=10, mean=1.0, **given)
    rows = 48 * 3 * 10
    frame = pd.DataFrame(
        {
            "at": np.repeat(pd.date_range("2026-01-01", periods=48, freq="1h"), 30),
            "key": np.tile(np.repeat(range(3), 10), 48),
            "who": range(rows),
            "kwh": 1.0,
        }
    )
    time = fastdp.Time("at", "1h", start="2026-01-01", stop="2026-01-03")
    table = fastdp.aggregate(frame, wanted, time, by="key", keys=[0, 1, 2], seed=1, **given)
    for name in ("kwh_sum", "count"):
        # With persons true numbers have the error of the rows dropped besides.
        real = table[name].released
        assert plan.errors[name].std_error <= float(table[name].std_error(24, 25)[0, 0]) * (1 + 1e-9), real.rows
        if not isinstance(unit, fastdp.Person):
            assert plan.errors[name].std_error == pytest.approx(float(table[name].std_error(24, 25)[0, 0]), rel=0.02)
    assert plan.errors["kwh_sum"].value == pytest.approx(10.0, rel=1e-6)
    assert plan.errors["kwh_median"].in_rows
    assert sum(map(plan.shares.share, plan.shares.lines)) == pytest.approx(1.0, abs=1e-6)
    assert plan.noise in str(plan)


def test_one_sum_by_hand() -> None:
    plan = fastdp.plan({"kwh": "sum"}, epsilon=0.5, bounds=fastdp.Value(clip=4.0), unit=fastdp.Rows(3))
    epsilon = 0.5 * plan.shares["sums"]
    assert next(iter(plan.errors.values())).std_error == pytest.approx(math.sqrt(2.0) * 3 * 4.0 / epsilon, rel=1e-6)
    assert plan.half_width == pytest.approx(math.log(20.0) * 3 * 4.0 / epsilon, rel=1e-6)


def test_the_epsilon_of_a_width() -> None:
    wanted = {"statistics": {"*": "count"}, "every": "1d", "windows": 30, "keys": 4}
    plan = fastdp.plan(half_width=12.0, **wanted)
    assert plan.half_width <= 12.0
    assert fastdp.plan(epsilon=plan.epsilon * 0.9, **wanted).half_width > 12.0
    with pytest.raises(ParameterError, match=r"half_width = 1e-09: expected a width"):
        fastdp.plan({"kwh": "sum"}, half_width=1e-9, bounds=1e6)


def test_noise_as_large_as_the_number_is_said() -> None:
    drowned = fastdp.plan({"*": "count"}, epsilon=0.1, every="1h", windows=48, rows=5)
    assert "noise is as large as the number" in str(drowned)
    assert "noise is as large" not in str(fastdp.plan({"*": "count"}, epsilon=1.0, every="1h", windows=24, rows=300))


#: Rows of a window, epsilon, bound, unit; words of the plan's sentence, none where the call works.
CALLS = {
    "far": (250.0, 0.1, 1000.0, fastdp.Rows(), "expected a larger epsilon= or a nearer bound"),
    "far, many rows": (1e6, 0.1, 1000.0, fastdp.Rows(), ""),
    "high alone is far": (5000.0, 0.1, 1000.0, fastdp.Rows(), "high is far: 1"),
    "near": (250.0, 1.0, 6.0, fastdp.Rows(), ""),
    "persons": (3000.0, 0.1, 6.0, fastdp.Person("who", rows=1000), "a smaller rows="),
    "below 0": (250.0, 0.1, (-1000.0, 0.0), fastdp.Rows(), "a nearer bound"),
    "both signs": (1e6, 0.1, (-9.0, 6.0), fastdp.Rows(), ""),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_plan_says_what_a_release_meets(call: str) -> None:
    """Of expected rows and means it finds the clip, as a release does; it refuses one that says nothing."""
    rows, epsilon, bound, unit, words = CALLS[call]
    mean = 1.0 if not isinstance(bound, tuple) else -1.0
    given: dict[str, Any] = {"epsilon": epsilon, "bounds": bound, "unit": unit, "mean": mean}
    if "expected" in words or "nearer" in words or "smaller" in words:
        with pytest.raises(
            ParameterError, match=f"epsilon = {epsilon}: v_sum of all rows would be .*{words}"
        ) as error:
            fastdp.plan({"v": "sum"}, rows=rows, **given)
        assert error.value.parameter == "epsilon"
        # Enough such windows have a sum together.
        assert fastdp.plan({"v": "sum"}, rows=rows, every="1h", windows=10_000, **given).errors
        return
    plan = fastdp.plan({"v": "sum"}, rows=rows, **given)
    expected = plan.errors["v_sum"]
    assert words in expected.drowned
    assert bool(words) == bool(expected.drowned) == (expected.half_width >= abs(expected.value))
    assert expected.drowned in str(plan)
    values = pd.DataFrame({"v": mean * np.random.default_rng(1).exponential(size=int(rows))})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", AccuracyWarning)
        table = fastdp.totals(values, "v", epsilon=epsilon, bound=bound, seed=1)
    low, high = (end.item() for end in table.interval(0, 1))
    # Noise alone raises the most that it may hide.
    assert 0.4 * expected.half_width < (high - low) / 2.0 < 2.5 * expected.half_width
    assert not found


def test_a_call_warns_where_noise_hides_its_numbers() -> None:
    """By released numbers, with the ways that narrow this one."""
    few = pd.DataFrame({"k": np.arange(200) % 20, "v": 1.0})
    given = {"by": "k", "keys": list(range(20)), "seed": 1}
    with pytest.warns(AccuracyWarning, match=r"\*: the noise in the number of rows .* epsilon= or fewer keys$"):
        fastdp.counts(few, epsilon=0.2, **given)
    with pytest.warns(AccuracyWarning, match=r"epsilon=, fewer keys or a smaller rows=$"):
        fastdp.counts(few, epsilon=1.0, unit=fastdp.Rows(5), **given)
    several, more = {f"v{i}": "sum" for i in range(40)}, pd.concat([few] * 50)
    with pytest.warns(AccuracyWarning, match=r"fewer keys, a nearer clip or a delta=1e-09$"):
        fastdp.aggregate(
            more.assign(**dict.fromkeys(several, 1.0)),
            several,
            epsilon=1.0,
            bounds=dict.fromkeys(several, fastdp.Value(clip=9.0)),
            **given,
        )
    with pytest.warns(AccuracyWarning, match="v: the noise in the sum .* a nearer clip"):
        fastdp.totals(more, "v", epsilon=0.5, clip=100.0, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastdp.counts(pd.DataFrame({"k": np.repeat([0, 1], 500)}), epsilon=1.0, by="k", keys=[0, 1], seed=1)


def test_widths_for_persons_are_those_of_rows_that_count() -> None:
    asked, given = {"*": "count", "v": ["sum", "mean"]}, {"bounds": 10.0, "rows": 100.0, "mean": 3.0}
    unit = fastdp.Person("who", rows=4)
    persons = fastdp.plan(asked, epsilon=1.0, unit=unit, **given)
    rows = fastdp.plan(asked, epsilon=0.94, unit=fastdp.Rows(4), **given)
    for name in ("count", "v_sum", "v_mean"):
        assert persons.errors[name].half_width == pytest.approx(rows.errors[name].half_width, rel=0.02)
    assert fastdp.plan({"*": "count"}, half_width=100.0, unit=unit).epsilon > 0.05


def test_private_keys_and_chosen_rows_have_their_shares() -> None:
    person = fastdp.Person("who", rows="auto")
    plan = fastdp.plan(
        {"*": "count"}, epsilon=1.0, delta=1e-6, keys=fastdp.PrivateKeys(share=0.3), unit=person, rows=50
    )
    assert plan.shares["keys"] == pytest.approx(0.3)
    assert plan.shares["auto"] == pytest.approx(0.02)
    assert sum(dict(plan.shares).values()) == pytest.approx(1.0)
    assert "clip" not in plan.shares
    with pytest.raises(KeyError, match="'clip': expected one of sums, "):
        plan.shares["clip"]


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_a_ledger_is_charged_at_least_what_is_stated(tmp_path: Path) -> None:
    """With levels that follow from the table, whose parts round otherwise than their whole."""
    asked = {"kwh": ["sum", "mean", "std"], "q": "nunique", "*": "count"}
    unit, bounds = fastdp.Person("who", rows=20, per="1d", per_window=2), {"kwh": fastdp.Value(50.0)}
    hours = pd.date_range("2024-01-01", periods=60, freq="h")
    frame = pd.DataFrame({"at": hours, "who": np.arange(60) % 7, "kwh": np.arange(60.0) % 9, "q": np.arange(60) % 5})
    options = {"delta": 1e-6, "levels": None, "unit": unit, "bounds": bounds}
    account = fastdp.Ledger(tmp_path / "budget", limit_epsilon=99.0)
    for place, epsilon in enumerate((0.3, 0.7, 1.3, 1.7)):
        made = fastdp.aggregate(
            frame, asked, "at", "6h", epsilon=epsilon, ledger=account, stream=f"{place}", **options
        )
        whole = Fraction(shares_of(made.released.shares.plan).loss) ** 2 / 2
        (entry,) = account.entries(f"{place}")
        assert entry.guarantee.rho >= made.guarantee.rho
        assert Fraction(entry.guarantee.rho) >= whole


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "epsilon, half_width: expected one of"),
        ({"epsilon": 1.0, "half_width": 2.0}, "expected one of the two"),
        ({"epsilon": -1.0}, "epsilon = -1.0: expected"),
        ({"epsilon": 1.0, "windows": 0}, "windows = 0: expected"),
        ({"epsilon": 1.0, "every": "soon"}, "every = 'soon': expected"),
        ({"epsilon": 1.0, "rows": 0.0}, "rows = 0.0: expected"),
        ({"epsilon": 1.0, "confidence": 1.0}, "confidence = 1.0: expected"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fastdp.plan({"*": "count"}, **given)
    with pytest.raises(ParameterError, match="rows = None: expected the rows"):
        fastdp.plan({"kwh": "mean"}, epsilon=1.0, bounds=1.0)


# Gaussian noise.

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
    made = flat.make_plan("totals", every="1h", epsilon=1.0, bound=(0.0, 5.0), resolution=1.0)
    (total,) = shares_of(made).quantities
    assert replace(total, **other).labels != total.labels


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
@pytest.mark.parametrize("options", [{}, {"period": None}, {"by": "k", "noise": "gaussian"}], ids=["", "all", "keys"])
def test_rhos_of_all_parts_fit_the_budget(kind, options) -> None:
    if kind != "counts":
        options = {**options, "clip": None, "bound": 1.0}
    made = plan_of(kind, **options)
    budget = shares_of(made)
    assert budget.gaussian
    # From the distributions that are drawn.
    rho = Fraction(0)
    for level in budget.levels:
        for q in shares_of(made).quantities:
            square = budget.moved(q, level.each) * q.sensitivity**2
            rho += Fraction(square) / (2 * budget.distribution(q, level).sigma ** 2)
    parts = [budget.helper(each) for each in ("counted", "dropped", "keys")]
    parts += [budget.helper(each, column.name) for column in made.columns for each in ("sizes", "tail")]
    for part in parts:
        rho += Fraction(part) ** 2 / 2
    assert zcdp_delta(float(rho), 1.0) <= budget.noise_delta * (1.0 + 1e-9)
    assert float(rho) == pytest.approx(budget.loss**2 / 2, rel=1e-6)
    promised = promise(budget, simulated=False)
    assert (promised.epsilon, promised.delta) == (1.0, 1e-6)
    assert math.isinf(promised.rho) == (made.key_rule == "private")


def test_a_person_moves_the_sums_by_the_root() -> None:
    assert shares_of(plan_of()).moved(Quantity("count"), True) == 48
    assert shares_of(plan_of(contributions=50, per_window=4)).moved(Quantity("count"), True) == 12 * 16 + 4
    # Over all windows a person's rows are in one sum.
    assert shares_of(plan_of()).moved(Quantity("count"), False) == 48**2
    made = plan_of()
    # Printed in rows, beside helpers that a person moves by all of its own.
    printed = [row.split()[-1] for row in str(shares_of(made)).splitlines()]
    assert printed[1:] == [f"{math.sqrt(48):.5g}", "1", "48", f"{4 * 48}"]
    (total,), budget = shares_of(made).quantities, shares_of(made)
    sigma = float(budget.distribution(total, budget.cells).sigma)
    # Shares of rho for the rows that count, that are dropped and, of the rest, rows by size.
    assert sigma == pytest.approx(math.sqrt(48) * total.high / (budget.loss * math.sqrt(0.94 * 0.99)))


def test_a_delta_brings_the_better_noise() -> None:
    assert plan_of().noise == "gaussian"
    few = plan_of(contributions=4)
    assert (few.noise, few.delta, promise(shares_of(few), simulated=False).delta) == ("laplace", 0.0, 0.0)
    # All rows of a person may lie in one window.
    assert plan_of(per_window=None).noise == "laplace"
    # Persons' private keys need the delta themselves, or share the Gaussian noise's; those of rows have half of it.
    assert shares_of(plan_of(by="k", noise="laplace")).key_delta == 1e-6
    assert plan_of(by="k", contributions=1).noise == "laplace"
    assert plan_of(by="k").noise == "gaussian"
    assert shares_of(plan_of(by="k")).key_delta == 0.0


def test_several_sums_of_a_row_bring_gaussian_noise() -> None:
    def of(m: int) -> TablePlan:
        asked = statistics_of({f"c{i}": "sum" for i in range(m)})
        return functions.make_plan(
            asked, None, epsilon=1.0, delta=1e-6, bounds={f"c{i}": fastdp.Value(clip=1.0) for i in range(m)}
        )

    one, many = of(1), of(40)
    assert (one.noise, many.noise) == ("laplace", "gaussian")
    laplace, gaussian = shares_of(replace(many, noise="laplace")), shares_of(many)
    alone = shares_of(replace(one, noise="gaussian", delta=1e-6))
    (q, *_), level = shares_of(many).quantities, gaussian.cells
    ratio = float(gaussian.distribution(q, level).sigma / alone.distribution(q, level).sigma)
    assert ratio == pytest.approx(math.sqrt(40), rel=1e-6)
    assert float(gaussian.distribution(q, level).sigma) < math.sqrt(2.0) * float(laplace.distribution(q, level).scale)


def test_noise_is_bound_to_the_sums_and_smaller() -> None:
    frame = homes()
    given = {**DAY, **PERSON, "basis": "windows", "clip": 1.0, "epsilon": 1.0, "seed": 4}
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


def test_a_clip_that_is_chosen_costs_its_share_of_rho() -> None:
    with pytest.warns(AccuracyWarning):
        table = flat.totals(homes(), "kwh", "at", bound=8.0, epsilon=1.0, delta=1e-6, seed=1, **DAY, **PERSON)
    assert any(line.startswith("sizes") for line in table.released.guarantee.derivation)
    assert table.released.guarantee.rho < 0.0244


@pytest.mark.parametrize("who", [None, "p"])
def test_keys_and_noise_share_delta(who) -> None:
    made = flat.make_plan(
        "totals", every="1h", epsilon=2.0, noise="gaussian", by="k", delta=1e-6, who=who, bound=10.0
    )
    budget = shares_of(made)
    assert (budget.key_delta, budget.noise_delta) == ((5e-7, 5e-7) if who is None else (0.0, 1e-6))
    assert math.isinf(promise(budget, simulated=False).rho)


@pytest.mark.parametrize("mean", [0.5, 7.0, 9.9, 10.0])
def test_the_expected_number_is_that_of_the_given_mean(mean: float) -> None:
    found = fastdp.plan({"x": "sum"}, epsilon=1.0, rows=1000, mean=mean, bounds=10.0).errors["x_sum"]
    assert found.value == pytest.approx(1000 * min(mean, 10.0), rel=0.05)


def test_a_width_that_is_missing_suffices_nowhere() -> None:
    """Of few rows a mean has no interval where epsilon is small."""
    given: dict[str, Any] = {"bounds": (-1e3, 1e3), "rows": 30, "mean": 2.0, "every": "1h", "windows": 168}
    assert fastdp.plan({"x": "mean"}, half_width=0.5, **given).half_width <= 0.5
    # Where no table has a number, no epsilon is refused: none of these was given.
    assert fastdp.plan({"x": "sum"}, half_width=1e12, bounds=10.0, unit=fastdp.Rows(2**30)).half_width <= 1e12
    with pytest.raises(ParameterError, match=r"rows = 8589934592\.0: expected fewer"):
        fastdp.plan({"x": "sum"}, epsilon=1.0, rows=2.0**33, mean=3.0, bounds=10.0)


def test_a_sum_near_zero_of_both_signs_is_a_number() -> None:
    """And the one cell of a table may be asked for in any ranges."""
    signed = pd.DataFrame({"x": np.where(np.arange(1000) % 2, 5.0, -5.0)})
    bounds = {"x": fastdp.Value(clip=(-10, 10), bound=(-10, 10))}
    for seed in range(10):
        table = fastdp.aggregate(signed, {"x": "sum"}, epsilon=1.0, bounds=bounds, seed=seed)
        assert np.abs(table.sum([0, 0], [1, 1])).max() < 200.0
    table = fastdp.aggregate(signed.abs(), {"x": "sum"}, epsilon=1.0, bounds=10.0, seed=1)
    assert table.sum([], []).size == 0
    assert table.interval([0, 0], [1, 1])[0].size == 2


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_values_of_both_signs_may_cancel(kind: str) -> None:
    """A precise 0 is no drowned number; noise as wide as all that it may be is refused."""
    given: dict[str, Any] = {"every": "1h", "windows": 168, "rows": 1000, "mean": 0.0}
    for bounds in ((-10.0, 10.0), fastdp.Value(clip=(-10.0, 5.0))):
        plan = fastdp.plan({"x": kind}, epsilon=1.0, bounds=bounds, **given)
        assert not plan.errors[f"x_{kind}"].drowned
        with pytest.raises(ParameterError, match="of all rows would be 0"):
            fastdp.plan({"x": kind}, epsilon=1e-8, bounds=bounds, **given)
        small = given | {"rows": 20, "windows": 2, "mean": 0.001}
        with pytest.raises(ParameterError, match=r"of all rows would be .* \+- "):
            fastdp.plan({"x": kind}, epsilon=0.1, bounds=bounds, **small)
        # Beside ten times the sum the noise is small.
        plan = fastdp.plan({"x": kind}, epsilon=1.0, bounds=bounds, **given | {"mean": 0.05})
        assert not plan.errors[f"x_{kind}"].drowned


def test_a_mean_that_no_values_have_is_refused() -> None:
    given: dict[str, Any] = {"epsilon": 1.0, "rows": 400}
    for bounds, mean in (
        (10.0, 50.0),
        (10.0, -1.0),
        ((-5.0, 10.0), {"x": 11.0}),
        (fastdp.Value(10.0, clip=2.0), 11.0),
    ):
        with pytest.raises(ParameterError, match=r"mean = .*: expected a mean of values from -?\d+ to 10"):
            fastdp.plan({"x": "sum"}, bounds=bounds, mean=mean, **given)
    with pytest.raises(ParameterError, match=r"mean = 20\.0: expected a mean of values from 0 to 10"):
        fastdp.plan(size=100, bounds=10.0, epsilon=1.0, mean=20.0)
    # Beyond a clip alone values have any size.
    assert fastdp.plan({"x": "sum"}, bounds=fastdp.Value(clip=2.0), mean=11.0, **given).errors["x_sum"].value == 800.0
