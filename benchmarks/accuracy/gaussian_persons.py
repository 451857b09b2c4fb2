"""Units of many rows on real tables: Laplace beside Gaussian noise, measured, and what ``fastdp.plan`` says before.

Errors of a window are counted from the sum of the rows that the bounds keep, so that they are those of noise alone,
and from the sum of all rows, so that what the bounds drop and clip is in them.  The clip is a public number here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastdp
from benchmarks.shared import Floats
from fastdp.noise.draws import NoiseName

DELTAS = (1e-6, 1e-9)
#: Wh in half an hour, and pence in a line and in a day's basket: 99.5 % of each are below.
METER_CLIP, LINE_CLIP, BASKET_CLIP = 2_200.0, 20_000.0, 300_000.0
METER_DAYS = 120
HOMES = 10


class Unit(NamedTuple):
    """A table with its unit of privacy."""

    name: str
    frame: Any
    given: dict[str, Any]

    @property
    def rows(self) -> tuple[int, int | None]:
        """k, and how many of them may lie in one window."""
        return self.given["contributions"], self.given.get("per_window")


def units(data: Path) -> Iterator[Unit]:
    """Homes, customers with one basket a day, and customers with the lines of one day."""
    import polars as pl

    values = np.load(data / "smartmeter10_wh.npz")["values"].astype(float)[: METER_DAYS * 48 * HOMES]
    times = np.datetime64("2024-01-01", "us") + np.arange(values.size) // HOMES * np.timedelta64(30, "m")
    meters = pl.DataFrame({"time": times, "who": np.arange(values.size) % HOMES, "value": values})
    day = {"every": "30min", "clip": METER_CLIP, "period": "1d", "per_window": 1}
    yield Unit("smart meter: a home's day of half-hours", meters, {**day, "contributions": 48})
    lines = pl.read_parquet(data / "tables" / "retail_lines.parquet").drop_nulls("customer")
    lines = lines.filter(pl.col("amount_pence") > 0).rename({"customer": "who", "amount_pence": "value"})
    baskets = lines.group_by(pl.col("time").dt.truncate("1d"), "who").agg(pl.col("value").sum()).sort("time", "who")
    for k in (20, 100):
        bounds = {"every": "1d", "clip": BASKET_CLIP, "contributions": k, "per_window": 1}
        yield Unit("retail: all baskets of a customer, one a day", baskets, bounds)
    for k in (20, 100):
        bounds = {"every": "1d", "clip": LINE_CLIP, "contributions": k, "period": "1d"}
        yield Unit("retail: a customer's lines of a day", lines, bounds)


def kept(unit: Unit) -> tuple[Floats, Floats, float]:
    """Sums by window of the rows that the bounds keep, and of all; the share of rows that is dropped."""
    import polars as pl

    k, j = unit.rows
    every = unit.given["every"].replace("min", "m")
    window = pl.col("time").dt.truncate(every)
    period = [pl.col("time").dt.truncate(unit.given["period"])] if "period" in unit.given else []
    rows = unit.frame.with_columns(window=window).with_row_index()
    inside = rows if j is None else rows.filter(pl.col("index").cum_count().over("who", "window") <= j)
    inside = inside.filter(pl.col("index").cum_count().over("who", *period) <= k)
    clipped = inside.with_columns(pl.col("value").clip(upper_bound=unit.given["clip"]))
    begin, end = rows["window"].min(), rows["window"].max()
    grid = pl.DataFrame({"window": pl.datetime_range(begin, end, every, eager=True)})
    grid = grid.with_columns(pl.col("window").cast(rows["window"].dtype))

    def sums(table: Any) -> Floats:
        summed = table.group_by("window").agg(pl.col("value").sum())
        return np.asarray(grid.join(summed, "window", "left").fill_null(0).sort("window")["value"], float)

    return sums(clipped), sums(rows), 1.0 - len(inside) / len(rows)


def rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def persons(data: Path, runs: int) -> list[dict[str, Any]]:
    """A row for each unit and delta; errors in clips."""
    found: list[dict[str, Any]] = []
    for unit in units(data):
        inside, true, dropped = kept(unit)
        k, j = unit.rows
        clip = unit.given["clip"]
        frame = unit.frame.with_columns(who=unit.frame["who"].cast(str))

        def measured(noise: NoiseName, delta: float, unit: Unit = unit, frame: Any = frame) -> tuple[Floats, Floats]:
            """Estimates of all runs, and the revised ones."""
            rows, each_window = unit.rows
            person = fastdp.Person("who", rows, unit.given.get("period"), each_window)
            tables = [
                fastdp.totals(
                    *(frame, fastdp.Value("value", noise=noise if delta else None), "time", unit.given["every"]),
                    unit=person,
                    epsilon=1.0,
                    clip=unit.given["clip"],
                    delta=delta,
                    seed=seed,
                ).frame
                for seed in range(runs)
            ]
            columns = (np.array([np.asarray(t[name]) for t in tables]) for name in ("estimate", "revised"))
            return next(columns), next(columns)

        laplace = measured("laplace", 0.0)
        for delta in DELTAS:
            plan = fastdp.plan(epsilon=1.0, bound=clip, contributions=k, per_window=j, delta=delta)
            gaussian = measured("gaussian", delta)
            row: dict[str, Any] = {"unit": unit.name, "k": k, "per window": j, "delta": delta, "clip": clip}
            row |= {"windows": inside.size, "mean": float(true.mean()) / clip, "dropped": dropped}
            for name, (estimates, revised) in (("laplace", laplace), ("gaussian", gaussian)):
                row[name] = {
                    "planned": plan.std_error_with(name) / clip,
                    "noise": rms(estimates - inside) / clip,
                    "error": rms(estimates - true) / clip,
                    "revised": rms(revised - true) / clip,
                }
            better = min(("laplace", "gaussian"), key=lambda name: row[name]["noise"])
            found.append({**row, "better": better, "plan says": plan.noise})
    return found
