"""Figures 8 and 9 in kind: ToPL's error by threshold budget, and a stream over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.show import local_accuracy, panels
from benchmarks.show.local_accuracy import STREAM_EPSILON, WIDE_DNS
from benchmarks.show.panels import NONE, Curve, Panel, Points
from benchmarks.show.reference import Table
from benchmarks.show.scenes import Scene
from benchmarks.streams import Floats
from fastdp.thresholds import SquareWave

EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
#: The paper's DNS, Fare, Kosarak and POS, or their nearest relatives.
NAMES = ("DNS", "taxi distance", "MSNBC", "POS")
#: Name, rule, and the published code's rule where it is the same.
RULES: tuple[tuple[str, SquareWave | None, str], ...] = (
    ("SW-W, accelerated EM", SquareWave(accelerate=True), ""),
    ("SW-W, plain EM", SquareWave(), "SW-W (Eq.8 corrected)"),
    ("SW", SquareWave(method="sw"), "SW (Eq.8 corrected)"),
    ("99.5th percentile", SquareWave(method="percentile"), ""),
    ("Base", None, ""),
)
WINDOWS = (1_000, 10_000)


def figure_8(data: Path, runs: int, published: Table, path: Path) -> None:
    table, row = local_accuracy.tidy(published), []
    for name in NAMES:
        scene = local_accuracy.load(data, name)
        curves = []
        for label, rule, theirs in RULES:
            # Base does not look at the budget.
            budgets = EPSILONS if rule else EPSILONS[:1]
            errors = [local_accuracy.repeat(scene, rule, epsilon, STREAM_EPSILON, runs)[:, 1] for epsilon in budgets]
            crosses = _crosses(scene, theirs, table) if theirs else NONE
            curves.append(Curve(label, EPSILONS, np.resize(errors, (len(EPSILONS), runs)), rule is None, crosses))
        title = f"{name}, B = {scene.bound:,}"
        row.append(Panel(title, "MSE", curves, log_x=False, ticks=(0.2, 0.6, 1.0, 1.4, 2.0)))
    title = rf"Figure 8 in kind: ToPL, ways to choose $\theta$, hybrid reports with $\epsilon$ = {STREAM_EPSILON:g}"
    panels.draw([row], title, r"$\epsilon$ of the square-wave reports", path)


def _crosses(scene: Scene, method: str, published: Table) -> Points:
    keys = [local_accuracy.key_of(scene, method, epsilon, fixed=True) for epsilon in EPSILONS]
    there = [key for key in keys if key in published]
    return tuple(key[-1] for key in there), tuple(published[key].mse for key in there)


def figure_9(data: Path, path: Path) -> None:
    """One run; moving averages of the values that come after the hold-out, as long as they are real."""
    scene = local_accuracy.load(data, WIDE_DNS, local_accuracy.real_length(data, WIDE_DNS))
    release = local_accuracy.simulate(scene, SquareWave(), STREAM_EPSILON, STREAM_EPSILON, seed=0)
    figure = panels.new_figure(12.0, 6.0)
    grid = figure.subplots(len(WINDOWS), 1, sharex=True)
    for ax, window in zip(grid, WINDOWS, strict=True):
        at = np.arange(window, scene.body.size + 1, 100)
        places = at / 1e3
        error = release.standard_error(at[:1] - window, at[:1])[0] / window
        ax.plot(places, _averages(release.values, window, at), color=panels.COLOURS[0], linewidth=0.9, label="ToPL")
        ax.plot(places, _averages(scene.body, window, at), color=panels.COLOURS[-1], linewidth=1.5, label="truth")
        ax.set_title(f"mean of the last {window:,} values; standard error of the noise {error:.2g}", fontsize=11)
        ax.set_ylabel("moving average")
        ax.grid(visible=True, color="#e0e0e0", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0.01)
    grid[-1].set_xlabel("position in the stream, thousands")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(
        rf"Figure 9 in kind: DNS, B = {scene.bound:,}, ToPL at $\epsilon$ = {STREAM_EPSILON:g}, "
        rf"$\theta$ = {release.threshold:.3g}, one run"
    )
    figure.savefig(path)


def _averages(values: Floats, window: int, at: np.ndarray) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means: Floats = (sums[at] - sums[at - window]) / window
    return means
