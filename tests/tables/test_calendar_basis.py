"""Persons in most windows: columns of a calendar, exact losses, intervals, and which path a table takes."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastdp
from fastdp.data.source import EngineTable, Source, open_source
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.tables.calendar_basis import Basis, calendar_basis
from fastdp.units import EPOCH, MICROSECOND
from tests.oracles import calendar as oracle
from tests.tables.forced import Integers, Script, forced

BEGIN = datetime(2024, 1, 1)
SHAPES = {
    "hours of two weeks": (BEGIN, 1.0, 14 * 24),
    "a prime number of quarters": (BEGIN, 0.25, 97),
    "days of a year": (BEGIN, 24.0, 366),
    "days of two years": (BEGIN, 24.0, 731),
    "weeks": (BEGIN, 168.0, 53),
    "two hours": (BEGIN, 1.0, 2),
    "one window": (BEGIN, 1.0, 1),
}


def basis_of(begin: datetime, hours: float, windows: int, curve: tuple[float, ...] | None = None) -> Basis:
    first = (begin - EPOCH) // MICROSECOND
    return calendar_basis(first + np.arange(windows + 1) * round(hours * 3_600_000_000), None, curve)


@pytest.mark.parametrize("shape", SHAPES)
def test_columns_and_bounds_are_those_of_the_description(shape: str) -> None:
    begin, hours, windows = SHAPES[shape]
    found, starts = basis_of(begin, hours, windows), [begin + i * timedelta(hours=hours) for i in range(windows)]
    expected = oracle.columns(starts, hours)
    assert found.size == len(expected)
    # Roundings of a half differ with the last bit of a sine.
    assert np.abs(found.columns - np.array(expected).T).max() <= 1
    listed = found.columns.T.tolist()
    for size in {1, found.size // 2 or 1, found.size}:
        assert found.first(size).bound == oracle.largest_row_sum(listed[:size])
    assert found.bound <= 1.02 * 2**32
    assert found.moved(9, 2, gaussian=True) == 9 * found.bound
    assert found.moved(9, 2, gaussian=False) == oracle.l1_bound(listed, 9, 2)
    rng = np.random.default_rng(3)
    sums = rng.integers(-(2**50), 2**50, (windows, 2))
    assert found.residual(sums) == oracle.residual(listed, sums.T.tolist())
    # Everything is in the columns' span.
    assert found.residual(np.full((windows, 1), 10**12)) <= 10**12 * math.sqrt(windows) * 0.05


@pytest.mark.parametrize(
    "curve",
    [(1, 2), [np.int64(1), np.float32(2)], np.array([1, 2]), pd.Series([1, 2]), pl.Series([1.0, 2.0])],
    ids=type,
)
def test_curves_that_are_taken(curve: Any) -> None:
    assert fastdp.Person("who", rows=4, per_window=1, basis=curve).basis == (1.0, 2.0)


@pytest.mark.parametrize(
    "curve",
    [[1.0, 1.0], [10**400, 1], [True, False], np.array([True, False]), ["1", "2"], [[1, 2]], [1, math.nan], 3.0],
)
def test_curves_that_are_refused(curve: Any) -> None:
    with pytest.raises(ParameterError, match="curve"):
        fastdp.Person("who", rows=4, per_window=1, basis=curve)


@pytest.mark.parametrize("statistic", ["sum", "mean", "var"])
def test_ends_whose_errors_no_double_holds(statistic: str) -> None:
    for bound in (1e-65, 1e65):
        assert fastdp.plan({"kwh": statistic}, epsilon=1.0, bounds=bound, rows=10.0).half_width > 0.0
    for bound in (1e-250, 1e-70, 1e70, 1e200):
        with pytest.raises(ParameterError, match="doubles hold"):
            fastdp.plan({"kwh": statistic}, epsilon=1.0, bounds=bound, rows=10.0)


def test_a_public_curve_comes_after_the_mean() -> None:
    found = basis_of(BEGIN, 1.0, 48, (1.0, 2.0, 4.0))
    curve = np.resize([1.0, 2.0, 4.0], 48)
    inside = found.first(2).columns / 2**16
    left = curve - inside @ (inside.T @ curve)
    assert np.abs(left).max() < 1e-3


@pytest.mark.parametrize(("per_window", "keys"), [(1, 1), (2, 1), (1, 2)])
def test_no_person_moves_numbers_by_more(per_window: int, keys: int) -> None:
    """Every series of a person on a small grid, clipped to [-1, 1], with at most so many rows of a window."""
    found, rows = basis_of(BEGIN, 12.0, 4), 4 * per_window - 1
    square = rows // per_window * per_window**2 + (rows % per_window) ** 2
    worst = [0.0, 0.0, 0.0]
    each = list(itertools.product(range(-per_window, per_window + 1), repeat=4))
    series = [one for one in each if sum(map(abs, one)) <= rows]
    pairs = itertools.product(series, series if keys == 2 else [(0, 0, 0, 0)])
    for one, other in pairs:
        both = np.array([one, other]).T
        if np.abs(both).sum() > rows or (np.abs(both).sum(axis=1) > per_window).any():
            continue
        moved = found.numbers(both[None])[0]
        worst[0] = max(worst[0], int(np.abs(moved).sum()))
        worst[1] = max(worst[1], int(np.square(moved).sum()))
        worst[2] = max(worst[2], int(np.square(both).sum()))
        assert found.residual(both) ** 2 <= square
    assert worst[0] <= found.moved(square, keys, gaussian=False)
    assert worst[1] <= found.moved(square, keys, gaussian=True)
    assert worst[2] == square
    # No person of a small grid is the worst of all; the bound is near it.
    assert worst[0] > 0.7 * found.moved(square, keys, gaussian=False)
    assert worst[1] > 0.98 * found.moved(square, keys, gaussian=True)


class Large(Script):
    """Rows by size that stand out of their noise."""

    def numbers(self, draw: int, size: int) -> np.ndarray:
        return super().numbers(draw, size) << 24


def table_of(values: list[list[float]], keys: str = "") -> pa.Table:
    """Values by person and window, NaN for no row; person i has ``keys[i]``."""
    listed = [(i, t, v) for i, each in enumerate(values) for t, v in enumerate(each) if not math.isnan(v)]
    return pa.table(
        {
            "at": pa.array([BEGIN + timedelta(hours=12 * t) for _, t, _ in listed], pa.timestamp("us")),
            "who": pa.array([i for i, *_ in listed], pa.int64()),
            "key": pa.array([keys[i] if keys else "a" for i, *_ in listed]),
            "kwh": pa.array([v for *_, v in listed], pa.float64()),
        }
    )


def released(frame: pa.Table, statistics: dict[str, str], **given: Any) -> fastdp.tables.table.Table:
    own = {"basis": given.pop("basis", "calendar"), "keys": given.pop("of_person", None)}
    unit = fastdp.Person("who", rows=4, per_window=1, **own)
    time = fastdp.Time("at", "12h", start=BEGIN, stop=BEGIN + timedelta(days=2))
    if "kwh" in statistics:
        given.setdefault("bounds", fastdp.Value(clip=2.0, resolution=1.0))
    return fastdp.aggregate(frame, statistics, time, unit=unit, **{"epsilon": 1.0, "seed": 1, **given})


CASES = {
    "sums": {"statistics": {"kwh": "sum"}},
    "counts": {"statistics": {"*": "count"}},
    "both": {"statistics": {"kwh": "sum", "*": "count"}},
    "keys": {"statistics": {"kwh": "sum"}, "by": "key", "keys": ["a", "b"]},
    "a key of a person": {"statistics": {"kwh": "sum"}, "by": "key", "keys": ["a", "b"], "of_person": 1},
    "chosen clip": {"statistics": {"kwh": "sum"}, "bounds": 3.0},
    "negative": {"statistics": {"kwh": "sum"}, "bounds": fastdp.Value(clip=(-2.0, 1.0), resolution=1.0)},
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("case", CASES)
def test_exact_losses_are_within_the_claim(case: str, delta: float) -> None:
    """Two others, and each series of one person of small values or without a row."""
    given, others = dict(CASES[case]), [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    statistics, worst, left = given.pop("statistics"), Fraction(0), Fraction(0)

    def hidden(values: list[list[float]]) -> tuple[list[Integers], fastdp.tables.table.Table]:
        with forced(Large()) as drawn:
            found = released(table_of(values, "abb"), statistics, delta=delta, **given)
        assert found.released.shares.plan.basis is not None
        return drawn, found

    base, found = hidden(others)
    claim, shares = found.guarantee, found.released.shares
    assert 1 - 1e-9 < sum(map(shares.share, shares.lines)) <= 1 + 1e-12
    missing = [tuple(math.nan if i in left else 2.0 for i in range(4)) for left in ((0,), (1, 2), (0, 1, 3))]
    for series in (*itertools.product((-2.0, 2.0), repeat=4), *missing):
        drawn, _ = hidden([*others, list(series)])
        cost = Fraction(0)
        for one, two in zip(base, drawn, strict=True):
            assert one.distribution == two.distribution
            moves = [abs(int(each)) for each in (one.exact - two.exact).ravel()]
            if hasattr(one.distribution, "sigma"):
                each = sum(d * d for d in moves) / (2 * one.distribution.sigma**2)
            else:
                each = Fraction(sum(moves)) / one.distribution.scale
            cost += each
        worst, left = max(worst, cost), max(left, each)
    # The norm that the columns leave comes last.
    own = Fraction(shares.helper("residual", "*" if "*" in statistics else "kwh"))
    assert left <= (own**2 / 2 if shares.gaussian else own)
    rho = fastdp.guarantee.zcdp_loss(1.0, delta) ** 2 / 2 if base and hasattr(base[0].distribution, "sigma") else None
    most = Fraction(claim.epsilon) if rho is None else Fraction(rho)
    assert worst <= most
    # A person here has one key, of two that it may have.
    assert worst > (0.4 if case == "keys" else 0.5) * most


@pytest.mark.parametrize(
    "given", [{"keys": "public"}, {"keys": fastdp.PrivateKeys(), "delta": 1e-15}], ids=["public", "private"]
)
def test_noise_of_one_secret_at_two_scales_shares_no_word(given: dict[str, Any]) -> None:
    """Another released key widens the noise of all; a key whose rows stay must not show its sums by that."""
    found = []
    for regions in ("ab", "abc"):
        keys = "".join(100 * region for region in regions)
        frame = table_of([[1.0] * 4] * len(keys), keys)
        table = released(frame, {"*": "count"}, by="key", epsilon=16.0, seed=None, key=b"k" * 32, **given)
        found += table.released.sums
        assert found[-1].steps.shape == (1, 4, len(regions))
    narrow, wide = (math.sqrt(each.noise[0].variance) for each in found)
    assert narrow < wide
    # The numbers, if both had one draw at two scales.
    guessed = (wide * found[0].steps[0] - narrow * found[1].steps[0, :, :2]) / (wide - narrow)
    exact = table.released.shares.plan.basis.numbers(np.full((1, 4, 2), 100))[0]
    assert (np.abs(guessed - exact) > 0.1 * narrow).mean() > 0.5


def homes(count: int, hours: int, seed: int = 2) -> tuple[pa.Table, np.ndarray]:
    """Rows of homes with a value in every hour, and true totals: waves, weekends, and a step that nothing knows."""
    rng, t = np.random.default_rng(seed), np.arange(hours)
    shape = 0.4 + 0.2 * np.sin(2 * np.pi * t / 24) + 0.1 * (t // 24 % 7 >= 5) + 0.1 * (t > hours // 3)
    values = np.minimum(rng.lognormal(0, 0.3, count)[:, None] * shape * rng.gamma(8, 0.125, (count, hours)), 2.0)
    at = np.datetime64(BEGIN, "us") + np.tile(t, count).astype("m8[h]")
    who = np.repeat(np.arange(count), hours)
    return pa.table({"at": at, "who": who, "kwh": values.ravel()}), values.sum(axis=0)


def hourly(frame: pa.Table, hours: int, **given: Any) -> fastdp.tables.table.Table:
    unit = fastdp.Person("who", rows=hours, per_window=1, **given.pop("person", {}))
    time = fastdp.Time("at", "1h", start=BEGIN, stop=BEGIN + timedelta(hours=hours))
    return fastdp.totals(frame, "kwh", time, unit=unit, **{"epsilon": 1.0, "clip": 2.0, "seed": 3, **given})


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_homes_of_two_weeks(delta: float) -> None:
    hours = 336
    frame, truth = homes(400, hours)
    found = hourly(frame, hours, delta=delta, person={"basis": "calendar"})
    every = hourly(frame, hours, delta=delta, person={"basis": "windows"})

    def error(table: fastdp.tables.table.Table) -> float:
        return float(np.sqrt(np.mean((np.asarray(table) - truth) ** 2)))

    assert 3 * error(found) < error(every)
    begins = np.arange(0, hours, 24)
    for starts, stops in ((np.arange(hours), np.arange(hours) + 1), (begins, begins + 24), ([0], [hours])):
        low, high = found.interval(starts, stops)
        true = np.add.reduceat(truth, starts)
        assert np.mean(low <= true) >= 0.9
        # No number holds rows beyond those that count.
        assert np.isnan(high).all()
    assert "of a calendar with noise" in str(found)
    assert "of a calendar with noise" in " ".join(found.guarantee.derivation)
    assert found.metadata["basis"]["numbers"] > 3


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("by", [None, "key"])
def test_over_what_intervals_average_is_said(by: str | None) -> None:
    keys = {"by": by, "keys": ["a", "b"]} if by else {}
    found = released(table_of([[1.0] * 4] * 2, "ab"), {"*": "count"}, **keys)
    said = f"on average over windows{' and keys' if by else ''}, "
    assert said in str(found)
    assert said in found.metadata["basis"]["text"]
    assert said in " ".join(found.guarantee.derivation)


def test_a_table_takes_the_calendar_where_it_errs_three_times_less() -> None:
    frame, _ = homes(300, 168)
    assert "basis" in hourly(frame, 168).metadata
    # As many persons that noise in each window is small.
    assert "basis" not in hourly(frame, 168, epsilon=400.0).metadata
    # Persons with rows in few windows.
    few = fastdp.Person("who", rows=60, per_window=1)
    time = fastdp.Time("at", "1h", start=BEGIN, stop=BEGIN + timedelta(hours=168))
    with pytest.warns(AccuracyWarning, match="noise"):
        assert "basis" not in fastdp.totals(frame, "kwh", time, epsilon=1.0, clip=2.0, unit=few, seed=1).metadata
    assert "basis" not in hourly(frame, 168, person={"basis": "windows"}).metadata


def test_a_plan_of_many_keys_has_the_noise_of_the_release() -> None:
    windows, keys = 2, 1_100
    unit = fastdp.Person("who", rows=2_400, per_window=1_200, basis="calendar")
    at = np.repeat(np.datetime64(BEGIN, "us") + np.arange(windows).astype("m8[h]"), keys)
    frame = pa.table({"at": at, "who": [1] * at.size, "key": list(range(keys)) * windows})
    hours, given = fastdp.Time("at", "1h", start=BEGIN, stop="2024-01-01T02:00"), {"unit": unit, "epsilon": 1e6}
    made = fastdp.aggregate(frame, {"*": "count"}, hours, seed=1, by="key", keys=list(range(keys)), **given)
    planned = fastdp.plan({"*": "count"}, every="1h", windows=windows, keys=keys, rows=1.0, **given)
    assert str(planned.shares) == str(made.released.shares)


def test_a_plan_of_many_windows_errs_as_one_of_fewer() -> None:
    """A person in all W windows moves m numbers by sqrt(W), and a window has sqrt(m / W) of their error."""
    begin, ways = time.process_time(), []
    for windows, every in ((4_380, "2h"), (35_040, "15min")):
        unit = fastdp.Person("who", rows=windows, per_window=1)
        planned = fastdp.plan({"*": "count"}, every=every, windows=windows, unit=unit, epsilon=1.0, rows=50.0)
        ways.append(planned.ways)
    calendars = [[error for name, error in each.items() if "calendar" in name] for each in ways]
    assert calendars[0] == pytest.approx(calendars[1], rel=0.05)
    assert len(calendars[0]) == 2
    # It was 200 s while each number of columns was computed by itself.
    assert time.process_time() - begin < 30.0


@pytest.mark.parametrize("epsilon", [1.0, 200.0])
@pytest.mark.parametrize(("hours", "power"), [(2, 14), (2, 24), (24, 19)])
def test_numbers_of_many_rows_fit(hours: int, power: int, epsilon: float) -> None:
    """An engine says that there are 2^power as many rows at the clip: 2^26 in two windows would wrap."""
    data, _ = homes(2_048, hours)
    data = data.set_column(2, "kwh", pa.array(np.full(data.num_rows, 1.9)))

    def opened(columns: Any) -> Source:
        source = open_source(data, columns)
        return replace(source, add=lambda tally, _: tally(source) << power)

    given = {"clip": None, "bound": fastdp.Value(2.0, clip=2.0), "epsilon": epsilon}
    found = hourly(EngineTable(opened), hours, person={"basis": "calendar", "most": hours}, **given)
    truth, starts = 1.9 * 2_048 * 2**power, np.arange(hours)
    assert np.asarray(found) == pytest.approx(np.full(hours, truth), rel=1e-3)
    for begins, ends, true in ((starts, starts + 1, truth), ([0], [hours], hours * truth)):
        low, high = found.interval(begins, ends)
        assert (low <= true).all()
        assert (true <= high).all()


def test_what_the_calendar_needs_is_said() -> None:
    frame, _ = homes(5, 24)
    with pytest.raises(ParameterError, match="per_window"):
        fastdp.Person("who", rows=4, basis="calendar")
    unit = fastdp.Person("who", rows=24, per_window=1, basis="calendar")
    time = fastdp.Time("at", "1h", start=BEGIN, stop=BEGIN + timedelta(days=1))
    with pytest.raises(ParameterError, match="sums and counts"):
        fastdp.means(frame, "kwh", time, epsilon=1.0, clip=2.0, unit=unit)
    with pytest.raises(ParameterError, match="windows of time"):
        fastdp.totals(frame, "kwh", epsilon=1.0, clip=2.0, unit=replace(unit, rows=1))
    with pytest.raises(ParameterError, match="at most 131,072 windows"):
        fastdp.totals(frame, "kwh", replace(time, every="0.5s"), epsilon=1.0, clip=2.0, unit=unit)
