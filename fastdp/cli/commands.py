"""Commands that call a public function on a file: release, tables, points, and plan."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

import fastdp
from fastdp.cli import COMMANDS
from fastdp.cli.options import Public, arguments, flags, options, parameters
from fastdp.cli.places import FILE, FLAGS, STANDARD, account, check_apart, check_places, paths, shared, spent
from fastdp.cli.state import State, chosen_key, protection
from fastdp.cli.terminal import as_table, progress, running, seconds
from fastdp.data.column import arrow
from fastdp.data.files import live_numbers, open_table, read_numbers
from fastdp.data.source import arrow_type, open_source
from fastdp.errors import FastDPError, ParameterError, StateError
from fastdp.guarantee import charge
from fastdp.kinds import Floats, Json
from fastdp.noise.key import Key, stream_key
from fastdp.points import Box, replay
from fastdp.points.maps import read_domain
from fastdp.releases import writing
from fastdp.releases.intervals import checked_confidence
from fastdp.state.atomic_files import name_target
from fastdp.streams import METHODS
from fastdp.tables import output

POINTS: dict[str, Public] = {"phdstream": fastdp.PHDStream, "adaptive": fastdp.AdaptivePHDStream}
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
    "synthesize": """
  fastdp synthesize pickups.csv.gz -o private.parquet --epsilon 1 --box -74.3 40.45 -73.65 40.95 --batch 6h
  fastdp synthesize visits.parquet -o private.csv --epsilon 0.5 --box 0 0 10 10 --batch 500 --initial 0.1
  fastdp synthesize check-ins.csv -o private.csv --epsilon 1 --domain land.geojson --batch 1w --outside clip""",
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
OF_POINTS = """
IN is a file with named columns (.csv, .tsv, .txt, also .gz or .bz2; .parquet, .arrow) or - for standard input; each
row is one event: a point appears, or disappears. It is replayed in batches. OUT is a .csv,
.csv.gz, .npy or .parquet file, or - for standard output: for each batch synthetic points whose distribution resembles
that of the points present, with the guarantee in Parquet's schema, beside the others in OUT.json.

That a removed point was ever added is not checked: its place counts one point less.
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


def source_of(given: Json, *, twice: bool = False) -> Any:
    """The input as functions take it; :class:`fastdp.Csv` where an option says how it is written.

    `twice`: standard input is held in memory.
    """
    options_of_csv = {each.name: given[each.name] for each in parameters(fastdp.Csv)}
    written = arguments(fastdp.Csv, {**options_of_csv, "path": given["source"]})
    source = fastdp.Csv(given["source"], **written) if written else given["source"]
    if not twice or given["source"] != STANDARD:
        return source
    opened = open_table(source)
    return open_source(opened, opened.schema.names).table()


def _check_method(given: Json, public: Public, others: Iterable[Public], because: str = "") -> None:
    """click.UsageError for an option of another method."""
    taken = {each.name for each in parameters(public)}
    for each in (each for other in others for each in parameters(other)):
        if each.name not in taken and given[each.name] not in (None, ()):
            raise click.UsageError(f"{each.flag} does not apply to --method {given['method']}{because}.")


Rows = Callable[[IO[bytes]], object]


def _publish(command: str, given: Json, described: Any, call: Callable[[State, Any], tuple[Any, Rows, Json]]) -> None:
    """Check all paths, `call` under state and ledger, and write the result: its file, picture and summary."""
    begin, out = time.perf_counter(), given["output"]
    check_apart(paths(given))
    state = State(command, given)
    replace = state.wrote(out)
    check_places(given, described, replace=replace)
    with account(given, state.begin if state.kept else None) as paid, progress(given, 2) as bar:
        found, rows, how = call(state, paid)
        bar.update()
        state.record(out)
        if out == STANDARD:
            _to_standard(rows)
        else:
            found.write(out, **how, overwrite=given["force"] or replace)
    if given["picture"] is not None:
        found.plot(given["picture"])
    if not given["quiet"]:
        facts = [*spent(given, found.guarantee.simulated), ("time", seconds(time.perf_counter() - begin))]
        facts += [("output", "standard output" if out == STANDARD else out)]
        facts += [] if given["picture"] is None else [("picture", str(given["picture"]))]
        click.echo(f"{found!r}\n" + "\n".join(f"  {line}" for line in as_table(facts).splitlines()), err=True)


# Streams.


def _release(**given: Any) -> None:
    follow, method = given["follow"], given["method"]
    endless = follow or given["holdout"] is not None or method != "adaptive"
    public: Public = getattr(fastdp, METHODS[method]) if endless else fastdp.release
    because = "" if endless else " without --follow or --holdout"
    _check_method(given, public, (getattr(fastdp, kind) for kind in METHODS.values()), because)
    if follow and (given["source"], given["output"]) != (STANDARD, STANDARD):
        raise click.UsageError("--follow answers each line at once: expected - as IN and as OUT.")
    if follow and (given["values_as"], given["picture"]) != ("published", None):
        raise click.UsageError("--follow answers each line at once: expected no --values and no --plot.")
    if public is fastdp.release and given["values_as"] != "published":
        raise click.UsageError("--values: a finished array has one answer; expected it with --holdout or --method.")
    if given["bound"] is None and given["sensitivity"] is None:
        both = any(each.name == "sensitivity" for each in parameters(public))
        raise click.UsageError(f"Expected --bound{' or --sensitivity' * both}.")

    def call(state: State, paid: Any) -> tuple[Any, Rows, Json]:
        values, of = read_numbers(source, given["column"]), {"stream": given["stream"], "part": given["part"]}
        state.check(values)
        if public is fastdp.release:
            found = public(values, **options, **of, key=state.key, ledger=paid)
        else:
            publisher = public(**options, key=stream_key(state.key, given["stream"]))
            with charge(publisher, paid, **of):
                found = publisher.release(values)
        columns = VALUES[given["values_as"]]
        how = {} if public is fastdp.release else {"columns": columns}
        return found, partial(writing.write_csv, columns=writing.columns_of(found, columns)), how

    with running({**FLAGS, **flags(fastdp.Csv), **flags(public)}):
        options, source = arguments(public, given), source_of(given)
        if follow:
            _follow(public, options, given, source)
        else:
            _publish("release", given, writing.description_of, call)


def _to_standard(write: Rows) -> None:
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
    # A later run goes on under the first one's entry.
    paid = account(given, (lambda: None) if kept else None)
    with paid as ledger, charge(publisher, ledger, given["stream"], part=given["part"]):
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


# Tables.


def _table(kind: str, **given: Any) -> None:
    public = getattr(fastdp, kind)

    def call(state: State, paid: Any) -> tuple[Any, Rows, Json]:
        options = arguments(public, {**given, "keys": ()})
        frame = source_of(given, twice=state.kept or bool(given["keys"]))
        options |= _keys(frame, list(given["by"]), given["keys"], options.get("keys"))
        state.check(frame)
        found = public(frame, **options, key=state.key, ledger=paid, stream=given["stream"])
        found = found.with_confidence(confidence)
        return found, lambda file: import_module("pyarrow.csv").write_csv(found.arrow, file), {}

    with running({**FLAGS, **flags(fastdp.Csv), **flags(public)}):
        confidence = checked_confidence(given["confidence"])
        _publish(kind, given, output.description_of, call)


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
        texts = arrow.array(entries)
        # Arrow would take 0x10 for 16.
        if arrow.types.is_integer(kind) and arrow.types.is_string(texts.type):
            texts.cast(arrow.float64())
        found: list[Any] = texts.cast(kind).to_pylist()
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
        # Arrow's words are long.
        raise ParameterError(f"--keys: an entry is no {kind}: expected the type of column {name!r}") from None
    return found


# Points, and a plan.


def _synthesize(**given: Any) -> None:
    public = POINTS[given["method"]]
    _check_method(given, public, POINTS.values())
    if (given["box"] is None) == (given["domain"] is None):
        raise click.UsageError("Expected exactly one of --box and --domain.")

    def call(state: State, paid: Any) -> tuple[Any, Rows, Json]:
        domain = _box(given["box"]) if given["domain"] is None else read_domain(given["domain"])[0]
        publisher = public(domain, **arguments(public, given), key=stream_key(state.key, given["stream"]))
        frame = source_of(given, twice=state.kept)
        state.check(frame, given["domain"])
        of = {"ledger": paid, "stream": given["stream"], "part": given["part"]}
        found = replay(publisher, frame, **arguments(replay, given), **of)
        return found, partial(writing.write_csv, columns=found.columns), {}

    with running({**FLAGS, **flags(fastdp.Csv), **flags(public), **flags(replay)}):
        _publish("synthesize", given, writing.description_of, call)


def _box(corners: tuple[float, ...]) -> Box:
    try:
        return Box(corners[:2], corners[2:])
    except ParameterError:
        typed = " ".join(repr(each).removesuffix(".0") for each in corners)
        raise ParameterError(f"--box {typed}: expected finite X0 below X1 and Y0 below Y1") from None


def _plan(**given: Any) -> None:
    with running(flags(fastdp.plan)):
        click.echo(str(fastdp.plan(**arguments(fastdp.plan, given))))


IN = click.Argument(["source"], metavar="IN")
CSV = options({"": fastdp.Csv})
CONFIDENCE = click.Option(
    ["--confidence"], type=float, metavar="X", default=0.95, show_default=True, help="Of the intervals."
)
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
OF_PLACES = [
    click.Option(
        ["--box"], nargs=4, type=float, metavar="X0 Y0 X1 Y1",
        help="Public region of the points: lower left and upper right corner. Never take it from the data.",
    ),
    click.Option(
        ["--domain"], type=FILE, metavar="FILE",
        help="In place of --box: a public GeoJSON file in longitude and latitude. Polygons: synthetic points lie in "
        "their area. Lines: on them. Needs shapely: pip install 'fastdp-streams[geo]'.",
    ),
    click.Option(
        ["--method"], type=click.Choice(list(POINTS)), default="phdstream", show_default=True,
        help="phdstream counts each batch as it comes; adaptive, whose cells follow counts of every few batches, has "
        "less error behind a large first file and with a hundred batches or more.",
    ),
]  # fmt: skip
_METHODS = {"": fastdp.release, **{name: getattr(fastdp, kind) for name, kind in METHODS.items()}}
release = _command("release", _METHODS, _release, [IN, *shared()[:1], *OF_STREAMS, *shared()[1:], *CSV], OF_RELEASE)
synthesize = _command(
    "synthesize",
    POINTS,
    _synthesize,
    [IN, *shared()[:1], *OF_PLACES, *options({"": replay}), *shared()[1:], *CSV],
    OF_POINTS,
)
plan = _command("plan", {"": fastdp.plan}, _plan, [], "")
totals, counts, means, aggregate = (
    _command(
        name, {"": getattr(fastdp, name)}, partial(_table, name), [IN, *shared("part"), CONFIDENCE, *CSV], OF_TABLES
    )
    for name in ("totals", "counts", "means", "aggregate")
)
