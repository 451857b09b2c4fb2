"""What a sweep runs: data sets, mechanisms, budgets, queries and metrics; from TOML or made in Python."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdp import validation
from fastdp.errors import DataError, ParameterError
from fastdp.experiments.grid import expand
from fastdp.experiments.mechanisms import SYSTEMS, Setting
from fastdp.experiments.queries import Workload, read_workload
from fastdp.experiments.sources import DataSet, read_data_set
from fastdp.experiments.tables import TableReader, placed

METRICS = ("mse", "mae", "mmse", "mmae", "relative_error", "parts")
TRUTHS = ("raw", "clipped")
_TOP = (
    *("name", "seed", "repetitions", "epsilons", "holdout", "max_range", "truth", "metrics", "relative_floor"),
    *("part_cells", "datasets", "mechanisms", "workloads"),
)


@dataclass(frozen=True)
class Mechanism:
    """One mechanism with its parameters.

    Attributes
    ----------
    name : str
        The label in results.
    system : str
        A name of :data:`fastdp.experiments.SYSTEMS`.
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
        What is combined: every data set with every mechanism, all asked the same queries.
    epsilons : tuple of float
        Budgets, for mechanisms that have none of their own.
    repetitions : int
        Runs of each combination.
    seed : int
        All noise and all queries follow from it.
    metrics : tuple of str
        Among ``METRICS``; "parts" splits errors into noise, truncation and smoothing.
    truth : "raw" or "clipped"
        What answers are compared with: the values, or the values cut off at theta (ToPS section 5.3).
    relative_floor : float
        Relative errors divide by the truth, but not by less than this; in units of the input.
    part_cells : int or None
        Cells of one part file; by default about a thousandth of all, from 16 to 1,000.
    name : str
        A title.
    """

    datasets: tuple[DataSet, ...]
    mechanisms: tuple[Mechanism, ...]
    epsilons: tuple[float, ...]
    workloads: tuple[Workload, ...] = (Workload("random_ranges"),)
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
        labels: tuple[tuple[str, list[Any]], ...] = (
            ("datasets", [each.name for each in self.datasets]),
            ("workloads", [each.name for each in self.workloads]),
            ("mechanisms", [(m.name, e) for m in self.mechanisms for e in self.budgets(m)]),
        )
        for what, names in labels:
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise ParameterError(f"{what}: expected different names, there are {count} of {name!r}")

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
            Length of the published part, by the data set's name.

        Raises
        ------
        ParameterError
            Naming the key in the specification.
        """
        for mechanism in self.mechanisms:
            budgets = self.budgets(mechanism)
            for data_set in self.datasets:
                for epsilon in sorted({min(budgets), max(budgets)}):
                    setting = self.setting(data_set, published[data_set.name], epsilon)
                    with placed(mechanism.place):
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
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as TOML ({error})") from None
    return from_table(table)


def from_table(table: Mapping[str, Any]) -> Specification:
    """A specification from the tables of a TOML file."""
    top = TableReader(dict(table), "", _TOP)
    holdout, max_range = top.integer("holdout", 65_536), top.integer("max_range", 2**20, 1, 2**40)
    metrics = top.items("metrics", lambda name, value: validation.choice(name, value, METRICS), list(METRICS))
    workloads = [read_workload(each, place) for place, each in top.tables("workloads")] if "workloads" in top else []
    return Specification(
        datasets=tuple(_data_sets(top, holdout, max_range)),
        mechanisms=tuple(_mechanisms(top)),
        epsilons=_epsilons(top),
        workloads=tuple(workloads) or (Workload("random_ranges"),),
        repetitions=top.integer("repetitions", 1, 1, 2**31),
        seed=top.integer("seed", 0),
        metrics=metrics,
        truth=top.choice("truth", TRUTHS, "raw"),
        relative_floor=top.positive("relative_floor", 1.0),
        part_cells=top.integer("part_cells", low=1, high=10**6) if "part_cells" in top else None,
        name=top.text("name", "sweep"),
    )


def _epsilons(reader: TableReader) -> tuple[float, ...]:
    return reader.items("epsilons", validation.positive)


def _labelled(name: str, suffix: str) -> str:
    return f"{name}, {suffix}" if suffix else name


def _data_sets(top: TableReader, holdout: int, max_range: int) -> Iterator[DataSet]:
    for place, table in top.tables("datasets"):
        name = TableReader(table, place).text("name")
        for suffix, chosen in expand(table, place):
            yield read_data_set(chosen, place, _labelled(name, suffix), holdout, max_range)


def _mechanisms(top: TableReader) -> Iterator[Mechanism]:
    for place, table in top.tables("mechanisms"):
        reader = TableReader(table, place)
        system = reader.choice("system", tuple(SYSTEMS))
        own = ("name", "system", "epsilons")
        reader.refuse_others((*own, *SYSTEMS[system].accepted))
        name = reader.text("name", system)
        epsilons = _epsilons(reader) if "epsilons" in reader else None
        for suffix, chosen in expand({key: table[key] for key in table if key not in own}, place):
            yield Mechanism(_labelled(name, suffix), system, chosen, epsilons, place)
