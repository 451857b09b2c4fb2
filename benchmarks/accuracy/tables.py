"""True coverage and error of tables: sums of skewed values by window, range, key and in all, and of persons.

Constants of the answers were chosen on the first three tables, but OF_TIME on all; UNTUNED are the others.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks import ROOT
from benchmarks.shared import DATA, Data, Runs, table
from fastdp.tables.answers import Answers

RESULTS = ROOT / "benchmarks" / "results" / "tables.json"
EPSILONS = (0.1, 1.0)
#: Tables on which nothing was chosen.
UNTUNED = ("pedestrians", "pareto", "gamma")
BEGIN = np.datetime64("2024-01-01", "us")
RELEASES = {"sum": fastdp.totals, "mean": fastdp.means}
ALL = np.zeros(1, np.int64), np.ones(1, np.int64)
#: Public bound of the amount of an order line.
PERSONS_BOUND = 2000.0
NAMES, KINDS = ["statistic", "table", "epsilon", "of", "span", "kind"], ("estimate", "revised")


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


def exact(rows: Any, every: str, ends: tuple[float, float]) -> tuple[Any, Any, list[str]]:
    """Sums of values clipped to `ends`, float64[W, K], numbers of rows, and the keys."""
    import pandas as pd

    windows = rows["time"].dt.floor({"1h": "h", "1d": "D"}[every])
    numbers = ((windows - windows.min()) // pd.Timedelta(every)).to_numpy()
    codes, keys = pd.factorize(rows["key"], sort=True)
    sums = np.zeros((numbers.max() + 1, len(keys)))
    counts = np.zeros(sums.shape)
    np.add.at(sums, (numbers, codes), np.clip(rows["x"], *ends))
    np.add.at(counts, (numbers, codes), 1.0)
    return sums, counts, list(keys)


def ranges(windows: int, rng: np.random.Generator) -> dict[str, tuple[Any, Any]]:
    """Starts and stops of all windows, of 30 ranges of a twentieth of them, and of all together."""
    each, length = np.arange(windows), max(1, windows // 20)
    some = rng.integers(0, windows - length + 1, 30)
    return {
        "windows": (each, each + 1),
        "ranges": (some, some + length),
        "all": (np.zeros(1, np.int64), np.full(1, windows)),
    }


def answered(exact: tuple[Any, Any, Any], starts: Any, stops: Any, *, keys: bool, mean: bool) -> Any:
    """The exact answers: sums over windows [start, stop), or means, NaN of no rows: float64[q, K]."""
    found = []
    for each in exact[:2]:
        prefix = np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)])
        answer = prefix[stops] - prefix[starts]
        found.append(answer if keys else answer.sum(axis=1, keepdims=True))
    sums, counts = found
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0.5) if mean else sums


def sums(data: Path, runs: int) -> Any:
    """Coverage and root mean square errors of totals and means: with keys (cells, keys) and without (all keys).

    "covered" is of intervals with both ends; "missing" the share of others.
    """
    import pandas as pd

    found = []
    for name, (rows, every, bound) in tables(data).items():
        true = exact(rows, every, (0.0, bound))
        doors = {"all keys": {}, "keys": {"by": "key", "keys": true[2]}}
        for epsilon, (statistic, release) in itertools.product(EPSILONS, RELEASES.items()):
            for seed in range(runs):
                rng = np.random.default_rng(seed)
                for of, given in doors.items():
                    public = {"epsilon": epsilon, "bound": bound, "seed": f"{name} {seed}", **given}
                    t = release(rows, "x", fastdp.Time("time", every=every), **public)
                    answers, asked = Answers(t.released, 0.95), t.released.statistics[0]
                    for (span, (starts, stops)), kind in itertools.product(ranges(len(true[0]), rng).items(), KINDS):
                        whole = answered(true, starts, stops, keys=of == "keys", mean=statistic == "mean")
                        some = np.isfinite(whole)
                        answer = answers.about(asked, starts, stops, revised=kind == "revised")
                        known = some & np.isfinite(answer.low) & np.isfinite(answer.high)
                        inside = (answer.low <= whole) & (whole <= answer.high)
                        held = np.mean(inside[known]) if known.any() else np.nan, 1.0 - known.sum() / some.sum()
                        errors = (answer.estimate - whole)[some]
                        share = abs(errors.sum() / whole[some].sum())
                        row = [statistic, name, epsilon, of, span, kind, *held]
                        found.append([*row, np.mean(errors**2), share])
    frame = pd.DataFrame(found, columns=[*NAMES, "covered", "missing", "error", "share"])
    by_cell = frame.groupby(NAMES, sort=False)
    means = by_cell.mean().assign(share=by_cell["share"].median())
    return means.assign(error=np.sqrt(means["error"])).reset_index()


def order_lines(data: Path) -> Any:
    """Order lines of customers: their days, numbers of customers and of lines of theirs, and amounts in pounds."""
    import pandas as pd

    lines = pd.read_parquet(data / "tables" / "retail_lines.parquet").dropna(subset="customer")
    lines = lines[lines["amount_pence"] >= 0]
    days = lines["time"].dt.floor("D")
    numbers, owners = (days - days.min()).dt.days, pd.factorize(lines["customer"])[0]
    return lines.assign(
        day=numbers, owner=owners, rows=np.bincount(owners)[owners], x=lines["amount_pence"] / 100.0, one=1.0
    )


def open_dp(lines: Any, k: int, value: str, rng: np.random.Generator) -> Any:
    """Daily sums by OpenDP of at most k rows of a person; a clip takes a tenth of epsilon 1 (the .99 quantile)."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    own = lines.sample(frac=1.0, random_state=rng).groupby("owner").head(k)
    values, loss = own[value].to_numpy(), 1.0
    if value == "x":
        candidates = np.geomspace(1.0, PERSONS_BOUND, 60).tolist()
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
        scores = dp.t.make_quantile_score_candidates(*domain, candidates, 0.99)
        scale = dp.binary_search_param(
            lambda each: scores >> dp.m.then_noisy_max(dp.max_divergence(), each, negate=True), k, loss / 10.0
        )
        chooser = scores >> dp.m.then_noisy_max(dp.max_divergence(), scale, negate=True)
        top, loss = candidates[chooser(values.tolist())], loss * 0.9
        values, k = np.minimum(values, top), k * top
    sums = np.bincount(own["day"], values, int(lines["day"].max()) + 1)
    noisy = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float), k / loss)
    return np.array(noisy(sums.tolist()))


def persons(data: Path, runs: int) -> list[dict[str, Any]]:
    """Lines a day of customers, and their amounts, with at most k rows of each, at epsilon 1, beside OpenDP.

    "total" is the relative error of the sum of all days.  "covered" is of days, "all covered" of all days together,
    where both ends are known; "missing" is the share of days without.
    """
    lines, found = order_lines(data), []
    days = int(lines["day"].max()) + 1

    for value, k in itertools.product(("one", "x"), (5, 20, 100, "auto")):
        true, listed = np.bincount(lines["day"], np.minimum(lines[value], PERSONS_BOUND), days), []
        for seed in range(runs):
            given = {"epsilon": 1.0, "unit": fastdp.Person("customer", rows=k), "seed": seed}
            if value == "x":
                t = fastdp.totals(lines, "x", "time", "1d", bound=PERSONS_BOUND, **given)
            else:
                t = fastdp.counts(lines, "time", "1d", **given)
            rows = k if isinstance(k, int) else int(re.findall(r"\(k = (\d+)\)", str(t.guarantee.derivation))[0])
            held = []
            for starts, stops in ((np.arange(days), np.arange(days) + 1), ([0], [days])):
                low, high = t.interval(starts, stops)
                sums_ = np.array([true[a:b].sum() for a, b in zip(starts, stops, strict=True)])
                held += [1.0 - np.mean((low > sums_) | (sums_ > high)), np.mean(np.isnan(low) | np.isnan(high))]
            own = t.sum(np.arange(days), np.arange(days) + 1)
            both = own, open_dp(lines, rows, value, np.random.default_rng(seed))
            wrong = [abs(each.sum() / true.sum() - 1.0) for each in both]
            daily = [np.sqrt(np.mean((each - true) ** 2)) / true.mean() for each in both]
            listed.append([*wrong, *daily, *held, rows])
        numbers = list(zip(*listed, strict=True))
        middle, means = ([float(of(each)) for each in numbers] for of in (np.median, np.mean))
        found.append(
            {
                "of": "lines" if value == "one" else "amounts",
                "k": f"auto: {middle[8]:.0f}" if k == "auto" else str(k),
                **dict(zip(("total", "OpenDP", "a day", "OpenDP a day"), middle, strict=False)),
                **dict(zip(("covered", "missing", "all covered", "all missing"), means[4:8], strict=True)),
            }
        )
    return found


def show(results: dict[str, Any]) -> None:
    import pandas as pd

    shown = []
    for (statistic, name, epsilon), own in pd.DataFrame(results["sums"]).groupby(NAMES[:3], sort=False):
        least = own.groupby("kind")["covered"].min()
        total = own.query("kind == 'estimate' and of == 'all keys' and span == 'all'")["share"].item()
        shares = [f"{each:.0%}" for each in (*least[list(KINDS)], own["missing"].max())]
        shown.append([statistic, f"{name}{' *' * (name in UNTUNED)}", f"{epsilon:g}", *shares, f"{total:.1%}"])
    table("sums", ["of", "table", "epsilon", "covered", "revised", "missing", "error"], shown)
    table("persons", list(results["persons"][0]), [list(row.values()) for row in results["persons"]])


def run(
    *, runs: Runs = 12, write: Annotated[bool, f"keep the numbers in {RESULTS.name}"] = False, data: Data = DATA
) -> None:
    """TRUE coverage and errors of tables."""
    results = {"runs": runs, "sums": sums(data, runs).to_dict("records"), "persons": persons(data, runs)}
    show(results)
    if write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
