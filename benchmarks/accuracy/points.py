"""PHDStream and its baselines beside the authors' code: errors and totals."""

import csv
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from benchmarks.shared import DATA, REFERENCE, Data, Floats, table
from fastdp import AdaptivePHDStream, PHDStream
from fastdp.points import Box
from fastdp.points.phdstream import NAMED_COUNTERS
from fastdp_lab.baselines import FixedTree, OfflineOnBatch, OfflineOnStream
from fastdp_lab.datasets import PointStream, concentric_circles, load_circles, load_gowalla, load_pickups
from fastdp_lab.datasets.files import DAY
from fastdp_lab.queries import FLOOR, BoxQueries, PointIndex, paper_queries, relative_error

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


def _phd(counter: str, score: str) -> Callable[..., Any]:
    return _of(PHDStream, counter, score=score, **PAPER)


METHODS = (
    Method("repaired", "simple", _phd("simple", "repaired"), "phd_fix_proj"),
    Method("repaired", "block", _phd("block", "repaired"), "phd_fix_proj"),
    Method("PHDStream", "default", _of(PHDStream)),
    Method("AdaptivePHDStream", "default", _of(AdaptivePHDStream)),
    Method("paper's score", "simple", _phd("simple", "paper"), "phd"),
    Method("paper's score", "block", _phd("block", "paper"), "phd"),
    Method("Baseline 1 (not private)", "none", _of(OfflineOnStream), "b1", offline=True),
    Method("Baseline 2", "none", _of(OfflineOnBatch), "b2"),
    Method("Baseline 3", "simple", _of(FixedTree, NAMED_COUNTERS["simple"]), "b3"),
    Method("Baseline 3", "block", _of(FixedTree, NAMED_COUNTERS["block"]), "b3"),
)


@dataclass(frozen=True)
class Scene:
    """A stream, where its domain is, which queries are asked, and when."""

    name: str
    stream: PointStream
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
    stream = PointStream("circles", low, high, made.points, made.cancels, made.times, made.cuts)
    return Scene("circles", stream, "clipped", tuple(range(0, 91, 10)), "circles")


def pickups(data: Path) -> Scene:
    stream = load_pickups(data / "uber_nyc_b02512.csv.gz", period=DAY / 4, initial=0.1)
    return Scene("Uber pickups", stream, "inside", _ten_times(stream))


def gowalla(data: Path, *, deletion: bool = True) -> Scene:
    stream = load_gowalla(data / "gowalla_sample.csv.gz", deletion=deletion, period=DAY, initial=0.1)
    return Scene("Gowalla, 30-day deletion" if deletion else "Gowalla", stream, "inside", _ten_times(stream))


def _ten_times(stream: PointStream) -> tuple[int, ...]:
    return tuple(np.linspace(0, stream.n_steps, 11).astype(int).tolist())


SCENES: dict[str, Callable[[Path], Scene]] = {
    "deletion": cache(circles_with_deletion),
    "circles": cache(circles),
    "pickups": cache(pickups),
    "gowalla": cache(gowalla),
    "check-ins": cache(partial(gowalla, deletion=False)),
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
                errors[k, done] = relative_error(counts[name], index.count(asked.lower, asked.upper), FLOOR * present)
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


def run(
    *,
    runs: Annotated[int, "releases of each kind, at least 2"] = 20,
    streams: Annotated[Sequence[str], "data sets", list(SCENES)] = tuple(SCENES),
    batches: Annotated[int, "merge all batches behind the first into so many; 0: none"] = 0,
    reference: Annotated[Path, "the authors' figures"] = PUBLISHED,
    data: Data = DATA,
) -> None:
    published = read_published(reference)
    for name in streams:
        scene = SCENES[name](data)
        show(merged(scene, batches) if batches else scene, runs, published)


def merged(scene: Scene, batches: int) -> Scene:
    """Looked at behind each batch; the reference has no such stream."""
    cuts = scene.stream.cuts[np.linspace(0, scene.stream.n_steps, batches + 1).astype(int)]
    return Scene(scene.name, replace(scene.stream, cuts=cuts), scene.placement, tuple(range(batches + 1)))


def show(scene: Scene, runs: int, published: Published) -> None:
    """Errors and totals; of the reference at the times that it has."""
    errors, totals = [], []
    for epsilon, method in itertools.product(EPSILONS, METHODS):
        found = [measure(scene, method, epsilon, seed) for seed in range(runs)]
        by_set, total = np.array([each.errors for each in found]), np.array([each.totals for each in found])
        name, cells = [f"{epsilon:g}", method.name, method.counter], []
        key = scene.reference, method.reference, method.counter, epsilon
        for k, asked in enumerate(SETS):
            cells += _cells(by_set[:, k], published.get((*key, asked), {}), scene.times)
        small, leaves = by_set[:, 0].mean(axis=1), np.mean([each.leaves[-1] for each in found])
        errors.append([*name, *cells, f"{small.min():.3f} to {small.max():.3f}", f"{leaves:,.0f}"])
        last, end = total[:, -1], published.get((*key, "small"), {}).get(scene.times[-1])
        shown = [f"{each:.3f}" for each in (total.mean(), last.mean(), last.std(ddof=1) / np.sqrt(runs))]
        totals.append([*name, *shown, f"{last.min():.3f} to {last.max():.3f}", end and end[1]])
    names, heads = ["eps", "method", "counter"], [head for asked in SETS for head in (asked, "reference", "ratio")]
    table(
        f"{scene.name}: {scene.stream!r}; average relative error of sampled points, mean over {runs} seeds and "
        f"{len(scene.times)} times (those that the reference has, where it is there); queries {scene.placement}",
        [*names, *heads, "small, runs, all times", "leaves at the end"],
        errors,
    )
    columns = ["mean over times", "at the end", "its standard error", "runs", "reference, end"]
    table(f"{scene.name}: released total over true total, {runs} seeds", [*names, *columns], totals)


def _cells(ours: Floats, theirs: dict[int, tuple[float, float]], times: tuple[int, ...]) -> list[str]:
    """Mean over times and seeds, the reference's, and the ratio at the times that the reference has."""
    if not theirs:
        return [f"{ours.mean():.3f}", "-", "-"]
    both = np.isin(times, list(theirs))
    reference = float(np.mean([theirs[t][0] for t, there in zip(times, both, strict=True) if there]))
    mine = float(ours[:, both].mean())
    return [f"{mine:.3f}", f"{reference:.3f}", f"{mine / reference:.2f}"]
