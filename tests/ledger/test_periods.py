"""Days and budgets: releases of disjoint public times, limits that renew, and what a person loses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, timedelta
from itertools import pairwise, product
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import Guarantee, Person, Rows, Time
from fastdp.errors import BudgetError, ParameterError
from fastdp.guarantee import zcdp_epsilon
from fastdp.ledger import Budget, Entry, Ledger
from fastdp.ledger.odometer import EVERYWHERE, Odometer, Region
from fastdp.units import Period, Times, UnitRows
from fastdp.validation import DAY
from tests.ledger.test_units import DAYS, EDGES, MONTH, ROWS, UNITS
from tests.oracles import ledger as oracle
from tests.oracles.ledger import written

FIRST = date(2026, 1, 1)
MONTHS = [range(31), range(31, 59), range(59, 90)]
DAILY, MONTHLY = Period("days", 1, 0, None), Period("months", 1, 0, None)
UNIT = {"row": UnitRows(), "day": UnitRows("who", 1, DAILY), "month": UnitRows("who", 1, MONTHLY)}
#: Days of the unit's periods, and how often it counts for one row.
COUNTS = {"row": (1, 1), "day": (1, 2), "month": (31, 2)}


def moment(day: int) -> int:
    return ((FIRST - date(1970, 1, 1)).days + day) * DAY


def entry(unit: UnitRows, epsilon: float, span: tuple[int, int] | None, column: str = "at", **said) -> Entry:
    times = None if span is None else Times(column, None, moment(span[0]), moment(span[1]))
    made = Guarantee(epsilon, said.pop("delta", 0.0), str(unit), "of it", rows=unit, times=times, **said)
    return Entry(1, "", "s", made, None, None, None, None, "", "spent")


def odometer_of(entries: Iterable[Entry]) -> Odometer:
    made = Odometer()
    for each in entries:
        made.add(each)
    return made


SPANS = st.none() | st.tuples(st.integers(0, 89), st.integers(1, 40)).map(lambda s: (s[0], min(90, sum(s))))
BORDERS = st.none() | st.sampled_from([(0, 31), (31, 59), (0, 59), (59, 90)])
EPSILONS = st.sampled_from([0.1, 0.25, 0.3, 1.0])
RELEASES = st.one_of(
    st.tuples(st.sampled_from(["row", "day"]), EPSILONS, SPANS), st.tuples(st.just("month"), EPSILONS, BORDERS)
)


@given(st.lists(RELEASES, min_size=1, max_size=9), st.tuples(st.integers(0, 88), st.integers(1, 30)))
def test_days_equal_the_oracle(drawn: list, asked: tuple[int, int]) -> None:
    odometer = odometer_of(entry(UNIT[name], epsilon, span) for name, epsilon, span in drawn)
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
        found = odometer.of_person("s", MONTHLY, 2026 * 12 + number)
        assert found.epsilon == oracle.person(persons, month)
    # A release that is taken back leaves nothing.
    name, epsilon, span = drawn[0]
    odometer.add(entry(UNIT[name], epsilon, span), -1)
    rest = odometer_of(entry(UNIT[name], epsilon, span) for name, epsilon, span in drawn[1:])
    assert odometer.of_person("s", MONTHLY, 24312) == rest.of_person("s", MONTHLY, 24312)


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
        entries.append(entry(unit, epsilon, whole[days] if unit.period == MONTH and days is not None else span))
    odometer = odometer_of(entries)
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
    nights = odometer_of(entry(UNIT["day"], 0.5, (day, day + 1), **gaussian) for day in range(31))
    loss = nights.of_person("s", MONTHLY, 2026 * 12)
    assert loss.delta == 31 * written(1e-9)
    assert loss.rho == 31 * written(0.01)
    assert 2.0 < loss.epsilon < 5.0 < 31 * 0.5
    once = odometer_of([entry(UNIT["day"], 0.5, (0, 31), **gaussian)]).of_person("s", MONTHLY, 2026 * 12)
    assert once.rho == 31**2 * written(0.01)
    assert once.delta >= 31 * math.exp(30 * 0.5) * 1e-9 * (1 - 1e-12)
    everywhere = odometer_of([entry(UNIT["day"], 0.5, None, **gaussian)]).of_person("s", MONTHLY, 2026 * 12)
    assert (everywhere.epsilon, everywhere.rho) == (once.epsilon, once.rho)
    assert everywhere.delta == pytest.approx(float(once.delta))
    # An earlier part of the release has its share of delta.
    assert (
        odometer_of([entry(UNIT["day"], 0.5, (0, 59), **gaussian)]).of_person("s", MONTHLY, 24312).delta >= once.delta
    )
    assert math.isinf(odometer_of([entry(UNIT["day"], math.inf, (3, 4))]).of_person("s", MONTHLY, 24312).epsilon)


def test_rhos_of_days_compose_by_divergences() -> None:
    """Sums for each period, beside those of a day, are no pure losses."""
    gaussian = {"delta": 1e-6, "rho": 0.02}
    days = odometer_of(entry(UNIT["day"], 0.9, (0, 2), **gaussian) for _ in range(10))
    found = days.total("s")
    assert found.rho == 10 * written(0.02)
    assert float(found.epsilon) == pytest.approx(zcdp_epsilon(0.2, 1e-5), rel=1e-9)


def test_a_longer_unit_counts_twice_in_its_own_periods_alone() -> None:
    """All rows of a person's year go and those of the other months come back; another year has its own releases."""
    year = UnitRows("who", 1, Period("months", 12, 0, None))
    entries = [entry(UNIT["day"], 0.25, (3, 4)), entry(year, 0.5, (0, 365)), entry(year, 1.0, (365, 730))]
    odometer = odometer_of(entries)
    found = [odometer.of_person("s", MONTHLY, 24312 + month).epsilon for month in (0, 1, 12, 24)]
    assert found == [1.25, 1.0, 2.0, 0.0]
    odometer.add(entry(year, 0.125, None))
    assert odometer.of_person("s", MONTHLY, 24312).epsilon == 1.5


def test_times_of_other_columns_and_zones_add_up() -> None:
    row = UNIT["row"]
    entries = [entry(row, 1.0, (0, 1)), entry(row, 0.5, (1, 2), "sent"), entry(row, 0.25, None)]
    assert odometer_of(entries).total("s").epsilon == 1.75
    berlin = Times("at", "Europe/Berlin", moment(1), moment(2))
    other = Guarantee(0.5, 0.0, str(row), "of it", rows=row, times=berlin)
    entries[1] = Entry(1, "", "s", other, None, None, None, None, "", "spent")
    assert odometer_of(entries).total("s").epsilon == 1.75
    # Times that cut a period, and units without periods, are no shares.
    halves = [Times("at", None, moment(day) + DAY // 2, moment(day + 1)) for day in (0, 1)]
    for unit in (UNIT["day"], UnitRows("who"), UnitRows(None, 3)):
        mades = [Guarantee(1.0, 0.0, "u", "a", rows=unit, times=times) for times in halves]
        found = odometer_of(Entry(1, "", "s", made, None, None, None, None, "", "spent") for made in mades)
        assert found.total("s", EVERYWHERE).epsilon == 2.0


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


@pytest.mark.slow
def test_a_year_of_nights_costs_one_night(ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    days = pd.date_range("2026-01-01", "2027-01-01")
    for start, stop in pairwise(days):
        time = Time("at", "1h", start=start, stop=stop)
        fastdp.totals(FRAME, "kwh", time, epsilon=1.0, clip=5.0, ledger=account, stream="m")
    assert account.spent("m").epsilon == 1.0
    assert account.remaining("m") == Budget(0.0, math.inf)
    assert account.verify().lines == 2 * 365 + 1


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


def test_a_monthly_limit_renews_with_the_time_of_the_data(ledger) -> None:
    account, person = ledger(), Person("who", rows=2, per="1d")
    account.set_limit(1.0, per="1mo", stream="m", note="the board")
    assert account.limits("1mo") == {"m": Budget(1.0, math.inf)}
    assert account.limits() == {}
    assert account.limit("m", "1mo") == Budget(1.0, math.inf)
    for night in (0, 12, 30):
        nightly(account, day(night), 0.25, person)
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


def test_two_units_in_one_stream(ledger) -> None:
    """Persons a day count twice for one row; the person's month has the persons' releases alone."""
    account, person = ledger(limit_epsilon=2.5), Person("who", rows=2, per="1d")
    for night in range(3):
        nightly(account, day(night), 1.0, person)
        nightly(account, day(night), 0.5)
    spent = account.spent("m")
    assert (spent.epsilon, spent.unit, spent.times) == (2.5, "one row of the table", None)
    with pytest.raises(BudgetError, match="counts twice"):
        nightly(account, day(2), 0.25, person)
    assert account.by_period("m", "1mo") == {"2026-01-01": Budget(3.0, 0.0)}
    assert account.remaining("m", times=Times("at", None, moment(5), moment(6))).epsilon == 2.5


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("kind", ["counts", "totals", "means"])
@pytest.mark.parametrize("unit", [Rows(), Rows(4, per="1d"), Person("who", rows=2, per="1d")], ids=str)
@pytest.mark.parametrize("keys", [None, "given", "private"])
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
    assert made == Times("at", "Europe/Berlin", moment(0) - DAY // 24, moment(31) - DAY // 24)
    for wrong in (["at", None, 1], ["at", None, 2, 1], ["at", None, 0.0, 1], [None, None, 0, 1], ["at", 3, 0, 1]):
        with pytest.raises(ParameterError, match="column, zone and two instants"):
            Guarantee.from_dict(Guarantee(1.0).to_dict() | {"times": wrong})


def test_periods_of_all_kinds() -> None:
    """Spans of any length and zone: each begins where the one before ends, and holds the instants between."""
    zones = (None, "UTC", "Europe/Berlin", "+02:00")
    for length, zone in product(("90min", "1d", "2d", "1w", "2w", "1mo", "3mo", "1y"), zones):
        period = Period.of(length, zone)
        for at in (moment(0), moment(86) + DAY // 12, -(10**15) - 1):
            number = period.number(at)
            assert period.edge(number) <= at < period.edge(number + 1)
            assert period.between(period.edge(number), period.edge(number + 5)) == 5
            assert period.between(period.edge(number), period.edge(number + 1) - 1) is None
