"""The study of streams of points, asked how many points are in boxes at several times.

Source: PHDStream section 5.4: boxes in three classes of size, asked at regular intervals.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from fastdp import Key, validation
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Json
from fastdp.points import Box, Domain, Network
from fastdp.points.maps import read_domain
from fastdp_lab import datasets, queries
from fastdp_lab.datasets import PointStream, catalogue
from fastdp_lab.datasets.files import CIRCLES, EARTH, NEW_YORK
from fastdp_lab.queries import PAPER_SETS, BoxQueries, Placement, PointIndex, paper_queries
from fastdp_lab.sweeps.study import (
    DataSet,
    Maker,
    Name,
    Row,
    Table,
    check_different,
    check_keys,
    placed,
    read,
    source_of,
    text,
)
from fastdp_lab.sweeps.systems import point_systems as systems

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Mechanism, Specification

Corners = tuple[tuple[float, float], tuple[float, float]]
ERRORS = ("mse", "mae", "relative_error")
METRICS = (*ERRORS, "focus")
KEYS: tuple[str, ...] = ()
CLASSES = tuple(name for name, *_ in PAPER_SETS)


def _maker(make: Callable[..., PointStream], box: Corners) -> Maker:
    """Synthetic streams have seed 7 unless the table has one."""
    seed = {"seed": 7} if "seed" in inspect.signature(make).parameters else {}
    return Maker(make, lambda parameters: {"box": box, "parameters": {**seed, **parameters}})


#: Synthetic streams by their name in a specification; add others here.
SPATIAL_GENERATORS: dict[str, Maker] = {
    "circles": _maker(datasets.concentric_circles, CIRCLES),
    "pickups": _maker(datasets.made_up_pickups, NEW_YORK),
    "check_ins": _maker(datasets.made_up_check_ins, EARTH),
}
#: File formats by name.
FORMATS: dict[str, Maker] = {
    "circles": _maker(datasets.load_circles, CIRCLES),
    "pickups": _maker(datasets.load_pickups, NEW_YORK),
    "gowalla": _maker(datasets.load_gowalla, EARTH),
}
#: Synthetic domains by their name in a specification.
DOMAINS: dict[str, Callable[[], Domain]] = {"streets": datasets.made_up_streets}
#: Points farther from every line than this part of the domain's longer side are left out.
REACH = 0.01
DOWNLOADS = ("gowalla",)


@dataclass(frozen=True, kw_only=True)
class PointSet(DataSet):
    """A stream of points to publish."""

    STUDY: ClassVar[str] = "points"

    format: str
    box: Corners
    domain: str = ""
    start: Annotated[int, Meta(ge=0)] = 0

    def load(self, folder: Path) -> Points:
        """The events, and the domain that contains them."""
        path = catalogue.path_of(self.source) if self.kind == "download" else folder / self.source
        if self.kind != "generator" and not path.exists():
            hint = f"; run: fastdp datasets --download {self.source}" if self.kind == "download" else ""
            raise DataError(f"{self.name}: no such file, {path}{hint}")
        maker, where = FORMATS.get(self.format), {"path": path, "box": self.box}
        if maker is None:
            maker, where = SPATIAL_GENERATORS[self.source], {}
        try:
            stream = maker.make(**where, **self.parameters)
        except ParameterError as error:
            raise ParameterError(f"{self.place}.{error}") from None
        if self.start > stream.n_steps:
            raise ParameterError(
                f"{self.place}.start = {self.start}: expected at most the {stream.n_steps} batches of {self.name}"
            )
        stream = stream.starting_at(self.start)
        if not self.domain:
            return Points(self, stream, Box(*self.box), "")
        if self.domain in DOMAINS:
            domain, digest = DOMAINS[self.domain](), self.domain
        else:
            domain, digest = read_domain(folder / self.domain)
        return Points(self, confined(stream, domain), domain, digest)


def confined(stream: PointStream, domain: Domain) -> PointStream:
    """The events within a public domain; on a network points move to the nearest line if there is one near.

    Each event is treated on its own, so that streams that differ in one event still do.
    """
    points = stream.points
    if isinstance(domain, Network):
        points = domain.snap(points)
        near = REACH * float((domain.upper - domain.lower).max())
        kept = np.linalg.norm(points - stream.points, axis=1) <= near
    else:
        kept = domain.contains(points)
    # A removal is at the place of its addition: both stay, or neither.
    number = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        stream,
        lower=domain.lower,
        upper=domain.upper,
        points=points[kept],
        cancels=np.where(stream.cancels >= 0, number[stream.cancels], -1)[kept],
        times=stream.times[kept],
        cuts=number[stream.cuts],
    )


def claims(table: Table) -> bool:
    """Tables with a format, a synthetic stream of points, or a download of events."""
    made, downloaded = table.get("generator"), table.get("download") in DOWNLOADS and "column" not in table
    return "format" in table or downloaded or (isinstance(made, str) and made in SPATIAL_GENERATORS)


def read_data_set(table: Table, place: str, name: str, top: Table) -> PointSet:
    """A data set from its table, lists expanded."""
    kind, source = source_of(table, place, {"generator": tuple(SPATIAL_GENERATORS), "download": DOWNLOADS})
    known, chosen = (SPATIAL_GENERATORS, source) if kind == "generator" else (FORMATS, table.get("format", source))
    maker = known[validation.choice(f"{place}.format", chosen, tuple(known))]
    further = {"generator": (), "download": ("box",), "file": ("box", "format")}[kind]
    check_keys(table, place, ("name", kind, "start", "domain", *further, *maker.accepted))
    found = maker.defaults({key: table[key] for key in maker.accepted if key in table})
    if "seed" in maker.accepted:
        validation.integer(f"{place}.seed", found["parameters"]["seed"], 0)
    if "box" in table:
        found["box"] = _corners(table["box"], f"{place}.box")
    if "domain" in table:
        text(f"{place}.domain", table["domain"])
    found |= {key: table[key] for key in ("start", "domain") if key in table}
    identity = {"name": name, "kind": kind, "source": source, "place": place}
    return read(PointSet, {**found, **identity, "format": "" if kind == "generator" else chosen}, place)


def _corners(table: Any, place: str) -> Corners:
    """Corners from a table with the numbers left, bottom, right and top."""
    sides = ("left", "bottom", "right", "top")
    check_keys(table, place, sides, sides)
    left, bottom, right, top = (validation.real(f"{place}.{side}", table[side]) for side in sides)
    with placed(place):
        Box((left, bottom), (right, top))
    return (left, bottom), (right, top)


#: Keys of the table of each kind of queries, the usual number of times, and the largest count.
_QUERIES: dict[str, tuple[tuple[str, ...], int, int]] = {
    "boxes": (("name", "kind", "times", "count", "classes", "fixed", "placement"), 11, 10**6),
    "map": (("name", "kind", "times", "count", "box"), 3, 1000),
}


@dataclass(frozen=True, kw_only=True)
class BoxWorkload:
    """A kind of box queries."""

    name: Name = "boxes"
    kind: str = "boxes"
    times: Annotated[int, Meta(ge=1)] | tuple[Annotated[int, Meta(ge=0)], ...] = 11
    classes: Annotated[tuple[str, ...], Meta(min_length=1)] = CLASSES
    count: int | None = None
    fixed: bool = True
    placement: Placement = "inside"
    box: Corners | None = None
    place: str = field(default="workloads", compare=False)

    def __post_init__(self) -> None:
        """Check names and orders."""
        if isinstance(self.times, tuple):
            check_different("times", self.times, rising=True)
        check_different("classes", self.classes)
        for k, each in enumerate(self.classes):
            validation.choice(f"classes[{k}]", each, CLASSES)
        if self.count is not None:
            validation.integer("count", self.count, 1, _QUERIES[self.kind][2])

    @property
    def groups(self) -> tuple[str, ...] | None:
        """Labels of all groups; those of a map depend on its count."""
        return None if self.kind == "map" else self.classes

    def looks(self, steps: int) -> tuple[int, ...]:
        """The batches after which queries are asked, of a stream with so many."""
        if isinstance(self.times, tuple):
            return self.times
        if self.times == 1:
            return (steps,)
        return tuple(np.unique(np.linspace(0, steps, self.times).astype(int)).tolist())

    def check(self, size: int) -> None:
        """ParameterError if a stream of this many batches ends before the last time."""
        if isinstance(self.times, tuple) and self.times[-1] > size:
            raise ParameterError(f"{self.place}.times = {list(self.times)}: expected at most the {size} batches")

    def draw(self, box: Any, seed: int) -> list[BoxQueries]:
        """The boxes in a domain's box, by group; a map is one group here."""
        if self.kind == "map":
            low, high = self.box or box
            edges = [np.linspace(low[k], high[k], (self.count or 48) + 1) for k in range(2)]
            lower, upper = (
                np.stack(np.meshgrid(*(each[part] for each in edges), indexing="xy"), axis=-1).reshape(-1, 2)
                for part in (slice(None, -1), slice(1, None))
            )
            return [BoxQueries(self.name, lower, upper)]
        every = paper_queries(box[0], box[1], count=self.count, placement=self.placement, seed=seed)
        return [asked for name, asked in every.items() if name in self.classes]


def read_workload(table: Table, place: str) -> BoxWorkload:
    """Queries from their table."""
    kind = validation.choice(f"{place}.kind", table.get("kind", "boxes"), tuple(_QUERIES))
    keys, times, _ = _QUERIES[kind]
    check_keys(table, place, keys)
    box = {"box": _corners(table["box"], f"{place}.box")} if "box" in table else {}
    return read(BoxWorkload, {"name": kind, "times": times, **table, **box, "place": place}, place)


WORKLOADS = (BoxWorkload(),)


@dataclass(frozen=True, eq=False)
class Points:
    """The events, the domain that contains them and the digest of its file; safe for threads."""

    data_set: PointSet
    stream: PointStream
    domain: Domain
    domain_digest: str

    @property
    def size(self) -> int:
        """Batches after the initial set."""
        return self.stream.n_steps

    @cached_property
    def box(self) -> list[list[float]]:
        """The domain's bounding box."""
        return [self.domain.lower.tolist(), self.domain.upper.tolist()]

    @cached_property
    def facts(self) -> Json:
        """Length and digest, for the manifest."""
        found = hashlib.sha256(self.domain_digest.encode())
        for array in (self.stream.points, self.stream.cancels, self.stream.cuts):
            found.update(np.ascontiguousarray(array).data)
        events, digest = len(self.stream.points), found.hexdigest()[:32]
        return {"events": events, "batches": self.size, "box": self.box, "sha256": digest}

    @cached_property
    def asked(self) -> Callable[[BoxWorkload, int], tuple[list[BoxQueries], dict[int, list[Floats]]]]:
        """The boxes that follow from a workload and a seed, by group; by time, how many points are in each.

        Counted once for all cells that share them.
        """

        # One or two megabytes each for the paper's boxes.
        @lru_cache(16)
        def ask(workload: BoxWorkload, seed: int) -> tuple[list[BoxQueries], dict[int, list[Floats]]]:
            groups, counts = workload.draw(self.box, seed), {}
            for t in workload.looks(self.size):
                index = PointIndex(self.stream.present(t))
                counts[t] = [index.count(each.lower, each.upper).astype(np.float64) for each in groups]
            return groups, counts

        return ask


def _follow(
    specification: Specification, truth: Points, publisher: Any, asked: list[Any], *, merges: bool
) -> Iterator[Row]:
    """Rows of a run: queries are asked between batches; with ``merges`` the batches between are sent as one."""
    looks, stream = {t for _, _, counts in asked for t in counts}, truth.stream
    waiting: list[tuple[Floats, Floats]] = [(stream.initial, np.empty((0, stream.lower.size)))]
    batches = stream.batches
    # A sweep of maps only has no queries after the first repetition.
    for t in range(max(looks, default=-1) + 1):
        if t > 0:
            waiting.append(next(batches))
        if t in looks or not merges:
            publisher.advance(*(np.concatenate(parts) for parts in zip(*waiting, strict=True)))
            waiting.clear()
        if t in looks:
            yield from _look(specification, truth, publisher, t, [each for each in asked if t in each[2]])


def _look(specification: Specification, truth: Points, publisher: Any, t: int, asked: list[Any]) -> Iterator[Row]:
    """Rows at one time; each box of a map is a group, with truth and answer only."""
    there, sampled = truth.stream.present(t), PointIndex(publisher.sample())
    tree, present = publisher.tree, len(there)
    common = [float(truth.data_set.start + t), float(present), publisher.total, float(tree.n_leaves)]
    focused = [_focus(tree, there)] if "focus" in specification.metrics else []
    for workload, groups, counts in asked:
        for each, exact in zip(groups, counts[t], strict=True):
            answers = sampled.count(each.lower, each.upper).astype(np.float64)
            if workload.kind == "map":
                nothing = [math.nan] * len(specification.metrics)
                numbers = exact.tolist(), answers.tolist(), _cells(tree, each).tolist()
                for k, row in enumerate(zip(*numbers, strict=True)):
                    yield workload.name, str(k), 1, [*common, *row, *nothing]
            else:
                errors = _errors(exact, answers, specification.metrics, queries.FLOOR * present)
                means = exact.mean(), answers.mean(), math.nan
                yield workload.name, each.name, exact.size, [*common, *means, *errors, *focused]


def _focus(tree: Any, points: Floats) -> float:
    """Mean measure of the cell of a place of the domain, over that of the cell of a point."""
    if math.isnan(tree.n_leaves):
        return math.nan
    size = tree.domain.measure(tree.lower, tree.upper)
    inside = PointIndex(points).count(tree.lower, tree.upper)
    return float(size @ size / size.sum() * inside.sum() / max(size @ inside, 1e-300))


def _cells(tree: Any, grid: BoxQueries) -> Floats:
    """Number of the cell around the middle of each box of a map, by row."""
    side, middle = math.isqrt(len(grid)), (grid.lower + grid.upper) / 2.0
    cells = np.full((side, side), math.nan)
    if not math.isnan(tree.n_leaves):
        columns, rows = (
            np.searchsorted(axis, [corner[:, k] for corner in (tree.lower, tree.upper)]).T.tolist()
            for k, axis in enumerate((middle[:side, 0], middle[::side, 1]))
        )
        for number, (column, row) in enumerate(zip(columns, rows, strict=True)):
            cells[slice(*row), slice(*column)] = number
    return cells.ravel()


def _errors(truth: Any, answers: Any, chosen: Sequence[str], floor: float) -> Iterator[float]:
    for name in ERRORS:
        if name in chosen and name != "relative_error":
            yield getattr(queries, name)(truth, answers)
        elif name in chosen:
            # Without points there is no relative error.
            yield queries.relative_error(truth, answers, floor) if floor > 0.0 else math.nan


def columns(chosen: Sequence[str]) -> tuple[str, ...]:
    """Columns of numbers in the results, for the metrics of a specification."""
    numbers = ("time", "points", "total", "leaves", "truth", "answer", "region")
    return (*numbers, *(name for name in METRICS if name in chosen))


def build(specification: Specification, mechanism: Mechanism, truth: Points, epsilon: float) -> Callable[[], Any]:
    """Repetitions share nothing but the truth."""
    system = systems()[mechanism.system]
    run = system.build(truth.domain, epsilon, **mechanism.parameters)

    def run_cell(repetition: int, key: Key, seed: Callable[[Any], int]) -> tuple[float, list[Row]]:
        # A map is for pictures, which show one run.
        workloads = [each for each in specification.workloads if each.kind == "boxes" or repetition == 0]
        asked = [(each, *truth.asked(each, seed(each))) for each in workloads]
        return math.nan, list(_follow(specification, truth, run(key), asked, merges=system.merges))

    return lambda: run_cell
