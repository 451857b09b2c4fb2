"""Where released values go: every kind of output, written as the values come."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.state.durable import atomic_file, check_target, name_target

Column = NDArray[Any]
#: Appends rows, of each column as many.
Write = Callable[..., None]
#: What a file says beside its values, once there are any.
Describe = Callable[[], Mapping[str, Any]]

#: Name of the metadata in Parquet's schema and in an npz archive.
METADATA = "fastdp"
#: The columns of every output, as they are called in text and Parquet, and in an archive; and what they hold.
COLUMNS = {"index": ("index", "<i8"), "value": ("values", "<f8"), "revised": ("revised", "<f8")}
STDOUT = "-"
#: Kinds of files that cannot hold metadata, which are then written beside them.
DESCRIBED = (".csv", ".csv.gz", ".npy")
#: Rows of a Parquet row group, so that the file does not depend on the chunks.
ROW_GROUP = 2**20
#: Fast, and nearly as small as the slow levels on text of random digits.
COMPRESSION = 5


@contextmanager
def open_target(
    path: str,
    *,
    force: bool,
    record: Callable[[], None] | None = None,
    columns: tuple[str, ...] = ("value",),
    describe: Describe = dict,
    live: bool = False,
) -> Iterator[Write]:
    """Open an output by its suffix; ``-`` is standard output as CSV.

    Parameters
    ----------
    path : str
        A file's path, or ``-``.
    force : bool
        Whether an existing file may be replaced.
    record : function, optional
        Called behind the last value, before any value can be seen: standard output is held back until then.
    columns : tuple of str
        Of :data:`COLUMNS`.
    describe : function
        Gives the metadata, called behind the first value; none where they are empty.
    live : bool
        Whether standard output shows values as they are written.

    Yields
    ------
    function of as many arrays as there are columns
        Appends values.  The file appears, behind its description, when the block ends without an exception.

    Raises
    ------
    ParameterError
        If the suffix is unknown or the file cannot or may not be written.
    """
    if path == STDOUT:
        with _standard_output(record) as stream, _csv_file(stream, columns, describe) as write:
            yield _flushed(write, stream) if live else write
        return
    kind, target, beside = _kind(path), Path(path), description_of(path)
    check_target(target, overwrite=force)
    replaces = force or (beside is not None and not target.exists() and _is_description(beside))
    if beside is not None:
        check_target(beside, overwrite=replaces)
    described = False
    try:
        with atomic_file(target, overwrite=force) as file:
            with kind(file, columns, describe) as write:
                yield write
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
    """Whether this is what a killed run wrote of values that never appeared."""
    try:
        return "fastdp" in json.loads(path.read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def description_of(path: str) -> Path | None:
    """Where the metadata of an output go that cannot hold them."""
    if path == STDOUT or not path.lower().endswith(DESCRIBED):
        return None
    return Path(path).with_name(f"{Path(path).name}.json")


def _flushed(write: Write, stream: IO[bytes]) -> Write:
    def shown(*columns: Column) -> None:
        write(*columns)
        stream.flush()

    return shown


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
def _csv_file(file: IO[bytes] | gzip.GzipFile, names: tuple[str, ...], _: Describe) -> Iterator[Write]:
    started = False

    def write(*columns: Column) -> None:
        nonlocal started
        if not started:
            # Not before there is a value: a failed release leaves standard output empty.
            file.write(f"{','.join(names)}\n".encode())
            started = True
        file.write(as_lines(columns[0]) if len(columns) == 1 else as_rows(*columns))

    yield write


def as_rows(*columns: Column) -> bytes:
    """One row a line; numbers as :func:`as_lines` writes them."""
    cells = [as_lines(column).decode().splitlines() for column in columns]
    return "".join(f"{','.join(row)}\n" for row in zip(*cells, strict=True)).encode()


def as_lines(values: Column) -> bytes:
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
def _csv_gz_file(file: BinaryIO, names: tuple[str, ...], describe: Describe) -> Iterator[Write]:
    # Neither the temporary file's name nor the time: equal releases are equal files.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=file, mtime=0) as packed,
        _csv_file(packed, names, describe) as write,
    ):
        yield write


@contextmanager
def _npy_file(file: BinaryIO, names: tuple[str, ...], _: Describe) -> Iterator[Write]:
    """One column as a plain array, several as one of records."""
    size = 0
    kind = (
        np.dtype([(name, COLUMNS[name][1]) for name in names]) if len(names) > 1 else np.dtype(COLUMNS[names[0]][1])
    )

    def header() -> int:
        file.seek(0)
        described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(file, described)
        return file.tell()

    begin = header()

    def write(*columns: Column) -> None:
        nonlocal size
        rows = np.empty(columns[0].size, kind)
        for name, column in zip(names, columns, strict=True):
            (rows[name] if len(names) > 1 else rows)[:] = column
        file.write(rows.data if len(names) == 1 else rows.tobytes())
        size += rows.size

    yield write
    # NumPy pads the header so that a length of up to 21 digits fits in place.
    if header() != begin:
        raise RuntimeError("NumPy's header for the final length does not fit in the place of the first")


@contextmanager
def _npz_file(file: BinaryIO, names: tuple[str, ...], describe: Describe) -> Iterator[Write]:
    # An archive's member cannot be rewritten, so each array is finished first, in a nameless file that
    # vanishes with the process.
    with ExitStack() as stack:
        spools = [stack.enter_context(tempfile.TemporaryFile(dir=Path(file.name).parent)) for _ in names]
        with ExitStack() as arrays:
            parts = [
                arrays.enter_context(_npy_file(spool, (name,), describe))
                for spool, name in zip(spools, names, strict=True)
            ]

            def write(*columns: Column) -> None:
                for part, column in zip(parts, columns, strict=True):
                    part(column)

            yield write
        with zipfile.ZipFile(file, "w") as archive:
            for spool, name in zip(spools, names, strict=True):
                spool.seek(0)
                _add_member(archive, COLUMNS[name][0], spool)
            facts = describe()
            if facts:
                # A text of NumPy's own, which is read without pickle.
                text = io.BytesIO()
                np.lib.format.write_array(text, np.array(json.dumps(facts, allow_nan=False)), allow_pickle=False)
                text.seek(0)
                _add_member(archive, METADATA, text)


def _add_member(archive: zipfile.ZipFile, name: str, content: IO[bytes]) -> None:
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        shutil.copyfileobj(content, member, 2**20)


@contextmanager
def _parquet_file(file: BinaryIO, names: tuple[str, ...], describe: Describe) -> Iterator[Write]:
    from fastdp.data.readers import import_pyarrow

    arrow = import_pyarrow()
    fields = [(name, arrow.int64() if COLUMNS[name][1] == "<i8" else arrow.float64()) for name in names]
    waiting: list[tuple[Column, ...]] = []

    with ExitStack() as stack:
        schema = arrow.schema(fields)
        table: Any = None

        def flush(least: int) -> None:
            nonlocal schema, table
            if table is None and (waiting or not least):
                # The first values are there, and with them all that the metadata say.
                facts = describe()
                if facts:
                    schema = schema.with_metadata({METADATA: json.dumps(facts, allow_nan=False)})
                table = stack.enter_context(arrow.parquet.ParquetWriter(file, schema))
            while waiting and sum(part[0].size for part in waiting) >= max(least, 1):
                joined = [np.concatenate(parts) for parts in zip(*waiting, strict=True)]
                group, rest = [each[:ROW_GROUP] for each in joined], tuple(each[ROW_GROUP:] for each in joined)
                table.write_table(arrow.table(group, schema=schema), row_group_size=ROW_GROUP)
                waiting[:] = [rest] if rest[0].size else []

        def write(*columns: Column) -> None:
            waiting.append(columns)
            flush(ROW_GROUP)

        yield write
        flush(0)


KINDS = {
    ".csv": _csv_file,
    ".csv.gz": _csv_gz_file,
    ".npy": _npy_file,
    ".npz": _npz_file,
    ".parquet": _parquet_file,
}
