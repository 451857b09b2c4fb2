"""Results as tidy Parquet: one row for each cell and group of queries.

A sweep's folder holds ``manifest.json`` and ``parts/<hash>.parquet``; when all parts are there they become
``results.parquet``, in the order of cells, independent of the order they were run in.  pandas, polars and DuckDB read
the files without fastdp.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import DataError
from fastdp.files.atomic_file import atomic_file
from fastdp.files.parquet_reader import import_pyarrow, read_table

RESULTS, MANIFEST, PARTS = "results.parquet", "manifest.json", "parts"
_LABELS = ("cell", "dataset", "mechanism", "epsilon", "repetition", "threshold", "workload", "group", "queries")
#: Rows of a row group of the final file.
ROW_GROUP = 2**16
#: A changed bit is detected when the file is read.
CHECKED: dict[str, Any] = {"write_page_checksum": True}


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
        **dict.fromkeys(("epsilon", "threshold"), arrow.float64()),
        **dict.fromkeys(("dataset", "mechanism", "workload", "group", "error"), arrow.string()),
    }
    by_label = dict(zip(_LABELS, zip(*rows.labels, strict=True), strict=True)) if rows.labels else {}
    measured = np.array(rows.measured, np.float64).reshape(-1, len(rows.numbers))
    table = {name: arrow.array(by_label.get(name, ()), kinds[name]) for name in _LABELS}
    for k, name in enumerate(rows.numbers):
        table[name] = _numbers(measured[:, k])
    for name in ("epsilon", "threshold"):
        table[name] = _numbers(np.array(by_label.get(name, ()), np.float64))
    table["error"] = arrow.array(rows.errors, kinds["error"])
    out = io.BytesIO()
    arrow.parquet.write_table(arrow.table(table), out, compression="zstd", write_statistics=False, **CHECKED)
    return out.getvalue()


def _numbers(column: NDArray[np.float64]) -> Any:
    """NaN becomes null: databases treat NaN as a number, the largest."""
    return import_pyarrow().array(np.ascontiguousarray(column), mask=np.isnan(column))


class DamagedPartsError(DataError):
    """Part files that cannot be read as Parquet, or have other columns.

    Parameters
    ----------
    names : list of str
        Of the parts.
    """

    def __init__(self, folder: Path, names: list[str]) -> None:
        shown = ", ".join(str(part_path(folder, name)) for name in names[:3])
        super().__init__(f"{shown}{', ...' if len(names) > 3 else ''}: damaged; expected a part of the sweep")
        self.names = names


def part_path(folder: Path, name: str) -> Path:
    """The file of a part."""
    return folder / PARTS / f"{name}.parquet"


def _read_table(path: Path) -> Any:
    """A Parquet file; None if it is damaged."""
    arrow = import_pyarrow()
    content = io.BytesIO(path.read_bytes())
    try:
        return read_table(content, page_checksum_verification=True)
    except (arrow.ArrowException, OSError, ValueError):
        return None


def merge_parts(folder: Path, names: Sequence[str]) -> None:
    """Write ``results.parquet`` from parts in this order, atomically and in constant memory.

    Raises
    ------
    DamagedPartsError
        If some cannot be read.
    """
    with atomic_file(folder / RESULTS, overwrite=True) as file, ExitStack() as stack:
        writer: Any = None
        pending: list[Any] = []
        for table in _tables(folder, names):
            if writer is None:
                writer = stack.enter_context(
                    import_pyarrow().parquet.ParquetWriter(file, table.schema, compression="zstd", **CHECKED)
                )
            pending.append(table)
            if sum(each.num_rows for each in pending) >= ROW_GROUP:
                _write_tables(writer, pending)
                pending = []
        if pending:
            _write_tables(writer, pending)


def _tables(folder: Path, names: Sequence[str]) -> Iterator[Any]:
    """The parts' tables, one after another; the error names all damaged ones."""
    schema: Any = None
    damaged = []
    for name in names:
        table = _read_table(part_path(folder, name))
        schema = table.schema if schema is None and table is not None else schema
        if table is None or table.schema != schema:
            damaged.append(name)
        elif not damaged:
            yield table
    if damaged:
        raise DamagedPartsError(folder, damaged)


def _write_tables(writer: Any, tables: list[Any]) -> None:
    writer.write_table(import_pyarrow().concat_tables(tables).combine_chunks())


def write_json(path: Path, value: Any) -> None:
    """Write plain values atomically."""
    with atomic_file(path, overwrite=True) as file:
        file.write((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a sweep's folder: specification, versions, data and sessions.

    Raises
    ------
    DataError
        If it is not a sweep's folder.
    """
    path = Path(validation.path("folder", folder)) / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: no {MANIFEST} there; expected the folder of a sweep (fastdp sweep -o)") from None
    except ValueError as error:
        raise DataError(f"{path}: not readable ({error})") from None
    return manifest


def load(folder: str | Path) -> Any:
    """The results in a sweep's folder, in the order of cells.

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
        If it is not a sweep's folder, or has no results, or damaged ones.
    """
    manifest, folder = read_manifest(folder), Path(folder)
    arrow = import_pyarrow()
    if (folder / RESULTS).exists():
        table = _read_table(folder / RESULTS)
        if table is None:
            raise DataError(f"{folder / RESULTS}: damaged; remove it and run the sweep again")
    else:
        existing = [name for name in manifest.get("parts", []) if part_path(folder, name).exists()]
        if not existing:
            raise DataError(f"{folder}: no results yet")
        table = arrow.concat_tables(list(_tables(folder, existing)))
    # Stable, so that rows of one cell keep their order; cells of one part are in order already.
    order = np.argsort(table.column("cell").to_numpy(), kind="stable")
    table = table.take(order)
    try:
        import pandas  # noqa: F401
    except ImportError:
        return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    return table.to_pandas(use_threads=False)
