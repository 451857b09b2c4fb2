"""Prefix sums under (epsilon, delta) beside jax_privacy, dpcrpy and OpenDP, units of many rows, and the conversion.

Each mechanism runs in a process of its own (:mod:`benchmarks.accuracy.gaussian_prefix`).  Peers that are not
installed are left out and named: put ``jax_privacy``, ``dpcrpy`` and ``dp_accounting`` on the path.  ``--parts
persons`` measures units of many rows on real tables, ``--parts
conversion`` compares the conversion of rho with dp-accounting's.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

import fastdp
from benchmarks import ROOT
from benchmarks.accuracy.gaussian_prefix import mechanisms
from benchmarks.shared import DATA, Data, Floats, table
from fastdp.guarantee import zcdp_epsilon

PERSON_DELTAS = (1e-6, 1e-9)
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

        def measured(delta: float, unit: Unit = unit, frame: Any = frame) -> tuple[Floats, Floats]:
            """Estimates of all runs, and the revised ones."""
            rows, each_window = unit.rows
            person = fastdp.Person("who", rows, unit.given.get("period"), each_window)
            tables = [
                fastdp.totals(
                    *(frame, "value", "time", unit.given["every"]),
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

        laplace = measured(0.0)
        for delta in PERSON_DELTAS:
            person = fastdp.Person("who", k, unit.given.get("period"), j)
            given: dict[str, Any] = {"bounds": fastdp.Value(clip=clip), "every": unit.given["every"], "unit": person}
            plans = {
                "laplace": fastdp.plan({"value": "sum"}, epsilon=1.0, windows=inside.size, **given),
                "gaussian": fastdp.plan({"value": "sum"}, epsilon=1.0, windows=inside.size, delta=delta, **given),
            }
            gaussian = measured(delta)
            row: dict[str, Any] = {"unit": unit.name, "k": k, "per window": j, "delta": delta, "clip": clip}
            row |= {"windows": inside.size, "mean": float(true.mean()) / clip, "dropped": dropped}
            for name, (estimates, revised) in (("laplace", laplace), ("gaussian", gaussian)):
                row[name] = {
                    "planned": plans[name].std_error / clip,
                    "noise": rms(estimates - inside) / clip,
                    "error": rms(estimates - true) / clip,
                    "revised": rms(revised - true) / clip,
                }
            better = min(("laplace", "gaussian"), key=lambda name: row[name]["noise"])
            found.append({**row, "better": better, "plan says": plans["gaussian"].noise})
    return found


RESULTS = ROOT / "benchmarks" / "results" / "gaussian.json"
#: Seconds that one mechanism may take.
LIMIT = 300
#: Of the conversion: rhos and deltas.
RHOS = (1e-6, 1e-4, 1e-3, 0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
DELTAS = (1e-3, 1e-5, 1e-6, 1e-7, 1e-9, 1e-12)


def prefixes(length: int, delta: float, only: str) -> list[dict[str, Any]]:
    """A row for each mechanism that is installed, or that has ``only`` in its name."""
    rows = []
    for name in mechanisms(delta):
        if only not in name:
            continue
        package = name.split()[0].rstrip(",")
        if importlib.util.find_spec(package) is None:
            print(f"left out: {name} (no {package})")
            continue
        script = [sys.executable, "-m", "benchmarks.accuracy.gaussian_prefix", name, str(length), str(delta)]
        try:
            done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"left out: {name} (not done after {LIMIT} s)", flush=True)
            continue
        if done.returncode:
            print(f"left out: {name} ({done.stderr.strip().splitlines()[-1]})", flush=True)
            continue
        rows.append(loads(done.stdout.splitlines()[-1]))
    return rows


def show_prefixes(rows: list[dict[str, Any]], length: int) -> None:
    columns = ("mechanism", "guarantee", "MSE", "values/s", "between two values", "rise, MB")
    names = ("name", "guarantee", "error", "speed", "memory")
    cells = [[*(row[name] for name in names), row["rise"] / 1e6] for row in rows]
    table(f"Prefix sums, T = {length:,}, in theta^2", columns, cells)


def show_persons(rows: list[dict[str, Any]]) -> None:
    kinds, errors = ("laplace", "gaussian"), ("planned", "noise", "error", "revised")
    columns = ["unit", "k", "in a window", "delta", "dropped"]
    columns += [f"{noise}: {what}" for noise in kinds for what in errors]
    cells = [
        [
            *(row["unit"], row["k"], row["per window"] or row["k"], f"{row['delta']:g}", f"{row['dropped']:.1%}"),
            *(row[noise][what] for noise in kinds for what in errors),
            *(row["better"], row["plan says"]),
        ]
        for row in rows
    ]
    title = "A window's total at epsilon = 1: root mean square errors, in clips"
    table(title, [*columns, "better", "plan says"], cells)


def conversion() -> list[dict[str, float]]:
    """Epsilon of (rho, delta) here and by dp-accounting's Renyi accountant at its default orders and at many."""
    import dp_accounting
    from dp_accounting import rdp

    def accountant(rho: float, orders: Any) -> Any:
        made = rdp.RdpAccountant(orders)
        return made.compose(dp_accounting.GaussianDpEvent((0.5 / rho) ** 0.5))

    dense = [1.0 + 1.02**i / 500.0 for i in range(1200)]
    return [
        {
            "rho": rho,
            "delta": delta,
            "fastdp": zcdp_epsilon(rho, delta),
            "dp-accounting": accountant(rho, None).get_epsilon(delta),
            "at 1,200 orders": accountant(rho, dense).get_epsilon(delta),
        }
        for rho in RHOS
        for delta in DELTAS
    ]


def run(
    *,
    parts: Annotated[Sequence[str], "tables", ("prefix", "persons", "conversion")] = ("prefix",),
    length: Annotated[int, "T, a power of two"] = 2**15,
    delta: float = 1e-6,
    only: Annotated[str, "mechanisms with this in their name"] = "",
    runs: Annotated[int, "releases of each real table"] = 20,
    json: Annotated[bool, f"write the numbers into {RESULTS.name}"] = False,
    data: Data = DATA,
) -> None:
    facts: dict[str, Any] = loads(RESULTS.read_text()) if json else {}
    name = f"prefix sums, T = {length}, delta = {delta:g}"
    if "prefix" in parts:
        facts[name] = prefixes(length, delta, only)
        show_prefixes(facts[name], length)
    if "persons" in parts:
        facts["persons"] = persons(data, runs)
        show_persons(facts["persons"])
    if "conversion" in parts:
        facts["conversion"] = conversion()
        rows = [[f"{cell:.6g}" for cell in row.values()] for row in facts["conversion"]]
        table("Epsilon that rho gives at delta", tuple(facts["conversion"][0]), rows)
    if json:
        RESULTS.write_text(dumps(facts, indent=1) + "\n")
