"""Results as tidy Parquet: one row for each cell and group of queries.

A sweep's folder holds ``manifest.json`` and ``parts/<hash>.parquet``; when all parts are there they become
``results.parquet``, in the order of cells, whatever the order they were made in.  pandas, polars and DuckDB read the
files without fastdp.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastdp.errors import DataError
from fastdp.files.atomic_file import atomic_file
from fastdp.files.parquet_reader import import_pyarrow

RESULTS, MANIFEST, PARTS = "results.parquet", "manifest.json", "parts"
_LABELS = ("cell", "dataset", "mechanism", "epsilon", "repetition", "threshold", "workload", "group", "queries")
#: Rows that the final file is written in at a time.
ROW_GROUP = 2**16


@dataclass
class Rows:
    """Rows, column by column.

    Attributes
    ----------
    numbers : tuple of str
        The columns of measured numbers.
    """

    numbers: tuple[str, ...]
    labels: list[tuple[Any, ...]] = field(default_factory=list)
    measured: list[list[float]] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)

    def add(
        self,
        cell: int,
        dataset: str,
        mechanism: str,
        epsilon: float,
        repetition: int,
        threshold: float,
        workload: str | None,
        group: str | None,
        queries: int,
        numbers: list[float] | None,
        error: str | None,
    ) -> None:
        """A row; a failed cell has an error, and neither queries nor numbers."""
        self.labels.append((cell, dataset, mechanism, epsilon, repetition, threshold, workload, group, queries))
        self.measured.append([float("nan")] * len(self.numbers) if numbers is None else numbers)
        self.errors.append(error)


def pack_rows(rows: Rows) -> bytes:
    """The rows as a Parquet file; equal rows give equal bytes."""
    arrow = import_pyarrow()
    kinds = {
        "cell": arrow.int64(),
        "repetition": arrow.int32(),
        "queries": arrow.int32(),
        **dict.fromkeys(("epsilon", "threshold", *rows.numbers), arrow.float64()),
        **dict.fromkeys(("dataset", "mechanism", "workload", "group", "error"), arrow.string()),
    }
    by_label = dict(zip(_LABELS, zip(*rows.labels, strict=True), strict=True)) if rows.labels else {}
    measured = np.array(rows.measured, np.float64).reshape(-1, len(rows.numbers))
    table = {name: arrow.array(by_label.get(name, ()), kinds[name]) for name in _LABELS}
    for k, name in enumerate(rows.numbers):
        # NaN stands for what does not exist, as in pandas.
        table[name] = arrow.array(np.ascontiguousarray(measured[:, k]))
    table["error"] = arrow.array(rows.errors, kinds["error"])
    out = io.BytesIO()
    arrow.parquet.write_table(arrow.table(table), out, compression="zstd", write_statistics=False)
    return out.getvalue()


def merge_parts(folder: Path, names: Iterable[str]) -> None:
    """Write ``results.parquet`` from parts in this order, in constant memory; it appears complete or not at all."""
    arrow = import_pyarrow()
    writer = None
    pending: list[Any] = []
    with atomic_file(folder / RESULTS, overwrite=True) as file:
        for name in names:
            pending.append(arrow.parquet.read_table(io.BytesIO((folder / PARTS / f"{name}.parquet").read_bytes())))
            if writer is None:
                writer = arrow.parquet.ParquetWriter(file, pending[0].schema, compression="zstd")
            if sum(each.num_rows for each in pending) >= ROW_GROUP:
                writer.write_table(arrow.concat_tables(pending).combine_chunks())
                pending = []
        if writer is not None:
            if pending:
                writer.write_table(arrow.concat_tables(pending).combine_chunks())
            writer.close()


def write_json(path: Path, value: Any) -> None:
    """Plain values as a file that appears complete or not at all."""
    with atomic_file(path, overwrite=True) as file:
        file.write((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """What a sweep's folder says of itself.

    Raises
    ------
    DataError
        If it is no sweep's folder.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: no {MANIFEST} there; expected the folder of a sweep (fastdp sweep -o)") from None
    except ValueError as error:
        raise DataError(f"{path}: not readable ({error})") from None
    return manifest


def load(folder: str | Path) -> Any:
    """All results of a sweep's folder that there are, in the order of cells.

    Parameters
    ----------
    folder : str or Path
        As given to ``fastdp sweep -o``; the sweep need not be finished.

    Returns
    -------
    pandas.DataFrame, or dict of arrays without pandas
        Columns ``cell`` (number), ``dataset``, ``mechanism``, ``epsilon``, ``repetition``, ``threshold`` (in units
        of the input), ``workload``, ``group`` ("all", a length class, or a stretch's number), ``queries`` (how many),
        ``truth`` and ``answer`` (means over the queries), metrics of the specification, and ``error`` (None unless
        the cell failed, which then has no queries).

    Raises
    ------
    DataError
        If it is no sweep's folder, or holds no results.
    """
    folder = Path(folder)
    read_manifest(folder)
    arrow = import_pyarrow()
    paths = [folder / RESULTS] if (folder / RESULTS).exists() else sorted((folder / PARTS).glob("*.parquet"))
    if not paths:
        raise DataError(f"{folder}: no results yet")
    table = arrow.concat_tables([arrow.parquet.read_table(io.BytesIO(path.read_bytes())) for path in paths])
    # Stable, so that rows of one cell keep their order; cells of one part are in order already.
    order = np.argsort(table.column("cell").to_numpy(), kind="stable")
    table = table.take(order)
    try:
        import pandas  # noqa: F401
    except ImportError:
        return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    return table.to_pandas()
