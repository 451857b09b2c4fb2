"""PHDStream's pictures that no sweep draws: counters (Figure 2), points and cells (Figures 6 to 9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper import phd_streams
from benchmarks.paper.phd_streams import Scene
from fastdp import PHDStream
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Simple
from fastdp.plots import counters_compared, points_and_cells
from fastdp.spatial.map_files import read_domain

Floats = NDArray[np.float64]
EPSILON, DEPTH = 0.5, 20
#: Rows of the paper's scatter plots.
EPSILONS = (0.5, 1.0, 2.0)
#: Activations, and simultaneous running sums that the mean is over.
HORIZONS = (128, 4096)
BITS_RUNS = 200
#: The part of the plane that is shown; all of it by default.
WINDOWS = {"pickups": ((-74.1, 40.6), (-73.75, 40.9))}


def counters(output: Path) -> list[Path]:
    """Figure 2: mean absolute error of a running count of random bits."""
    paths = []
    for horizon in HORIZONS:
        paths += [output / f"counters_{horizon}.{suffix}" for suffix in ("png", "svg")]
        for path in paths[-2:]:
            _counters(horizon, path)
    return paths


def points(name: str, data: Path | None, output: Path) -> list[Path]:
    """Figures 6 to 9: true and synthetic points at four times, and the cells; as PNG, for there are many."""
    scene = SCENES[name](data, output)
    path = output / f"points_{name}.png"
    _points(scene, WINDOWS.get(name), path)
    return [path]


def _check_ins(data: Path | None, output: Path) -> Scene:
    return phd_streams.on(
        phd_streams.check_ins(data, start=100), read_domain(phd_streams.land(data, output))[0], "on land"
    )


def _streets(data: Path | None, output: Path) -> Scene:
    del output
    network, name = phd_streams.streets(data)
    return phd_streams.on(phd_streams.pickups(data, start=2), network, f"on {name}")


SCENES: dict[str, Callable[[Path | None, Path], Scene]] = {
    "check-ins": _check_ins,
    "pickups": lambda data, output: phd_streams.pickups(data, start=2),
    "streets": _streets,
    "circles": lambda data, output: phd_streams.circles(data),
}


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
    title = rf"Figure 2 in kind: a synthetic stream of random bits, $\epsilon$ = {EPSILON:g}, {BITS_RUNS} runs"
    counters_compared(np.cumsum(bits), said, path, title=title)


def _points(scene: Scene, window: tuple[tuple[float, float], ...] | None, path: Path) -> None:
    """Rows as in the paper: the truth under the cells of the least epsilon, and each epsilon with its own."""
    stream = scene.stream
    times = [round(stream.n_steps * k / 3) for k in range(4)]
    options = {"max_depth": DEPTH, "total_share": 0.0, "seed": 1}
    systems = {f"ε = {epsilon:g}": PHDStream(scene.domain, epsilon, **options) for epsilon in EPSILONS}
    rows: dict[str, list[Floats]] = {"true": [stream.present(t) for t in times]}
    cells: dict[str, list[tuple[Floats, Floats]]] = {"true": []}
    for t, (added, removed) in enumerate([(stream.initial, None), *stream.batches]):
        for label, system in systems.items():
            system.advance(added, removed)
            if t in times:
                rows.setdefault(label, []).append(system.sample())
                cells.setdefault(label, []).append((system.tree.lower, system.tree.upper))
    cells["true"] = cells[next(iter(systems))]
    box = window if window is not None else (scene.domain.lower, scene.domain.upper)
    figure = points_and_cells(
        rows, cells=cells, columns=[f"{scene.name}\nt = {scene.first + t}" for t in times], box=box
    )
    for ax in figure.axes:
        phd_streams.draw_domain(ax, scene.domain)
    figure.savefig(path)
