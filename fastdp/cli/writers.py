"""Where released values go: every kind of output, written as the values come."""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.files.atomic_file import atomic_file, check_target, name_target

Floats = NDArray[np.float64]
Write = Callable[[Floats], None]

HEADING = "value"
ARCHIVED = "values.npy"
STDOUT = "-"
#: Rows of a Parquet row group, so that the file does not depend on the chunks.
ROW_GROUP = 2**20
#: Fast, and nearly as small as the slow levels on text of random digits.
COMPRESSION = 5


@contextmanager
def open_target(path: str, *, force: bool, record: Callable[[], None] | None = None) -> Iterator[Write]:
    """Open an output by its suffix; ``-`` is standard output as CSV.

    Parameters
    ----------
    path : str
        A file's path, or ``-``.
    force : bool
        Whether an existing file may be replaced.
    record : function, optional
        Called behind the last value, before any value can be seen: standard output is held back until then.

    Yields
    ------
    function of float64[n]
        Appends values.  The file appears when the block ends without an exception.

    Raises
    ------
    ParameterError
        If the suffix is unknown or the file cannot or may not be written.
    """
    if path == STDOUT:
        with _standard_output(record) as stream, _csv_file(stream) as write:
            yield write
        return
    kind, target = _kind(path), Path(path)
    with atomic_file(target, overwrite=force) as file:
        with kind(file) as write:
            yield write
        if record is not None:
            check_target(target, overwrite=force)
            record()


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
    """Refuse an output of unknown kind before anything is read."""
    if path != STDOUT:
        _kind(path)


def _kind(path: str) -> Any:
    name = Path(path).name.lower()
    for suffix, kind in KINDS.items():
        if name.endswith(suffix):
            return kind
    raise ParameterError(
        f"output {path}: unknown kind of file; expected .csv, .csv.gz, .npy, .npz, .parquet, or - for standard output"
    )


@contextmanager
def _csv_file(file: IO[bytes] | gzip.GzipFile) -> Iterator[Write]:
    started = False

    def write(values: Floats) -> None:
        nonlocal started
        if not started:
            # Not before there is a value: a failed release leaves standard output empty.
            file.write(f"{HEADING}\n".encode())
            started = True
        file.write(as_lines(values))

    yield write


def as_lines(values: Floats) -> bytes:
    """One number a line, each the shortest text that reads back as the same float.

    Predictions within a block are equal, so runs of equal values are formatted once.
    """
    if not values.size:
        return b""
    # Compared as bits: 0.0 and -0.0 are equal numbers with different texts.
    bits = values.view(np.int64)
    starts = np.concatenate(([0], np.flatnonzero(bits[1:] != bits[:-1]) + 1))
    lengths = np.diff(starts, append=values.size)
    runs = zip(values[starts].tolist(), lengths.tolist(), strict=True)
    return "".join(f"{value!r}\n" * length for value, length in runs).encode()


@contextmanager
def _csv_gz_file(file: BinaryIO) -> Iterator[Write]:
    # Neither the temporary file's name nor the time: equal releases are equal files.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=file, mtime=0) as packed,
        _csv_file(packed) as write,
    ):
        yield write


@contextmanager
def _npy_file(file: BinaryIO) -> Iterator[Write]:
    size = 0

    def header() -> int:
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (size,)})
        return file.tell()

    begin = header()

    def write(values: Floats) -> None:
        nonlocal size
        file.write(np.ascontiguousarray(values, "<f8").data)
        size += values.size

    yield write
    # NumPy pads the header so that a length of up to 21 digits fits in place.
    if header() != begin:
        raise RuntimeError("NumPy's header for the final length does not fit in the place of the first")


@contextmanager
def _npz_file(file: BinaryIO) -> Iterator[Write]:
    # An archive's member cannot be rewritten, so the array is finished first, in a nameless file that
    # vanishes with the process.
    folder = Path(file.name).parent
    with tempfile.TemporaryFile(dir=folder) as spool:
        with _npy_file(spool) as write:
            yield write
        spool.seek(0)
        with (
            zipfile.ZipFile(file, "w") as archive,
            archive.open(zipfile.ZipInfo(ARCHIVED), "w", force_zip64=True) as member,
        ):
            shutil.copyfileobj(spool, member, 2**20)


@contextmanager
def _parquet_file(file: BinaryIO) -> Iterator[Write]:
    from fastdp.files.parquet_reader import import_pyarrow

    arrow = import_pyarrow()
    schema = arrow.schema([(HEADING, arrow.float64())])
    waiting: list[Floats] = []

    with ExitStack() as stack:
        table = stack.enter_context(arrow.parquet.ParquetWriter(file, schema))

        def flush(least: int) -> None:
            while waiting and sum(part.size for part in waiting) >= least:
                joined = np.concatenate(waiting)
                group, rest = joined[:ROW_GROUP], joined[ROW_GROUP:]
                table.write_table(arrow.table([group], schema=schema), row_group_size=ROW_GROUP)
                waiting[:] = [rest] if rest.size else []

        def write(values: Floats) -> None:
            waiting.append(values)
            flush(ROW_GROUP)

        yield write
        flush(1)


KINDS = {
    ".csv": _csv_file,
    ".csv.gz": _csv_gz_file,
    ".npy": _npy_file,
    ".npz": _npz_file,
    ".parquet": _parquet_file,
}
