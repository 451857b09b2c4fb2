"""PHDStream's figures in kind: counters (Figure 2), points and cells (6 to 9), errors over time (1 and 10 to 19)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.show.spatial_runs import DEPTH, METHODS, SCENES, SETS, Scene, measure
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Simple
from fastdp.plots_spatial import counters_compared, errors_over_time, points_and_cells
from fastdp.systems import AdaptivePHDStream, PHDStream

EPSILON = 0.5
#: Batches that the points are drawn after, and the part of the plane that is shown; all of it by default.
TIMES = {"deletion": (10, 50, 90, 135), "pickups": (0, 200, 664), "gowalla": (60, 180, 304)}
WINDOWS = {"pickups": ((-74.1, 40.6), (-73.75, 40.9)), "gowalla": ((-130.0, -40.0), (160.0, 72.0))}
#: More lines than these are not told apart.
SHOWN = (
    ("repaired", "simple"),
    ("adaptive", "counts alone"),
    ("repaired", "block"),
    ("paper's score", "simple"),
    ("Baseline 1 (not private)", "none"),
    ("Baseline 2", "none"),
    ("Baseline 3", "simple"),
)
#: Activations, and simultaneous running sums that the mean is over.
HORIZONS = (128, 4096)
BITS_RUNS = 200


def draw(data: Path, runs: int, path: Path) -> None:
    """Write pictures beside ``path``, their names beginning with its own."""

    def beside(name: str) -> Path:
        return path.with_name(f"{path.stem}_{name}{path.suffix}")

    for horizon in HORIZONS:
        _counters(horizon, beside(f"counters_{horizon}"))
    for name in SCENES:
        scene = SCENES[name](data)
        if name in TIMES:
            _points(scene, TIMES[name], WINDOWS.get(name), beside(f"points_{name}"))
        _errors(scene, name, runs, beside)


def _counters(horizon: int, path: Path) -> None:
    bits = np.random.default_rng(1).integers(0, 2, horizon)
    kinds: dict[str, Counter] = {
        "Simple": Simple(),
        "Block(8)": Block(),
        f"BinaryTree({horizon})": BinaryTree(horizon),
    }
    said = {}
    for name, counter in kinds.items():
        # As many independent running sums of the same bits as there are runs.
        running = RunningCounts(counter, EPSILON, BITS_RUNS, seed=1)
        said[name] = np.stack([running.step(np.full(BITS_RUNS, bit)).copy() for bit in bits], axis=1)
    title = rf"Figure 2 in kind: a stream of random bits, $\epsilon$ = {EPSILON:g}, {BITS_RUNS} runs"
    counters_compared(np.cumsum(bits), said, path, title=title)


def _points(scene: Scene, times: tuple[int, ...], window: tuple[tuple[float, float], ...] | None, path: Path) -> None:
    kinds = {"": PHDStream, ", adaptive": AdaptivePHDStream}
    systems = {
        f"ε = {epsilon:g}{name}": kind(scene.domain, epsilon, max_depth=DEPTH, seed=1)
        for epsilon in (0.5, 2.0)
        for name, kind in kinds.items()
    }
    rows = {"true": [scene.stream.present(t) for t in times]}
    points = {label: [] for label in systems}
    cells = {label: [] for label in systems}
    for t, (added, removed) in enumerate([(scene.stream.initial, None), *scene.stream.batches]):
        for label, system in systems.items():
            system.advance(added, removed)
            if t in times:
                points[label].append(system.sample())
                cells[label].append((system.tree.lower, system.tree.upper))
    grid = {}
    for label in systems:
        # Cells hide the points of dense places, so the points are shown without them too.
        rows[label] = points[label]
        rows[f"{label}, cells"] = points[label]
        grid[f"{label}, cells"] = cells[label]
    box = window if window is not None else (scene.stream.lower, scene.stream.upper)
    points_and_cells(rows, path, cells=grid, columns=[f"after batch {t}" for t in times], box=box)


def _errors(scene: Scene, name: str, runs: int, beside: Callable[[str], Path]) -> None:
    measured = {}
    for method in METHODS:
        if (method.name, method.counter) in SHOWN:
            label = method.name if method.counter == "none" else f"{method.name}, {method.counter}"
            measured[label] = [measure(scene, method, EPSILON, seed).errors for seed in range(runs)]
    for k, asked in enumerate(SETS):
        errors = {label: [run[k] for run in found] for label, found in measured.items()}
        title = rf"{scene.name}: {asked} queries, $\epsilon$ = {EPSILON:g}, {runs} runs"
        figure = errors_over_time(scene.times, errors, title=title, logarithmic=True)
        (ax,) = figure.axes
        # Beside the lines, which leave no room among them.
        ax.get_legend().remove()
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        figure.set_size_inches(9.0, 4.5)
        for axis_format in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            axis_format(lambda y, _: f"{y:.2g}" if f"{y:.1e}"[0] in "1235" else "")
        figure.savefig(beside(f"{asked}_{name}"))
