"""Ledgers of releases with a rho: rhos add up, pure ones count as epsilon^2 / 2, and divergences of all do."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from fastdp import Ledger
from fastdp.errors import BudgetError
from fastdp.guarantee import Guarantee, gaussian_delta, zcdp_epsilon, zcdp_rho
from fastdp.ledger import composition as divergence
from fastdp.ledger.composition import Budget
from fastdp.ledger.entry import Entry
from fastdp.ledger.odometer import Odometer
from tests.oracles.ledger import written

RHO = 0.02


def gaussian(rho: float = RHO, delta: float = 1e-6, **options) -> Guarantee:
    return Guarantee(zcdp_epsilon(rho, delta), delta, arithmetic="exact", rho=rho, **options)


def entry(guarantee: Guarantee, number: int = 1, **options) -> Entry:
    return Entry(
        number, "", "s", guarantee, *(options.get(name) for name in ("part", "start", "stop")), None, "", "spent"
    )


def spent(*guarantees: Guarantee, where: list[dict] | None = None) -> Odometer:
    odometer = Odometer()
    for i, guarantee in enumerate(guarantees):
        odometer.add(entry(guarantee, i, **(where[i] if where else {})))
    return odometer


def test_rhos_add_up_exactly() -> None:
    total = spent(*[gaussian()] * 10).total("s")
    assert total.rho == 10 * written(RHO)
    assert total.delta == 10 * written(1e-6)
    assert float(total.epsilon) == pytest.approx(zcdp_epsilon(10 * RHO, 1e-5), rel=1e-9)
    assert float(total.epsilon) < 0.4 * 10 * gaussian().epsilon


@pytest.mark.parametrize("before", [0, 1, 3])
def test_pure_releases_count_as_half_the_square(before: int) -> None:
    """Those in front of the first rho and later ones, each by itself."""
    pure = [Guarantee(0.25)] * before
    total = spent(*pure, *[gaussian()] * 5, Guarantee(0.5)).total("s")
    rho = Fraction(before, 32) + 5 * written(RHO) + Fraction(1, 8)
    assert 0 <= total.rho - rho < Fraction(1, 2**1000)
    assert float(total.epsilon) <= float(sum(g.epsilon for g in (*pure, *[gaussian()] * 5, Guarantee(0.5))))


def test_pure_ledgers_have_no_rho() -> None:
    total = spent(Guarantee(0.25), Guarantee(0.5)).total("s")
    assert (total.epsilon, total.rho) == (Fraction(3, 4), math.inf)


@pytest.mark.parametrize("order", [0, 1])
def test_a_delta_of_another_kind_has_no_rho(order: int) -> None:
    given = [gaussian(), Guarantee(0.5, 1e-9)][:: 1 if order else -1]
    total = spent(*given).total("s")
    assert total.rho == math.inf
    assert total.epsilon == written(gaussian().epsilon) + Fraction(1, 2)
    # The same where noise is only near its distribution.
    assert spent(gaussian(), gaussian(numeric_distance=1e-12)).total("s").rho == math.inf


def test_disjoint_parts_count_once() -> None:
    """Oracle: the sum over the releases that look at each position."""
    where = [{"start": a, "stop": b} for a, b in ((0, 10), (5, 20), (20, 30), (0, None))]
    given = [gaussian(0.02), gaussian(0.03), Guarantee(0.5), gaussian(0.01)]
    total = spent(*given, where=where).total("s")
    at = [
        sum(
            (written(g.zcdp) for g, w in zip(given, where, strict=True) if w["start"] <= p < (w["stop"] or 99)),
            Fraction(0),
        )
        for p in range(40)
    ]
    assert total.rho >= max(at)
    assert total.rho - max(at) < Fraction(1, 2**40)


def test_cancelled_releases_leave_nothing() -> None:
    odometer = spent(Guarantee(0.5), gaussian(), gaussian(0.5))
    odometer.add(entry(gaussian(0.5)), -1)
    assert odometer.total("s").rho - (Fraction(1, 8) + written(RHO)) < Fraction(1, 2**1000)
    odometer.add(entry(Guarantee(0.5)), -1)
    assert odometer.total("s").rho - written(RHO) < Fraction(1, 2**1000)
    unknown = spent(Guarantee(0.5, 1e-9), Guarantee(0.5, 1e-9), gaussian())
    for _ in range(2):
        unknown.add(entry(Guarantee(0.5, 1e-9)), -1)
    # It cannot be told any more what they were: the sum of epsilons stands.
    assert unknown.total("s").epsilon == written(gaussian().epsilon)


def test_a_delta_alone_before_the_first_rho_has_no_rho() -> None:
    """Without an epsilon there is no sum of epsilons that the sum of rhos begins with."""
    alone = Guarantee(0.0, 0.5)
    for order in ([alone, gaussian(), gaussian()], [gaussian(), alone, gaussian()]):
        total = spent(*order).total("s")
        assert (total.rho, total.epsilon) == (math.inf, 2 * written(gaussian().epsilon))
    odometer = spent(Guarantee(0.3), alone, gaussian(), where=[{}, {"start": 3, "stop": 9}, {}])
    odometer.add(entry(alone, 1, start=3, stop=9), -1)
    assert odometer.total("s").delta == written(1e-6)


def of_response(epsilon: float, order: float) -> float:
    """Oracle: the divergence of randomised response, from its two probabilities."""
    p = mpmath.e**epsilon / (1 + mpmath.e**epsilon)
    moment = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
    return float(mpmath.log(moment) / (order - 1))


@pytest.mark.parametrize("order", [1.0 + 2.0**-5, 1.5, 7.0, 300.0, 2.0**20])
def test_divergence_of_a_pure_loss(order: float) -> None:
    with mpmath.workdps(900):
        for epsilon in (2.0**-60, 1e-6, 0.01, 0.3, 1.0, 5.0, 80.0, 900.0):
            exact = of_response(epsilon, order)
            assert exact <= divergence.pure_divergence(epsilon, order) <= exact * (1.0 + 1e-9)


MIXTURES = {
    "one and rhos": ([1.5], [0.001] * 10),
    "many small ones": ([0.1] * 100, [RHO] * 10),
    "two sizes": ([0.05] * 50 + [0.5] * 10, [RHO] * 10),
    "large ones": ([3.0], [RHO] * 10),
}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("order", [1, -1])
def test_mixtures_cost_what_divergences_say(name: str, order: int) -> None:
    """Oracle: divergences of randomised response and of normal noise, added up at every order, then converted."""
    losses, rhos = MIXTURES[name]
    found = spent(*([Guarantee(e) for e in losses] + [gaussian(rho) for rho in rhos])[::order]).total("s")
    delta = 1e-6 * len(rhos)
    exact = math.inf
    for alpha in np.geomspace(0.02, 2000.0, 500) + 1.0:
        both = sum(losses.count(e) * of_response(e, alpha) for e in set(losses)) + alpha * sum(rhos)
        rest = math.log(1.0 / delta) + (alpha - 1.0) * math.log1p(-1.0 / alpha) - math.log(alpha)
        exact = min(exact, both + rest / (alpha - 1.0))
    # Classes cost at most a sixteenth of the pure ones' part.
    assert exact * (1.0 - 1e-4) <= float(found.epsilon) <= exact * 1.035
    # Never above the sum of pure losses and what rhos alone give.
    assert float(found.epsilon) <= (sum(losses) + zcdp_epsilon(sum(rhos), delta)) * (1.0 + 2e-3)


def test_normal_noise_and_randomised_response_together() -> None:
    """The profile of both, integrated: the bound holds, and is near it."""
    rho, loss, delta = 0.05, 0.4, 1e-6
    found = float(spent(gaussian(rho), Guarantee(loss)).total("s").epsilon)
    mu, p = math.sqrt(2.0 * rho), 1.0 / (1.0 + math.exp(-loss))

    def profile(epsilon: float) -> float:
        return p * gaussian_delta(mu, epsilon - loss) + (1.0 - p) * gaussian_delta(mu, epsilon + loss)

    assert profile(found) <= delta
    assert profile(0.8 * found) > delta


def test_a_refusal_says_that_rhos_add_up(tmp_path) -> None:
    ledger = Ledger(tmp_path / "l", create=True)
    ledger.set_limit(3.0, 1e-4)
    for _ in range(10):
        ledger.spend(gaussian(0.001), stream="s")
    # Below what is left, but the limit's orders are not the best ones here.
    wanted = ledger.remaining("s").epsilon - 0.01
    with pytest.raises(BudgetError, match=r"in total 3\.0.*: not epsilons add up here but rhos"):
        ledger.spend(Guarantee(wanted), stream="s")


def test_a_limit_names_its_orders(tmp_path) -> None:
    """Orders are public, so that histories that fit by different ones are few."""
    ledger = Ledger(tmp_path / "l", create=True)
    ledger.set_limit(3.0, 1e-4)
    for _ in range(10):
        ledger.spend(gaussian(0.001), stream="s")
    ledger.spend(Guarantee(1.5), stream="s")
    assert ledger.spent("s").epsilon < 2.1
    # What it says to be left may be spent by a pure release, which never costs more than itself.
    ledger.spend(Guarantee(ledger.remaining("s").epsilon), stream="s")
    assert 2.0 < ledger.spent("s").epsilon < 3.0
    with pytest.raises(BudgetError):
        ledger.spend(Guarantee(1.0), stream="s")
    orders = divergence.orders_of(3.0, 1e-4)
    assert len(orders) == 3
    # Rhos alone fit by the first whenever they fit by their sum.
    rho = zcdp_rho(3.0, 1e-4)
    assert divergence.epsilon_at(orders[0], [], rho, 1e-4) == pytest.approx(3.0, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-6, 0.9, 1.0 - 1e-6, 1.0 - 1e-9])
def test_orders_near_one_keep_their_digits(delta: float) -> None:
    """A limit on delta near 1 leads to them; the conversion is a difference of two large logarithms there."""
    for order in divergence.orders_of(1.0, delta):
        found = divergence.epsilon_at(order, [(0.25, 0.25)], 20.0, delta)
        with mpmath.workdps(60):
            alpha = mpmath.mpf(order)
            rest = mpmath.log(1.0 / mpmath.mpf(delta)) + alpha * mpmath.log(1 - 1 / alpha) - mpmath.log(alpha - 1)
            exact = 20 * alpha + of_response(0.25, order) + rest / (alpha - 1)
        # Two terms of either sign meet over order - 1.
        assert exact <= found
        assert found - exact < 1e-10 * (exact + 1.0 / (order - 1.0))


@pytest.mark.parametrize("epsilon", [0.0, 2.0**-70, 2.0**70, math.inf])
def test_limits_of_any_size_name_their_orders(epsilon: float) -> None:
    """Not all orders, or the best one could follow from outputs."""
    noisy = gaussian(0.001)
    odometer, limit = spent(*[noisy] * 10, Guarantee(1.5)), Budget(epsilon, 1e-4)
    best, found = odometer.total("s"), odometer.total("s", limit=limit)
    orders = divergence.orders_of(min(max(epsilon, 2.0**-60), 2.0**60), 1e-4)
    least = min(divergence.epsilon_at(order, [(1.5, 1.5)], 0.01, 1e-5) for order in orders)
    expected = min(1.5 + 10 * noisy.epsilon, least, zcdp_epsilon(float(best.rho), 1e-5))
    assert float(found.epsilon) == pytest.approx(expected, rel=1e-9)
    assert best.epsilon < found.epsilon


def test_the_file_keeps_rho_and_its_limit(tmp_path) -> None:
    ledger = Ledger(tmp_path / "l", create=True)
    ledger.set_limit(2.5, 1e-4)
    ledger.spend(Guarantee(0.1), stream="s")
    for _ in range(6):
        ledger.spend(gaussian(), stream="s")
    # The epsilons alone would be above 5.
    found = Ledger(tmp_path / "l").spent("s")
    assert found.rho == pytest.approx(6 * RHO + 0.005)
    assert found.epsilon == pytest.approx(zcdp_epsilon(found.rho, 6e-6), rel=3e-3)
    while ledger.remaining("s").epsilon > 0.2:
        ledger.spend(gaussian(), stream="s")
    with pytest.raises(BudgetError):
        ledger.spend(gaussian(0.5), stream="s")
    assert ledger.spent("s").epsilon <= 2.5
    ledger.verify()
