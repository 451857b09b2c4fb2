"""The specification of a sweep, from TOML or from Python; its cells, the parts that they are run in, a part's run.

A cell is a data set, a mechanism with its parameters, a budget and the number of a repetition.  Its key follows from
the sweep's seed and this description only: not from labels, the order of cells, or the worker.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fastdp import Key, validation
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.kinds import Json
from fastdp_lab.mechanism import UNITS, registered
from fastdp_lab.sweeps import points, statistics
from fastdp_lab.sweeps import values as streams
from fastdp_lab.sweeps.study import (
    DataSet,
    Positive,
    Row,
    Table,
    canonical,
    check_different,
    check_keys,
    load_truth,
    placed,
    plain,
    read,
    tables,
    text,
)

#: Studies by the name of their streams; the first that claims a table reads it.
STUDIES: Json = {"points": points, "statistics": statistics, "values": streams}
Budgets = Annotated[tuple[Positive, ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One mechanism with its parameters."""

    name: str
    system: str
    parameters: Json = field(default_factory=dict)
    epsilons: Budgets | None = None
    place: str = field(default="mechanisms", compare=False)

    def __post_init__(self) -> None:
        """Check that budgets differ."""
        check_different("epsilons", self.epsilons or ())


@dataclass(frozen=True, kw_only=True)
class Specification:
    """A sweep, as :func:`from_table` makes it.

    Attributes
    ----------
    datasets, mechanisms, workloads : tuple
        Every data set is combined with every mechanism, all asked the same queries.  All data sets are streams of
        values, of points in space, or samples of which statistics are asked.
    epsilons : tuple of float
        Budgets, for mechanisms without their own.
    repetitions : int
        Runs of each combination.
    seed : int
        Determines all noise and all queries.
    metrics : tuple of str
        By default all of the study; "truncation" is what clipping at theta removes.  For points "mse",
        "mae" and "relative_error".
    truth : "raw" or "clipped"
        What answers are compared with: the values, or the values clipped at theta (ToPS section 5.3), if theta is
        constant.
    part_cells : int or None
        Cells of one part file; by default about a thousandth of all, from 16 to 1,000.
    name : str
        A title.
    """

    datasets: tuple[Any, ...]
    mechanisms: tuple[Any, ...]
    workloads: tuple[Any, ...]
    epsilons: Budgets
    metrics: Annotated[tuple[str, ...], Meta(min_length=1)]
    repetitions: Annotated[int, Meta(ge=1, le=2**31)] = 1
    seed: Annotated[int, Meta(ge=0)] = 0
    truth: str = "raw"
    part_cells: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    name: str = "sweep"

    def __post_init__(self) -> None:
        """Check names that must be known, or different."""
        text("name", self.name)
        check_different("epsilons", self.epsilons)
        check_different("metrics", self.metrics)
        validation.choice("truth", self.truth, ("raw", "clipped"))
        for k, name in enumerate(self.metrics):
            validation.choice(f"metrics[{k}]", name, self.study.METRICS)
        labels = {
            "datasets": [each.name for each in self.datasets],
            "workloads": [each.name for each in self.workloads],
            "mechanisms": [(mechanism.name, epsilon) for mechanism, epsilon in self.pairs()],
        }
        for key, names in labels.items():
            for name, count in ((each, count) for each, count in Counter(names).items() if count > 1):
                raise ParameterError(f"{key}: expected different names, there are {count} of {name!r}")

    @property
    def study(self) -> Any:
        """The module of this kind of streams (``study.py``)."""
        return STUDIES[self.datasets[0].STUDY]

    def pairs(self) -> list[tuple[Mechanism, float]]:
        """Every mechanism at each of its budgets."""
        return [(each, epsilon) for each in self.mechanisms for epsilon in each.epsilons or self.epsilons]

    def check(self, truth: Any) -> None:
        """Build every mechanism for a loaded data set, at the smallest and the largest budget."""
        for mechanism in self.mechanisms:
            budgets = mechanism.epsilons or self.epsilons
            for epsilon in sorted({min(budgets), max(budgets)}):
                try:
                    self.study.build(self, mechanism, truth, epsilon)
                except FastDPError as error:
                    place = _place_of(str(error).split(" ", 1)[0], mechanism, truth.data_set)
                    raise type(error)(f"{place}{error}") from error
        for workload in self.workloads:
            workload.check(truth.size)

    def table(self) -> Json:
        """Everything as plain values, for the manifest."""
        records = {
            key: [plain(each) for each in getattr(self, key)] for key in ("datasets", "mechanisms", "workloads")
        }
        return {**plain(self), **records}


def _place_of(name: str, mechanism: Mechanism, data_set: DataSet) -> str:
    """The path of the parameter that a message begins with, without its name."""
    if name == "epsilon":
        return "epsilons: " if mechanism.epsilons is None else f"{mechanism.place}.epsilons: "
    if name in mechanism.parameters:
        return f"{mechanism.place}."
    if name in ("bound", "holdout", "max_range"):
        return f"{data_set.place}.{name}: {mechanism.place}: "
    for role, part in mechanism.parameters.items():
        if isinstance(part, Mapping) and name in part:
            return f"{mechanism.place}.{role}."
    return f"{mechanism.place}."


def read_specification(path: str | Path) -> Specification:
    """A specification from a TOML file; errors name the file and the key, tables counted from 0."""
    try:
        return from_table(read_toml(path))
    except FastDPError as error:
        raise type(error)(f"{path}: {error}") from error


def read_toml(path: str | Path) -> Json:
    """The tables of a file."""
    try:
        return tomllib.loads(Path(validation.path("path", path)).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"not readable as TOML ({error})") from None
    except RecursionError:
        raise DataError("arrays or tables nested too deep to read; expected a few levels") from None


def from_table(table: Table) -> Specification:
    """A specification from the tables of a TOML file."""
    # NumPy's numbers as Python's, in tables that are made in Python.
    table = msgspec.to_builtins(table, enc_hook=lambda each: each.item())
    datasets = tuple(_data_sets(table))
    kinds = [each.STUDY for each in datasets]
    for k, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ParameterError(f"datasets[{k}] has {kind}: expected {kinds[0]}, as datasets[0] has them")
    study = STUDIES[kinds[0]]
    accepted = [each.name for each in fields(Specification) if each.name != "truth"]
    check_keys(table, "", (*accepted, *study.KEYS), ("mechanisms", "epsilons"))
    workloads = study.WORKLOADS
    if "workloads" in table:
        workloads = tuple(study.read_workload(each, place) for place, each in tables(table, "workloads"))
    found = {"metrics": study.METRICS, **table}
    found |= {"datasets": datasets, "mechanisms": tuple(_mechanisms(table, study)), "workloads": workloads}
    return read(Specification, found, "")


def _data_sets(top: Table) -> Iterator[DataSet]:
    for place, table in tables(top, "datasets"):
        check_keys(table, place, None, ("name",))
        name = text(f"{place}.name", table["name"])
        for suffix, chosen in _expand(table, place):
            study = next(each for each in STUDIES.values() if each.claims(chosen))
            yield study.read_data_set(chosen, place, name + suffix, top)


def _mechanisms(top: Table, study: Any) -> Iterator[Mechanism]:
    own, known = ("name", "system", "epsilons"), study.systems()
    for place, table in tables(top, "mechanisms"):
        if "unit" in table:
            check_keys(table, place, ("unit", "epsilons"))
            yield from _registered(table, place)
            continue
        check_keys(table, place, None, ("system",))
        system = validation.choice(f"{place}.system", table["system"], tuple(known))
        check_keys(table, place, (*own, *known[system].accepted))
        name = text(f"{place}.name", table.get("name", system))
        given = {"system": system, "place": place, **({"epsilons": table["epsilons"]} if "epsilons" in table else {})}
        for suffix, chosen in _expand({key: table[key] for key in table if key not in own}, place):
            yield read(Mechanism, {**given, "name": name + suffix, "parameters": chosen}, place)


def _registered(table: Table, place: str) -> Iterator[Mechanism]:
    """Every registered mechanism of a unit, with its own parameters."""
    unit = validation.choice(f"{place}.unit", table["unit"], tuple(UNITS))
    given = {"place": place, **({"epsilons": table["epsilons"]} if "epsilons" in table else {})}
    for name, each in registered(unit).items():
        yield read(Mechanism, {**given, "name": name, "system": name, "parameters": dict(each.parameters)}, place)


def _expand(table: Table, place: str) -> Iterator[tuple[str, Json]]:
    """Every choice of one entry from each list, the last list changing fastest, and a suffix for its label.

    Suffixes name what distinguishes the choice, ", prune=2, smoother=MovingAverage/window=3"; without lists nothing.
    """
    with placed(place):
        found = list(_choices(table, ""))
    yield from ((", ".join(["", *said]), chosen) for said, chosen in found)


def _choices(table: Table, path: str) -> Iterator[tuple[list[str], Json]]:
    options: list[list[tuple[list[str], Any]]] = []
    for name, value in table.items():
        if isinstance(value, list):
            if not value:
                raise ParameterError(f"{path}{name} = []: expected a value, or a list that is not empty")
            options.append([([f"{path}{name}={_summary(each)}"], each) for each in value])
        else:
            options.append(list(_choices(value, f"{path}{name}.")) if isinstance(value, Mapping) else [([], value)])
    for choice in itertools.product(*options):
        values = (value for _, value in choice)
        yield [each for said, _ in choice for each in said], dict(zip(table, values, strict=True))


def _summary(value: object) -> str:
    """A value in one word: of a part its name, and its other fields with theirs."""
    if not isinstance(value, Mapping):
        return str(value)
    return "/".join(str(each) if name == "part" else f"{name}={each}" for name, each in value.items())


MIN_CELLS, MAX_CELLS, DEFAULT_PARTS = 16, 1000, 1000


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that differ only in their repetition."""

    data_set: DataSet
    mechanism: Mechanism
    epsilon: float

    @cached_property
    def description(self) -> str:
        """Description that the noise depends on, besides seed and repetition; without labels."""
        mechanism = {"system": self.mechanism.system, "parameters": self.mechanism.parameters}
        return canonical([plain(self.data_set, "name"), mechanism, self.epsilon])

    def key(self, root: Key, repetition: int) -> Key:
        """The key of a cell's noise."""
        return root.derive("cell", self.description, repetition)


@dataclass(frozen=True)
class Part:
    """Cells of one file, as groups and repetitions; ``first`` is the number of the first."""

    first: int
    cells: tuple[tuple[Group, int], ...]

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.first:09d}-{self.first + len(self.cells):09d}"


def count_cells(specification: Specification) -> int:
    """Number of cells of a sweep."""
    return len(specification.datasets) * len(specification.pairs()) * specification.repetitions


def parts(specification: Specification) -> Iterator[Part]:
    """All parts, in the order of results: by data set, mechanism, budget, repetition."""
    usual = min(MAX_CELLS, max(MIN_CELLS, count_cells(specification) // DEFAULT_PARTS))
    size, first = specification.part_cells or usual, 0
    # A part has one data set, so that a worker holds few at a time.
    for data_set in specification.datasets:
        groups = [Group(data_set, mechanism, epsilon) for mechanism, epsilon in specification.pairs()]
        cells = itertools.product(groups, range(specification.repetitions))
        while some := tuple(itertools.islice(cells, size)):
            yield Part(first, some)
            first += len(some)


def query_seed(root: Key, workload: Any, data_set: DataSet, repetition: int) -> int:
    """The seed of random queries, the same for all mechanisms."""
    labels = canonical([{**plain(workload), "name": None}, plain(data_set, "name")])
    number = 0 if workload.fixed else repetition
    return int.from_bytes(root.derive("queries", labels, number).reveal()[:8], "big")


def run_part(specification: Specification, part: Part, folder: Path, digest: str | None = None) -> list[Row]:
    """The rows of a part, a pure function of the specification.

    DataError if the data are missing here, or differ from the runner's, by their ``digest``; StateError if there is
    not enough memory, or a file cannot be read.  Any other error of a mechanism is the cell's result.
    """
    data_set = part.cells[0][0].data_set
    truth, root = load_truth(data_set, folder, digest), Key.from_seed(specification.seed)
    if digest not in (None, truth.facts["sha256"]):
        raise DataError(f"{data_set.name}: a worker has other values; expected those of the runner")
    rows: list[Row] = []
    width = len(specification.study.columns(specification.metrics))
    numbers = itertools.count(part.first)
    for group, cells in itertools.groupby(part.cells, key=itemgetter(0)):
        run: Any = None
        for _, repetition in cells:
            label = (next(numbers), data_set.name, group.mechanism.name, group.epsilon, repetition)

            def seed(workload: Any, repetition: int = repetition) -> int:
                return query_seed(root, workload, data_set, repetition)

            try:
                if run is None:
                    run = specification.study.build(specification, group.mechanism, truth, group.epsilon)()
                theta, found = run(repetition, group.key(root, repetition), seed)
            except (MemoryError, OSError) as error:
                # These depend on the machine and the moment, and are no result.
                raise StateError(
                    f"{group.mechanism.name} on {data_set.name}: {type(error).__name__}: {error}; expected enough "
                    "memory and readable files, run again to go on"
                ) from error
            except Exception as error:  # the cell fails, not the sweep
                kind = type(error).__name__
                # fastdp's own errors quote no value.
                own = (
                    f": {error}"
                    if isinstance(error, FastDPError)
                    else " (its text may quote values, so it is not kept)"
                )
                rows.append((*label, math.nan, None, None, 0, *[math.nan] * width, kind + own))
            else:
                rows += [(*label, theta, name, each, count, *row, None) for name, each, count, row in found]
    return rows
