"""PHDStream and its baselines beside the authors' code: errors, totals, numbers of batches, exact losses."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from benchmarks.accuracy.published import ratio
from benchmarks.shared import DATA, REFERENCE, Data, Floats, table
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
    reference: str = ""
    #: Only what is present counts, so batches between two looks may come as one.
    offline: bool = False


def _of(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    return lambda domain, epsilon, seed: kind(domain, epsilon, *arguments, max_depth=DEPTH, seed=seed, **options)


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


def _phd(counter: str, score: str) -> Callable[..., Any]:
    return _of(PHDStream, counter, score=score, **PAPER)


def _merged(batches: int) -> Callable[..., Any]:
    return lambda *given: Merged(_of(PHDStream, **PAPER)(*given), batches)


METHODS = (
    Method("repaired", "simple", _phd("simple", "repaired"), "phd_fix_proj"),
    Method("repaired", "block", _phd("block", "repaired"), "phd_fix_proj"),
    Method("adaptive", "counts alone", _of(AdaptivePHDStream)),
    Method("repaired, batches merged by 8", "simple", _merged(8)),
    Method("repaired, batches merged by 16", "simple", _merged(16)),
    Method("paper's score", "simple", _phd("simple", "paper"), "phd"),
    Method("paper's score", "block", _phd("block", "paper"), "phd"),
    Method("Baseline 1 (not private)", "none", _of(OfflineOnStream), "b1", offline=True),
    Method("Baseline 2", "none", _of(OfflineOnBatch), "b2"),
    Method("Baseline 3", "simple", _of(FixedTree, NAMED_COUNTERS["simple"]), "b3"),
    Method("Baseline 3", "block", _of(FixedTree, NAMED_COUNTERS["block"]), "b3"),
)
PHDSTREAM, ADAPTIVE = METHODS[0], METHODS[2]
PROMPT = Method("adaptive", "every batch", _of(AdaptivePHDStream, period=1))


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
    "deletion": cache(circles_with_deletion),
    "circles": cache(circles),
    "pickups": cache(pickups),
    "gowalla": cache(gowalla),
    "jumping": cache(jumping),
    "visiting": cache(visiting),
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
    if path.is_file():
        with path.open(newline="") as lines:
            for row in csv.DictReader(lines):
                counter, size = row["counter"].removesuffix("_8"), float(row["n_synth"]) / float(row["n_true"])
                key = row["dataset"], row["method"], counter, float(row["eps"]), row["query_set"]
                found.setdefault(key, {})[int(row["t"])] = (float(row["rel_error"]), size)
    return found


EPSILON = 1.0
#: Batches behind the first one.
NUMBERS = (5, 10, 20, 50, 100, 200)
#: Share of the first one; None for one like the others.
INITIAL = (None, 0.1)
LOOKS = 5


def show_batches(data: Path, names: Sequence[str], runs: int) -> None:
    rows: list[list[object]] = []
    for name, initial, number in itertools.product(names, INITIAL, NUMBERS):
        scene = _recut(SCENES[name](data), number, initial)
        cells = [
            np.mean([measure(scene, method, EPSILON, seed).errors[0] for seed in range(runs)], axis=0)
            for method in (PHDSTREAM, ADAPTIVE, PROMPT)
        ]
        phd, adaptive, prompt = (float(each.mean()) for each in cells)
        ratios = [phd / adaptive, float(cells[0][-1] / cells[1][-1]), phd / prompt]
        shown = [f"{each:.3f}" for each in (phd, adaptive, prompt)] + [f"{each:.2f}" for each in ratios]
        rows.append([name, "as others" if initial is None else f"{initial:g}", number, *shown])
    columns = ["PHDStream", "adaptive", "adaptive, period=1", "ratio", "ratio at the end", "ratio, period=1"]
    title = f"Small queries, average relative error of sampled points, eps {EPSILON:g}, mean over {runs} seeds and "
    table(f"{title}{LOOKS} times", ["stream", "first batch", "further ones", *columns], rows)


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


def show_losses(data: Path, scenes: Sequence[str], runs: int) -> None:
    """Whole runs, then the adversary; in units of the claimed eps / 2."""
    rows: list[list[object]] = []
    for name, epsilon, score, retention in itertools.product(scenes, EPSILONS, SCORES, (16, 2**40)):
        scene = SCENES[name](data)
        losses = [run_losses(scene.stream, epsilon, score, seed, retention) for seed in range(runs)]
        worst, steps = np.array([each.max() for each in losses]), np.concatenate(losses)
        spread = [f"{each:.2f}" for each in (worst.min(), np.median(worst), worst.max())]
        above = [f"{np.count_nonzero(each > 1.0):,} of {each.size:,}" for each in (worst, steps)]
        forgotten = "nothing" if retention > DEPTH else "as usual"
        rows.append([scene.name, f"{epsilon:g}", score, forgotten, *spread, *above])
    title = "Exact loss of all split decisions of a step, in units of the claimed eps / 2, the worst of a run; depth "
    columns = ["least run", "median run", "largest run", "runs above the claim", "steps above the claim"]
    table(f"{title}{DEPTH}, Simple, {runs} seeds", ["stream", "eps", "score", "forgotten", *columns], rows)
    rows = []
    for epsilon, score in itertools.product(EPSILONS, SCORES):
        found = np.array([attack_loss(epsilon, score, seed) for seed in range(ATTACKS)])
        shares = [f"{np.mean(found > limit):.1%}" for limit in (1.0, 2.0)]
        rows.append([f"{epsilon:g}", score, f"{np.median(found):.2f}", f"{found.max():.2f}", *shares])
    title = (
        f"One batch of an adversary (additions in one deep cell, removals beside its path), depth {ATTACK_DEPTH}, "
    )
    columns = ["eps", "score", "median", "largest", "above 1", "above 2"]
    table(f"{title}{ATTACKS} seeds, same units", columns, rows)


PARTS = ("accuracy", "totals", "batches", "losses")


def run(
    *,
    runs: Annotated[int, "releases of each kind, at least 2"] = 20,
    streams: Annotated[Sequence[str], "data sets", list(SCENES)] = tuple(SCENES),
    only: Annotated[Sequence[str], "which tables", PARTS] = PARTS,
    reference: Annotated[Path, "the authors' figures"] = PUBLISHED,
    data: Data = DATA,
) -> None:
    if {"accuracy", "totals"} & set(only):
        for name in streams:
            show(SCENES[name](data), runs, read_published(reference), only)
    if "batches" in only:
        show_batches(data, streams, runs)
    if "losses" in only:
        show_losses(data, streams, runs)


def show(scene: Scene, runs: int, published: Published, parts: Sequence[str]) -> None:
    """Errors, errors over time, and totals; of the reference at the times that it has."""
    errors, over_time, totals = [], [], []
    shown_times = [k for k in range(len(scene.times)) if k % 2 == 0 or k == len(scene.times) - 1]
    for epsilon, method in itertools.product(EPSILONS, METHODS):
        found = [measure(scene, method, epsilon, seed) for seed in range(runs)]
        by_set, total = np.array([each.errors for each in found]), np.array([each.totals for each in found])
        name, cells = [f"{epsilon:g}", method.name, method.counter], []
        key = scene.reference, method.reference, method.counter, epsilon
        for k, asked in enumerate(SETS):
            cells += _cells(by_set[:, k], published.get((*key, asked), {}), scene.times)
        small = by_set[:, 0].mean(axis=1)
        leaves = f"{np.mean([each.leaves[-1] for each in found]):,.0f}"
        errors.append([*name, *cells, f"{small.min():.3f} to {small.max():.3f}", leaves])
        theirs = published.get((*key, "small"), {})
        if method.counter != "block" or method.name == "repaired":
            means = by_set[:, 0].mean(axis=0)
            over_time.append([*name, *(f"{means[k]:.3f}" for k in shown_times)])
            if theirs:
                there = [theirs.get(scene.times[k]) for k in shown_times]
                shown = [one and f"{one[0]:.3f}" for one in there]
                over_time.append([name[0], f"{method.name}, reference", method.counter, *shown])
        last, end = total[:, -1], theirs.get(scene.times[-1])
        shown = [f"{each:.3f}" for each in (total.mean(), last.mean(), last.std(ddof=1) / np.sqrt(runs))]
        totals.append([*name, *shown, f"{last.min():.3f} to {last.max():.3f}", end and end[1]])
    names = ["eps", "method", "counter"]
    if "accuracy" in parts:
        heads = [head for asked in SETS for head in (asked, "reference", "ratio")]
        table(
            f"{scene.name}: {scene.stream!r}; average relative error of sampled points, mean over {runs} seeds and "
            f"{len(scene.times)} times (those that the reference has, where it is there); queries {scene.placement}",
            [*names, *heads, "small, runs, all times", "leaves at the end"],
            errors,
        )
        title = f"{scene.name}: average relative error of small queries after batch t, means of {runs} seeds"
        table(title, [*names, *(f"t = {scene.times[k]}" for k in shown_times)], over_time)
    if "totals" in parts:
        columns = ["mean over times", "at the end", "its standard error", "runs", "reference, end"]
        table(f"{scene.name}: released total over true total, {runs} seeds", [*names, *columns], totals)


def _cells(ours: Floats, theirs: dict[int, tuple[float, float]], times: tuple[int, ...]) -> list[str]:
    """Mean over times and seeds, the reference's, and the ratio at the times that the reference has."""
    if not theirs:
        return [f"{ours.mean():.3f}", "-", "-"]
    both = np.isin(times, list(theirs))
    reference = float(np.mean([theirs[t][0] for t, there in zip(times, both, strict=True) if there]))
    mine = float(ours[:, both].mean())
    return [f"{mine:.3f}", f"{reference:.3f}", ratio(mine, reference)]
