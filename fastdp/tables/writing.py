"""Released windows as a file that says what they are: Parquet, CSV with a JSON beside it, or NumPy's npz."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.data.durable import atomic_file
from fastdp.errors import ParameterError
from fastdp.tables.frames import METADATA
from fastdp.tables.sums import WindowSums


def metadata(sums: WindowSums, confidence: float) -> dict[str, Any]:
    """What a file says beside its numbers: public facts, in terms that strict JSON has."""
    return {
        "fastdp": __version__,
        "kind": sums.kind,
        "every": sums.every,
        "time_zone": sums.time_zone,
        "keys": list(sums.keys),
        "clip": None if sums.clip is None else list(sums.clip),
        "confidence": confidence,
        "noise": {
            name: {
                "sigma_steps" if noisy.noise.gaussian else "scale_steps": str(noisy.noise.scale),
                "resolution": noisy.resolution,
            }
            for name, noisy in sums.columns.items()
        },
        "clipped_rows": sums.clipped_rows,
        "cut_persons": None if sums.kept_persons is None else 1.0 - sums.kept_persons,
        "guarantee": sums.guarantee.to_dict(),
    }


def write(table: Any, facts: Mapping[str, Any], path: Any, *, overwrite: bool) -> None:
    """Write an Arrow table by the path's suffix; see :meth:`fastdp.tables.table.Table.write`."""
    target = Path(validation.path("path", path))
    kind = kind_of(target)
    beside = description_of(target)
    for each in (target, *([] if beside is None else [beside])):
        if each.exists() and not overwrite:
            raise ParameterError(f"path = {str(each)!r}: exists already; expected a new name, or overwrite=True")
    text = json.dumps(facts, allow_nan=False)
    if beside is not None:
        # First: numbers without their description are never there.
        with atomic_file(beside, overwrite=overwrite) as file:
            file.write(json.dumps(facts, allow_nan=False, indent=1).encode() + b"\n")
    with atomic_file(target, overwrite=overwrite) as file:
        kind(table, text, file)


def kind_of(path: Path) -> Callable[[Any, str, BinaryIO], None]:
    """How a path's suffix is written, or ParameterError."""
    name = path.name.lower()
    for suffix, kind in KINDS.items():
        if name.endswith(suffix):
            return kind
    raise ParameterError(f"path = {str(path)!r}: expected a name that ends in {', '.join(KINDS)}")


def description_of(path: Path) -> Path | None:
    """The JSON file beside a file that cannot hold its metadata."""
    return path.with_name(f"{path.name}.json") if path.name.lower().endswith(".csv") else None


def _parquet(table: Any, _text: str, file: BinaryIO) -> None:
    importlib.import_module("pyarrow.parquet").write_table(table, file)


def _csv(table: Any, _text: str, file: BinaryIO) -> None:
    importlib.import_module("pyarrow.csv").write_csv(table, file)


def _npz(table: Any, text: str, file: BinaryIO) -> None:
    # Texts as NumPy's own, so that the archive is read without pickle.
    arrays = {name: _plain(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    # numpy.savez takes names as keywords, and a column may be called "file".
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {**arrays, METADATA: np.array(text)}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _plain(column: Any) -> Any:
    array = column.to_numpy()
    return np.array(column.to_pylist()).astype(str) if array.dtype.kind == "O" else array


KINDS: dict[str, Callable[[Any, str, BinaryIO], None]] = {".parquet": _parquet, ".csv": _csv, ".npz": _npz}
