"""ToPS Figures 3, 4, 5, 7 and 8 on the streams at hand, with the published code's medians as crosses.

``python -m benchmarks.show figures -o DIR``; the other figures, and these without crosses: ``benchmarks.paper``.

Streams are extended by reflection after the hold-out.  Lines are medians,
bands the middle half of the repetitions; all budgets share their seeds.  Nothing here is meant for release: the
pictures show the truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.show import local_figures, methods, panels, reference, thresholds
from benchmarks.show.panels import Curve, Panel, Points
from benchmarks.show.scenes import (
    H_2,
    Errors,
    Method,
    Scene,
    hat,
    repeat,
)
from benchmarks.streams import DATA, Floats
from fastdp.smoothers import Recent
from fastdp.thresholds import NoisyMax

EPSILONS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
#: The paper's DNS, Fare, Kosarak and POS, or their nearest relatives.
NAMES = ("DNS", "taxi distance", "MSNBC", "POS")
X_LABEL = r"$\epsilon$"
#: Why pruned hierarchies have a kink.
PRUNED = "levels pruned as in the published code: 3 up to 0.05, 2 above"
Rows = Callable[[float], list[methods.Row]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the pictures (made if absent)")
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind (default 20)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), default=list(FIGURES), help="which figures")
    reference.add_option(parser)


def run(options: argparse.Namespace) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    album = Album(options.data, options.runs, reference.read(options.reference))
    for name in options.only:
        start = perf_counter()
        path = options.output / f"figure_{name}.png"
        FIGURES[name](album, path)
        print(f"{path}  {perf_counter() - start:.0f} s", flush=True)


class Album:
    """Scenes and measured curves, each made once."""

    def __init__(self, data: Path, runs: int, published: reference.Table) -> None:
        self.data = data
        self.runs = runs
        self.published = published
        self.scene = cache(self._scene)
        self.measured = cache(self._measured)

    def _scene(self, name: str) -> Scene:
        return Scene.load(self.data, name)

    def _measured(self, scene_name: str, method: Method, epsilon: float) -> Floats:
        return repeat(self.scene(scene_name), method, epsilon, self.runs)

    def curves(self, name: str, rows: Rows) -> list[Curve]:
        """One curve of MSE for each row."""
        column = Errors._fields.index("mse")
        table = [rows(epsilon) for epsilon in EPSILONS]
        curves = []
        for k, first in enumerate(table[0]):
            errors = [
                self.measured(name, row[k].method, epsilon)[:, column]
                for row, epsilon in zip(table, EPSILONS, strict=True)
            ]
            plain = first.method.perturber is None
            crosses = self.crosses(name, [row[k] for row in table])
            curves.append(Curve(first.method.name, EPSILONS, np.array(errors), plain, crosses))
        return curves

    def crosses(self, name: str, rows: list[methods.Row]) -> Points:
        """Budgets at which the published code was measured, and its MSE."""
        keys = [
            (self.scene(name).reference, row.experiment, row.published, epsilon)
            for row, epsilon in zip(rows, EPSILONS, strict=True)
        ]
        there = [key for key in keys if key in self.published]
        return tuple(key[-1] for key in there), tuple(self.published[key].mse for key in there)

    def one_row(self, rows: Rows, title: str, path: Path) -> None:
        """A panel of MSE for each stream."""
        panel_row = [Panel(name, "MSE", self.curves(name, rows)) for name in NAMES]
        panels.draw([panel_row], title, X_LABEL, path)


def both_phases(epsilon: float) -> list[methods.Row]:
    """PAK, ToPS, and the two steps between (Figure 3)."""
    pruned, whole = hat(epsilon), "end_to_end"
    return [
        methods.Row(Method("PAK", methods.PAK_PUBLISHED, H_2), whole, "PAK"),
        methods.Row(Method(f"PAK{panels.CLIPPED}", methods.PAK_CLIPPED, H_2)),
        methods.Row(Method("S-PAK + pruned H_16^c", methods.PAK_PUBLISHED, pruned, Recent()), whole, "S-PAK+hatH"),
        methods.Row(Method("NM-E + H_2", NoisyMax(), H_2), whole, "NM-E+H_2"),
        methods.Row(Method("ToPS", NoisyMax(), pruned, Recent()), whole, "ToPS"),
        methods.Row(Method("Base"), whole, "Base"),
    ]


def figure_3(album: Album, path: Path) -> None:
    album.one_row(both_phases, f"Figure 3 in kind: both phases private; {PRUNED}", path)


def figure_4(album: Album, path: Path) -> None:
    """Errors, and errors over those of Recent in the same run, whose noise is the same."""

    def rows(epsilon: float) -> list[methods.Row]:
        smoothers = methods.second_phase(epsilon)[5:]
        return [row._replace(method=row.method._replace(name=row.published)) for row in smoothers]

    upper, lower = [], []
    for name in NAMES:
        curves = album.curves(name, rows)
        upper.append(Panel(name, "MSE", curves, bands=False))
        recent = curves[0]
        relative = []
        for curve in curves:
            pairs = zip(curve.published[1], recent.published[1], strict=True)
            crosses = (curve.published[0], tuple(mine / base for mine, base in pairs))
            relative.append(curve._replace(errors=curve.errors / recent.errors, published=crosses))
        lower.append(Panel("", "MSE / MSE of Recent", relative, log=False))
    title = rf"Figure 4 in kind: smoothers; $\theta$ = true 95th percentile, truth cut off; {PRUNED}"
    panels.draw([upper, lower], title, X_LABEL, path)


def figure_5(album: Album, path: Path) -> None:
    def rows(epsilon: float) -> list[methods.Row]:
        zeros, _, *hierarchies = methods.second_phase(epsilon)[:6]
        pruned = hierarchies.pop()._replace(experiment="range_p95", published="hatH_16^c")
        base = zeros._replace(method=zeros.method._replace(name="Base"))
        return [*hierarchies, pruned, base]

    title = rf"Figure 5 in kind: hierarchies; $\theta$ = true 95th percentile, truth cut off; {PRUNED}"
    album.one_row(rows, title, path)


def figure_7(album: Album, path: Path) -> None:
    def rows(epsilon: float) -> list[methods.Row]:
        kept = [rule for rule in thresholds.private_rules(epsilon) if "exponential" not in rule.name]
        kept.sort(key=lambda rule: rule.name.endswith(panels.CLIPPED))
        private = [
            methods.Row(thresholds.under_hat(rule), thresholds.EXPERIMENT, rule.published or "") for rule in kept
        ]
        return [*private, methods.Row(Method("Base"), thresholds.EXPERIMENT, "Base")]

    album.one_row(
        rows, r"Figure 7 in kind: ways to choose $\theta$, under $\hat{H}_{16}^c$ with $\epsilon$ = 0.05", path
    )


def figure_8(album: Album, path: Path) -> None:
    local_figures.figure_8(album.data, album.runs, album.published, path)


FIGURES = {"3": figure_3, "4": figure_4, "5": figure_5, "7": figure_7, "8": figure_8}
