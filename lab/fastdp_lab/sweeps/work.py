"""The task of a worker: all cells of a part, as rows.  A pure function of the specification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from fastdp.errors import DataError, FastDPError, StateError
from fastdp.randomness.key import Key
from fastdp_lab.sweeps.cells import CellRange, Group, Part, query_labels, query_seed
from fastdp_lab.sweeps.data_source import load_truth
from fastdp_lab.sweeps.results import pack_rows
from fastdp_lab.sweeps.specification import Specification
from fastdp_lab.sweeps.study import AnyWorkload, Cell, RunCell, Truth


def run_part(
    specification: Specification, part: Part, folder: Path, digest: str | None = None, ended: Event | None = None
) -> bytes:
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
    ended : Event, optional
        Set when the part is not wanted any more: no further cell is run.

    Raises
    ------
    DataError
        If the data are missing here, or differ from the runner's.
    StateError
        If there is not enough memory, or a file cannot be read.  Any other error of a mechanism does not end the
        part: it is the cell's result.
    CancelledError
        After ``ended``.
    """
    columns = specification.study.columns(specification.metrics)
    rows: list[tuple[Any, ...]] = []
    root = Key.from_seed(specification.seed)
    for cells in part.ranges:
        truth = load_truth(cells.group.data_set, folder)
        if digest is not None and truth.digest != digest:
            name = cells.group.data_set.name
            raise DataError(f"{name}: a worker has other values; expected those of the runner")
        for found in _run_cells(specification, root, truth, cells, len(columns)):
            if ended is not None and ended.is_set():
                raise CancelledError
            rows.append(found)
    return pack_rows(columns, rows)


def _run_cells(
    specification: Specification, root: Key, truth: Truth, cells: CellRange, width: int
) -> Iterator[tuple[Any, ...]]:
    group = cells.group
    try:
        run = specification.study.prepare(specification, truth, group.mechanism, group.epsilon)
    except (MemoryError, OSError) as error:
        raise _of_the_machine(error, group) from error
    except Exception as error:  # every cell of the group fails
        run = _failing(error)
    labels = {each.name: query_labels(each, group.data_set) for each in specification.workloads}
    for repetition in range(cells.first, cells.last):
        place = (group.begin + repetition, group.data_set.name, group.mechanism.name, group.epsilon, repetition)
        seed = partial(_query_seed, root, labels, repetition)
        try:
            theta, found = run(repetition, group.key(root, repetition), seed)
        except (MemoryError, OSError) as error:
            raise _of_the_machine(error, group) from error
        except Exception as error:  # the cell fails, not the sweep
            yield (*place, math.nan, None, None, 0, *[math.nan] * width, _described(error))
            continue
        for workload, label, count, numbers in found:
            yield (*place, theta, workload, label, count, *numbers, None)


def _query_seed(root: Key, labels: dict[str, str], repetition: int, workload: AnyWorkload) -> int:
    return query_seed(root, workload, labels[workload.name], repetition)


def _failing(error: Exception) -> RunCell:
    def run(*_: object) -> Cell:
        raise error

    return run


def _of_the_machine(error: Exception, group: Group) -> StateError:
    """An error that depends on the machine and the moment, and is no result."""
    return StateError(
        f"{group.mechanism.name} on {group.data_set.name}: {type(error).__name__}: {error}; expected enough memory "
        "and readable files, run again to go on"
    )


def _described(error: Exception) -> str:
    """An error's kind, and its text if it is fastdp's own, which quotes no value."""
    kind = type(error).__name__
    if isinstance(error, FastDPError):
        return f"{kind}: {error}"
    return f"{kind} (its text may quote values, so it is not kept)"
