"""The local model's mechanisms as users see them: unbiased, with the stated variances; two scales."""

from __future__ import annotations

import decimal
import itertools
import json
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.local import (
    Announcement,
    Client,
    HistogramCollector,
    Hybrid,
    LogSquareWave,
    Piecewise,
    SquareWave,
    StochasticRounding,
    decode,
    encode,
    reports,
    square_wave,
)
from fastdp.local.distribution import Distribution
from fastdp.local.mechanisms import octave, octaves, ratios_at
from fastdp.local.reports import MixtureDistribution, WindowDistribution, bit_distribution, window_distribution
from fastdp.local.square_wave import range_errors
from fastdp.noise.key import Key
from fastdp.thresholds import SquareWave as Rule
from fastdp.thresholds import ThresholdTask
from tests import stat
from tests.local.test_square_wave import theta_of
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


@pytest.mark.usefixtures("one_key_for_domains")
def test_any_domain_gives_the_same_reports() -> None:
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


@pytest.mark.parametrize("value", [0.0, 0.37])
def test_square_wave_reports_follow_the_weights(value: float) -> None:
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


def test_bad_values_reports_and_positions() -> None:
    mechanism, key = Hybrid(1.0), Key.from_seed(1).of_stream(0)
    for bad, size in itertools.product((np.nan, np.inf, -np.inf), (10, 100, 70_000)):
        values = np.zeros(size)
        values[size - 2] = bad
        for call in (mechanism.perturb, mechanism.steps_of, mechanism.variance):
            with pytest.raises(DataError, match=rf"^values\[{size - 2}\]: not a finite number; expected"):
                call(values)
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
    with pytest.raises(ParameterError, match=r"start = None.*unused word"):
        mechanism.perturb([0.1, 0.2], key=key)
    for values, start in ((0.5, 2**33), ([0.5] * 2, 2**33 - 1), ([0.5] * 100, 2**33 - 99), ([0.5], 2**33 + 1)):
        with pytest.raises(ParameterError, match=rf"^start = {start}"):
            mechanism.perturb(values, key=key, start=start)
    assert len(mechanism.perturb([0.5] * 100, key=key, start=2**33 - 100)) == 100
    # Words of thresholds and of values never meet: their streams have levels of their own.
    assert [make.WORD_LEVEL for make in ALL] == [1, 0, 0, 0]
    for server in (mechanism, SquareWave(1.0)):
        for sent, named in (
            ([0, -1], r"\[1\]: out of range \(1 of 2"),
            ([server.n_outputs], r"\[0\]"),
            ([0.0], " holds float64"),
        ):
            with pytest.raises(DataError, match=rf"^reports{named}.*expected"):
                server.estimate(sent)


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


# The square wave on a logarithmic scale: the same distribution after a map that every machine computes alike.

LOW, HIGH = 100.0 / 2**14, 100.0
values_ = st.floats(-10.0, 1e300, allow_nan=False)


@given(st.lists(values_, min_size=1, max_size=100))
def test_one_and_many_agree_to_the_bit_and_rise(numbers: list[float]) -> None:
    array = np.array(sorted(numbers))
    many = octaves(array)
    assert many.tolist() == [octave(x) for x in array.tolist()]
    assert (np.diff(many) >= 0.0).all()
    above = array[array >= 1.0]
    np.testing.assert_allclose(ratios_at(octaves(above)), above, rtol=1e-12)
    assert np.abs(octaves(above) - np.log2(above)).max(initial=0.0) < 0.0861


@settings(max_examples=20)
@given(st.lists(values_, min_size=65, max_size=80), st.integers(0, 2**20))
def test_arrays_and_single_values_give_the_same_reports(numbers: list[float], seed: int) -> None:
    wave = LogSquareWave(1.0, LOW, HIGH)
    steps = wave.steps_of(np.array(numbers))
    assert steps.tolist() == [wave.steps_of(x) for x in numbers] == [*wave.steps_of(numbers[:64]), *steps[64:]]
    reports = wave.perturb(np.array(numbers), seed=seed)
    assert reports[:64].tolist() == wave.perturb(numbers[:64], seed=seed).tolist()


def test_the_distribution_is_the_square_waves() -> None:
    """So the exact ratios of tests/privacy/test_local_ratios.py hold for it."""
    for epsilon in (0.1, 1.0, 8.0):
        one = LogSquareWave(epsilon, LOW, HIGH)
        assert one.distribution == SquareWave(epsilon).distribution
        assert (one.guarantee.epsilon, one.guarantee.model) == (epsilon, "local")
    for low in (0.0, -1.0, 60.0, 100.0 * 2.0**-257):
        with pytest.raises(ParameterError, match=r"^low = .*: expected"):
            LogSquareWave(1.0, low, 100.0)


def test_messages_and_announcements_name_the_scale() -> None:
    wave = LogSquareWave(1.0, LOW, HIGH)
    linear = SquareWave(1.0, LOW, HIGH)
    message = decode(encode(wave, [1, 2, 3]))
    assert message.mechanism == wave != linear
    text = Announcement(wave).to_text()
    assert json.loads(text)["mechanism"] == "LogSquareWave"
    assert Announcement.from_text(text).mechanism == wave
    # Reports on another scale are refused, whatever else is the same.
    collector = HistogramCollector(wave, 56)
    assert collector.receive(encode(linear, [1, 2, 3])) == 0
    assert collector.refused.messages == 1
    assert collector.receive(Client(1.0).answer(text, 3.0)) == 1
    assert HistogramCollector.from_bytes(collector.to_bytes()).mechanism == wave
    with pytest.raises(ParameterError, match=r"^others"):
        collector.merge(HistogramCollector(linear, 56))


def drawn(n: int = 65_536, seed: int = 3) -> np.ndarray:
    return np.minimum(np.random.default_rng(seed).gamma(2.0, 4.0, n), 1657.0)


def test_a_known_distribution_comes_back() -> None:
    wave, values = LogSquareWave(4.0, 2.0**-4, 2.0**10), drawn()
    found = wave.estimate(wave.perturb(values, seed=1), bins=56)
    assert (found.scale, found.edges[0], found.edges[-1]) == ("logarithmic", 2.0**-4, 2.0**10)
    assert found.edges[4:].tolist() == (2.0 * found.edges[:-4]).tolist()
    for q in (0.1, 0.5, 0.9, 0.99):
        assert found.quantile(q) == pytest.approx(np.quantile(values, q), rel=0.1)
    # Of what exceeds 32 there is little, and noise at the top of the scale weighs much in the mean.
    assert found.mean() - found.excess(32.0) == pytest.approx(np.minimum(values, 32.0).mean(), rel=0.03)
    assert found.mean() == pytest.approx(values.mean(), rel=0.3)
    theta = np.array([1.0, 10.0])
    excess = np.minimum(values, 32.0) - theta[:, None]
    assert found.excess(theta) - found.excess(32.0) == pytest.approx(np.maximum(excess, 0.0).mean(axis=1), rel=0.2)


def test_the_objective_looks_between_the_edges() -> None:
    shares = np.full(8, 0.125)
    found = Distribution(shares, 1.0, 4.0, "em", 1, True, 0.0, 1, "logarithmic")
    candidates, errors = range_errors(found, 100, 1.0)
    assert candidates.size == errors.size == 64
    assert candidates[7::8].tolist() == found.edges[1:].tolist() == [1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0]


def test_the_mean_of_resamples_is_deterministic_and_has_fewer_gaps() -> None:
    wave = LogSquareWave(1.0, 1657.0 / 2**14, 1657.0)
    counts = np.bincount(wave.perturb(drawn(), seed=2), minlength=wave.n_outputs)
    single = wave.estimate_counts(counts, 56, tolerance=1e-3)
    found = square_wave.mean_estimate(wave, counts, 56)
    assert (found.frequencies == square_wave.mean_estimate(wave, counts, 56).frequencies).all()
    assert found.frequencies.sum() == pytest.approx(1.0)
    assert (found.frequencies < 1e-6).sum() < (single.frequencies < 1e-6).sum()
    cells = np.bincount(np.arange(wave.n_outputs) * 56 // wave.n_outputs, weights=counts).astype(np.int64)
    assert (found.frequencies == square_wave.mean_estimate(wave, cells, 56).frequencies).all()


def test_the_tail_is_cut_at_standard_errors_of_its_share() -> None:
    window = SquareWave(1.0).distribution
    # One window's share: q = P[far window], p - q the signal.
    q, p = window.far_weight * window.near / window.total, window.near_weight * window.near / window.total
    limit = 1.5 * math.sqrt(q * (1 - q) / 65_536) / (p - q)
    assert limit < 0.01
    shares = np.array([0.5, 0.4, 0.09, 0.01 - 0.9 * limit, 0.9 * limit])
    found = Distribution(shares, 1.0, 32.0, "em", 1, True, 0.0, 65_536, "logarithmic")
    kept = square_wave.cut_tail(found, window)
    tails = np.cumsum(shares[::-1])[::-1]
    expected = np.where(tails >= limit, shares, 0.0)
    np.testing.assert_allclose(kept.frequencies, expected / expected.sum())
    assert kept.frequencies[-1] == 0.0 < kept.frequencies[-3]
    # Never everything, however few reports.
    few = square_wave.cut_tail(Distribution(shares, 1.0, 32.0, "em", 1, True, 0.0, 1, "logarithmic"), window)
    assert few.frequencies.sum() == pytest.approx(1.0)


def density(logs: np.ndarray, matrix: np.ndarray, counts: np.ndarray) -> float:
    shares = np.exp(logs) / np.exp(logs).sum()
    total = 0.0
    for cell, count in enumerate(counts):
        total += count * math.log(sum(matrix[cell, i] * shares[i] for i in range(shares.size)))
    for i in range(1, shares.size - 2):
        bend = 2 * logs[i + 1] - logs[i] - logs[i + 2]
        total += 0.03 * math.log(bend) if bend > 0 else -math.inf
    return total - 0.5 * 3e-4 * float(np.square(logs).sum())


def test_the_concave_estimate_is_the_maximum() -> None:
    generator = np.random.default_rng(2)
    matrix = np.abs(np.subtract.outer(np.arange(10), np.arange(10)) < 3) * 0.1 + 0.02
    matrix /= matrix.sum(axis=0)
    counts = generator.multinomial(5000, matrix @ np.array([0.3, 0.01, 0.04, 0.1, 0.2, 0.2, 0.1, 0.04, 0.008, 0.002]))
    shares, likelihood, steps, converged = square_wave.fit(matrix, counts.astype(float))
    assert converged
    assert steps < 60
    assert likelihood == pytest.approx(float(counts @ np.log(matrix @ shares)))
    logs = np.log(shares)
    assert (-np.diff(logs, 2)[1:] > 0).all()
    assert shares[0] > 2 * shares[1]
    # The level of the logarithms is the one that the prior likes best.
    logs -= logs.mean()
    best = density(logs, matrix, counts)
    worse = [
        density(logs + step * way, matrix, counts) for way in generator.normal(size=(40, 10)) for step in (0.1, 1e-2)
    ]
    assert max(worse) < best + 1e-4
    assert density(logs + 0.1, matrix, counts) < best


def test_the_concave_estimate_knows_the_matrix_of_the_reports() -> None:
    wave = LogSquareWave(1.0, 1.0 / 2**4, 2.0**10)
    matrix = square_wave._matrix(wave.distribution, 56, 56)
    assert matrix.sum(axis=0) == pytest.approx(np.ones(56))
    edges = Distribution(np.eye(56)[0], wave.low, wave.high, "", 0, True, 0.0, 1, "logarithmic").edges
    for place in (0, 20, 55):
        values = np.linspace(edges[place], edges[place + 1], 100_000)
        cells = wave.perturb(values, seed=place).astype(np.int64) * 56 // wave.n_outputs
        shares = np.bincount(cells, minlength=56) / values.size
        assert np.abs(shares - matrix[:, place]).max() < 0.004


def test_the_concave_estimate_has_one_peak_and_a_tail() -> None:
    wave = LogSquareWave(1.0, 1657.0 / 2**14, 1657.0)
    counts = np.bincount(wave.perturb(drawn(), seed=2), minlength=wave.n_outputs)
    found = square_wave.concave_estimate(wave, counts, 56)
    cells = np.bincount(np.arange(wave.n_outputs) * 56 // wave.n_outputs, weights=counts).astype(np.int64)
    assert (found.frequencies == square_wave.concave_estimate(wave, cells, 56).frequencies).all()
    few = square_wave.concave_estimate(wave, cells // 500, 56)
    assert (np.diff(np.log(few.frequencies), 2)[1:] < 1e-9).all(), "a mean of resamples with a bend in its tail"
    assert found.frequencies.sum() == pytest.approx(1.0)
    assert found.n_reports == counts.sum()
    assert found.converged
    peak = int(found.frequencies[1:].argmax()) + 1
    assert (np.diff(found.frequencies[peak:]) < 0).all()
    assert (np.diff(found.frequencies[1:peak]) > 0).all()
    assert found.quantile(0.99) == pytest.approx(float(np.quantile(drawn(), 0.99)), rel=0.25)
    # One report is enough to go on.
    single = square_wave.concave_estimate(wave, np.eye(1, wave.n_outputs, 7, dtype=np.int64)[0], 56)
    assert np.isfinite(single.frequencies).all()


@pytest.mark.parametrize("rule", [Rule(scale="logarithmic"), Rule(scale="logarithmic", method="concave")], ids=str)
@pytest.mark.usefixtures("one_key_for_domains")
def test_theta_scales_with_values_and_bound(rule: Rule) -> None:
    values = drawn(20_000)
    plain = theta_of(rule, values, ThresholdTask(1.0, 1657.0, 20_000, 2**20, 2.0**-20), Key.from_seed(5))
    for factor in (2.0**-30, 2.0**40):
        facts = ThresholdTask(1.0, 1657.0 * factor, 20_000, 2**20, 2.0**-20 * factor)
        assert theta_of(rule, values * factor, facts, Key.from_seed(5)) == plain * factor


def test_topl_takes_the_scale_by_name() -> None:
    values = drawn(9000)
    arguments: dict[str, Any] = {"epsilon": 1.0, "bound": 1657.0, "holdout": 8000, "max_range": 4096, "seed": 3}
    named = fastdp.ToPL(**arguments)
    release = named.release(values)
    concave = Rule(scale="logarithmic", method="concave")
    for pair in ((None, "logarithmic"), (None, concave), ("linear", Rule())):
        one, other = (fastdp.ToPL(**arguments, threshold=rule).release(values) for rule in pair)
        assert (one.values == other.values).all()
    assert release.threshold == named.threshold < 400.0
    # Users and server apart, by messages, give the same.
    server = fastdp.ToPLServer(1.0, 1657.0, 8000, 4096, threshold="logarithmic")
    wave = server.announcement.mechanism
    shards = [server.shard(), server.shard()]
    reports = wave.perturb(values[:8000], key=named._key.again(), start=0)
    for shard, part in zip(shards, np.split(reports, [3000]), strict=True):
        shard.receive(encode(wave, part))
    server.merge(*shards)
    assert server.threshold == release.threshold


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"scale": "logarithmic", "method": "sw"}, r"^method = 'sw': expected 'sw-w' or 'concave'"),
        ({"method": "concave"}, r"^method = 'concave': expected 'sw-w' or 'sw' with"),
        *(({"scale": "logarithmic", "bins": bins}, f"^bins = {bins}: expected") for bins in (0, 2**17)),
        *(({"scale": "logarithmic", "method": "concave", "bins": b}, f"^bins = {b}: expected") for b in (3, 513)),
    ],
)
def test_parameters_that_do_not_fit_together(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Rule(**rule)
    assert (Rule().n_bins, Rule(scale="logarithmic").n_bins, Rule(bins=99).n_bins) == (1024, 56, 99)


@pytest.mark.parametrize(("epsilon", "bins"), [(0.5, 4), (12.0, 8), (32.0, 56), (0.5, 56)])
def test_no_counts_are_too_certain_for_the_concave_estimate(epsilon: float, bins: int) -> None:
    """All values at the bound, or reports of a few outputs alone: systems that are singular in doubles."""
    wave = LogSquareWave(epsilon, LOW, HIGH)
    rule = Rule(scale="logarithmic", method="concave", bins=bins)
    top = np.bincount(wave.perturb(np.full(10_000, HIGH), seed=1), minlength=wave.distribution.outputs)
    ends = np.zeros_like(top)
    ends[[0, -1]] = 5 * 10**8
    for counts in (10 * top, 10**5 * top, ends):
        found = rule.estimate(wave, counts).frequencies
        assert np.isfinite(found).all()
        assert found.sum() == pytest.approx(1.0)
    assert rule.estimate(wave, 10 * top).frequencies[-bins // 4 :].sum() > (0.9 if epsilon > 1.0 else 0.5)


def test_totals_that_no_reports_make_are_refused() -> None:
    collector = fastdp.local.SumCollector(fastdp.local.StochasticRounding(1.0))
    machine = collector._machine
    totals = machine.zeros()
    totals[0, 0] = 1, machine.mechanism.distribution.terms()[0].last
    with pytest.raises(ParameterError):
        machine.check_totals(totals)
