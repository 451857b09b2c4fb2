"""Guarantees as JSON: what is written reads back as the same guarantee, and nothing else is read."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import (
    Guarantee,
    gaussian_delta,
    gaussian_loss,
    of_group,
    parallel,
    round_up,
    sequential,
    square_remainder,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_loss,
    zcdp_rho,
)
from fastdp.units import Period, Times, UnitRows

NUMBER = st.floats(0.0, math.inf, allow_nan=False)
GUARANTEES = st.builds(
    Guarantee,
    epsilon=NUMBER,
    delta=NUMBER,
    unit=st.text(),
    adjacency=st.text(),
    model=st.text(),
    arithmetic=st.text(),
    numeric_distance=NUMBER,
    simulated=st.booleans(),
    derivation=st.lists(st.text(), max_size=4).map(tuple),
    rho=NUMBER,
    rows=st.none()
    | st.builds(
        UnitRows,
        st.none() | st.text(),
        st.integers(1),
        st.none() | st.builds(Period, st.just("days"), st.just(7), st.integers(0, 6), st.none() | st.text()),
    ),
    times=st.none() | st.builds(Times, st.text(), st.none() | st.text(), st.integers(-9, 9), st.integers(10, 99)),
)


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@given(GUARANTEES)
def test_what_is_written_reads_back(guarantee: Guarantee) -> None:
    text = guarantee.to_json()
    assert "\n" not in text
    read = Guarantee.from_dict(json.loads(text, parse_constant=refuse_constant))
    assert read == guarantee
    kinds = [float, float, *[str] * 4, float, bool, tuple, float, type(guarantee.rows), type(guarantee.times)]
    assert [type(getattr(read, field.name)) for field in dataclasses.fields(read)] == kinds


def test_it_has_every_field_under_its_own_name() -> None:
    guarantee = fastdp.Adaptive(0.5, 10.0, seed=1).guarantee
    assert guarantee.to_dict() == {
        **dataclasses.asdict(guarantee),
        "derivation": list(guarantee.derivation),
        "rho": "inf",
        "rows": None,
        "times": None,
    }
    assert Guarantee(math.inf).to_dict()["epsilon"] == "inf"
    # NumPy's numbers are written as JSON's.
    assert json.loads(Guarantee(np.float64(0.25)).to_json())["epsilon"] == 0.25
    assert str(Guarantee.from_dict(guarantee.to_dict())) == str(guarantee)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epsilon", value) for value in ("1", -1.0, math.nan, None, True, [1.0], "Infinity")),
        *(("delta", -1e-9), ("numeric_distance", "small"), ("unit", 5), ("simulated", "no"), ("simulated", 1)),
        *(("derivation", "one step"), ("derivation", [1])),
    ],
)
def test_another_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"^{name} = .*: expected"):
        Guarantee.from_dict({**Guarantee(1.0).to_dict(), name: value})
    with pytest.raises(ParameterError, match=f"^{name} = .*: expected"):
        Guarantee(**{"epsilon": 1.0, name: value})


@pytest.mark.parametrize(
    "fields", [{}, {"epsilon": 1.0}, {**Guarantee(1.0).to_dict(), "kappa": 1}, [1.0], "{}", None]
)
def test_other_fields_are_refused(fields: Any) -> None:
    with pytest.raises(ParameterError, match=r"^fields = .*: expected a mapping with epsilon, delta, unit"):
        Guarantee.from_dict(fields)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.05, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-2])
def test_conversion_of_concentrated_privacy(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    # Every order gives a valid bound: none of a fine grid gives a better one.
    orders = 1.0 + np.geomspace(1e-6, 1e8, 200_001)
    best = np.min(rho * orders + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0))
    assert max(best, 0.0) == pytest.approx(epsilon, rel=1e-5, abs=1e-9)
    if epsilon > 1e-6:
        assert zcdp_rho(epsilon, delta) == pytest.approx(rho, rel=1e-6)


def test_rhos_compose() -> None:
    one = Guarantee(zcdp_epsilon(0.1, 1e-6), 1e-6, arithmetic="exact", rho=0.1)
    both = sequential(one, one)
    assert both.rho == 0.2
    assert both.delta == 2e-6
    assert both.epsilon == zcdp_epsilon(0.2, 2e-6) < 2 * one.epsilon
    # Pure epsilon is epsilon^2 / 2 of concentrated privacy.
    assert sequential(one, Guarantee(0.5)).rho == pytest.approx(0.225)
    assert parallel(one, Guarantee(0.5)).rho == 0.125
    # A delta of another kind says nothing about moments.
    assert sequential(one, Guarantee(0.5, 1e-9)).rho == math.inf
    assert sequential(Guarantee(0.5), Guarantee(0.5)).rho == math.inf
    assert one.at_delta(1e-9).epsilon == zcdp_epsilon(0.1, 1e-9) > one.epsilon
    with pytest.raises(ParameterError, match="expected a guarantee with a rho"):
        Guarantee(1.0).at_delta(1e-6)
    with pytest.raises(ParameterError, match=r"delta = 0\.0: expected above 0 and below 1"):
        one.at_delta(0.0)


@pytest.mark.parametrize("compose", [parallel, sequential])
def test_one_simulated_part_makes_the_whole_a_simulation(compose: Any) -> None:
    seeded, secret = Guarantee(0.5, simulated=True), Guarantee(0.5)
    assert compose(seeded, secret).simulated
    assert compose(secret, seeded).simulated
    assert not compose(secret, secret).simulated


def test_rho_of_a_group_grows_with_the_square() -> None:
    one = Guarantee(0.25, delta=1e-9, rho=0.001)
    three = of_group(one, 3, 0.75, "any 3 consecutive values", "replace them", "group")
    assert three.rho == pytest.approx(0.009)
    assert three.rho >= 9 * Fraction(one.rho)
    assert of_group(Guarantee(0.25), 3, 0.75, "unit", "adjacency", "group").rho == math.inf


def test_rhos_of_pure_guarantees_add_up_beside_their_epsilons() -> None:
    whole = sequential(Guarantee(1.0, rho=0.125), Guarantee(1.0))
    assert (whole.epsilon, whole.delta, whole.rho) == (2.0, 0.0, 0.625)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_profile_of_normal_noise(epsilon: float, delta: float) -> None:
    mu = gaussian_loss(epsilon, delta)
    normal = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert gaussian_delta(mu, epsilon) <= delta
    assert normal == pytest.approx(delta, rel=1e-6)
    # Tighter than by moments; noise that is only near it costs (1 + e^epsilon) times the distance.
    assert mu > zcdp_loss(epsilon, delta)
    assert gaussian_delta(mu, epsilon, 1e-9) == pytest.approx(delta + (1.0 + math.exp(epsilon)) * 1e-9)
    assert gaussian_loss(epsilon, delta, 1.0) == 0.0


def test_a_guarantee_is_stated_at_a_delta_that_its_rho_gives() -> None:
    loss = zcdp_loss(1.0, 1e-6)
    stated = Guarantee(math.inf, rho=loss**2 / 2).approximate(1.0, 1e-6)
    assert (stated.epsilon, stated.delta) == (1.0, 1e-6)
    mu = gaussian_loss(1.0, 1e-6)
    with pytest.raises(ValueError, match="does not give"):
        Guarantee(math.inf, rho=mu**2 / 2).approximate(1.0, 1e-6)
    assert Guarantee(math.inf, rho=mu**2 / 2).approximate(1.0, 1.01e-6, 1e-10).delta == 1.01e-6
    assert square_remainder(1.0, 0.6, 0.0) == pytest.approx(0.8)
    assert square_remainder(0.5, 0.5) == 0.0


@pytest.mark.parametrize("delta", [2.4543077655109356e-14, 6.941333234758265e-07, 8e-28, 0.4])
def test_budgets_that_were_found_are_kept(delta: float) -> None:
    """Rhos of parts are rounded up; the sum still gives the epsilon that it was made for."""
    rng = np.random.default_rng(6)
    for epsilon in [6.147583243776551, 7.573353901954258, *(10.0 ** rng.uniform(-3.0, 1.5, 60)).tolist()]:
        whole = zcdp_loss(epsilon, delta)
        parts = [0.3 * whole, 0.1 * whole]
        losses = [*parts, square_remainder(whole, *parts)]
        rho = sum(round_up(Fraction(each) ** 2 / 2) for each in losses)
        assert Guarantee(math.inf, rho=rho).approximate(epsilon, delta).epsilon == epsilon
        mu = gaussian_loss(epsilon, delta, 1e-60)
        rho = round_up(Fraction(mu) ** 2 / 2)
        assert Guarantee(math.inf, rho=rho).approximate(epsilon, delta, 1e-60).epsilon == epsilon
        for more in (rho * 1.001, math.inf):
            with pytest.raises(ValueError, match="does not give"):
                Guarantee(math.inf, rho=more).approximate(epsilon, delta, 1e-60)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-20, 1e20, 1e300])
def test_epsilons_beyond_floats_are_refused(epsilon: float) -> None:
    for call in (
        lambda: fastdp.plan({"*": "count"}, epsilon=epsilon, unit=fastdp.Rows(48), delta=1e-9),
        lambda: fastdp.Adaptive(epsilon=epsilon, delta=1e-9, bound=1.0),
    ):
        with pytest.raises(ParameterError, match=r"epsilon = .*: expected"):
            call()
