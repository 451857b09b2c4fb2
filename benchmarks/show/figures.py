"""ToPS Figures 2 to 10 and PHDStream's in kind, on the streams at hand: ``python -m benchmarks.show figures -o DIR``.

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

from benchmarks import sizes
from benchmarks.show import local_figures, methods, panels, reference, spatial_figures, thresholds
from benchmarks.show.panels import NONE, Curve, Panel, Points
from benchmarks.show.scenes import (
    H_2,
    STREAMS,
    Errors,
    Method,
    Scene,
    hat,
    read_values,
    repeat,
)
from benchmarks.streams import DATA, Floats, hold_out_and_extend
from fastdp.perturbers import Flat, Hierarchy
from fastdp.plots import bin_means
from fastdp.smoothers import Recent
from fastdp.thresholds import NoisyMax, Threshold, TruePercentile

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

    def curves(self, name: str, rows: Rows, metric: str = "mse") -> list[Curve]:
        """One curve for each row; the published code measured MSE only."""
        column = Errors._fields.index(metric)
        table = [rows(epsilon) for epsilon in EPSILONS]
        curves = []
        for k, first in enumerate(table[0]):
            errors = [
                self.measured(name, row[k].method, epsilon)[:, column]
                for row, epsilon in zip(table, EPSILONS, strict=True)
            ]
            plain = first.method.perturber is None
            crosses = self.crosses(name, [row[k] for row in table]) if metric == "mse" else NONE
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


def figure_2(album: Album, path: Path) -> None:
    """DNS over time: ToPS at small budgets above PAK at larger ones, a seed for each picture."""
    scene = album.scene("DNS")
    truth = bin_means(scene.body, 120)
    edges = np.linspace(0, scene.body.size, truth.size + 1).astype(np.int64)
    middles = (edges[1:] + edges[:-1]) / 2e3
    figure = panels.new_figure(12.0, 6.0)
    grid = figure.subplots(2, 3, sharex=True)
    for axes, name, rule, smoother, epsilons in (
        (grid[0], "ToPS", NoisyMax(), Recent(), (0.01, 0.05, 0.1)),
        (grid[1], "PAK", methods.PAK_PUBLISHED, None, (0.1, 0.5, 1.0)),
    ):
        for seed, (ax, epsilon) in enumerate(zip(axes, epsilons, strict=True)):
            theta = scene.theta(rule, epsilon, seed)
            release = scene.release(theta, hat(epsilon) if smoother else H_2, smoother, epsilon, seed)
            means = release.range_sum(edges[:-1], edges[1:]) / np.diff(edges)
            ax.plot(middles, means, color=panels.COLOURS[0], linewidth=1.1, label="private release")
            ax.plot(middles, truth, color=panels.COLOURS[-1], linewidth=1.6, alpha=0.7, label="truth")
            ax.set_title(rf"{name}, $\epsilon$ = {epsilon:g}, $\theta$ = {theta:,.0f}", fontsize=11)
            ax.grid(visible=True, color="#e0e0e0", linewidth=0.6)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
            ax.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
        axes[0].set_ylabel("mean value")
    for ax in grid[1]:
        ax.set_xlabel("position in the stream, thousands")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    figure.align_ylabels()
    figure.suptitle(f"Figure 2 in kind: DNS, {truth.size} means of about {scene.body.size // truth.size:,} values")
    figure.savefig(path)


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


def figure_6(album: Album, path: Path) -> None:
    """True percentiles and NM-E at eps = .05, on the first m values of DNS, which give theta and are published.

    The longest query has m values (paper: r = 2^20 throughout, for which NM-E's theta is too large on short streams).
    """
    values = read_values(album.data, STREAMS["DNS"])
    rules: list[tuple[str, Threshold]] = [
        (f"{100 * p:g} %", TruePercentile(p)) for p in (0.85, 0.9, 0.95, 0.995, 0.999)
    ]
    row = []
    for m in (2**14, 2**16, 2**18, 2**20):
        first = hold_out_and_extend(values, 0, m)
        scene = Scene("DNS", STREAMS["DNS"].bound, np.concatenate([first, first]), m, m)
        curves = []
        for name, rule in [*rules, (r"NM-E ($\epsilon$ = 0.05)", NoisyMax())]:
            errors = []
            for epsilon in EPSILONS:
                method = Method(name, rule, Hierarchy(), Recent(), range_epsilon=epsilon)
                errors.append(repeat(scene, method, sizes.EPSILON, album.runs)[:, Errors._fields.index("mse")])
            curves.append(Curve(name, EPSILONS, np.array(errors)))
        row.append(Panel(f"$m = r = 2^{{{m.bit_length() - 1}}}$", "MSE", curves))
    title = r"Figure 6 in kind: DNS, the same m values give $\theta$ and are published; percentiles are NOT PRIVATE"
    panels.draw([row], title, X_LABEL + " of the hierarchy", path)


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


def figure_10(album: Album, path: Path) -> None:
    """The releases of Figure 3 again, and Flat, by the other metrics."""

    def rows(epsilon: float) -> list[methods.Row]:
        private = both_phases(epsilon)
        return [*private[:-1], methods.Row(Method("NM-E + Flat", NoisyMax(), Flat())), private[-1]]

    grid = [
        [Panel(name if metric == "mae" else "", metric.upper(), album.curves(name, rows, metric)) for name in NAMES]
        for metric in ("mae", "mmae", "mmse")
    ]
    panels.draw(grid, "Figure 10 in kind: MAE, MMAE and MMSE, both phases private", X_LABEL, path)


def figure_8(album: Album, path: Path) -> None:
    local_figures.figure_8(album.data, album.runs, album.published, path)


def figure_9(album: Album, path: Path) -> None:
    local_figures.figure_9(album.data, path)


def figure_phd(album: Album, path: Path) -> None:
    """PHDStream's: several pictures, of at most five runs each, because bands of many cover one another."""
    spatial_figures.draw(album.data, min(album.runs, 5), path)


FIGURES = {
    "2": figure_2, "3": figure_3, "4": figure_4, "5": figure_5, "6": figure_6, "7": figure_7, "8": figure_8,
    "9": figure_9, "10": figure_10, "phd": figure_phd,
}  # fmt: skip
