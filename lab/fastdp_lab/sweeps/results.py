"""A sweep's folder: ``manifest.json``, parts while it runs, and ``results.parquet``, one row for each cell and group.

pandas, polars and DuckDB read the files without fastdp.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import IO, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

import fastdp
from fastdp import validation
from fastdp._lazy import imported
from fastdp.errors import DataError, StateError, warn
from fastdp.kinds import Json
from fastdp.state.atomic_files import atomic_file, try_lock
from fastdp_lab.mechanism import GROUP
from fastdp_lab.sweeps.specification import Specification, count_cells, parts
from fastdp_lab.sweeps.study import Row, canonical

RESULTS, MANIFEST, PARTS = "results.parquet", "manifest.json", "parts"
#: Columns before the measured numbers, and the Arrow types of those that are no float64.
_LABELS = ("cell", "dataset", "mechanism", "epsilon", "repetition", "threshold", "workload", "group", "queries")
_KINDS = {"cell": "int64", "repetition": "int32", "queries": "int32"}
_KINDS |= dict.fromkeys(("dataset", "mechanism", "workload", "group", "error"), "string")
#: A changed bit is detected when the file is read.
_WRITE: Json = {"compression": "zstd", "write_page_checksum": True}
_LIBRARIES = ("numpy", "numba", "scipy", "pyarrow", "cryptography")


def schema_of(specification: Specification) -> Any:
    """The columns of results."""
    names = (*_LABELS, *specification.study.columns(specification.metrics), "error")
    return pa.schema([(name, _KINDS.get(name, "float64")) for name in names])


def part_path(folder: Path, name: str) -> Path:
    """The file of a part."""
    return folder / PARTS / f"{name}.parquet"


def write_part(folder: Path, name: str, schema: Any, rows: Sequence[Row]) -> None:
    """Write a part's file, complete or not at all, unsynced: equal rows give equal bytes."""
    columns: Any = zip(*rows, strict=True) if rows else [()] * len(schema)
    # Databases take NaN for a number, the largest: NaN is null, as None is.
    arrays = [pa.array(column, each.type, from_pandas=True) for column, each in zip(columns, schema, strict=True)]
    with atomic_file(part_path(folder, name), overwrite=True, alone=True) as file:
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file, write_statistics=False, **_WRITE)


def read_table(source: Path | BinaryIO, **options: Any) -> pa.Table:
    """Arrow table of a Parquet file, by this thread alone: Arrow's pools as last owners abort a process that ends."""
    with pq.ParquetFile(source, pre_buffer=False, **options) as file:
        return file.read(use_threads=False)


def _read(path: Path) -> Any:
    """A Parquet file; None if it is damaged."""
    content = io.BytesIO(path.read_bytes())
    try:
        return read_table(content, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError):
        return None


def merge_parts(folder: Path, names: Sequence[str], schema: Any) -> None:
    """Write ``results.parquet`` from parts in this order, atomically; if some are damaged, remove only these."""
    tables = {part_path(folder, name): _read(part_path(folder, name)) for name in names}
    damaged = [path for path, table in tables.items() if table is None or table.schema != schema]
    if not damaged:
        with atomic_file(folder / RESULTS, overwrite=True) as file:
            pq.write_table(pa.concat_tables(tables.values()).combine_chunks(), file, row_group_size=2**16, **_WRITE)
        return
    shown = ", ".join(map(str, damaged[:3])) + (", ..." if len(damaged) > 3 else "")
    warn(f"{shown}: damaged; run again", RuntimeWarning)
    for path in damaged:
        path.unlink()


def _write_manifest(folder: Path, manifest: Json) -> None:
    """Write the manifest atomically."""
    with atomic_file(folder / MANIFEST, overwrite=True) as file:
        file.write((json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())


def read_manifest(folder: str | Path) -> Json:
    """The manifest of a sweep's folder: specification, versions, data and sessions."""
    path = Path(validation.path("folder", folder)) / MANIFEST
    try:
        manifest: Json = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: no {MANIFEST} there; expected the folder of a sweep (fastdp bench -o)") from None
    except ValueError as error:
        raise DataError(f"{path}: not readable ({error})") from None
    return manifest


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    """Versions of everything that results depend on."""
    found = {"fastdp": fastdp.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    # Packages that bring mechanisms.
    return found | {each.dist.name: each.dist.version for each in entry_points(group=GROUP) if each.dist is not None}


@contextmanager
def opened(folder: Path, specification: Specification, data: Json) -> Iterator[Json]:
    """The manifest of this sweep in its folder, new or of an earlier run, under the folder's lock.

    DataError if the folder holds another sweep or other files, the data have changed since it began, or an unfinished
    one is of another version of fastdp; StateError if another runner holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    # Before a lock file is created in a folder of other files.
    if others and not (folder / MANIFEST).exists():
        raise DataError(f"{folder} holds {others[0]}: expected an empty folder, or one of this sweep")
    with (folder / ".lock").open("w") as lock:
        _lock(lock, folder)
        manifest = _manifest(folder, specification, data)
        (folder / PARTS).mkdir(exist_ok=True)
        # Of killed runners.
        for each in (*folder.glob(".*.tmp"), *(folder / PARTS).glob(".*.tmp")):
            each.unlink()
        yield manifest


def _lock(lock: IO[str], folder: Path) -> None:
    try:
        taken = try_lock(lock.fileno())
    except OSError as error:
        raise StateError(
            f"{folder}: could not be locked: {error.strerror or error}; expected a file system with locks (flock)"
        ) from error
    if not taken:
        raise StateError(f"{folder}: another sweep writes to this folder; expected it to end first")


def _manifest(folder: Path, specification: Specification, data: Json) -> Json:
    """The manifest that is there, if it is of this sweep; or the first one."""
    table = specification.table()
    digest = hashlib.sha256(canonical(table).encode()).hexdigest()
    if not (folder / MANIFEST).exists():
        manifest: Json = {
            "name": specification.name,
            "seed": specification.seed,
            "specification": table,
            "digest": digest,
        }
        manifest |= {"data": data, "versions": _versions(), "sessions": [], "finished": None}
        manifest |= {"cells": count_cells(specification), "parts": [part.name for part in parts(specification)]}
        machine = {"platform": platform.platform(), "processor": platform.machine(), "cpus": os.cpu_count()}
        manifest["machine"] = machine
        _write_manifest(folder, manifest)
        return manifest
    manifest = read_manifest(folder)
    if manifest.get("digest") != digest:
        raise DataError(f"{folder} holds another sweep: expected a new folder, or the specification of that sweep")
    if manifest.get("data") != data:
        raise DataError(f"{folder}: the data sets have changed since the sweep began; expected a new folder")
    began = manifest["versions"]["fastdp"]
    if began != fastdp.__version__ and not (folder / RESULTS).exists():
        raise DataError(
            f"{folder} was begun by fastdp {began}, this is {fastdp.__version__}, whose numbers may differ; "
            "expected that version, or a new folder"
        )
    return manifest


@contextmanager
def session(folder: Path, manifest: Json, facts: Json) -> Iterator[None]:
    """A record of who runs what, and how long: a killed session has no ``seconds``."""
    record, begin = {**facts, "started": _now(), "versions": _versions(), "seconds": None}, time.perf_counter()
    manifest["sessions"].append(record)
    _write_manifest(folder, manifest)
    yield
    record["seconds"] = round(time.perf_counter() - begin, 3)
    _write_manifest(folder, manifest)


def finish(folder: Path, manifest: Json) -> None:
    """Remove the parts, which the final table contains; may be repeated."""
    if manifest["finished"] is None:
        manifest["finished"] = _now()
        _write_manifest(folder, manifest)
    for each in (folder / PARTS).iterdir():
        each.unlink()


def load(folder: str | Path) -> Any:
    """The results in a sweep's folder, finished or not, in the order of cells: a pandas.DataFrame.

    Columns are ``cell`` (number), ``dataset``, ``mechanism``, ``epsilon``, ``repetition``, ``threshold`` (in units of
    the input), ``workload``, ``group`` ("all", a length class, or a stretch's number), ``queries`` (how many),
    ``truth`` and ``answer`` (means over the queries), metrics, and ``error`` (None unless the cell failed, which then
    has no queries).
    """
    imported("pandas", StateError("results need pandas, which is not installed: pip install 'fastdp-streams[lab]'"))
    manifest, folder = read_manifest(folder), Path(folder)
    paths = [folder / RESULTS]
    if not paths[0].exists():
        paths = [path for name in manifest.get("parts", []) if (path := part_path(folder, name)).exists()]
    if not paths:
        raise DataError(f"{folder}: no results yet")
    tables = []
    for path in paths:
        tables.append(_read(path))
        if tables[-1] is None:
            raise DataError(f"{path}: damaged; remove it and run the sweep again")
    return pa.concat_tables(tables).to_pandas(use_threads=False)
