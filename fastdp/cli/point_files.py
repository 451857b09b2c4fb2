"""One file of synthetic points for each batch, each complete or not there."""

from __future__ import annotations

import csv
import io
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

    Raises
    ------
    ParameterError
        If the path is a file, or holds such files and ``force`` is not set.
    """

    def __init__(self, path: Path, kind: str, names: Names, count: int, *, force: bool) -> None:
        self._path, self._kind, self._names, self._force = path, kind, names, force
        self._digits = max(3, len(str(count - 1)))
        if path.exists() and not path.is_dir():
            raise ParameterError(f"output {path}: is a file; expected a folder")
        if not path.parent.is_dir():
            raise ParameterError(f"output {path}: there is no folder {path.parent}")
        path.mkdir(exist_ok=True)
        earlier = sorted(file for file in path.iterdir() if _FILES.fullmatch(file.name))
        if earlier and not force:
            raise ParameterError(
                f"output {path}: holds {earlier[0].name} of an earlier run; expected another folder, or --force to "
                "replace such files"
            )
        for file in earlier:
            file.unlink()

    def file(self, number: int) -> Path:
        """The file of a batch."""
        return self._path / f"{_STEM}{number:0{self._digits}}.{self._kind}"

    def write(self, number: int, points: Points) -> None:
        """Write a batch's points, float64[n, 2]."""
        with atomic_file(self.file(number), overwrite=self._force) as out:
            WRITERS[self._kind](out, points, self._names)


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
