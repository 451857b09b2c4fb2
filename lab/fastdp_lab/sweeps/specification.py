"""What a sweep runs: data sets, mechanisms, budgets, queries and metrics; from TOML or from Python."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fastdp import validation
from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp_lab.sweeps.data_source import DataSource
from fastdp_lab.sweeps.grid import expand
from fastdp_lab.sweeps.points import POINTS
from fastdp_lab.sweeps.reading import check_entries, check_keys, read, tables, text
from fastdp_lab.sweeps.study import AnyWorkload, Study
from fastdp_lab.sweeps.values import VALUES

#: Studies by the name that their data sets have; the first that claims a table reads it.
STUDIES: dict[str, Study] = {"points": POINTS, "values": VALUES}
TRUTHS = ("raw", "clipped")


@dataclass(frozen=True)
class Mechanism:
    """One mechanism with its parameters.

    Attributes
    ----------
    name : str
        The label in results.
    system : str
        A name of :data:`fastdp_lab.sweeps.SYSTEMS`, or of ``SPATIAL_SYSTEMS`` in a sweep of points.
    parameters : mapping
        Its parameters; parts are mappings with their name at ``part``.
    epsilons : tuple of float or None
        Its own budgets, in place of the sweep's.
    place : str
        Its path in the TOML file, for messages.
    """

    name: str
    system: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    epsilons: tuple[float, ...] | None = None
    place: str = field(default="mechanisms", compare=False)

    def __post_init__(self) -> None:
        """Check the label and the budgets."""
        text("name", self.name)
        if self.epsilons is not None:
            check_entries("epsilons", self.epsilons, validation.positive)

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
        values, or of points in space, not both.
    epsilons : tuple of float
        Budgets, for mechanisms without their own.
    repetitions : int
        Runs of each combination.
    seed : int
        Determines all noise and all queries.
    metrics : tuple of str
        By default all of the study; "parts" splits errors into noise, truncation and smoothing.  For points "mse",
        "mae" and "relative_error".
    truth : "raw" or "clipped"
        What answers are compared with: the values, or the values clipped at theta (ToPS section 5.3), if theta is
        constant.
    relative_floor : float, optional
        Relative errors divide by the truth, but at least by this: in units of the input, or for points a fraction of
        all points present.
    part_cells : int or None
        Cells of one part file; by default about a thousandth of all, from 16 to 1,000.
    name : str
        A title.
    """

    datasets: tuple[DataSource, ...]
    mechanisms: tuple[Mechanism, ...]
    epsilons: tuple[float, ...]
    workloads: tuple[AnyWorkload, ...] = VALUES.workloads
    repetitions: int = 1
    seed: int = 0
    metrics: tuple[str, ...] = VALUES.metrics
    truth: str = "raw"
    relative_floor: float = 1.0
    part_cells: int | None = None
    name: str = "sweep"

    def __post_init__(self) -> None:
        """Check everything but the mechanisms' parameters, which :meth:`check` does when the data are known."""
        if not self.datasets or not self.mechanisms or not self.workloads:
            raise ParameterError("a sweep needs datasets, mechanisms and workloads: expected at least one of each")
        text("name", self.name)
        check_entries("epsilons", self.epsilons, validation.positive)
        validation.integer("repetitions", self.repetitions, 1, 2**31)
        validation.integer("seed", self.seed, 0)
        validation.choice("truth", self.truth, TRUTHS)
        validation.positive("relative_floor", self.relative_floor)
        if self.part_cells is not None:
            validation.integer("part_cells", self.part_cells, 1, 10**6)
        for k, each in enumerate(self.datasets):
            if each.study != self.datasets[0].study:
                raise ParameterError(
                    f"datasets[{k}] has {each.study}: expected {self.datasets[0].study}, as datasets[0] has them"
                )
        check_entries("metrics", self.metrics, lambda name, each: validation.choice(name, each, self.study.metrics))
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
    def study(self) -> Study:
        """What reads, runs and draws sweeps of this kind."""
        return STUDIES[self.datasets[0].study]

    def budgets(self, mechanism: Mechanism) -> tuple[float, ...]:
        """The epsilons that a mechanism runs at."""
        return self.epsilons if mechanism.epsilons is None else mechanism.epsilons

    def check(self, sizes: Mapping[str, int]) -> None:
        """Build every mechanism for every data set, at the smallest and the largest budget.

        Parameters
        ----------
        sizes : mapping
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
                        self.study.check(self, mechanism, data_set, sizes[data_set.name], epsilon)
                    except FastDPError as error:
                        raise type(error)(f"{_place_of(str(error), mechanism, data_set)}{error}") from error
        for workload in self.workloads:
            for data_set in self.datasets:
                workload.check(sizes[data_set.name])

    def table(self) -> dict[str, Any]:
        """Everything as plain values, for the manifest."""
        return {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "datasets": [each.table() for each in self.datasets],
            "mechanisms": [
                {"name": each.name, **each.describe(), "epsilons": each.epsilons} for each in self.mechanisms
            ],
            "workloads": [each.table() for each in self.workloads],
        }


def _place_of(message: str, mechanism: Mechanism, data_set: Any) -> str:
    """The path of the parameter that a message begins with, without its name."""
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
    datasets = tuple(_data_sets(table))
    study = STUDIES[datasets[0].study]
    accepted = [*(each.name for each in fields(Specification) if each.name != "truth"), *study.own_keys]
    check_keys(table, "", accepted, ("mechanisms", "epsilons"))
    rest = {key: value for key, value in table.items() if key not in ("datasets", "mechanisms", "workloads")}
    for key in ("holdout", "max_range"):
        rest.pop(key, None)
    return read(
        Specification,
        {"metrics": study.metrics, "relative_floor": study.relative_floor, **rest},
        "",
        datasets=datasets,
        mechanisms=tuple(_mechanisms(table, study.systems)),
        workloads=tuple(study.read_workload(each, place) for place, each in tables(table, "workloads"))
        if "workloads" in table
        else study.workloads,
    )


def _labelled(name: str, suffix: str) -> str:
    return f"{name}, {suffix}" if suffix else name


def _data_sets(top: Mapping[str, Any]) -> Iterator[DataSource]:
    for place, table in tables(top, "datasets"):
        check_keys(table, place, tuple(table), ("name",))
        name = text(f"{place}.name", table["name"])
        for suffix, chosen in expand(table, place):
            study = next((each for each in STUDIES.values() if each.claims(chosen)), VALUES)
            yield study.read_data_set(chosen, place, _labelled(name, suffix), top)


def _mechanisms(top: Mapping[str, Any], systems: Mapping[str, Any]) -> Iterator[Mechanism]:
    own = ("name", "system", "epsilons")
    for place, table in tables(top, "mechanisms"):
        check_keys(table, place, tuple(table), ("system",))
        system = validation.choice(f"{place}.system", table["system"], tuple(systems))
        check_keys(table, place, (*own, *systems[system].accepted))
        name = text(f"{place}.name", table.get("name", system))
        budgets = {"epsilons": table["epsilons"]} if "epsilons" in table else {}
        for suffix, chosen in expand({key: table[key] for key in table if key not in own}, place):
            given: dict[str, Any] = {
                "name": _labelled(name, suffix),
                "system": system,
                "parameters": chosen,
                "place": place,
            }
            yield read(Mechanism, budgets, place, **given)
