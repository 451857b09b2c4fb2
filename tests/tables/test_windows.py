"""Windows online: any batches, the same as ``totals``; late rows; state."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.tables.table import Table
from tests.tables import flat
from tests.tables.rows import SECRET, as_family, random_rows

OPTIONS: dict[str, Any] = {
    "by": "meter",
    "keys": ["a", "b"],
    "contributions": 5,
    "period": "5h",
    "per_window": 1,
    "zone": "Europe/Paris",
}
END = "2024-04-02T12:00"


def steps(tables: list[Any], name: str) -> np.ndarray:
    return np.concatenate([table.released.cells(name) for table in tables])


def columns(rows: list[tuple]) -> tuple[Any, ...]:
    times, meters, values, persons = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    )
    return (
        np.array(times, "datetime64[us]"),
        np.array(values, float),
        np.array(meters, str),
        np.array(persons, np.int64),
    )


def online(
    rows: list[tuple], cuts: list[int], kind: str = "totals", **options: Any
) -> tuple[list[Any], fastdp.Windows]:
    what = {"totals": {"bound": 2.5}, "counts": {"counts": True}, "means": {"bound": 2.5, "means": True}}[kind]
    windows = flat.windows("1h", 1.0, "2024-03-29", who=True, key=SECRET, **(OPTIONS | what | options))
    out = []
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        times, values, meters, persons = columns(rows[a:b])
        out.append(windows.add(times, None if kind == "counts" else values, meters, persons))
    out.append(windows.advance(END))
    return out, windows


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
@pytest.mark.parametrize("lateness", [None, "5d"])
def test_the_same_as_a_table(kind: str, lateness: str | None) -> None:
    rows = random_rows(250, 4)
    lateness = None if lateness is None else "120h"
    found, windows = online(rows, [10, 11, 11, 200], kind, lateness=lateness)
    value = () if kind == "counts" else ("kwh",)
    clip = {} if kind == "counts" else {"clip": 2.5}
    table = getattr(flat, kind)(
        as_family(rows, "polars", Path()),
        *(*value, "at", "1h"),
        epsilon=1.0,
        who="person",
        basis="windows",
        start="2024-03-29",
        stop=END,
        key=SECRET,
        **OPTIONS,
        **clip,
    ).released
    assert table.quantities
    for q in table.quantities:
        assert np.array_equal(steps(found, q.name), table.cells(q.name))
        assert flat.noise(found[-1].released, q.name) == flat.noise(table, q.name)
    assert found[-1].released.edges[-1] == table.edges[-1]
    assert windows.late == 0
    assert [each.clip for each in found[-1].released.tails.values()] == [each.clip for each in table.tails.values()]


def test_waiting_rows_of_a_cell_are_added_up() -> None:
    """They take memory of their cells, and the release is that of a table."""
    rows, time = random_rows(12_000, 4), fastdp.Time("at", "1d", start="2024-03-29")
    options: dict[str, Any] = {"by": "meter", "keys": ["a"], "epsilon": 2.0, "key": SECRET}
    options |= {"bounds": fastdp.Value(2.5, clip=2.5), "unit": fastdp.Rows(3)}
    windows = fastdp.Windows({"kwh": "sum", "*": "count"}, time, **options)
    for begin in range(0, len(rows), 400):
        times, values, meters, _ = columns(rows[begin : begin + 400])
        windows.add(times, values, meters)
        # Twice the 4 cells, 1024 more, and those of a call.
        assert windows.state.waiting.size <= 1432
    found, stop = windows.advance("2024-04-02").released, replace(time, stop="2024-04-02")
    table = as_family(rows, "polars", Path())
    whole = fastdp.aggregate(table, {"kwh": "sum", "*": "count"}, stop, **options)
    assert np.array_equal(found.measured[0].steps, whole.released.measured[0].steps)


@pytest.mark.parametrize("unit", [fastdp.Rows(3), fastdp.Person("person", 5, per="5h", per_window=1)])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_quantiles_and_distinct_entries_are_those_of_a_table(unit: Any, delta: float) -> None:
    rows = random_rows(120, 3)
    value = fastdp.Value(2.5, clip=2.5, nonfinite="zero")
    options: dict[str, Any] = {"by": "meter", "keys": ["a", "b"], "epsilon": 2.0, "delta": delta, "unit": unit}
    statistics = {"kwh": ["sum", "median", "p95"], "person": "nunique", "*": "count"}
    time = fastdp.Time("at", "1h", start="2024-03-29", zone="Europe/Paris")
    windows = fastdp.Windows(statistics, time, bounds={"kwh": value}, key=SECRET, **options)
    stop = "2024-03-31T12:00"
    for a, b in ((0, 1), (1, 2), (2, 50), (50, 120)):
        times, values, meters, persons = columns(rows[a:b])
        who = {"persons": persons} if isinstance(unit, fastdp.Person) else {}
        windows.add(times, {"kwh": values, "person": persons}, meters, **who)
    found = windows.advance(stop).released
    table = fastdp.aggregate(
        as_family(rows, "polars", Path()),
        *(statistics, replace(time, stop=stop)),
        bounds={"kwh": value},
        key=SECRET,
        **options,
    ).released
    assert len(found.measured) == len(table.measured) == 4
    for one, other in zip(found.measured, table.measured, strict=True):
        assert np.array_equal(one.steps, other.steps)
        assert one.noise == other.noise


@pytest.mark.parametrize("who", [True, False])
@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
def test_row_by_row_is_the_same(kind: str, who: bool) -> None:
    """Rows in plain types, which are read in another way, and rows in arrays."""
    what = {"totals": {"bound": 2.5}, "counts": {"counts": True}, "means": {"bound": 2.5, "means": True}}[kind]
    options = OPTIONS | what | {"zone": None}
    if not who:
        options = {name: options[name] for name in ("by", "keys", *what)}
    rows, whole, found = random_rows(60, 9, days=2), [], []
    one, other = (flat.windows("1h", 1.0, "2024-03-29", who=who, key=SECRET, lateness="2h", **options) for _ in "ab")
    for row in rows:
        times, values, meters, persons = columns([row])
        value = None if kind == "counts" else values
        whole.append(one.add(times, value, meters, *([persons] if who else [])))
        plain = None if value is None else [float(values[0])], [str(meters[0])], *([[int(persons[0])]] if who else [])
        assert isinstance(other.machine.read([times.item()], *plain, *([] if who else [None]), None).keys, tuple)
        found.append(other.add([times.item()], *plain))
    for tables, windows in ((whole, one), (found, other)):
        tables.append(windows.advance(END))
    name = {"totals": "total", "counts": "count", "means": "deviation"}[kind]
    assert np.array_equal(steps(whole, name), steps(found, name))
    assert one.late == other.late > 0
    assert one.digest == other.digest


@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
@pytest.mark.parametrize("keys", [[["a", 1], ["b", 2], ["a", 2]], fastdp.PrivateKeys()])
def test_a_row_of_texts_and_columns_is_read_as_in_a_batch(keys: Any, zone: str | None) -> None:
    """A row in mappings, whose time is an ISO text, without Arrow; and all rows at once."""
    moments = ["2024-03-31T02:30", "2024-03-31 01:59:59.250", "2024-03-31T03:00:00.123456"]
    clocks = [datetime.fromisoformat(each) for each in moments]
    if zone is not None:
        moments += ["2024-03-31T00:30Z", "2024-03-31T05:30:00+03:30", "2024-10-27T02:30"]
        clocks += [datetime.fromisoformat(each) for each in moments[3:]]
    values, left, right = [1, 2.5, -3, 2**53, 0.5, 7][: len(moments)], list("abcaab"), [1, 2, 3, 1, 2, 2]
    time = fastdp.Time("at", "1h", start="2024-03-30", zone=zone)
    private = isinstance(keys, fastdp.PrivateKeys)
    given = {"keys": keys, "delta": 1e-3} if private else {"keys": keys}
    whole, one, other = (
        fastdp.Windows(
            {"kwh": "sum", "size": "mean"},
            time,
            by=["left", "right"],
            bounds={"kwh": 9.0, "size": 2.0},
            epsilon=1.0,
            key=SECRET,
            **given,
        )
        for _ in range(3)
    )
    for i, (text, clock) in enumerate(zip(moments, clocks, strict=True)):
        for windows, moment in ((one, text), (other, clock)):
            columns = {"size": [1.0], "kwh": [values[i]]}, {"right": [right[i]], "left": [left[i]]}
            assert isinstance(windows.machine.read([moment], *columns, None, None).keys, tuple)
            windows.add([moment], *columns)
        rows = np.array([clock.replace(tzinfo=None)]) if clock.tzinfo is None else [clock]
        n = len(rows)
        arrays = np.full(n, float(values[i])), np.full(n, left[i]), np.full(n, right[i])
        whole.add(rows, {"kwh": arrays[0], "size": np.ones(n)}, {"left": arrays[1], "right": arrays[2]})
    tables = [windows.advance("2024-11-01") for windows in (whole, one, other)]
    shown = [repr(each.arrow.to_pydict()) for each in tables]
    assert shown[0] == shown[1] == shown[2]
    assert whole.digest == one.digest == other.digest


@given(st.data())
def test_any_batches_give_the_same(data: st.DataObject) -> None:
    """With a clock that the rows move, late ones included."""
    rows = sorted(random_rows(60, data.draw(st.integers(0, 5)), days=3))
    # Out of order by up to five hours, beyond the lateness.
    shaken = sorted(rows, key=lambda row: row[0] + timedelta(hours=row[0].minute % 6))
    cuts = sorted(data.draw(st.lists(st.integers(0, 60), max_size=6)))
    whole, one = online(shaken, [], lateness="2h")
    parts, other = online(shaken, cuts, lateness="2h")
    assert np.array_equal(steps(whole, "total"), steps(parts, "total"))
    assert one.late == other.late > 0
    assert one.state.clock == other.state.clock


def test_late_rows_change_nothing_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastdp")
    windows, other = (flat.windows("1h", 1.0, "2024-01-01", counts=True, seed=1) for _ in range(2))
    hour = np.datetime64("2024-01-01T00:30")
    for each in (windows, other):
        each.add([hour])
        assert each.advance("2024-01-01T01:59:59").released.edges.size == 2
    windows.add([hour, hour + 45, hour - 60 * 24 * 400])
    other.add([hour + 45])
    assert (windows.late, other.late) == (2, 0)
    late, punctual = (each.advance("2024-01-02").released for each in (windows, other))
    assert np.array_equal(late.cells("count"), punctual.cells("count"))
    # In any log a late row would be a fact about a row.
    assert caplog.messages == [f"{n} windows of 1h closed" for n in (1, 1, 23, 23)]
    # The clock does not go back.
    assert windows.advance("2024-01-01").released.edges.size == 1


@pytest.mark.parametrize(
    "options",
    [
        {"every": "1w", "period": "1d", "contributions": 2},
        {"every": "1d", "period": "1w", "contributions": 14, "per_window": 2},
        {"every": "2h", "period": "5h", "contributions": 6, "per_window": 2},
        {"every": "1h", "period": "1d", "contributions": 26, "per_window": 1, "zone": "Europe/Paris"},
    ],
)
@given(data=st.data())
def test_windows_and_periods_of_any_length(options: dict[str, Any], data: st.DataObject) -> None:
    """Rows in any order between closings, in any batches; the clock is moved by hand; some rows come twice."""
    rows = random_rows(50, data.draw(st.integers(0, 3)), days=6)
    rows += rows[:20]
    days = [[row for row in rows if row[0].day == day or (day == 29 and row[0].month == 4)] for day in (29, 30, 31)]
    begin = "2024-03-25"
    options = {"by": "meter", "keys": ["a", "c"], "key": SECRET, "epsilon": 1.0, **options}
    windows = flat.windows(start=begin, bound=2.5, who=True, **options)
    out, order = [], data.draw(st.permutations(range(70)))
    for day in days:
        times, values, meters, persons = columns([day[i] for i in order if i < len(day)])
        cut = data.draw(st.integers(0, times.size))
        for part in (slice(cut), slice(cut, None)):
            out.append(windows.add(times[part], values[part], meters[part], persons[part]))
        if day and day[0][0].month == 3:
            out.append(windows.advance(max(row[0] for row in day).date()))
    out.append(windows.advance("2024-04-15"))
    table = flat.totals(
        as_family([row for day in days for row in day], "pandas", Path()),
        *("kwh", "at"),
        clip=2.5,
        who="person",
        start=begin,
        stop="2024-04-15",
        **options,
        basis="windows",
    ).released
    assert np.array_equal(steps(out, "total"), table.cells("total"))


def add_crowd(windows: fastdp.Windows, n: int = 3000) -> None:
    windows.add(np.full(n, np.datetime64("2024-01-01T00:10")), persons=np.arange(n))


def crowded(**options: Any) -> fastdp.Windows:
    given: dict[str, Any] = {"contributions": 24, "per_window": 1, "period": "1d", "seed": 1} | options
    return flat.windows("1h", 1e4, "2024-01-01", counts=True, who=True, **given)


def test_a_call_copies_no_persons(tmp_path: Path) -> None:
    """Neither in memory, where a state shares its rows with the next one, nor in a file, which grows by a row."""
    windows = crowded()
    add_crowd(windows)
    windows.keep(tmp_path / "kept")
    windows.add([datetime(2024, 1, 1, 0, 20)], persons=[5])
    for person in (3001, 3002, 3003):
        before, size = windows.state.waiting, (tmp_path / "kept").stat().st_size
        windows.add([datetime(2024, 1, 1, 0, 30)], persons=[person])
        assert windows.state.waiting.rows is before.rows
        assert (tmp_path / "kept").stat().st_size - size < 4096
    again = fastdp.Windows.load(tmp_path / "kept")
    assert again.advance("2024-01-01T01:00").sum(0, 1) == pytest.approx(3003, abs=0.1)


def test_rows_of_closed_windows_leave_memory_and_file(tmp_path: Path) -> None:
    windows, path = crowded(), tmp_path / "kept"
    add_crowd(windows)
    windows.keep(path)
    windows.add([datetime(2024, 1, 1, 2)], persons=["last"])
    assert path.stat().st_size > 30_000
    windows.advance("2024-01-01T01:00")
    assert windows.state.waiting.gone == 3000
    assert fastdp.Windows.load(path).state.waiting.size == 1
    for hour in (1, 2):
        windows.add([datetime(2024, 1, 1, hour, 30)], persons=["other"])
        again = fastdp.Windows.load(path, replay=True)
        again.add([datetime(2024, 1, 1, hour, 30)], persons=["other"])
        windows = again
    assert (windows.state.waiting.size, windows.state.waiting.gone) == (3, 0)
    windows.add([datetime(2024, 1, 1, 1, 40)], persons=["third"])
    assert path.stat().st_size < 15_000
    found = windows.advance("2024-01-01T03:00")
    assert np.rint(found.sum([0, 1], [1, 2])).ravel().tolist() == [2, 2]


def test_files_in_use_leave_out_rows_of_closed_windows(tmp_path: Path) -> None:
    """Without a restart: the file is written anew when they are most of it, and replays from there."""
    windows, path = crowded(), tmp_path / "kept"
    windows.keep(path)
    add_crowd(windows)
    windows.add([datetime(2024, 1, 1, 2)], persons=["last"])
    windows.advance("2024-01-01T01:00")
    assert path.stat().st_size > 30_000
    windows.add([datetime(2024, 1, 1, 1, 30)], persons=["other"])
    assert path.stat().st_size < 15_000
    assert windows.state.waiting.moved == 1
    again = fastdp.Windows.load(path, replay=True)
    assert again.state.waiting.size == 1
    with pytest.raises(DataError, match="differs from what"):
        again.add([datetime(2024, 1, 1, 1, 30)], persons=["nobody"])
    again.add([datetime(2024, 1, 1, 1, 30)], persons=["other"])
    assert np.rint(again.advance("2024-01-01T03:00").sum([0, 1], [1, 2])).ravel().tolist() == [1, 1]


def test_copies_share_no_rows() -> None:
    windows = crowded()
    add_crowd(windows, 50)
    twin, third = copy.copy(windows), fastdp.Windows.from_bytes(windows.to_bytes())
    for each, persons in ((windows, ["a"]), (twin, ["b", "c"]), (third, ["d", "e", "f"]), (windows, ["a", "0", "g"])):
        each.add([datetime(2024, 1, 1, 0, 20)] * len(persons), persons=persons)
    counts = [round(each.advance("2024-01-01T01:00").sum(0, 1).item()) for each in (windows, twin, third)]
    assert counts == [52, 52, 53]


def test_a_step_can_be_repeated_from_any_state() -> None:
    """States behind one another share rows: a step from an old one leaves those of the new one alone."""
    windows = crowded()
    machine, state = windows.machine, windows.state
    key = windows._key.again()

    def batch(*persons: str) -> Any:
        return machine.read([datetime(2024, 1, 1, 0, 20)] * len(persons), None, None, list(persons), None)

    first = machine.step(state, batch("a", "b"), key).state
    second, third = (machine.step(first, batch(*persons), key).state for persons in ("cde", "fg"))
    sizes = [len(each.waiting.of_first(1)) for each in (state, first, second, third)]
    assert sizes == [0, 2, 5, 4]
    assert np.array_equal(second.waiting.of_first(1)[2:, 3:5], batch(*"cde").digests)


def test_the_family_is_that_of_the_times() -> None:
    import pandas as pd
    import polars as pl

    windows = flat.windows("1h", 1.0, "2024-01-01", counts=True, seed=1)
    at = pd.Series(pd.to_datetime(["2024-01-01"]))
    found = [windows.add(each).released.family for each in (at, pl.Series(at), at.to_numpy())]
    assert found == ["pandas", "polars", "pyarrow"]
    assert windows.advance("2024-01-02").released.cells("count").shape == (24, 1)


def test_state_continues_bit_for_bit(tmp_path: Path) -> None:
    rows = random_rows(90, 6)
    wanted, _ = online(rows, [30, 60])
    windows = flat.windows("1h", 1.0, "2024-03-29", bound=2.5, who=True, key=SECRET, **OPTIONS)
    windows.keep(tmp_path / "state", SECRET)
    for a, b in ((0, 30), (30, 60), (60, 90)):
        windows = fastdp.Windows.load(tmp_path / "state", SECRET)
        times, values, meters, persons = columns(rows[a:b])
        windows.add(times, values, meters, persons)
        again = fastdp.Windows.load(tmp_path / "state", SECRET, replay=True)
        with pytest.raises(DataError, match="differs from what the state file recorded"):
            again.add(times, values + 1.0, meters, persons)
        again.add(times, values, meters, persons)
        assert again.digest == windows.digest
        windows = again
    twin = copy.copy(windows)
    last = windows.advance(END)
    assert np.array_equal(last.released.cells("total"), steps(wanted, "total"))
    assert not np.array_equal(twin.advance(END).released.cells("total"), last.released.cells("total"))


@pytest.mark.parametrize("field", ["closed", "clock"])
def test_damaged_states_are_refused(field: str) -> None:
    from fastdp.state.codec import encode
    from fastdp.state.state_file import Seal

    windows = flat.windows("1h", 1.0, "2024-01-01", counts=True, seed=1)
    windows.add([datetime(2024, 1, 1, 3)])
    content = windows._content(None)
    state = content["now"]["state"]
    state[field] -= 10**12 if field == "clock" else 1
    damaged = Seal(None).pack(encode(content))[1]
    with pytest.raises(StateError, match="damaged"):
        fastdp.Windows.from_bytes(damaged)


def test_waiting_rows_of_a_key_out_of_range_are_refused() -> None:
    from fastdp.state import codec

    options = {"by": "meter", "keys": ["a", "b"], "contributions": 1, "period": "1h", "who": True}
    windows = flat.windows("1h", 1.0, "2024-01-01", counts=True, seed=1, **options)
    windows.add([datetime(2024, 1, 1, 3)], None, ["a"], [1])
    packed = windows._machine.pack(windows._state)
    rows = codec.unpack(packed["log"][0].removeprefix(b"rows:"), "<i8").reshape(-1, 5).copy()
    rows[0, 1] = 2
    with pytest.raises(ValueError, match="a key out of range"):
        windows._machine.unpack({**packed, "log": [b"rows:" + codec.pack(rows, "<i8")]}, windows._key)


def test_refused_rows_change_nothing() -> None:
    windows, other = (
        flat.windows("1h", 1.0, "2024-01-01", bound=2.0, by="k", keys=["a"], who=True, period="1h", seed=1)
        for _ in range(2)
    )
    at = [datetime(2024, 1, 1, hour) for hour in (1, 2)]
    wrong: list[tuple[Any, ...]] = [
        (at, [1.0, np.nan], ["a", "a"], [1, 2]),
        (at, [1.0], ["a", "a"], [1, 2]),
        (at, [1.0, 2.0], ["a"], [1, 2]),
        (at, [1.0, 2.0], ["a", "a"], [1]),
        (at, [1.0, 2.0], ["a", "a"], [1, None]),
        (at, [1.0, 2.0], ["a", "a"], None),
        (at, None, ["a", "a"], [1, 2]),
        ([at[0], None], [1.0, 2.0], ["a", "a"], [1, 2]),
        ([1, 2], [1.0, 2.0], ["a", "a"], [1, 2]),
        (["secret", at[0]], [1.0, 2.0], ["a", "a"], [1, 2]),
    ]
    state = windows.state
    for batch in wrong:
        with pytest.raises((DataError, ParameterError)) as error:
            windows.add(*batch)
        assert "secret" not in str(error.value)
        assert windows.state is state
    for each in (windows, other):
        each.add(at, [1.0, 2.0], ["a", "b"], [1, 2])
    assert np.array_equal(*(w.advance("2024-01-02").released.cells("total") for w in (windows, other)))


def test_far_rows_are_refused() -> None:
    windows = flat.windows("1s", 1.0, "2024-01-01", counts=True, seed=1)
    with pytest.raises(DataError, match="too far behind the first open window"):
        windows.add([datetime(2100, 1, 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "bound = None"),
        ({"bound": 1.0, "by": "k"}, "keys: expected the list of keys"),
        ({"bound": 1.0, "by": "k", "keys": [7, 2**64 - 1]}, "several types, or are beyond int64"),
        ({"bound": 1.0, "lateness": "1d"}, "lateness = '1d': expected a fixed length"),
        ({"bound": 1.0, "start": "2024-01-01T00:30"}, "start = "),
        ({"bound": 1.0, "who": True}, "per = None: expected the period"),
        (
            {"bound": 1.0, "who": True, "period": "1d", "contributions": 50},
            "per_window = None.* such as 2, .* 24 win",
        ),
        (
            {"bound": 1.0, "who": True, "period": "1d", "contributions": 47, "per_window": 2},
            "rows = 47: expected at least 48",
        ),
        (
            {"counts": True, "who": True, "period": "1d", "contributions": 24, "per_window": 1, "zone": "EST5EDT"},
            "expected at least 25, because a period of 1d has up to 25 windows",
        ),
        (
            {"counts": True, "who": True, "period": "150min", "contributions": 2, "per_window": 1, "every": "1h"}
            | {"start": "2024-01-01T01:00"},
            "expected at least 3",
        ),
    ],
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        flat.windows(**({"every": "1h", "epsilon": 1.0, "start": "2024-01-01"} | options))


@pytest.mark.parametrize("lateness", [None, "10min"])
@pytest.mark.parametrize("keys", [None, ["a"], fastdp.PrivateKeys()])
@pytest.mark.parametrize("who", [False, True])
def test_n_seen_counts_rows_as_others_count_values(tmp_path: Path, lateness: Any, keys: Any, who: bool) -> None:
    """Rows one by one or together, late or of keys that are not listed, over a restart; the clock counts nothing."""
    units = {"unit": fastdp.Person("who", 4, "1h")} if who else {}
    private = {"delta": 1e-6} if isinstance(keys, fastdp.PrivateKeys) else {}
    named = {} if keys is None else {"by": "k", "keys": keys}
    time = fastdp.Time("at", "1h", start="2024-01-01")
    windows = fastdp.Windows(
        {"*": "count"}, time, epsilon=1.0, lateness=lateness, seed=1, **units, **named, **private
    )
    windows.keep(tmp_path / "state")
    expected = 0
    for count in (1, 3, 0, 1, 2):
        at = np.datetime64("2024-01-01T00:30", "s") - 3600 * (np.arange(count) % 2) * (expected > 4)
        entries = ["a", "b", "a"][:count]
        windows.add(at, keys=entries if named else None, persons=["x"] * count if who else None)
        windows.advance(f"2024-01-01T00:{10 + expected}")
        expected += count
        assert windows.n_seen == expected
    before = repr(windows.state)
    windows = fastdp.Windows.load(tmp_path / "state")
    assert (windows.n_seen, repr(windows.state)) == (7, before)
    windows.advance("2024-01-01T05:00")
    assert windows.n_seen == fastdp.Windows.from_bytes(windows.to_bytes()).n_seen == 7


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda times: np.array(times, object), lambda times: pd.Series(times, dtype=object)]
)
def test_times_with_and_without_a_zone_are_not_mixed(kind: Any) -> None:
    """Arrow would read all of them as it reads the first one."""
    aware, naive = datetime(2024, 1, 1, 5, tzinfo=UTC), datetime(2024, 1, 1, 5)
    windows = flat.windows("1h", 1.0, "2024-01-01", counts=True, zone="Europe/Paris", seed=1)
    for times in ([aware, naive], [naive, aware]):
        with pytest.raises(DataError, match="expected a column of one type"):
            windows.add(kind(times))
    assert windows.n_seen == 0
    windows.add(kind([aware, aware]))
    windows.add(kind([naive, naive]))
    windows = flat.windows("1h", 1.0, "2024-01-01", counts=True, zone="UTC", period="1h", who=True, seed=1)
    with pytest.raises(DataError, match=r"persons is .* expected a column of one type"):
        windows.add([aware, aware], persons=kind([aware, naive]))


def test_rows_before_the_lateness_do_not_move_the_clock_back() -> None:
    """Its state stays one that is read."""
    windows = flat.windows("1h", 1.0, "2024-01-01", counts=True, lateness="1h", seed=1)
    windows.add([datetime(2024, 1, 1, 0, 10)])
    again = fastdp.Windows.from_bytes(windows.to_bytes())
    assert again.advance("2024-01-01T02:00").released.cells("count").shape == (2, 1)
    assert "the latest time of the rows so far is public knowledge" in " ".join(windows.guarantee.derivation)


@pytest.mark.parametrize("statistics", [{"*": "count"}, {"v": "sum"}, {"v": ["sum", "mean"], "*": "count"}])
def test_dropped_rows_leave_no_upper_end(statistics: dict[str, Any]) -> None:
    """Of 20 rows of a person 2 count, and online no released number tells of the others."""
    time = fastdp.Time("at", "1d", start="2024-05-01")
    unit = fastdp.Person("who", rows=2, per="1d")
    bounds = 10.0 if "v" in statistics else None
    windows = fastdp.Windows(statistics, time, epsilon=5.0, unit=unit, bounds=bounds, seed=1)
    at = np.datetime64("2024-05-01") + np.arange(4000).astype("timedelta64[s]")
    windows.add(at, np.full(4000, 2.0) if bounds else None, None, np.repeat(np.arange(200), 20))
    found = windows.advance("2024-05-02")
    machine = windows.machine
    exact = np.zeros((len(machine.quantities), 1, 1), np.int64)
    of_shards = Table(machine.publish(windows.state.closed, exact, windows._key))
    for table in (found, of_shards):
        for name in table.names:
            assert np.isnan(table[name].arrow["high"].to_pylist()).all()
        assert "high is missing, as no number holds the rows of persons that were dropped" in repr(table)


def test_nothing_beyond_the_clip_is_said_to_be_estimated() -> None:
    time = fastdp.Time("at", "1d", start="2024-05-01")
    windows = fastdp.Windows({"v": "sum"}, time, epsilon=5.0, bounds=10.0, seed=1)
    windows.add(np.full(9, np.datetime64("2024-05-01")), np.full(9, 50.0))
    shown = repr(windows.advance("2024-05-02"))
    assert "estimated" not in shown
    assert "values beyond the bound are not looked for" in shown


def test_a_release_without_windows_is_where_the_clock_stands() -> None:
    windows = fastdp.Windows(
        {"kwh": "sum"}, fastdp.Time("at", "1h", start="2024-05-01"), epsilon=1.0, bounds=10.0, seed=1
    )
    first = windows.add(np.array(["2024-05-01T00:10"], "datetime64[s]"), np.array([1.0]))
    windows.advance("2024-05-01T05:00")
    later = windows.add(np.array(["2024-05-01T05:10"], "datetime64[s]"), np.array([1.0]))
    assert not np.array_equal(first.released.edges, later.released.edges)
