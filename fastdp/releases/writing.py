"""Files of a release: CSV, NumPy and Parquet, with its public facts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp._lazy import imported
from fastdp._version import __version__
from fastdp.errors import ParameterError
from fastdp.kinds import Array, Floats, Json
from fastdp.state.atomic_files import described_file
from fastdp.validation import refusal

if TYPE_CHECKING:
    from fastdp.releases.release import Release

#: Kinds of files, and whether they hold the facts themselves.
SUFFIXES = {".csv": False, ".csv.gz": False, ".npy": False, ".parquet": True}
#: Fast, and nearly as small as the slow levels on text of random digits.
COMPRESSION = 5


def kind_of(path: Path) -> str:
    """Suffix of a path; else ParameterError, as for a missing package."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            if suffix == ".parquet":
                told = (
                    "path: Parquet files need pyarrow, which is not installed: pip install 'fastdp-streams[parquet]'"
                )
                imported("pyarrow.parquet", ParameterError(told, parameter="path"))
            return suffix
    raise refusal("path", str(path), f"a name that ends in {', '.join(SUFFIXES)}")


def description_of(path: Path) -> Path | None:
    """JSON file beside a file that cannot hold facts."""
    return None if SUFFIXES[kind_of(path)] else path.with_name(f"{path.name}.json")


def columns_of(release: Release, names: Sequence[str]) -> dict[str, Floats]:
    """Columns of a file: "value", "revised" or both."""
    listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    if not listed or not names or release.ids is not None or set(names) - {"values", "revised"}:
        raise ParameterError("columns: expected 'values', 'revised' or both, of one stream", parameter="columns")
    columns = {"values": ("value", release), "revised": ("revised", release.revised)}
    return {columns[name][0]: columns[name][1].values for name in names}


def facts_of(release: Release) -> Json:
    """Public facts: version, offset, threshold and guarantee."""
    facts = {"offset": release.offset, "threshold": release.threshold, "guarantee": release.guarantee.to_dict()}
    return {"fastdp": __version__, **facts}


def write(release: Release, path: str | Path, *, columns: Sequence[str], overwrite: bool) -> None:
    """Write columns of a release to a file, with facts."""
    write_columns(columns_of(release, columns), facts_of(release), path, overwrite=overwrite)


def write_columns(numbers: Mapping[str, Any], facts: Json, path: str | Path, *, overwrite: bool) -> None:
    """Write columns with the facts, or the facts first to ``PATH.json``."""
    target = Path(validation.path("path", path))
    kind, beside = kind_of(target), description_of(target)
    with described_file(target, beside, facts, overwrite=validation.flag("overwrite", overwrite)) as file:
        if kind == ".csv":
            write_csv(file, numbers)
        elif kind == ".csv.gz":
            # Neither the temporary file's name nor the time: equal releases are equal files.
            with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=file, mtime=0) as packed:
                write_csv(packed, numbers)
        elif kind == ".npy":
            np.save(file, _as_array(numbers), allow_pickle=False)
        else:
            arrow = import_module("pyarrow")
            told = {"fastdp": json.dumps(facts, allow_nan=False)}
            table = arrow.table(dict(numbers)).replace_schema_metadata(told)
            import_module("pyarrow.parquet").write_table(table, file)


def _as_array(columns: Mapping[str, Floats]) -> Array:
    arrays = list(columns.values())
    if len(arrays) == 1:
        return arrays[0]
    rows = np.empty(arrays[0].size, [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    return rows


def write_csv(file: IO[bytes] | gzip.GzipFile, columns: Mapping[str, Floats], *, heading: bool = True) -> None:
    """Write CSV, each number as the shortest exact text."""
    if heading:
        file.write(f"{','.join(columns)}\n".encode())
    file.write(_lines([as_lines(column) for column in columns.values()]))


def _lines(columns: Sequence[str]) -> bytes:
    if len(columns) == 1:
        return columns[0].encode()
    rows = zip(*(column.splitlines() for column in columns), strict=True)
    return "".join(f"{','.join(row)}\n" for row in rows).encode()


def as_lines(values: Floats) -> str:
    """One number per line; equal neighbours are formatted once."""
    if not values.size:
        return ""
    # Compared as bits: 0.0 and -0.0 are equal numbers with different texts.
    bits = np.ascontiguousarray(values).view(np.int64)
    starts = np.concatenate(([0], np.flatnonzero(bits[1:] != bits[:-1]) + 1))
    lengths = np.diff(starts, append=values.size)
    runs = zip(values[starts].tolist(), lengths.tolist(), strict=True)
    return "".join(f"{value!r}\n" * length for value, length in runs)
