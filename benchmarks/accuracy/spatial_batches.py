"""PHDStream beside AdaptivePHDStream, by the number of batches that a stream is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.accuracy.reference import ratio
from benchmarks.accuracy.spatial_runs import DEPTH, METHODS, SCENES, Method, Scene, measure
from benchmarks.shared import table
from fastdp import AdaptivePHDStream
from fastdp_lab.datasets import cut_events

EPSILON = 1.0
#: Batches behind the first one.
NUMBERS = (5, 10, 20, 50, 100, 200)
#: Share of the first one; None for one like the others.
INITIAL = (None, 0.1)
LOOKS = 5
PHDSTREAM, ADAPTIVE = METHODS[0], METHODS[2]
PROMPT = Method(
    "adaptive",
    "every batch",
    lambda domain, epsilon, seed: AdaptivePHDStream(domain, epsilon, max_depth=DEPTH, period=1, seed=seed),
    "",
)


def show(data: Path, names: Sequence[str], runs: int) -> None:
    rows, begin = [], perf_counter()
    for name in names:
        whole = SCENES[name](data)
        for initial in INITIAL:
            for number in NUMBERS:
                scene = _recut(whole, number, initial)
                cells = [
                    np.mean([measure(scene, method, EPSILON, seed).errors[0] for seed in range(runs)], axis=0)
                    for method in (PHDSTREAM, ADAPTIVE, PROMPT)
                ]
                phd, adaptive, prompt = (float(each.mean()) for each in cells)
                last = ratio(float(cells[0][-1]), float(cells[1][-1]))
                share = "as others" if initial is None else f"{initial:g}"
                shown = [f"{phd:.3f}", f"{adaptive:.3f}", f"{prompt:.3f}"]
                rows.append([name, share, f"{number:,}", *shown, ratio(phd, adaptive), last, ratio(phd, prompt)])
    table(
        f"Small queries, average relative error of sampled points, eps {EPSILON:g}, mean over {runs} seeds and "
        f"{LOOKS} times; {perf_counter() - begin:.0f} s",
        [
            "stream",
            "first batch",
            "further ones",
            "PHDStream",
            "adaptive",
            "adaptive, period=1",
            "ratio",
            "ratio at the end",
            "ratio, period=1",
        ],
        rows,
    )


def _recut(scene: Scene, number: int, initial: float | None) -> Scene:
    stream = scene.stream
    events = len(stream.points)
    first = 1 / (number + 1) if initial is None else initial
    size = -(-(events - int(first * events)) // number)
    cut = cut_events(
        stream.name, stream.lower, stream.upper, stream.points, cancels=stream.cancels, batch=size, initial=first
    )
    times = tuple(np.linspace(cut.n_steps / LOOKS, cut.n_steps, LOOKS).astype(int).tolist())
    return Scene(scene.name, cut, scene.placement, times)
