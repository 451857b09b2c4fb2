"""Figure 8 in kind: ToPL's error by threshold budget, beside the published code."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.show import local_accuracy, panels
from benchmarks.show.local_accuracy import STREAM_EPSILON
from benchmarks.show.panels import NONE, Curve, Panel, Points
from benchmarks.show.reference import Table
from benchmarks.show.scenes import Scene
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
