"""Ledgers of releases with a rho: rhos add up, and pure ones count as epsilon^2 / 2."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from fastdp import Ledger
from fastdp.errors import BudgetError
from fastdp.guarantee import Guarantee, zcdp_epsilon
from fastdp.ledger.composition import Odometer
from fastdp.ledger.entry import Entry

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
    assert total.rho == 10 * Fraction(RHO)
    assert total.delta == 10 * Fraction(1e-6)
    assert float(total.epsilon) == pytest.approx(zcdp_epsilon(10 * RHO, 1e-5), rel=1e-9)
    assert float(total.epsilon) < 0.4 * 10 * gaussian().epsilon


@pytest.mark.parametrize("before", [0, 1, 3])
def test_pure_releases_count_as_half_the_square(before: int) -> None:
    """Those in front of the first rho as one pure loss, later ones each by itself."""
    pure = [Guarantee(0.25)] * before
    total = spent(*pure, *[gaussian()] * 5, Guarantee(0.5)).total("s")
    rho = Fraction(before, 4) ** 2 / 2 + 5 * Fraction(RHO) + Fraction(1, 8)
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
    assert total.epsilon == Fraction(gaussian().epsilon) + Fraction(1, 2)
    # The same where noise is only near its law.
    assert spent(gaussian(), gaussian(numeric_distance=1e-12)).total("s").rho == math.inf


def test_disjoint_parts_count_once() -> None:
    """Oracle: the sum over the releases that look at each position."""
    where = [{"start": a, "stop": b} for a, b in ((0, 10), (5, 20), (20, 30), (0, None))]
    given = [gaussian(0.02), gaussian(0.03), Guarantee(0.5), gaussian(0.01)]
    total = spent(*given, where=where).total("s")
    at = [
        sum(
            (Fraction(g.zcdp) for g, w in zip(given, where, strict=True) if w["start"] <= p < (w["stop"] or 99)),
            Fraction(0),
        )
        for p in range(40)
    ]
    assert total.rho >= max(at)
    assert total.rho - max(at) < Fraction(1, 2**40)


def test_cancelled_releases_leave_nothing() -> None:
    odometer = spent(Guarantee(0.5), gaussian(), gaussian(0.5))
    odometer.add(entry(gaussian(0.5)), -1)
    assert odometer.total("s").rho - (Fraction(1, 8) + Fraction(RHO)) < Fraction(1, 2**1000)
    odometer.add(entry(Guarantee(0.5)), -1)
    assert odometer.total("s").rho - Fraction(RHO) < Fraction(1, 2**1000)
    unknown = spent(Guarantee(0.5, 1e-9), Guarantee(0.5, 1e-9), gaussian())
    for _ in range(2):
        unknown.add(entry(Guarantee(0.5, 1e-9)), -1)
    # It cannot be told any more what they were: the sum of epsilons stands.
    assert unknown.total("s").epsilon == gaussian().epsilon


def test_a_delta_alone_before_the_first_rho_has_no_rho() -> None:
    """Without an epsilon there is no sum of epsilons that the sum of rhos begins with."""
    alone = Guarantee(0.0, 0.5)
    for order in ([alone, gaussian(), gaussian()], [gaussian(), alone, gaussian()]):
        total = spent(*order).total("s")
        assert (total.rho, total.epsilon) == (math.inf, 2 * Fraction(gaussian().epsilon))
    odometer = spent(Guarantee(0.3), alone, gaussian(), where=[{}, {"start": 3, "stop": 9}, {}])
    odometer.add(entry(alone, 1, start=3, stop=9), -1)
    assert odometer.total("s").delta == Fraction(1e-6)


def test_a_refusal_says_that_rhos_add_up(tmp_path) -> None:
    ledger = Ledger(tmp_path / "l", create=True)
    ledger.set_limit(3.0, 1e-4)
    for _ in range(10):
        ledger.spend(gaussian(0.001), stream="s")
    # Below what is left, but a rho above 1.
    assert ledger.remaining("s").epsilon > 2.0
    with pytest.raises(BudgetError, match=r"in total 3\.3.*: not epsilons add up here but rhos"):
        ledger.spend(Guarantee(1.5), stream="s")


def test_the_file_keeps_rho_and_its_limit(tmp_path) -> None:
    ledger = Ledger(tmp_path / "l", create=True)
    ledger.set_limit(2.5, 1e-4)
    ledger.spend(Guarantee(0.1), stream="s")
    for _ in range(6):
        ledger.spend(gaussian(), stream="s")
    # The epsilons alone would be above 5.
    found = Ledger(tmp_path / "l").spent("s")
    assert found.rho == pytest.approx(6 * RHO + 0.005)
    assert found.epsilon == pytest.approx(zcdp_epsilon(found.rho, 6e-6), rel=1e-9)
    while ledger.remaining("s").epsilon > 0.2:
        ledger.spend(gaussian(), stream="s")
    with pytest.raises(BudgetError):
        ledger.spend(gaussian(0.5), stream="s")
    assert ledger.spent("s").epsilon <= 2.5
    ledger.verify()
