"""Composition against a naive oracle, units that meet, and limits as they are written."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, sequential
from fastdp.ledger import Budget, Entry, compose, composition
from fastdp.ledger import odometer as odometers
from fastdp.ledger.composition import Loss, left
from fastdp.ledger.entry import ELEMENTS
from fastdp.ledger.odometer import EVERYWHERE, SCHEMA, Odometer, Region
from tests.oracles import ledger as oracle
from tests.oracles.ledger import written

PLACES = 6
EPSILONS = st.sampled_from([0.1, 0.25, 0.3, 1.0, 1e-9, 7.0])
SPANS = st.tuples(st.integers(0, PLACES - 1), st.none() | st.integers(1, PLACES)).map(
    lambda span: (span[0], None if span[1] is None else max(span[0] + 1, span[1]))
)
WHERE = st.tuples(st.sampled_from([None, None, "a", "b", "c"]), st.just((None, None)) | SPANS)


def entry(
    epsilon: float, part: str | None = None, start: int | None = None, stop: int | None = None, **said
) -> Entry:
    state = said.pop("state", "spent")
    return Entry(1, "", "s", Guarantee(epsilon, **said), part, start, stop, None, "", state)


def total(entries: list[Entry], stream: str, region: Region = EVERYWHERE) -> Loss:
    return odometer_of(entries).total(stream, region)


def odometer_of(entries: Iterable[Entry] = ()) -> Odometer:
    made = Odometer()
    for each in entries:
        made.add(each)
    return made


def element(epsilon: float, kind: int = 0, **said) -> Entry:
    return entry(epsilon, **ELEMENTS[kind]._asdict(), **said)


@given(st.lists(st.tuples(EPSILONS, EPSILONS, WHERE), max_size=8), WHERE)
def test_equals_the_oracle(drawn, asked) -> None:
    entries = [entry(e, part, *span, delta=d / 16) for e, d, (part, span) in drawn]
    for name, losses in (("epsilon", [d[0] for d in drawn]), ("delta", [d[1] / 16 for d in drawn])):
        releases = [(written(loss), part, *span) for loss, (_, _, (part, span)) in zip(losses, drawn, strict=True)]
        assert getattr(total(entries, "s"), name) == oracle.worst(releases, PLACES + 1)
        met = total(entries, "s", Region(asked[0], *asked[1]))
        assert getattr(met, name) == oracle.worst(releases, PLACES + 1, (asked[0], *asked[1]))


CHANGES = st.lists(
    st.tuples(st.booleans(), EPSILONS, WHERE, st.sampled_from([None, None, 0])), min_size=1, max_size=12
)


@given(CHANGES, st.randoms(use_true_random=False), WHERE)
def test_an_odometer_that_grows_and_shrinks_equals_the_oracle(changes, random, asked) -> None:
    """After each change; a release that is taken back may be any."""
    odometer, held = Odometer(), []
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
        assert odometer.total("s") == total(held, "s")
        assert odometer.total("s", where) == total(held, "s", where)


#: More edges than are changed one by one.
WIDE = 12
RANGES = st.tuples(EPSILONS, st.integers(0, WIDE - 2), st.integers(1, WIDE), st.booleans()).map(
    lambda drawn: (drawn[0], "a" if drawn[3] else None, drawn[1], max(drawn[1] + 1, drawn[2]))
)


@given(
    st.lists(st.lists(RANGES, min_size=4, max_size=10), min_size=2, max_size=3),
    st.randoms(use_true_random=False),
    st.integers(0, WIDE - 1),
)
def test_many_releases_between_two_questions_equal_the_oracle(batches, random, asked: int) -> None:
    odometer, held = Odometer(), []
    for batch in batches:
        for release in batch:
            held.append(release)
            odometer.add(entry(*release))
        for _ in range(len(held) // 4):
            odometer.add(entry(*held.pop(random.randrange(len(held)))), -1)
        releases = [(written(epsilon), *where) for epsilon, *where in held]
        for where in ((None, asked, asked + 1), ("a", asked, asked + 1), (None, None, None)):
            assert odometer.total("s", Region(*where)).epsilon == oracle.worst(releases, WIDE + 1, where)


@pytest.fixture
def steps() -> tuple[Odometer, Callable[[], int]]:
    """An odometer, and how many steps SQLite has taken for it since the last question."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(SCHEMA)
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    def since() -> int:
        nonlocal taken
        before, taken = taken, 0
        return before

    db.set_progress_handler(count, 1)
    return Odometer(db), since


@pytest.mark.parametrize("shape", ["whole stream", "apart", "windows", "labels", "in one part"])
def test_one_release_more_takes_as_many_steps_however_many_there_were(steps, shape: str) -> None:
    """And so do totals, of the stream and of a region."""
    odometer, since = steps
    where = {
        "whole stream": lambda k: (None, None, None),
        "apart": lambda k: (None, 10 * k, 10 * k + 10),
        "windows": lambda k: (None, k, k + 3),
        "labels": lambda k: (f"day {k}", None, None),
        "in one part": lambda k: ("a", k, k + 3),
    }[shape]
    costs, count = [], 0
    for size in (20, 2000):
        while count < size:
            odometer.add(entry(0.25, *where(count)))
            count += 1
        since()
        odometer.add(entry(0.25, *where(count)))
        odometer.total("s")
        odometer.total("s", Region(*where(count // 2)))
        costs.append(since())
        count += 1
    assert 100 < costs[1] < 1.1 * costs[0]
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
        above = composition.exp_above(exponent)
        error = mpmath.mpf(above.numerator) / above.denominator / true - 1
    assert 0 < error < mpmath.mpf(10) ** -45


#: Of a release without any privacy its epsilon is infinite.
LOSSES = st.tuples(st.just(math.inf) | EPSILONS, st.sampled_from([0.0, 1e-9, 0.25]), st.sampled_from([0.0, 1e-8]))


@given(st.lists(st.tuples(LOSSES, WHERE, st.sampled_from([None, None, 0])), min_size=1, max_size=8), st.data())
def test_what_is_given_back_never_raises_a_total(drawn, data) -> None:
    """Of reservations, cancelled or committed to an earlier end in any order."""
    odometer, held = Odometer(), []
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


def test_an_odometer_forgets_units_and_releases_without_privacy() -> None:
    odometer = odometer_of([entry(0.5)])
    others = [entry(math.inf, delta=0.25), entry(0.25, unit="one person"), entry(9.0, simulated=True)]
    for other in others:
        odometer.add(other)
    with pytest.raises(ParameterError, match="one person"):
        odometer.total("s")
    odometer.add(others[1], -1)
    assert odometer.total("s") == Loss(math.inf, Fraction(1, 4))
    odometer.add(others[0], -1)
    assert odometer.total("s") == Loss(Fraction(1, 2), Fraction(0))
    assert odometer.total("s").epsilon == Fraction(1, 2)


def test_a_point_may_move_to_a_part_that_its_value_never_had() -> None:
    """A value of part A whose point moves from A to D meets 1 + 0.5 + 1."""
    assert compose([entry(1.0, "A"), element(0.5, part="A"), element(1.0, part="D")]).epsilon >= 2.5


def test_parts_of_other_units_add_up() -> None:
    """Lines of this kind are refused; an older ledger may hold some."""
    person = {"unit": "one person, all values", "adjacency": "replace all values of one person"}
    assert compose([entry(1.0, start=100 * i, stop=100 * i + 100, **person) for i in range(5)]).epsilon == 5.0
    assert compose([entry(1.0, f"day {i}", **person) for i in range(5)]).epsilon == 5.0
    assert compose([entry(1.0, None, 9 * i, 9 * i + 9, adjacency="replace one event") for i in range(3)]).epsilon == 3


def test_the_distance_from_the_exact_law_is_in_delta() -> None:
    """Both sides of P1 <= e^eps P2 + delta may be off by it."""
    one = compose([entry(1.0, delta=1e-6, numeric_distance=1e-8)])
    exact = Decimal("1e-6") + (1 + Decimal(1).exp()) * Decimal("1e-8")
    assert 0 <= Decimal(str(one.delta)) - exact < Decimal("1e-21")
    assert one.numeric_distance == 0.0
    assert any("distance of the sampled noise" in line for line in one.derivation)
    assert not total([entry(1.0, numeric_distance=1e-8)], "s").within(Budget(1.0, 3e-8))
    twice = compose([element(1.0, delta=1e-6, numeric_distance=1e-8), entry(0.0)]).delta
    assert twice == pytest.approx(one.delta * (1 + math.e), rel=1e-12)


@given(st.lists(st.tuples(EPSILONS, WHERE), max_size=8), EPSILONS, WHERE)
def test_what_is_left_can_be_spent_and_no_more(drawn, limit: float, asked) -> None:
    entries = [entry(e, part, *span) for e, (part, span) in drawn]
    spent = total(entries, "s")
    where = asked[0], *asked[1]
    most = Budget(limit, math.inf)
    rest = left(most, spent, total(entries, "s", Region(*where))).epsilon
    if not spent.within(most):
        assert rest == 0.0
        return
    met = total(entries, "s", Region(*where)).epsilon
    assert written(rest) + min(met, written(limit)) <= written(limit)
    assert total([*entries, entry(rest, *where)], "s").within(most)
    more = math.nextafter(max(rest, 2.0**-60 * limit), math.inf)
    assert not total([*entries, entry(more, *where)], "s").within(most)


def test_simulations_and_cancelled_releases_cost_nothing_and_reserved_ones_do() -> None:
    free = [entry(1.0, simulated=True), entry(1.0, state="cancelled"), entry(math.inf, simulated=True)]
    assert total(free, "s") == Loss(Fraction(0), Fraction(0))
    assert total([*free, entry(0.5, state="reserved")], "s").epsilon == Fraction(1, 2)
    assert compose(free).epsilon == 0.0


def test_no_privacy_stays_none_whatever_the_part() -> None:
    entries = [entry(math.inf, "a"), entry(0.5, "b", delta=0.125)]
    assert compose(entries).delta == 0.125
    assert compose(entries).epsilon == compose(entries[::-1]).epsilon == math.inf
    assert compose([entry(1e308)] * 2).epsilon == math.inf
    assert not total(entries, "s").within(Budget(1e300, math.inf))
    assert total(entries, "s").within(Budget(math.inf, math.inf))
    assert left(Budget(2.0, math.inf), Loss(0, 0), Loss(math.inf, 0)).epsilon == 0.0


@pytest.mark.parametrize("kind", [0, 1])
def test_one_element_counts_twice_beside_a_replaced_value(kind: int) -> None:
    alone = [element(0.5, kind), element(0.25, kind)]
    assert compose(alone).epsilon == 0.75
    assert (compose(alone).unit, compose(alone).adjacency) == ELEMENTS[kind][:2]
    both = compose([*alone, entry(0.125)])
    assert both.epsilon == 2 * 0.75 + 0.125
    assert (both.unit, both.adjacency) == ("one value of the stream", "replace one value")
    assert any("2 epsilon" in line for line in both.derivation)


def test_the_delta_of_two_elements_is_that_of_group_privacy() -> None:
    delta = compose([element(1.0, delta=1e-6), entry(1.0, delta=1e-6)]).delta
    each = Decimal("1e-6")
    assert 0 <= Decimal(str(delta)) - (Decimal(1).exp() * each + 2 * each) < Decimal("1e-20")
    assert compose([element(5000.0, delta=1e-6), entry(1.0)]).delta == 1.0


def test_units_that_do_not_meet_are_refused() -> None:
    person = entry(
        1.0, unit="3 events (additions or removals) of one person", adjacency="add or remove at most 3 events"
    )
    for others in ([entry(1.0)], [element(1.0)], [element(1.0), entry(1.0)]):
        with pytest.raises(ParameterError, match=r"stream 's' with the units .*expected one that all others imply"):
            compose([person, *others], "s")
    with pytest.raises(ParameterError, match="one point"):
        compose([element(1.0, 0), element(1.0, 1)], "s")
    assert compose([person, person]).epsilon == 2.0
    # What does not count does not meet.
    assert compose([person, entry(1.0, simulated=True)]).epsilon == 1.0


def windows(w: int) -> Guarantee:
    return fastdp.Adaptive(1.0, 10.0, threshold=5.0, contributions=w).guarantee


def events(sensitivity: float) -> Guarantee:
    return fastdp.Adaptive(1.0, sensitivity=sensitivity).guarantee


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (windows(10), windows(1)),
        (windows(10), windows(40)),
        (events(1.0), windows(1)),
        (events(1.0), events(2.0)),
        (events(1.0), windows(10)),
    ],
)
def test_values_windows_and_events_are_never_added(one: Guarantee, other: Guarantee) -> None:
    first, second = (Entry(1, "", "s", said, None, None, None, None, "", "spent") for said in (one, other))
    with pytest.raises(ParameterError, match="expected one that all others imply"):
        compose([first, second], "s")
    with pytest.raises(ValueError, match="do not compose"):
        sequential(one, other)
    assert compose([first, first], "s").epsilon == 2.0
    # A window, and the events of one person, may lie in two parts.
    if one.unit != Guarantee.unit:
        parts = [dataclasses.replace(first, part=label) for label in "ab"]
        assert compose(parts, "s").epsilon == 2.0
        ranges = [dataclasses.replace(first, start=start, stop=start + 5) for start in (0, 5)]
        assert compose(ranges, "s").epsilon == 2.0


def test_local_and_central_releases_of_the_same_values_add_up() -> None:
    local = entry(0.5, model="local", arithmetic="exact")
    assert compose([local, local]).model == "local"
    assert compose([local, local]).arithmetic == "exact"
    both = compose([local, entry(0.25)])
    assert (both.epsilon, both.model, both.arithmetic) == (0.75, "central", "real")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 6))
def test_decimals_are_added_and_compared_as_they_are_written(digits: list[int], places: int) -> None:
    scale = Decimal(10) ** -places
    written = [digit * scale for digit in digits]
    spent = total([entry(float(number)) for number in written], "s")
    limit = sum(written)
    assert spent.epsilon == Fraction(limit)
    assert spent.within(Budget(float(limit), math.inf))
    assert not spent.within(Budget(math.nextafter(float(limit), 0.0), math.inf))


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=4))
def test_sums_that_no_float_holds_are_rounded_up_by_their_decimals(amounts: list[float]) -> None:
    exact = sum(map(written, amounts))
    above = compose([entry(amount) for amount in amounts]).epsilon
    assert written(above) >= exact > written(math.nextafter(above, 0.0))
