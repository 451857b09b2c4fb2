"""The one protocol that the sweep's runner, folder, results and pictures see: a study of values, or of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fastdp.randomness.key import Key

if TYPE_CHECKING:
    from fastdp_lab.sweeps.data_source import DataSource
    from fastdp_lab.sweeps.drawing import Table
    from fastdp_lab.sweeps.specification import Mechanism, Specification

#: A workload's name, the group's label, the number of queries, and the numbers of ``Study.columns``.
Row = tuple[str, str, int, list[float]]
#: The threshold (NaN if there is no single one), and the rows of a cell.
Cell = tuple[float, list[Row]]
#: Runs a repetition: its number, its key, and the seed of each workload's random queries.
RunCell = Callable[[int, Key, "Callable[[AnyWorkload], int]"], Cell]


class AnyWorkload(Protocol):
    """A kind of queries, ``[[workloads]]``; ``fixed``: every repetition has the same."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def fixed(self) -> bool: ...  # noqa: D102

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        ...

    def check(self, size: int) -> None:
        """ParameterError if a data set of this size cannot be asked."""
        ...


class Truth(Protocol):
    """A loaded data set and exact answers about it, shared by all cells; safe for threads."""

    @property
    def size(self) -> int:
        """Length of the published part, or number of batches."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """Length and digest, for the manifest."""
        ...

    @property
    def digest(self) -> str:
        """A hash of exactly these data."""
        ...


class Study(Protocol):
    """A kind of sweep: reads its tables, checks and runs its mechanisms, and draws its results.

    Attributes
    ----------
    metrics : tuple of str
        All that can be asked for.
    relative_floor : float
        Relative errors divide at least by this, by default.
    own_keys : tuple of str
        Keys at the top of the specification that other studies do not have.
    systems : mapping
        Systems by name; each has the parameters that it accepts, ``accepted``.
    workloads : tuple
        The queries of a specification without ``[[workloads]]``.
    """

    metrics: tuple[str, ...]
    relative_floor: float
    own_keys: tuple[str, ...]
    systems: Mapping[str, Any]
    workloads: tuple[AnyWorkload, ...]

    def claims(self, table: Mapping[str, Any]) -> bool:
        """Whether a ``[[datasets]]`` table is of this kind."""
        ...

    def read_data_set(self, table: Mapping[str, Any], place: str, name: str, top: Mapping[str, Any]) -> DataSource:
        """A data set from its table, lists expanded; ``top`` is the whole specification, for defaults."""
        ...

    def read_workload(self, table: dict[str, Any], place: str) -> AnyWorkload:
        """Queries from their table."""
        ...

    def check(
        self, specification: Specification, mechanism: Mechanism, data_set: Any, size: int, epsilon: float
    ) -> None:
        """Build a mechanism; ParameterError, beginning with the parameter's name, if it cannot run."""
        ...

    def prepare(self, specification: Specification, truth: Any, mechanism: Mechanism, epsilon: float) -> RunCell:
        """Do what all repetitions of a mechanism on a data set share."""
        ...

    def columns(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """Columns of numbers in the results, for chosen metrics."""
        ...

    def draw(self, table: Table, metrics: Sequence[str], group: str) -> list[tuple[str, Any]]:
        """Names and figures of everything that the results allow; none if there is no such group."""
        ...
