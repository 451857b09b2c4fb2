"""The task that a worker does: all cells of a part, as rows.  A pure function of the specification."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from fastdp.errors import DataError, FastDPError, StateError
from fastdp.experiments import measure, spatial_measure
from fastdp.experiments.boxes import BoxWorkload
from fastdp.experiments.cells import Group, Part, Stretch, query_seed
from fastdp.experiments.mechanisms import SYSTEMS, Outcome
from fastdp.experiments.queries import Queries, Workload
from fastdp.experiments.results import Rows, pack_rows
from fastdp.experiments.scene import AnyScene, Scene, load_scene
from fastdp.experiments.spatial_mechanisms import SPATIAL_SYSTEMS, SpatialSetting
from fastdp.experiments.spatial_scene import SpatialScene
from fastdp.experiments.specification import Specification
from fastdp.randomness.key import Key

#: Workloads of more queries than this are drawn anew for each mechanism.
MAX_KEPT = 1000


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
    StateError
        If memory or a file gives out.  Nothing else that a mechanism raises ends the part: it is the cell's result.
    """
    rows = Rows(row_columns(specification))
    root = Key.from_seed(specification.seed)
    for stretch in part.stretches:
        scene = load_scene(stretch.group.data_set, folder)
        if digest is not None and scene.digest != digest:
            raise DataError(f"{scene.data_set.name}: a worker has other values; expected those of the runner")
        _run_stretch(specification, root, scene, stretch, rows)
    return pack_rows(rows)


def row_columns(specification: Specification) -> tuple[str, ...]:
    """Columns of numbers that a row of a sweep's results has."""
    made = spatial_measure.columns if specification.spatial else measure.columns
    return made(specification.metrics)


#: Theta, and rows: a workload's name, the group's label, how many queries, and the numbers.
Found = tuple[float, list[tuple[str, str, int, list[float]]]]


def _run_stretch(specification: Specification, root: Key, scene: AnyScene, stretch: Stretch, rows: Rows) -> None:
    group = stretch.group
    labels = (group.data_set.name, group.mechanism.name)
    task: Callable[[int], Found]
    try:
        if isinstance(scene, SpatialScene):
            task = _spatial_task(specification, root, scene, group)
        else:
            task = _task(specification, root, scene, group)
        broken = None
    except (MemoryError, OSError) as error:
        raise _of_the_machine(error, labels) from error
    except Exception as error:  # whatever else a mechanism raises is a result
        broken = error
    for repetition in range(stretch.first, stretch.last):
        place = (group.begin + repetition, *labels, group.epsilon, repetition)
        try:
            if broken is not None:
                raise broken
            theta, found = task(repetition)
        except (MemoryError, OSError) as error:
            raise _of_the_machine(error, labels) from error
        except Exception as error:  # the cell fails, not the sweep
            rows.add(*place, math.nan, None, None, 0, None, _said(error))
            continue
        for workload, label, count, numbers in found:
            rows.add(*place, theta, workload, label, count, numbers, None)


def _said(error: Exception) -> str:
    """What the results keep of an error: its kind, and its text where it is ours, which quotes no value."""
    kind = type(error).__name__
    return (
        f"{kind}: {error}"
        if isinstance(error, FastDPError)
        else f"{kind} (its text may quote values, so it is not kept)"
    )


def _of_the_machine(error: Exception, labels: tuple[str, str]) -> StateError:
    """What another machine, or this one at another time, would not say is no result."""
    data_set, mechanism = labels
    return StateError(
        f"{mechanism} on {data_set}: {type(error).__name__}: {error}; expected enough memory and readable files, run "
        "again to go on"
    )


def _task(specification: Specification, root: Key, scene: Scene, group: Group) -> Callable[[int], Found]:
    """What a repetition of a group does, with what all share already done."""
    setting = specification.setting(scene.data_set, scene.size, group.epsilon)
    run = SYSTEMS[group.mechanism.system].prepare(group.mechanism.parameters, setting, scene.values)

    def task(repetition: int) -> Found:
        outcome = run(group.key(root, repetition))
        return outcome.theta, list(_measured(specification, root, scene, outcome, repetition))

    return task


def _spatial_task(
    specification: Specification, root: Key, scene: SpatialScene, group: Group
) -> Callable[[int], Found]:
    system, data_set = SPATIAL_SYSTEMS[group.mechanism.system], scene.data_set
    setting = SpatialSetting(scene.domain, group.epsilon)

    def task(repetition: int) -> Found:
        publisher = system.build(group.mechanism.parameters, setting, group.key(root, repetition))
        asked = [
            (workload, scene.asked(workload, query_seed(root, workload, data_set, repetition)))
            for workload in specification.workloads
            # A map is for pictures, which show one run.
            if isinstance(workload, BoxWorkload) and (workload.kind == "boxes" or repetition == 0)
        ]
        floor = specification.relative_floor
        return math.nan, list(spatial_measure.follow(scene, system, publisher, asked, specification.metrics, floor))

    return task


def _measured(
    specification: Specification, root: Key, scene: Scene, outcome: Outcome, repetition: int
) -> Iterator[tuple[str, str, int, list[float]]]:
    data_set = scene.data_set
    for workload in specification.workloads:
        if isinstance(workload, BoxWorkload):
            continue

        def draw(workload: Workload = workload) -> Queries:
            seed = query_seed(root, workload, data_set, repetition)
            return workload.draw(scene.body.size, data_set.max_range, seed)

        # All mechanisms are asked the same.
        few = workload.count <= MAX_KEPT
        queries = scene.queries.get((root, workload, repetition), draw) if few else draw()
        for label, count, numbers in measure.measure(specification, scene, queries, outcome):
            yield workload.name, label, count, numbers
