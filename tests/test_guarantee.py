"""Guarantees as JSON: what is written reads back as the same guarantee, and nothing else is read."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
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
    root_below,
    round_up,
    sequential,
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
    assert root_below(Fraction(64, 100)) == pytest.approx(0.8)
    assert root_below(Fraction(0)) == 0.0


@pytest.mark.parametrize("delta", [2.4543077655109356e-14, 6.941333234758265e-07, 8e-28, 0.4])
def test_budgets_that_were_found_are_kept(delta: float) -> None:
    """Rhos of parts are rounded up; the sum still gives the epsilon that it was made for."""
    rng = np.random.default_rng(6)
    for epsilon in [6.147583243776551, 7.573353901954258, *(10.0 ** rng.uniform(-3.0, 1.5, 60)).tolist()]:
        whole = zcdp_loss(epsilon, delta)
        parts = [0.3 * whole, 0.1 * whole]
        left = Fraction(whole) ** 2 - sum(Fraction(part) ** 2 for part in parts)
        losses = [*parts, root_below(left)]
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


# The printed parts are those that are run.

LONG = 2**18
STREAMS: dict[str, Any] = {
    "groups": lambda **own: fastdp.Adaptive(1.0, 10.0, 0, LONG, threshold=5.0, **own),
    "theta of few steps": lambda **own: fastdp.Adaptive(1.0, 100.0, 0, LONG, threshold=20.0, resolution=1.0, **own),
    "events": lambda **own: fastdp.Adaptive(1.0, sensitivity=1.0, max_range=LONG, **own),
    "events of few steps": lambda **own: fastdp.Adaptive(1.0, sensitivity=1.0, max_range=LONG, resolution=1.0, **own),
    "short ranges": lambda **own: fastdp.Adaptive(1.0, 10.0, 0, LONG // 2, threshold=5.0, **own),
    "season": lambda **own: fastdp.Adaptive(
        1.0, 10.0, 0, LONG, threshold=5.0, perturber=fastdp.perturbers.Blocks(season=24.0), **own
    ),
    "hold-out": lambda **own: fastdp.Adaptive(1.0, 10.0, 2000, LONG, **own),
    "delta": lambda **own: fastdp.Adaptive(1.0, 10.0, 0, LONG, threshold=5.0, delta=1e-6, **own),
    "ToPS": lambda **own: fastdp.ToPS(1.0, 10.0, 1000, LONG, **own),
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("name", STREAMS)
def test_a_fleet_says_what_a_publisher_says_if_it_runs_the_same(name: str) -> None:
    """Only sums of groups of blocks differ; both stated them, wherever they were released."""
    make, secret, values = STREAMS[name], fastdp.Key.from_seed(3), np.random.default_rng(1).gamma(2.0, 2.0, 40_000)
    release = make(key=secret.of_stream(7)).release(values)
    fleet = fastdp.Fleet(make(seed=0), key=fastdp.Key.from_seed(3))
    _, out = fleet.publish(np.full(values.size, 7), values)
    job = fastdp.Fleet.from_bytes(fleet.to_bytes()).guarantee
    assert job == fleet.guarantee
    said = fleet.guarantee.derivation[:-1]
    equal = np.array_equal(out, release.values)
    assert equal == (said == release.guarantee.derivation)
    without = [step for step in release.guarantee.derivation if "in a group of blocks" not in step]
    assert [*said] == ([*release.guarantee.derivation] if equal else without)
    assert (fleet.guarantee.epsilon, fleet.guarantee.unit) == (release.guarantee.epsilon, release.guarantee.unit)


def parts_of(steps: tuple[str, ...]) -> dict[str, tuple[float, list[str]]]:
    """Parts by name: epsilon as printed, and their own steps."""
    found: dict[str, tuple[float, list[str]]] = {}
    for step in steps:
        if part := re.match(r"([^():]+) \(epsilon = ([^,)]+)\): (.*)", step):
            found.setdefault(part[1], (float(part[2]), []))[1].append(part[3])
    return found


def table(**options: Any) -> Guarantee:
    hours = np.datetime64("2026-03-01", "h") + np.arange(400)
    frame = pd.DataFrame({"at": hours, "by": ["a", "b"] * 200, "value": np.arange(400.0) % 7})
    time = fastdp.Time("at", "1d", start="2026-03-02", stop="2026-03-12")
    return fastdp.totals(frame, "value", time, bound=10.0, epsilon=1.0, seed=1, **options).guarantee


GAMMA = np.random.default_rng(1).gamma(2.0, 20.0, 5000)
COMPOSED: dict[str, Any] = {
    "release": lambda: fastdp.release(GAMMA, 1.0, 200.0, seed=1).guarantee,
    "zeros": lambda: fastdp.release(0.0 * GAMMA, 1.0, 200.0, seed=1).guarantee,
    "noisy max": lambda: fastdp.release(GAMMA, 1.0, 200.0, threshold=fastdp.thresholds.NoisyMax(), seed=1).guarantee,
    "few": lambda: fastdp.release(GAMMA[:500], 1.0, 200.0, seed=1).guarantee,
    "table": table,
    "table by public keys": lambda: table(by="by", keys="public"),
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("name", COMPOSED)
def test_printed_parts_add_up(name: str) -> None:
    stated = COMPOSED[name]()
    parts = parts_of(stated.derivation)
    assert sum(epsilon for epsilon, _ in parts.values()) == pytest.approx(stated.epsilon, rel=1e-5)
    for epsilon, steps in parts.values():
        inner = parts_of(tuple(steps))
        assert not inner or sum(each for each, _ in inner.values()) == pytest.approx(epsilon, rel=1e-5)


def test_a_total_has_the_noise_of_the_printed_part() -> None:
    release = fastdp.release(GAMMA[:100], 0.3, 200.0, seed=1)
    epsilon, _ = parts_of(release.guarantee.derivation)["sums"]
    assert release.answer is not None
    assert release.answer.variances[2] * release.answer.scale**2 == pytest.approx(2.0 * (200.0 / epsilon) ** 2)


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_rows_at_other_times_give_public_keys() -> None:
    said, plain = table(by="by", keys="public").derivation, table(by="by", keys={"by": ["a", "b"]}).derivation
    assert any(step.endswith("change nothing that is released but their keys") for step in said)
    assert any(step.endswith("change nothing that is released") for step in plain)
