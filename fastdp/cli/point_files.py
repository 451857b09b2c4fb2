"""One file of synthetic points for each batch, each complete or not there."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.files.atomic_file import atomic_file
from fastdp.files.durable import sync_folder

FORMATS = ("csv", "npy", "parquet", "geojson")
_STEM = "batch_"
_FILES = re.compile(rf"{_STEM}\d+\.({'|'.join(FORMATS)})")

Points = NDArray[np.float64]
Names = tuple[str, str]


class PointFolder:
    """A folder of files ``batch_000.csv``, ``batch_001.csv``, ...

    Parameters
    ----------
    path : Path
        Made if it is not there; its parent must be.
    kind : str
        One of ``FORMATS``.
    names : tuple of two str
        Of the columns.
    count : int
        How many files there will be.
    force : bool
        Whether the files of an earlier run may be replaced; any that would be left over are removed.
    written : int
        How many of the first files earlier runs of this very release may have written; those that are there stay.

    Raises
    ------
    ParameterError
        If the path is a file, may not be written, or holds other such files and ``force`` is not set.

    Attributes
    ----------
    name : str
        The folder's.
    """

    def __init__(self, path: Path, kind: str, names: Names, count: int, *, force: bool, written: int = 0) -> None:
        self.name = str(path)
        self._path, self._kind, self._names, self._force = path, kind, names, force
        self._count, self._written = count, written
        self._digits = max(3, len(str(count - 1)))
        if path.exists() and not path.is_dir():
            raise ParameterError(f"output {path}: is a file; expected a folder")
        if not path.parent.is_dir():
            raise ParameterError(f"output {path}: there is no folder {path.parent}")
        path.mkdir(exist_ok=True)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise ParameterError(f"output {path}: no permission to write in it")
        mine = {self.file(number).name for number in range(min(written, count))}
        self._others = sorted(each for each in path.iterdir() if is_batch(each.name) and each.name not in mine)
        if self._others and not force:
            raise ParameterError(
                f"output {path}: holds {self._others[0].name} of an earlier run; expected another folder, or "
                "--force to replace such files"
            )

    def clear(self) -> None:
        """Remove the files of another release."""
        for file in self._others:
            file.unlink()
        if self._others:
            # A power cut must not bring them back beside files of this release.
            sync_folder(self._path)
        self._others = []

    def file(self, number: int) -> Path:
        """The file of a batch."""
        return self._path / f"{_STEM}{number:0{self._digits}}.{self._kind}"

    def holds(self, number: int) -> bool:
        """Whether an earlier run has written a batch's file, which stays."""
        return number < self._written and not self._force and self.file(number).is_file()

    @property
    def complete(self) -> bool:
        """Whether earlier runs have written all files."""
        return all(self.holds(number) for number in range(self._count))

    def write(self, number: int, points: Points) -> None:
        """Write a batch's points, float64[n, 2]."""
        with atomic_file(self.file(number), overwrite=self._force) as out:
            WRITERS[self._kind](out, points, self._names)


def is_batch(name: str) -> bool:
    """Whether a file of this name is one batch of a release."""
    return _FILES.fullmatch(name) is not None


def keep_outside(folder: Path, source: str, state: Path | None) -> None:
    """Refuse an input or a state file that the folder's own files would replace.

    Raises
    ------
    ParameterError
    """
    for what, path in (("input", Path(source)), ("state file", state)):
        if path is not None and is_batch(path.name) and path.parent.resolve() == folder.resolve():
            raise ParameterError(f"{what} {path}: is named like a file of the output; expected another file")


def _write_csv(out: BinaryIO, points: Points, names: Names) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    text.writelines(f"{x!r},{y!r}\n" for x, y in points.tolist())
    out.write(text.getvalue().encode())


def _write_npy(out: BinaryIO, points: Points, names: Names) -> None:
    del names
    # NumPy looks for a real file's number, which an atomic file has; a buffer keeps to the interface.
    buffer = io.BytesIO()
    np.save(buffer, points, allow_pickle=False)
    out.write(buffer.getbuffer())


def _write_parquet(out: BinaryIO, points: Points, names: Names) -> None:
    from fastdp.files.parquet_reader import import_pyarrow

    arrow = import_pyarrow()
    arrow.parquet.write_table(arrow.table(list(points.T), names=list(names)), out)


def _write_geojson(out: BinaryIO, points: Points, names: Names) -> None:
    from fastdp.spatial.export import write_points

    del names
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "points.geojson"
        write_points(draft, points)
        with draft.open("rb") as file:
            shutil.copyfileobj(file, out, 2**20)


WRITERS: dict[str, Callable[[BinaryIO, Points, Names], None]] = {
    "csv": _write_csv,
    "npy": _write_npy,
    "parquet": _write_parquet,
    "geojson": _write_geojson,
}
