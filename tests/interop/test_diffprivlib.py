"""Code written for diffprivlib runs unchanged, and the noise has the loss that it asks for."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import zcdp_delta
from fastdp.interop import diffprivlib as ours

SIZES = [(1.0, 1.0), (0.1, 3.0), (2.5, 1e-3), (1e-3, 1e6), (0.7, 1 / 3)]
CASES = {
    "Laplace": {"epsilon": 0.5, "sensitivity": 3.0},
    "Geometric": {"epsilon": 0.5, "sensitivity": 3},
    "Gaussian": {"epsilon": 0.5, "delta": 1e-5, "sensitivity": 3.0},
}


@pytest.mark.parametrize(("epsilon", "sensitivity"), SIZES)
def test_numbers_that_lie_sensitivity_apart_are_hidden_by_the_noise(epsilon, sensitivity) -> None:
    generator = np.random.default_rng(1)
    values = generator.uniform(-9, 9, 300) * sensitivity
    near = values + generator.uniform(-1, 1, 300) * sensitivity

    def steps(make):
        pair = make(), make()
        found = [pair[0].randomise(a) - pair[1].randomise(b) for a, b in zip(values, near, strict=True)]
        return max(map(abs, found))

    def made(**delta):
        return (ours.Gaussian if delta else ours.Laplace)(
            epsilon=epsilon, sensitivity=sensitivity, random_state=1, **delta
        )

    # The same draws on both sides: what is left is the distance of the rounded numbers.
    scale = math.sqrt(made().variance(0) / 2)
    assert steps(made) / scale <= epsilon * (1 + 1e-6)
    sigma = math.sqrt(made(delta=1e-6).variance(0))
    rho = Fraction(steps(lambda: made(delta=1e-6)) / sigma) ** 2 / 2
    assert zcdp_delta(float(rho), epsilon) <= 1e-6 * (1 + 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_variance_that_is_stated(name) -> None:
    mechanism = getattr(ours, name)(**CASES[name], random_state=3)
    drawn = np.array([mechanism.randomise(7) for _ in range(40_000)])
    assert mechanism.variance(7) == mechanism.mse(7) == pytest.approx(np.mean((drawn - 7) ** 2), rel=0.06)
    assert mechanism.bias(7) == 0.0
    assert mechanism.copy().randomise(7) == drawn[0]
    if name == "Geometric":
        assert {type(each) for each in drawn.tolist()} == {int}
        with pytest.raises(DataError, match="whole"):
            mechanism.randomise(0.5)


@pytest.mark.parametrize("name", CASES)
def test_names_and_arguments_are_diffprivlib_s(name) -> None:
    theirs = getattr(pytest.importorskip("diffprivlib.mechanisms"), name)
    own = getattr(ours, name)
    assert list(inspect.signature(theirs).parameters) == list(inspect.signature(own).parameters)
    assert {each for each in dir(theirs) if each[0] != "_"} == {each for each in dir(own) if each[0] != "_"}
    there, here = theirs(**CASES[name]), own(**CASES[name])
    # Not more noise than theirs; of the Gaussian less.
    assert here.variance(1) <= there.variance(1) * (1 + 1e-5)


def test_a_histogram_has_noise_and_public_edges() -> None:
    sample = np.random.default_rng(2).gamma(2.0, 2.0, 5_000)
    exact, edges = np.histogram(sample, 12, (0.0, 20.0))
    counts, found = ours.histogram(sample, 0.5, 12, (0.0, 20.0), random_state=5)
    assert np.array_equal(found, edges)
    assert np.array_equal(counts, np.maximum(exact + fastdp.discrete_laplace(2.0, 12, seed=5), 0))
    density, _ = ours.histogram(sample, 0.5, edges, density=True, random_state=5)
    assert np.sum(density * np.diff(edges)) == pytest.approx(1.0)
    with pytest.raises(ParameterError, match=r"^range = None: expected public ends"):
        ours.histogram(sample)
    for wrong, named in (
        ({"bins": "auto"}, "bins = 'auto'"),
        ({"weights": sample}, "weights"),
        ({"bins": 0}, "bins"),
    ):
        with pytest.raises(ParameterError, match=f"^{named}"):
            ours.histogram(sample, range=(0.0, 20.0), **wrong)
    with pytest.raises(DataError, match=r"^sample"):
        ours.histogram(["a"], range=(0.0, 20.0))

    class Accountant:
        def spend(self, epsilon, delta):
            raise RuntimeError(f"{epsilon} and {delta}")

    with pytest.raises(RuntimeError, match=r"0.5 and 0"):
        ours.histogram(sample, 0.5, 12, (0.0, 20.0), accountant=Accountant())


def test_the_default_accountant_of_diffprivlib_pays() -> None:
    accountants = pytest.importorskip("diffprivlib.accountant")
    with accountants.BudgetAccountant(1.0, 0) as account:
        ours.histogram([1.0, 2.0], epsilon=0.7, range=(0, 3))
        assert account.total()[0] == pytest.approx(0.7)
        with pytest.raises(Exception, match=r"(?i)budget"):
            ours.histogram([1.0, 2.0], epsilon=0.7, range=(0, 3))


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"delta": 1.0}, {"delta": -0.1}, {"sensitivity": math.inf}])
def test_refusals(wrong) -> None:
    for name in ("Laplace", "Gaussian"):
        with pytest.raises(ParameterError, match=f"^{next(iter(wrong))} = "):
            getattr(ours, name)(**{**CASES["Gaussian"], **wrong})
        for far in (5e-324, 1e308):
            with pytest.raises(ParameterError, match=r"^sensitivity = .*: expected between"):
                getattr(ours, name)(**{**CASES["Gaussian"], "sensitivity": far})
        with pytest.raises(ParameterError, match=r"^random_state is a RandomState"):
            getattr(ours, name)(**CASES["Gaussian"], random_state=np.random.RandomState(1))
    with pytest.raises(ParameterError, match=r"^delta = 0"):
        ours.Gaussian(epsilon=1.0, delta=0.0, sensitivity=1.0)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"bins": [3, 1]}, "bins"),
        ({"bins": ["0", "1"]}, "bins"),
        ({"bins": [1.0]}, "bins"),
        ({"bins": [0.0, math.nan]}, "bins"),
        ({"range": 5}, "range"),
        ({"range": (2, 1)}, "range"),
        ({"range": (0, math.inf)}, "range"),
        ({"range": ("a", "b")}, "range"),
    ],
)
def test_nothing_is_paid_for_edges_that_are_none(given, name) -> None:
    class Accountant:
        def spend(self, epsilon, delta):
            raise RuntimeError("paid")

    with pytest.raises(ParameterError, match=f"^{name} = "):
        ours.histogram([1.0, 2.0], **given, accountant=Accountant())
