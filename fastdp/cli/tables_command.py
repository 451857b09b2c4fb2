"""``fastdp totals``, ``counts`` and ``means``: a table in, private windows with error bars out."""

from __future__ import annotations

import csv
import importlib
import sys
import time as clock
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastdp.cli.engines import adding_engine, check_engine
from fastdp.cli.errors import plain_errors, terminated_cleanly
from fastdp.cli.options import (
    LedgerOptions,
    check_secrets,
    declared,
    force_option,
    key_file_option,
    seed_option,
    table_ledger_options,
    with_options,
)

if TYPE_CHECKING:
    from fastdp.tables.calendar import Time
    from fastdp.tables.table import Table
    from fastdp.units import Unit

EPILOG = """
\b
Examples
  fastdp totals readings.parquet --time timestamp --every 1h --value kwh --epsilon 1 --bound 10 -o private.parquet
  fastdp totals readings.csv --time timestamp --every 1d --by household --keys-file households.csv --value kwh
      --epsilon 1 --bound 10 -o private.csv --plot private.png
  fastdp counts trips.parquet --time start --every 1h --by station --key Embarcadero --key Caltrain
      --epsilon 0.5 --time-zone America/Los_Angeles -o private.parquet
  fastdp means trips.parquet --time start --every 1d --value minutes --epsilon 1 --clip 60 -o private.parquet
  fastdp counts orders.csv --time at --every 1d --by country --delta 1e-6 --who customer --contributions 20
      --period 1d --epsilon 1 -o private.csv --ledger budget --stream orders --limit 2
  fastdp totals readings/ --time at --every 1h --value kwh --start 2026-01-01 --stop 2027-01-01 --clip 10 --epsilon 1
      --engine spark --master spark://host:7077 -o private.parquet
"""

_BEFORE = (
    click.argument("source", metavar="IN", type=click.Path(exists=True, allow_dash=True)),
    *declared("""
-o/--output OUT required  A file, or - for CSV on standard output.
--plot FILE:path as picture  Draw estimates, intervals and the revised line; the suffix chooses the format, such as
    .png.
--time COL required  Column of times.
--every LENGTH required  Length of a window: 90s, 15min, 1h; or 1d, 1w, 1mo, 1y from local midnight to local midnight.
--start TIME  Where the first window begins: public.  [default: the table's]
--stop TIME  Where the last window ends: public.  [default: the table's]
--origin TIME  Where some window begins.  [default: 1970-01-01, midnight in the zone]
--time-zone ZONE  Zone of the windows, such as Europe/Paris; times without a zone are clock times in it.  [default:
    the time column's]
--by COL multiple  Key column, repeated for several: windows of each key.
--key KEY as listed multiple  A key that is released, repeated; of several --by, as a line of CSV: A,7. Other rows are
    dropped.
--keys-file FILE:file  The keys that are released: a CSV or Parquet file with the columns of --by.
--public-keys  Release all keys of the table: it is no secret which keys it has.
--delta D:float = 0.0  Above 0 the keys are private: those whose noisy number of rows passes a threshold are released.
"""),
)
_VALUES = declared(
    """
--value COL required  Column of numbers.
--bound HIGH  Public bound of a value, from 0, or both ends. Values beyond it count as the bound. Take it from what
    is known of the quantity, never from the data.
--clip HIGH  What values are clipped to, if that is known publicly.  [default: chosen from all rows with a share of
    epsilon]
--resolution X:float  Step to which values are rounded.  [default: bound / 2^32]
--nonfinite (raise|zero) = raise  Missing values, NaN and infinity: stop with an error, or count as 0.
""",
    bound={"metavar": "HIGH | LOW,HIGH"},
    clip={"metavar": "HIGH | LOW,HIGH"},
)
_AFTER = (
    *declared(
        """
--epsilon :float required  Privacy loss of one unit (a row) over the output.
--contributions K:int = 1  Rows of one unit. Without --who you vouch for it; with --who further rows are dropped.
--period LENGTH  The unit is what a person adds in any such period.  [default: in all]
--per-window J:int  A person's rows that count in a window (with --who).
--who COL  Column of persons, who are then the unit.
--engine (spark|dask)  Add the rows on an engine, for tables beyond one machine: with --start, --stop, --clip, and
    with --by listed keys.  The output is the same, byte for byte.
--master ADDRESS  With --engine spark: of its cluster, such as spark://host:7077.  [default: local, or Spark's own
    configuration]
--scheduler ADDRESS  With --engine dask: of its cluster, such as tcp://host:8786.  [default: threads of this process]
--missing (raise|drop) = raise  Rows without a time or person: stop with an error, or drop them.
--confidence :float = 0.95  Of the intervals.
""",
        master={"envvar": "FASTDP_SPARK_MASTER", "show_envvar": True},
        scheduler={"envvar": "FASTDP_DASK_SCHEDULER", "show_envvar": True},
    ),
    *(seed_option, key_file_option),
    *declared("""
--quiet  No summary.
"""),
    *(force_option, *table_ledger_options),
)

INTRODUCTION = """
    IN is a .parquet, .csv, .csv.gz or .arrow file with named columns, in any order of rows, or - for CSV on standard
    input. OUT is a .parquet, .csv or .npz file: a row for each window and key, with columns window (its start), the
    keys, estimate, std_error, low, high (from the window's own noisy sum) and revised, revised_low, revised_high
    (from all windows of the key, by a model). Guarantee, clip and noise are in the metadata of Parquet and npz, and
    in OUT.json beside CSV. A window without rows is released as any other.
"""


def table_command(values: bool) -> Callable[[Callable[..., None]], click.Command]:
    """The options of one of the three commands."""

    def decorate(function: Callable[..., None]) -> click.Command:
        function.__doc__ = f"{function.__doc__}\n{INTRODUCTION}"
        options = (*_BEFORE, *(_VALUES if values else ()), *_AFTER)
        return click.command(epilog=EPILOG)(with_options(options)(function))

    return decorate


#: Arguments of the functions that have the option's name.
PASSED = ("epsilon", "delta", "stream")


@table_command(values=True)
def totals(**options: Any) -> None:
    """Private totals of a column by window of time, and by key."""
    _run("totals", options)


@table_command(values=False)
def counts(**options: Any) -> None:
    """Private numbers of rows by window of time, and by key."""
    _run("counts", options)


@table_command(values=True)
def means(**options: Any) -> None:
    """Private means of a column by window of time, and by key.

    OUT also has the noisy total and count of each window.
    """
    _run("means", options)


def _run(kind: str, options: dict[str, Any]) -> None:
    begin = clock.perf_counter()
    check_secrets(options["seed"], options["key_file"])
    ledger_names = ("ledger", "stream", "limit", "limit_delta", "ledger_key_file")
    budget = LedgerOptions(part=None, **{name: options[name] for name in ledger_names})
    _check_keys(options)
    if kind != "counts" and options["bound"] is None and options["clip"] is None:
        raise click.UsageError(
            "Expected --bound, the public largest value (or LOW,HIGH), or --clip if that is known."
        )
    check_engine(options)
    with plain_errors(), terminated_cleanly():
        import fastdp
        from fastdp.cli.errors import STANDARD, check_separate
        from fastdp.noise.key import read_key
        from fastdp.releases.intervals import checked_confidence

        check_separate(options)
        _check_outputs(options)
        frame = _frame(options["source"])
        confidence = checked_confidence(options["confidence"])
        given = {name: options[name] for name in PASSED} | {"time": _time(options), "unit": _unit(options)}
        if kind != "counts":
            given["value"] = fastdp.Value(*(options[name] for name in ("value", "resolution", "nonfinite")))
            given |= {name: _ends(name, options[name]) for name in ("bound", "clip")}
        given["key"] = None if options["key_file"] is None else read_key(options["key_file"])
        keys = _keys(frame, options)
        with budget.opened() as ledger, adding_engine(options) as (module, opened):
            table: Table = getattr(module, kind)(
                opened or frame,
                by=list(options["by"]) or None,
                keys=keys,
                seed=options["seed"],
                ledger=ledger,
                **given,
            ).with_confidence(confidence)
        if options["output"] == STANDARD:
            _to_standard_output(table)
        else:
            table.write(options["output"], overwrite=options["force"])
        if options["picture"] is not None:
            table.plot(options["picture"])
        if not options["quiet"]:
            click.echo(_summary(table, options, budget, clock.perf_counter() - begin), err=True)


def _time(options: dict[str, Any]) -> Time:
    """The times and windows that the options say."""
    from fastdp import Time

    ends = {name: options[name] for name in ("start", "stop", "origin", "missing")}
    return Time(options["time"], options["every"], zone=options["time_zone"], **ends)


def _unit(options: dict[str, Any]) -> Unit:
    """The unit of privacy that the options say."""
    from fastdp import Person, Rows
    from fastdp.errors import ParameterError

    who, rows, per, per_window = (options[name] for name in ("who", "contributions", "period", "per_window"))
    if who is not None:
        return Person(who, rows, per, per_window)
    if per_window is not None:
        raise ParameterError("--per-window: expected --who, the column of persons whose rows it bounds")
    return Rows(rows, per)


def _check_keys(options: dict[str, Any]) -> None:
    """Where the keys come from: one way, and only with --by; click.UsageError otherwise."""
    ways = [name for name in ("listed", "keys_file", "public_keys") if options[name]]
    if len(ways) > 1:
        raise click.UsageError("--key, --keys-file and --public-keys exclude each other.")
    if ways and not options["by"]:
        raise click.UsageError("--key, --keys-file and --public-keys need --by, the column of the keys.")
    if options["by"] and not ways and not options["delta"]:
        raise click.UsageError(
            "--by needs the keys that are released: --key or --keys-file; --public-keys if it is no secret which "
            "keys the table has; or --delta to choose them privately."
        )


def _check_outputs(options: dict[str, Any]) -> None:
    """Refuse what could not be written, before anything is paid for."""
    from fastdp.cli.errors import STANDARD, check_picture
    from fastdp.state.durable import check_target
    from fastdp.tables.output import description_of, kind_of

    if options["output"] != STANDARD:
        target = Path(options["output"])
        kind_of(target)
        for path in (target, description_of(target)):
            if path is not None:
                check_target(path, overwrite=options["force"])
    if options["picture"] is not None:
        check_picture(options["picture"], overwrite=options["force"])


def _frame(source: str) -> Any:
    """What the functions take: a path, or a stream of Arrow batches where only Arrow's CSV reader can read it."""
    from fastdp.cli.errors import STANDARD
    from fastdp.data.source import import_tables

    if source != STANDARD and not source.lower().endswith(".csv.gz"):
        return source
    from fastdp.errors import DataError

    _, arrow = import_tables()
    try:
        file = sys.stdin.buffer if source == STANDARD else arrow.input_stream(source)
        return _arrow_csv().open_csv(file)
    except arrow.ArrowInvalid:
        # Arrow's words may quote a row.
        raise DataError(f"{source}: not readable as CSV; expected a heading and rows of as many columns") from None


def _arrow_csv() -> Any:
    return importlib.import_module("pyarrow.csv")


def _ends(name: str, text: str | None) -> float | tuple[float, float] | None:
    """``10`` or ``-5,10``."""
    if text is None:
        return None
    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return numbers[0]
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    raise click.BadParameter(f"{text!r} is neither a number nor two separated by a comma, LOW,HIGH.", param_hint=name)


def _keys(frame: Any, options: dict[str, Any]) -> Any:
    """The keys with the types of their columns; "public"; or None."""
    by, listed = options["by"], options["listed"]
    if options["public_keys"]:
        return "public"
    if options["keys_file"] is not None:
        rows = _rows_of(options["keys_file"], by)
    elif listed:
        rows = [[text] for text in listed] if len(by) == 1 else list(csv.reader(listed))
    else:
        return None
    from fastdp.data.source import open_source
    from fastdp.errors import ParameterError

    schema = open_source(frame, by).schema
    for row in rows:
        if len(row) != len(by):
            raise ParameterError(f"--key {','.join(map(str, row))}: expected {len(by)} entries, one for each --by")
    typed = [tuple(_typed(entry, schema[name], name) for entry, name in zip(row, by, strict=True)) for row in rows]
    return [row[0] for row in typed] if len(by) == 1 else typed


def _rows_of(path: Path, by: tuple[str, ...]) -> list[list[Any]]:
    from fastdp.data.source import open_source

    return [list(row.values()) for batch in open_source(str(path), by).batches() for row in batch.to_pylist()]


def _typed(entry: Any, kind: Any, name: str) -> Any:
    """A key's entry as a column of that type has it."""
    from fastdp.errors import ParameterError

    if entry is None:
        return None
    try:
        if kind.is_integer():
            return int(entry)
        if kind.is_float():
            return float(entry)
    except ValueError:
        raise ParameterError(f"key {entry!r}: expected a number, as in column {name!r}") from None
    return str(entry) if isinstance(entry, (int, float)) else entry


def _to_standard_output(table: Table) -> None:
    _arrow_csv().write_csv(table.arrow, sys.stdout.buffer)


def _summary(table: Table, options: dict[str, Any], budget: LedgerOptions, duration: float) -> str:
    from fastdp.cli.release_run import as_table, seconds

    facts = [
        *table.facts(),
        *budget.summary(table),
        ("time", seconds(duration)),
        ("output", "standard output" if options["output"] == "-" else options["output"]),
    ]
    if options["picture"] is not None:
        facts.append(("picture", str(options["picture"])))
    return f"{table.title()}\n{as_table(facts)}"
