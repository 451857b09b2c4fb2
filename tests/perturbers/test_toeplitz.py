"""Correlated noise: Toeplitz factorisations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg

import fastdp
from fastdp.errors import ParameterError
from fastdp.noise.bound_noise import PrefixNoise
from fastdp.perturbers import Flat, Toeplitz, toeplitz
from fastdp.perturbers.toeplitz import EPOCH, HEADROOM, MAX_DEVIATION, _sigma
from fastdp.releases.intervals import correlated_variances
from fastdp.smoothers import Recent
from fastdp_kernels.noise import correlated_noise
from tests.oracles import toeplitz as oracle

THETA = 50.0
PARTS = {"endless": Toeplitz(), "length": Toeplitz(length=300), "window": Toeplitz(window=64)}


def publisher(part: Toeplitz, **options) -> fastdp.StreamPublisher:
    settings = {"threshold": THETA, "epsilon": 1.0, "delta": 1e-6, "bound": THETA, "seed": 3, **options}
    return fastdp.StreamPublisher(perturber=part, **settings)


def numbers(part: Toeplitz) -> tuple[np.ndarray, np.ndarray]:
    assert part.rates is not None
    assert part.shares is not None
    return np.array(part.rates), np.array(part.shares)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_noise_solves_the_system_but_for_one_rounding(part: Toeplitz) -> None:
    z = np.rint(np.random.default_rng(4).normal(size=280) * 2.0**36).astype(np.int64)
    y = z.copy()
    part.correlate(y, np.zeros(part.memory), 0)
    factor = oracle.coefficients(list(part.rates or ()), list(part.shares or ()), z.size)
    errors = np.abs(oracle.draws(y.tolist(), factor) - z)
    assert errors.max() <= 0.5 + 1e-3
    # The roundings are there, once each.
    assert errors.max() > 0.4


def test_noise_begins_again_with_each_epoch() -> None:
    part = Toeplitz(length=50)
    z = np.arange(120, dtype=np.int64) * 1000
    whole, again = z.copy(), z[50:100].copy()
    part.correlate(whole, np.zeros(part.memory), 0)
    part.correlate(again, np.zeros(part.memory), 0)
    np.testing.assert_array_equal(whole[50:100], again)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_errors_and_norms_in_closed_form(part: Toeplitz) -> None:
    mu, theta = numbers(part)
    factor = oracle.coefficients(mu.tolist(), theta.tolist(), 300).astype(float)
    variances = oracle.sum_variances(factor)
    for length in (2, 17, 300):
        assert toeplitz.prefix_error(mu, theta, length) == pytest.approx(variances[:length].mean(), rel=1e-7)
        norm = toeplitz.sensitivity_square(mu, theta, length)
        assert norm == pytest.approx((factor[:length] ** 2).sum(), rel=1e-9)


def test_error_of_windows_in_closed_form() -> None:
    mu, theta = numbers(Toeplitz(window=8))
    factor = oracle.coefficients(mu.tolist(), theta.tolist(), 800).astype(float)
    for window in (1, 8, 30):
        exact = oracle.window_variance(factor, window)
        assert toeplitz.window_error(mu, theta, window) == pytest.approx(exact, rel=2e-3)


def test_the_stated_error_at_a_million_values() -> None:
    """505 theta^2 is the square root's with normal noise; here with all that discreteness and rounding cost."""
    composition = publisher(Toeplitz(length=2**20)).composition
    sigma = float(
        composition.perturber.leaf_distribution(composition.grid.snap(THETA), composition.publish_epsilon).sigma
    )
    mu, theta = numbers(composition.perturber)
    in_thetas = (sigma / composition.grid.snap(THETA)) ** 2
    assert in_thetas * toeplitz.prefix_error(mu, theta, 2**20) < 1.02 * 505.0


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_groups_move_at_most_what_is_claimed(part: Toeplitz) -> None:
    mu, theta = numbers(part)
    count = 300 if part.length else 4000
    factor = oracle.coefficients(mu.tolist(), theta.tolist(), count).astype(float)
    square = part._square
    for size in (1, 2, 9, 48):
        moved = np.convolve(factor, np.ones(size))[:count]
        claimed = float(part.group_square(part.plan(1.0, 8), size)) * square
        assert (moved**2).sum() <= claimed * (1.0 + 1e-12)
        # Not far above: on short streams the rest of an endless one is in the claim.
        assert claimed <= 1.7 * (moved**2).sum()


def test_buffers_stay_within_their_headroom() -> None:
    """Their deviation in closed form: HEADROOM is 16 of them."""
    for part in (Toeplitz(), Toeplitz(length=2**12), Toeplitz(window=256)):
        mu, theta = numbers(part)
        found = toeplitz.sum_terms(mu, theta)
        assert found is not None
        nu, terms = found
        # Coefficients of y: differences of those of its sums.
        weights = -terms[1:] * nu[1:]
        for own in mu:
            # A buffer is y over 1 - (1 - own) x: exponentials with own's among them, in partial fractions.
            keeps, q = 1.0 - nu[1:], 1.0 - own
            rest = weights / (keeps - q)
            exponents, factors = np.concatenate([[own], nu[1:]]), np.concatenate([[1.0 - rest.sum()], rest])
            # From index 1 on: h_n = sum of factors (1 - exponent)^n.
            variance = 1.0 + factors @ ((1.0 - both(exponents)) / both(exponents)) @ factors
            assert variance < (HEADROOM / 16.0) ** 2
            # Of buffers and values, as the constructor has it.
            assert variance <= toeplitz.deviation(part.rates, part.shares) ** 2 * (1.0 + 1e-6)
        assert MAX_DEVIATION * 16.0 == HEADROOM


@pytest.mark.parametrize(("share", "accepted"), [(0.1, True), (0.19, True), (0.21, False), (0.25, False)])
def test_factors_whose_noise_would_grow_are_refused(share: float, accepted: bool) -> None:
    """Noise that leaves the range of whole numbers hides nothing from then on."""
    rates, shares = (0.3,) * 8, (share,) * 8
    factor = oracle.coefficients(list(rates), list(shares), 900).astype(float)
    inverse = np.zeros(factor.size)
    for n in range(factor.size):
        inverse[n] = (n == 0) - factor[1 : n + 1] @ inverse[:n][::-1]
    buffer = np.convolve(inverse, 0.7 ** np.arange(factor.size))[: factor.size]
    deviation = math.sqrt(max(inverse @ inverse, buffer @ buffer))
    found = toeplitz.deviation(rates, shares)
    assert found == math.inf if deviation > 1e3 else found == pytest.approx(deviation, rel=1e-6)
    if accepted:
        assert Toeplitz(length=1000, rates=rates, shares=shares).rates == rates
        return
    with pytest.raises(ParameterError, match="rates and shares: expected a factor C whose inverse keeps noise small"):
        Toeplitz(length=1000, rates=rates, shares=shares)


def spans(size: int) -> tuple[np.ndarray, np.ndarray]:
    first, last = np.triu_indices(size + 1)
    return first.astype(np.int64), last.astype(np.int64)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("epoch", [29, 60])
def test_variances_of_all_ranges(part: Toeplitz, epoch: int) -> None:
    """Oracle: the inverse of C, epoch by epoch."""
    noise = publisher(part).composition.noise
    assert noise is not None
    noise, size = replace(noise, epoch=epoch), 60
    mu, theta = numbers(part)
    column = oracle.coefficients(mu.tolist(), theta.tolist(), epoch).astype(float)
    inverse = np.linalg.inv(linalg.toeplitz(column, np.zeros(epoch)))
    whole = linalg.block_diag(*[inverse] * 3)[:size, :size]
    first, last = spans(size)
    sums = np.concatenate([np.zeros((1, size)), np.cumsum(whole, axis=0)])
    exact = ((sums[last] - sums[first]) ** 2).sum(axis=1)
    np.testing.assert_allclose(correlated_variances(noise, first, last), exact, rtol=1e-7, atol=1e-9)


def test_intervals_state_the_sigma_that_is_drawn() -> None:
    composition = publisher(Toeplitz(length=300), resolution=2.0**-4).composition
    for theta in (1.0, 17.3125, THETA):
        assert composition.noise is not None
        drawn = composition.perturber.leaf_distribution(
            composition.grid.snap(theta), composition.publish_epsilon
        ).sigma
        assert float(composition.noise.draw(theta).scale) == pytest.approx(float(drawn), rel=1e-9)


def both(mu: np.ndarray) -> np.ndarray:
    return mu[:, None] + mu[None] - mu[:, None] * mu[None]


@pytest.mark.parametrize("part", [Toeplitz(length=40), Toeplitz()], ids=["length", "endless"])
@pytest.mark.parametrize("group", [1, 3])
def test_the_coupling_of_the_proof(part: Toeplitz, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other values, and the draws that give the same outputs: they differ by what sigma is made for."""
    options = {"resolution": 2.0**-10, "contributions": group, "epsilon": 20.0}
    composition = publisher(part, **options).composition
    steps = composition.grid.snap(THETA)
    rng = np.random.default_rng(8)
    x = np.rint(rng.random(40) * THETA)
    at = 5
    # As far as values can be apart, all in one direction.
    x[at : at + group] = 0.0
    there = x.copy()
    there[at : at + group] = THETA
    drawn = np.rint(rng.normal(size=40) * 2.0**30).astype(np.int64)
    table: list[np.ndarray] = [drawn.copy()]

    def drawn_before(self, sums, distribution, chain, first, member=None):
        return table[0][first : first + sums.size].copy()

    monkeypatch.setattr(PrefixNoise, "draw", drawn_before)
    here = publisher(part, **options).publish(x)
    y = drawn.copy()
    part.correlate(y, np.zeros(part.memory), 0)
    # The same outputs ask for this noise, and for these draws.
    other = y + np.rint((x - there) / composition.grid.resolution).astype(np.int64)
    moved = draws_of(part, other)
    table[0] = moved.copy()
    np.testing.assert_array_equal(publisher(part, **options).publish(there), here)
    difference = (moved - drawn).astype(np.float64)
    assert difference[at] != 0.0
    assert not difference[:at].any()
    sigma = _sigma(part, steps, composition.publish_epsilon)
    assert (difference**2).sum() <= (sigma * composition.loss) ** 2
    # Value by value: a coefficient of C for each, and the rounding.
    factor = oracle.coefficients(*map(list, numbers(part)), 40).astype(float)
    bound = np.convolve(factor, np.ones(group))[: 40 - at] * steps + 1.01
    assert (np.abs(difference[at:]) <= bound).all()


def draws_of(part: Toeplitz, noise: np.ndarray) -> np.ndarray:
    """The draws that give this noise: one value after the other, with the kernel's own roundings."""
    memory, found = np.zeros(part.memory), np.empty_like(noise)
    for t, wanted in enumerate(noise.tolist()):
        probe = np.zeros(1, np.int64)
        part.correlate(probe, memory, t)
        found[t] = wanted - int(probe[0])
        made = found[t : t + 1].copy()
        memory = part.correlate(made, memory, t)
        assert made[0] == wanted
    return found


def test_sigma_covers_the_coefficients_and_the_roundings() -> None:
    for part in PARTS.values():
        for steps in (1, 2**10, 2**32):
            sigma = _sigma(part, steps, 0.25)
            rounding = math.sqrt(part.epoch)
            assert sigma * 0.25 >= math.sqrt(part._square) * steps + rounding
            if steps == 2**32:
                assert sigma * 0.25 <= 1.01 * math.sqrt(part._square) * steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 8, "window": 8}, "window = 8: expected None with a length"),
        ({"rates": (0.5,) * 8}, "rates and shares: expected both or none"),
        ({"rates": (0.5,) * 7, "shares": (0.5,) * 7}, "expected 8 numbers, each of at least"),
        ({"rates": (1.5,) * 8, "shares": (0.5,) * 8}, "expected 8 numbers, each of at least"),
    ],
)
def test_parameters(arguments: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Toeplitz(**arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: publisher(Toeplitz(), smoother=Recent()), r"smoother = .*: expected None, because Toeplitz"),
        (lambda: publisher(Toeplitz(), delta=0.0), r"delta = 0\.0: expected above 0"),
        (lambda: publisher(Flat()), r"delta = 1e-06: expected 0, or a perturber with noise='gaussian'"),
    ],
)
def test_what_it_does_not_go_with(call, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()


def test_the_kernel_has_as_many_buffers_as_the_fit() -> None:
    assert correlated_noise.BUFFERS == toeplitz.BUFFERS
    assert Toeplitz().epoch == EPOCH
