"""Units of tables: which imply which, by brute force over tables, and random mixtures against the oracle."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from itertools import combinations, product

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp import Guarantee, Ledger
from fastdp.errors import BudgetError, ParameterError
from fastdp.ledger import Entry, compose
from fastdp.ledger.odometer import Odometer
from fastdp.tables.calendar import Calendar
from fastdp.tables.table import Table
from fastdp.units import Period, UnitRows
from tests.oracles import ledger as oracle
from tests.tables import flat

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
    """Every change of the weaker unit, in every table."""
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
    """Each edge of the longer one is one of the shorter, over years; a zone or an origin of another kind never."""
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
    assert not week.is_within(MONTH)
    assert not Calendar("1h").period.is_within(DAY)


def guarantee(name: str, epsilon: float, delta: float = 0.0, distance: float = 0.0, **said) -> Guarantee:
    return Guarantee(epsilon, delta, name, f"of {name}", numeric_distance=distance, rows=UNITS[name], **said)


def entry(made: Guarantee) -> Entry:
    return Entry(1, "", "s", made, None, None, None, None, "", "spent")


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
    found, odometer = total(releases), Odometer()
    for each in releases:
        odometer.add(entry(each))
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


@given(st.lists(RELEASES, min_size=2, max_size=6), st.sampled_from([0.5, 1.0, 2.5]))
def test_a_limit_holds_for_the_weakest_unit(tmp_path_factory: pytest.TempPathFactory, releases, limit: float) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "budget")
    ledger.set_limit(limit, stream="s")
    held: list[Guarantee] = []
    for each in releases:
        each = Guarantee(each.epsilon, 0.0, each.unit, each.adjacency, rows=each.rows)
        found = total([*held, each])
        if found is not None and found[1] <= oracle.written(limit):
            ledger.spend(each, stream="s")
            held.append(each)
            assert oracle.written(ledger.spent("s").epsilon) == found[1]
        else:
            with pytest.raises(ParameterError if found is None else BudgetError):
                ledger.spend(each, stream="s")
    assert [each.guarantee.epsilon for each in ledger.entries()] == [each.epsilon for each in held]
    assert not held or ledger.verify().lines == len(held) + 2
    ledger.close()


FRAME = pd.DataFrame(
    {
        "person": ["a", "a", "b"] * 20,
        "device": ["x", "y", "y"] * 20,
        "at": [datetime(2026, 1, 5), datetime(2026, 2, 5), datetime(2026, 1, 7)] * 20,
    }
)


class TestTables:
    """Units of tables, as users meet them."""

    def count(self, ledger: Ledger, every: str = "1d", **said) -> Table:
        said = {"who": "person", "contributions": 2, **said}
        return flat.counts(
            FRAME, "at", every, epsilon=0.5, start="2026-01-01", stop="2026-03-01", ledger=ledger, stream="s", **said
        )

    def test_a_person_counts_twice_for_a_person_a_month(self, ledger) -> None:
        """With one row of a person that counts, whoever removes that month's row moves the other month's too."""
        account = ledger(limit_epsilon=2.0)
        self.count(account)
        assert account.spent("s").unit == "one person"
        self.count(account, period="1mo")
        spent = account.spent("s")
        assert (spent.unit, spent.epsilon) == ("one person in any period of 1mo", 1.5)
        with pytest.raises(
            BudgetError, match=r"needs 0\.5 \(in total 2\.5: beside a weaker unit a release counts twice"
        ):
            self.count(account)
        self.count(account, period="1mo")
        assert account.spent("s").epsilon == 2.0
        assert Guarantee.from_dict(spent.to_dict()) == Guarantee.from_dict(json.loads(spent.to_json())) == spent

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"who": "person"}, {"who": "device"}),
            ({"period": "1mo"}, {"period": "1w"}),
            ({"period": "1d"}, {"period": "1d", "zone": "Asia/Tokyo"}),
            ({"period": "1w"}, {"period": "1w", "origin": "2026-01-01"}),
            ({"who": None}, {"who": None, "contributions": 3, "period": "1mo"}),
        ],
        ids=["another column", "weeks in months", "another zone", "another origin", "3 rows a month beside 2 rows"],
    )
    def test_what_does_not_follow_is_refused_with_both_units(self, ledger, first, second) -> None:
        account = ledger()
        self.count(account, **first)
        with pytest.raises(
            ParameterError, match=r"stream 's' with the units .*; .*expected one that all others imply"
        ):
            self.count(account, **second)
        assert len(account.entries()) == 1

    def test_rows_and_persons_meet_in_one_row(self, ledger) -> None:
        account = ledger()
        self.count(account, who=None, contributions=3)
        with pytest.raises(ParameterError, match=r"3 rows of the table .*; one person in any period of 1mo"):
            self.count(account, period="1mo")
        self.count(account, who=None, contributions=1)
        self.count(account, period="1mo")
        spent = account.spent("s")
        assert (spent.unit, spent.epsilon) == ("one row of the table", 2.0)
        assert sum("each counts" in line for line in spent.derivation) == 2


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
