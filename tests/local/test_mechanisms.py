"""The local model's mechanisms as users see them: unbiased, with the stated variances, light to import."""

from __future__ import annotations

import decimal
import itertools
import pickle
from fractions import Fraction

import numpy as np
import pytest

from fastdp.errors import DataError, ParameterError
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding, reports
from fastdp.local.reports import MixtureDistribution, WindowDistribution, bit_distribution, window_distribution
from fastdp.noise.key import Key
from tests import stat
from tests.oracles import local
from tests.shared import run_python

MEANS = [
    (StochasticRounding, local.variance_rounding),
    (Piecewise, local.variance_piecewise),
    (Hybrid, local.variance_hybrid),
]
ALL = [SquareWave, StochasticRounding, Piecewise, Hybrid]


def test_variances_are_the_papers() -> None:
    for epsilon, (make, formula) in itertools.product((1e-3, 0.5, 0.61, 0.62, 1.0, 2.0, 4.0, 8.0), MEANS):
        mechanism = make(epsilon)
        values = [-1.0, -0.5, 0.0, 0.25, 1.0]
        expected = [formula(value, epsilon) for value in values]
        assert mechanism.variance(values) == pytest.approx(expected, rel=1e-3)
        assert mechanism.variance(0.25) == pytest.approx(formula(0.25, epsilon), rel=1e-3)
        assert mechanism.worst_variance == pytest.approx(max(expected), rel=1e-3)
        shifted = make(epsilon, 10.0, 16.0)
        assert shifted.variance([10.0, 13.0, 14.5]) == pytest.approx(
            [9 * formula(v, epsilon) for v in (-1, 0, 0.5)], 1e-3
        )


def test_moments_of_small_distributions_by_enumeration() -> None:
    """All outputs with their exact weights: the estimate's mean is x, its variance the polynomial's."""
    for epsilon, near in itertools.product((0.01, 1.0, 3.0), (1, 2, 9, 17)):
        steps = 16
        window = window_distribution(epsilon, near, steps, 2**40 + 7)
        bit = bit_distribution(epsilon, steps, 2**64 - window.total)
        for made in (window, bit, MixtureDistribution(window, bit)):
            estimates = reports.Estimator.of(made.terms(), 0, 1)(np.arange(made.outputs))
            for x in (0, 5, 8, 16):
                weights = np.array([float(Fraction(made.weight(x, j), made.total)) for j in range(made.outputs)])
                variance = float(made.variance_at(Fraction(x)))
                assert weights @ estimates == pytest.approx(x, abs=1e-11 * np.sqrt(variance) + 1e-12)
                assert weights @ (estimates - x) ** 2 == pytest.approx(variance, rel=1e-9)


def test_any_domain_gives_the_same_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the words, reports depend on the place in the domain alone."""
    monkeypatch.setattr("fastdp.local.mechanisms.Mechanism._words", b"one for all domains")
    for (low, high), make in itertools.product(
        ((0.0, 50.0), (-3.0, 1e-3), (1e9, 1e9 + 1), (0.0, 1e-140), (-5e139, 5e139)), ALL
    ):
        same = {"key": Key.from_seed(3), "start": 0}
        t = np.linspace(-0.5, 1.5, 201)
        values = low + (high - low) * t
        mechanism, unit = make(1.0, low, high), make(1.0, 0.0, 1.0)
        places = mechanism.steps_of(values) / mechanism.STEPS
        assert places == pytest.approx(np.clip(t, 0, 1), abs=2e-6)
        assert np.array_equal(mechanism.perturb(values, **same), unit.perturb(places, **same))
        assert mechanism.perturb(low - (high - low), seed=3) == mechanism.perturb(low, seed=3)


@pytest.mark.parametrize("make", [pair[0] for pair in MEANS])
def test_estimates_scale_with_the_domain(make) -> None:
    unit, wide = make(1.5), make(1.5, 0.0, 50.0)
    reports = unit.perturb(np.linspace(-1, 1, 999), seed=4)
    assert wide.estimate(reports) == pytest.approx(25.0 * unit.estimate(reports) + 25.0, abs=1e-9)
    one = wide.estimate(int(reports[0]))
    assert isinstance(one, float)
    assert one == wide.estimate(reports)[0]
    assert wide.estimate(reports.astype(np.int64).tolist())[5] == wide.estimate(reports)[5]
    assert wide.estimate([]).shape == (0,)


@pytest.mark.parametrize("value", [0.0, 0.37, 1.0])
def test_square_wave_reports_follow_the_weights(value: float) -> None:
    """A million reports in 64 coarse cells against exact integer weights."""
    mechanism = SquareWave(1.0)
    window = mechanism.distribution
    assert isinstance(window, WindowDistribution)

    def probabilities(window: WindowDistribution) -> np.ndarray:
        near = np.arange(window.outputs) - mechanism.steps_of(value)
        weights = np.where((near >= 0) & (near < window.near), float(window.near_weight), float(window.far_weight))
        cells = np.bincount(np.arange(window.outputs) * 64 // mechanism.n_outputs, weights, minlength=64)
        return cells / cells.sum()

    reports = mechanism.perturb(np.full(10**6, value), seed=stat.seed(103)).astype(np.int64)
    observed = np.bincount(reports * 64 // mechanism.n_outputs, minlength=64)
    stat.accept(stat.chi_square_p(observed, probabilities(window)))
    stat.reject(stat.chi_square_p(observed, probabilities(window_distribution(1.1, window.near, window.steps))))


@pytest.mark.parametrize("make", ALL)
def test_mechanisms_are_values(make) -> None:
    mechanism = make(1.0, 0, 5)
    assert mechanism == make(1.0, 0.0, 5.0) != make(1.0, 0.0, 6.0)
    assert hash(mechanism) == hash(make(1.0, 0, 5))
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism  # noqa: S301
    assert repr(mechanism) == f"{make.__name__}(epsilon=1.0, low=0.0, high=5.0)"
    guarantee = mechanism.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.model, guarantee.arithmetic) == (1.0, 0.0, "local", "exact")
    assert make.__name__ in guarantee.derivation[0]
    for high in (0.0, -1.0, 1e-141, 1e141):
        with pytest.raises(ParameterError, match=r"^high = .*expected"):
            make(1.0, 0.0, high)
    assert sum(mechanism.weight(3, j) for j in range(2)) <= mechanism.total_weight == 2**64


@pytest.mark.parametrize("size", [10, 100, 70_000])
def test_values_that_are_not_finite_are_named_with_their_index(size: int) -> None:
    mechanism = Hybrid(1.0)
    for bad in (np.nan, np.inf, -np.inf):
        values = np.zeros(size)
        values[size - 2] = bad
        for call in (mechanism.perturb, mechanism.steps_of, mechanism.variance):
            with pytest.raises(DataError, match=rf"^values\[{size - 2}\]: not a finite number; expected"):
                call(values)


def test_bad_values_reports_and_positions() -> None:
    mechanism, key = Hybrid(1.0), Key.from_seed(1).of_stream(0)
    for bad in (float("nan"), np.float32("inf"), 10**400):
        with pytest.raises(DataError, match=r"^values: .*finite"):
            mechanism.perturb(bad)
    for stranger in ("0.5", None, [[1.0]], ["a"], 1j, np.array(0.5)):
        with pytest.raises(DataError, match=r"^values .*expected"):
            mechanism.perturb(stranger)
    for stream, start, name in ((-1, 0, "stream"), (2**40, 0, "stream"), (0, -1, "start"), (0, 1.5, "start")):
        for values in (0.5, [0.5] * 100):
            with pytest.raises(ParameterError, match=rf"^{name} = "):
                mechanism.perturb(values, seed=1, stream=stream, start=start)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="not both"):
        mechanism.perturb(0.5, seed=1, key=bytes(32))
    for values, start in ((0.5, 2**33), ([0.5] * 2, 2**33 - 1), ([0.5] * 100, 2**33 - 99), ([0.5], 2**33 + 1)):
        with pytest.raises(ParameterError, match=rf"^start = {start}"):
            mechanism.perturb(values, key=key, start=start)
    assert len(mechanism.perturb([0.5] * 100, key=key, start=2**33 - 100)) == 100
    for server in (mechanism, SquareWave(1.0)):
        n = server.n_outputs
        for sent, named in (
            ([0, -1], r"\[1\]: out of range \(1 of 2"),
            ([n], r"\[0\]"),
            ([0.0, 1.0], " holds float64"),
        ):
            with pytest.raises(DataError, match=rf"^reports{named}.*expected"):
                server.estimate(sent)
    for x, output in ((-1, 0), (2**20 + 1, 0), (0, mechanism.n_outputs)):
        with pytest.raises(ParameterError, match=r"^(x|output) = "):
            mechanism.weight(x, output)


def test_columns_of_every_kind() -> None:
    mechanism, numbers = Piecewise(1.0, 0, 200), np.arange(150)
    expected = mechanism.perturb(numbers.astype(np.float64), seed=6)
    for column in (numbers.tolist(), numbers.astype(np.uint8), np.repeat(numbers, 2)[::2]):
        assert np.array_equal(mechanism.perturb(column, seed=6), expected)
    for scalar in (np.float32(7), np.int8(7), 7, Fraction(7)):
        assert mechanism.perturb(scalar, seed=6) == mechanism.perturb(7.0, seed=6)
    assert isinstance(mechanism.perturb(np.float64(7.0)), int)


def test_a_client_loads_numpy_and_the_standard_library_only() -> None:
    program = """
import sys
import fastdp.local
for name in ("SquareWave", "StochasticRounding", "Piecewise", "Hybrid"):
    mechanism = getattr(fastdp.local, name)(1.0)
    mechanism.perturb(0.3), mechanism.perturb([0.1] * 64), mechanism.guarantee, mechanism.n_outputs
fastdp.local.LogSquareWave(1.0, 0.01, 100.0).perturb(3.0)
text = fastdp.local.Announcement(fastdp.local.Hybrid(1.0, 0.0, 9.0)).to_text()
assert len(fastdp.local.Client(1.0).answer(text, 3.0)) == 42
heavy = ("numba", "scipy", "cryptography", "fastdp_kernels", "llvmlite", "pandas", "pyarrow", "click")
print([name for name in heavy if name in sys.modules])
fastdp.local.Hybrid(1.0).perturb([0.1] * 65)
print([name for name in heavy if name in sys.modules])
"""
    few, many = run_python("-c", program, check=True).stdout.splitlines()
    assert few == "[]"
    assert "numba" in many
    assert "cryptography" in many


def test_distributions_do_not_depend_on_the_callers_decimals() -> None:
    """A distribution that changed with the caller's context would part clients from their server."""
    window_distribution.cache_clear()
    expected = [make(1.25).distribution for make in (SquareWave, Piecewise, Hybrid)]
    with decimal.localcontext() as context:
        context.prec = 3
        for trap in (decimal.Inexact, decimal.FloatOperation, decimal.Rounded):
            context.traps[trap] = True
        window_distribution.cache_clear()
        assert [make(1.25).distribution for make in (SquareWave, Piecewise, Hybrid)] == expected


def test_a_key_needs_the_place_of_an_unused_word() -> None:
    key = Key.from_seed(1)
    with pytest.raises(ParameterError, match=r"start = None.*unused word"):
        Hybrid(1.0).perturb([0.1, 0.2], key=key)
    # Words of thresholds and of values never meet: their streams have levels of their own.
    assert {make.WORD_LEVEL for make in (StochasticRounding, Piecewise, Hybrid)} == {0}
    assert SquareWave.WORD_LEVEL == 1
