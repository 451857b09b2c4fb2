"""Reach: distinct entries so far, by key and in all."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.noise.key import Key
from fastdp.tables.counter import counter_for
from fastdp.tables.functions import make_plan
from fastdp.tables.rows import hashing_of
from fastdp.tables.statistics import statistics_of
from tests.oracles import persons
from tests.oracles import reach as oracle

BEGIN, WINDOWS, KEYS = datetime(2024, 1, 1), 4, ("a", "b", "c")
WEEKS = fastdp.Time("at", "1w", start=BEGIN, stop=BEGIN + timedelta(weeks=WINDOWS))
BY = {"by": "key", "keys": list(KEYS)}
REACH = {"who": "reach"}
#: Noise of such a budget is 0.
EXACT = 1e6
#: Entry, window (one too late), key (one not listed): of few entries, so that they come again.
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, WINDOWS), st.sampled_from("abcd")), max_size=25)
Cells = Iterable[tuple[int, int, str]]


def frame(rows: Cells) -> pa.Table:
    rows = list(rows)
    columns = {
        "at": pa.array([BEGIN + timedelta(weeks=row[1], hours=7) for row in rows], pa.timestamp("us")),
        "who": pa.array([row[0] for row in rows], pa.int64()),
        "key": pa.array([row[2] for row in rows], pa.string()),
    }
    return pa.table(columns)


def of(table: fastdp.Table) -> np.ndarray:
    """The numbers of all windows."""
    starts = np.arange(len(table))
    return table.estimate(starts, starts + 1)


def released(rows: Cells, unit: fastdp.Rows | fastdp.Person, epsilon: float = EXACT, **given: object) -> fastdp.Table:
    return fastdp.aggregate(frame(rows), REACH, WEEKS, epsilon=epsilon, unit=unit, seed=1, **given)


def ranks(unit: fastdp.Person) -> object:
    """Hash of an entry and its key, by which keys of one window are in order."""
    plan = make_plan(statistics_of(REACH), WEEKS, epsilon=EXACT, unit=unit, **BY)
    words = np.frombuffer(hashing_of(Key.choose(1, None).bind(plan)), np.uint64).tolist()
    return lambda entry, key: persons.sip(words, [*persons.digest(str(entry)), 0, persons.word((key,))])


@settings(max_examples=40)
@given(ROWS, st.integers(1, 3), st.sampled_from([None, "1d", "1w"]))
def test_persons_count_in_their_first_keys(rows: list[tuple[int, int, str]], most: int, per: str | None) -> None:
    unit = fastdp.Person("who", rows=most, per=per)
    table = released(rows, unit, **BY)
    whole, by_key = oracle.reach(rows, WINDOWS, KEYS, most, ranks(unit))
    assert of(table.level(0)).ravel().tolist() == whole
    assert of(table).tolist() == by_key
    inside = [row for row in rows if row[1] < WINDOWS]
    assert of(released(inside, unit)).tolist() == oracle.reach(inside, WINDOWS, "abcd")[0]


@given(ROWS, st.integers(1, 3))
def test_entries_of_rows_count_in_all_keys(rows: list[tuple[int, int, str]], k: int) -> None:
    table = released(rows, fastdp.Rows(k), **BY)
    whole, by_key = oracle.reach(rows, WINDOWS, KEYS)
    assert (of(table.level(0)).ravel().tolist(), of(table).tolist()) == (whole, by_key)


UNITS = {
    "person": fastdp.Person("who", rows=2),
    "person, period": fastdp.Person("who", rows=2, per="1w"),
    "row": fastdp.Rows(1),
    "rows": fastdp.Rows(2),
}


def without(rows: tuple[tuple[int, int, str], ...], name: str) -> Iterable[tuple[tuple[int, int, str], ...]]:
    """Tables without one unit of entry 0."""
    if name == "person":
        return [tuple(row for row in rows if row[0])]
    if name == "person, period":
        return [tuple(row for row in rows if row[0] or row[1] != week) for week in range(2)]
    own = [i for i, row in enumerate(rows) if not row[0]]
    sizes = (1,) if name == "row" else (1, 2)
    chosen = itertools.chain(*(itertools.combinations(own, size) for size in sizes))
    return [tuple(row for i, row in enumerate(rows) if i not in each) for each in chosen]


@pytest.mark.parametrize("name", UNITS)
def test_no_unit_moves_more_than_the_shares_say(name: str) -> None:
    """All sets of up to four cells of one entry beside another entry, with each neighbour: a removed day too."""
    unit, others = UNITS[name], ((1, 0, "a"), (1, 1, "b"))
    cells = list(itertools.product((0,), range(2), KEYS))
    table = fastdp.plan(REACH, epsilon=1.0, every="1w", windows=WINDOWS, keys=len(KEYS), unit=unit).shares
    claimed = {line.quantity.name: line.moved for line in table.lines}
    wanted = {"reach": 1, "key reach": 2} if name == "person" else {"reach": 2, "key reach": 4}
    assert claimed == (wanted if "person" in name else dict.fromkeys(claimed, 2 * unit.rows))
    found: dict[tuple, dict[str, np.ndarray]] = {}

    def new(rows: tuple[tuple[int, int, str], ...]) -> dict[str, np.ndarray]:
        rows = tuple(sorted(rows))
        if rows not in found:
            made = released(rows, unit, **BY)
            levels = {"reach": of(made.level(0)), "key reach": of(made)}
            found[rows] = {level: np.diff(numbers, axis=0, prepend=0.0) for level, numbers in levels.items()}
        return found[rows]

    worst = dict.fromkeys(claimed, 0.0)
    for size in range(1, 5):
        for own in itertools.combinations(cells, size):
            for rows in {(*own, *others)} | ({(*own[:-1], (2, *own[-1][1:]), *others)} if name == "rows" else set()):
                for fewer in without(rows, name):
                    for level in worst:
                        moved = np.abs(new(rows)[level] - new(fewer)[level]).sum()
                        worst[level] = max(worst[level], moved)
    assert all(worst[level] <= claimed[level] for level in worst)
    # Rows of one entry move the whole by 2, those of two by 4.
    assert worst == claimed | ({"reach": worst["reach"]} if name == "rows" else {})


def test_numbers_never_fall_are_whole_and_parts_stay_within_the_total() -> None:
    generator = np.random.default_rng(5)
    rows = zip(
        generator.integers(0, 40, 300).tolist(),
        generator.integers(0, WINDOWS, 300).tolist(),
        generator.choice(list(KEYS), 300).tolist(),
        strict=True,
    )
    data = frame(rows)
    for seed in range(40):
        unit = [fastdp.Person("who", rows=2), fastdp.Rows(1)][seed % 2]
        table = fastdp.aggregate(data, REACH, WEEKS, epsilon=0.3, unit=unit, seed=seed, **BY)
        whole, by_key = of(table.level(0))[:, None], of(table)
        for numbers in (whole, by_key):
            assert (numbers == np.floor(numbers)).all()
            assert (numbers >= 0).all()
            assert (np.diff(numbers, axis=0) >= 0).all()
        assert (by_key <= whole).all()
        assert table.level(0).estimate(0, WINDOWS) == whole[-1]
        low, high = table.interval(np.arange(WINDOWS), np.arange(WINDOWS) + 1)
        assert (low <= by_key).all()
        assert np.isnan(high).all() if unit.column else (high >= by_key).all()


@pytest.mark.statistical
def test_intervals_hold_the_true_numbers_in_95_percent() -> None:
    rows = [(i, i % WINDOWS, KEYS[i % 2]) for i in range(60)]
    true, by_key = (np.array(each) for each in oracle.reach(rows, WINDOWS, KEYS))
    inside, cells = 0, 0
    data = frame(rows)
    for seed in range(100):
        table = fastdp.aggregate(data, REACH, WEEKS, epsilon=1.0, seed=seed, unit=fastdp.Person("who", rows=3), **BY)
        for each, wanted in ((table, by_key), (table.level(0), true[:, None])):
            low, high = each.interval(np.arange(WINDOWS), np.arange(WINDOWS) + 1)
            inside, cells = inside + np.count_nonzero((low <= wanted) & (wanted <= high)), cells + wanted.size
    assert inside / cells > 0.94


def test_a_person_costs_once_whatever_rows_and_windows() -> None:
    unit, one = fastdp.Person("who", rows=1), {"every": "1w", "epsilon": 1.0}
    planned = [fastdp.plan(REACH, windows=windows, unit=unit, **one) for windows in (1, 52)]
    assert all([line.moved for line in each.shares.lines] == [1] for each in planned)
    # 52 sums of draws of scale 1.
    assert math.isclose(
        planned[1].errors["who_reach"].std_error, math.sqrt(52) * planned[0].errors["who_reach"].std_error
    )
    both = fastdp.plan(REACH, windows=52, keys=20, unit=fastdp.Person("who", rows=3), **one)
    assert [line.moved for line in both.shares.lines] == [1, 3]
    assert math.isclose(both.shares["counts"], 1.0)
    assert list(both.errors) == ["who_reach", "who_reach of all keys"]


def test_reach_beside_other_statistics_and_private_keys() -> None:
    rows = [(i, i % WINDOWS, KEYS[i % 2]) for i in range(400)]
    unit = fastdp.Person("who", rows=2)
    asked = {"who": ["reach", "nunique"], "*": "count"}
    table = fastdp.aggregate(frame(rows), asked, WEEKS, by="key", epsilon=50.0, delta=1e-6, unit=unit, seed=3)
    assert table.keys == {"key": ["a", "b"]}
    assert np.abs(of(table["who_reach"].level(0)).ravel() - [100, 200, 300, 400]).max() < 3
    assert np.abs(of(table["count"])[0] - [100, 0]).max() < 5
    assert sum("reach of 'who'" in line for line in table.guarantee.derivation) == 2
    with pytest.raises(ParameterError, match="level of a table with nunique or reach"):
        table["who_nunique"].level(0)


def test_what_reach_cannot_do_is_refused() -> None:
    unit = fastdp.Person("who", rows=2)
    with pytest.raises(ParameterError, match="reach of 'who', the persons"):
        fastdp.aggregate(frame([]), {"key": "reach"}, WEEKS, epsilon=1.0, unit=unit)
    for call in (fastdp.plan, fastdp.Windows):
        given = {"every": "1w"} if call is fastdp.plan else {"time": WEEKS}
        with pytest.raises(ParameterError, match="rows = 'auto': expected a number, the keys"):
            call(REACH, epsilon=1.0, unit=fastdp.Person("who", rows="auto"), **given)
    with pytest.raises(ParameterError, match="rows = 'auto'"):
        released([(0, 0, "a")], fastdp.Person("who", rows="auto"))
    with pytest.raises(ParameterError, match="expected a count or a sum"):
        released([(0, 0, "a")], unit).whole_numbers()
    missing = frame([(0, 0, "a")]).append_column("x", pa.nulls(1)).rename_columns(["at", "_", "key", "who"])
    with pytest.raises(DataError, match="no person"):
        fastdp.aggregate(missing, REACH, WEEKS, epsilon=1.0, unit=unit)


def test_missing_entries_of_rows_are_none() -> None:
    data = pa.table({"at": [BEGIN] * 3, "who": ["x", None, "x"]})
    table = fastdp.aggregate(data, REACH, WEEKS, epsilon=EXACT, seed=1)
    assert of(table).tolist() == [1.0] * WINDOWS


def test_a_reach_is_printed_planned_and_framed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = released([(i, i % WINDOWS, "ab"[i % 2]) for i in range(90)], fastdp.Person("who", rows=1), 1.0, **BY)
    assert "high is missing, as a person may have more keys" in str(table)
    assert table.frame.column_names[:3] == ["window", "key", "estimate"]
    assert len(table.frame) == WINDOWS * len(KEYS)
    assert "first 1 keys" in " ".join(table.guarantee.derivation)


def online(rows: list[tuple[int, int, str]], unit: fastdp.Rows | fastdp.Person, week: int, by: dict) -> np.ndarray:
    """Numbers of closed windows, of all keys and each; in the middle of a week the state goes through a file."""
    times, asked = fastdp.Time("at", "1w", start=BEGIN), {"epsilon": 1.0, "unit": unit, "seed": 1, **by}
    windows, whole, parts = fastdp.Windows(REACH, times, **asked), [], []
    for now in range(WINDOWS):
        own = [row for row in rows if row[1] == now]
        for part in (own[::2], own[1::2]):
            table = frame(part)
            columns = {name: table[name].combine_chunks() for name in table.column_names}
            values, who = (None, columns["who"]) if unit.column else (columns["who"], None)
            windows.add(columns["at"], values, columns["key"] if by else None, who)
            if now == week:
                windows = fastdp.Windows.from_bytes(windows.to_bytes())
        closed = windows.advance(BEGIN + timedelta(weeks=now + 1))
        whole.append(of(closed.level(0)).ravel())
        parts.append(of(closed).reshape(1, -1))
    return np.concatenate([np.array(whole), *([np.concatenate(parts)] if by else [])], axis=1)


@example([(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 2, "c")], 1, fastdp.Person("who", rows=2), True)
@settings(max_examples=15)
@given(
    ROWS,
    st.integers(0, WINDOWS),
    st.sampled_from([fastdp.Person("who", rows=2), fastdp.Person("who", rows=1, per="1w"), fastdp.Rows(2)]),
    st.booleans(),
)
def test_windows_give_the_numbers_of_a_table(
    rows: list, week: int, unit: fastdp.Rows | fastdp.Person, keyed: bool
) -> None:
    by = BY if keyed else {}
    rows = [row for row in rows if row[1] < WINDOWS]
    table = released(rows, unit, 1.0, **by)
    batch = np.concatenate([of(table.level(0)).reshape(WINDOWS, -1), *([of(table)] if by else [])], axis=1)
    assert online(rows, unit, week, by).tolist() == batch.tolist()


def test_a_kept_file_continues_a_reach(tmp_path: Path) -> None:
    """It grows by 16 bytes a person, and 16 for each key in which one counts, beside waiting rows."""
    unit, times = fastdp.Person("who", rows=2), fastdp.Time("at", "1w", start=BEGIN)
    windows, twin = (fastdp.Windows(REACH, times, epsilon=1.0, unit=unit, seed=1, **BY) for _ in range(2))
    windows.keep(tmp_path / "kept")
    for week in range(WINDOWS):
        data = frame((i % 900, week, KEYS[i % 3]) for i in range(300 * week, 300 * week + 600))
        given = {"times": data["at"], "keys": data["key"], "persons": data["who"]}
        for each in (windows, twin):
            each.add(**{name: column.combine_chunks() for name, column in given.items()})
        windows = fastdp.Windows.load(tmp_path / "kept")
        closed = [each.advance(BEGIN + timedelta(weeks=week + 1)) for each in (windows, twin)]
        assert of(closed[0]).tolist() == of(closed[1]).tolist()
        assert of(closed[0].level(0)).tolist() == of(closed[1].level(0)).tolist()
    assert len(windows.to_bytes()) < 900 * 48 + 4096


@pytest.mark.parametrize(("days", "stop"), [(365, False), (200, True)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_many_windows_are_added_up_by_a_counter(delta: float, days: int, stop: bool) -> None:
    """A person enters a sum of each level; online, cut anywhere, with the bytes of a table of a year or to stop."""
    unit = fastdp.Person("who")
    plan = fastdp.plan(REACH, epsilon=1.0, delta=delta, every="1d", windows=days, unit=unit)
    single = fastdp.plan(REACH, epsilon=1.0, delta=delta, every="1d", windows=1, unit=unit)
    of_singles = math.sqrt(days) * single.errors["who_reach"].std_error
    assert plan.errors["who_reach"].std_error < (1.0 if stop else 0.85) * of_singles
    time = fastdp.Time("at", "1d", start=BEGIN, stop=BEGIN + timedelta(days=days))
    at = np.datetime64(BEGIN) + np.arange(0, days, 2).astype("m8[D]") + np.timedelta64(1, "h")
    data = pa.table({"at": at, "who": np.arange(at.size)})
    asked = {"epsilon": EXACT, "unit": unit, "delta": delta, "seed": 2}
    assert of(fastdp.aggregate(data, REACH, time, **asked)).tolist() == (np.arange(days) // 2 + 1).tolist()
    table = fastdp.aggregate(data, REACH, time, **asked | {"epsilon": 1.0})
    asked |= {"epsilon": 1.0}
    windows, closed = fastdp.Windows(REACH, time if stop else replace(time, stop=None), **asked), []
    windows.add(at, persons=np.arange(at.size))
    if stop:
        # Rows from there on are dropped, one by one too, and are not late.
        for many in (1, 2):
            windows.add([BEGIN + timedelta(days=days)] * many, persons=[7_000] * many)
    for day in (1, 7, 8, 100, 101, 180, days + stop):
        closed.append(windows.advance(BEGIN + timedelta(days=day)))
        windows = fastdp.Windows.from_bytes(windows.to_bytes())
    assert np.concatenate([of(each) for each in closed]).tolist() == of(table).tolist()
    ends = [end for each in closed for end in each.interval(np.arange(len(each)), np.arange(len(each)) + 1)[0]]
    assert ends == table.interval(np.arange(days), np.arange(days) + 1)[0].tolist()
    errors = np.concatenate([each.std_error(np.arange(len(each)), np.arange(len(each)) + 1) for each in closed])
    assert errors.tolist() == table.std_error(np.arange(days), np.arange(days) + 1).tolist()
    assert errors[-1].item() == plan.errors["who_reach"].std_error
    assert windows.late == 0
    if stop:
        assert len(windows.advance(BEGIN + timedelta(days=days + 9))) == 0
        assert windows.guarantee.times == table.guarantee.times


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("new", [0, 50])
@pytest.mark.parametrize("days", [40, 365])
def test_errors_are_those_that_are_stated_of_constant_and_of_growing_numbers(days: int, new: int) -> None:
    """A maximum of noise that stays exceeds a true number that stays; one below it lags behind one that grows."""
    time = fastdp.Time("at", "1d", start=BEGIN, stop=BEGIN + timedelta(days=days))
    day = np.repeat(np.arange(days), new) if new else np.zeros(80, np.int64)
    data = pa.table({"at": np.datetime64(BEGIN, "us") + day.astype("m8[D]"), "who": np.arange(day.size)})
    truth, starts = np.cumsum(np.bincount(day, minlength=days)), np.arange(days)
    tables = [
        fastdp.aggregate(data, REACH, time, epsilon=1.0, unit=fastdp.Person("who"), seed=seed) for seed in range(60)
    ]
    found = np.array([table.estimate(starts, starts + 1).ravel() - truth for table in tables])
    stated = tables[0].std_error(starts, starts + 1).ravel()
    assert np.sqrt(np.mean(found**2)) <= 1.05 * np.sqrt(np.mean(stated**2))
    assert (np.sqrt(np.mean(found**2, axis=0)) <= 1.4 * stated).all()


@pytest.mark.parametrize("windows", [1, 52, 100, 365])
@pytest.mark.parametrize("gaussian", [False, True])
def test_a_window_is_in_one_sum_of_each_level(windows: int, gaussian: bool) -> None:
    counter = counter_for(windows, gaussian=gaussian)
    none = np.zeros((counter.levels, windows), np.int64)
    sums, total = counter.sums(np.eye(windows, dtype=np.int64), none, 0)
    assert set(np.unique(sums)) <= {0, 1}
    assert sums.sum(axis=0).max() <= counter.levels
    assert np.array_equal(total, np.tri(windows, dtype=np.int64))
    assert np.array_equal(counter.running(sums, none, 0), total)
    assert (windows > 120) <= (counter.levels > 1) <= (windows > 9)
    times = np.arange(1, windows + 1)
    assert np.array_equal(counter.most_draws(times), np.maximum.accumulate(counter.draws(times)))
    time = fastdp.Time("at", "1d", start=BEGIN, stop=BEGIN + timedelta(days=windows))
    table = fastdp.aggregate(frame([]), REACH, time, epsilon=1.0, delta=1e-6 * gaussian, seed=1)
    assert table.guarantee.epsilon == 1.0
    plan = fastdp.plan(REACH, epsilon=1.0, every="1d", windows=windows)
    assert plan.shares.lines[0].moved == 2 * counter_for(windows, gaussian=False).levels
