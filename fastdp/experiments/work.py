"""The task that a worker does: all cells of a part, as rows.  A pure function of the specification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastdp.errors import DataError
from fastdp.experiments.cells import Part, Stretch, query_seed
from fastdp.experiments.measure import columns, measure
from fastdp.experiments.mechanisms import SYSTEMS
from fastdp.experiments.queries import Queries, Workload
from fastdp.experiments.results import Rows, pack_rows
from fastdp.experiments.scene import Scene, load_scene
from fastdp.experiments.specification import Specification
from fastdp.randomness.key import Key

#: Workloads of more queries than this are drawn anew for each mechanism.
MOST_KEPT = 1000


def run_part(specification: Specification, part: Part, folder: Path, digest: str | None = None) -> bytes:
    """The Parquet file of a part.

    Parameters
    ----------
    specification : Specification
        The sweep.
    part : Part
        Which cells.
    folder : Path
        Where the data sets' files are.
    digest : str, optional
        Of the part's data set, as the runner has it.

    Raises
    ------
    DataError
        If the data are missing here, or other than the runner's.
    """
    rows = Rows(columns(specification.metrics))
    root = Key.from_seed(specification.seed)
    for stretch in part.stretches:
        scene = load_scene(stretch.group.data_set, folder)
        if digest is not None and scene.digest != digest:
            raise DataError(f"{scene.data_set.name}: a worker has other values; expected those of the runner")
        _run_stretch(specification, root, scene, stretch, rows)
    return pack_rows(rows)


def _run_stretch(specification: Specification, root: Key, scene: Scene, stretch: Stretch, rows: Rows) -> None:
    group = stretch.group
    labels = (group.data_set.name, group.mechanism.name)
    try:
        setting = specification.setting(group.data_set, scene.body.size, group.epsilon)
        run = SYSTEMS[group.mechanism.system].prepare(group.mechanism.parameters, setting, scene.values)
        broken = None
    except Exception as error:  # whatever a mechanism raises is a result
        broken = error
    for repetition in range(stretch.first, stretch.last):
        place = (group.begin + repetition, *labels, group.epsilon, repetition)
        try:
            if broken is not None:
                raise broken
            outcome = run(group.key(root, repetition))
            found = list(_measured(specification, root, scene, outcome, repetition))
        except Exception as error:  # the cell fails, not the sweep
            rows.add(*place, math.nan, None, None, 0, None, f"{type(error).__name__}: {error}")
            continue
        for workload, label, count, numbers in found:
            rows.add(*place, outcome.theta, workload, label, count, numbers, None)


def _measured(
    specification: Specification, root: Key, scene: Scene, outcome: Any, repetition: int
) -> Iterator[tuple[str, str, int, list[float]]]:
    data_set = scene.data_set
    for workload in specification.workloads:

        def draw(workload: Workload = workload) -> Queries:
            seed = query_seed(root, workload, data_set, repetition)
            return workload.draw(scene.body.size, data_set.max_range, seed)

        # All mechanisms are asked the same.
        few = workload.count <= MOST_KEPT
        queries = scene.queries.get((root, workload, repetition), draw) if few else draw()
        for label, count, numbers in measure(specification, scene, queries, outcome):
            yield workload.name, label, count, numbers
