"""The front door's numbers: hourly totals beside the textbook, revised windows, and a person's day as the unit.

``--write`` puts the numbers into ``results/tables.json`` and the tables into ``docs/tables.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

import fastdp
from benchmarks import ROOT
from benchmarks.accuracy.streams import ARRAYS, REAL
from benchmarks.shared import DATA, Data, Runs, inserted, markdown
from fastdp.tables.answers import local_patterns, revise

RESULTS, PAGE = ROOT / "benchmarks" / "results" / "tables.json", ROOT / "docs" / "tables.md"
EPSILONS = (1.0, 0.1, 0.01)
HOUR, DAY = 3_600_000_000, 86_400_000_000
#: Real streams under their names on the page.
STREAMS = {name if name != "web clicks" else "web view": REAL[name] for name in ARRAYS}
#: The clip of the design page's reference case, whose textbook error is 8.2.
REFERENCE_CLIP = 5.84
#: Values of a stream in a window.
LENGTHS = (1, 10, 100, 1000)
MAX_WINDOWS = 20_000


class Windows(NamedTuple):
    """True sums of windows float64[W, K], the clip, and where windows begin, if anywhere."""

    name: str
    sums: Any
    clip: float
    edges: Any = None
    zone: str | None = None


def rms(errors: Any) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


# The reference case of the design page.


def households(data: Path) -> tuple[Any, Any]:
    """60 households x 120 days of half hours from the stream of ten meters and its reverse; hourly totals."""
    import pandas as pd

    kwh = STREAMS["smart meter"].values(data) / 1000.0
    kwh = np.concatenate([kwh, kwh[::-1]])[: 60 * 5760]
    times = pd.date_range("2024-01-01", periods=5760, freq="30min").repeat(60)
    return pd.DataFrame({"timestamp": times, "kwh": kwh}), kwh.reshape(2880, 2, 60).sum(axis=(1, 2))


def reference(data: Path, runs: int) -> list[dict[str, float]]:
    """Root mean square errors of hourly totals."""
    frame, true = households(data)
    rows = []
    for epsilon, clip in ((epsilon, clip) for clip in (REFERENCE_CLIP, None) for epsilon in EPSILONS):
        found = []
        for seed in range(runs):
            t = fastdp.totals(frame, "kwh", "timestamp", "1h", epsilon=epsilon, bound=10.0, clip=clip, seed=seed)
            (tail,) = t.released.tails.values()
            theta = tail.clip[1]
            clipped = np.minimum(frame["kwh"].to_numpy(), theta).reshape(2880, 120).sum(axis=1)
            # The expected error of clipped + Laplace(theta / epsilon), an hour at a time.
            textbook = np.sqrt(2.0 * (theta / epsilon) ** 2 + np.mean((clipped - true) ** 2))
            columns = t.frame
            revised, low, high = (columns[name].to_numpy() for name in ("revised", "revised_low", "revised_high"))
            found.append(
                {
                    "theta": theta,
                    "textbook": float(textbook),
                    "estimate": rms(columns["estimate"] - true),
                    "revised": rms(revised - true),
                    "covered": float(np.mean((columns["low"] <= clipped) & (clipped <= columns["high"]))),
                    "revised_covered": float(np.mean((low <= clipped) & (clipped <= high))),
                }
            )
        means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
        rows.append({"epsilon": epsilon, "chosen": clip is None, "mean": float(true.mean()), **means})
    return rows


# Revised windows.


def streams(data: Path) -> Iterator[Windows]:
    for name, stream in STREAMS.items():
        values = stream.values(data)
        clip = float(np.quantile(values, 0.995))
        for length in LENGTHS:
            kept = np.minimum(values, clip)[: values.size // length * length]
            sums = kept.reshape(-1, length).sum(axis=1)[:MAX_WINDOWS, None]
            yield Windows(name, sums, clip)
        if name == "smart meter":
            hours = np.minimum(values, clip)[: values.size // 2 * 2].reshape(-1, 2).sum(axis=1)[:MAX_WINDOWS, None]
            yield Windows(name, hours, clip, HOUR * np.arange(hours.size + 1))


def table_windows(data: Path) -> Iterator[Windows]:
    for name, clips in {"bike_trips": (1.0,), "pedestrians": (1.0, 3000.0), "retail_lines": (1.0,)}.items():
        for length in (HOUR, DAY):
            for whole in (True, False):
                for clip in clips:
                    yield _windows(data, name, length, whole, clip)


def _windows(data: Path, name: str, length: int, whole: bool, clip: float) -> Windows:
    import pyarrow.parquet as parquet

    zone = {"bike_trips": "America/Los_Angeles", "pedestrians": "Australia/Melbourne"}.get(name)
    key = {"bike_trips": "start_station", "pedestrians": "sensor", "retail_lines": "country"}[name]
    table = parquet.read_table(data / "tables" / f"{name}.parquet")
    times = table["time"].to_numpy().astype("datetime64[us]").astype(np.int64)
    # Windows of a day here are 24 hours long, so that they can be counted without a calendar.
    numbers = (times - times.min()) // length
    codes = table[key].combine_chunks().indices.to_numpy()
    sums = np.zeros((int(numbers.max()) + 1, 1 if whole else int(codes.max()) + 1))
    weights = np.minimum(table["count"].to_numpy(), clip if clip > 1.0 else np.inf) if name == "pedestrians" else 1.0
    np.add.at(sums, (numbers, 0 if whole else codes), weights)
    edges = times.min() // length * length + length * np.arange(len(sums) + 1)
    return Windows(name.split("_")[0], sums, clip, edges, zone)


def revised(data: Path, runs: int) -> list[dict[str, Any]]:
    """Mean square errors of revised windows over those of the estimates, and the coverage of their intervals."""
    rows = []
    for windows in (*streams(data), *table_windows(data)):
        patterns = [] if windows.edges is None else local_patterns(windows.edges, windows.zone)
        for epsilon in EPSILONS:
            scale, rng = windows.clip / epsilon, np.random.default_rng(1)
            ratios, covered = [], []
            # The tails of noise that nothing takes away: what intervals of totals and counts use.
            quantile = np.log(20.0) / np.sqrt(2.0)
            # As many as give 10,000 windows a run: coverage is then known to .1 %.
            for _ in range(max(1, runs * MAX_WINDOWS // windows.sums.size // 2)):
                noise = rng.laplace(0.0, scale, windows.sums.shape)
                smooth = revise(windows.sums + noise, 2.0 * scale**2, patterns)
                errors = smooth.values - windows.sums
                ratios.append(np.mean(errors**2) / np.mean(noise**2))
                covered.append(np.mean(np.abs(errors) <= quantile * np.sqrt(smooth.variances)))
            rows.append(
                {
                    "stream": windows.name,
                    "windows": list(windows.sums.shape),
                    "epsilon": epsilon,
                    "noise": float(np.sqrt(2.0) * scale),
                    "spread": float(windows.sums.std()),
                    "ratio": float(np.mean(ratios)),
                    "covered": float(np.mean(covered)),
                }
            )
    return rows


# A customer's day.


def persons(data: Path, runs: int) -> list[dict[str, Any]]:
    """Lines and amounts a day of the retail table, by unit of privacy."""
    import polars as pl

    lines = pl.read_parquet(data / "tables" / "retail_lines.parquet").drop_nulls("customer")
    days = lines.with_columns(day=pl.col("time").dt.date())
    most = int(days.group_by("day", "customer").len()["len"].max())  # type: ignore[arg-type]
    low, high = -5_000.0, 20_000.0
    begin, end = days["day"].min(), days["day"].max()
    true = pl.DataFrame({"day": pl.date_range(begin, end, eager=True)})
    amount = pl.col("amount_pence").clip(int(low), int(high)).sum()
    true = true.join(days.group_by("day").agg(pl.len(), amount), "day", "left").fill_null(0).sort("day")
    units: list[tuple[str, int, fastdp.Rows | fastdp.Person]] = [("one line", 1, fastdp.Rows())]
    units += [("a customer's day", k, fastdp.Person("customer", rows=k, per="1d")) for k in (5, 20, 100)]
    units += [("a customer's day, no line dropped", most, fastdp.Rows(most))]
    rows = []
    for name, k, unit in units:
        # What the bounds drop, without noise: an evaluation, not a release.
        kept = days.group_by("day", "customer").len()["len"].clip(upper_bound=k).sum() if k > 1 else len(days)
        found: dict[str, list[float]] = {"count": [], "count revised": [], "amount": [], "amount revised": []}
        for seed in range(runs):
            counts = fastdp.counts(lines, "time", "1d", epsilon=1.0, seed=seed, unit=unit)
            totals = fastdp.totals(
                lines, "amount_pence", "time", "1d", epsilon=1.0, bound=(low, high), seed=seed, unit=unit
            )
            for column, table, exact in (("count", counts, true["len"]), ("amount", totals, true["amount_pence"])):
                errors = [table.frame[each].to_numpy() - exact.to_numpy() for each in ("estimate", "revised")]
                found[column].append(rms(errors[0]))
                found[f"{column} revised"].append(rms(errors[1]))
        rows.append({"unit": name, "k": k, "dropped": 1.0 - int(kept) / len(days)})
        rows[-1] |= {name: float(np.mean(each)) for name, each in found.items()}
        rows[-1] |= {"lines a day": float(true["len"].mean()), "amount a day": float(true["amount_pence"].mean())}  # type: ignore[arg-type]
    return rows


# Pages.


def pages(results: dict[str, Any]) -> dict[str, str]:
    """Tables of the page by their marks."""
    shown: list[list[str]] = [
        [
            f"{row['epsilon']:g}",
            f"{row['theta']:.3g}{', chosen' if row['chosen'] else ''}",
            *(f"{row[name]:.3g}" for name in ("textbook", "estimate", "revised")),
            *(f"{row[name]:.1%}" for name in ("covered", "revised_covered")),
        ]
        for row in results["reference"]
    ]
    heads = ["epsilon", "clip, kWh", "textbook", "estimate", "revised", "estimate covered", "revised covered"]
    out = {"reference": markdown(heads, shown)}
    cells: dict[str, dict[float, list[Any]]] = {}
    for row in results["revised"]:
        cells.setdefault(row["stream"], {}).setdefault(row["epsilon"], []).append((row["ratio"], row["covered"]))
    shown = []
    for name, by in cells.items():
        pairs = {epsilon: np.array(found).T for epsilon, found in by.items()}
        shown.append([name, *(f"{r.min():.3f} to {r.max():.3f} ({c.min():.1%})" for r, c in pairs.values())])
    out["revised"] = markdown(["stream", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)], shown)
    shown = [
        [
            f"{row['unit']}, k = {row['k']:,}",
            f"{row['dropped']:.1%}",
            *(f"{row[name]:,.0f}" for name in ("count", "count revised")),
            *(f"{row[name] / 100:,.0f}" for name in ("amount", "amount revised")),
        ]
        for row in results["persons"]
    ]
    heads = ["unit", "lines dropped", "lines: error", "revised", "amount, pounds: error", "revised"]
    return out | {"persons": markdown(heads, shown)}


def filled(page: str, tables: dict[str, str]) -> str:
    """The page with its tables between their marks."""
    for name, table in tables.items():
        page = inserted(page, f"<!-- {name} -->\n", "<!-- end -->", f"\n{table}\n\n")
    return page


def run(
    *,
    runs: Runs = 10,
    write: Annotated[bool, "results/tables.json and the tables of docs/tables.md"] = False,
    data: Data = DATA,
) -> None:
    results = {"reference": reference(data, runs), "revised": revised(data, runs), "persons": persons(data, runs)}
    cells = results["revised"]
    worst, covered = max(row["ratio"] for row in cells), min(row["covered"] for row in cells)
    noisy = max(row["ratio"] for row in cells if row["noise"] > row["spread"])
    print(
        f"\nmean squares, revised over estimate: at most {worst:.3f}; {noisy:.3f} where noise exceeds the windows' "
    )
    print(f"spread; coverage at least {covered:.2%}")
    for name, table in pages(results).items():
        print(f"\n{name}\n\n{table}")
    if write:
        RESULTS.write_text(json.dumps({"runs": runs, **results}, indent=1) + "\n")
        PAGE.write_text(filled(PAGE.read_text(), pages(results)))
