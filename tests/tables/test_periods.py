"""Windows of a period that close together, by a calendar: the same as a table of each period, exact losses, state."""

from __future__ import annotations

import copy
import itertools
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.engines.job import Job
from fastdp.errors import AccuracyWarning, ParameterError
from tests.tables.forced import Integers, Script, forced
from tests.tables.rows import SECRET

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
#: Windows, period, times of the first window and of periods' ends, rows of a person, and other arguments.
SHAPES: dict[str, tuple[str, str, list[str], int, dict[str, Any]]] = {
    "hours of weeks": ("1h", "1w", ["2024-03-18", "2024-03-25", "2024-04-01", "2024-04-08"], 168, {}),
    "hours of days in Paris, keys": (
        *("1h", "1d", ["2024-03-30T18:00", "2024-03-31", "2024-04-01", "2024-04-01T13:00"], 25),
        {
            "time": {"zone": "Europe/Paris", "stop": "2024-04-01T13:00"},
            "by": "key",
            "keys": ["a", "b"],
            "delta": 1e-6,
        },
    ),
    "days of months": ("1d", "1mo", ["2024-02-01", "2024-03-01", "2024-04-01"], 31, {"bounds": 3.0, "epsilon": 40.0}),
    "a curve": (
        "12h",
        "2d",
        ["2024-04-01", "2024-04-03", "2024-04-05"],
        4,
        {"person": {"basis": (1.0, 3.0)}, "seed": 5},
    ),
    "rows chosen": ("12h", "2d", ["2024-04-01", "2024-04-03", "2024-04-05"], "auto", {"epsilon": 20.0}),
}


def rows_of(begin: str, end: str, hours: int, seed: int) -> pd.DataFrame:
    """A row of each of 20 persons in most hours, in no order, some before and some at the same time."""
    rng = np.random.default_rng(seed)
    at = pd.date_range(begin, end, freq=f"{hours}h", inclusive="left")
    frame = pd.DataFrame({"at": at.repeat(20), "who": np.tile(np.arange(20), at.size)})
    frame["kwh"], frame["key"] = rng.gamma(2.0, 0.4, len(frame)), rng.choice(list("abc"), len(frame))
    return frame.sample(frac=0.9, random_state=seed).reset_index(drop=True)


def arguments(shape: str) -> tuple[fastdp.Time, dict[str, Any], list[str]]:
    every, per, ends, rows, more = SHAPES[shape]
    more = dict(more)
    person = {"per_window": 1, "basis": "calendar", **more.pop("person", {})}
    unit = fastdp.Person("who", rows=rows, per=per, **person)
    time = fastdp.Time("at", every, start=ends[0], **more.pop("time", {}))
    given = {"epsilon": 1.0, "bounds": fastdp.Value(clip=2.0), "unit": unit, **more}
    return time, given | ({} if "seed" in more else {"key": SECRET}), ends


def add(windows: fastdp.Windows, frame: pd.DataFrame, **keys: Any) -> fastdp.tables.table.Table:
    named = {"keys": frame["key"]} if keys.get("by") else {}
    return windows.add(frame["at"], {"kwh": frame["kwh"]}, persons=frame["who"], **named)


def same(one: fastdp.tables.table.Table, other: fastdp.tables.table.Table) -> None:
    assert repr(one.arrow.to_pydict()) == repr(other.arrow.to_pydict())
    for mine, theirs in zip(one.released.measured, other.released.measured, strict=True):
        assert np.array_equal(mine.steps, theirs.steps)
    assert one.released.residuals == other.released.residuals
    assert one.released.rows == other.released.rows


@pytest.mark.parametrize("shape", SHAPES)
def test_a_period_is_the_table_of_its_windows(shape: str, tmp_path: Path) -> None:
    """Rows in any order and batches, late ones, a kept file that is loaded again and again, and replays."""
    time, given, ends = arguments(shape)
    statistics = {"kwh": "sum", "*": "count"}
    frame = rows_of("2024-02-01" if shape == "days of months" else ends[0], ends[-1], 12, 3)
    windows = fastdp.Windows(statistics, time, **given)
    windows.keep(tmp_path / "state", SECRET)
    found, begins, left = [], [pd.Timestamp(each) for each in ends], frame
    for begin, end in itertools.pairwise(begins):
        # Of later periods and of this one, then rows that are late.
        own, early = left[left["at"] < end], left[left["at"] >= end].iloc[::7]
        left = left.drop([*own.index, *early.index])
        parts = early, own.iloc[::2], own.iloc[1::2], frame[frame["at"] < begin].iloc[:5]
        for part in (each for each in parts if len(each)):
            assert len(add(windows, part, **given)) == 0
            windows = fastdp.Windows.load(tmp_path / "state", SECRET, replay=True)
            assert len(add(windows, part, **given)) == 0
        first = windows.advance(end)
        windows = fastdp.Windows.load(tmp_path / "state", SECRET, replay=True)
        found.append(windows.advance(end))
        same(first, found[-1])
    assert windows.late == 5 * (len(ends) - 2)
    for (begin, end), table in zip(itertools.pairwise(ends), found, strict=True):
        of_period = fastdp.Time("at", time.every, start=begin, stop=end, zone=time.zone)
        # Those of other times are dropped.
        same(fastdp.aggregate(frame, statistics, of_period, **given), table)
        assert table.released.shares.plan.basis is not None
        assert "rows that came after their period was closed are in no number" in str(table)
        assert windows.guarantee.epsilon == table.guarantee.epsilon
    assert "each period is a table of its own" in " ".join(windows.guarantee.derivation)
    assert windows.guarantee.unit == f"one person in any period of {given['unit'].per}"


def test_periods_that_are_due_come_one_by_one() -> None:
    """A latest time passes three of them; rows of any of these are late, released or not."""
    time, given, ends = arguments("hours of weeks")
    frame = rows_of(ends[0], ends[-1], 12, 4)
    windows, statistics = fastdp.Windows({"kwh": "sum"}, time, lateness="1h", **given), {"kwh": "sum"}
    found = [add(windows, frame[frame["at"] < ends[1]].sort_values("at"))]
    assert len(found[0]) == 0
    last = pd.DataFrame({"at": [pd.Timestamp(ends[3]) + timedelta(hours=2)], "who": [1], "kwh": [1.0], "key": ["a"]})
    found = [add(windows, last)]
    twin = copy.copy(windows)
    assert add(windows, frame.iloc[:0]) is not None
    windows = fastdp.Windows.from_bytes(windows.to_bytes())
    late = windows.late
    found += [add(windows, frame.iloc[:40])]
    assert windows.late == late + 40
    found += [windows.advance(ends[0]), windows.advance(ends[0])]
    assert [len(each) for each in found] == [168, 168, 0, 0]
    assert found[1].released.edges[0] > found[0].released.edges[-1] - 1
    of_first = fastdp.Time("at", "1h", start=ends[0], stop=ends[1])
    same(fastdp.aggregate(frame, statistics, of_first, **given), found[0])
    # A copy has noise of its own.
    assert len(twin.advance(ends[3])) == 168


def test_rows_of_a_period_that_is_due_are_late() -> None:
    """Read in columns or one by one, after a row or a call moved the clock; rows of the open period are not."""
    time, given, ends = arguments("hours of weeks")
    for lateness, single in itertools.product((None, "1h"), (True, False)):
        windows = fastdp.Windows({"kwh": "sum"}, time, lateness=lateness, **given)
        if lateness is None:
            assert len(windows.advance(ends[2])) == 168
        else:
            windows.add([datetime.fromisoformat(ends[2]) + timedelta(hours=1)], [1.0], persons=[1])
        for moment, late in ((ends[1], True), (ends[2], False)):
            before, at = windows.late, [datetime.fromisoformat(moment)] * (1 if single else 2)
            windows.add(at, [1.0] * len(at), persons=[3] * len(at))
            assert windows.late - before == late * len(at)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_period_of_a_person_moves_one_release_within_the_claim(delta: float) -> None:
    """Series of small values, or without rows, in two periods of two windows each, on top of others."""
    begin = datetime(2024, 1, 1)
    time, statistics = fastdp.Time("at", "12h", start=begin), {"kwh": "sum", "*": "count"}
    unit = fastdp.Person("who", rows=2, per="1d", per_window=1, basis="calendar")
    bounds = fastdp.Value(clip=2.0, resolution=1.0)

    def hidden(series: tuple[float | None, ...]) -> list[list[Integers]]:
        windows = fastdp.Windows(statistics, time, epsilon=1.0, delta=delta, bounds=bounds, unit=unit, seed=1)
        listed = [(t, who, 1.0) for who in (7, 8) for t in range(4)]
        listed += [(t, 1, value) for t, value in enumerate(series) if value is not None]
        at, who, values = zip(*listed, strict=True)
        windows.add([begin + timedelta(hours=12 * t) for t in at], {"kwh": values}, persons=who)
        found = []
        for day in (2, 3):
            with forced(Script()) as drawn:
                assert len(windows.advance(datetime(2024, 1, day))) == 2
            found.append(drawn)
        return found

    base, worst, most = hidden((None,) * 4), Fraction(0), Fraction(1)
    for series in itertools.product((None, -2.0, 2.0), (None, 2.0), (None, -2.0), (None, -2.0)):
        costs = []
        for one, other in zip(base, hidden(series), strict=True):
            cost = Fraction(0)
            for a, b in zip(one, other, strict=True):
                assert a.distribution == b.distribution
                moves = [abs(int(each)) for each in (a.exact - b.exact).ravel()]
                if hasattr(a.distribution, "sigma"):
                    most = Fraction(fastdp.guarantee.zcdp_loss(1.0, delta) ** 2 / 2)
                    cost += Fraction(sum(d * d for d in moves) / (2 * a.distribution.sigma**2))
                else:
                    cost += Fraction(sum(moves)) / a.distribution.scale
            costs.append(cost)
        # Of a period without rows nothing moves.
        assert [cost == 0 for cost in costs] == [series[:2] == (None, None), series[2:] == (None, None)]
        worst = max(worst, *costs)
    assert most / 2 < worst <= most


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": {"per": None}}, "per = None: expected the period"),
        ({"unit": {"per": "90min"}}, "per = '90min': expected a length whose periods begin with windows of 1h"),
        ({"every": "1w", "unit": {"per": "1mo"}}, "whose periods begin with windows of 1w"),
        ({"every": "1d", "unit": {"per": "24h"}}, "whose periods begin with windows of 1d"),
        # Half an hour is put back there.
        ({"zone": "Australia/Lord_Howe", "start": "2024-01-01"}, "whose periods begin with windows of 1h"),
        ({"by": "key", "keys": fastdp.PrivateKeys(), "delta": 1e-6}, "keys = .* expected a list of keys"),
        ({"statistics": {"kwh": "mean"}}, "basis = 'calendar': .* sums and counts of cells alone"),
        ({"every": "0.5s", "unit": {"per": "1d", "rows": 172_800}}, "at most 131,072 windows"),
    ],
)
def test_what_periods_need_is_said(options: dict[str, Any], message: str) -> None:
    options = dict(options)
    unit = {"rows": 25, "per": "1d", "per_window": 1, "basis": "calendar"} | options.pop("unit", {})
    zone, every = options.pop("zone", None), options.pop("every", "1h")
    time = fastdp.Time("at", every, start=options.pop("start", "2024-05-06"), zone=zone)
    statistics = options.pop("statistics", {"kwh": "sum"})
    given = {"epsilon": 1.0, "bounds": 2.0, **options}
    with pytest.raises(ParameterError, match=message):
        fastdp.Windows(statistics, time, unit=fastdp.Person("who", **unit), **given)


def test_a_job_adds_up_single_windows() -> None:
    time, given, _ = arguments("hours of weeks")
    windows = fastdp.Windows({"kwh": "sum"}, time, **given)
    with pytest.raises(ParameterError, match="and a calendar: fastdp"):
        Job(windows, name="homes", secret="env:SECRET")


def test_warnings_are_those_of_a_table() -> None:
    time, given, ends = arguments("hours of weeks")
    windows = fastdp.Windows({"kwh": "sum"}, time, **given | {"epsilon": 1e-3})
    with pytest.warns(AccuracyWarning, match="noise") as seen:
        windows.advance(ends[1])
    assert seen[0].filename == __file__


def test_a_far_stop_is_no_table_of_all_windows() -> None:
    unit = fastdp.Person("who", rows=96, per="1d", per_window=4, basis="calendar")
    time = fastdp.Time("at", "15min", start="2024-01-01", stop="2030-01-01")
    assert fastdp.Windows({"*": "count"}, time, epsilon=1.0, unit=unit, seed=1).guarantee.epsilon == 1.0
