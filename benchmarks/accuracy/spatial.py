"""PHDStream and its baselines beside the authors' code: errors, totals, numbers of batches, exact losses."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.accuracy.reference import ratio, shown
from benchmarks.shared import REFERENCE, Floats, add_data_option, table
from fastdp import AdaptivePHDStream, PHDStream
from fastdp.spatial import Box
from fastdp.spatial.phdstream import NAMED_COUNTERS
from fastdp_lab.baselines import FixedTree, OfflineOnBatch, OfflineOnStream
from fastdp_lab.datasets import (
    SpatialStream,
    concentric_circles,
    cut_events,
    load_circles,
    load_gowalla,
    load_pickups,
)
from fastdp_lab.datasets.files import DAY
from fastdp_lab.planning.tree_loss import noted_steps, tree_step_loss
from fastdp_lab.queries.boxes import BoxQueries, PointIndex, paper_queries, relative_error

EPSILONS = (0.5, 1.0)
SETS = ("small", "medium", "large")
PUBLISHED = REFERENCE / "phdstream-accuracy.csv"
DEPTH = 20
#: As in the paper no epsilon is spent on a count of all points.
PAPER: dict[str, Any] = {"total_share": 0.0}
QUERY_SEED = 0


class Method(NamedTuple):
    """A row: how it is made, and the names of its rows in the reference."""

    name: str
    counter: str
    make: Callable[..., Any]
    reference: str
    #: Only what is present counts, so batches between two looks may come as one.
    offline: bool = False


def _phd(counter: str, score: str) -> Callable[..., Any]:
    options = {"max_depth": DEPTH, "score": score, **PAPER}
    return lambda domain, epsilon, seed: PHDStream(domain, epsilon, counter, seed=seed, **options)


def _adaptive(domain: Box, epsilon: float, seed: int) -> AdaptivePHDStream:
    return AdaptivePHDStream(domain, epsilon, max_depth=DEPTH, seed=seed)


class Merged:
    """A system that gets its batches, but for the first, by so many at once, and releases the same in between.

    The same guarantee, and as late as :class:`AdaptivePHDStream` with that period, but for its forecast.
    """

    def __init__(self, system: Any, batches: int) -> None:
        self.system, self.batches = system, batches
        self._waiting: list[tuple[Floats, Floats]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.system, name)

    def advance(self, added: Floats, removed: Floats | None = None) -> None:
        if removed is None:
            self.system.advance(added)
            return
        self._waiting.append((added, removed))
        if len(self._waiting) == self.batches:
            self.system.advance(*(np.concatenate(parts) for parts in zip(*self._waiting, strict=True)))
            self._waiting.clear()


def _merged(batches: int) -> Callable[..., Any]:
    return lambda domain, epsilon, seed: Merged(
        PHDStream(domain, epsilon, max_depth=DEPTH, seed=seed, **PAPER), batches
    )


def _fixed(counter: str) -> Callable[..., Any]:
    return lambda domain, epsilon, seed: FixedTree(
        domain, epsilon, NAMED_COUNTERS[counter], max_depth=DEPTH, seed=seed
    )


def _offline(kind: Callable[..., Any]) -> Callable[..., Any]:
    return lambda domain, epsilon, seed: kind(domain, epsilon, max_depth=DEPTH, seed=seed)


METHODS = (
    Method("repaired", "simple", _phd("simple", "repaired"), "phd_fix_proj"),
    Method("repaired", "block", _phd("block", "repaired"), "phd_fix_proj"),
    Method("adaptive", "counts alone", _adaptive, ""),
    Method("repaired, batches merged by 8", "simple", _merged(8), ""),
    Method("repaired, batches merged by 16", "simple", _merged(16), ""),
    Method("paper's score", "simple", _phd("simple", "paper"), "phd"),
    Method("paper's score", "block", _phd("block", "paper"), "phd"),
    Method("Baseline 1 (not private)", "none", _offline(OfflineOnStream), "b1", offline=True),
    Method("Baseline 2", "none", _offline(OfflineOnBatch), "b2"),
    Method("Baseline 3", "simple", _fixed("simple"), "b3"),
    Method("Baseline 3", "block", _fixed("block"), "b3"),
)


@dataclass(frozen=True)
class Scene:
    """A stream, where its domain is, which queries are asked, and when."""

    name: str
    stream: SpatialStream
    placement: str
    times: tuple[int, ...]
    reference: str = ""

    @property
    def domain(self) -> Box:
        return Box(self.stream.lower, self.stream.upper)

    @cached_property
    def queries(self) -> dict[str, BoxQueries]:
        return paper_queries(self.stream.lower, self.stream.upper, placement=self.placement, seed=QUERY_SEED)

    @cached_property
    def truth(self) -> list[tuple[int, dict[str, Floats]]]:
        """Points present, and true counts, at each time."""
        counted = []
        for t in self.times:
            points = self.stream.present(t)
            index = PointIndex(points)
            counts = {
                name: index.count(asked.lower, asked.upper).astype(np.float64) for name, asked in self.queries.items()
            }
            counted.append((len(points), counts))
        return counted


def circles_with_deletion(data: Path) -> Scene:
    """The authors' file.  The box is the data's own, as in the reference: for comparison only, it must be public."""
    path = data / "motion_circles_synthetic.csv.gz"
    stream = load_circles(path)
    stream = load_circles(path, box=(stream.points.min(axis=0), stream.points.max(axis=0)))
    return Scene("circles with deletion", stream, "clipped", (*range(0, 135, 10), 135), "circles_with_deletion")


def circles(data: Path) -> Scene:
    """Made up, of the size of the reference's; the box is again the data's own."""
    del data
    made = concentric_circles(50_000, deletion=False, seed=0)
    low, high = made.points.min(axis=0), made.points.max(axis=0)
    stream = SpatialStream("circles", low, high, made.points, made.cancels, made.times, made.cuts)
    return Scene("circles", stream, "clipped", tuple(range(0, 91, 10)), "circles")


def pickups(data: Path) -> Scene:
    stream = load_pickups(data / "uber_nyc_b02512.csv.gz", period=DAY / 4, initial=0.1)
    return Scene("Uber pickups", stream, "inside", _ten_times(stream))


def gowalla(data: Path) -> Scene:
    stream = load_gowalla(data / "gowalla_sample.csv.gz", deletion=True, period=DAY, initial=0.1)
    return Scene("Gowalla, 30-day deletion", stream, "inside", _ten_times(stream))


def jumping(data: Path) -> Scene:
    """A cluster that is elsewhere in every batch; those of the last four are present."""
    del data
    return _clusters("cluster that jumps in every batch", steps=60, size=2000, every=1, life=4)


def visiting(data: Path) -> Scene:
    """A cluster that stays for twenty batches, then is elsewhere; the points of the last ten are present."""
    del data
    return _clusters("cluster that jumps every 20 batches", steps=100, size=500, every=20, life=10)


def _clusters(name: str, steps: int, size: int, every: int, life: int) -> Scene:
    generator = np.random.default_rng(1)
    places = generator.random((steps // every + 1, 1, 2))
    made = [np.clip(generator.normal(places[t // every], 0.02, (size, 2)), 0.0, 1.0) for t in range(steps + 1)]
    blocks, cancels, begins = [made[0]], [np.full(size, -1)], [0]
    for t in range(1, steps + 1):
        begins.append(size * len(blocks))
        blocks.append(made[t])
        cancels.append(np.full(size, -1))
        if t >= life:
            blocks.append(made[t - life])
            cancels.append(begins[t - life] + np.arange(size))
    cuts = np.array([*begins[1:], size * len(blocks)])
    points = np.concatenate(blocks)
    times = np.arange(len(points), dtype=np.float64)
    stream = SpatialStream(name, np.zeros(2), np.ones(2), points, np.concatenate(cancels), times, cuts)
    return Scene(name, stream, "clipped", tuple(range(5, steps + 1, 5)))


def _ten_times(stream: SpatialStream) -> tuple[int, ...]:
    return tuple(np.linspace(0, stream.n_steps, 11).astype(int).tolist())


SCENES: dict[str, Callable[[Path], Scene]] = {
    "deletion": circles_with_deletion,
    "circles": circles,
    "pickups": pickups,
    "gowalla": gowalla,
    "jumping": jumping,
    "visiting": visiting,
}


class Run(NamedTuple):
    """One release: errors float64[sets, times], estimated over true totals, cells."""

    errors: Floats
    totals: Floats
    leaves: Floats


def measure(scene: Scene, method: Method, epsilon: float, seed: int) -> Run:
    """Errors of counts among sampled points, as the reference counts them."""
    system = method.make(scene.domain, epsilon, seed)
    errors = np.empty((len(SETS), len(scene.times)))
    totals, leaves = np.empty(len(scene.times)), np.empty(len(scene.times))
    done = 0

    def look(t: int) -> None:
        nonlocal done
        while done < len(scene.times) and scene.times[done] == t:
            present, counts = scene.truth[done]
            index = PointIndex(system.sample())
            for k, name in enumerate(SETS):
                asked = scene.queries[name]
                errors[k, done] = relative_error(counts[name], index.count(asked.lower, asked.upper), present)
            totals[done], leaves[done] = system.total / present, system.tree.n_leaves
            done += 1

    system.advance(scene.stream.initial)
    look(0)
    waiting: list[tuple[Floats, Floats]] = []
    for t, batch in enumerate(scene.stream.batches, 1):
        waiting.append(batch)
        if method.offline and t not in scene.times:
            continue
        added, removed = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        system.advance(added, removed)
        waiting.clear()
        look(t)
    return Run(errors, totals, leaves)


Published = dict[tuple[str, str, str, float, str], dict[int, tuple[float, float]]]


def read_published(path: Path) -> Published:
    """Relative error, and synthetic over true size, by time; by data set, method, counter, budget and query set."""
    found: Published = {}
    if not path.is_file():
        return found
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            key = (
                row["dataset"],
                row["method"],
                row["counter"].removesuffix("_8"),
                float(row["eps"]),
                row["query_set"],
            )
            size = float(row["n_synth"]) / float(row["n_true"])
            found.setdefault(key, {})[int(row["t"])] = (float(row["rel_error"]), size)
    return found


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


def show_batches(data: Path, names: Sequence[str], runs: int) -> None:
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


SCORES = ("repaired", "paper")
ATTACKS = 200
ATTACK_DEPTH = 18


def step_loss(system: PHDStream, added: Floats, removed: Floats | None) -> float:
    """Consume one batch; the worst log-likelihood ratio of its decisions, over what is claimed for them."""
    with noted_steps() as steps:
        system.advance(added, removed)
    return tree_step_loss(system._plan, steps[system.n_steps - 1]).worst / (system.epsilon / 2)


def run_losses(stream: SpatialStream, epsilon: float, score: str, seed: int, retention: int) -> Floats:
    """Of every step of a whole run, the initial set's included."""
    system = PHDStream(
        Box(stream.lower, stream.upper),
        epsilon,
        **{"max_depth": DEPTH, "score": score, "seed": seed, "retention": retention, **PAPER},
    )
    batches = [(stream.initial, None), *stream.batches]
    return np.array([step_loss(system, added, removed) for added, removed in batches])


def attack_loss(epsilon: float, score: str, seed: int) -> float:
    """Additions in one deep cell, removals in its siblings: printed scores lie at the threshold along the path."""
    system = PHDStream(Box(0, 1), epsilon, max_depth=ATTACK_DEPTH, score=score, seed=seed, **PAPER)
    penalty = system._plan.bias / system._plan.unit
    # The cell at depth i is to hold a little more than i penalties.
    wanted = [round((i + 0.15) * penalty) for i in range(ATTACK_DEPTH)]
    siblings = [0.75 * 2.0**-i for i in range(ATTACK_DEPTH - 1)]
    removed = np.repeat(siblings, np.diff(wanted))
    return step_loss(system, np.zeros((wanted[-1], 1)), removed[:, None])


def show_losses(data: Path, scenes: list[str], runs: int) -> None:
    """Whole runs, then the adversary; in units of the claimed eps / 2."""
    rows = []
    for name in scenes:
        scene = SCENES[name](data)
        for epsilon in EPSILONS:
            for score, retention in (("repaired", 16), ("repaired", 2**40), ("paper", 16), ("paper", 2**40)):
                worst = []
                above = steps = 0
                for seed in range(runs):
                    losses = run_losses(scene.stream, epsilon, score, seed, retention)
                    worst.append(float(losses.max()))
                    above += int(np.count_nonzero(losses > 1.0))
                    steps += losses.size
                rows.append([
                    scene.name, f"{epsilon:g}", score, "nothing" if retention > DEPTH else "as usual",
                    f"{min(worst):.2f}", f"{np.median(worst):.2f}", f"{max(worst):.2f}",
                    f"{sum(loss > 1.0 for loss in worst)} of {runs}", f"{above:,} of {steps:,}",
                ])  # fmt: skip
    table(
        f"Exact loss of all split decisions of a step, in units of the claimed eps / 2, the worst of a run; depth "
        f"{DEPTH}, Simple, {runs} seeds",
        ["stream", "eps", "score", "forgotten", "least run", "median run", "largest run", "runs above the claim",
         "steps above the claim"],
        rows,
    )  # fmt: skip
    rows = []
    for epsilon in EPSILONS:
        for score in SCORES:
            losses = np.array([attack_loss(epsilon, score, seed) for seed in range(ATTACKS)])
            shares = [f"{np.mean(losses > limit):.1%}" for limit in (1.0, 2.0)]
            rows.append([f"{epsilon:g}", score, f"{np.median(losses):.2f}", f"{losses.max():.2f}", *shares])
    table(
        f"One batch of an adversary (additions in one deep cell, removals beside its path), depth {ATTACK_DEPTH}, "
        f"{ATTACKS} seeds, same units",
        ["eps", "score", "median", "largest", "above 1", "above 2"],
        rows,
    )  # fmt: skip


PARTS = ("accuracy", "totals", "batches", "losses")
Measured = dict[tuple[Method, float], list[Run]]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind, at least 2 (default 20)")
    parser.add_argument("--streams", nargs="+", choices=SCENES, default=list(SCENES), metavar="NAME",
                        help=", ".join(SCENES))  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    parser.add_argument("--reference", type=Path, default=PUBLISHED, help="the authors' figures")
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    if {"accuracy", "totals"} & set(options.only):
        published = read_published(options.reference)
        show(options.data, options.streams, options.runs, published, options.only)
    if "batches" in options.only:
        show_batches(options.data, options.streams, options.runs)
    if "losses" in options.only:
        show_losses(options.data, options.streams, options.runs)


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
