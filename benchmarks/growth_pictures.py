"""Pictures of ``benchmarks.growth``: cost a value and memory against length; EM; PHDStream; many streams."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from benchmarks.growth import Points, linear_fit

MARKS = "osD^v"
#: The noise of a full tree of 2^20 leaves and fan-out 16 in 8-byte integers, and what speed.md grants beyond it.
PROMISED_MIB = 8.0 * 16 / 15 + 10.0


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """One picture for each part that was measured."""
    drawers = {"streams": _streams, "em": _em, "spatial": _spatial, "many": _many}
    paths = []
    for part, drawer in drawers.items():
        if part in found:
            paths.append(folder / f"growth_{part}.png")
            figure = drawer(found[part])
            figure.savefig(paths[-1], dpi=130)
            plt.close(figure)
    return paths


def _columns(points: Points, *names: str) -> list[np.ndarray]:
    return [np.array([point[name] for point in points]) for name in names]


def _axes(count: int, width: float = 4.6) -> tuple[Any, Any]:
    return plt.subplots(1, count, figsize=(width * count, 3.8), layout="constrained")


def _streams(streams: Mapping[str, Points]) -> Any:
    figure, (cost, latency, memory) = _axes(3)
    for k, (name, points) in enumerate(streams.items()):
        n, each, one, chunk, rise = _columns(points, "values", "ns_a_value", "us_one_value", "us_chunk", "MiB_more")
        mark, colour = MARKS[k] + "-", f"C{k}"
        cost.plot(n, each, mark, color=colour, label=name)
        latency.plot(n, chunk, mark, color=colour)
        latency.plot(n, one, MARKS[k] + ":", color=colour, fillstyle="none")
        memory.plot(n, rise, mark, color=colour)
    cost.set(ylabel="ns of processor time a value", title="Cost of a value, noise trees included")
    latency.set(ylabel=r"$\mu$s a call of publish", title="Latency: 4,096 values (full), 1 value (dotted)")
    memory.set(ylabel="MiB more than before the publisher", title="Memory of the process")
    memory.axhline(PROMISED_MIB, color="0.5", linewidth=1.0, linestyle="--")
    memory.text(1e4, PROMISED_MIB, "promised: a tree's noise and 10 MiB", va="bottom", color="0.4", fontsize=8)
    memory.set_ylim(-0.5, max(PROMISED_MIB + 2.0, memory.get_ylim()[1]))
    for axis in (cost, latency):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
        axis.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    cost.set_ylim(bottom=0.3, top=100.0)
    latency.set_ylim(bottom=1.0, top=1_000.0)
    for axis in (cost, latency, memory):
        axis.set(xscale="log", xlabel="values published")
        axis.grid(alpha=0.3, which="major")
    cost.legend(fontsize=8)
    return figure


def _fitted(axis: Any, x: np.ndarray, y: np.ndarray, colour: str, words: str) -> None:
    slope, constant, worst = linear_fit(x, y)
    line = np.geomspace(x.min(), x.max(), 50)
    label = words.format(slope=slope, constant=constant, worst=worst)
    axis.plot(line, slope * line + constant, "-", color=colour, alpha=0.6, label=label)


def _em(points: Points) -> Any:
    figure, axis = _axes(1, 5.4)
    bins, step = _columns(points, "bins", "us_a_step")
    axis.plot(bins, step, "o", color="C0", label="one plain step")
    words = "{constant:.2g} us + {slope:.3g} us a bin; off by {worst:.0%} at most"
    _fitted(axis, bins, step, "C0", words)
    axis.set(
        xscale="log", yscale="log", xlabel="bins d", ylabel=r"$\mu$s a step", title="Square-wave EM: linear in d"
    )
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return figure


def _spatial(points: Points) -> Any:
    figure, axis = _axes(1, 5.8)
    ways = {"points present": ("present", 0), "batch": ("batch", 1), "depth": ("depth", 2)}
    centre = {name: max({p[name] for p in points}, key=[p[name] for p in points].count) for name, _ in ways.values()}
    for label, (name, k) in ways.items():
        others = [other for other, _ in ways.values() if other != name]
        chosen = [p for p in points if all(p[other] == centre[other] for other in others)]
        batch, visited, step = _columns(chosen, "batch", "visited", "us_a_step")
        axis.plot(batch + visited, step, MARKS[k], color=f"C{k}", label=f"{label} varied")
    batch, visited, step = _columns(points, "batch", "visited", "us_a_step")
    words = "{constant:.2g} us + {slope:.2g} us each; off by {worst:.0%} at most"
    _fitted(axis, batch + visited, step, "0.3", words)
    axis.set(xscale="log", yscale="log", xlabel="batch + visited nodes", ylabel=r"$\mu$s a step",
             title="PHDStream: linear in batch + visited nodes")  # fmt: skip
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return figure


def _many(points: Points) -> Any:
    figure, axis = _axes(1, 5.4)
    for k, kind in enumerate(dict.fromkeys(p["kind"] for p in points)):
        streams, cost = _columns([p for p in points if p["kind"] == kind], "streams", "ns_a_value")
        axis.plot(streams, cost, MARKS[k] + "-", color=f"C{k}", label=kind.replace("prune", "s ="))
    axis.set(xscale="log", xlabel="streams of 1,000 values in one call", ylabel="ns a value",
             title="release_many: cost of a value by the number of streams")  # fmt: skip
    axis.set_ylim(bottom=0.0)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return figure
