"""The study of streams of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fastdp.randomness.key import Key
from fastdp.spatial import Box
from fastdp_lab.queries.boxes import FLOOR
from fastdp_lab.sweeps.points import figures, measure
from fastdp_lab.sweeps.points.data_set import SpatialDataSet, claims, read_data_set
from fastdp_lab.sweeps.points.mechanisms import SPATIAL_SYSTEMS, SpatialSetting
from fastdp_lab.sweeps.points.queries import BoxWorkload, read_workload
from fastdp_lab.sweeps.points.truth import PointTruth
from fastdp_lab.sweeps.study import AnyWorkload, Cell, RunCell

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Mechanism, Specification


class PointStudy:
    """Implements :class:`fastdp_lab.sweeps.study.Study` for :class:`SpatialDataSet`."""

    metrics: tuple[str, ...] = measure.METRICS
    relative_floor = FLOOR
    own_keys: tuple[str, ...] = ()
    systems: Mapping[str, Any] = SPATIAL_SYSTEMS
    claims = staticmethod(claims)
    read_data_set = staticmethod(read_data_set)
    read_workload = staticmethod(read_workload)
    columns = staticmethod(measure.columns)
    draw = staticmethod(figures.draw)
    workloads: tuple[AnyWorkload, ...] = (BoxWorkload(),)

    def check(
        self, specification: Specification, mechanism: Mechanism, data_set: SpatialDataSet, size: int, epsilon: float
    ) -> None:
        """Build the mechanism; of the domain its dimension alone decides what can run."""
        setting = SpatialSetting(Box(*data_set.box), epsilon)
        SPATIAL_SYSTEMS[mechanism.system].check(mechanism.parameters, setting)

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


POINTS = PointStudy()
