"""True coverage and error of tables: sums of skewed values by window, range, key and in all, persons, and levels.

Constants of the answers were chosen on the first three tables; the others (marked) were left alone.  ``--before`` reads
the file of a run at another commit, whose errors are shown beside; ``--write`` puts the numbers into
``results/tables.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "tables.json"
EPSILONS = (0.1, 1.0)
#: Tables on which nothing was chosen.
UNTUNED = ("pedestrians", "pareto", "gamma")
BEGIN = np.datetime64("2024-01-01", "us")


def frame(times: Any, keys: Any, values: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"time": times, "key": np.asarray(keys).astype(str), "x": values})


def drawn(rng: np.random.Generator, rows: int, days: int, swing: float) -> Any:
    """Hours of rows with patterns of the day and of the week and a slow wave."""
    hours = np.arange(days * 24)
    rates = (1.0 + swing * np.sin(2.0 * np.pi * (hours % 24 - 8) / 24)) * (1.0 - 0.35 * (hours // 24 % 7 >= 5))
    rates *= 1.0 + 0.3 * np.sin(2.0 * np.pi * hours / hours.size)
    return np.sort(rng.choice(hours.size, rows, p=rates / rates.sum()))


def tables(data: Path) -> dict[str, tuple[Any, str, float]]:
    """Frames with columns time, key, x, their windows and the public bound of values from 0."""
    import pandas as pd

    read = {name: pd.read_parquet(data / "tables" / f"{name}.parquet") for name in ("bike_trips", "pedestrians")}
    bike, walk = read.values()
    lines = pd.read_parquet(data / "tables" / "retail_lines.parquet")
    lines = lines[lines["amount_pence"] >= 0]
    found = {
        "bike": (frame(bike["time"], bike["start_station"], bike["duration_s"]), "1d", 86_400.0),
        "retail": (frame(lines["time"], lines["country"], lines["amount_pence"] / 100.0), "1d", 20_000.0),
    }
    rng = np.random.default_rng(101)
    hours, n = drawn(rng, 300_000, 182, 0.8), 300_000
    values = np.where(rng.random(n) < 0.52, 0.0, rng.lognormal(2.0, 2.0, n)).round(1)
    weights = 1.0 / np.arange(1, 15)
    delays = frame(BEGIN + hours.astype("m8[h]"), rng.choice(14, n, p=weights / weights.sum()), values)
    found["delays"] = delays, "1h", 10_000.0
    found["pedestrians"] = frame(walk["time"].dt.tz_localize(None), walk["sensor"], walk["count"]), "1h", 12_000.0
    rng = np.random.default_rng(102)
    hours, n = drawn(rng, 200_000, 365, 0.5), 200_000
    keys = np.minimum(rng.zipf(1.6, n), 40)
    values = (10.0 * (rng.pareto(1.5, n) + 1.0) * (1.0 + 0.03 * keys)).round(2)
    found["pareto"] = frame(BEGIN + hours.astype("m8[h]"), keys, values), "1d", 1e5
    rng = np.random.default_rng(103)
    hours, n = drawn(rng, 500_000, 90, 0.9), 500_000
    bursts = np.isin(hours // 24, rng.choice(90, 6, replace=False))
    keys = rng.integers(0, 8, n)
    scale = (1.0 + 0.5 * np.sin(2.0 * np.pi * (hours % 24) / 24)) * (1.0 + 0.2 * keys) * np.where(bursts, 2.5, 1.0)
    found["gamma"] = frame(BEGIN + hours.astype("m8[h]"), keys, (rng.gamma(1.2, 30.0, n) * scale).round(1)), "1h", 5e3
    return found


def exact(rows: Any, every: str, bound: float) -> tuple[Any, list[str]]:
    """True sums, float64[W, K], and the keys."""
    import pandas as pd

    windows = rows["time"].dt.floor({"1h": "h", "1d": "D"}[every])
    numbers = ((windows - windows.min()) // pd.Timedelta(every)).to_numpy()
    codes, keys = pd.factorize(rows["key"], sort=True)
    sums = np.zeros((numbers.max() + 1, len(keys)))
    np.add.at(sums, (numbers, codes), np.clip(rows["x"], 0.0, bound))
    return sums, list(keys)


def ranges(windows: int, rng: np.random.Generator) -> dict[str, tuple[Any, Any]]:
    """Starts and stops of all windows, of 30 ranges of a twentieth of them, and of all together."""
    each, length = np.arange(windows), max(1, windows // 20)
    some = rng.integers(0, windows - length + 1, 30)
    return {
        "windows": (each, each + 1),
        "ranges": (some, some + length),
        "all": (np.zeros(1, np.int64), np.full(1, windows)),
    }


def sums(data: Path, runs: int) -> list[dict[str, Any]]:
    """TRUE coverage and root mean square errors of totals: with keys (cells, keys) and without (all keys)."""
    found = []
    for name, (rows, every, bound) in tables(data).items():
        true, keys = exact(rows, every, bound)
        by = {"all keys": (true.sum(axis=1, keepdims=True), {}), "keys": (true, {"by": "key", "keys": keys})}
        for epsilon in EPSILONS:
            cells: dict[tuple[str, str, str], list[list[float]]] = {}
            about = set()
            for seed in range(runs):
                rng = np.random.default_rng(seed)
                for of, (wanted, given) in by.items():
                    given = {"epsilon": epsilon, "bound": bound, "seed": f"{name} {seed}", **given}
                    t = fastdp.totals(rows, "x", fastdp.Time("time", every=every), **given)
                    about |= set(t.arrow["about"].unique().to_pylist()) if "about" in t.arrow.column_names else {"-"}
                    for span, (starts, stops) in ranges(len(true), rng).items():
                        prefix = np.concatenate([np.zeros((1, wanted.shape[1])), np.cumsum(wanted, axis=0)])
                        answer = prefix[stops] - prefix[starts]
                        for kind in ("estimate", "revised"):
                            low, high = (
                                each.reshape(answer.shape)
                                for each in t.interval(starts, stops, revised=kind == "revised")
                            )
                            value = t.sum(starts, stops, revised=kind == "revised").reshape(answer.shape)
                            held = np.mean((low <= answer) & (answer <= high))
                            error = float(np.mean((value - answer) ** 2))
                            cells.setdefault((of, span, kind), []).append(
                                [held, error, (value - answer).sum() / true.sum()]
                            )
            for (of, span, kind), listed in cells.items():
                held, error, share = np.mean(listed, axis=0)
                share = float(np.median(np.abs(np.array(listed)[:, 2])))
                row = {
                    "table": name,
                    "epsilon": epsilon,
                    "of": of,
                    "span": span,
                    "kind": kind,
                    "about": sorted(about),
                }
                found.append(row | {"covered": float(held), "error": float(np.sqrt(error)), "share": share})
                print(
                    name,
                    epsilon,
                    of,
                    span,
                    kind,
                    f"{held:.3f} {np.sqrt(error):.4g} {share:.4f}",
                    sorted(about),
                    flush=True,
                )
    return found
