"""Results as tidy Parquet: one row for each cell and group of queries.

A sweep's folder holds ``manifest.json`` and ``parts/<hash>.parquet``; when all parts are there they become
``results.parquet``, in the order of cells, independent of the order they were run in.  pandas, polars and DuckDB read
the files without fastdp.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fastdp import validation
from fastdp.errors import DataError
from fastdp.files.durable import atomic_file
from fastdp.files.parquet_reader import import_pyarrow, read_table

RESULTS, MANIFEST, PARTS = "results.parquet", "manifest.json", "parts"
#: Columns before the numbers, with their Arrow types.
LABELS = {
    "cell": "int64",
    "dataset": "string",
    "mechanism": "string",
    "epsilon": "float64",
    "repetition": "int32",
    "threshold": "float64",
    "workload": "string",
    "group": "string",
    "queries": "int32",
}
#: Rows of a row group of the final file.
ROW_GROUP = 2**16
#: A changed bit is detected when the file is read.
CHECKED: dict[str, Any] = {"write_page_checksum": True}


def pack_rows(numbers: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    """Rows as a Parquet file; equal rows give equal bytes.

    Parameters
    ----------
    numbers : sequence of str
        The columns of measured numbers.
    rows : sequence of tuple
        ``LABELS``, the numbers, and the error or None.
    """
    arrow = import_pyarrow()
    kinds = {**LABELS, **dict.fromkeys(numbers, "float64"), "error": "string"}
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(kinds)
    table = {name: _column(kind, column) for (name, kind), column in zip(kinds.items(), columns, strict=True)}
    out = io.BytesIO()
    arrow.parquet.write_table(arrow.table(table), out, compression="zstd", write_statistics=False, **CHECKED)
    return out.getvalue()


def _column(kind: str, column: Sequence[Any]) -> Any:
    """An Arrow array; None is null, and so is NaN: databases treat NaN as a number, the largest."""
    arrow = import_pyarrow()
    if kind == "string":
        texts = [b"" if each is None else each.encode() for each in column]
        missing = np.array([each is None for each in column], np.bool_)
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        buffers = [arrow.py_buffer(ends), arrow.py_buffer(b"".join(texts))]
    else:
        values = np.array(column, kind)
        missing = np.isnan(values)
        buffers = [arrow.py_buffer(values)]
    present = arrow.py_buffer(np.packbits(~missing, bitorder="little"))
    # Arrow's own conversion of lists imports pandas, which takes a worker as long as many cells.
    return arrow.Array.from_buffers(arrow.type_for_alias(kind), len(column), [present, *buffers])


class DamagedPartsError(DataError):
    """Part files that cannot be read as Parquet, or have other columns."""

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
