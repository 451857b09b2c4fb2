"""``fastdp release``, ``totals``, ``counts``, ``means``, ``aggregate`` and ``plan``: calls with a file in and out."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np

import fastdp
from fastdp.cli import COMMANDS
from fastdp.cli.options import Public, arguments, flags, options, parameters
from fastdp.cli.places import FLAGS, STANDARD, account, check_apart, check_places, paths, shared, spent
from fastdp.cli.state import State, chosen_key, protection
from fastdp.cli.terminal import as_table, progress, running, seconds
from fastdp.data.column import arrow
from fastdp.data.files import live_numbers, read_numbers
from fastdp.data.source import arrow_type, open_source
from fastdp.errors import FastDPError, ParameterError, StateError
from fastdp.guarantee import charge
from fastdp.kinds import Floats, Json
from fastdp.noise.key import Key, stream_key
from fastdp.releases import writing
from fastdp.releases.intervals import checked_confidence
from fastdp.state.atomic_files import name_target
from fastdp.streams import METHODS
from fastdp.tables import output

#: Columns of a release's file for each choice of ``--values``.
VALUES = {"published": ("values",), "revised": ("revised",), "both": ("values", "revised")}
EXAMPLES = {
    "release": """
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000
  fastdp release trips.parquet --column fare -o private.parquet --epsilon 0.1 --bound 500 --season 1440
  fastdp release people_a_minute.csv -o private.csv --epsilon 0.5 --sensitivity 1
  zcat log.gz | fastdp release - -o - --state log.state --epsilon 0.05 --bound 2000 > private.csv
  tail -f log.txt | fastdp release - -o - --follow --threshold 50 --epsilon 0.05 --bound 2000
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000 --ledger budget --stream meter --limit 1""",
    "totals": """
  fastdp totals readings.parquet --time timestamp --every 1h --value kwh --epsilon 1 --bound 10 -o private.parquet
  fastdp totals readings.csv --time timestamp --every 1d --by household --keys @households.csv --value kwh
      --epsilon 1 --bound 10 -o private.csv --plot private.png""",
    "counts": """
  fastdp counts trips.parquet --time start --every 1h --by station --keys Embarcadero --keys Caltrain
      --epsilon 0.5 --zone America/Los_Angeles -o private.parquet
  fastdp counts orders.csv --time at --every 1d --by country --delta 1e-6 --person customer --rows 20
      --per 1d --epsilon 1 -o private.csv --ledger budget --stream orders --limit 2""",
    "means": """
  fastdp means trips.parquet --time start --every 1d --value minutes --epsilon 1 --clip 60 -o private.parquet""",
    "aggregate": """
  fastdp aggregate visits.csv --statistics minutes=sum,mean,p95 --statistics "*=count" --bound minutes=600
      --time t --time-unit s --every 1d --by path --delta 1e-6 --person visitor --rows 20 --epsilon 2 -o o.parquet""",
    "plan": """
  fastdp plan --statistics kwh=sum,mean --bound kwh=10 --every 1h --windows 168 --expected-rows 400
      --expected-mean kwh=0.4 --epsilon 1
  fastdp plan --statistics "*=count" --every 1d --windows 365 --keys 74 --person rider --rows 4 --per 1d
      --half-width 20""",
}
OF_RELEASE = """
IN is a file (.csv, .tsv, .txt, also .gz or .bz2; .parquet, .arrow, .npy) or - for standard input. OUT is a .csv,
.csv.gz, .npy or .parquet file, or - for standard output; it appears when everything went well, and says where it
begins, theta and the guarantee: in Parquet's schema, beside the others in OUT.json.

All values of IN are released by one rule, with one answer (fastdp.release). --follow, --holdout and the other methods
take the endless publisher: the first M values choose the threshold, and published values begin after them.
"""
OF_TABLES = """
IN is a file with named columns (.csv, .tsv, .txt, also .gz or .bz2; .parquet, .arrow), a folder of Parquet files, or
- for standard input. OUT is a .parquet or .csv file, or - for CSV on standard output: a row for each window and key,
with the metadata in Parquet's schema, or in OUT.json beside CSV. A window without rows is released as any other.
"""
OF_KEYS = (
    "Keys that are released, each with its own --keys, of several --by a line of CSV: A,7; @FILE: those of a file "
    "with the columns of --by; public: all keys of IN, if they are no secret. Without it keys are chosen privately, "
    "which --delta allows. Rows with other keys are dropped."
)


def _command(
    name: str, publics: Mapping[str, Public], run: Any, more: list[click.Parameter], text: str
) -> click.Command:
    derived = options(publics)
    for option in derived:
        if option.name == "keys" and option.multiple:
            option.help = OF_KEYS
    examples = f"\b\nExamples{EXAMPLES[name]}"
    about = "\n\n".join([COMMANDS[name][1], text.strip()])
    return click.Command(name, params=[*more[:2], *derived, *more[2:]], callback=run, help=about, epilog=examples)


def source_of(given: Json) -> Any:
    """The input as functions take it: a path, or :class:`fastdp.Csv` where an option says how it is written."""
    options_of_csv = {each.name: given[each.name] for each in parameters(fastdp.Csv)}
    written = arguments(fastdp.Csv, {**options_of_csv, "path": given["source"]})
    return fastdp.Csv(given["source"], **written) if written else given["source"]


def _path(source: Any) -> Any:
    return source.path if isinstance(source, fastdp.Csv) else source


# Streams.


def _public(given: Json) -> Public:
    """The function or publisher of the options; click.UsageError for one that it does not take."""
    endless = given["follow"] or given["holdout"] is not None or given["method"] != "adaptive"
    public: Public = getattr(fastdp, METHODS[given["method"]]) if endless else fastdp.release
    taken = {each.name for each in parameters(public)}
    for each in (each for kind in METHODS.values() for each in parameters(getattr(fastdp, kind))):
        if each.name not in taken and given[each.name] not in (None, ()):
            because = "" if endless else " without --follow or --holdout"
            raise click.UsageError(f"{each.flag} does not apply to --method {given['method']}{because}.")
    return public


def _release(**given: Any) -> None:
    begin, public = time.perf_counter(), _public(given)
    if given["follow"]:
        if (given["source"], given["output"]) != (STANDARD, STANDARD):
            raise click.UsageError("--follow answers each line at once: expected - as IN and as OUT.")
        if (given["values_as"], given["picture"]) != ("published", None):
            raise click.UsageError("--follow answers each line at once: expected no --values and no --plot.")
    if public is fastdp.release and given["values_as"] != "published":
        raise click.UsageError("--values: a finished array has one answer; expected it with --holdout or --method.")
    if given["bound"] is None and given["sensitivity"] is None:
        both = any(each.name == "sensitivity" for each in parameters(public))
        raise click.UsageError(f"Expected --bound{' or --sensitivity' * both}.")
    with running({**FLAGS, **flags(fastdp.Csv), **flags(public)}):
        options, source = arguments(public, given), source_of(given)
        if given["follow"]:
            _follow(public, options, given, source)
            return
        check_apart(paths(given))
        state = State("release", given)
        check_places(given, writing.description_of, replace=state.wrote(given["output"]))
        with account(given, state) as paid, progress(str(given["source"]), 3, " steps", quiet=given["quiet"]) as bar:
            values = read_numbers(source, given["column"])
            state.check(values)
            bar.update()
            of = {"stream": given["stream"], "part": given["part"]}
            if public is fastdp.release:
                found = public(values, **options, **of, key=state.key, ledger=paid)
            else:
                publisher = public(**options, key=stream_key(state.key, given["stream"]))
                with charge(publisher, paid, **of):
                    found = publisher.release(values)
            bar.update()
            state.record(given["output"])
            names = VALUES[given["values_as"]]
            if given["output"] == STANDARD:
                _to_standard(lambda file: writing.write_csv(file, writing.columns_of(found, names)))
            else:
                columns = {} if public is fastdp.release else {"columns": names}
                found.write(given["output"], **columns, overwrite=given["force"] or state.wrote(given["output"]))
        _finish(found, given, begin)


def _to_standard(write: Any) -> None:
    try:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except OSError as error:
        name_target(error, "standard output")
        raise


def _follow(public: Public, options: Json, given: Json, source: Any) -> None:
    """Answer each line at once; with ``--state`` from where an earlier run stopped."""
    check_apart(paths(given))
    own, path = chosen_key(given), given["state"]
    publisher = public(**options, key=stream_key(own or Key.random(), given["stream"]))
    paid = account(given, State("release", {**given, "state": None}))
    if kept := path is not None and Path(path).exists():
        earlier = type(publisher).load(path, protection(own))
        if earlier.machine.describe() != publisher.machine.describe():
            raise StateError(
                f"state file {str(path)!r} is of a stream with other options: expected the same command again"
            )
        if own is not None and earlier.noise_fingerprint != publisher.noise_fingerprint:
            raise StateError(f"state file {str(path)!r} is of a stream with another key or name: expected the same")
        publisher = earlier
    heading = publisher.n_seen <= publisher.holdout
    with paid as ledger, nullcontext() if kept else charge(publisher, ledger, given["stream"], part=given["part"]):
        if path is not None and not kept:
            publisher.keep(path, protection(own))
        csv_of = source if isinstance(source, fastdp.Csv) else None
        for chunk in live_numbers(sys.stdin.buffer, given["column"], csv_of or fastdp.Csv(STANDARD)):
            if (values := _published(publisher, chunk)).size:
                _to_standard(partial(writing.write_csv, columns={"value": values}, heading=heading))
                heading = False


def _published(publisher: Any, chunk: Floats) -> Floats:
    if not isinstance(publisher, fastdp.PAK):
        found: Floats = publisher.publish(chunk)
        return found
    # Differences of running sums, which begin with the hold-out's.
    before = publisher.running_sum
    sums = publisher.publish(chunk)
    if before is None and sums.size and publisher.holdout:
        before, sums = float(sums[0]), sums[1:]
    return np.diff(sums, prepend=0.0 if before is None else before)


def _finish(found: Any, given: Json, begin: float) -> None:
    """The picture and the summary."""
    if given["picture"] is not None:
        found.plot(given["picture"])
    if not given["quiet"]:
        facts = [*spent(given, found.guarantee.simulated), ("time", seconds(time.perf_counter() - begin))]
        facts += [("output", "standard output" if given["output"] == STANDARD else given["output"])]
        facts += [] if given["picture"] is None else [("picture", str(given["picture"]))]
        click.echo(f"{found!r}\n" + "\n".join(f"  {line}" for line in as_table(facts).splitlines()), err=True)


# Tables.


def _table(kind: str, **given: Any) -> None:
    begin, public = time.perf_counter(), getattr(fastdp, kind)
    with running({**FLAGS, **flags(fastdp.Csv), **flags(public)}):
        check_apart(paths(given))
        confidence = checked_confidence(given["confidence"])
        state = State(kind, given)
        check_places(given, output.description_of, replace=state.wrote(given["output"]))
        options, frame = arguments(public, {**given, "keys": ()}), source_of(given)
        if str(_path(frame)) == STANDARD and (state.kept or given["keys"]):
            # Read twice: the columns in use are held.
            frame = open_source(frame, _columns(options)).table()
        options |= _keys(frame, list(given["by"]), given["keys"], options.get("keys"))
        with account(given, state) as paid, progress(str(given["source"]), 2, " steps", quiet=given["quiet"]) as bar:
            state.check(_path(frame))
            found = public(frame, **options, key=state.key, ledger=paid, stream=given["stream"])
            found = found.with_confidence(confidence)
            bar.update()
            state.record(given["output"])
            if given["output"] == STANDARD:
                _to_standard(partial(import_module("pyarrow.csv").write_csv, found.arrow))
            else:
                found.write(given["output"], overwrite=given["force"] or state.wrote(given["output"]))
        _finish(found, given, begin)


def _columns(options: Json) -> list[str]:
    fields = [getattr(options.get(name), "column", None) for name in ("time", "unit")]
    named = [options.get("value"), *options.get("statistics", ()), *fields, *options.get("by", ())]
    return [name for name in dict.fromkeys(named) if name not in (None, "*")]


def _keys(frame: Any, by: list[str], texts: tuple[str, ...], private: object) -> Json:
    """Argument ``keys``, with entries of the types of their columns."""
    if not texts:
        return {}
    if not by or private is not None:
        wanted = "--by, the column of the keys" if not by else "no --key-share and no --others"
        raise click.UsageError(f"--keys needs {wanted}.")
    if texts == ("public",):
        return {"keys": "public"}
    if len(texts) == 1 and texts[0].startswith("@"):
        try:
            rows = [list(row.values()) for row in open_source(texts[0][1:], by).table().to_pylist()]
        except FastDPError as error:
            raise type(error)(f"--keys {texts[0]}: {str(error).removeprefix(f'{texts[0][1:]}: ')}") from None
        if not rows:
            raise ParameterError(f"--keys {texts[0]}: holds no keys")
    else:
        rows = [[text] if len(by) == 1 else _entries(text, len(by)) for text in texts]
    source = open_source(frame, by)
    columns = [_typed(list(each), name, source) for each, name in zip(zip(*rows, strict=True), by, strict=True)]
    return {"keys": columns[0] if len(by) == 1 else list(zip(*columns, strict=True))}


def _entries(text: str, count: int) -> list[str]:
    with suppress(csv.Error):
        if len(row := next(csv.reader([text], strict=True))) == count:
            return row
    raise ParameterError(f"--keys {text!r}: expected {count} entries, one for each --by")


def _typed(entries: list[Any], name: str, source: Any) -> list[Any]:
    kind = arrow_type(source, name)
    if kind is None:
        raise ParameterError(f"--keys: no entry tells the type of column {name!r}: expected --types {name}=string")
    kind = kind.value_type if arrow.types.is_dictionary(kind) else kind
    try:
        found: list[Any] = arrow.array(entries).cast(kind).to_pylist()
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        # Arrow's words are long.
        raise ParameterError(f"--keys: an entry is no {kind}: expected the type of column {name!r}") from None
    return found


def _plan(**given: Any) -> None:
    with running(flags(fastdp.plan)):
        click.echo(str(fastdp.plan(**arguments(fastdp.plan, given))))


IN = click.Argument(["source"], metavar="IN")
CSV = options({"": fastdp.Csv})
CONFIDENCE = click.Option(["--confidence"], type=float, default=0.95, show_default=True, help="Of the intervals.")
OF_STREAMS = [
    click.Option(["--column"], metavar="C", help="Column: a name or a zero-based number, where there are several."),
    click.Option(
        ["--method"], type=click.Choice(list(METHODS)), default="adaptive", show_default=True,
        help="adaptive: blocks follow the stream; tops: the paper's; pak: differences of running sums of a stream "
        "of known length; topl, the local model, in which each value is hidden by a report of its own.",
    ),
    click.Option(
        ["--values", "values_as"], type=click.Choice(list(VALUES)), default="published", show_default=True,
        help="Of endless publishers: values as published; revised ones, which use all that was released; both.",
    ),
    click.Option(
        ["--follow"], is_flag=True,
        help="IN - is a live pipe, OUT is -: each line is answered at once. With --state a later run goes on after "
        "the last line that was recorded.",
    ),
]  # fmt: skip
_METHODS = {"": fastdp.release, **{name: getattr(fastdp, kind) for name, kind in METHODS.items()}}
release = _command("release", _METHODS, _release, [IN, *shared()[:1], *OF_STREAMS, *shared()[1:], *CSV], OF_RELEASE)
plan = _command("plan", {"": fastdp.plan}, _plan, [], "")
totals, counts, means, aggregate = (
    _command(
        name, {"": getattr(fastdp, name)}, partial(_table, name), [IN, *shared("part"), CONFIDENCE, *CSV], OF_TABLES
    )
    for name in ("totals", "counts", "means", "aggregate")
)
