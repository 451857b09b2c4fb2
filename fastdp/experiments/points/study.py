"""The study of streams of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastdp.experiments.points import figures, measure
from fastdp.experiments.points.data_set import SpatialDataSet, claims, read_data_set
from fastdp.experiments.points.mechanisms import SPATIAL_SYSTEMS, SpatialSetting
from fastdp.experiments.points.queries import BoxWorkload, read_workload
from fastdp.experiments.points.truth import PointTruth
from fastdp.experiments.study import AnyWorkload, Cell, RunCell
from fastdp.randomness.key import Key
from fastdp.spatial import Box
from fastdp.spatial.queries import FLOOR

if TYPE_CHECKING:
    from fastdp.experiments.drawing import Table
    from fastdp.experiments.specification import Mechanism, Specification


class PointStudy:
    """Implements :class:`fastdp.experiments.study.Study` for :class:`SpatialDataSet`."""

    metrics: tuple[str, ...] = measure.METRICS
    relative_floor = FLOOR
    own_keys: tuple[str, ...] = ()
    systems: Mapping[str, Any] = SPATIAL_SYSTEMS
    workloads: tuple[AnyWorkload, ...] = (BoxWorkload(),)

    def claims(self, table: Mapping[str, Any]) -> bool:
        """Whether a ``[[datasets]]`` table is one of points."""
        return claims(table)

    def read_data_set(
        self, table: Mapping[str, Any], place: str, name: str, top: Mapping[str, Any]
    ) -> SpatialDataSet:
        """A stream of points from its table."""
        return read_data_set(table, place, name)

    def read_workload(self, table: dict[str, Any], place: str) -> AnyWorkload:
        """Box queries from their table."""
        return read_workload(table, place)

    def check(
        self, specification: Specification, mechanism: Mechanism, data_set: SpatialDataSet, size: int, epsilon: float
    ) -> None:
        """Build the mechanism; of the domain its dimension alone decides what can run."""
        setting = SpatialSetting(Box(*data_set.box), epsilon)
        SPATIAL_SYSTEMS[mechanism.system].check(mechanism.parameters, setting)

    def columns(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """Columns of numbers in the results."""
        return measure.columns(metrics)

    def prepare(
        self, specification: Specification, truth: PointTruth, mechanism: Mechanism, epsilon: float
    ) -> RunCell:
        """Nothing is shared by repetitions but the truth."""
        system, setting = SPATIAL_SYSTEMS[mechanism.system], SpatialSetting(truth.domain, epsilon)
        workloads: Any = specification.workloads

        def run_cell(repetition: int, key: Key, seed: Callable[[AnyWorkload], int]) -> Cell:
            publisher = system.build(mechanism.parameters, setting, key)
            asked = [
                (workload, truth.asked(workload, seed(workload)))
                for workload in workloads
                # A map is for pictures, which show one run.
                if workload.kind == "boxes" or repetition == 0
            ]
            rows = measure.follow(
                truth, publisher, asked, specification.metrics, specification.relative_floor, merges=system.merges
            )
            return math.nan, list(rows)

        return run_cell

    def draw(self, table: Table, metrics: Sequence[str], group: str) -> list[tuple[str, Any]]:
        """Errors over time and against epsilon, totals over time, maps."""
        return figures.draw(table, metrics, group)


POINTS = PointStudy()
