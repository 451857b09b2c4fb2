"""The OpenDP measurement: its map, its noise, and that it chains and composes."""

from __future__ import annotations

import gc
import math
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp.errors import ParameterError
from fastdp.interop.opendp import make_discrete_laplace
from tests import stat
from tests.oracles import distributions, laplace_mechanism

dp = pytest.importorskip("opendp.prelude", reason="opendp is not installed")
core = pytest.importorskip("opendp.core")


@pytest.fixture(autouse=True)
def features() -> None:
    dp.enable_features("contrib", "honest-but-curious")


def vectors(kind: Any, size: int | None = None) -> Any:
    more = {"nan": False} if kind in (float, "f32") else {}
    return dp.vector_domain(dp.atom_domain(T=kind, **more), size=size), dp.l1_distance(T=kind)


def numbers(kind: Any) -> Any:
    more = {"nan": False} if kind in (float, "f32") else {}
    return dp.atom_domain(T=kind, **more), dp.absolute_distance(T=kind)


def test_it_chains_after_a_transformation() -> None:
    space = dp.vector_domain(dp.atom_domain(bounds=(0, 10))), dp.symmetric_distance()
    total = dp.t.make_sum(*space)
    private = total >> make_discrete_laplace(*total.output_space, sensitivity=10, epsilon=0.5)
    assert (private.map(1), private.map(3), private.map(0)) == (0.5, 1.5, 0.0)
    assert private.check(2, 1.0)
    assert not private.check(2, 0.99)
    out = private([5] * 100)
    assert isinstance(out, int)
    assert abs(out - 500) < 20 * 40
    # A post-processor follows as after OpenDP's own noise.
    assert (private >> (lambda x: max(x, 0)))([0]) >= 0


def test_it_composes_with_opendps_own_noise() -> None:
    space = dp.vector_domain(dp.atom_domain(bounds=(0, 10))), dp.symmetric_distance()
    total, count = dp.t.make_sum(*space), dp.t.make_count(*space)
    ours = total >> make_discrete_laplace(*total.output_space, sensitivity=10, epsilon=0.5)
    theirs = count >> dp.m.then_laplace(scale=4.0)
    both = dp.c.make_composition([ours, theirs])
    assert both.map(1) == pytest.approx(0.75)
    assert both.map(1) >= 0.75
    assert len(both([3, 4, 5])) == 2
    filled = dp.c.make_adaptive_composition(*space, dp.max_divergence(), d_in=1, d_mids=[0.5, 0.25])
    queryable = filled([3, 4, 5])
    assert isinstance(queryable(ours), int)
    with pytest.raises(dp.OpenDPException):
        queryable(ours)


@given(st.integers(1, 10**6), st.floats(1e-3, 1e6), st.floats(1e-6, 100.0), st.sampled_from([None, 2.0**-10, 4.0]))
def test_the_maps_never_understate(distance: int, sensitivity: float, epsilon: float, resolution: Any) -> None:
    dp.enable_features("contrib", "honest-but-curious")
    exact = Fraction(distance) * Fraction(epsilon) / Fraction(sensitivity)
    stated = make_discrete_laplace(*vectors("i64"), sensitivity, epsilon).map(distance)
    assert Fraction(stated) >= exact
    assert Fraction(math.nextafter(stated, 0.0)) < exact
    floats = make_discrete_laplace(*vectors(float, 5), sensitivity, epsilon, resolution=resolution)
    assert floats.map(sensitivity) == epsilon
    grid = Fraction(resolution) if resolution else None
    if grid:
        moved = laplace_mechanism.sensitivity_steps(float(distance), 5, grid, False)
        scale = laplace_mechanism.sensitivity_steps(sensitivity, 5, grid, False) / Fraction(epsilon)
        assert Fraction(floats.map(float(distance))) >= moved / scale
    assert floats.map(0.0) == 0.0


@pytest.mark.parametrize("kind", ["i32", "i64", "u32", "u64"])
def test_integers_keep_their_type_and_saturate(kind: str) -> None:
    ends = np.iinfo({"i": "int", "u": "uint"}[kind[0]] + kind[1:])
    measurement = make_discrete_laplace(*vectors(kind), sensitivity=1, epsilon=0.01)
    top = min(ends.max, 2**62)
    out = measurement([int(ends.min) if kind != "i64" else -(2**62), 5, int(top)] * 50)
    assert len(out) == 150
    assert all(ends.min <= value <= ends.max for value in out)
    assert len(set(out[1::3])) > 1
    one = make_discrete_laplace(*numbers(kind), sensitivity=1, epsilon=2.0)
    assert isinstance(one(5), int)
    assert one.map(1) == 2.0
    # What no list of such integers is goes to OpenDP, which converts or refuses it; empty lists are in the domain.
    assert measurement([]) == []
    assert len(measurement((1, 2))) == 2
    for wrong in ([1, 2.5], [1, int(ends.max) + 1], ["1"], 5):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            measurement(wrong)
    # Also the domain's very ends: an exception would quote a value.
    assert abs(one(int(ends.max)) - min(ends.max, 2**63 - 1)) < 100
    assert len(measurement([int(ends.max), int(ends.min)])) == 2


def test_one_number_takes_no_detour_through_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of the domain go straight to the noise; OpenDP converts or refuses all else, and frees its memory."""
    asked: list[Any] = []
    invoke = core.measurement_invoke
    monkeypatch.setattr(core, "measurement_invoke", lambda this, arg: (asked.append(arg), invoke(this, arg))[1])
    for kind, inside, outside in (("i32", 2**31 - 1, 2**31), ("u32", 0, -1), (float, -1e30, 7), ("f32", None, 0.5)):
        measurement = make_discrete_laplace(*numbers(kind), sensitivity=1, epsilon=0.5)
        if inside is not None:
            assert {type(call(inside)) for call in (measurement, measurement.invoke)} == {type(inside)}
        assert asked == []
        with suppress(ValueError):
            measurement(outside)
        assert asked == [outside]
        for strange in ("5", [5]):
            with pytest.raises((TypeError, AttributeError)):
                measurement(strange)
        asked.clear()
        del measurement
        gc.collect()


@pytest.mark.parametrize("kind", [float, "f32"])
def test_floats_lie_on_a_grid(kind: Any) -> None:
    measurement = make_discrete_laplace(*vectors(kind, 3), sensitivity=1.0, epsilon=1.0, resolution=0.25)
    out = np.array(measurement([0.3, 1e30, float("-inf")]))
    assert (out[0] * 4) % 1 == 0
    assert np.isclose(out[1:], [2.0**60, -(2.0**60)], rtol=1e-6).all()
    assert isinstance(make_discrete_laplace(*numbers(kind), 1.0, 1.0)(0.5), float)
    # Three values may each cross a border of the grid.
    assert measurement.map(1.0) == 1.0
    assert measurement.map(2.0) == pytest.approx((8 + 2) / (4 + 2))


def test_its_noise_is_fresh_and_has_the_law() -> None:
    size = 10**5
    measurement = make_discrete_laplace(*vectors(int), sensitivity=2, epsilon=0.5)
    draws = [np.array(measurement([7] * size)) - 7 for _ in range(2)]
    assert abs(np.corrcoef(*draws)[0, 1]) < 0.02
    edges = np.arange(-30.0, 31.0)
    for noise in draws:
        counts = np.histogram(noise, [-np.inf, *edges, np.inf])[0]
        stat.accept(stat.chi_square_p(counts, distributions.laplace_cells(edges, 4.0)))
    stat.reject(stat.chi_square_p(counts, distributions.laplace_cells(edges, 4.4)))


@pytest.mark.parametrize(
    ("domain", "metric", "told"),
    [
        (lambda: dp.atom_domain(T=float), lambda: dp.absolute_distance(T=float), "^input_domain = .*with nan=False"),
        (lambda: dp.atom_domain(T=bool), lambda: dp.absolute_distance(T=int), "^input_domain = "),
        (lambda: dp.vector_domain(dp.atom_domain(T=str)), lambda: dp.l1_distance(T=int), "^input_domain = "),
        (lambda: vectors(float)[0], lambda: dp.l1_distance(T=float), "^input_domain = .*expected a size"),
        (lambda: vectors(int)[0], lambda: dp.l2_distance(T=int), r"^input_metric = .*: expected L1Distance\(i32\)"),
        (lambda: vectors(int)[0], lambda: dp.l1_distance(T="i64"), r"^input_metric = .*: expected L1Distance\(i32\)"),
        (lambda: vectors(int)[0], lambda: dp.absolute_distance(T=int), "^input_metric = "),
        (lambda: 5, lambda: dp.absolute_distance(T=int), "^input_domain = 5"),
    ],
)
def test_other_spaces_are_refused(domain: Any, metric: Any, told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        make_discrete_laplace(domain(), metric(), 1.0, 1.0)


def test_bad_parameters_and_features() -> None:
    for wrong in ({"sensitivity": 0}, {"epsilon": -1}, {"resolution": 0.5}):
        with pytest.raises(ParameterError, match=f"^{next(iter(wrong))} = "):
            make_discrete_laplace(*numbers(int), **{"sensitivity": 1, "epsilon": 1, **wrong})
    with pytest.raises(dp.OpenDPException):
        make_discrete_laplace(*vectors(float, 2), 1.0, 1.0).map(-1.0)
    dp.disable_features("honest-but-curious")
    with pytest.raises(ParameterError, match=r"^OpenDP's features are not enabled: expected dp.enable_features"):
        make_discrete_laplace(*numbers(int), 1.0, 1.0)
