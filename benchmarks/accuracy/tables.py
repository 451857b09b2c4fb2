"""True coverage and error of tables: sums of skewed values by window, range, key and in all, levels, persons.

Constants of the answers were chosen on the first three tables, but OF_TIME on all; UNTUNED are the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks import ROOT
from benchmarks.shared import DATA, Data, Runs, inserted, markdown
from fastdp.tables.answers import Answers

RESULTS, PAGE = ROOT / "benchmarks" / "results" / "tables.json", ROOT / "docs" / "tables.md"
EPSILONS = (0.1, 1.0)
#: Tables on which nothing was chosen.
UNTUNED = ("pedestrians", "pareto", "gamma")
BEGIN = np.datetime64("2024-01-01", "us")
ALL = np.zeros(1, np.int64), np.ones(1, np.int64)
NAMES = ("table", "epsilon", "of", "span", "kind")


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
            about: list[str] = []
            for seed in range(runs):
                rng = np.random.default_rng(seed)
                for of, (wanted, given) in by.items():
                    given = {"epsilon": epsilon, "bound": bound, "seed": f"{name} {seed}", **given}
                    t = fastdp.totals(rows, "x", fastdp.Time("time", every=every), **given)
                    said = t.arrow["about"][0].as_py() if "about" in t.arrow.column_names else "true"
                    about.append(said)
                    for span, (starts, stops) in ranges(len(true), rng).items():
                        prefix = np.concatenate([np.zeros((1, wanted.shape[1])), np.cumsum(wanted, axis=0)])
                        answer = prefix[stops] - prefix[starts]
                        for kind in ("estimate", "revised"):
                            low, high = (
                                each.reshape(answer.shape)
                                for each in t.interval(starts, stops, revised=kind == "revised")
                            )
                            value = t.sum(starts, stops, revised=kind == "revised").reshape(answer.shape)
                            # Only where the frame says that it is about the true answer.
                            held = np.mean((low <= answer) & (answer <= high)) if said == "true" else np.nan
                            error = float(np.mean((value - answer) ** 2))
                            cells.setdefault((of, span, kind), []).append(
                                [held, error, abs((value - answer).sum() / true.sum())]
                            )
            for names, listed in cells.items():
                held, error, _ = np.nanmean(listed, axis=0)
                row = dict(zip(NAMES, (name, epsilon, *names), strict=True)) | {
                    "true": about.count("true") / len(about)
                }
                share = float(np.median(listed, axis=0)[2])
                found.append(row | {"covered": float(held), "error": float(np.sqrt(error)), "share": share})
    return found


def levels(runs: int) -> list[dict[str, Any]]:
    """Standard errors of counts of 96 towns in 8 regions: towns added up, and all levels consistent."""
    import pandas as pd

    towns = [(f"r{town // 12}", f"t{town}") for town in range(96)]
    rows = pd.DataFrame([town for town in towns for _ in range(50)], columns=["region", "town"])
    found = []
    for asked in (False, True):
        errors: dict[int, list[Any]] = {0: [], 1: [], 2: []}
        for seed in range(20 * runs):
            t = fastdp.aggregate(
                rows, {"*": "count"}, by=["region", "town"], keys=towns, epsilon=1.0, levels=asked, seed=seed
            )
            for depth, each in errors.items():
                each.append(Answers(t.released, 0.95).about(*t.released.statistics, *ALL, depth=depth).estimate)
        names = ("country", "region", "town")
        found.append(
            {
                "levels": asked,
                **{
                    name: float(np.std(errors[depth] - np.mean(errors[depth], 0))) for depth, name in enumerate(names)
                },
            }
        )
    return found


def persons(data: Path, runs: int) -> list[dict[str, Any]]:
    """Lines a day of customers with at most k rows: halves of the series and coverage of all windows together."""
    import pandas as pd

    lines = pd.read_parquet(data / "tables" / "retail_lines.parquet").dropna(subset="customer")
    days = lines["time"].dt.floor("D")
    true = np.bincount((days - days.min()).dt.days)
    half, found = true.size // 2, []
    for k in (5, 20, 100):
        ratios, held = [], []
        for seed in range(runs):
            t = fastdp.counts(lines, "time", "1d", epsilon=1.0, unit=fastdp.Person("customer", rows=k), seed=seed)
            first, second = t.sum([0, half], [half, true.size])
            ratios.append(second / first / (true[half:].sum() / true[:half].sum()))
            low, high = t.interval(0, true.size)
            held.append(low[0] <= true.sum() <= high[0])
        about = t.arrow["about"][0].as_py()
        found.append({"k": k, "halves": float(np.median(ratios)), "covered": float(np.mean(held)), "about": about})
    return found


def pages(results: dict[str, Any]) -> dict[str, str]:
    """Tables of the page by their marks."""
    shown = []
    for name in dict.fromkeys(row["table"] for row in results["sums"]):
        for epsilon in EPSILONS:
            own = [row for row in results["sums"] if (row["table"], row["epsilon"]) == (name, epsilon)]
            estimates = {(row["of"], row["span"]): row for row in own if row["kind"] == "estimate"}
            cells: list[object] = [f"{name}{' *' if name in UNTUNED else ''}", f"{epsilon:g}"]
            for kind in ("estimate", "revised"):
                cells.append(f"{min(row['covered'] for row in own if row['kind'] == kind):.0%}")
            cells += [f"{own[0]['true']:.0%}", f"{estimates['all keys', 'all']['share']:.1%}"]
            for key in (("all keys", "windows"), ("all keys", "ranges"), ("keys", "all")):
                row = estimates[key]
                cells.append("-" if row["before"] is None else f"{row['error'] / row['before']:.2f}")
            shown.append(cells)
    heads = [
        "table",
        "epsilon",
        "least covered",
        "revised",
        "true",
        "grand total's error",
        "windows",
        "ranges",
        "keys",
    ]
    out = {"sums": markdown(heads, shown)}
    for name in ("levels", "persons"):
        out[name] = markdown(
            list(results[name][0]),
            [[str(v) if isinstance(v, bool) else v for v in row.values()] for row in results[name]],
        )
    return out


def filled(page: str, listed: dict[str, str]) -> str:
    """The page with its tables between their marks."""
    for name, text in listed.items():
        page = inserted(page, f"<!-- {name} -->\n", "<!-- end -->", f"\n{text}\n\n")
    return page


def run(
    *,
    runs: Runs = 12,
    before: Annotated[str, "file with the rows of a run at another commit"] = "",
    write: Annotated[bool, "results/tables.json and the tables of docs/tables.md"] = False,
    data: Data = DATA,
) -> None:
    """TRUE coverage and errors of tables; `before` adds the errors of another commit beside."""
    rows = sums(data, runs)
    others = json.loads(Path(before).read_text()) if before else []
    old = {tuple(row[name] for name in NAMES): row["error"] for row in others}
    for row in rows:
        row["before"] = old.get(tuple(row[name] for name in NAMES))
    results = {"runs": runs, "sums": rows, "levels": levels(runs), "persons": persons(data, runs)}
    for name, text in pages(results).items():
        print(f"\n{name}\n\n{text}")
    if write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(filled(PAGE.read_text(), pages(results)))
