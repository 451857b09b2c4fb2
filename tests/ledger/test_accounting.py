"""Composition against a naive oracle, units that meet, limits as they are written, rhos and divergences."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import BudgetError, ParameterError
from fastdp.guarantee import Guarantee, gaussian_delta, sequential, zcdp_epsilon, zcdp_rho
from fastdp.interop.accounting import dp_event
from fastdp.ledger import Budget, Entry
from fastdp.ledger import odometer as odometers
from fastdp.ledger.entry import ELEMENTS, VALUE, Kind
from fastdp.ledger.odometer import EVERYWHERE, Loss, Odometer, Region, budget_left
from tests.ledger.conftest import InMemory, compose, entry, odometer_of
from tests.oracles import ledger as oracle
from tests.oracles.ledger import written

PLACES = 6
EPSILONS = st.sampled_from([0.1, 0.25, 0.3, 1.0, 1e-9, 7.0])
SPANS = st.tuples(st.integers(0, PLACES - 1), st.none() | st.integers(1, PLACES)).map(
    lambda span: (span[0], None if span[1] is None else max(span[0] + 1, span[1]))
)
WHERE = st.tuples(st.sampled_from([None, None, "a", "b", "c"]), st.just((None, None)) | SPANS)
#: Of a release without any privacy epsilon is infinite.
LOSSES = st.tuples(st.just(math.inf) | EPSILONS, st.sampled_from([0.0, 1e-9, 0.25]), st.sampled_from([0.0, 1e-8]))
#: More edges than are changed one by one.
WIDE = 12
RANGES = st.tuples(EPSILONS, st.integers(0, WIDE - 2), st.integers(1, WIDE), st.booleans()).map(
    lambda drawn: (drawn[0], "a" if drawn[3] else None, drawn[1], max(drawn[1] + 1, drawn[2]))
)
CHANGES = st.lists(
    st.tuples(st.booleans(), EPSILONS, WHERE, st.sampled_from([None, None, 0])), min_size=1, max_size=12
)


def total(entries: list[Entry], region: Region = EVERYWHERE) -> Loss:
    return odometer_of(entries).total("s", region)


def element(epsilon: float, kind: int = 0, **said) -> Entry:
    return entry(epsilon, **ELEMENTS[kind]._asdict(), **said)


@given(st.lists(st.tuples(EPSILONS, EPSILONS, WHERE), max_size=8), WHERE)
def test_equals_the_oracle(drawn, asked) -> None:
    entries = [entry(e, part, *span, delta=d / 16) for e, d, (part, span) in drawn]
    for name, losses in (("epsilon", [d[0] for d in drawn]), ("delta", [d[1] / 16 for d in drawn])):
        releases = [(written(loss), part, *span) for loss, (_, _, (part, span)) in zip(losses, drawn, strict=True)]
        assert getattr(total(entries), name) == oracle.worst(releases, PLACES + 1)
        met = total(entries, Region(asked[0], *asked[1]))
        assert getattr(met, name) == oracle.worst(releases, PLACES + 1, (asked[0], *asked[1]))


@given(CHANGES, st.randoms(use_true_random=False), WHERE)
def test_an_odometer_that_grows_and_shrinks_equals_the_oracle(changes, random, asked) -> None:
    odometer, held = odometer_of(), []
    where = Region(asked[0], *asked[1])
    for gone, epsilon, (part, span), kind in changes:
        made = entry(epsilon, part, *span) if kind is None else element(epsilon, kind, part=part)
        values = [(written(e.guarantee.epsilon), e.part, e.start, e.stop) for e in held if e.kind != ELEMENTS[0]]
        elements = [(written(e.guarantee.epsilon), e.part, None, None) for e in held if e.kind == ELEMENTS[0]]
        loss = written(epsilon), part, *(span if kind is None else (None, None))
        with_it = (values, [*elements, loss]) if kind is not None else ([*values, loss], elements)
        after = oracle.worst_of_both(*with_it, PLACES + 1) if with_it[0] else oracle.worst(with_it[1], PLACES + 1)
        odometer.add(made)
        held.append(made)
        assert odometer.total("s").epsilon == after
        if gone:
            odometer.add(held.pop(random.randrange(len(held))), -1)
        assert odometer.total("s") == total(held)
        assert odometer.total("s", where) == total(held, where)


@given(
    st.lists(st.lists(RANGES, min_size=4, max_size=10), min_size=2, max_size=3),
    st.randoms(use_true_random=False),
    st.integers(0, WIDE - 1),
)
def test_many_releases_between_two_questions_equal_the_oracle(batches, random, asked: int) -> None:
    odometer, held = odometer_of(), []
    for batch in batches:
        for release in batch:
            held.append(release)
            odometer.add(entry(*release))
        for _ in range(len(held) // 4):
            odometer.add(entry(*held.pop(random.randrange(len(held)))), -1)
        releases = [(written(epsilon), *where) for epsilon, *where in held]
        for where in ((None, asked, asked + 1), ("a", asked, asked + 1), (None, None, None)):
            assert odometer.total("s", Region(*where)).epsilon == oracle.worst(releases, WIDE + 1, where)


@pytest.mark.parametrize("shape", ["whole stream", "apart", "windows", "labels", "in one part"])
def test_one_release_more_takes_as_many_steps_however_many_there_were(shape: str) -> None:
    """And so do totals, of the stream and of a region: steps of SQLite."""
    db, taken = InMemory(), [0]
    odometer = odometer_of(db=db)

    def count_step() -> int:
        taken[0] += 1
        return 0

    where = {
        "whole stream": lambda k: (None, None, None),
        "apart": lambda k: (None, 10 * k, 10 * k + 10),
        "windows": lambda k: (None, k, k + 3),
        "labels": lambda k: (f"day {k}", None, None),
        "in one part": lambda k: ("a", k, k + 3),
    }[shape]
    costs, count = [], 0
    for size in (20, 1000):
        for number in range(count, size):
            odometer.add(entry(0.25, *where(number)))
        # As another transaction, which has read nothing yet.
        odometer = Odometer(db, lambda message: b"")
        db.set_progress_handler(count_step, 1)
        taken[0] = 0
        odometer.add(entry(0.25, *where(size)))
        odometer.total("s")
        odometer.total("s", Region(*where(size // 2)))
        db.set_progress_handler(None, 1)
        costs.append(taken[0])
        count = size + 1
    assert 50 < costs[1] < 1.1 * costs[0]
    expected = {"whole stream": Fraction(count, 4), "windows": Fraction(3, 4), "in one part": Fraction(3, 4)}
    assert odometer.total("s").epsilon == expected.get(shape, Fraction(1, 4))


@given(st.lists(st.integers(0, 2**2200) | st.integers(0, 2**20).map(lambda n: n << 1000), max_size=20))
def test_stored_sums_sort_as_the_numbers_do(numbers: list[int]) -> None:
    packed = [odometers._pack(number) for number in numbers]
    assert [odometers._unpack(raw) for raw in packed] == numbers
    assert [odometers._unpack(raw) for raw in sorted(packed)] == sorted(numbers)


@pytest.mark.parametrize(
    "exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(0.1), Fraction(50), Fraction(700)]
)
def test_e_to_the_epsilon_is_rounded_up_very_little(exponent: Fraction) -> None:
    """Deltas are multiplied by it: below the true value it would understate them."""
    with mpmath.workdps(200):
        true = mpmath.exp(mpmath.mpf(exponent.numerator) / exponent.denominator)
        above = odometers.exp_above(exponent)
        error = mpmath.mpf(above.numerator) / above.denominator / true - 1
    assert 0 < error < mpmath.mpf(10) ** -45


@given(st.lists(st.tuples(LOSSES, WHERE, st.sampled_from([None, None, 0])), min_size=1, max_size=8), st.data())
def test_what_is_given_back_never_raises_a_total(drawn, data) -> None:
    odometer, held = odometer_of(), []
    for (epsilon, delta, distance), (part, span), kind in drawn:
        said = {"delta": delta, "numeric_distance": distance, "state": "reserved"}
        made = entry(epsilon, part, *span, **said) if kind is None else element(epsilon, kind, part=part, **said)
        odometer.add(made)
        held.append(made)
    while held:
        before = odometer.total("s")
        gone = held.pop(data.draw(st.integers(0, len(held) - 1)))
        odometer.add(gone, -1)
        if gone.start is not None and data.draw(st.booleans()):
            odometer.add(dataclasses.replace(gone, stop=gone.start + 1, state="spent"))
        now = odometer.total("s")
        assert now.epsilon <= before.epsilon
        assert now.delta <= before.delta


def test_releases_that_cost_nothing_or_everything() -> None:
    free = [entry(1.0, simulated=True), entry(1.0, state="cancelled"), entry(math.inf, simulated=True)]
    assert total(free) == Loss(Fraction(0), Fraction(0))
    assert compose(free).epsilon == 0.0
    assert total([*free, entry(0.5, state="reserved")]).epsilon == Fraction(1, 2)
    without = [entry(math.inf, "a"), entry(0.5, "b", delta=0.125)]
    assert compose(without).delta == 0.125
    assert (
        compose(without).epsilon == compose(without[::-1]).epsilon == compose([entry(1e308)] * 2).epsilon == math.inf
    )
    assert not total(without).within(Budget(1e300, math.inf))
    assert total(without).within(Budget(math.inf, math.inf))
    assert budget_left(Budget(2.0, math.inf), Loss(0, 0), Loss(math.inf, 0)).epsilon == 0.0
    assert budget_left(Budget(2.0, math.inf), Loss(3, 0), Loss(0, 0)) == Budget(0.0, 0.0)
    # Both are forgotten when they are taken back, as is a unit that did not meet.
    odometer, others = odometer_of([entry(0.5)]), [entry(math.inf, delta=0.25), entry(0.25, unit="one person")]
    for other in others:
        odometer.add(other)
    with pytest.raises(ParameterError, match="one person"):
        odometer.total("s")
    odometer.add(others[1], -1)
    assert odometer.total("s") == Loss(math.inf, Fraction(1, 4))
    odometer.add(others[0], -1)
    assert odometer.total("s") == Loss(Fraction(1, 2), Fraction(0))


def test_the_distance_from_the_exact_law_is_in_delta() -> None:
    """Both sides of P1 <= e^eps P2 + delta may be off by it."""
    one = compose([entry(1.0, delta=1e-6, numeric_distance=1e-8)])
    exact = Decimal("1e-6") + (1 + Decimal(1).exp()) * Decimal("1e-8")
    assert 0 <= Decimal(str(one.delta)) - exact < Decimal("1e-21")
    assert one.numeric_distance == 0.0
    assert any("distance of the sampled noise" in line for line in one.derivation)
    assert not total([entry(1.0, numeric_distance=1e-8)]).within(Budget(1.0, 3e-8))
    twice = compose([element(1.0, delta=1e-6, numeric_distance=1e-8), entry(0.0)]).delta
    assert twice == pytest.approx(one.delta * (1 + math.e), rel=1e-12)
    # Of two elements it is that of group privacy.
    two = Decimal(str(compose([element(1.0, delta=1e-6), entry(1.0, delta=1e-6)]).delta))
    assert 0 <= two - (Decimal(1).exp() + 2) * Decimal("1e-6") < Decimal("1e-20")
    assert compose([element(5000.0, delta=1e-6), entry(1.0)]).delta == 1.0


@given(st.lists(st.tuples(EPSILONS, WHERE), max_size=8), EPSILONS, WHERE)
def test_what_is_left_can_be_spent_and_no_more(drawn, limit: float, asked) -> None:
    entries = [entry(e, part, *span) for e, (part, span) in drawn]
    spent = total(entries)
    where = asked[0], *asked[1]
    most = Budget(limit, math.inf)
    rest = budget_left(most, spent, total(entries, Region(*where))).epsilon
    if not spent.within(most):
        assert rest == 0.0
        return
    met = total(entries, Region(*where)).epsilon
    assert written(rest) + min(met, written(limit)) <= written(limit)
    assert total([*entries, entry(rest, *where)]).within(most)
    more = math.nextafter(max(rest, 2.0**-60 * limit), math.inf)
    assert not total([*entries, entry(more, *where)]).within(most)


@pytest.mark.parametrize("kind", [0, 1])
def test_one_element_counts_twice_beside_a_replaced_value(kind: int) -> None:
    alone = [element(0.5, kind), element(0.25, kind)]
    assert compose(alone).epsilon == 0.75
    assert (compose(alone).unit, compose(alone).adjacency) == ELEMENTS[kind][:2]
    both = compose([*alone, entry(0.125)])
    assert both.epsilon == 2 * 0.75 + 0.125
    assert (both.unit, both.adjacency) == ("one value of the stream", "replace one value")
    assert any("2 epsilon" in line for line in both.derivation)


PERSON = {"unit": "one person, all values", "adjacency": "replace all values of one person"}
EVENTS_OF_ONE = {
    "unit": "3 events (additions or removals) of one person",
    "adjacency": "add or remove at most 3 events",
}


def publisher(**options) -> Entry:
    return entry(fastdp.Adaptive(1.0, **options).guarantee)


WINDOWS, EVENTS = {"bound": 10.0, "threshold": 5.0, "contributions": 10}, {"sensitivity": 1.0}


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        *(([entry(1.0, **EVENTS_OF_ONE), *others], "stream 's' with the units ")
          for others in ([entry(1.0)], [element(1.0)], [element(1.0), entry(1.0)])),
        ([element(1.0, 0), element(1.0, 1)], "one point"),
        *(([publisher(**one), publisher(**other)], "expected one that all others imply")
          for one in (WINDOWS, EVENTS)
          for other in (WINDOWS | {"contributions": 1}, WINDOWS | {"contributions": 40}, {"sensitivity": 2.0})),
        ([publisher(**WINDOWS), publisher(**EVENTS)], "expected one that all others imply"),
    ],
)  # fmt: skip
def test_units_that_do_not_meet_are_never_added(entries: list[Entry], named: str) -> None:
    with pytest.raises(ParameterError, match=f"{named}.*"):
        compose(entries, "s")
    with pytest.raises(ValueError, match="do not compose"):
        sequential(entries[0].guarantee, entries[-1].guarantee)
    assert compose([entries[0]] * 2, "s").epsilon == 2.0
    assert compose([entries[0], entry(1.0, simulated=True)]).epsilon == 1.0, "what does not count does not meet"


def test_releases_of_one_unit_add_up() -> None:
    """Parts too, where an element may lie in two of them; lines of the first kinds are refused by the ledger."""
    assert compose([entry(1.0, start=100 * i, stop=100 * i + 100, **PERSON) for i in range(5)]).epsilon == 5.0
    assert compose([entry(1.0, f"day {i}", **PERSON) for i in range(5)]).epsilon == 5.0
    assert compose([entry(1.0, None, 9 * i, 9 * i + 9, adjacency="replace one event") for i in range(3)]).epsilon == 3
    for one in (publisher(**WINDOWS), publisher(**EVENTS)):
        assert compose([dataclasses.replace(one, part=label) for label in "ab"]).epsilon == 2.0
        assert compose([dataclasses.replace(one, start=at, stop=at + 5) for at in (0, 5)]).epsilon == 2.0
    local = entry(0.5, model="local", arithmetic="exact")
    assert (compose([local, local]).model, compose([local, local]).arithmetic) == ("local", "exact")
    both = compose([local, entry(0.25)])
    assert (both.epsilon, both.model, both.arithmetic) == (0.75, "central", "real")


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=4))
def test_sums_that_no_float_holds_are_rounded_up_by_their_decimals(amounts: list[float]) -> None:
    exact = sum(map(written, amounts))
    above = compose([entry(amount) for amount in amounts]).epsilon
    assert written(above) >= exact > written(math.nextafter(above, 0.0))


RHO = 0.02


def gaussian(rho: float = RHO, delta: float = 1e-6, **options) -> Guarantee:
    return Guarantee(zcdp_epsilon(rho, delta), delta, arithmetic="exact", rho=rho, **options)


def spent(*guarantees: Guarantee, limit: Budget | None = None) -> Loss:
    return odometer_of(map(entry, guarantees)).total("s", limit=limit)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_rhos_add_up_exactly_and_pure_releases_count_as_half_the_square(before: int) -> None:
    """Those in front of the first rho and later ones, each by itself."""
    given = [*[Guarantee(0.25)] * before, *[gaussian()] * 5, *[Guarantee(0.5)] * bool(before)]
    found = spent(*given)
    rho = Fraction(before, 32) + 5 * written(RHO) + (Fraction(1, 8) if before else 0)
    assert 0 <= found.rho - rho < Fraction(1, 2**1000)
    assert found.delta == 5 * written(1e-6)
    assert float(found.epsilon) <= float(sum(g.epsilon for g in given))
    if not before:
        assert found.rho == rho
        assert float(found.epsilon) == pytest.approx(zcdp_epsilon(5 * RHO, 5e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("given", "epsilon"),
    [
        ([Guarantee(0.25), Guarantee(0.5)], Fraction(3, 4)),
        ([gaussian(), Guarantee(0.5, 1e-9)], written(gaussian().epsilon) + Fraction(1, 2)),
        ([gaussian(), gaussian(numeric_distance=1e-12)], 2 * written(gaussian().epsilon)),
        # Without an epsilon there is no sum of epsilons that the sum of rhos begins with.
        ([Guarantee(0.0, 0.5), gaussian(), gaussian()], 2 * written(gaussian().epsilon)),
    ],
)
def test_pure_ledgers_and_other_deltas_have_no_rho(given: list[Guarantee], epsilon: Fraction) -> None:
    for order in (given, given[::-1]):
        found = spent(*order)
        assert (found.epsilon, found.rho) == (epsilon, math.inf)


def test_disjoint_parts_count_once() -> None:
    """Oracle: the sum over the releases that look at each position."""
    where = [{"start": a, "stop": b} for a, b in ((0, 10), (5, 20), (20, 30), (0, None))]
    given = [gaussian(0.02), gaussian(0.03), Guarantee(0.5), gaussian(0.01)]
    found = total([entry(g, None, w["start"], w["stop"]) for g, w in zip(given, where, strict=True)])
    at = [
        sum(
            (written(g.zcdp) for g, w in zip(given, where, strict=True) if w["start"] <= p < (w["stop"] or 99)),
            Fraction(0),
        )
        for p in range(40)
    ]
    assert found.rho >= max(at)
    assert found.rho - max(at) < Fraction(1, 2**40)


def test_cancelled_releases_leave_nothing() -> None:
    odometer = odometer_of(map(entry, (Guarantee(0.5), gaussian(), gaussian(0.5))))
    odometer.add(entry(gaussian(0.5)), -1)
    assert odometer.total("s").rho - (Fraction(1, 8) + written(RHO)) < Fraction(1, 2**1000)
    odometer.add(entry(Guarantee(0.5)), -1)
    assert odometer.total("s").rho - written(RHO) < Fraction(1, 2**1000)
    unknown = odometer_of(map(entry, (Guarantee(0.5, 1e-9), Guarantee(0.5, 1e-9), gaussian())))
    for _ in range(2):
        unknown.add(entry(Guarantee(0.5, 1e-9)), -1)
    # It cannot be told any more what they were: the sum of epsilons stands.
    assert unknown.total("s").epsilon == written(gaussian().epsilon)
    alone = entry(Guarantee(0.0, 0.5), None, 3, 9)
    odometer = odometer_of([entry(0.3), alone, entry(gaussian())])
    odometer.add(alone, -1)
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
            assert exact <= odometers.pure_divergence(epsilon, order) <= exact * (1.0 + 1e-9)


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
    found = spent(*([Guarantee(e) for e in losses] + [gaussian(rho) for rho in rhos])[::order])
    delta = 1e-6 * len(rhos)
    exact = math.inf
    for alpha in np.geomspace(0.02, 2000.0, 250) + 1.0:
        both = sum(losses.count(e) * of_response(e, alpha) for e in set(losses)) + alpha * sum(rhos)
        rest = math.log(1.0 / delta) + (alpha - 1.0) * math.log1p(-1.0 / alpha) - math.log(alpha)
        exact = min(exact, both + rest / (alpha - 1.0))
    # Classes cost at most a sixteenth of the pure ones' part.
    assert exact * (1.0 - 4e-4) <= float(found.epsilon) <= exact * 1.035
    # Never above the sum of pure losses and what rhos alone give.
    assert float(found.epsilon) <= (sum(losses) + zcdp_epsilon(sum(rhos), delta)) * (1.0 + 2e-3)


def test_normal_noise_and_randomised_response_together() -> None:
    """The profile of both, integrated: the bound holds, and is near it."""
    rho, loss, delta = 0.05, 0.4, 1e-6
    found = float(spent(gaussian(rho), Guarantee(loss)).epsilon)
    mu, p = math.sqrt(2.0 * rho), 1.0 / (1.0 + math.exp(-loss))

    def profile(epsilon: float) -> float:
        return p * gaussian_delta(mu, epsilon - loss) + (1.0 - p) * gaussian_delta(mu, epsilon + loss)

    assert profile(found) <= delta
    assert profile(0.8 * found) > delta


def test_a_limit_names_its_orders(ledger) -> None:
    """Orders are public, so that histories that fit by different ones are few."""
    account = ledger()
    account.set_limit(3.0, 1e-4)
    for _ in range(10):
        account.spend(gaussian(0.001), stream="s")
    # Below what is left, but the limit's orders are not the best ones here.
    with pytest.raises(BudgetError, match=r"in total 3\.0.*: not epsilons add up here but rhos"):
        account.spend(Guarantee(account.remaining("s").epsilon - 0.01), stream="s")
    account.spend(Guarantee(1.5), stream="s")
    assert account.spent("s").epsilon < 2.1
    # What it says to be left may be spent by a pure release, which never costs more than itself.
    account.spend(Guarantee(account.remaining("s").epsilon), stream="s")
    assert 2.0 < account.spent("s").epsilon < 3.0
    with pytest.raises(BudgetError):
        account.spend(Guarantee(1.0), stream="s")
    orders = odometers.orders_of(3.0, 1e-4)
    assert len(orders) == 3
    # Rhos alone fit by the first whenever they fit by their sum.
    assert odometers.epsilon_at(orders[0], [], zcdp_rho(3.0, 1e-4), 1e-4) == pytest.approx(3.0, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-6, 0.9, 1.0 - 1e-6, 1.0 - 1e-9])
def test_orders_near_one_keep_their_digits(delta: float) -> None:
    """A limit on delta near 1 leads to them; the conversion is a difference of two large logarithms there."""
    for order in odometers.orders_of(1.0, delta):
        found = odometers.epsilon_at(order, [(0.25, 0.25)], 20.0, delta)
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
    given = [*[noisy] * 10, Guarantee(1.5)]
    best, found = spent(*given), spent(*given, limit=Budget(epsilon, 1e-4))
    orders = odometers.orders_of(min(max(epsilon, 2.0**-60), 2.0**60), 1e-4)
    least = min(odometers.epsilon_at(order, [(1.5, 1.5)], 0.01, 1e-5) for order in orders)
    expected = min(1.5 + 10 * noisy.epsilon, least, zcdp_epsilon(float(best.rho), 1e-5))
    assert float(found.epsilon) == pytest.approx(expected, rel=1e-9)
    assert best.epsilon < found.epsilon


def test_the_file_keeps_rho_and_its_limit(ledger) -> None:
    account = ledger()
    account.set_limit(2.5, 1e-4)
    account.spend(Guarantee(0.1), stream="s")
    for _ in range(6):
        account.spend(gaussian(), stream="s")
    # The epsilons alone would be above 5.
    found = ledger().spent("s")
    assert found.rho == pytest.approx(6 * RHO + 0.005)
    assert found.epsilon == pytest.approx(zcdp_epsilon(found.rho, 6e-6), rel=3e-3)
    while account.remaining("s").epsilon > 0.2:
        account.spend(gaussian(), stream="s")
    with pytest.raises(BudgetError):
        account.spend(gaussian(0.5), stream="s")
    assert account.spent("s").epsilon <= 2.5
    account.verify()


def test_rhos_are_not_added_over_two_adjacencies() -> None:
    def entry(number: int, kind: Kind) -> Entry:
        loss = Guarantee(1.0, 1e-6, unit=kind.unit, adjacency=kind.adjacency, rho=0.02)
        return Entry(number, "", "s", loss, None, None, None, None, "", "spent")

    assert compose([entry(1, VALUE), entry(2, ELEMENTS[0])]).epsilon == 3.0


def test_events_for_dp_accounting_cost_no_less(ledger) -> None:
    """By its accountants, for pure releases (also of an element, beside values) and for rhos."""
    events = pytest.importorskip("dp_accounting")
    from dp_accounting import pld, rdp

    account, relation = ledger(), events.NeighboringRelation.REPLACE_ONE

    def event(stream: str):
        return dp_event(account.entries(stream))

    for each in (
        Guarantee(0.5),
        Guarantee(0.5),
        Guarantee(0.25, unit=ELEMENTS[0].unit, adjacency=ELEMENTS[0].adjacency),
    ):
        account.spend(each, stream="pure")
    for rho in (0.02, 0.03):
        account.spend(gaussian(rho), stream="rhos")
    account.spend(gaussian(0.01), stream="both")
    account.spend(Guarantee(0.25), stream="both")
    account.spend(Guarantee(0.5, 1e-9), stream="other")
    account.spend(Guarantee(math.inf), stream="none")
    account.reserve(Guarantee(9.0), stream="pure").cancel()
    pure = pld.PLDAccountant(relation).compose(event("pure")).get_epsilon(1e-12)
    assert 1.5 * (1 - 1e-5) < pure < 1.5 * (1 + 1e-3)
    for stream, delta in (("rhos", 2e-6), ("both", 1e-6)):
        found = rdp.RdpAccountant(neighboring_relation=relation).compose(event(stream)).get_epsilon(delta)
        assert 0.98 < found / account.spent(stream).epsilon < 1.1
    assert not pld.PLDAccountant(relation).supports(event("other"))
    assert pld.PLDAccountant(relation).compose(event("none")).get_epsilon(1e-6) == math.inf
    assert event("absent").events == []
