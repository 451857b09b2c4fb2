"""A table as Arrow record batches, through narwhals or Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from fastdp import validation
from fastdp.data.column import arrow, as_arrow, homes_of, kind_of, narwhals, no_library
from fastdp.data.files import BATCH, FileTable, is_source, open_table, scanned
from fastdp.errors import DataError, ParameterError, argument
from fastdp.kinds import Frame, Integers

if TYPE_CHECKING:
    import pyarrow as pa

    #: Arrow record batches.
    Batches = Iterator[pa.RecordBatch]

ACCEPTED = (
    "a data frame of pandas, polars or pyarrow, a polars LazyFrame, a DuckDB relation, a Dataset of xarray, an Arrow "
    "stream, or the path of a Parquet or CSV file"
)
#: Libraries whose data frames come in, through narwhals, and go out: each with its frame of an Arrow table.
FAMILIES: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": lambda table: table.to_pandas(),
    "polars": lambda table: import_module("polars").from_arrow(table),
    "pyarrow": lambda table: table,
    "duckdb": lambda table: import_module("duckdb").from_arrow(table),
}


@dataclass(frozen=True)
class Source:
    """Columns in use of a table, and the ``schema`` of all.

    ``read`` returns batches, more than once if ``again``; ``rows``: their number, if known.  An engine's ``add`` maps
    a function of a source to the sum of its int64[n] over parts of the table, each with all rows of its persons.
    """

    family: str
    columns: Sequence[str]
    schema: Any
    read: Callable[[], Batches]
    again: bool = True
    rows: int | None = None
    hint: str = ""
    add: Callable[[Callable[[Source], Integers], str | None], Integers] | None = None

    def batches(self) -> Batches:
        """Batches of at most BATCH rows; DataError for any reader's error."""
        try:
            for batch in self.read():
                for begin in range(0, batch.num_rows, BATCH):
                    yield batch.slice(begin, BATCH)
        except (ParameterError, DataError):
            raise
        except ModuleNotFoundError as error:  # a frame's own way to Arrow
            raise no_library(error.name) from None
        except Exception as error:  # a foreign reader's error may quote a row
            raise DataError(
                f"frame: a {type(error).__name__} while its columns were read; expected columns of one type each, "
                "and a file that is whole (CSV in UTF-8)"
            ) from None

    def table(self) -> pa.Table:
        batches = list(self.batches())
        if batches:
            # Of text, types of later rows may be wider.
            tables = [arrow.Table.from_batches([batch]) for batch in batches]
            return arrow.concat_tables(tables, promote_options="permissive")
        return arrow.schema([(name, arrow_type(self, name) or arrow.null()) for name in self.columns]).empty_table()

    def twice(self) -> Source:
        if self.again:
            return self
        held = list(self.batches())
        return Source(self.family, self.columns, self.schema, lambda: iter(held))


@dataclass(frozen=True)
class EngineTable:
    """A table that an engine adds up; ``open`` is its :func:`open_source`."""

    open: Callable[[Sequence[str]], Source]


def _measurements(dataset: Any, columns: Sequence[str]) -> Any:
    """Columns of xarray's Dataset, a row for each measurement."""
    variables = list(getattr(dataset, "data_vars", ()))
    # Of coordinates alone each measurement of the Dataset is a row.
    measured = [name for name in columns if name in variables] or variables
    dimensions = {frozenset(dataset[name].dims) for name in measured}
    if len(dimensions) > 1:
        raise DataError(
            f"frame: a {type(dataset).__name__} whose variables {measured} have different dimensions, so that one "
            "measurement would be several rows; expected variables of one shape (dataset[[...]] selects them)"
        )
    return (dataset[measured] if measured else dataset).to_dataframe().reset_index()


def open_source(frame: Frame | EngineTable, columns: Sequence[str]) -> Source:
    """The columns of a table, names checked."""
    if isinstance(frame, EngineTable):
        return frame.open(columns)
    # A missing package is an error of its own.
    wrap, chosen, opened = narwhals.from_native, list(dict.fromkeys(columns)), cast("Any", frame)
    if is_source(frame) or isinstance(frame, FileTable):
        table = frame if isinstance(frame, FileTable) else open_table(frame)
        return _of_arrow(table.schema, chosen, table.read, table, again=table.again)
    if hasattr(opened, "scanner") and hasattr(opened, "schema"):
        return _of_arrow(opened.schema, chosen, lambda names: scanned(opened, names), frame)
    try:
        if hasattr(frame, "to_dataframe") and "xarray" in homes_of(frame):
            opened = _measurements(frame, chosen)
        wrapped = wrap(opened)
        schema = wrapped.collect_schema()
    except TypeError:
        return _stream(opened, chosen)
    except DataError:
        raise
    except Exception:  # columns with one name, which narwhals refuses in words of its own
        raise DataError(
            f"frame: a {type(frame).__name__} whose columns cannot be named; expected distinct names"
        ) from None
    check_names(chosen, list(schema), frame)
    family = wrapped.implementation.value
    family = family if family in FAMILIES else "pyarrow"
    rows = len(wrapped) if isinstance(wrapped, narwhals.DataFrame) else None
    if not chosen:
        return Source(family, chosen, schema, lambda: _rows_alone(wrapped, rows), rows=rows)
    if rows is None and any(schema[name] == narwhals.Object for name in chosen):
        # Of polars' objects Arrow would get the addresses.
        wrapped = wrapped.select(chosen).collect()
        rows = len(wrapped)
    if rows is None:
        return Source(family, chosen, schema, lambda: _lazy(wrapped.select(chosen), family))
    wrapped, own, known = wrapped.select(chosen), dict[str, Any](), dict[str, Any]()
    for name in chosen:
        if schema[name] == narwhals.Object:
            # Of a database's driver, say: dates, times, decimal numbers.
            own[name] = _objects(wrapped[name], name)
            if isinstance(own[name], arrow.Array) and arrow.types.is_temporal(own[name].type):
                known[name] = own[name]
        elif schema[name] == narwhals.Unknown:
            # Narwhals does not know pandas' times in zones such as America/Los_Angeles; Arrow does.
            known[name] = _unknown(wrapped[name])
    if known:
        schema = {**schema, **wrap(arrow.table(known)).collect_schema()}
    return Source(family, chosen, schema, lambda: _eager(wrapped, own), rows=rows)


def _of_arrow(
    schema: pa.Schema, chosen: list[str], read: Callable[[Sequence[str]], Batches], frame: Any, *, again: bool = True
) -> Source:
    check_names(chosen, schema.names, frame)
    empty = arrow.schema([schema.field(name) for name in chosen]).empty_table()
    known = narwhals.from_native(empty).collect_schema()
    hint = getattr(frame, "hint", "")
    return Source("pyarrow", chosen, known, lambda: read(chosen), again=again, hint=hint)


def _objects(column: Any, name: str) -> pa.Array | DataError:
    try:
        return as_arrow(column.to_native(), name)
    except DataError:
        # Raised when rows are read: entries, and not a type, decide.
        told = "holds entries of several types: expected one type, such as texts alone"
        return DataError(f"frame: column {name!r} {told}")


def _unknown(column: Any) -> pa.Array:
    try:
        return column.head(0).to_arrow()
    except Exception:  # complex numbers, say
        return arrow.array([], arrow.binary())


def _stream(frame: Any, chosen: list[str]) -> Source:
    try:
        reader = frame if hasattr(frame, "read_next_batch") else arrow.RecordBatchReader.from_stream(frame)
    except Exception:
        raise ParameterError(f"frame is a {type(frame).__name__}: expected {ACCEPTED}") from None
    return _of_arrow(
        reader.schema, chosen, lambda names: (batch.select(names) for batch in reader), frame, again=False
    )


def _rows_alone(frame: Any, rows: int | None) -> Batches:
    # A frame without columns has no rows, a batch has.
    count = frame.select(narwhals.len()).collect("pyarrow")["len"].item() if rows is None else rows
    yield arrow.record_batch([arrow.nulls(count)], ["row"]).select([])


def _eager(frame: Any, own: Mapping[str, Any]) -> Batches:
    for error in own.values():
        if isinstance(error, DataError):
            raise error
    native = frame.to_native()
    for begin in range(0, len(frame), BATCH):
        if isinstance(native, arrow.Table) and not own:
            yield from native.slice(begin, BATCH).combine_chunks().to_batches()
            continue
        part = frame[begin : begin + BATCH]
        columns = {
            name: own[name].slice(begin, BATCH) if name in own else part[name].to_arrow() for name in frame.columns
        }
        yield from arrow.table(columns).combine_chunks().to_batches()


def _lazy(frame: Any, family: str) -> Batches:
    native = frame.to_native()
    if family == "duckdb":
        yield from native.to_arrow_reader(BATCH)
    elif family == "polars" and hasattr(native, "collect_batches"):
        for chunk in native.collect_batches(chunk_size=BATCH):
            yield from chunk.to_arrow().to_batches()
    else:
        yield from frame.collect(backend="pyarrow").to_native().to_batches()


def check_names(chosen: Sequence[str], names: Sequence[str], frame: object) -> None:
    """ParameterError unless each chosen column occurs once."""
    for name in chosen:
        if not isinstance(name, str):
            raise ParameterError(f"column {validation.shown(name)}: expected the name of a column, a text")
        if list(names).count(name) > 1:
            raise ParameterError(f"column {name!r} is there {list(names).count(name)} times: expected distinct names")
    missing = [name for name in chosen if name not in names]
    if missing:
        # The first row of a text is one of data where it names none of the columns.
        hidden = "" if set(chosen) & set(names) else _where_names_are(frame)
        listed = hidden or ", " + ", ".join(map(repr, list(names)[:20]))
        index = list(getattr(getattr(frame, "index", None), "names", None) or ())
        hint = f" ({missing[0]!r} is the index: frame.reset_index() makes it a column)" if missing[0] in index else ""
        # Several may be the entries of a column that was given in place of its name.
        said = f"column {missing[0]!r}" if len(missing) == 1 else f"{len(missing)} of the columns that were named"
        raise ParameterError(f"{said}: expected one of the table's columns{listed}{hint}")


def _where_names_are(frame: Any) -> str:
    if "pyspark" in homes_of(frame):
        # Which may have been read from a text.
        return " (see frame.columns)"
    hint = getattr(frame, "hint", "")
    text = hint or type(frame).__name__ == "CSVStreamingReader"
    return f", which the first row of the text (UTF-8) names{hint}" if text else ""


def time_zone_of(source: Source, name: str, option: str | None) -> str | None:
    """Time zone of a column of times, or None; ParameterError if its type holds no times.

    ``option``: option of :class:`fastdp.Time` by which entries are read.
    """
    kind = source.schema[name]
    texts = isinstance(kind, (narwhals.String, narwhals.Categorical))
    # Of entries that are all missing the type is unknown.
    fits = (
        kind == narwhals.Unknown
        or {
            None: texts or isinstance(kind, (narwhals.Datetime, narwhals.Date)),
            "unit": kind.is_integer() or kind.is_float(),
            "format": texts or kind.is_integer(),
        }[option]
    )
    if not fits:
        raise ParameterError(
            f"time = {name!r} holds {kind_of(kind)} entries: expected dates, datetimes of one time zone, "
            f"ISO texts, Unix times with {argument('Time', unit=...)}, or texts or "
            f"whole numbers with {argument('Time', format=...)}"
        )
    return "UTC" if option == "unit" else getattr(kind, "time_zone", None)


def check_column_types(source: Source, numbers: Sequence[str], labels: Sequence[str]) -> None:
    """ParameterError unless `numbers` hold numbers, and `labels` (keys, persons) single entries.

    Types are public, so messages name them.
    """
    for name in numbers:
        kind = source.schema[name]
        if not (kind.is_numeric() or kind in (narwhals.Boolean, narwhals.Unknown, narwhals.Object)):
            raise ParameterError(f"column {name!r} holds {kind_of(kind)} entries: expected numbers{source.hint}")
    for name in labels:
        if source.schema[name].is_nested():
            raise ParameterError(
                f"column {name!r} holds {kind_of(source.schema[name])} entries: expected texts, whole numbers or "
                "other single entries as keys and persons"
            )


def arrow_type(source: Source, name: str) -> pa.DataType | None:
    """Arrow type of a column, or None if unknown."""
    try:
        return narwhals.Schema({name: source.schema[name]}).to_arrow().field(name).type
    except Exception:  # types that narwhals has no Arrow type for
        return None
