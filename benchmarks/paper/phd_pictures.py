"""PHDStream's pictures that no sweep draws: counters (Figure 2), points and cells (Figures 6 to 9)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Simple
from fastdp.datasets import (
    SpatialStream,
    concentric_circles,
    load_circles,
    load_gowalla,
    load_pickups,
    made_up_check_ins,
    made_up_pickups,
)
from fastdp.datasets.spatial_files import DAY
from fastdp.plots import counters_compared, points_and_cells
from fastdp.spatial import Box

EPSILON, DEPTH = 0.5, 20
#: Activations, and simultaneous running sums that the mean is over.
HORIZONS = (128, 4096)
BITS_RUNS = 200
#: The part of the plane that is shown; all of it by default.
WINDOWS = {"pickups": ((-74.1, 40.6), (-73.75, 40.9)), "check-ins": ((-130.0, -40.0), (160.0, 72.0))}


def counters(output: Path) -> list[Path]:
    """Figure 2: mean absolute error of a running count of random bits."""
    paths = []
    for horizon in HORIZONS:
        paths += [output / f"counters_{horizon}.{suffix}" for suffix in ("png", "svg")]
        for path in paths[-2:]:
            _counters(horizon, path)
    return paths


def points(name: str, data: Path | None, output: Path) -> list[Path]:
    """Figures 6, 7 and 9: true and synthetic points at three times, and the cells; as PNG, for there are many.

    Parameters
    ----------
    name : "check-ins", "pickups" or "circles"
        Which stream.
    data : Path, optional
        Folder of real streams; synthetic ones without it.
    output : Path
        Folder of the pictures.
    """
    stream = _stream(name, data)
    path = output / f"points_{name}.png"
    last = stream.n_steps
    times = tuple(int(part * last) for part in ((0.1, 0.5, 1.0) if name == "circles" else (0.25, 0.6, 1.0)))
    truth = "true (synthetic)" if data is None or name == "circles" else "true"
    _points(stream, truth, times, WINDOWS.get(name), path)
    return [path]


def _stream(name: str, data: Path | None) -> SpatialStream:
    if name == "circles":
        return concentric_circles(seed=7) if data is None else load_circles(data / "motion_circles_synthetic.csv.gz")
    if name == "pickups":
        if data is None:
            return made_up_pickups(seed=7)
        return load_pickups(data / "uber_nyc_b02512.csv.gz", period=DAY / 4, initial=0.1)
    if data is None:
        return made_up_check_ins(deletion=True, seed=7).starting_at(100)
    return load_gowalla(data / "gowalla_sample.csv.gz", deletion=True, period=DAY, initial=0.1)


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


def _points(
    stream: SpatialStream,
    truth: str,
    times: tuple[int, ...],
    window: tuple[tuple[float, float], ...] | None,
    path: Path,
) -> None:
    domain = Box(stream.lower, stream.upper)
    kinds = {"": PHDStream, ", adaptive": AdaptivePHDStream}
    systems = {
        f"ε = {epsilon:g}{name}": kind(domain, epsilon, max_depth=DEPTH, seed=1)
        for epsilon in (0.5, 2.0)
        for name, kind in kinds.items()
    }
    rows = {truth: [stream.present(t) for t in times]}
    clouds = {label: [] for label in systems}
    cells = {label: [] for label in systems}
    for t, (added, removed) in enumerate([(stream.initial, None), *stream.batches]):
        for label, system in systems.items():
            system.advance(added, removed)
            if t in times:
                clouds[label].append(system.sample())
                cells[label].append((system.tree.lower, system.tree.upper))
    grid = {}
    for label in systems:
        # Cells hide the points of dense places, so the points are shown without them too.
        rows[label] = clouds[label]
        rows[f"{label}, cells"] = clouds[label]
        grid[f"{label}, cells"] = cells[label]
    box = window if window is not None else (stream.lower, stream.upper)
    points_and_cells(rows, path, cells=grid, columns=[f"after batch {t}" for t in times], box=box)
