"""PHDStream and its baselines beside the authors' code: relative errors over time, and totals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.accuracy import spatial_batches, spatial_losses, spatial_runs
from benchmarks.accuracy.reference import ratio, shown
from benchmarks.accuracy.spatial_runs import EPSILONS, METHODS, SCENES, SETS, Method, Published, Run, Scene, measure
from benchmarks.shared import Floats, add_data_option, table

PARTS = ("accuracy", "totals", "batches", "losses")
Measured = dict[tuple[Method, float], list[Run]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind, at least 2 (default 20)")
    parser.add_argument("--streams", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME",
                        help=", ".join(SCENES))  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    parser.add_argument("--reference", type=Path, default=spatial_runs.PUBLISHED, help="the authors' figures")
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    if {"accuracy", "totals"} & set(options.only):
        published = spatial_runs.read_published(options.reference)
        show(options.data, options.streams, options.runs, published, options.only)
    if "batches" in options.only:
        spatial_batches.show(options.data, options.streams, options.runs)
    if "losses" in options.only:
        spatial_losses.show(options.data, options.streams, options.runs)


def show(data: Path, names: Sequence[str], runs: int, published: Published, parts: Sequence[str]) -> None:
    for name in names:
        begin = perf_counter()
        scene = SCENES[name](data)
        measured = {
            (method, epsilon): [measure(scene, method, epsilon, seed) for seed in range(runs)]
            for epsilon in EPSILONS
            for method in METHODS
        }
        spent = perf_counter() - begin
        if "accuracy" in parts:
            _errors(scene, measured, published, spent)
            _over_time(scene, measured, published)
        if "totals" in parts:
            _totals(scene, measured, published)


def _theirs(
    scene: Scene, method: Method, epsilon: float, asked: str, published: Published
) -> dict[int, tuple[float, float]]:
    return published.get((scene.reference, method.reference, method.counter, epsilon, asked), {})


def _cells(ours: Floats, theirs: dict[int, tuple[float, float]], times: tuple[int, ...]) -> list[str]:
    """Mean over times and seeds, the reference's, and the ratio at the times that the reference has."""
    if not theirs:
        return [f"{ours.mean():.3f}", "-", "-"]
    both = np.isin(times, list(theirs))
    reference = float(np.mean([theirs[t][0] for t, there in zip(times, both, strict=True) if there]))
    mine = float(ours[:, both].mean())
    return [f"{mine:.3f}", f"{reference:.3f}", ratio(mine, reference)]


def _errors(scene: Scene, measured: Measured, published: Published, spent: float) -> None:
    rows = []
    for (method, epsilon), runs in measured.items():
        cells = [f"{epsilon:g}", method.name, method.counter]
        for k, asked in enumerate(SETS):
            errors = np.array([run.errors[k] for run in runs])
            cells += _cells(errors, _theirs(scene, method, epsilon, asked, published), scene.times)
        whole = [run.errors[0].mean() for run in runs]
        rows.append(
            [*cells, f"{min(whole):.3f} to {max(whole):.3f}", f"{np.mean([run.leaves[-1] for run in runs]):,.0f}"]
        )
    heads = [head for asked in SETS for head in (asked, "reference", "ratio")]
    table(
        f"{scene.name}: {scene.stream!r}; average relative error of sampled points, mean over {_runs(measured)} "
        f"seeds and {len(scene.times)} times (those that the reference has, where it is there); queries "
        f"{scene.placement}; {spent:.0f} s",
        ["eps", "method", "counter", *heads, "small, runs, all times", "leaves at the end"],
        rows,
    )


def _over_time(scene: Scene, measured: Measured, published: Published) -> None:
    shown_times = [k for k in range(len(scene.times)) if k % 2 == 0 or k == len(scene.times) - 1]
    rows = []
    for (method, epsilon), runs in measured.items():
        if method.counter == "block" and method.name != "repaired":
            continue
        errors = np.array([run.errors[0] for run in runs]).mean(axis=0)
        rows.append([f"{epsilon:g}", method.name, method.counter, *(f"{errors[k]:.3f}" for k in shown_times)])
        theirs = _theirs(scene, method, epsilon, "small", published)
        if theirs:
            found = [theirs.get(scene.times[k]) for k in shown_times]
            numbers = ["-" if one is None else f"{one[0]:.3f}" for one in found]
            rows.append([f"{epsilon:g}", f"{method.name}, reference", method.counter, *numbers])
    table(
        f"{scene.name}: average relative error of small queries after batch t, means of {_runs(measured)} seeds",
        ["eps", "method", "counter", *(f"t = {scene.times[k]}" for k in shown_times)],
        rows,
    )


def _totals(scene: Scene, measured: Measured, published: Published) -> None:
    rows = []
    for (method, epsilon), runs in measured.items():
        totals = np.array([run.totals for run in runs])
        last = totals[:, -1]
        theirs = _theirs(scene, method, epsilon, "small", published).get(scene.times[-1])
        rows.append([
            f"{epsilon:g}", method.name, method.counter, f"{totals.mean():.3f}", f"{last.mean():.3f}",
            f"{last.std(ddof=1) / np.sqrt(len(runs)):.3f}", f"{last.min():.3f} to {last.max():.3f}",
            shown(theirs[1] if theirs else None),
        ])  # fmt: skip
    table(
        f"{scene.name}: released total over true total, {_runs(measured)} seeds",
        ["eps", "method", "counter", "mean over times", "at the end", "its standard error", "runs", "reference, end"],
        rows,
    )


def _runs(measured: Measured) -> int:
    return len(next(iter(measured.values())))
