"""The study of streams of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.randomness.key import Key
from fastdp_lab.sweeps.study import AnyWorkload, Cell, RunCell
from fastdp_lab.sweeps.values import figures, measure
from fastdp_lab.sweeps.values.data_set import DataSet, read_data_set
from fastdp_lab.sweeps.values.mechanisms import SYSTEMS
from fastdp_lab.sweeps.values.queries import Workload, read_workload
from fastdp_lab.sweeps.values.truth import ValueTruth

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Mechanism, Specification


class ValueStudy:
    """Implements :class:`fastdp_lab.sweeps.study.Study` for :class:`DataSet`."""

    metrics: tuple[str, ...] = (*measure.METRICS, "parts")
    relative_floor = 1.0
    own_keys: tuple[str, ...] = ("holdout", "max_range", "truth")
    systems: Mapping[str, Any] = SYSTEMS
    read_workload = staticmethod(read_workload)
    columns = staticmethod(measure.columns)
    draw = staticmethod(figures.draw)
    workloads: tuple[AnyWorkload, ...] = (Workload("random_ranges"),)

    def claims(self, table: Mapping[str, Any]) -> bool:
        """Every table that no other study claims."""
        return True

    def read_data_set(self, table: Mapping[str, Any], place: str, name: str, top: Mapping[str, Any]) -> DataSet:
        """A stream from its table."""
        holdout = validation.integer("holdout", top.get("holdout", 65_536), 0)
        max_range = validation.integer("max_range", top.get("max_range", 2**20), 1, 2**40)
        return read_data_set(table, place, name, holdout, max_range)

    def check(
        self, specification: Specification, mechanism: Mechanism, data_set: DataSet, size: int, epsilon: float
    ) -> None:
        """Build the mechanism; a clipped truth needs a threshold that does not change."""
        parameters = mechanism.parameters
        if specification.truth == "clipped" and "renewal" in parameters:
            renewal = validation.shown(parameters["renewal"])
            raise ParameterError(
                f"renewal = {renewal}: expected none where truth = 'clipped', because thresholds that change leave "
                "no one truth"
            )
        SYSTEMS[mechanism.system].check(parameters, data_set.setting(size, epsilon))

    def prepare(
        self, specification: Specification, truth: ValueTruth, mechanism: Mechanism, epsilon: float
    ) -> RunCell:
        """Show the hold-out to the mechanism."""
        setting = truth.data_set.setting(truth.size, epsilon)
        run = SYSTEMS[mechanism.system].prepare(mechanism.parameters, setting, truth.values)
        workloads: Any = specification.workloads

        def run_cell(repetition: int, key: Key, seed: Callable[[AnyWorkload], int]) -> Cell:
            result = run(key)
            rows = [
                (workload.name, *row)
                for workload in workloads
                for row in measure.measure(specification, truth, truth.draw(workload, seed(workload)), result)
            ]
            return result.theta, rows

        return run_cell


VALUES = ValueStudy()
