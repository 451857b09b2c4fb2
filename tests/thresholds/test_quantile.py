"""Quantiles as thresholds, and every rule within publishers."""

from __future__ import annotations

import copy
import csv
import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import fastdp
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.noise.key import Key
from fastdp.perturbers import Flat, Hierarchy
from fastdp.thresholds import (
    NoisyMax,
    PAKQuantile,
    ScaleFree,
    SmoothQuantile,
    SquareWave,
    ThresholdTask,
    TruePercentile,
    quantile,
)
from fastdp.thresholds.quantile import (
    CELLS,
    SmoothNoise,
    _in_cells,
    calibrate,
    decay_table,
    laplace_stretch_delta,
    rank_of,
)
from tests import stat
from tests.grid import exhaustive
from tests.oracles import smooth_sensitivity as oracle
from tests.shared import real_stream, shared_file

M, N = 65_536, 2**20 + 65_536
RUNS = 400


def task(epsilon: float = 0.05, holdout: int = M, **options: Any) -> ThresholdTask:
    facts = {"bound": 1657.0, "max_range": 2**20, "resolution": 1.0} | options
    return ThresholdTask(epsilon=epsilon, holdout=holdout, **facts)


def keys(count: int) -> list[Key]:
    first = stat.seed(7)
    return [Key.from_seed(first + i) for i in range(count)]


@pytest.fixture(scope="module")
def pos() -> np.ndarray:
    return real_stream(length=M)


def thetas(rule: Any, values: np.ndarray, facts: ThresholdTask, count: int) -> np.ndarray:
    chooser = rule.start(facts)
    chooser.observe(values)
    return np.array([chooser.choose(key) for key in keys(count)])


# Constants.


def test_constants_by_hand() -> None:
    delta, epsilon = 1.0 / N**2, 0.05
    laplace = SmoothQuantile().smooth_noise(task())
    assert laplace.a == 0.025
    assert laplace.b == pytest.approx(epsilon / (2 * math.log(1 / delta)), rel=1e-14)
    assert laplace.upper(0.006) == pytest.approx(stats.laplace.ppf(1 - 0.006), rel=1e-12)
    gaussian = SmoothQuantile(noise="gaussian").smooth_noise(task())
    half = math.log(2 / delta) + epsilon / 2
    assert gaussian.a == pytest.approx(math.sqrt(2 * half + epsilon) - math.sqrt(2 * half), rel=1e-10)
    assert gaussian.b == pytest.approx(math.log(1 + epsilon / (2 * half)) / 2, rel=1e-12)
    assert gaussian.upper(0.006) == pytest.approx(stats.norm.ppf(1 - 0.006), rel=1e-12)
    cauchy = SmoothQuantile(noise="cauchy", gamma=3.0).smooth_noise(task())
    assert (cauchy.a, cauchy.b) == (epsilon / 8, epsilon / 8)
    assert calibrate("cauchy", 1.0, 0.1, 2.0).upper(0.006) == pytest.approx(stats.cauchy.ppf(1 - 0.006), rel=1e-10)


def test_kappa_by_hand() -> None:
    b, offset = 0.05 / (4 * math.log(N)), -math.log(2 * 0.006)
    assert PAKQuantile().kappa(task()) == pytest.approx(1 / (1 - (math.exp(b) - 1) * offset / 0.025), rel=1e-12)
    rule = PAKQuantile(noise="gaussian", beta=0.01, delta=1e-6)
    noise = rule.smooth_noise(task())
    expected = 1 / (1 - math.expm1(noise.b) * stats.norm.ppf(0.99) / noise.a)
    assert rule.kappa(task()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rule", [PAKQuantile(beta=1e-14), PAKQuantile(delta=0.1)])
def test_kappa_that_is_not_positive_is_refused_by_the_publisher(rule: PAKQuantile) -> None:
    with pytest.raises(ParameterError, match=r"beta = .*kappa .* is not positive"):
        rule.start(task())
    with pytest.raises(ParameterError, match="kappa"):
        fastdp.StreamPublisher(
            threshold=rule, perturber=fastdp.perturbers.Hierarchy(prune=0), epsilon=0.05, bound=1657, max_range=2**20
        )


def test_theta_is_quantile_plus_scaled_noise() -> None:
    """Theta of both rules from the oracle's smooth sensitivity and a draw with the same key."""
    values = np.random.default_rng(3).integers(0, 100, 50)
    facts, key = task(1.0, 50, bound=100.0, max_range=1000), Key.from_seed(1)
    rank = math.ceil(0.9 * 50)
    x = sorted(values.tolist())[rank - 1]
    plain, pak = SmoothQuantile(0.9, clip=False), PAKQuantile(0.9, beta=0.2, clip=False)
    for rule, kappa, offset in ((plain, 1.0, 0.0), (pak, pak.kappa(facts), -math.log(0.4))):
        noise = rule.smooth_noise(facts)
        width = oracle.smooth_sensitivity(sorted(values.tolist()), 100, rank, decay_table(noise.b, 50).tolist())
        chooser = rule.start(facts)
        chooser.observe(values.astype(np.float64))
        # The grid has whole steps here.
        expected = max(1.0, math.floor(x + kappa * width / noise.a * (noise.draw(key) + offset) + 0.5))
        assert chooser.choose(key) == expected


@pytest.mark.parametrize("bound", [2**50, 2**40 + 12_345, 2**24, 1000, 1])
def test_theta_comes_in_cells_whose_borders_are_no_quantiles(bound: int) -> None:
    cell = max(1, bound // CELLS)
    assert _in_cells(7, math.inf, bound) == math.inf
    for steps in (1, bound // 3 or 1, bound):
        low, high = _in_cells(steps, -1e-300, bound), _in_cells(steps, 1e-300, bound)
        assert low == high
        assert abs(low - steps) <= cell / 2
        assert low % cell == cell // 2
        assert _in_cells(steps, float(cell), bound) == low + cell


@pytest.mark.parametrize("name", ["laplace", "gaussian", "cauchy"])
def test_floats_of_the_noise_are_far_closer_than_cells(name: str) -> None:
    """However wide the noise, neighbouring tails move a theta within the bound by far less than a cell."""
    noise, generator = SmoothNoise(name, 1.0, 1.0, 2.0), np.random.default_rng(12)
    for exponent in [*range(40), 60, 100, 300]:
        tail = generator.uniform(0.5, 1.0) * 2.0**-exponent
        z, beside = noise.magnitude(tail), noise.magnitude(math.nextafter(tail, 0.0))
        # Noise that reaches the bound with this tail, or is as wide as eps = 0.01 makes it.
        width = min(1.0 / z, 200.0)
        assert abs(beside - z) * width * CELLS < 2.0**-15
        # The old draw, 53 bits after the point, leaves gaps of many cells.
    coarse = [noise.magnitude((k + 0.5) * 2.0**-53) for k in (3, 4)]
    assert (coarse[0] - coarse[1]) / coarse[0] * CELLS > 1000


def test_small_tails_take_further_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {0: 1, 1: 0, 2: 2**60 + 5}
    asked = []

    def word_at(_key: Key, stream: Any, position: int) -> int:
        assert position == 0
        asked.append(stream.refinement)
        return words[stream.refinement]

    monkeypatch.setattr(quantile, "word_at", word_at)
    z = SmoothNoise("laplace", 1.0, 1.0, 2.0).draw(Key.from_seed(1))
    assert asked == [0, 1, 2]
    assert z == pytest.approx(math.log(2.0**60 / 2.0**191), rel=1e-15)
    words = dict.fromkeys(range(20), 0)
    assert SmoothNoise("laplace", 1.0, 1.0, 2.0).draw(Key.from_seed(1)) > 660.0
    words = {0: 2**64 - 1}
    assert SmoothNoise("laplace", 1.0, 1.0, 2.0).draw(Key.from_seed(1)) == 0.0


def test_guarantees_admit_the_distance_of_their_floats() -> None:
    for noise in ("laplace", "gaussian", "cauchy"):
        rule = SmoothQuantile(noise=noise)
        assert 0.0 < rule.guarantee(task()).numeric_distance < 1e-4
        free = SmoothQuantile(noise=noise, clip=False).guarantee(task()).numeric_distance
        assert free > rule.guarantee(task()).numeric_distance
    assert NoisyMax().guarantee(task()).numeric_distance == 0.0


def test_rank() -> None:
    assert [rank_of(p, 10) for p in (0.01, 0.1, 0.11, 0.9, 0.91, 0.999)] == [1, 1, 2, 9, 10, 10]
    assert (rank_of(0.995, M), rank_of(0.5, 1)) == (65_209, 1)


def test_decay_meets_what_the_kernels_require() -> None:
    for b in (1e-17, 9e-4, 0.3, 5.0, 1e6):
        decay = decay_table(b, 1_000_000)
        assert decay[0] == 1.0
        assert (np.diff(decay) <= 0.0).all()
        assert decay[decay > 0.0].min() >= 2.0**-900
        u, v = np.random.default_rng(1).integers(0, 500_001, (2, 20_000))
        some = decay[u + v] > 0.0
        assert (decay[u] * decay[v] <= decay[u + v] * (1 + 2.0**-20))[some].all()


# Distributions of the noise.

DISTRIBUTIONS = [
    (SmoothNoise("laplace", 1.0, 1.0, 2.0), stats.laplace.cdf),
    (SmoothNoise("gaussian", 1.0, 1.0, 2.0), stats.norm.cdf),
    (SmoothNoise("cauchy", 1.0, 1.0, 2.0), stats.cauchy.cdf),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "cdf"), DISTRIBUTIONS)
def test_draws_follow_the_distribution(noise: SmoothNoise, cdf: Any) -> None:
    draws = np.array([noise.draw(key) for key in keys(20_000)])
    far = int((np.abs(draws) >= noise.magnitude(0.01)).sum())
    # A quarter more scale, and the tail that the KS distance hardly sees.
    for check, factor, tail in ((stat.accept, 1.0, 0.01), (stat.reject, 1.25, 0.016)):
        check(float(stats.kstest(draws, lambda z, factor=factor: cdf(z / factor)).pvalue))
        check(float(stats.binomtest(far, draws.size, tail).pvalue))


@pytest.mark.parametrize("gamma", [1.125, 1.5, 4.0, 16.0])
def test_the_cauchy_type_law_has_the_density_it_claims(gamma: float) -> None:
    """P[|Z| >= z] = C * integral of 1/(1 + t^gamma) from z, here by scipy's hypergeometric function."""
    noise = calibrate("cauchy", 1.0, 0.1, gamma)
    whole = math.pi / gamma / math.sin(math.pi / gamma)
    for tail in (0.999, 0.7, 0.5, 0.2):
        z = noise.magnitude(tail)
        below = z * special.hyp2f1(1.0, 1.0 / gamma, 1.0 + 1.0 / gamma, -(z**gamma))
        assert below / whole == pytest.approx(1.0 - tail, rel=1e-6)
    # Near zero the density is flat; a floor there would be an atom.
    for j in range(4, 15):
        assert noise.magnitude(1 - 10.0**-j) == pytest.approx(10.0**-j * whole, rel=10.0 ** (j - 15) + 1e-3)
    # Both ends that a word can give stay finite.
    assert 0.0 == noise.magnitude(1.0) < noise.magnitude(1 - 2.0**-53) < noise.magnitude(2.0**-54) < math.inf


# Privacy, from the densities.


def density(noise: SmoothNoise, z: np.ndarray) -> np.ndarray:
    if noise.name == "laplace":
        return 0.5 * np.exp(-np.abs(z))
    if noise.name == "gaussian":
        return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return noise.gamma * math.sin(math.pi / noise.gamma) / (2 * math.pi) / (1 + np.abs(z) ** noise.gamma)


def worst_delta(noise: SmoothNoise, epsilon: float) -> float:
    """Largest integral of (p - e^epsilon q)+ over the corners: p of Z, q of a (1, e^s) apart, |s| <= b."""
    z = np.linspace(-60.0, 60.0, 1_200_001)
    worst = 0.0
    for s in (-noise.b, 0.0, noise.b):
        # |f(x) - f(y)| is at most the smaller of the two smooth sensitivities.
        for shift in (0.0, noise.a * min(1.0, math.exp(s))):
            q = density(noise, (z - shift) * math.exp(-s)) * math.exp(-s)
            excess = np.maximum(density(noise, z) - math.exp(epsilon) * q, 0.0)
            worst = max(worst, float(excess.sum()) * (z[1] - z[0]))
    return worst


@pytest.mark.parametrize("epsilon", [0.05, 20.0, *exhaustive(1.0, 5.0)])
@pytest.mark.parametrize("delta", [0.25, 1.0 / N**2, *exhaustive(1e-2, 1e-6)])
def test_delta_holds(epsilon: float, delta: float) -> None:
    for name in ("laplace", "gaussian"):
        assert worst_delta(calibrate(name, epsilon, delta, 2.0), epsilon) <= delta
    noise = calibrate("laplace", epsilon, delta, 2.0)
    assert laplace_stretch_delta(epsilon, noise.b) <= delta
    assert 0.8 * math.log1p(epsilon / (2 * math.log(1 / delta))) <= noise.b <= epsilon / (2 * math.log(1 / delta))


def test_the_printed_constants_would_not_all_do() -> None:
    delta = 1.0 / N**2
    printed = SmoothNoise("gaussian", 0.05 / math.sqrt(math.log(1 / delta)), 0.05 / (2 * math.log(1 / delta)), 2.0)
    assert worst_delta(printed, 0.05) == pytest.approx(1.8e-7, rel=0.1)
    # The printed Laplace constants do, up to an epsilon beyond which a smaller b is taken.
    for epsilon in (0.05, 1.0, 4.0):
        assert calibrate("laplace", epsilon, delta, 2.0).b == epsilon / (2 * math.log(1 / delta))
    assert worst_delta(SmoothNoise("laplace", 10.0, 10.0 / math.log(1 / delta), 2.0), 20.0) > delta
    assert worst_delta(SmoothNoise("laplace", 0.06, 1e-3, 2.0), 0.05) > delta


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("gamma", [1.125, 2.0, 3.0, 16.0])
def test_cauchy_type_noise_is_pure(epsilon: float, gamma: float) -> None:
    def loss(noise: SmoothNoise) -> float:
        z = np.concatenate([np.linspace(-5, 5, 200_001), np.geomspace(5, 1e4, 10_000), -np.geomspace(5, 1e4, 10_000)])
        logs = []
        for s in (-noise.b, 0.0, noise.b):
            shift = noise.a * min(1.0, math.exp(s))
            q = density(noise, (z - shift) * math.exp(-s)) * math.exp(-s)
            logs.append(np.abs(np.log(density(noise, z) / q)).max())
        return float(max(logs))

    noise = calibrate("cauchy", epsilon, 0.1, gamma)
    assert loss(noise) <= epsilon * (1 + 1e-9)
    assert loss(SmoothNoise("cauchy", 8 * noise.a, 8 * noise.b, gamma)) > epsilon


# Published distributions.


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", ["0.01", "0.05", "0.1"])
@pytest.mark.parametrize(
    ("method", "rule"), [("S-P", SmoothQuantile(clip=False)), ("S-PAK", PAKQuantile(0.995, clip=False))]
)
def test_shares_off_the_range_agree_with_the_published_code(
    pos: np.ndarray, method: str, rule: Any, epsilon: str
) -> None:
    with shared_file("reference/dp-cont-thresholds.csv").open() as file:
        wanted = ("pos", "theta eps=range_eps", method, epsilon)
        row = next(
            line
            for line in csv.DictReader(file)
            if (line["dataset"], line["experiment"], line["method"], line["eps"]) == wanted
        )
    chosen = thetas(rule, pos, task(float(epsilon)), RUNS)
    # Six standard errors of the difference between a share in 1,000 runs and one in RUNS.
    for share, name in (((chosen <= 1.0).mean(), "frac_zero"), ((chosen > 1657.0).mean(), "frac_gt_B")):
        p = max(float(row[name]), 0.005)
        assert abs(share - float(row[name])) < 6 * math.sqrt(p * (1 - min(p, 0.995)) * (1 / RUNS + 1e-3))


# Guarantees.


def test_true_percentiles_are_not_private() -> None:
    guarantee = TruePercentile(0.95).guarantee(task())
    assert guarantee.epsilon == math.inf
    assert "NOT PRIVATE" in guarantee.derivation[0]
    for p, expected in ((0.85, 85), (0.9, 90), (0.95, 95), (0.995, 100), (0.999, 100)):
        assert thetas(TruePercentile(p), np.arange(100.0, 0.0, -1.0), task(1.0, 100), 1) == [expected]


# Parameters and the protocol.


@pytest.mark.parametrize(
    ("noise", "delta"), [("laplace", 0.0), ("laplace", 0.3), ("laplace", -1e-9), ("cauchy", 1e-9)]
)
def test_deltas_that_do_not_go_with_the_noise_are_refused(noise: Any, delta: float) -> None:
    with pytest.raises(ParameterError, match=f"^delta = {delta}: expected"):
        SmoothQuantile(noise=noise, delta=delta)


def test_packed_values_that_do_not_fit_are_refused() -> None:
    for packed in ([-1], [1658], [0] * 6):
        with pytest.raises(ValueError, match="hold-out"):
            SmoothQuantile().start(task(1.0, 5)).unpack(np.array(packed, np.int64))


def test_a_threshold_is_never_below_one_step() -> None:
    for clip in (True, False):
        low = thetas(SmoothQuantile(0.5, clip=clip), np.zeros(9), task(0.1, 9, resolution=0.5), 60)
        assert low.min() == 0.5
        assert (low.max() > 1657.0) is not clip


def test_theta_is_at_most_the_bound() -> None:
    """Of noisy quantiles near it, and of candidates whose step does not divide it; S-PAK alone may leave it open."""
    facts = ThresholdTask(0.5, 100.0, 500, 64, 1.0)

    def largest(rule: Any) -> float:
        chooser = rule.start(facts)
        chooser.observe(np.full(500, 99.0))
        return max(chooser.choose(key) for key in keys(50))

    assert largest(SmoothQuantile(p=0.9)) == 100.0
    assert largest(SmoothQuantile(p=0.9, clip=False)) > 100.0
    whole = NoisyMax(step=1.0).start(ThresholdTask(1000.0, 10.5, 500, 64, 0.5))
    whole.observe(np.full(500, 10.5))
    assert whole.choose(keys(1)[0]) == 10.5


TREE, NODES = Hierarchy(4, prune=1), Hierarchy(2, consistent=False, prune=0)
HOLDOUT = 1500
CASES = [
    (SmoothQuantile(0.9), TREE, (1.0, 1.0 / (HOLDOUT + 256) ** 2, "real")),
    (SmoothQuantile(0.9, noise="cauchy"), TREE, (1.0, 0.0, "real")),
    (PAKQuantile(0.9, beta=0.2), TREE, (1.0, 1.0 / (HOLDOUT + 256) ** 2, "real")),
    (TruePercentile(0.9), TREE, (math.inf, 0.0, "exact")),
    (SquareWave(bins=64), TREE, (1.0, 0.0, "exact")),
    *((ScaleFree(), perturber, (1.0, 0.0, "exact")) for perturber in (TREE, NODES, Flat())),
]


@pytest.mark.parametrize(("rule", "perturber", "promise"), CASES)
def test_publishers_take_each_rule(rule: Any, perturber: Any, promise: tuple[float, float, str]) -> None:
    def made() -> fastdp.StreamPublisher:
        parts = {"threshold": rule, "perturber": perturber, "smoother": fastdp.smoothers.Recent()}
        if perturber != TREE:
            del parts["smoother"]
        return fastdp.StreamPublisher(**parts, epsilon=1.0, bound=100, holdout=HOLDOUT, max_range=256, seed=3)

    values = np.random.default_rng(9).gamma(2.0, 10.0, HOLDOUT + 200)
    release, publisher = made().release(values), made()
    guarantee, task = release.guarantee, publisher.composition.task
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == promise
    assert any("NOT PRIVATE" in step for step in guarantee.derivation) == math.isinf(promise[0])
    assert task.noise_constant == perturber.noise_constant(publisher.plan, 256)
    assert 0.0 < release.threshold <= 100.0
    publisher.publish(values[:123])
    loaded = fastdp.StreamPublisher.from_bytes(publisher.to_bytes())
    rest = [loaded.publish(part) for part in np.split(values[123:], [HOLDOUT - 124, HOLDOUT - 122])]
    assert (np.concatenate(rest) == release.values).all()
    assert loaded.threshold == release.threshold


RULES: list[Any] = [
    *(SmoothQuantile(0.9), SmoothQuantile(0.9, noise="cauchy"), PAKQuantile(0.9, beta=0.2), TruePercentile(0.9)),
    *(SquareWave(bins=128), ScaleFree(), NoisyMax(step=1.0)),
]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_chunks_order_copies_and_packing_do_not_matter(rule: Any) -> None:
    generator = np.random.default_rng(6)
    values = generator.gamma(2.0, 20.0, 3000) - 5.0
    facts = ThresholdTask(2.0, 150.0, 3000, 2**20, 2.0**-10, noise_constant=100.0, publish_epsilon=4.0)
    key = Key.from_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        whole, parts, again, other = (rule.start(facts) for _ in range(4))
    whole.observe(values)
    # Reports go out in the order of the values.
    ordered = values if isinstance(rule, SquareWave) else generator.permutation(values)
    for piece in np.split(ordered, [0, 1, 2, 1023, 1024, 1025, 2500, 3000]):
        before = parts.pack().tolist()
        parts, older = parts.copy(), parts
        parts.observe(piece)
        assert older.pack().tolist() == before
    again.unpack(parts.pack())
    other.observe(values[:9])
    other.unpack(parts.pack())
    # Choosing changes nothing.
    thetas = [chooser.choose(key) for chooser in (whole, parts, again, other, whole)]
    assert len(set(thetas)) == 1
    assert facts.resolution <= thetas[0] <= facts.bound
    if isinstance(rule, (NoisyMax, ScaleFree)):
        spent = Fraction(getattr(whole, "count_epsilon", 0.0)) + whole.sensitivity / whole.distribution.scale
        assert Fraction(2.0) * (1 - Fraction(1, 2**50)) <= spent <= Fraction(2.0), "the hold-out's"
        for packed in ([-1, 1], [0, -1]):
            with pytest.raises(ValueError, match="negative"):
                other.unpack(np.array(packed, np.int64))


def test_a_copy_within_the_hold_out_has_values_of_its_own() -> None:
    publisher = fastdp.StreamPublisher(
        threshold=SmoothQuantile(p=0.5),
        perturber=fastdp.perturbers.Hierarchy(fan_out=4, prune=0),
        epsilon=1e6,
        bound=100.0,
        holdout=900,
        max_range=64,
        seed=1,
    )
    publisher.publish(np.full(100, 10.0))
    twin = copy.copy(publisher)
    publisher.publish(np.full(700, 10.0))
    twin.publish(np.full(799, 90.0))
    publisher.publish(np.full(100, 10.0))
    assert publisher.threshold == pytest.approx(10.0, abs=1.0)
