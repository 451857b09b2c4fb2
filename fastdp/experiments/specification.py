"""What a sweep runs: data sets, mechanisms, budgets, queries and metrics; from TOML or made in Python."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdp import validation
from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp.experiments import spatial_measure
from fastdp.experiments.boxes import BoxWorkload, read_box_workload
from fastdp.experiments.grid import expand
from fastdp.experiments.mechanisms import SYSTEMS, Setting
from fastdp.experiments.queries import Workload, read_workload
from fastdp.experiments.sources import DataSet, read_data_set
from fastdp.experiments.spatial_mechanisms import SPATIAL_SYSTEMS, SpatialSetting
from fastdp.experiments.spatial_sources import SpatialDataSet, is_spatial, read_spatial_data_set
from fastdp.experiments.tables import TableReader
from fastdp.spatial import Box
from fastdp.spatial.queries import FLOOR

METRICS = ("mse", "mae", "mmse", "mmae", "relative_error", "parts")
TRUTHS = ("raw", "clipped")
AnyDataSet = DataSet | SpatialDataSet
AnyWorkload = Workload | BoxWorkload
_TOP = (
    *("name", "seed", "repetitions", "epsilons", "holdout", "max_range", "truth", "metrics", "relative_floor"),
    *("part_cells", "datasets", "mechanisms", "workloads"),
)
#: What is said of streams of values alone.
_NOT_SPATIAL = ("holdout", "max_range", "truth")


@dataclass(frozen=True)
class Mechanism:
    """One mechanism with its parameters.

    Attributes
    ----------
    name : str
        The label in results.
    system : str
        A name of :data:`fastdp.experiments.SYSTEMS`, or of ``SPATIAL_SYSTEMS`` in a spatial sweep.
    parameters : mapping
        Its parameters; parts are mappings with their name at ``part``.
    epsilons : tuple of float or None
        Budgets of its own, in place of the sweep's.
    place : str
        Where it stands in TOML, for messages.
    """

    name: str
    system: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    epsilons: tuple[float, ...] | None = None
    place: str = field(default="mechanisms", compare=False)

    def describe(self) -> dict[str, Any]:
        """What runs, without labels, for keys and hashes."""
        return {"system": self.system, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Specification:
    """A sweep.

    Attributes
    ----------
    datasets, mechanisms, workloads : tuple
        What is combined: every data set with every mechanism, all asked the same queries.  Data sets are streams of
        values, or of points in space (a spatial sweep), not both.
    epsilons : tuple of float
        Budgets, for mechanisms that have none of their own.
    repetitions : int
        Runs of each combination.
    seed : int
        All noise and all queries follow from it.
    metrics : tuple of str
        Among ``METRICS``; "parts" splits errors into noise, truncation and smoothing.  In a spatial sweep "mse",
        "mae" and "relative_error".
    truth : "raw" or "clipped"
        What answers are compared with: the values, or the values cut off at theta (ToPS section 5.3), where that
        does not change on the way.
    relative_floor : float
        Relative errors divide by the truth, but not by less than this; in units of the input, or in a spatial sweep
        a part of all points present.
    part_cells : int or None
        Cells of one part file; by default about a thousandth of all, from 16 to 1,000.
    name : str
        A title.
    """

    datasets: tuple[AnyDataSet, ...]
    mechanisms: tuple[Mechanism, ...]
    epsilons: tuple[float, ...]
    workloads: tuple[AnyWorkload, ...] = (Workload("random_ranges"),)
    repetitions: int = 1
    seed: int = 0
    metrics: tuple[str, ...] = METRICS
    truth: str = "raw"
    relative_floor: float = 1.0
    part_cells: int | None = None
    name: str = "sweep"

    def __post_init__(self) -> None:
        """Labels must tell rows apart; the rest is checked where it is read, and by :meth:`check`."""
        if not self.datasets or not self.mechanisms or not self.workloads:
            raise ParameterError("a sweep needs datasets, mechanisms and workloads: expected at least one of each")
        for k, each in enumerate(self.datasets):
            if isinstance(each, SpatialDataSet) != self.spatial:
                found, wanted = ("values", "points") if self.spatial else ("points", "values")
                raise ParameterError(f"datasets[{k}] has {found}: expected {wanted}, as datasets[0] has them")
        labels: tuple[tuple[str, list[Any]], ...] = (
            ("datasets", [each.name for each in self.datasets]),
            ("workloads", [each.name for each in self.workloads]),
            ("mechanisms", [(m.name, e) for m in self.mechanisms for e in self.budgets(m)]),
        )
        for what, names in labels:
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise ParameterError(f"{what}: expected different names, there are {count} of {name!r}")

    @property
    def spatial(self) -> bool:
        """Whether it runs on points in space."""
        return isinstance(self.datasets[0], SpatialDataSet)

    def budgets(self, mechanism: Mechanism) -> tuple[float, ...]:
        """The epsilons that a mechanism runs at."""
        return self.epsilons if mechanism.epsilons is None else mechanism.epsilons

    def setting(self, data_set: DataSet, published: int, epsilon: float) -> Setting:
        """The public facts of a cell."""
        return Setting(data_set.bound, data_set.holdout, published, data_set.max_range, epsilon)

    def check(self, published: Mapping[str, int]) -> None:
        """Build every mechanism once for every data set, at the least and the largest budget.

        Parameters
        ----------
        published : mapping
            Length of the published part, or number of batches, by the data set's name.

        Raises
        ------
        ParameterError
            Naming the key in the specification.
        """
        for mechanism in self.mechanisms:
            budgets = self.budgets(mechanism)
            for data_set in self.datasets:
                for epsilon in sorted({min(budgets), max(budgets)}):
                    try:
                        self._check(mechanism, data_set, published[data_set.name], epsilon)
                    except FastDPError as error:
                        raise type(error)(f"{_place_of(str(error), mechanism, data_set)}{error}") from error
        for workload in self.workloads:
            for data_set in self.datasets:
                if isinstance(workload, BoxWorkload):
                    workload.check(published[data_set.name])

    def _check(self, mechanism: Mechanism, data_set: AnyDataSet, published: int, epsilon: float) -> None:
        if isinstance(data_set, SpatialDataSet):
            # Of the domain nothing but its dimension decides what can run.
            SPATIAL_SYSTEMS[mechanism.system].check(mechanism.parameters, SpatialSetting(Box(*data_set.box), epsilon))
        else:
            if self.truth == "clipped" and "renewal" in mechanism.parameters:
                raise ParameterError(
                    f"renewal = {validation.shown(mechanism.parameters['renewal'])}: expected none where truth = "
                    "'clipped', because thresholds that change leave no one truth"
                )
            setting = self.setting(data_set, published, epsilon)
            SYSTEMS[mechanism.system].check(mechanism.parameters, setting)

    def table(self) -> dict[str, Any]:
        """Everything as plain values, for the manifest."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            **fields,
            "datasets": [each.table() for each in self.datasets],
            "mechanisms": [
                {"name": each.name, **each.describe(), "epsilons": each.epsilons} for each in self.mechanisms
            ],
            "workloads": [each.table() for each in self.workloads],
        }


def _place_of(message: str, mechanism: Mechanism, data_set: AnyDataSet) -> str:
    """Where what a message begins with stands, in front of it."""
    name = message.split(" ", 1)[0]
    if name == "epsilon":
        return "epsilons: " if mechanism.epsilons is None else f"{mechanism.place}.epsilons: "
    if name in ("bound", "holdout", "max_range") and name not in mechanism.parameters:
        return f"{data_set.place}.{name}: {mechanism.place}: "
    if name not in mechanism.parameters:
        for role, part in mechanism.parameters.items():
            if isinstance(part, Mapping) and name in part:
                return f"{mechanism.place}.{role}."
    return f"{mechanism.place}."


def canonical(value: Any) -> str:
    """The one text of plain values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def read_specification(path: str | Path) -> Specification:
    """A specification from a TOML file.

    Raises
    ------
    ParameterError, DataError
        Naming the file and the key, its value and what is accepted; tables are counted from 0.
    """
    try:
        table = tomllib.loads(Path(validation.path("path", path)).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as TOML ({error})") from None
    except RecursionError:
        raise DataError(f"{path}: arrays or tables nested too deep to read; expected a few levels") from None
    try:
        return from_table(table)
    except FastDPError as error:
        raise type(error)(f"{path}: {error}") from error


def from_table(table: Mapping[str, Any]) -> Specification:
    """A specification from the tables of a TOML file."""
    top = TableReader(dict(table), "", _TOP)
    holdout, max_range = top.integer("holdout", 65_536), top.integer("max_range", 2**20, 1, 2**40)
    datasets = tuple(_data_sets(top, holdout, max_range))
    spatial = isinstance(datasets[0], SpatialDataSet)
    if spatial:
        top.refuse_others([key for key in _TOP if key not in _NOT_SPATIAL])
    measured = spatial_measure.METRICS if spatial else METRICS
    read: Callable[[object, str], AnyWorkload] = read_box_workload if spatial else read_workload
    usual = BoxWorkload() if spatial else Workload("random_ranges")
    return Specification(
        datasets=datasets,
        mechanisms=tuple(_mechanisms(top, tuple(SPATIAL_SYSTEMS if spatial else SYSTEMS))),
        epsilons=_epsilons(top),
        workloads=tuple(read(each, place) for place, each in top.tables("workloads"))
        if "workloads" in top
        else (usual,),
        repetitions=top.integer("repetitions", 1, 1, 2**31),
        seed=top.integer("seed", 0),
        metrics=top.items("metrics", lambda name, value: validation.choice(name, value, measured), measured),
        truth=top.choice("truth", TRUTHS, "raw"),
        relative_floor=top.positive("relative_floor", FLOOR if spatial else 1.0),
        part_cells=top.integer("part_cells", low=1, high=10**6) if "part_cells" in top else None,
        name=top.text("name", "sweep"),
    )


def _epsilons(reader: TableReader) -> tuple[float, ...]:
    return reader.items("epsilons", validation.positive)


def _labelled(name: str, suffix: str) -> str:
    return f"{name}, {suffix}" if suffix else name


def _data_sets(top: TableReader, holdout: int, max_range: int) -> Iterator[AnyDataSet]:
    for place, table in top.tables("datasets"):
        name = TableReader(table, place).text("name")
        for suffix, chosen in expand(table, place):
            if is_spatial(chosen):
                yield read_spatial_data_set(chosen, place, _labelled(name, suffix))
            else:
                yield read_data_set(chosen, place, _labelled(name, suffix), holdout, max_range)


def _mechanisms(top: TableReader, systems: Sequence[str]) -> Iterator[Mechanism]:
    for place, table in top.tables("mechanisms"):
        reader = TableReader(table, place)
        system = reader.choice("system", systems)
        accepted = SPATIAL_SYSTEMS[system].accepted if system in SPATIAL_SYSTEMS else SYSTEMS[system].accepted
        own = ("name", "system", "epsilons")
        reader.refuse_others((*own, *accepted))
        name = reader.text("name", system)
        epsilons = _epsilons(reader) if "epsilons" in reader else None
        for suffix, chosen in expand({key: table[key] for key in table if key not in own}, place):
            yield Mechanism(_labelled(name, suffix), system, chosen, epsilons, place)
