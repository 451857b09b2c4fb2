"""PAK's utility analysis: formulas against direct evaluation, distributions, the paper's numbers, bad parameters."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

import fastdp
from fastdp.errors import ParameterError
from fastdp_lab import planning
from fastdp_lab.planning import Optimum, optimise_pak
from tests.grid import exhaustive

DELTA, BETA, P_MAX = 2.0**-20, 0.02, 0.005

NOISES = ("laplace", "gaussian")

DISTRIBUTIONS: dict[str, Any] = {"laplace": stats.laplace, "gaussian": stats.norm}


# -- constants of the noise ------------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("beta", [1e-300, 1e-12, 1e-4, 0.02, 0.3, 0.5, 0.7, 0.999])
def test_noise_quantile_is_the_inverse_tail(noise: Any, beta: float) -> None:
    assert planning.noise_quantile(beta, noise) == pytest.approx(DISTRIBUTIONS[noise].isf(beta), rel=1e-10, abs=1e-12)
    assert DISTRIBUTIONS[noise].sf(planning.noise_quantile(beta, noise)) == pytest.approx(beta, rel=1e-9)


def kappa(epsilon: float, beta: float, noise: Any) -> float:
    """The smallest kappa with kappa SS >= SS + kappa G^-1(1 - beta) / a (e^b - 1) SS: Eq. 8 to 11."""
    scale, smooth = planning.noise_scale(epsilon, DELTA, noise), planning.smoothing(epsilon, DELTA)
    return 1.0 / (1.0 - math.expm1(smooth) * float(DISTRIBUTIONS[noise].isf(beta)) / scale)


def tau_max(quantile: float, sensitivity: float, epsilon: float, lt: float, rt: float, noise: Any) -> float:
    """Eq. 13."""
    unit = kappa(epsilon, lt, noise) * sensitivity / planning.noise_scale(epsilon, DELTA, noise)
    return quantile + unit * float(DISTRIBUTIONS[noise].isf(lt) + DISTRIBUTIONS[noise].isf(rt))


def light_tail_error(tau: float, quantile: float, m: int, p: float, r: float, lap: float, out: float) -> float:
    """Eq. 16, of the trains."""
    n = TRAINS["n"]
    return planning.tree_error(tau * r, n - m, 1.0, lap) + planning.outlier_error(quantile, n, p, r, out)


# -- error bounds ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 1000, 25_000_000, 2**62])
def test_tree_error(n: int) -> None:
    with mpmath.workdps(40):
        exact = mpmath.mpf(1440) / 0.7 * mpmath.sqrt(-8 * mpmath.log(0.02)) * mpmath.log(n, 2) ** 1.5
    assert planning.tree_error(1440, n, 0.7, 0.02) == pytest.approx(float(exact), rel=1e-13, abs=0)
    assert planning.tree_error(2880, n, 1.4, 0.02) == pytest.approx(float(exact), rel=1e-13, abs=0)


def chernoff(log_moment: Any, beta: float, grid: np.ndarray) -> float:
    """Smallest (ln E[e^(h S)] + ln(1 / beta)) / h over the grid of h: the bound that Eq. 14 and 16 simplify."""
    return float(np.min((log_moment(grid) - math.log(beta)) / grid))


@pytest.mark.parametrize(("p", "r", "n"), [(0.005, 1.0, 150_000), (0.005, 2.0, 25_000_000), (0.001, 3.0, 10**6)])
def test_outlier_error_is_the_minimum_over_h(p: float, r: float, n: int) -> None:
    """Of (n p^r / (gamma - h) + ln(1 / beta) / h), which bounds the Chernoff exponent from above."""
    x, beta = 150.0, 0.004
    gamma = -math.log(p) / x
    grid = gamma * np.linspace(1e-4, 1 - 1e-4, 200_001)
    with np.errstate(divide="ignore"):
        direct = float(np.min(n * p**r / (gamma - grid) - math.log(beta) / grid))
    found = planning.outlier_error(x, n, p, r, beta)
    assert found == pytest.approx(direct, rel=1e-6)
    exact = chernoff(lambda h: n * np.log1p(p**r * h / (gamma - h)), beta, grid)
    assert exact <= found < 1.3 * exact
    # As printed, without p^r in the second line, the bound would be n / gamma and more.
    assert found < n / gamma / 10


# -- distributions and criteria for m --------------------------------------------------------------------------
def test_quantiles() -> None:
    distribution = planning.exponential_quantile(28.0, 1440.0)
    assert distribution(0.005) == pytest.approx(stats.expon.isf(0.005, scale=28.0))
    assert distribution(1e-300) == 1440.0
    sample = planning.sample_quantile([4.0, 1.0, 3.0, 2.0])
    assert [sample(q) for q in (0.75, 0.5, 0.25, 0.375, 1e-9, 0.9)] == pytest.approx([1, 2, 3, 2.5, 4, 1], abs=1e-6)


def test_first_criterion_is_the_last_failure() -> None:
    for beta, p, lambda_ in [
        (0.02, 0.005, 0.5),
        (0.1, 0.2, 0.5),
        (0.3, 0.5, 0.3),
        (0.02, 0.02, 0.7),
        (0.45, 0.5, 0.1),
    ]:
        found = planning.quantile_criterion(beta, p, lambda_)
        g = np.array([planning.underestimate_probability(lambda_, p, m) for m in range(1, 2 * found + 200)])
        assert found == np.flatnonzero(g >= beta)[-1] + 2 if np.any(g >= beta) else found == 1


def test_the_papers_criteria_for_m() -> None:
    # "at least 20,000": sufficient, by far; 3,231 is enough at lambda = 0.5, while lambda = 0.8 gives 20,000.
    first = planning.quantile_criterion(BETA, P_MAX)
    assert first == 3231
    assert planning.underestimate_probability(0.5, P_MAX, 20_000) < 1e-7
    assert 19_000 < planning.quantile_criterion(BETA, P_MAX, 0.8) < 22_500
    # "m > 80,000": with the Laplace quantile and the Gaussian's a, as the paper says it does.
    printed = planning.sensitivity_criterion(1.0, DELTA, BETA, P_MAX, as_printed=True)
    assert 80_000 < printed < 85_000
    log, offset = 20 * math.log(2), math.log(25)
    kappa = 1 / (1 - math.expm1(1 / (2 * log)) * offset * math.sqrt(log))
    formula = 20 * kappa * log**1.5 * math.exp(-1) * offset / (P_MAX * -math.log(P_MAX))
    assert printed == math.ceil(formula)
    assert planning.sensitivity_criterion(1.0, DELTA, BETA) == 32_462
    assert planning.sensitivity_criterion(1.0, DELTA, BETA, noise="gaussian") == 40_939


# -- the optimiser ---------------------------------------------------------------------------------------------
TRAINS: dict[str, Any] = {"n": 25_000_000, "bound": 1440.0, "epsilon": 1.0, "delta": DELTA, "beta": BETA}


@functools.lru_cache
def trains(m: int, noise: Any = "laplace", first_sum: bool = True, epsilon: float = 1.0) -> Optimum:
    distribution = planning.exponential_quantile(150 / -math.log(0.005), 1440.0)
    return optimise_pak(distribution, m=m, noise=noise, first_sum=first_sum, **TRAINS | {"epsilon": epsilon})


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("m", [50_000, *exhaustive(10_000, 300_000)])
def test_optimum_respects_the_constraints_and_is_equation_16(m: int, noise: Any) -> None:
    found = trains(m, noise, False)
    assert not found.fallback
    assert 0 < found.p <= P_MAX * (1 + 1e-12)
    assert 1 / (found.p * m) < found.lambda_ <= 1
    assert found.r >= 1
    assert found.kappa > 0
    betas = (found.beta_qt, found.beta_lt, found.beta_lap, found.beta_out, found.beta_rt)
    assert min(betas) > 0
    assert sum(betas) == pytest.approx(BETA, rel=1e-12)
    assert planning.underestimate_probability(found.lambda_, found.p, m) <= found.beta_qt * (1 + 1e-6)
    smooth = planning.smoothing(found.share, DELTA)
    q = found.lambda_ * found.p
    sensitivity = planning.spacing_smooth_sensitivity(found.quantile, q, m, smooth)
    assert found.sensitivity == pytest.approx(sensitivity, rel=1e-9)
    assert found.kappa == pytest.approx(kappa(found.share, found.beta_lt, noise))
    tau = tau_max(found.quantile, sensitivity, found.share, found.beta_lt, found.beta_rt, noise)
    assert found.tau_max == pytest.approx(tau, rel=1e-9)
    error = light_tail_error(tau, found.quantile, m, found.p, found.r, found.beta_lap, found.beta_out)
    assert found.error == pytest.approx(error, rel=1e-9)
    assert found.improvement == pytest.approx(planning.tree_error(1440, 25_000_000, 1.0, BETA) / error, rel=1e-9)


def test_optimum_beats_random_parameters() -> None:
    """4,000 random points, those of the allowed set, from the public formulas: none is better."""
    m, distribution = 50_000, planning.exponential_quantile(150 / -math.log(0.005), 1440.0)
    found, generator, best = trains(m, "laplace", False), np.random.default_rng(9), math.inf
    for _ in range(4000):
        p, lambda_ = 0.005 * generator.uniform(0.5, 1.0), generator.uniform(0.6, 1.0)
        beta_qt = planning.underestimate_probability(lambda_, p, m)
        if beta_qt >= BETA:
            continue
        lt, lap, out, rt = (BETA - beta_qt) * generator.dirichlet([1, 2, 0.3, 1])
        if min(lt, lap, out, rt) < 1e-7:
            continue
        x, share = distribution(lambda_ * p), generator.uniform(0.3, 0.999)
        sensitivity = planning.spacing_smooth_sensitivity(x, lambda_ * p, m, planning.smoothing(share, DELTA))
        tau = tau_max(x, sensitivity, share, lt, rt, "laplace")
        error = light_tail_error(tau, x, m, p, generator.uniform(1, 3), lap, out)
        best = min(best, error)
    assert found.error < best < 1.2 * found.error


def test_smooth_sensitivity_is_a_part_to_exchange() -> None:
    distribution = planning.exponential_quantile(28.0, 1440.0)
    seen = []

    def none(q: float, smooth: float) -> float:
        seen.append((q, smooth))
        return 0.0

    free = optimise_pak(distribution, m=50_000, smooth_sensitivity=none, **TRAINS)
    assert free.sensitivity == 0.0
    assert free.tau_max == free.quantile
    assert free.improvement > trains(50_000).improvement
    assert all(0 < q < P_MAX and 0 < smooth <= planning.smoothing(1.0, DELTA) for q, smooth in seen)
    assert optimise_pak(distribution, m=50_000, smooth_sensitivity=lambda q, smooth: 1e9, **TRAINS).fallback


# -- from the optimum to a publisher ---------------------------------------------------------------------------
@functools.lru_cache
def supermarket(m: int | None = None, n: int = 150_000, noise: Any = "laplace") -> Optimum:
    distribution = planning.exponential_quantile(300 / -math.log(0.005), 3000.0)
    return optimise_pak(distribution, n, m, 3000.0, 1.0, DELTA, BETA, noise=noise)


@pytest.mark.parametrize("spread", [1.0, 2.0, 10.0, 300.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_from_the_third_criterion_on_the_bound_is_out_of_reach(spread: float, epsilon: float) -> None:
    """The step to the bound, discounted, against the spacing's estimate; one value fewer is too few."""
    q, smooth = 0.8 * 0.004, planning.smoothing(epsilon, DELTA)
    found = planning.reach_criterion(epsilon, DELTA, spread, 0.004, 0.8)

    def excess(m: int) -> float:
        return math.exp(-smooth * m * q) * spread - planning.spacing_smooth_sensitivity(1.0, q, m, smooth)

    assert excess(found) <= 0.0 < excess(found - 1)


@pytest.mark.parametrize("noise", NOISES)
def test_the_recommended_lag_meets_all_three_criteria(noise: Any) -> None:
    distribution = planning.exponential_quantile(2.0, 1000.0)
    for epsilon, beta in ((1.0, 0.02), (0.3, 1e-3), (5.0, 0.1)):
        three = [
            planning.quantile_criterion(beta, 0.004, 0.8),
            planning.sensitivity_criterion(0.85 * epsilon, DELTA, beta, 0.004, noise),
            planning.reach_criterion(0.85 * epsilon, DELTA, 1000.0 / distribution(0.8 * 0.004), 0.004, 0.8),
        ]
        assert planning.recommended_lag(distribution, 1000.0, epsilon, DELTA, beta, 0.004, noise) == max(three)


def test_without_m_the_lag_is_the_recommended_one() -> None:
    distribution = planning.exponential_quantile(300 / -math.log(0.005), 3000.0)
    recommended = planning.recommended_lag(distribution, 3000.0, 1.0, DELTA, BETA)
    assert supermarket().m == recommended
    assert supermarket(recommended) == supermarket()
    short = supermarket(n=2000)
    assert short.m == 1000
    assert short.fallback


@pytest.mark.parametrize("noise", NOISES)
def test_an_optimum_is_a_publisher(noise: Any) -> None:
    found = supermarket(noise=noise)
    publisher = fastdp.PAK(**found.arguments(), seed=1)
    plan = publisher._machine
    assert (publisher.epsilon, publisher.delta, publisher.bound) == (found.epsilon, found.delta, found.bound)
    assert (publisher.length, publisher.holdout) == (found.n, found.m)
    assert (plan.share, plan.tail_factor) == (found.share, found.r)
    rule = plan.threshold
    assert (rule.p, rule.beta, rule.noise) == (1.0 - found.lambda_ * found.p, found.beta_lt, noise)
    if noise == "laplace":  # the Gaussian's constants are those that are proved, not the paper's
        assert rule.kappa(plan.task) == pytest.approx(found.kappa, rel=1e-9)
    assert publisher.guarantee.epsilon <= found.epsilon
    assert publisher.guarantee.delta <= found.delta


def test_the_publisher_of_the_optimum_is_as_good_as_its_bound_says() -> None:
    found = supermarket()
    values = np.minimum(np.rint(np.random.default_rng(4).exponential(300 / -math.log(0.005), found.n)), 3000.0)
    plain = {**found.arguments(), "threshold": found.bound, "holdout": 0}
    errors = [
        [abs(fastdp.PAK(**each, seed=seed).publish(values)[-1] - values.sum()) for seed in range(12)]
        for each in (plain, found.arguments())
    ]
    assert np.mean(errors[0]) > 0.7 * found.improvement * np.mean(errors[1])
    assert max(errors[1]) < found.error


# -- bad parameters --------------------------------------------------------------------------------------------
#: A value that each function accepts for a parameter, where another one is not said below.
GOOD = {"epsilon": 1.0, "delta": 1e-6, "beta": 0.1, "beta_lt": 0.1, "beta_rt": 0.1, "beta_lap": 0.1, "beta_out": 0.1}

GOOD |= {"n": 25, "m": 9, "p": 0.1, "q": 0.1, "bound": 9.0, "tau": 1.0, "quantile": 1.0, "r": 1.0, "lambda_": 0.5}

GOOD |= {"smooth_sensitivity": 1.0, "sensitivity": 1.0, "scale": 1.0, "smooth": 1.0, "spread": 2.0}

FRACTIONS, LENGTHS = [0, 1, -0.1, math.nan, "x", None, True], [0, -3, 1.5, "x", True]

BAD: dict[str, list[Any]] = {
    **{key: [0, -1, math.inf, "x", True] for key in ("epsilon", "bound", "sensitivity", "tau", "scale", "smooth")},
    **dict.fromkeys(("delta", "beta", "beta_lap", "beta_out", "p", "p_max", "q", "lambda_"), FRACTIONS),
    **{key: [*FRACTIONS, 0.5, 0.6] for key in ("beta_lt", "beta_rt")},
    **{key: [-1, math.nan, "x"] for key in ("quantile", "smooth_sensitivity")},
    **{key: [0.5, "x"] for key in ("r", "spread")},
    **{key: [*LENGTHS, 2**63] for key in ("n", "m", "least_tail")},
    "noise": ["cauchy", None, 3],
    "as_printed": ["x"],
}

LAW = planning.exponential_quantile(1.0, 10.0)

OWN: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "underestimate_probability": ({}, {"lambda_": [0, 1.1, "x"]}),
    "sensitivity_criterion": ({}, {"beta": [0.5]}),
    "recommended_lag": ({"quantile": LAW}, {"quantile": [3, lambda q: 0.0]}),
}


def test_bad_parameters_are_named() -> None:
    """By their name of all functions that have it; some functions narrow the range of one."""
    called = 0

    def refused(name: str, function: Any, given: dict[str, Any]) -> None:
        with pytest.raises(ParameterError) as caught:
            function(**given)
        assert name in str(caught.value), f"{function}, {given}: {caught.value}"

    for name, function in inspect.getmembers(planning, inspect.isfunction):
        parameters = inspect.signature(function).parameters
        if name.startswith("_") or not function.__module__.startswith(planning.__name__):
            continue
        if "values" in parameters or name == "optimise_pak":
            continue
        good, narrow = OWN.get(name, ({}, {}))
        given = {each: {**GOOD, **good}[each] for each, kind in parameters.items() if kind.default is kind.empty}
        function(**given)
        for each in parameters:
            for value in narrow.get(each, BAD[each]):
                refused(each, function, given | {each: value})
                called += 1
    assert called > 200
    refused("q", LAW, {"q": 1.0})
    for values in ([], [[1.0]], [1.0, math.nan], [-1.0], ["a"], [[1], [1, 2]], 3):
        refused("values", planning.sample_quantile, {"values": values})
    # A kappa that does not exist.
    for given in ((1.0, 0.1, 0.002), (1e5, DELTA, 0.002)):
        with pytest.raises(ParameterError, match=r"1 / kappa = -.*expected a number above 0"):
            planning.sensitivity_criterion(*given)
    best = TRAINS | {"quantile": LAW, "m": 1000}
    wrong = {**BAD, "quantile": [3], "n": [*LENGTHS, 2], "m": [*LENGTHS, 25_000_000], "beta": [*FRACTIONS, 0.5]}
    for name in ("quantile", "n", "m", "bound", "epsilon", "delta", "beta", "noise"):
        for value in wrong[name]:
            refused(name, optimise_pak, best | {name: value})


@pytest.mark.parametrize("m", [1, 17, 1000, 10**5, 10**7])
@pytest.mark.parametrize(("lambda_", "p"), [(0.5, 0.005), (0.95, 0.005), (0.99, 0.005), (0.9, 1e-5), (1.0, 0.5)])
def test_g_is_the_printed_sum(m: int, lambda_: float, p: float) -> None:
    """From its last and largest term down, in 50 digits."""
    with mpmath.workdps(50):
        share, last = mpmath.mpf(p), math.floor(round(lambda_ * p * m, 6))
        logarithm = mpmath.loggamma(m + 1) - mpmath.loggamma(last + 1) - mpmath.loggamma(m - last + 1)
        term = mpmath.exp(logarithm + last * mpmath.log(share) + (m - last) * mpmath.log1p(-share))
        total, i = mpmath.mpf(0), last
        while i >= 0 and term > total * mpmath.mpf("1e-20"):
            total += term
            term *= mpmath.mpf(i) / (m - i + 1) * (1 - share) / share
            i -= 1
        exact = float(total)
    assert planning.underestimate_probability(lambda_, p, m) == pytest.approx(exact, rel=1e-8, abs=1e-300)


def test_fallback_is_the_papers_first_row_and_the_plain_tree() -> None:
    found = trains(100)
    assert found.fallback
    row = (found.improvement, found.r, found.lambda_, found.p, found.share, found.beta_lap)
    assert row == (1.0, 1.0, 1.0, 0.005, 0.0, BETA)
    assert found.error == found.plain_error == planning.tree_error(1440, 25_000_000, 1.0, BETA)
    assert trains(10_000, epsilon=0.05).fallback
    distribution = planning.exponential_quantile(28.0, 1440.0)
    assert all(optimise_pak(distribution, m=m, **TRAINS | {"delta": 0.9}).fallback for m in (50_000, None))
    publisher = fastdp.PAK(**supermarket(n=2000).arguments(), seed=1)
    assert (publisher.holdout, publisher.guarantee.delta) == (0, 0.0)
    assert publisher.publish(np.full(2000, 7.0)).size == 2000
    assert publisher.threshold == 3000.0
