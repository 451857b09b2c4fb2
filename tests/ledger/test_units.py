"""Units of tables, by brute force over tables; days and budgets that renew, and what a person loses."""

from __future__ import annotations

import math
from datetime import date, timedelta
from itertools import combinations, product
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import Guarantee, Ledger, Person, Rows, Time
from fastdp.data.calendar import Calendar
from fastdp.errors import BudgetError, ParameterError
from fastdp.guarantee import zcdp_epsilon
from fastdp.ledger import Budget, Entry
from fastdp.ledger.odometer import EVERYWHERE, Odometer, Region
from fastdp.units import Period, Times, UnitRows
from tests.ledger.conftest import compose, entry, odometer_of
from tests.oracles import ledger as oracle
from tests.oracles.ledger import written

#: Four days over the end of a month; the first of February is a Sunday.
DAYS = [date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 2)]
#: Person, device, day of each row that a table may have.
ROWS = [*(("p", "x", day) for day in DAYS), ("p", "y", DAYS[1]), ("q", "x", DAYS[1]), ("q", "y", DAYS[3])]
MONTH, WEEK, DAY = Period("months", 1, 0, None), Period("days", 7, 1, None), Period("days", 1, 0, None)
UNITS = {
    "person": UnitRows("person"), "device": UnitRows("device"), "person a month": UnitRows("person", 1, MONTH),
    "person a week": UnitRows("person", 1, WEEK), "person a day": UnitRows("person", 1, DAY), "row": UnitRows(),
    "2 rows": UnitRows(None, 2), "3 rows": UnitRows(None, 3), "3 rows a month": UnitRows(None, 3, MONTH),
    "2 rows a day": UnitRows(None, 2, DAY),
}  # fmt: skip
#: All that holds besides a unit and itself; what is not here is refused.
IMPLIED = {
    **{("person", weaker): 2 for weaker in ("person a month", "person a week", "person a day", "row")},
    ("device", "row"): 2, **{("person a month", weaker): 2 for weaker in ("person a day", "row")},
    **{("person a week", weaker): 2 for weaker in ("person a day", "row")}, ("person a day", "row"): 2,
    ("2 rows", "row"): 1, ("2 rows", "2 rows a day"): 1,
    **{("3 rows", weaker): 1 for weaker in ("2 rows", "row", "3 rows a month", "2 rows a day")},
    **{("3 rows a month", weaker): 1 for weaker in ("row", "2 rows a day")}, ("2 rows a day", "row"): 1,
}  # fmt: skip


def span(period: Period | None, day: date) -> int:
    if period is None:
        return 0
    return (
        day.year * 12 + day.month if period.measure == "months" else (day.toordinal() - period.begin) // period.length
    )


def changes(unit: UnitRows) -> set[frozenset[int]]:
    """Sets of rows that one unit adds or removes; of a person they are all that a table has, in one period."""
    found = set()
    for size in range(1, len(ROWS) + 1):
        for rows in combinations(range(len(ROWS)), size):
            one_span = len({span(unit.period, ROWS[row][2]) for row in rows}) == 1
            owners = {ROWS[row][0 if unit.who == "person" else 1] for row in rows}
            if one_span and (size <= unit.most if unit.who is None else len(owners) == 1):
                found.add(frozenset(rows))
    return found


def neighbours(unit: UnitRows) -> dict[frozenset[int], set[frozenset[int]]]:
    tables = [frozenset(rows) for size in range(len(ROWS) + 1) for rows in combinations(range(len(ROWS)), size)]
    edges: dict[frozenset[int], set[frozenset[int]]] = {table: set() for table in tables}
    for table, change in product(tables, changes(unit)):
        less = table - change
        if not change <= table:
            continue
        if unit.who is not None:
            # All rows of the person, in that period, are gone.
            who = 0 if unit.who == "person" else 1
            row = next(iter(change))
            left = [r for r in less if ROWS[r][who] == ROWS[row][who]]
            if any(span(unit.period, ROWS[r][2]) == span(unit.period, ROWS[row][2]) for r in left):
                continue
        edges[table].add(less)
        edges[less].add(table)
    return edges


EDGES = {name: neighbours(unit) for name, unit in UNITS.items()}


def test_each_implication_is_a_path_of_changes_and_as_short_as_that() -> None:
    for one, other in product(UNITS, UNITS):
        times = UNITS[one].times(UNITS[other])
        assert times == (1 if one == other else IMPLIED.get((one, other))), (one, other)
        needed = 1
        for table, beside in EDGES[other].items():
            near = EDGES[one][table]
            for changed in beside - near:
                needed = max(needed, 2 if any(changed in EDGES[one][between] for between in near) else 3)
        if times is not None:
            assert needed == times, (one, other)
        elif UNITS[one].who is not None or UNITS[other].who is None:
            # Of so small a table a person has two rows a day at most.
            assert needed > 1, (one, other)


def test_periods_that_lie_in_others() -> None:
    origin = {"origin": "2026-01-06"}
    calendars = [
        Calendar(every, zone, **where)
        for every, where in (
            *((every, {}) for every in ("1h", "6h", "90min", "1d", "2d", "1w", "2w", "1mo", "3mo", "1y")),
            *((every, origin) for every in ("1d", "1w", "2d")),
        )
        for zone in (None, "Europe/Berlin")
    ]
    for one, other in product(calendars, calendars):
        if one.period.is_within(other.period):
            low, high = (other.number(one.edge(one.number(10**15 + year * 31_557_600_000_000))) for year in (0, 3))
            starts = {one.number(int(edge)) for edge in other.edges(low, high)}
            assert {one.edge(number) for number in starts} == set(other.edges(low, high).tolist())
            assert one.time_zone == other.time_zone
        elif one.time_zone == other.time_zone and one.period.measure == other.period.measure:
            assert (
                other.period.length % one.period.length or (other.period.begin - one.period.begin) % one.period.length
            )
    week, shifted = Calendar("1w").period, Calendar("7d", origin="2026-01-05").period
    assert week == shifted
    assert not Calendar("1w", "UTC").period.is_within(week)
    assert not week.is_within(UNITS["person a month"].period)
    assert not Calendar("1h").period.is_within(DAY)


def guarantee(name: str, epsilon: float, delta: float = 0.0, distance: float = 0.0, **said) -> Guarantee:
    return Guarantee(epsilon, delta, name, f"of {name}", numeric_distance=distance, rows=UNITS[name], **said)


RELEASES = st.builds(
    lambda name, epsilon, kind: (
        guarantee(name, epsilon)
        if kind == "pure"
        else guarantee(name, epsilon, 1e-9)
        if kind == "approximate"
        else guarantee(name, epsilon, 1e-7, rho=epsilon / 100)
        if kind == "zCDP"
        else guarantee(name, epsilon, 1e-9, 1e-12)
    ),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from([0.1, 0.3, 0.25, 1.0]),
    st.sampled_from(["pure", "approximate", "zCDP", "near its distribution"]),
)


def total(releases: list[Guarantee]) -> tuple[str, oracle.Fraction, oracle.Fraction] | None:
    """The oracle's, as this test states releases."""
    return oracle.in_weakest([(g.unit, g.epsilon, g.delta, g.numeric_distance) for g in releases], IMPLIED)


@given(st.lists(RELEASES, min_size=1, max_size=7))
def test_random_mixtures_equal_the_oracle(releases: list[Guarantee]) -> None:
    found, odometer = total(releases), odometer_of(map(entry, releases))
    if found is None:
        with pytest.raises(ParameterError, match=r"stream 's' with the units .*expected one that all others imply"):
            odometer.total("s")
        return
    unit, epsilon, delta = found
    loss = odometer.total("s")
    composed = compose([entry(each) for each in releases], "s")
    assert (composed.unit, composed.rows) == (unit, UNITS[unit])
    assert 0 <= loss.delta - delta < oracle.Fraction(1, 10**30)
    # Rhos of one unit cost less together.
    concentrated = len({each.unit for each in releases}) == 1 and any(math.isfinite(each.rho) for each in releases)
    assert loss.epsilon <= epsilon if concentrated else loss.epsilon == epsilon


FIRST = date(2026, 1, 1)
MONTHS = [range(31), range(31, 59), range(59, 90)]
DAILY, MONTHLY = Period("days", 1, 0, None), Period("months", 1, 0, None)
UNIT = {"row": UnitRows(), "day": UnitRows("who", 1, DAILY), "month": UnitRows("who", 1, MONTHLY)}
#: Days of the unit's periods, and how often it counts for one row.
COUNTS = {"row": (1, 1), "day": (1, 2), "month": (31, 2)}


def moment(day: int) -> int:
    return ((FIRST - date(1970, 1, 1)).days + day) * 86_400_000_000


def day_entry(unit: UnitRows, epsilon: float, span: tuple[int, int] | None, column: str = "at", **said) -> Entry:
    times = None if span is None else Times(column, said.pop("zone", None), *map(moment, span))
    return entry(Guarantee(epsilon, said.pop("delta", 0.0), str(unit), "of it", rows=unit, times=times, **said))


def of_days(*entries: tuple, **said) -> Odometer:
    return odometer_of(day_entry(*each, **said) for each in entries)


SPANS = st.none() | st.tuples(st.integers(0, 89), st.integers(1, 40)).map(lambda s: (s[0], min(90, sum(s))))
BORDERS = st.none() | st.sampled_from([(0, 31), (31, 59), (0, 59), (59, 90)])
EPSILONS = st.sampled_from([0.1, 0.25, 0.3, 1.0])
OF_DAYS = st.one_of(
    st.tuples(st.sampled_from(["row", "day"]), EPSILONS, SPANS), st.tuples(st.just("month"), EPSILONS, BORDERS)
)


@given(st.lists(OF_DAYS, min_size=1, max_size=9), st.tuples(st.integers(0, 88), st.integers(1, 30)))
def test_days_equal_the_oracle(drawn: list, asked: tuple[int, int]) -> None:
    made = [(UNIT[name], epsilon, span) for name, epsilon, span in drawn]
    odometer = of_days(*made)
    weakest = next(name for name in ("row", "day", "month") if name in {drawn_name for drawn_name, _, _ in drawn})
    releases = [
        (written(epsilon), span, COUNTS[name][0], 1 if name == weakest else 2) for name, epsilon, span in drawn
    ]
    assert odometer.total("s").epsilon == oracle.worst_day(releases, range(90))
    among = range(asked[0], min(90, sum(asked)))
    region = Region.at(Times("at", None, moment(among.start), moment(among.stop)))
    assert odometer.total("s", region).epsilon == oracle.worst_day(releases, range(90), among)
    persons = [release for release, (name, _, _) in zip(releases, drawn, strict=True) if name != "row"]
    for number, month in enumerate(MONTHS):
        assert odometer.of_person("s", MONTHLY, 2026 * 12 + number).epsilon == oracle.person(persons, month)
    # A release that is taken back leaves nothing.
    odometer.add(day_entry(*made[0]), -1)
    assert odometer.of_person("s", MONTHLY, 24312) == of_days(*made[1:]).of_person("s", MONTHLY, 24312)


def inside(table: frozenset[int], days: tuple[int, int] | None) -> frozenset[int]:
    """Rows of a table that a release of these days reads."""
    return table if days is None else frozenset(row for row in table if ROWS[row][2] in DAYS[slice(*days)])


def steps(unit: str, one: frozenset[int], other: frozenset[int]) -> int:
    """Number of changes of a unit between two tables; 9 if there are more than a few."""
    reached, seen = {one}, {one}
    for count in range(9):
        if other in reached:
            return count
        reached = set().union(*(EDGES[unit][table] for table in reached)) - seen
        seen |= reached
    return 9


@pytest.mark.parametrize(
    "releases",
    [
        [("row", 1.0, (0, 1)), ("row", 0.5, (1, 3)), ("row", 0.25, (0, 4))],
        [("person a day", 1.0, (0, 1)), ("person a day", 0.5, (1, 3)), ("person a day", 0.25, None)],
        [("person a day", 1.0, (1, 2)), ("person a month", 0.5, (0, 2)), ("person a month", 0.25, (2, 4))],
        [("person a month", 1.0, (0, 2)), ("row", 0.5, (2, 4)), ("row", 0.25, (1, 2))],
        [("2 rows a day", 1.0, (0, 1)), ("2 rows a day", 0.5, (3, 4)), ("row", 0.25, (0, 2))],
        [("person", 1.0, None), ("person a day", 0.5, (0, 1)), ("person a day", 0.5, (3, 4))],
    ],
)
def test_no_pair_of_tables_loses_more_than_the_ledger_says(releases: list) -> None:
    """By all pairs of 128 tables: a release loses epsilon for every change of its unit between the rows it reads."""
    begin = (DAYS[0] - FIRST).days
    spans = [None if days is None else (begin + days[0], begin + days[1]) for _, _, days in releases]
    # The unit of a month is one of all its days, not of those two that the tables have.
    whole = {(0, 2): (0, 31), (2, 4): (31, 59)}
    entries = []
    for (name, epsilon, days), span in zip(releases, spans, strict=True):
        unit = UNITS[name]
        entries.append((unit, epsilon, whole[days] if unit.period == MONTH and days is not None else span))
    odometer = of_days(*entries)
    names = {name for name, _, _ in releases}
    weakest = next(name for name in names if all(UNITS[one].times(UNITS[name]) for one in names))
    claimed, most = odometer.total("s").epsilon, 0.0
    for one, nearby in EDGES[weakest].items():
        for other in nearby:
            lost = sum(e * steps(name, inside(one, days), inside(other, days)) for name, e, days in releases)
            most = max(most, lost)
            assert lost <= claimed, (one, other)
    assert most >= claimed / 2
    if not any(UNITS[name].period for name in names) or "row" in names:
        return
    # All rows of a person in one month change, in any way.
    for number, month in enumerate((1, 2)):
        bound = odometer.of_person("s", MONTHLY, 2026 * 12 + number).epsilon
        mine = [row for row, (who, _, day) in enumerate(ROWS) if who == "p" and day.month == month]
        for one in EDGES[weakest]:
            other = one - frozenset(mine)
            lost = sum(e * steps(name, inside(one, days), inside(other, days)) for name, e, days in releases)
            assert lost <= bound


def test_deltas_and_rhos_of_a_person() -> None:
    """Of disjoint days deltas and rhos add up; a release of m days is one of m changes for a person."""
    gaussian = {"delta": 1e-9, "rho": 0.01}
    per_day = UNIT["day"]
    loss = of_days(*((per_day, 0.5, (day, day + 1)) for day in range(31)), **gaussian).of_person("s", MONTHLY, 24312)
    assert (loss.delta, loss.rho) == (31 * written(1e-9), 31 * written(0.01))
    assert 2.0 < loss.epsilon < 5.0 < 31 * 0.5
    once, everywhere, two_months = (
        of_days((per_day, 0.5, span), **gaussian).of_person("s", MONTHLY, 24312) for span in ((0, 31), None, (0, 59))
    )
    assert once.rho == 31**2 * written(0.01)
    assert once.delta >= 31 * math.exp(30 * 0.5) * 1e-9 * (1 - 1e-12)
    assert (everywhere.epsilon, everywhere.rho) == (once.epsilon, once.rho)
    assert everywhere.delta == pytest.approx(float(once.delta))
    assert two_months.delta >= once.delta, "an earlier part of the release has its share of delta"
    assert math.isinf(of_days((per_day, math.inf, (3, 4))).of_person("s", MONTHLY, 24312).epsilon)
    # Sums for each period, beside those of a day, are no pure losses.
    days = of_days(*[(per_day, 0.9, (0, 2))] * 10, delta=1e-6, rho=0.02).total("s")
    assert days.rho == 10 * written(0.02)
    assert float(days.epsilon) == pytest.approx(zcdp_epsilon(0.2, 1e-5), rel=1e-9)


def test_a_longer_unit_counts_twice_in_its_own_periods_alone() -> None:
    """All rows of a person's year go and those of the other months come back; another year has its own releases."""
    year = UnitRows("who", 1, Period("months", 12, 0, None))
    odometer = of_days((UNIT["day"], 0.25, (3, 4)), (year, 0.5, (0, 365)), (year, 1.0, (365, 730)))
    found = [odometer.of_person("s", MONTHLY, 24312 + month).epsilon for month in (0, 1, 12, 24)]
    assert found == [1.25, 1.0, 2.0, 0.0]
    odometer.add(day_entry(year, 0.125, None))
    assert odometer.of_person("s", MONTHLY, 24312).epsilon == 1.5


def test_times_of_other_columns_and_zones_add_up() -> None:
    row = UNIT["row"]
    for other in (day_entry(row, 0.5, (1, 2), "sent"), day_entry(row, 0.5, (1, 2), zone="Europe/Berlin")):
        entries = [day_entry(row, 1.0, (0, 1)), other, day_entry(row, 0.25, None)]
        assert odometer_of(entries).total("s").epsilon == 1.75
    # Times that cut a period, and units without periods, are no shares.
    for unit in (UNIT["day"], UnitRows("who"), UnitRows(None, 3)):
        halves = [Times("at", None, moment(day) + 43_200_000_000, moment(day + 1)) for day in (0, 1)]
        entries = [entry(1.0, unit="u", adjacency="a", rows=unit, times=times) for times in halves]
        assert odometer_of(entries).total("s", EVERYWHERE).epsilon == 2.0


# As users meet them.

RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {
        "at": pd.Timestamp("2026-01-01") + pd.to_timedelta(RNG.integers(0, 90 * 86_400, 3000), unit="s"),
        "kwh": RNG.gamma(2.0, 1.0, 3000),
        "who": RNG.integers(0, 40, 3000),
        "town": RNG.choice(["a", "b", "c"], 3000),
    }
)


def day(number: int, last: int | None = None, column: str = "at", **said) -> Time:
    begin = FIRST + timedelta(number)
    return Time(column, "12h", start=begin, stop=FIRST + timedelta(number + 1 if last is None else last), **said)


def nightly(ledger: Ledger, time: Time, epsilon: float = 1.0, unit=Rows(), **said):  # noqa: B008
    return fastdp.counts(FRAME, time, epsilon=epsilon, unit=unit, ledger=ledger, stream="m", **said)


def test_nights_under_the_limit_of_one_and_corrections(ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    person = Person("who", rows=2, per="1d")
    for night in (*range(4), 40, 80):
        table = nightly(account, day(night), unit=person)
    assert "rows at other times than 'at' from 2026-03-22 to 2026-03-23 change nothing that is released" in (
        table.guarantee.derivation
    )
    assert account.spent("m").epsilon == 1.0
    with pytest.raises(BudgetError, match=r"has 0\.0 of 1\.0 epsilon left .* needs 0\.25\. Nothing was recorded"):
        nightly(account, day(3), 0.25, person)
    # A correction adds up on its day, and on no other.
    ledger().close()
    account = ledger(limit_epsilon=1.5)
    nightly(account, day(3), 0.5, person)
    assert account.spent("m").epsilon == 1.5
    left = {night: account.remaining("m", times=nightly(account, day(night), 0.125, person).guarantee.times).epsilon
            for night in (2, 50)}  # fmt: skip
    assert left == {2: 0.375, 50: 1.375}
    assert account.entries("m")[0].extent == "'at' from 2026-01-01 to 2026-01-02"
    # Without a public start and stop a release meets every day.
    with pytest.raises(BudgetError):
        nightly(account, Time("at", "12h", start=FIRST), 0.25, person)
    assert account.remaining("m").epsilon == 0.0
    assert account.verify().lines > 8


def test_a_release_costs_each_period_its_own_days(ledger) -> None:
    """One that lies in several, and what begins or ends within one."""
    account, person = ledger(), Person("who", rows=2, per="1d")
    for first, last, epsilon in ((0, 90, 0.0625), (40, 45, 0.25), (58, 60, 0.125)):
        nightly(account, day(first, last), epsilon, person)
    january, february, march = 31 * 0.0625, 28 * 0.0625 + 5 * 0.25 + 0.125, 31 * 0.0625 + 0.125
    months = {"2026-01-01": january, "2026-02-01": february, "2026-03-01": march}
    assert account.by_period("m", "1mo") == {begin: Budget(epsilon, 0.0) for begin, epsilon in months.items()}
    assert account.by_period("m") == {"2026-01-01": Budget(january + february + march, 0.0)}


def test_a_monthly_limit_renews_with_the_time_of_the_data(ledger) -> None:
    account, person = ledger(), Person("who", rows=2, per="1d")
    account.set_limit(1.0, per="1mo", stream="m", note="the board")
    assert account.limits("1mo") == {"m": Budget(1.0, math.inf)}
    assert account.limits() == {}
    assert account.limit("m", "1mo") == Budget(1.0, math.inf)
    for night in (0, 12, 30):
        nightly(account, day(night), 0.25, person)
    # The last night of January ends where February begins.
    assert account.by_period("m", "1mo") == {"2026-01-01": Budget(0.75, 0.0)}
    wanted = (
        r"stream 'm' has cost a person 0\.75 of 1\.0 epsilon from 2026-01-01 to 2026-02-01 \(limit per 1mo\); with "
    )
    with pytest.raises(BudgetError, match=wanted + r"this release it would be 1\.25\. Nothing was recorded"):
        nightly(account, day(30), 0.5, person)
    # Four days of one release are four changes for a person.
    with pytest.raises(BudgetError, match=r"it would be 1\.75"):
        nightly(account, day(4, 8), 0.25, person)
    assert account.remaining("m", times=Times("at", None, moment(4), moment(8))).epsilon == 0.0625
    nightly(account, day(30), 0.25, person)
    # February has a limit of its own, whenever it is asked; January stays spent.
    nightly(account, day(31, 35), 0.25, person)
    for night in (3, 33):
        with pytest.raises(BudgetError):
            nightly(account, day(night), 0.25, person)
    assert account.by_period("m", "1mo") == {"2026-01-01": Budget(1.0, 0.0), "2026-02-01": Budget(1.0, 0.0)}
    assert account.by_period("m") == {"2026-01-01": Budget(2.0, 0.0)}
    assert account.remaining("m").epsilon == 0.0
    # A release without public times counts in every month, for each of its days.
    with pytest.raises(BudgetError):
        nightly(account, Time("at", "1d"), 0.001, person)
    account.set_limit(1.0, per="1mo", stream="other")
    with pytest.raises(
        BudgetError, match=r"0\.0 of 1\.0 epsilon in any period \(limit per 1mo\); .* it would be 7\.75"
    ):
        fastdp.counts(FRAME, Time("at", "1d"), epsilon=0.25, unit=person, ledger=account, stream="other")
    account.set_limit(2.0, per="1mo", stream="m")
    nightly(account, Time("at", "1d"), 0.03125, person)
    assert account.by_period("m", "1mo")[None] == Budget(31 * 0.03125, 0.0)
    assert account.by_period("m", "1mo")["2026-02-01"] == Budget(1.0 + 28 * 0.03125, 0.0)
    said = account.report().splitlines()
    assert said[1] == "  a person, in the period from 2026-01-01 on (1y): epsilon = 13.40625"
    assert (
        said[2]
        == "  a person, in the period from 2026-01-01 on (1mo): epsilon = 1.96875; limit epsilon = 2.0 in each"
    )
    assert account.verify().reserved == []


def test_units_that_are_longer_or_have_no_period_do_not_renew(ledger) -> None:
    account = ledger()
    account.set_limit(1.0, per="1mo")
    nightly(account, day(0, 90), 0.75, Person("who", rows=3))
    with pytest.raises(BudgetError, match=r"has 0\.25 of 1\.0 epsilon left, this release needs 0\.75"):
        nightly(account, day(31, 59), 0.75, Person("who", rows=3))
    assert account.by_period("m", "1mo") == {}
    assert account.report("m").splitlines()[-1] == (
        "  per 1mo; limit epsilon = 1.0 in each, which does not renew: no unit has periods so short"
    )
    weeks = Time("at", "1d", start="2025-12-29", stop="2026-01-05")
    with pytest.raises(ParameterError, match=r"cross the ends of the limit's \(2025-12-01 to 2026-01-01\)"):
        fastdp.counts(FRAME, weeks, epsilon=0.5, unit=Rows(2, per="1w"), ledger=account, stream="weeks")
    assert account.entries("weeks") == []


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("kind", ["counts", "totals", "means"])
@pytest.mark.parametrize(
    ("unit", "keys"),
    [(Rows(), "given"), (Rows(4, per="1d"), None), (Rows(4, per="1d"), "private"),
     (Person("who", rows=2, per="1d"), "given"), (Person("who", rows=2, per="1d"), "private")],
    ids=str,
)  # fmt: skip
def test_rows_at_other_times_change_nothing(kind: str, unit, keys: str | None) -> None:
    """Clip, keys, choices and reports come from rows inside; the noise is that of one key."""
    times = FRAME["at"].between("2026-01-11", "2026-02-10", inclusive="left")
    wild = FRAME.assign(kwh=math.nan, town="elsewhere", who=7)[~times]
    said = {} if kind == "counts" else {"value": "kwh", "bound": 20.0}
    if keys is not None:
        said |= {"by": "town", "keys": ["a", "b"]} if keys == "given" else {"by": "town", "delta": 1e-6}
    time = Time("at", "1d", start="2026-01-11", stop="2026-02-10")
    tables = [
        getattr(fastdp, kind)(frame, time=time, unit=unit, epsilon=4.0, seed=3, **said)
        for frame in (FRAME, FRAME[times], pd.concat([wild, FRAME[times], wild]))
    ]
    assert tables[0].guarantee.times == Times("at", None, moment(10), moment(40))
    for other in tables[1:]:
        pd.testing.assert_frame_equal(tables[0].frame, other.frame)
        assert (tables[0].clipped_rows, tables[0].dropped_rows) == (other.clipped_rows, other.dropped_rows)


def test_times_of_a_guarantee() -> None:
    whole = {"start": "2026-01-01", "stop": "2026-02-01"}
    plans = {
        "one row": (Time("at", "1h", **whole), Rows(), True),
        "no stop": (Time("at", "1h", start="2026-01-01"), Rows(), False),
        "k rows": (Time("at", "1h", **whole), Rows(3), False),
        "a person": (Time("at", "1h", **whole), Person("who"), False),
        "whole weeks": (Time("at", "1d", start="2026-01-05", stop="2026-01-19"), Rows(3, per="1w"), True),
        "half a week": (Time("at", "1d", **whole), Rows(3, per="1w"), False),
    }
    for name, (time, unit, public) in plans.items():
        made = fastdp.counts(FRAME, time, epsilon=1.0, unit=unit, seed=1).guarantee
        assert (made.times is not None) == public, name
        assert Guarantee.from_dict(made.to_dict()) == made
    berlin = ZoneInfo("Europe/Berlin")
    frame = FRAME.assign(at=FRAME["at"].dt.tz_localize(berlin, nonexistent="shift_forward"))
    made = fastdp.counts(frame, Time("at", "1h", **whole), epsilon=1.0, seed=1).guarantee.times
    assert made == Times("at", "Europe/Berlin", moment(0) - 3_600_000_000, moment(31) - 3_600_000_000)
    for wrong in (["at", None, 1], ["at", None, 2, 1], ["at", None, 0.0, 1], [None, None, 0, 1], ["at", 3, 0, 1]):
        with pytest.raises(ParameterError, match="column, zone and two instants"):
            Guarantee.from_dict(Guarantee(1.0).to_dict() | {"times": wrong})


def test_periods_of_all_kinds() -> None:
    """Spans of any length and zone: each begins where the one before ends, and holds the instants between."""
    zones = (None, "UTC", "Europe/Berlin", "+02:00")
    for length, zone in product(("90min", "1d", "2d", "1w", "2w", "1mo", "3mo", "1y"), zones):
        period = Period.of(length, zone)
        for at in (moment(0), moment(86) + 7_200_000_000, -(10**15) - 1):
            number = period.number(at)
            assert period.edge(number) <= at < period.edge(number + 1)
            assert period.between(period.edge(number), period.edge(number + 5)) == 5
            assert period.between(period.edge(number), period.edge(number + 1) - 1) is None


@pytest.mark.parametrize(
    "rows",
    [(), ("a",), ("a", 1), (7, 1, None), ("a", 0, None), ("a", True, None), ("a", 1, ("days", 1, 1, None)),
     ("a", 1, ("years", 1, 0, None)), ("a", 1, ("days", 1.0, 0, None)), ("a", 1, ("days", 1, 0, 5)), "person"],
)  # fmt: skip
def test_rows_that_are_none_are_refused(ledger, rows) -> None:
    with pytest.raises(ParameterError, match="rows = "):
        ledger().spend(Guarantee(0.5, rows=rows), stream="s")
    with pytest.raises(ParameterError, match="rows = "):
        Guarantee.from_dict({**Guarantee(0.5).to_dict(), "rows": rows})
