"""Windows online: any batches, the same as ``totals``; late rows; state."""

from __future__ import annotations

import copy
import logging
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
from tests.tables.rows import SECRET, as_family, random_rows

OPTIONS: dict[str, Any] = {
    "by": "meter",
    "keys": ["a", "b"],
    "contributions": 2,
    "period": "5h",
    "time_zone": "Europe/Paris",
}
END = "2024-04-02T12:00"


def steps(tables: list[Any], name: str) -> np.ndarray:
    return np.concatenate([table.sums.columns[name].steps for table in tables])


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
    windows = fastdp.Windows("1h", 1.0, "2024-03-29", who=True, key=SECRET, **(OPTIONS | what | options))
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
    table = getattr(fastdp, kind)(
        as_family(rows, "polars", Path()),
        *(*value, "at", "1h"),
        epsilon=1.0,
        who="person",
        start="2024-03-29",
        stop=END,
        key=SECRET,
        **OPTIONS,
        **clip,
    ).sums
    assert table.columns
    for name, column in table.columns.items():
        assert np.array_equal(steps(found, name), column.steps)
        assert found[-1].sums.columns[name].noise.scale == column.noise.scale
    assert found[-1].sums.edges[-1] == table.edges[-1]
    assert (windows.late, found[-1].sums.clip, found[-1].sums.centre) == (0, table.clip, table.centre)


@given(st.data())
def test_any_batches_give_the_same(data: st.DataObject) -> None:
    """With a clock that the rows move, late ones included."""
    rows = sorted(random_rows(60, data.draw(st.integers(0, 5)), days=3))
    # Out of order by up to five hours, beyond the lateness.
    shaken = sorted(rows, key=lambda row: row[0] + timedelta(hours=hash(row[0]) % 6))
    cuts = sorted(data.draw(st.lists(st.integers(0, 60), max_size=6)))
    whole, one = online(shaken, [], lateness="2h")
    parts, other = online(shaken, cuts, lateness="2h")
    assert np.array_equal(steps(whole, "total"), steps(parts, "total"))
    assert one.late == other.late > 0
    assert one.state.clock == other.state.clock


def test_late_rows_change_nothing_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastdp")
    windows, other = (fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, seed=1) for _ in range(2))
    hour = np.datetime64("2024-01-01T00:30")
    for each in (windows, other):
        each.add([hour])
        assert each.advance("2024-01-01T01:59:59").sums.edges.size == 2
    windows.add([hour, hour + 45, hour - 60 * 24 * 400])
    other.add([hour + 45])
    assert (windows.late, other.late) == (2, 0)
    late, punctual = (each.advance("2024-01-02").sums for each in (windows, other))
    assert np.array_equal(late.columns["count"].steps, punctual.columns["count"].steps)
    # In any log a late row would be a fact about a row.
    assert caplog.messages == [f"{n} windows of 1h closed" for n in (1, 1, 23, 23)]
    # The clock does not go back.
    assert windows.advance("2024-01-01").sums.edges.size == 1


def test_counts_of_persons_last_as_long_as_their_period() -> None:
    """The windows of a period close one by one, and its first two rows count."""
    windows = fastdp.Windows(
        *("1h", 1e4, "2024-01-01"), counts=True, who=True, contributions=2, period="1d", lateness="1min", seed=1
    )
    out = [windows.add([np.datetime64("2024-01-01T00:00") + 60 * hour], persons=["p"]) for hour in range(72)]
    # The last two windows are open, and one day has counts.
    assert steps(out, "count")[:, 0].tolist() == ([1, 1] + [0] * 22) * 2 + [1, 1] + [0] * 20
    assert windows.state.persons.shape == (1, 6)


def test_the_family_is_that_of_the_times() -> None:
    import pandas as pd
    import polars as pl

    windows = fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, seed=1)
    at = pd.Series(pd.to_datetime(["2024-01-01"]))
    found = [windows.add(each).sums.family for each in (at, pl.Series(at), at.to_numpy())]
    assert found == ["pandas", "polars", "pyarrow"]
    assert windows.advance("2024-01-02").sums.columns["count"].steps.shape == (24, 1)


def test_nothing_closes_without_the_clock() -> None:
    windows = fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, seed=1)
    for _ in range(3):
        assert windows.add([datetime(2024, 5, 1)]).sums.columns["count"].steps.shape == (0, 1)


def test_state_continues_bit_for_bit(tmp_path: Path) -> None:
    rows = random_rows(90, 6)
    wanted, _ = online(rows, [30, 60])
    windows = fastdp.Windows("1h", 1.0, "2024-03-29", bound=2.5, who=True, key=SECRET, **OPTIONS)
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
    assert np.array_equal(last.sums.columns["total"].steps, steps(wanted, "total"))
    assert not np.array_equal(twin.advance(END).sums.columns["total"].steps, last.sums.columns["total"].steps)


def test_an_advance_is_replayed(tmp_path: Path) -> None:
    windows = fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, seed=1)
    windows.keep(tmp_path / "state")
    wanted = windows.advance("2024-01-02").sums.columns["count"].steps
    again = fastdp.Windows.load(tmp_path / "state", replay=True)
    with pytest.raises(DataError, match="differs from"):
        again.advance("2024-01-03")
    assert np.array_equal(again.advance("2024-01-02").sums.columns["count"].steps, wanted)


@pytest.mark.parametrize("field", ["sums", "chains", "persons", "closed", "clock"])
def test_damaged_states_are_refused(field: str) -> None:
    import json

    from fastdp.state.content import as_text
    from fastdp.state.seal import Seal

    windows = fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, seed=1)
    windows.add([datetime(2024, 1, 1, 3)])
    content = json.loads(json.dumps(windows._content(None)))
    state = content["now"]["state"]
    if field in ("closed", "clock"):
        state[field] -= 10**12 if field == "clock" else 1
    else:
        state[field]["shape"] = [*state[field]["shape"][:-1], 1, state[field]["shape"][-1]]
    damaged = Seal(None).pack(as_text(content))[1]
    with pytest.raises(StateError, match="damaged"):
        fastdp.Windows.from_bytes(damaged)


def test_refused_rows_change_nothing() -> None:
    windows, other = (
        fastdp.Windows("1h", 1.0, "2024-01-01", bound=2.0, by="k", keys=["a"], who=True, seed=1) for _ in range(2)
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
    assert np.array_equal(*(w.advance("2024-01-02").sums.columns["total"].steps for w in (windows, other)))


def test_far_rows_are_refused() -> None:
    windows = fastdp.Windows("1s", 1.0, "2024-01-01", counts=True, seed=1)
    with pytest.raises(DataError, match="too far behind the first open window"):
        windows.add([datetime(2100, 1, 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": True, "bound": 1.0}, "counts = True"),
        ({"counts": True, "means": True}, "counts = True"),
        ({}, "bound = None"),
        ({"bound": 1.0, "by": "k"}, "keys: expected the list of keys"),
        ({"bound": 1.0, "by": "k", "keys": "public"}, "keys: expected the list of keys"),
        ({"bound": 1.0, "lateness": "1d"}, "lateness = '1d': expected a fixed length"),
        ({"bound": 1.0, "start": "2024-01-01T00:30"}, "start = "),
        ({"bound": 1.0, "start": None}, "start"),
    ],
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fastdp.Windows(**({"every": "1h", "epsilon": 1.0, "start": "2024-01-01"} | options))


def test_guarantees_say_what_is_public() -> None:
    windows = fastdp.Windows(
        "1h", 0.5, "2024-01-01", bound=2.0, who=True, contributions=3, period="1d", lateness="1h", seed=1
    )
    said = " ".join(windows.guarantee.derivation)
    assert "the latest time of the rows so far is public knowledge" in said
    assert "first 3 rows in each period of 1d" in said
    assert (windows.guarantee.unit, windows.guarantee.epsilon) == ("one person in any period of 1d", 0.5)
    assert windows.guarantee.simulated


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda times: np.array(times, object), lambda times: pd.Series(times, dtype=object)]
)
def test_times_with_and_without_a_zone_are_not_mixed(kind: Any) -> None:
    """Arrow would read all of them as it reads the first one."""
    aware, naive = datetime(2024, 1, 1, 5, tzinfo=UTC), datetime(2024, 1, 1, 5)
    windows = fastdp.Windows("1h", 1.0, "2024-01-01", counts=True, time_zone="Europe/Paris", seed=1)
    for times in ([aware, naive], [naive, aware]):
        with pytest.raises(DataError, match="expected a column of one type"):
            windows.add(kind(times))
    assert windows.n_seen == 0
    windows.add(kind([aware, aware]))
    windows.add(kind([naive, naive]))
