"""Figures 8 to 11 of PAK, and a measured Figure 7, on real streams or on those that Tables I and II suggest.

errors.png (Figures 8, 10): density of the error of the sum at step n, PAK beside the plain binary tree.
outliers.png (Figures 9, 11): error by clipping over its bound, the second term of Eq. 16.
improvement.png (Figure 7, measured): improvement factor against epsilon and m, beside the bound's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.paper import pak_runs
from benchmarks.paper.pak_runs import Runs, Stream
from benchmarks.shared import Floats
from fastdp_lab.sweeps.figures import grid

LAG = 100_000
#: The paper's m (section VII).
SYNTHETIC_LAG = 50_000
EPSILONS = (0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0)
LAGS = (20_000, 40_000, 60_000, 80_000, 100_000, 150_000)
PAK, PLAIN, BOUND = "#d1495b", "#222222", "#8a8a8a"
WIDTH, HEIGHT = 10.0, 2.8
#: Runs of each point of the curves, as a part of those of a density.
CURVE_PART = 3


def density(axes: Any, sample: Floats, points: Floats, colour: str, label: str) -> None:
    """A smoothed density (Gaussian kernels, Scott's width), as the paper draws."""
    height = stats.gaussian_kde(sample)(points)
    axes.fill_between(points, height, color=colour, alpha=0.2, linewidth=0.0)
    axes.plot(points, height, color=colour, label=label, linewidth=1.3)


def draw_errors(found: dict[str, Runs], streams: list[Stream], path: Path) -> None:
    figure, panels = _panels(len(streams), "Figures 8 and 10 of PAK: density of the error")
    for axes, stream in zip(panels, streams, strict=True):
        runs = found[stream.name]
        far = float(np.quantile(np.abs(runs.plain), 0.98)) / stream.bound
        for errors, colour, label in ((runs.plain, PLAIN, "plain binary tree"), (runs.pak, PAK, "PAK")):
            density(axes, errors / stream.bound, np.linspace(-far, far, 600), colour, label)
        axes.set_xlim(-far, far)
        axes.set_ylim(bottom=0.0)
        axes.set_title(f"{stream.name}, improvement {runs.factor_of_means:.1f}", fontsize=10)
        axes.set_xlabel(f"error at n = {stream.values.size:,}, units of B", fontsize=9)
    panels[0].set_ylabel("density")
    panels[-1].legend(frameon=False, fontsize=8, loc="upper right")
    _write(figure, path)


def draw_outliers(found: dict[str, Runs], streams: list[Stream], path: Path) -> None:
    figure, panels = _panels(len(streams), "Figures 9 and 11 of PAK: error by clipping over its bound")
    for axes, stream in zip(panels, streams, strict=True):
        runs = found[stream.name]
        if runs.optimum.fallback:
            axes.set_title(f"{stream.name}: no threshold has\na better bound than the plain tree", fontsize=10)
            continue
        ratio = -runs.clipped / pak_runs.outlier_bound(runs, stream.values.size)
        top = max(1.1, float(np.quantile(ratio, 0.99)) * 1.1)
        density(axes, ratio, np.linspace(0.0, top, 600), PAK, "runs")
        axes.set_ylim(bottom=0.0)
        axes.axvline(1.0, color=PLAIN, linestyle=":", linewidth=1.2)
        axes.set_xlim(0.0, top)
        axes.set_title(f"{stream.name}: above 1 in {np.mean(ratio > 1.0):.0%} of runs", fontsize=10)
        axes.set_xlabel("error by clipping / its bound (Eq. 16)", fontsize=9)
    panels[0].set_ylabel("density")
    _write(figure, path)


def draw_improvement(streams: list[Stream], lag: int, runs: int, path: Path) -> None:
    figure, panels = _panels(2, "Figure 7 of PAK: improvement over the plain binary tree, measured and by its bound")
    made = " (synthetic)" if all("synthetic" in stream.name for stream in streams) else ""
    colours = ("#d1495b", "#2e6f95", "#5b8c5a")
    curves: tuple[tuple[Any, str, tuple[float, ...], Callable[[float], tuple[int, float]]], ...] = (
        (panels[0], f"epsilon (m = {lag:,})", EPSILONS, lambda epsilon: (lag, epsilon)),
        (panels[1], "m (epsilon = 1)", tuple(map(float, LAGS)), lambda m: (int(m), 1.0)),
    )
    for axes, label, points, setting in curves:
        for stream, colour in zip(streams, colours, strict=False):
            # A hold-out leaves something to publish.
            there = [point for point in points if setting(point)[0] < stream.values.size]
            found = [pak_runs.measure(stream, *setting(point), runs) for point in there]
            measured = [each.factor_of_means for each in found]
            bounds = [each.optimum.improvement for each in found]
            axes.plot(there, measured, marker="o", markersize=4, color=colour, label=f"{stream.name}, measured")
            axes.plot(there, bounds, linestyle="--", color=colour, alpha=0.7, label=f"{stream.name}, bound")
            for point, of_runs, of_bound in zip(there, measured, bounds, strict=True):
                print(f"{stream.name}, {label}: {point:g}: measured {of_runs:.2f}, bound {of_bound:.2f}", flush=True)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axhline(1.0, color=BOUND, linewidth=0.8)
        axes.set_xlabel(label, fontsize=9)
        axes.set_title(f"against {label.partition(' ')[0]}{made}", fontsize=10)
        axes.set_xticks(
            points, [f"{point / 1000:g}k" if point >= 1000 else f"{point:g}" for point in points], fontsize=8
        )
        axes.set_xticks([], minor=True)
        axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        axes.set_yticks([], minor=True)
    panels[0].set_ylabel("improvement factor")
    panels[1].sharey(panels[0])
    heights = np.concatenate([np.asarray(line.get_ydata(), float) for axes in panels for line in axes.lines])
    panels[0].set_ylim(min(0.9, 0.9 * float(heights.min())), 1.1 * max(20.0, float(heights.max())))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right center")
    _write(figure, path)


def _panels(count: int, title: str) -> tuple[Any, Any]:
    figure, axes = grid(1, count, title, width=WIDTH / count, height=HEIGHT, sharex="none")
    return figure, axes[0]


def _write(figure: Any, path: Path) -> None:
    for one in (path, path.with_suffix(".svg")):
        figure.savefig(one)
        print(f"wrote {one}", flush=True)


def draw_all(output: Path, data: Path | None, runs: int, only: Collection[int] = (7, 8, 9)) -> None:
    """Figures 7, 8 (with 10) and 9 (with 11) into a folder; synthetic streams without a folder of real ones."""
    streams, lag = (pak_runs.synthetic(), SYNTHETIC_LAG) if data is None else (pak_runs.load(data), LAG)
    output.mkdir(parents=True, exist_ok=True)
    found = {stream.name: pak_runs.measure(stream, lag, 1.0, runs) for stream in streams if {8, 9} & set(only)}
    if 8 in only:
        draw_errors(found, streams, output / "errors.png")
    if 9 in only:
        draw_outliers(found, streams, output / "outliers.png")
    if 7 in only:
        draw_improvement(streams, lag, max(2, runs // CURVE_PART), output / "improvement.png")
