"""A dry run: number of cells, time and size of a sweep, from a measured sample."""

from __future__ import annotations

import io
import math
import time
from dataclasses import dataclass
from pathlib import Path

from fastdp.files.parquet_reader import import_pyarrow
from fastdp_lab.sweeps.cells import CellRange, Group, Part, count_cells, groups, parts
from fastdp_lab.sweeps.runner import check_data
from fastdp_lab.sweeps.specification import Specification
from fastdp_lab.sweeps.work import run_part

MAX_SAMPLES = 32
#: Repetitions that are timed besides the first, which includes the preparation.
_FURTHER = 3
#: Bytes of a row's labels, compressed, and of a part's header.
_LABEL_BYTES, _PART_BYTES = 12, 12_000


@dataclass(frozen=True)
class Estimate:
    """The cost of a sweep.

    Attributes
    ----------
    cells, rows, parts : int
        How many; rows if no cell fails.
    seconds : float
        Of one worker.
    table_bytes, most_bytes : int
        Upper bounds of the size of the final table, and of all files together while the sweep runs.
    """

    cells: int
    rows: int
    parts: int
    seconds: float
    table_bytes: int
    most_bytes: int


def estimate(specification: Specification, data: str | Path = ".") -> Estimate:
    """Check a sweep and time some of its cells; nothing is written.

    Parameters
    ----------
    specification : Specification
        The sweep.
    data : str or Path
        Where the data sets' files are.

    Raises
    ------
    ParameterError, DataError
        As :func:`fastdp_lab.sweeps.run` would.
    """
    base = Path(data).absolute()
    check_data(specification, base)
    runs = specification.repetitions
    part_count = sum(1 for _ in parts(specification))
    cells = count_cells(specification)
    # Every range of a group is prepared again.
    ranges = min(runs, max(1, math.ceil(part_count * runs / cells)))
    seconds = rows = 0.0
    for group, weight in _sample(specification):
        _time(specification, group, 1, base)
        first, found = _time(specification, group, 1, base)
        several, _ = _time(specification, group, 1 + _FURTHER, base)
        run = max(several - first, 0.0) / _FURTHER
        seconds += weight * (ranges * max(first - run, 0.0) + runs * run)
        rows += weight * runs * found
    per_row = 8 * (len(specification.study.columns(specification.metrics)) + 1) + _LABEL_BYTES
    table = math.ceil(rows * per_row)
    return Estimate(
        cells=cells,
        rows=round(rows),
        parts=part_count,
        seconds=seconds,
        table_bytes=table,
        most_bytes=2 * table + part_count * _PART_BYTES,
    )


def _sample(specification: Specification) -> list[tuple[Group, float]]:
    """For each mechanism on each data set the group of its middle budget, and the number of groups it represents.

    At most ``MAX_SAMPLES``, evenly spaced.
    """
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in groups(specification):
        alike.setdefault((group.data_set.name, group.mechanism.name), []).append(group)
    found = [(same[len(same) // 2], float(len(same))) for same in alike.values()]
    if len(found) <= MAX_SAMPLES:
        return found
    chosen = [found[(2 * k + 1) * len(found) // (2 * MAX_SAMPLES)] for k in range(MAX_SAMPLES)]
    scale = sum(weight for _, weight in found) / sum(weight for _, weight in chosen)
    return [(group, weight * scale) for group, weight in chosen]


def _time(specification: Specification, group: Group, runs: int, data: Path) -> tuple[float, int]:
    """Seconds and rows of some repetitions."""
    begin = time.perf_counter()
    content = run_part(specification, Part((CellRange(group, 0, runs),)), data)
    seconds = time.perf_counter() - begin
    rows: int = import_pyarrow().parquet.ParquetFile(io.BytesIO(content), pre_buffer=False).metadata.num_rows
    return seconds, rows
