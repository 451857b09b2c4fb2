"""Values and events in files, as generators of float64 arrays; in constant memory, but for .npz."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import BadZipFile

import numpy as np

from fastdp._lazy import imported
from fastdp.data.column import as_column, as_floats, kind_of
from fastdp.errors import DataError
from fastdp.kinds import Flags, Floats

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

Chunks = Iterator[Floats]

#: Chooses columns: maps all names to the wanted ones, by kind.
Choose = Callable[[Sequence[str]], Mapping[str, str | None]]
#: The kind of a column of times.
TIME = "time"

TEXT = (".csv", ".csv.gz", ".txt", ".txt.gz")
PARQUET = (".parquet", ".pq")
ARRAYS = (".npy", ".npz")
STDIN = "-"
MAX_LISTED = 30
#: Errors of NumPy and the archive's reader on damaged files; headers are parsed as Python literals.
DAMAGE = (ValueError, EOFError, SyntaxError, TokenError, OverflowError, MemoryError, RuntimeError)


@dataclass(frozen=True)
class ValueSource:
    """An open input: ``chunks`` of float64[n], NaN for missing.

    ``total``, if known, is in ``unit``: "values", or "B" for text, of which ``position`` returns the bytes read.
    """

    name: str
    chunks: Chunks
    total: int | None = None
    unit: str = "values"
    position: Callable[[], int] | None = None


@contextmanager
def open_values(path: str, column: str | None, chunk_size: int, *, live: bool = False) -> Iterator[ValueSource]:
    """Open one column of an input by its suffix; ``-`` is standard input as text.

    ``column``: name or zero-based number, needed if there are several.  With ``live``, lines of standard input are
    returned as they arrive.  DataError if the input is missing, of unknown kind, damaged, or holds anything but
    numbers.
    """
    if path.lower().endswith(ARRAYS):
        with _damage_named(path):
            yield _open_array(path, column, chunk_size)
        return
    with open_table(path, lambda names: {"value": column}, chunk_size, live=live) as source:
        yield replace(source, chunks=(chunk[:, 0] for chunk in source.chunks))


@contextmanager
def open_table(
    path: str, choose: Choose, chunk_size: int, *, ragged: bool = False, live: bool = False
) -> Iterator[ValueSource]:
    """Open some columns of text or Parquet; chunks are float64[n, columns].  Otherwise as :func:`open_values`.

    ``choose`` maps the columns' names (none if the first row holds numbers) to the wanted ones, by kind; timestamps
    of kind ``TIME`` become seconds since 1970.  With ``ragged``, blank lines are skipped and surplus cells allowed.
    """
    from fastdp.data import text_reader

    with _damage_named(path):
        if path == STDIN or path.lower().endswith(TEXT):
            yield from text_reader.open_text(path, choose, chunk_size, ragged=ragged, live=live)
        elif path.lower().endswith(PARQUET):
            yield from open_parquet(path, choose, chunk_size)
        else:
            raise DataError(
                f"{path}: unknown kind of file; expected .csv, .csv.gz, .txt, .txt.gz, .parquet, .npy, .npz (one "
                "column of numbers), or - for standard input"
            )


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    if path != STDIN and not Path(path).is_file():
        raise DataError(f"{path}: is a folder; expected a file" if Path(path).is_dir() else f"{path}: no such file")
    try:
        yield
    except gzip.BadGzipFile:
        raise DataError(f"{path}: not a gzip file, or damaged") from None
    except (BadZipFile, zlib.error, EOFError):
        raise DataError(f"{path}: the file is damaged or incomplete; expected a whole one") from None


def _open_array(path: str, column: str | None, chunk_size: int) -> ValueSource:
    where, fault = path, f"{path}: not a readable {path[-4:].lower()} file"
    # Opened here, because NumPy leaves a damaged archive open.
    with Path(path).open("rb") as file:
        if file.read(2) == b"PK":
            file.seek(0)
            with _loaded(lambda: np.load(file, allow_pickle=False), fault) as archive:
                if not archive.files:
                    raise DataError(f"{path}: holds no array")
                name = archive.files[pick_column(column, archive.files, len(archive.files), path)]
                where, column = f"{path}, array {name!r}", None
                array = _loaded(lambda: archive[name], f"{where}: not readable")
        else:
            array = _loaded(lambda: np.load(path, mmap_mode="r", allow_pickle=False), fault)
    if not isinstance(array, np.ndarray):
        raise DataError(f"{where}: not a NumPy array")
    names, shape = array.dtype.names, array.shape
    width = len(names) if names else (*shape, 1)[1] if shape else 0
    if len(shape) not in (1, 2 - bool(names)) or width == 0:
        raise DataError(f"{where} has shape {shape}: expected one row of numbers, or columns")
    index = pick_column(column, names, width, where)
    cut: Any = names[index] if names else (slice(None), index)[: len(shape)]
    if array[cut].dtype.kind not in "biuf":
        raise DataError(f"{where} holds {kind_of(array[cut].dtype)} entries: expected real numbers")
    again: Any = lambda: array  # noqa: E731
    if isinstance(array, np.memmap):
        # Mapped for each chunk and copied, so that resident memory does not grow with the file.
        order = "C" if array.flags.c_contiguous else "F"
        again = partial(np.memmap, path, array.dtype, "r", array.offset, shape, order)
    chunks = (as_floats(np.array(again()[at : at + chunk_size][cut])) for at in range(0, shape[0], chunk_size))
    return ValueSource(path, chunks, shape[0])


def _loaded(load: Callable[[], Any], fault: str) -> Any:
    try:
        return load()
    except DAMAGE:
        # NumPy's own words would quote the file, and advise to unpickle it, which would be unsafe.
        raise DataError(f"{fault} (damaged, not in NumPy's format, or pickled objects)") from None


def pick_column(column: str | None, names: Sequence[str] | None, width: int, where: str) -> int:
    """Index of the column with this name, else with this number; DataError with a list if there is none."""
    if column is None:
        if width == 1:
            return 0
        raise DataError(f"{where} has {width} columns: expected --column, one of {listed(names, width)}")
    if names is not None and column in names:
        if list(names).count(column) > 1:
            raise DataError(f"column = {column!r}: {where} has several columns of that name; expected a number")
        return list(names).index(column)
    if is_index(column) and int(column) < width:
        return int(column)
    raise DataError(f"column = {column!r}: {where} has no such column; expected one of {listed(names, width)}")


def is_index(column: str) -> bool:
    """True if `column` is a zero-based number."""
    return column.isascii() and column.isdigit()


def listed(names: Sequence[str] | None, width: int) -> str:
    """Text that lists the columns of a file, for a message."""
    shown = range(min(width, MAX_LISTED))
    # A row with an empty cell may be one of data.
    names = None if names is not None and "" in names else names
    told = [str(k) if names is None or not is_name(names[k]) else f"{names[k]!r} ({k})" for k in shown]
    return ", ".join(told) + (", ..." if width > MAX_LISTED else "")


def is_name(cell: str) -> bool:
    """True if a first row's cell may be shown: one like a number may be data."""
    return cell[:1].isalpha() or cell.startswith("_")


# Values from columns of a Parquet file, batch by batch.

#: Bytes of a column read ahead; without it a row group's full column is loaded at once.
BUFFER = 2**20


def import_pyarrow() -> Any:
    """The module pyarrow; DataError with the install command."""
    told = "Parquet files need pyarrow, which is not installed: pip install 'fastdp-streams[parquet]'"
    imported("pyarrow.parquet", DataError(told))
    return imported("pyarrow", DataError(told))


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turn errors of Arrow, which may quote a value, into a DataError that names the file."""
    arrow = import_pyarrow()
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = f" ({told})" if (told := getattr(error, "strerror", None)) else ""
        raise DataError(f"{path}: not a readable Parquet file, or damaged{reason}") from None


def read_table(source: Path | BinaryIO, columns: list[str] | None = None, **options: Any) -> pa.Table:
    """Arrow table of a Parquet file, by this thread alone: Arrow's pools as last owners abort a process that ends."""
    with import_pyarrow().parquet.ParquetFile(source, pre_buffer=False, **options) as file:
        return file.read(columns, use_threads=False)


def open_parquet(path: str, choose: Choose, chunk_size: int) -> Iterator[ValueSource]:
    """Open columns of a Parquet file; nulls become NaN."""
    arrow = import_pyarrow()
    with damage_named(path):
        options = {"buffer_size": BUFFER, "pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
        table = arrow.parquet.ParquetFile(path, **options)
    with table:
        schema = table.schema_arrow
        with damage_named(path):
            names = list(schema.names)
        if not names:
            raise DataError(f"{path}: holds no column")
        chosen = {kind: names[pick_column(c, names, len(names), path)] for kind, c in choose(names).items()}
        for kind, name in chosen.items():
            if names.count(name) > 1:
                raise DataError(f"{path}: several columns are named {name!r}; expected different names")
            arrow_type, types = schema.field(name).type, arrow.types
            fits = [types.is_integer, types.is_floating, types.is_boolean, types.is_null]
            fits += [types.is_timestamp] if kind == TIME else []
            if not any(fits_type(arrow_type) for fits_type in fits):
                wanted = "real numbers or moments" if kind == TIME else "real numbers"
                raise DataError(f"{path}, column {name!r}: holds {kind_of(arrow_type)} entries; expected {wanted}")
        yield ValueSource(path, _batches(table, list(chosen.values()), chunk_size, path), table.metadata.num_rows)


def _batches(table: ParquetFile, names: list[str], chunk_size: int, path: str) -> Chunks:
    batches = table.iter_batches(batch_size=chunk_size, columns=list(dict.fromkeys(names)), use_threads=False)
    while True:
        with damage_named(path):
            batch = next(batches, None)
            if batch is None:
                return
            columns = [_numbers(batch.column(name)) for name in names]
        yield np.stack(columns, axis=1)


def _numbers(column: pa.Array) -> Floats:
    if not import_pyarrow().types.is_timestamp(column.type):
        return as_floats(as_column(column))
    moments = np.asarray(column.to_numpy(zero_copy_only=False), "datetime64[us]")
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


# Places, times and kinds of events, from the columns of a text or Parquet file.

#: Names under which a column is found if none is asked for, in any case; the later ones are of public data sets.
DEFAULTS = {
    "x": ("x", "lon", "lng", "longitude", "pickup_longitude", "start_lon"),
    "y": ("y", "lat", "latitude", "pickup_latitude", "start_lat"),
    "time": (
        "time",
        "t",
        "timestamp",
        "date/time",
        "pickup_datetime",
        "tpep_pickup_datetime",
        "lpep_pickup_datetime",
        "trip_pickup_datetime",
        "check-in time",
    ),
    "event": ("event", "move"),
}
CHUNK = 2**16
#: The columns asked for: of each kind a name, a zero-based number, or None for the usual names.
Columns = Mapping[str, str | None]


@dataclass(frozen=True)
class Events:
    """Events of a file: finite ``points``, float64[n, 2], ``times`` in seconds since 1970 or None.

    ``additions``, bool[n]: false for removals; ``names``: of x and y.
    """

    points: Floats
    additions: Flags
    times: Floats | None
    names: tuple[str, str]


def read_events(
    path: str,
    columns: Columns,
    *,
    unnamed: Columns | None = None,
    ragged: bool = False,
    watch: Callable[[ValueSource], Iterable[Floats]] = attrgetter("chunks"),
) -> Events:
    """All events of a .csv, .txt (also .gz) or .parquet file with a heading.

    ``columns``: names for "x", "y", and optionally "time" and "event" (without it additions); ``unnamed``: those
    without a heading; ``watch`` returns the chunks, for example with progress.  DataError names column and row or
    line, never content.
    """
    choice = _Choice(path, columns, unnamed)
    with choice.opened(ragged=ragged) as source:
        parts = list(watch(source))
    table = np.concatenate([np.empty((0, len(choice.chosen))), *parts])
    read = dict(zip(choice.chosen, table.T, strict=True))
    for kind, column in choice.chosen.items():
        _refuse(path, column, ~np.isfinite(read[kind]), "missing, NaN or infinite", "expected finite numbers")
    additions = np.ones(len(table), bool)
    if "event" in read:
        what = "neither 1 (a point appears) nor -1 (it disappears)"
        _refuse(path, choice.chosen["event"], np.abs(read["event"]) != 1.0, what, "expected one of these")
        additions = read["event"] > 0
    return Events(np.stack([read["x"], read["y"]], axis=1), additions, read.get("time"), choice.labels)


def heading_of(path: str, columns: Columns) -> tuple[str, str]:
    """Names of x and y, without reading a row; DataError if columns are missing."""
    choice = _Choice(path, columns)
    with choice.opened(ragged=False):
        return choice.labels


@dataclass
class _Choice:
    path: str
    columns: Columns
    unnamed: Columns | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, str] = ("x", "y")

    def opened(self, *, ragged: bool) -> AbstractContextManager[ValueSource]:
        if self.path == STDIN:
            raise DataError("standard input holds no events; expected a file")
        if self.path.lower().endswith(ARRAYS):
            raise DataError(f"{self.path}: holds no named columns; expected .csv, .csv.gz, .txt, .txt.gz or .parquet")
        return open_table(self.path, self, CHUNK, ragged=ragged)

    def __call__(self, names: Sequence[str]) -> dict[str, str]:
        lowered = [name.lower() for name in names]
        for kind, column in (self.columns if names or self.unnamed is None else self.unnamed).items():
            usual = (names[lowered.index(name)] for name in DEFAULTS[kind] if name in lowered)
            picked = next(usual, None) if column is None else column
            if picked is not None:
                self.chosen[kind] = picked
            elif kind != "event":
                there = f"has the columns {listed(names, len(names))}" if names else "has no heading"
                raise DataError(
                    f"{self.path} {there}: expected {' or '.join(map(repr, DEFAULTS[kind]))}, or --{kind}"
                )
        x, y = (
            names[int(c)] if is_index(c) and c not in names and int(c) < len(names) else c
            for c in (self.chosen["x"], self.chosen["y"])
        )
        self.labels = x, y
        return self.chosen


def _refuse(path: str, column: str, wrong: Flags, what: str, expected: str) -> None:
    bad = np.flatnonzero(wrong)
    if bad.size:
        raise DataError(
            f"{path}, column {column!r}: {bad.size:,} of {wrong.size:,} rows are {what}, the first is row "
            f"{bad[0] + 1:,}; {expected}"
        )
