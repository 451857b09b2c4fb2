"""ToPS Table 1 (the streams) and Figure 1 (what noisy max minimises, beside the true error)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy.streams import STREAMS, Real
from benchmarks.shared import Floats, table
from fastdp.perturbers import Hierarchy
from fastdp.thresholds import Fixed
from fastdp_lab.datasets import TABLE1, hold_out_and_extend, table1
from fastdp_lab.queries import mse, random_ranges
from fastdp_lab.sweeps.figures import COLOURS, TRUTH, grid, legend

LEVELS = (0.85, 0.95, 0.995, 1.0)
EPSILON, C = 0.1, 60.0
CANDIDATES = 48


def characteristics(data: Path | None) -> None:
    """Table 1: the paper's rows, the streams synthetic to them, and the real ones at hand."""
    rows = []
    for name, row in TABLE1.items():
        numbers = [f"{x:,}" for x in (row.length, row.bound, *row.quantiles)]
        rows += [[name, "ToPS", *numbers, f"{row.mean:g}"], _line(name, "synthetic", table1(name), row.bound)]
    for name, stream in STREAMS.items() if data is not None else ():
        rows.append(_line(name, "real, at hand", stream.values(data), stream.bound))
    table(
        "ToPS Table 1: the paper's streams, those synthetic to have the same quantiles, and real ones",
        ["stream", "which", "n", "bound", "p85", "p95", "p99.5", "p100", "mean"],
        rows,
    )


def _line(name: str, which: str, values: Floats, bound: int) -> list[str]:
    # The quantile is a value of the stream.
    levels = np.quantile(values, LEVELS, method="inverted_cdf")
    return [name, which, f"{values.size:,}", f"{bound:,}", *(f"{x:,.0f}" for x in levels), f"{values.mean():.4g}"]


def noise_part(theta: Floats, epsilon: float) -> Floats:
    """First term of Eq. 4, its root: standard deviation of the noise of a random range under H_16."""
    b = shared.FAN_OUT
    return theta / epsilon * math.sqrt(2.0 * (b - 1) * math.log(shared.MAX_RANGE, b) ** 3)


def figure_1(output: Path, data: Path | None, runs: int) -> list[Path]:
    """Eq. 6 on the hold-out, Eq. 4 on the stream, and measured errors, all as roots, against theta."""
    real = data is not None and STREAMS["DNS"].there(data)
    whole = STREAMS["DNS"].values(data) if real else table1("dns", order="diurnal").astype(np.float64)
    name, bound = ("DNS (Google)", STREAMS["DNS"].bound) if real else ("DNS (synthetic)", TABLE1["dns"].bound)
    values = hold_out_and_extend(whole, shared.HOLDOUT, shared.PUBLISHED)
    held, body = values[: shared.HOLDOUT], values[shared.HOLDOUT :]
    lowest = max(1.0, float(np.quantile(body, LEVELS[0])) / 6.0)
    theta = np.unique(np.rint(np.geomspace(lowest, body.max(), CANDIDATES)))
    r, m = shared.MAX_RANGE, shared.HOLDOUT
    bias = C * r / (3.0 * m) * np.array([np.count_nonzero(held > x) for x in theta])
    exact = r / 3.0 * np.array([np.maximum(body - x, 0.0).mean() for x in theta])
    noise = noise_part(theta, EPSILON)
    approximated, squared = noise + bias, np.sqrt(noise**2 + exact**2)
    measured = np.array([_measure(body, x, bound, runs) for x in theta])
    title = rf"Figure 1 of ToPS: {name}, $\epsilon$ = 0.1, $m = 2^{{16}}$, $r = 2^{{20}}$"
    figure, axes = grid(1, 1, title, width=7.5, height=4.2)
    ax, handles = axes[0, 0], {}
    lines = (
        ("Eq. 6 (noisy max)", approximated, COLOURS[0], "-", 2.0),
        ("its noise", noise, COLOURS[0], ":", 1.2),
        ("its bias", bias, COLOURS[0], "--", 1.2),
        ("Eq. 4", squared, COLOURS[1], "-", 1.6),
        (f"measured, {runs} runs", measured, TRUTH, "-", 1.6),
    )
    for name, heights, colour, dash, width in lines:
        (handles[name],) = ax.plot(theta, heights, color=colour, linestyle=dash, linewidth=width)
    for heights, colour in ((approximated, COLOURS[0]), (squared, COLOURS[1]), (measured, TRUTH)):
        k = int(np.argmin(heights))
        ax.plot(theta[k], heights[k], marker="o", color=colour, markersize=7)
    ax.set(xscale="log", yscale="log", xlabel=r"$\theta$", ylabel="root mean square error")
    ax.set_ylim(bottom=0.2 * measured.min(), top=3.0 * max(squared.max(), approximated.max()))
    ticks = [x for x in (1, 2, 5, 10, 20, 50, 100, 200, 500) if theta[0] <= x <= theta[-1]]
    ax.set_xticks(ticks, [str(x) for x in ticks])
    ax.set_xticks([], minor=True)
    legend(figure, handles)
    best = [int(theta[int(np.argmin(heights))]) for heights in (approximated, squared, measured)]
    print(f"theta at the minimum: Eq. 6 {best[0]}, Eq. 4 {best[1]}, measured {best[2]}")
    paths = [output / f"figure_1.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        figure.savefig(path)
    return paths


def _measure(body: Floats, theta: float, bound: float, runs: int) -> float:
    prefix = np.concatenate([[0.0], np.cumsum(body)])
    errors = []
    for seed in range(runs):
        publisher = fastdp.StreamPublisher(
            threshold=Fixed(theta), perturber=Hierarchy(shared.FAN_OUT, consistent=False, prune=0), epsilon=EPSILON,
            bound=bound, max_range=shared.MAX_RANGE, seed=seed,
        )  # fmt: skip
        starts, stops = random_ranges(body.size, shared.QUERIES, shared.MAX_RANGE, seed)
        errors.append(mse(prefix[stops] - prefix[starts], publisher.release(body).sum(starts, stops)))
    return math.sqrt(float(np.median(errors)))


#: Streams of Table 1 with the label in our figures, the real stream that takes its place, and that one's label.
STAND_INS = {
    "dns": ("DNS", "DNS", "DNS (Google)"),
    "fare": ("Fare", "taxi distance", "taxi distance, for Fare"),
    "kosarak": ("Kosarak", "MSNBC", "MSNBC, for Kosarak"),
    "pos": ("POS", "POS", "POS"),
}
#: Shown besides, where a figure has all four.
FURTHER = "smart meter"
#: Keys of a synthetic stream that a file does not have.
_OWN = ("generator", "stream", "n", "order", "seed")


def with_real_streams(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A sweep's TOML tables with every stream of Table 1 replaced by the real one, if its file is in the folder."""
    datasets = list(_replaced(table["datasets"], folder))
    if {each.get("stream") for each in table["datasets"]} == set(STAND_INS) and STREAMS[FURTHER].there(folder):
        sizes = {key: each for key, each in table["datasets"][0].items() if key not in ("name", *_OWN)}
        datasets.append({"name": FURTHER, **_source(STREAMS[FURTHER]), **sizes})
    return {**table, "datasets": datasets}


def _replaced(datasets: list[dict[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    for each in datasets:
        label, name, real = STAND_INS.get(each.get("stream", ""), ("", "", ""))
        if not name or not STREAMS[name].there(folder):
            yield each
            continue
        kept = {key: value for key, value in each.items() if key not in ("name", *_OWN)}
        said = real if each["name"] == label else f"{real}, {each['name']}"
        yield {"name": said, **_source(STREAMS[name]), **kept}


def _source(stream: Real) -> dict[str, Any]:
    return {"file": stream.file, "column": "values", "bound": stream.bound}
