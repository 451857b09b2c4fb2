"""Outputs, complete or absent: files of every kind, and a folder of synthetic points."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from fastdp._lazy import imported
from fastdp.cli.terminal import STANDARD, paths
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Floats, Json
from fastdp.state.atomic_files import atomic_file, check_target, name_target, remove_parts, sync_folder

#: Rows as they come, of each column as many.
Chunks = Iterable[tuple[Array, ...]]
#: Metadata of a file, known once there are values.
Describe = Callable[[], Json]
Kind = Callable[[IO[bytes], tuple[str, ...], Chunks, Describe], None]

#: Name of the metadata in Parquet's schema and in an npz archive.
METADATA = "fastdp"
#: Columns of every output: name in text and Parquet, and in an archive.
COLUMNS = {"value": "values", "revised": "revised"}
FLOAT = np.dtype("<f8")
#: Kinds of files that cannot hold metadata, which are then written beside them.
DESCRIBED = (".csv", ".csv.gz", ".npy")
#: Rows of a Parquet row group, so that the file does not depend on the chunks.
ROW_GROUP = 2**20
#: Fast, and nearly as small as the slow levels on text of random digits.
COMPRESSION = 5


def write_target(
    path: str,
    chunks: Chunks,
    *,
    force: bool,
    record: Callable[[], None] | None = None,
    columns: tuple[str, ...] = ("value",),
    describe: Describe = dict,
    live: bool = False,
) -> None:
    """Write `columns` of :data:`COLUMNS` to an output by its suffix; ``-`` is standard output as CSV.

    The file appears after the last chunk; ``force`` allows replacing one.  ``record`` is called before any value
    is visible: standard output is held back until then, or not, if ``live``.  ``describe``: metadata after the first
    value.
    """
    if path == STANDARD:
        with _standard_output(record) as stream:
            _csv_file(stream, columns, chunks, describe, live=live)
        return
    kind, target, beside = _kind(path), Path(path), description_of(path)
    check_target(target, overwrite=force)
    replaces = force or (beside is not None and not target.exists() and _is_description(beside))
    if beside is not None:
        check_target(beside, overwrite=replaces)
    described = False
    try:
        with atomic_file(target, overwrite=force) as file:
            kind(file, columns, chunks, describe)
            if record is not None:
                check_target(target, overwrite=force)
                record()
            facts = {} if beside is None else describe()
            if beside is not None and facts:
                # Before the values appear, so that these never lack it.
                with atomic_file(beside, overwrite=replaces) as description:
                    description.write(json.dumps(facts, allow_nan=False, indent=1).encode() + b"\n")
                described = True
    except BaseException as error:
        # Nothing has appeared that it describes; another's file may have.
        if described and beside is not None and (isinstance(error, ParameterError) or not target.exists()):
            beside.unlink(missing_ok=True)
        raise


def _is_description(path: Path) -> bool:
    try:
        return "fastdp" in json.loads(path.read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def description_of(path: str) -> Path | None:
    """Metadata file of an output that cannot hold them."""
    if path == STANDARD or not path.lower().endswith(DESCRIBED):
        return None
    return Path(path).with_name(f"{Path(path).name}.json")


@contextmanager
def _standard_output(record: Callable[[], None] | None) -> Iterator[IO[bytes]]:
    stream = sys.stdout.buffer
    try:
        if record is None:
            yield stream
        else:
            # Without a name, so that it vanishes with the process.
            with tempfile.TemporaryFile() as held:
                yield held
                record()
                held.seek(0)
                shutil.copyfileobj(held, stream)
        stream.flush()
    except OSError as error:
        name_target(error, "standard output")
        raise


def check_suffix(path: str) -> None:
    """ParameterError for an output of unknown kind."""
    if path != STANDARD:
        _kind(path)


def _kind(path: str) -> Kind:
    for suffix, kind in KINDS.items():
        if Path(path).name.lower().endswith(suffix):
            return kind
    raise ParameterError(
        f"output {path}: unknown kind of file; expected .csv, .csv.gz, .npy, .npz, .parquet, or - for standard output"
    )


def _csv_file(file: IO[bytes], names: tuple[str, ...], chunks: Chunks, _: Describe, *, live: bool = False) -> None:
    # No heading before there is a value: a failed release leaves standard output empty.
    heading = f"{','.join(names)}\n".encode()
    for columns in chunks:
        file.write(heading + (as_lines(columns[0]) if len(columns) == 1 else as_rows(*columns)))
        heading = b""
        if live:
            file.flush()


def as_rows(*columns: Array) -> bytes:
    """CSV lines of several columns, as :func:`as_lines`."""
    cells = [as_lines(column).decode().splitlines() for column in columns]
    return "".join(f"{','.join(row)}\n" for row in zip(*cells, strict=True)).encode()


def as_lines(values: Array) -> bytes:
    """One number per line, as the shortest text that reads back; equal neighbours are formatted once."""
    if not values.size:
        return b""
    # Compared as bits: 0.0 and -0.0 are equal numbers with different texts.
    bits = values.view(np.int64)
    starts = np.concatenate(([0], np.flatnonzero(bits[1:] != bits[:-1]) + 1))
    lengths = np.diff(starts, append=values.size)
    runs = zip(values[starts].tolist(), lengths.tolist(), strict=True)
    return "".join(f"{value!r}\n" * length for value, length in runs).encode()


def _csv_gz_file(file: IO[bytes], names: tuple[str, ...], chunks: Chunks, describe: Describe) -> None:
    # Neither the temporary file's name nor the time: equal releases are equal files.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=file, mtime=0) as packed:
        _csv_file(cast("IO[bytes]", packed), names, chunks, describe)


def _write_header(file: IO[bytes], kind: np.dtype[Any], size: int) -> None:
    described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(cast("BinaryIO", file), described)


def _npy_file(file: IO[bytes], names: tuple[str, ...], chunks: Chunks, _: Describe) -> None:
    size, single = 0, len(names) == 1
    kind: np.dtype[Any] = FLOAT if single else np.dtype([(name, FLOAT) for name in names])
    _write_header(file, kind, size)
    begin = file.tell()
    for columns in chunks:
        rows = np.empty(columns[0].size, kind)
        for name, column in zip(names, columns, strict=True):
            (rows if single else rows[name])[:] = column
        file.write(rows.data if single else rows.tobytes())
        size += rows.size
    file.seek(0)
    _write_header(file, kind, size)
    # NumPy pads the header so that a length of up to 21 digits fits in place.
    if file.tell() != begin:
        raise RuntimeError("NumPy's header for the final length does not fit in the place of the first")


def _npz_file(file: IO[bytes], names: tuple[str, ...], chunks: Chunks, describe: Describe) -> None:
    """Write an archive; its members cannot be rewritten, so the values are kept until the last has come."""
    listed, arrays = list(chunks), dict[str, Array]()
    for k, name in enumerate(names):
        arrays[COLUMNS[name]] = np.concatenate([np.empty(0), *(columns[k] for columns in listed)])
    if facts := describe():
        # A text of NumPy's own, which is read without pickle.
        arrays[METADATA] = np.array(json.dumps(facts, allow_nan=False))
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            # Without the time: equal releases are equal files.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as packed:
                np.lib.format.write_array(packed, array, allow_pickle=False)


def _parquet_file(file: IO[bytes], names: tuple[str, ...], chunks: Chunks, describe: Describe) -> None:
    arrow = import_pyarrow()
    schema = arrow.schema([(name, arrow.float64()) for name in names])
    with ExitStack() as stack:
        table: Any = None
        for group in _groups(chunks):
            if table is None:
                # The first values are there, and with them all that the metadata say.
                if facts := describe():
                    schema = schema.with_metadata({METADATA: json.dumps(facts, allow_nan=False)})
                table = stack.enter_context(arrow.parquet.ParquetWriter(file, schema))
            table.write_table(arrow.table(group, schema=schema), row_group_size=ROW_GROUP)


def _groups(chunks: Chunks) -> Iterator[list[Array]]:
    waiting: list[tuple[Array, ...]] = []
    for columns in chunks:
        waiting.append(columns)
        while sum(each[0].size for each in waiting) >= ROW_GROUP:
            joined = [np.concatenate(pieces) for pieces in zip(*waiting, strict=True)]
            yield [each[:ROW_GROUP] for each in joined]
            waiting = [tuple(each[ROW_GROUP:] for each in joined)]
    if any(each[0].size for each in waiting):
        yield [np.concatenate(pieces) for pieces in zip(*waiting, strict=True)]


KINDS: dict[str, Kind] = {
    ".csv": _csv_file,
    ".csv.gz": _csv_gz_file,
    ".npy": _npy_file,
    ".npz": _npz_file,
    ".parquet": _parquet_file,
}


def _write_points(kind: str, out: IO[bytes], points: Floats, names: tuple[str, str]) -> None:
    if kind == "npy":
        np.save(cast("BinaryIO", out), points, allow_pickle=False)
    elif kind == "parquet":
        arrow = import_pyarrow()
        arrow.parquet.write_table(arrow.table(list(points.T), names=list(names)), out)
    elif kind == "geojson":
        from fastdp.points.maps import write_points

        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "points.geojson"
            write_points(draft, points)
            out.write(draft.read_bytes())
    else:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([names, *points.tolist()])
        out.write(text.getvalue().encode())


_BATCH = re.compile(r"batch_\d+\.(csv|npy|parquet|geojson)")


class PointFolder:
    """A folder of ``batch_000.csv``, ...; ``force`` allows replacing an earlier run's files.

    The first ``written`` may be from earlier runs of this release.
    """

    def __init__(self, path: Path, kind: str, names: tuple[str, str], *, force: bool, written: int = 0) -> None:
        self.name = str(path)
        self._path, self._kind, self._names, self._force, self._written = path, kind, names, force, written
        if kind == "parquet":
            # Now, when nothing is spent.
            import_pyarrow()
        if path.exists() and not path.is_dir():
            raise ParameterError(f"output {path}: is a file; expected a folder")
        check_target(self.file(0) if path.is_dir() else path, overwrite=True)
        there = sorted(each for each in path.iterdir() if is_batch(each.name)) if path.exists() else []
        for each in there:
            # A link would be written through, a folder cannot be replaced: better before anything is removed.
            if each.is_symlink() or not each.is_file():
                raise ParameterError(
                    f"output {path}: holds {each.name}, which is no plain file; expected it to be moved away, "
                    "or another folder"
                )
        mine = {self.file(number).name for number in range(written)}
        self._others = [each for each in there if each.name not in mine]
        if self._others and not force:
            raise ParameterError(
                f"output {path}: holds {self._others[0].name} of an earlier run; expected another folder, or "
                "--force to replace such files"
            )

    def clear(self) -> None:
        self._path.mkdir(exist_ok=True)
        remove_parts(self._path, "batch_[0-9]*.*")
        for file in self._others:
            file.unlink()
        if self._others:
            # A power cut must not bring them back beside files of this release.
            sync_folder(self._path)
        self._others = []

    def file(self, number: int) -> Path:
        return self._path / f"batch_{number:03}.{self._kind}"

    def write(self, number: int, points: Floats) -> None:
        with atomic_file(self.file(number), overwrite=self._force or number < self._written) as out:
            _write_points(self._kind, out, points, self._names)


def is_batch(name: str) -> bool:
    """True for the name of a batch file."""
    return _BATCH.fullmatch(name) is not None


def keep_outside(folder: Path, options: Mapping[str, object]) -> None:
    """ParameterError if another path is a batch file in `folder`."""
    for name, path in paths(options):
        real = path.resolve()
        if is_batch(real.name) and real.parent == folder.resolve():
            raise ParameterError(f"{name} {path}: is named like a file of the output; expected another file")


def import_pyarrow() -> Any:
    """The module pyarrow; DataError with the install command."""
    told = "Parquet files need pyarrow, which is not installed: pip install 'fastdp-streams[parquet]'"
    imported("pyarrow.parquet", DataError(told))
    return imported("pyarrow", DataError(told))
