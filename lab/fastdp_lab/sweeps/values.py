"""The study of streams of values: data sets, range queries, exact sums, and the part of errors by truncation.

Truncation is what clipping at theta removes from a range, clipped truth - truth (ToPS section 3.1 and Eq. 1).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from fastdp import Key, validation
from fastdp.cli.demo_command import DNS_BOUND
from fastdp.data.column import as_floats
from fastdp.data.files import read_numbers
from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp.kinds import Array, Floats, Indices, Json
from fastdp_lab import datasets, queries
from fastdp_lab.datasets import CATALOGUE, TABLE1, catalogue
from fastdp_lab.datasets.synthetic import GROWTH_BOUND
from fastdp_lab.queries import MAX_RANGES, random_ranges
from fastdp_lab.sweeps import study
from fastdp_lab.sweeps.points import SPATIAL_GENERATORS
from fastdp_lab.sweeps.study import KINDS, Count, DataSet, Maker, Name, Positive, Row, Table, check_keys, placed, read
from fastdp_lab.sweeps.systems import RunResult, Setting
from fastdp_lab.sweeps.systems import value_systems as systems

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Mechanism, Specification

ERRORS = ("mse", "mae", "mmse", "mmae", "relative_error")
METRICS, KEYS = (*ERRORS, "truncation", "coverage"), ("holdout", "max_range", "truth")
#: Relative errors divide at least by this, in units of the input.
FLOOR = 1.0
Longest = Annotated[int, Meta(ge=1, le=2**40)]
#: Keys of the table of each kind of queries, and the usual number of queries.
_QUERIES: dict[str, tuple[tuple[str, ...], int]] = {
    "random_ranges": (("name", "kind", "count", "max_range", "classes", "fixed"), 200),
    "timeline": (("name", "kind", "count"), 120),
    "running_sums": (("name", "kind", "count", "classes"), 200),
}


def claims(table: Table) -> bool:
    """Every table that no other study claims."""
    return True


def _table1_bound(parameters: Table) -> Json:
    stream = validation.choice("stream", parameters.get("stream"), tuple(TABLE1))
    return {"bound": float(TABLE1[stream].bound)}


def _panel_facts(parameters: Table) -> Json:
    """Sums over persons change by one where a person changes."""
    levels, persons = parameters.get("levels", 1), parameters.get("persons", 1)
    if parameters.get("total", False):
        return {"bound": float(persons), "sensitivity": 1.0}
    return {"bound": float(levels), "persons": persons}


#: Generators by their name in a specification; add others here.
GENERATORS: dict[str, Maker] = {
    "table1": Maker(datasets.table1, _table1_bound),
    "dns_like_day": Maker(datasets.dns_like_day, lambda parameters: {"bound": float(DNS_BOUND)}),
    "exponential": Maker(datasets.exponential),
    "growing": Maker(datasets.growing, lambda parameters: {"bound": GROWTH_BOUND}),
    "panel": Maker(datasets.panel, _panel_facts),
}
_FIELDS = ("bound", "published", "holdout", "max_range", "overlap", "sensitivity", "w", "persons")


@dataclass(frozen=True, kw_only=True)
class ValueSet(DataSet):
    """A stream of values to publish.

    Registered mechanisms are told ``sensitivity`` and ``w`` (:class:`fastdp_lab.mechanism.Mechanism`); of ``persons``
    values of a step the mean is asked for.
    """

    STUDY: ClassVar[str] = "values"

    bound: Positive
    holdout: Annotated[int, Meta(ge=0)]
    max_range: Longest
    column: Name | None = None
    published: Count | None = None
    overlap: bool = False
    sensitivity: Positive | None = None
    w: Count = 1
    persons: Count = 1

    def __post_init__(self) -> None:
        """Nothing is held out where a step has many persons."""
        if self.persons > 1 and (self.holdout or (self.published or 0) % self.persons):
            raise ParameterError(f"persons = {self.persons}: expected holdout = 0, and whole steps of values")

    def load(self, folder: Path) -> Values:
        """The hold-out and then the published part."""
        values = self._read(folder)
        if self.overlap:  # nothing is kept apart: a short stream may be as long as its hold-out
            values = datasets.extend_by_reflection(values, max(values.size, self.holdout))
        elif values.size <= self.holdout:
            raise DataError(
                f"{self.place}: holdout = {self.holdout}: expected less than the {values.size} values of {self.name}"
            )
        if not np.isfinite(values).all():
            raise DataError(f"{self.place}: {self.name} holds NaN or infinity: expected finite values")
        kept = 0 if self.overlap else self.holdout
        published = values.size - kept if self.published is None else self.published
        whole = datasets.hold_out_and_extend(values, kept, published)
        return Values(self, as_floats(np.concatenate([values[: self.holdout], whole]) if self.overlap else whole))

    def _read(self, folder: Path) -> Floats:
        if self.kind == "generator":
            with placed(self.place):
                return as_floats(GENERATORS[self.source].make(**self.parameters))
        try:
            if self.kind == "download":
                return catalogue.load(self.source, self.column)
            path = folder / self.source
            return as_floats(read_numbers(_packed(path, self.column) if path.suffix == ".npz" else path, self.column))
        except FastDPError as error:
            raise type(error)(f"{self.place}: {error}") from error


def _packed(path: Path, column: str | None) -> Array:
    with np.load(path, allow_pickle=False) as arrays:
        if column not in arrays:
            raise ParameterError(f"column = {column!r}: expected one of the arrays {', '.join(arrays)}")
        return np.asarray(arrays[column])


def read_data_set(table: Table, place: str, name: str, top: Table) -> ValueSet:
    """A data set from its table, lists expanded; ``top`` is the whole specification."""
    known = {"generator": (*GENERATORS, *SPATIAL_GENERATORS), "download": tuple(CATALOGUE)}
    kind, source = study.source_of(table, place, known)
    maker = GENERATORS[source] if kind == "generator" else None
    accepted, own = (maker.accepted, _FIELDS) if maker else ([], ("column", *_FIELDS))
    check_keys(table, place, ("name", *KINDS, *own, *accepted))
    parameters = {key: table[key] for key in accepted if key in table}
    chosen: Json = {"holdout": top.get("holdout", 65_536), "max_range": top.get("max_range", 2**20)}
    if maker:
        with placed(place):
            chosen |= maker.defaults(parameters)
    elif kind == "download" and CATALOGUE[source].bound is not None:
        chosen["bound"] = CATALOGUE[source].bound
    # What a generator takes is not a field too.
    chosen |= {key: table[key] for key in own if key in table and key not in accepted}
    identity = {"name": name, "kind": kind, "source": source, "parameters": parameters, "place": place}
    return read(ValueSet, {**chosen, **identity}, place)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A kind of queries."""

    name: Name = "random_ranges"
    kind: str = "random_ranges"
    count: Annotated[int, Meta(ge=1, le=MAX_RANGES)] = 200
    max_range: Count | None = None
    classes: tuple[Annotated[int, Meta(ge=2)], ...] = ()
    fixed: bool = False

    def __post_init__(self) -> None:
        """Check the order of classes."""
        study.check_different("classes", self.classes, rising=True)

    def check(self, size: int) -> None:
        """Streams of every length can be asked."""

    @property
    def groups(self) -> tuple[str, ...] | None:
        """Labels of all groups, None if they depend on the stream."""
        if self.kind == "timeline" or (self.kind == "running_sums" and not self.classes):
            return None
        classes = pairwise((1, *self.classes, "...")) if self.classes else ()
        return ("all", *(f"[{low}, {high})" for low, high in classes))

    def draw(self, n: int, max_range: int, seed: int) -> tuple[Indices, Indices, list[tuple[str, Any]]]:
        """Ranges [start, stop) of a published part of n values, and labels and indices of groups, none empty."""
        if self.kind == "timeline":
            edges = np.linspace(0, n, min(self.count, n) + 1).astype(np.int64)
            stretches = [(str(k), slice(k, k + 1)) for k in range(edges.size - 1)]
            return edges[:-1], edges[1:], [("all", slice(None)), *stretches]
        groups: list[tuple[str, Any]] = [("all", slice(None))]
        if self.kind == "running_sums":
            stops = np.unique(np.geomspace(1, n, self.count).astype(np.int64))
            starts = np.zeros_like(stops)
            if not self.classes:
                return starts, stops, [(str(stop), slice(k, k + 1)) for k, stop in enumerate(stops)]
        else:
            starts, stops = random_ranges(n, self.count, self.max_range or max_range, seed)
        if self.classes:
            found = np.searchsorted(self.classes, stops - starts, side="right")
            members = [(label, np.flatnonzero(found == k)) for k, label in enumerate((self.groups or ())[1:])]
            groups += [(label, which) for label, which in members if which.size]
        return starts, stops, groups


def read_workload(table: Table, place: str) -> Workload:
    """Queries from their table."""
    kind = validation.choice(f"{place}.kind", table.get("kind", "random_ranges"), tuple(_QUERIES))
    keys, count = _QUERIES[kind]
    check_keys(table, place, keys)
    return read(Workload, {"name": kind, "count": count, **table}, place)


WORKLOADS = (Workload(),)


@dataclass(frozen=True, eq=False)
class Values:
    """A stream, float64[holdout + published], with exact range sums of its published part; safe for threads."""

    data_set: ValueSet
    values: Floats

    @cached_property
    def facts(self) -> Json:
        """Length and digest, for the manifest."""
        return {"values": self.values.size, "sha256": hashlib.sha256(self.values.data).hexdigest()[:32]}

    @property
    def size(self) -> int:
        """Length of the published part."""
        return self.body.size

    @cached_property
    def whole(self) -> bool:
        """True if all values are whole numbers."""
        return bool((self.values == np.rint(self.values)).all())

    @cached_property
    def body(self) -> Floats:
        """The published part; of many persons the mean of each step."""
        persons, values = self.data_set.persons, self.values[self.data_set.holdout :]
        return values if persons == 1 else values.reshape(-1, persons).mean(axis=1)

    @cached_property
    def prefix(self) -> Floats:
        """Prefix sums of the published part: float64[published + 1]."""
        return np.concatenate([[0.0], np.cumsum(self.body)])

    def removed(self, theta: float, stops: Indices) -> Floats:
        """The sum that clipping at theta removes from the first ``stops`` values: float64[q]."""
        places, excess = self._clipped(min(theta, self.data_set.bound))
        sums: Floats = excess[np.searchsorted(places, stops)]
        return sums

    def clipped(self, theta: float, stops: Indices) -> Floats:
        """Prefix sums of the clipped stream: float64[q]."""
        return self.prefix[stops] - self.removed(theta, stops)

    @cached_property
    def _clipped(self) -> Callable[[float], tuple[Indices, Floats]]:
        """Positions of values that clipping changes, few; and prefix sums of the differences."""

        # Thresholds repeat where candidates are whole numbers.  Values below 0 count: publishers clip them to 0.
        @lru_cache(64)
        def clip(theta: float) -> tuple[Indices, Floats]:
            places = np.flatnonzero((self.body > theta) | (self.body < 0.0))
            changed = self.body[places]
            return places, np.concatenate([[0.0], np.cumsum(changed - np.clip(changed, 0.0, theta))])

        return clip


def measure(
    specification: Specification, stream: Values, workload: Workload, seed: int, result: RunResult
) -> Iterator[Row]:
    """Rows of a run: workload, group, number of queries, and the numbers of :func:`columns`.

    ``truth`` and ``answer`` are means over the group.  Without a theta truncation is NaN, a clipped truth refused.
    """
    starts, stops, groups = workload.draw(stream.size, stream.data_set.max_range, seed)
    truth, answers = stream.prefix[stops] - stream.prefix[starts], result.answer(starts, stops)
    clipped, truncation = specification.truth == "clipped", np.full(truth.size, math.nan)
    if not math.isnan(result.theta):
        truncation = stream.removed(result.theta, starts) - stream.removed(result.theta, stops)
    elif clipped:
        raise ParameterError("truth = 'clipped': expected 'raw', because there is no one threshold to clip at")
    if clipped:
        truth, truncation = truth + truncation, np.zeros(truth.size)
    lengths = (stops - starts).astype(np.float64)
    further: Json = {"mmse": lengths, "mmae": lengths}
    ends = result.interval(starts, stops) if "coverage" in specification.metrics and result.interval else None
    for label, which in groups:
        exact, private = truth[which], answers[which]
        row = [float(exact.mean()), float(private.mean())]
        for name in ERRORS:
            if name in specification.metrics:
                more = [further[name][which]] if name in further else []
                floor = [FLOOR] if name == "relative_error" else []
                row.append(getattr(queries, name)(exact, private, *more, *floor))
        if "truncation" in specification.metrics:
            row += [float(np.mean(truncation[which] ** 2)), float(np.mean(truncation[which]))]
        if "coverage" in specification.metrics:
            row += [math.nan, math.nan] if ends is None else _covered(exact, *(each[which] for each in ends))
        yield workload.name, label, exact.size, row


def _covered(truth: Floats, low: Floats, high: Floats) -> list[float]:
    """The part of intervals that hold, and their mean width."""
    # Ends that differ from an exact truth by rounding alone hold.
    slack = 1e-9 * np.maximum(1.0, np.abs(truth))
    return [float(np.mean((low <= truth + slack) & (truth <= high + slack))), float(np.mean(high - low))]


def columns(chosen: Sequence[str]) -> tuple[str, ...]:
    """Columns of numbers in the results, for the metrics of a specification."""
    removed = ("truncation_mse", "truncation_mean") if "truncation" in chosen else ()
    covered = ("coverage", "width") if "coverage" in chosen else ()
    return ("truth", "answer", *(name for name in ERRORS if name in chosen), *removed, *covered)


def build(specification: Specification, mechanism: Mechanism, stream: Values, epsilon: float) -> Callable[[], Any]:
    """The run of a cell, which the repetitions of a mechanism share."""
    parameters, data_set = mechanism.parameters, stream.data_set
    public = data_set.sensitivity, data_set.w, data_set.persons
    whole = data_set.sensitivity is None or stream.whole
    setting = Setting(data_set.bound, data_set.holdout, stream.size, data_set.max_range, epsilon, *public, whole)
    system = systems()[mechanism.system].build(setting, **parameters)

    def prepare() -> Any:
        run = system(stream.values)

        def run_cell(repetition: int, key: Key, seed: Callable[[Any], int]) -> tuple[float, list[Row]]:
            result = run(key)
            asked = ((each, seed(each)) for each in specification.workloads)
            return result.theta, [
                row for each, own in asked for row in measure(specification, stream, each, own, result)
            ]

        return run_cell

    return prepare
