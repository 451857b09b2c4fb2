"""Rows of a person that count: those of least hash, against an oracle, in any order, and whatever others do."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning, DataError
from fastdp.noise.key import Key
from fastdp.tables.columns import Numbers
from fastdp.tables.persons import BatchRows, Kept, PersonRows
from fastdp.tables.sums import CellRows
from tests.oracles import tables
from tests.tables import flat
from tests.tables.rows import SECRET, as_family, below, column, expected, random_rows

HOUR = 3_600_000_000
WEEK = {"start": "2024-01-01", "stop": "2024-01-08"}
#: Person, hour, key: few, so that rows repeat.
ROW = st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 1))
#: A few rows only, so that the warning says nothing.
few_rows = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


def kept_rows(rows: list[tuple], period: str | None, most: int, per_window: int | None) -> tuple[Kept, Counter]:
    """Numbers of (person, hour, key) that count, and their rows."""
    options = {"contributions": most, "period": period, "per_window": per_window, "who": "who"}
    plan = flat.make_plan("totals", every="4h", epsilon=1.0, clip=1.0, **options)
    found = PersonRows(plan, Key.from_bytes(SECRET))
    table = np.array(rows, np.int64).reshape(-1, 3)
    times = table[:, 1] * HOUR
    persons, windows = found.persons.digests.of(table[:, 0] * 7919, -table[:, 0]), plan.calendar.numbers(times)
    # The value tells the row.
    values = (table @ [10_000, 10, 1]).astype(float)
    rows = CellRows(windows, table[:, 2].copy(), values[None])
    found.add(BatchRows(rows, times, persons), 5 - table[:, 2])
    kept = found.kept(plan)
    told = Counter((int(v) // 10_000, int(v) % 10_000 // 10, int(v) % 10) for v in kept.rows.values[0])
    cells = zip(kept.rows.windows, kept.rows.codes, strict=True)
    assert sorted(cells) == sorted((h // 4, k) for _, h, k in told.elements())
    return kept, told


LIMIT = st.integers(1, 5)


@given(st.lists(ROW, max_size=40), st.permutations(range(40)), st.none() | st.just("12h"), LIMIT, st.none() | LIMIT)
def test_a_persons_rows_depend_on_no_order_and_on_nobody_else(
    rows: list[tuple], order: list[int], period: str | None, most: int, per_window: int | None
) -> None:
    found, told = kept_rows(rows, period, most, per_window)
    shuffled = [rows[i] for i in order if i < len(rows)]
    assert kept_rows(shuffled, period, most, per_window)[1] == told
    alone = [row for row in rows if row[0] != 1]
    _, others = kept_rows(alone, period, most, per_window)
    assert others == Counter({row: count for row, count in told.items() if row[0] != 1})
    whole = {(p, h // 12 if period else 0) for p, h, _ in rows}
    cut = {(p, h // 12 if period else 0) for p, h, _ in (Counter(rows) - told)}
    dropped = Counter((p, h // 12 if period else 0) for p, h, _ in (Counter(rows) - told).elements())
    assert set(dropped) == cut
    assert found.dropped == sum(min(count, 4 * most) for count in dropped.values())
    for person, span in whole:
        own = Counter({r: c for r, c in told.items() if (r[0], r[1] // 12 if period else 0) == (person, span)})
        there = [r for r in rows if (r[0], r[1] // 12 if period else 0) == (person, span)]
        room = Counter(h // 4 for _, h, _ in there)
        most_here = sum(min(n, per_window or n) for n in room.values())
        assert own.total() == min(most, most_here)
        assert per_window is None or max(Counter(h // 4 for _, h, _ in own.elements()).values()) <= per_window


@pytest.mark.parametrize("kind", ["counts", "totals"])
@pytest.mark.parametrize("family", ["pandas", "reader", "parquet"])
@pytest.mark.parametrize(("period", "per_window"), [("1d", None), ("12h", 2), (None, None)])
def test_tables_with_persons(
    kind: str, family: str, period: str | None, per_window: int | None, tmp_path: Path
) -> None:
    rows = random_rows(250, 3)
    # Equal rows, and others that differ in their value alone.
    rows += rows[:50] + [(*row[:2], -row[2], row[3]) for row in rows[:30]] + rows[:20]
    value, clip = ((), {}) if kind == "counts" else (("kwh",), {"clip": (-1.0, 2.0), "resolution": 0.001})
    found = getattr(flat, kind)(
        as_family(rows, family, tmp_path),
        *(*value, "at", "1h"),
        by="meter",
        keys=["a", "b", "d"],
        epsilon=1.0,
        contributions=5,
        period=period,
        per_window=per_window,
        who="person",
        start="2024-03-30",
        stop="2024-04-01",
        key=SECRET,
        **clip,
    )
    first, last = (tables.window(tables.instant(datetime(2024, *day), None), "1h", None) for day in ((3, 30), (4, 1)))
    # A hundredth is for rows that count, three for those dropped; of totals one of the rest for those beyond it.
    rest = Fraction(96, 100)
    epsilon = below(rest if kind == "counts" else rest - Fraction(below(rest / 100)))
    lengths = {"1d": ("1d", 0, 24 * HOUR), "12h": ("12h", 0, 12 * HOUR), None: None}
    sums = {
        "counts": ("count", 0, 1, 0, 1.0, 1.0, epsilon),
        "totals": ("total", -1000, 2000, 0, 0.001, 0.001, epsilon),
    }
    valued = {"statistics": [["sum", 0]], "columns": [column(-1.0, 2.0, resolution=0.001)]}
    composed = {} if kind == "counts" else valued
    wanted = expected(
        rows,
        every="1h",
        borders=(0, HOUR),
        span=(first, last),
        zone=None,
        epsilon=1.0,
        keys=[("a",), ("b",), ("d",)],
        by=["meter"],
        key_rule="given",
        who=True,
        contributions=5,
        period=lengths[period],
        per_window=per_window,
        sums=[sums[kind]],
        scales=[5 * (1 if kind == "counts" else 2000) / Fraction(epsilon)],
        **composed,
    )
    name = sums[kind][0]
    assert found.released.cells(name).tolist() == wanted[name]
    unit = "one person" + ("" if period is None else f" in any period of {period}")
    assert (found.guarantee.unit, found.guarantee.epsilon) == (unit, 1.0)


@few_rows
@pytest.mark.parametrize("keys", [["a", "b"], "public", None])
@pytest.mark.parametrize("sums", [{"bound": 3.0}, {"clip": 2.0}])
def test_the_order_of_rows_and_batches_changes_no_byte(keys: Any, sums: dict[str, float]) -> None:
    """Under one key, with keys of every rule and with a clip that is chosen or known."""
    rows = random_rows(400, 7)
    delta = {"delta": 1e-2} if keys is None else {}
    options: dict[str, Any] = {"by": "meter", "keys": keys, "who": "person", "contributions": 9, "epsilon": 50.0}

    def release(order: list[tuple], family: str = "reader") -> Any:
        frame = as_family(order, family, Path())
        return flat.totals(frame, "kwh", "at", "6h", key=SECRET, **options, **sums, **delta).released

    wanted = release(rows, "pyarrow")
    assert wanted.keys["meter"]
    assert wanted.cells("total").any()
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    for order in (rows, sorted(rows), sorted(rows)[::-1], shuffled):
        found = release(order)
        assert np.array_equal(found.cells("total"), wanted.cells("total"))
        assert (found.keys, flat.clip(found), flat.kept_rows(found)) == (
            wanted.keys,
            flat.clip(wanted),
            flat.kept_rows(wanted),
        )


def crowd(n: int = 20_000) -> pd.DataFrame:
    """Rows of 500 users in one week, in the order of time."""
    generator = np.random.default_rng(0)
    seconds = np.sort(generator.integers(0, 7 * 86_400, n))
    at = np.datetime64("2024-01-01") + seconds.astype("timedelta64[s]")
    return pd.DataFrame({"at": at, "user": generator.integers(0, 500, n)})


@few_rows
@pytest.mark.parametrize("online", [False, True])
def test_days_have_their_shape(online: bool) -> None:
    """Ten rows of some forty in a week: every day has its share, however early it is."""
    frame, days = crowd(), []
    options: dict[str, Any] = (
        {"contributions": 14, "per_window": 2, "period": "1w"} if online else {"contributions": 10}
    )
    for seed in range(20):
        key = Key.from_bytes(SECRET).within("test", seed)
        if online:
            windows = flat.windows("1d", 1.0, "2024-01-01", counts=True, who=True, key=key, **options)
            windows.add(frame["at"], persons=frame["user"])
            days.append(flat.values(windows.advance("2024-01-08").released, "count")[:, 0])
        else:
            found = flat.counts(frame, "at", "1d", epsilon=1.0, who="user", key=key, **WEEK, **options)
            days.append(flat.values(found.released, "count")[:, 0])
    true = frame.groupby(frame["at"].dt.day).size().to_numpy(float)
    shape = true / true.mean()
    assert np.abs(np.mean(days, axis=0) / np.mean(days) / shape - 1.0).max() < 0.03
    assert np.abs(days / np.mean(days, axis=1, keepdims=True) / shape - 1.0).max() < 0.25


@few_rows
def test_hours_of_a_day_are_flat() -> None:
    found = flat.counts(
        *(crowd(60_000), "at", "1h"), epsilon=1e4, who="user", contributions=5, period="1d", key=SECRET, **WEEK
    )
    hours = flat.values(found.released, "count").reshape(7, 24).sum(axis=0)
    assert np.abs(hours / hours.mean() - 1.0).max() < 0.1


@few_rows
def test_equal_rows_each_count() -> None:
    """900 equal rows of a person on Monday and 100 on Tuesday are kept 9 to 1, in dates without a time of day."""
    at = np.array(["2024-01-01"] * 900 + ["2024-01-02"] * 100, "M8[s]")
    frame = pd.DataFrame({"at": np.tile(at, 200), "who": np.repeat(np.arange(200), 1000)})
    found = flat.counts(
        *(frame, "at", "1d"), epsilon=1e4, who="who", contributions=10, period="1w", start="2024-01-01", key=SECRET
    )
    monday, tuesday = np.rint(flat.values(found.released, "count")[:2, 0])
    assert monday + tuesday == 2000
    # Sd 13.
    assert abs(tuesday - 200) < 60


@few_rows
def test_rows_of_unreleased_keys_use_up_a_persons_rows() -> None:
    """One set of rows decides about keys, clip and sums, and is reported: else a person would have two such sets."""
    rows = [
        (datetime(2024, 1, 1, hour), "often" if hour < 12 else f"own {person} {hour}", 1.0 + hour, person)
        for person in range(400)
        for hour in range(24)
    ]
    frame = as_family(rows, "pyarrow", Path())
    options: dict[str, Any] = {"by": "meter", "delta": 1e-6, "epsilon": 400.0, "contributions": 8, "who": "person"}
    found = flat.counts(frame, "at", "1d", key=SECRET, **options).released
    assert found.keys == {"meter": ["often"]}
    count = flat.values(found, "count")[0, 0]
    # Sd 29 of 1,600; were the rows of other keys dropped before, each person had eight.
    assert abs(count - 400 * 4) < 200
    assert flat.kept_rows(found) == pytest.approx(8 / 24, abs=0.05)


@few_rows
def test_values_are_checked_before_a_secret_chooses_rows() -> None:
    rows = [(datetime(2024, 1, 1, hour), "a", np.nan if hour == 5 else 1.0, 1) for hour in range(24)]
    options: dict[str, Any] = {"epsilon": 1.0, "who": "person", "contributions": 1, "clip": 2.0}
    frame = as_family(rows, "pyarrow", Path())
    for seed in range(8):
        with pytest.raises(DataError, match="not a finite number"):
            flat.totals(frame, "kwh", "at", "1d", seed=seed, **options)
    assert flat.totals(frame, "kwh", "at", "1d", seed=1, start="2024-01-02", stop="2024-01-03", **options)


def test_most_rows_dropped_is_reported() -> None:
    rows = [(datetime(2024, 1, 1), "a", 1.0, person) for person in range(2000) for _ in range(4)]
    frame = as_family(rows, "pyarrow", Path())
    options = {"epsilon": 5.0, "who": "person", "seed": 1}
    with pytest.warns(AccuracyWarning, match="of the persons' rows are dropped"):
        cut = flat.counts(frame, "at", "1d", contributions=3, **options).released
    assert flat.kept_rows(cut) == pytest.approx(0.75, abs=0.1)
    assert fastdp.tables.table.Table(cut).dropped_rows == pytest.approx(1.0 - flat.kept_rows(cut))
    whole = flat.counts(frame, "at", "1d", contributions=4, **options).released
    assert flat.kept_rows(whole) > 0.9


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=6))
def test_a_table_of_numbers_grows(sizes: list[int]) -> None:
    numbers, wanted = Numbers(), {}
    for turn, size in enumerate(sizes):
        first = (np.arange(size) * 7 + turn * 3) % 1500
        found = numbers.of(first, first % 11 - 5)
        assert found.tolist() == [wanted.setdefault(each, len(wanted)) for each in first.tolist()]
    assert numbers.size == len(wanted)


def test_rows_need_both_a_time_and_a_person() -> None:
    import pyarrow

    frame = pyarrow.table(
        {
            "times": pyarrow.array([datetime(2024, 1, 1, 3), None, datetime(2024, 1, 1, 3)], pyarrow.timestamp("us")),
            "p": pyarrow.array([1, 1, None]),
        }
    )
    options = {"who": "p", "contributions": 5, "start": "2024-01-01", "stop": "2024-01-02", "missing": "drop"}
    found = flat.counts(frame, every="1d", epsilon=1e3, seed=1, **options)
    assert flat.values(found.released, "count").tolist() == [[1.0]]


def test_rows_are_counted_up_to_five_times_the_limit() -> None:
    """Persons of 4 rows and of 12, of whom 2 count each: the frame says "capped", and 4 + 10 is the number."""
    persons = np.repeat(np.arange(6000), np.tile([4, 12], 3000))
    frame = as_family([(datetime(2024, 1, 1), "a", 1.0, person) for person in persons.tolist()], "pyarrow", Path())
    with pytest.warns(AccuracyWarning, match="of the persons' rows are dropped"):
        found = fastdp.counts(frame, "at", "1d", epsilon=4.0, unit=fastdp.Person("person", rows=2), seed=1)
    assert found.arrow["about"][0].as_py() == "capped"
    value, (low, high) = found.sum(0, 1)[0], found.interval(0, 1)
    assert value == pytest.approx(3000 * 14, rel=0.05)
    assert low[0] <= 3000 * 14 < 3000 * 16 <= high[0]
    # Rows beyond the limit would add to the number.
    assert high[0] - value > 3.0 * (value - low[0])
