"""Every end of an interval is about the true answer of all rows, or missing with a sentence: of any statistic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.tables.table import Table

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytestmark = [pytest.mark.statistical, pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")]
WINDOWS, ROWS, SEEDS = 12, 900, 6
HOURS = fastdp.Time("at", "1h", unit="s", start="1970-01-01", stop="1970-01-01T12:00")
KINDS = {"sum": np.sum, "mean": np.mean, "median": np.median, "p95": lambda v: np.quantile(v, 0.95), "count": np.size}
at = np.sort(np.random.default_rng(5).integers(0, WINDOWS * 3600, ROWS))
day = 1.0 + np.sin(at / 3600 / WINDOWS * 6.3)
#: Values and their bound.
SHAPES = {
    "day cycle": (lambda r: r.gamma(3.0, 1.0 + 3.0 * day), 100.0),
    "zeros": (lambda r: r.gamma(2.0, 5.0, ROWS) * (r.random(ROWS) < 0.05), 100.0),
    "heavy tail": (lambda r: np.minimum(r.pareto(1.3, ROWS), 1e4), 1e4),
    "bursts": (lambda r: np.where(r.random(ROWS) < 0.02, 300.0, 1.0), 1e3),
    "refunds": (lambda r: np.where(r.random(ROWS) < 0.2, -20.0, 30.0), (-100.0, 100.0)),
    "debts": (lambda r: -r.lognormal(2.0, 1.0, ROWS), (-1e3, 0.0)),
    "constant, far bound": (lambda _: np.full(ROWS, 7.0), 1e4),
    "rising": (lambda r: r.gamma(2.0, 1.0, ROWS) * np.exp(4.0 * at / at[-1]), 1e3),
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "rows": {"epsilon": 0.4},
    "clear": {"epsilon": 4.0},
    "gaussian": {"epsilon": 1.0, "delta": 1e-6, "unit": fastdp.Rows(3)},
    "persons": {"epsilon": 1.0, "unit": fastdp.Person("who", 4, most=10)},
    "online": {"epsilon": 1.0, "delta": 1e-6},
}


def released(name: str, values: np.ndarray, bound: Any, seed: int) -> tuple[Table, np.ndarray]:
    """The table, and which rows it is about."""
    asked, given = {"v": ["sum", "mean", "median", "p95"], "*": "count"}, OPTIONS[name]
    if name != "online":
        rows = pa.table({"at": at, "v": values, "who": np.arange(ROWS) % 90})
        return fastdp.aggregate(rows, asked, HOURS, bounds={"v": bound}, seed=seed, **given), np.ones(ROWS, bool)
    windows = fastdp.Windows(asked, fastdp.Time("at", "1h", start="1970-01-01"), bounds=bound, seed=seed, **given)
    late, times = np.random.default_rng(seed).random(ROWS) < 0.1, np.datetime64("1970-01-01", "s") + at
    windows.add(times[~late], values[~late])
    table = windows.advance("1970-01-01T12:00")
    assert not len(windows.add(times[late], values[late]))
    assert "late " in str(table)
    return table, ~late


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_ends_hold_the_true_answer_or_are_missing(shape: str, option: str) -> None:
    (draw, bound), held = SHAPES[shape], {(kind, n): [] for kind in KINDS for n in (1, 3, WINDOWS)}
    for seed in range(SEEDS):
        values = draw(np.random.default_rng(seed))
        table, counted = released(option, values, bound, seed)
        for (kind, n), into in held.items():
            starts = np.arange(WINDOWS - n + 1)
            found = table[kind if kind == "count" else f"v_{kind}"]
            (low, high), estimate = found.interval(starts, starts + n), found.estimate(starts, starts + n)
            assert not ((low > estimate) | (estimate > high)).any()
            missing = np.isnan(low) | np.isnan(high)
            assert not missing.any() or "missing  " in str(found)
            own = (values[counted & (at // 3600 >= start) & (at // 3600 < start + n)] for start in starts)
            true = np.array([KINDS[kind](each) for each in own])
            into += (~(low > true + 1e-9) & ~(true - 1e-9 > high)).tolist()
    for case, each in held.items():
        assert np.mean(each) >= 0.9 - 1.0 / len(each), case


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_window_that_alone_holds_the_large_values_is_below_its_high(sign: float) -> None:
    hours, seconds = 48, np.sort(np.random.default_rng(5).integers(0, 48 * 3600, 5_000))
    days = fastdp.Time("at", "1h", unit="s", start="1970-01-01", stop="1970-01-03")
    for seed in range(SEEDS):
        r, loud = np.random.default_rng(seed), seconds // 3600 == 7
        values = sign * r.exponential(1.0, seconds.size) * np.where(loud, 50.0, 1.0)
        rows = pa.table({"at": seconds, "v": values, "by": np.where(seconds % 2, "a", "b")})
        ends = tuple(sorted((0.0, 1.5 * sign * float(np.abs(values).max()))))
        given = {"epsilon": 1.0, "bounds": {"v": ends}, "seed": seed}
        for keys in ({}, {"by": "by", "keys": ["a", "b"]}):
            table = fastdp.aggregate(rows, {"v": ["sum", "mean"], "*": "count"}, days, **given, **keys).level(0)
            at, starts = np.array([7, 0]), np.array([8, 12])
            true = [values[(seconds // 3600 >= i) & (seconds // 3600 < j)] for i, j in zip(at, starts, strict=True)]
            for name, of in (("v_sum", np.sum), ("v_mean", np.mean)):
                far = table[name].interval(at, starts)[1 if sign > 0.0 else 0]
                assert (sign * np.ravel(far) >= [sign * of(each) for each in true]).all(), name
            low, high = table["v_sum"].interval(np.arange(hours), np.arange(hours) + 1)
            assert np.count_nonzero(np.ravel(high - low) > 5.0 * np.median(high - low)) <= 4


def test_a_window_that_stands_out_little_may_hold_the_large_values() -> None:
    hours, held = fastdp.Time("at", "1h", unit="s", start="1970-01-01", stop="1970-01-08"), []
    wider = []
    for seed in range(12):
        r = np.random.default_rng(seed)
        seconds = r.integers(0, 168 * 3600, 2_000)
        values = r.exponential(1.0, seconds.size) * np.where(seconds // 3600 == 7, 20.0, 1.0)
        rows, bound = pa.table({"at": seconds, "v": values}), 1.5 * float(values.max())
        table = fastdp.aggregate(rows, {"v": "sum"}, hours, epsilon=1.0, bounds={"v": bound}, seed=seed)
        held.append(float(table.interval(7, 8)[1][0]) >= values[seconds // 3600 == 7].sum())
        starts = np.arange(168)
        low, high = table.interval(starts, starts + 1)
        wider.append(np.count_nonzero(high - low > 2.0 * np.median(high - low)))
        beside_a_day = table.interval(np.append(starts, 0), np.append(starts + 1, 24))[1]
        assert np.allclose(beside_a_day[:-1], high)
    assert np.mean(held) >= 0.5
    assert np.median(wider) <= 0.05 * starts.size
