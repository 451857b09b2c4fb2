"""Commands that call a public function on a file: release, tables, points, plan."""

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
from fastdp.cli import TEXTS
from fastdp.cli.options import Public, arguments, flags, options, parameters
from fastdp.cli.places import FLAGS, STANDARD, account, check_apart, check_places, option, paths, shared, spent
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

STREAMS: dict[str, Public] = {name: getattr(fastdp, kind) for name, kind in METHODS.items()}
TABLES: dict[str, Public] = {
    each.__name__: each for each in (fastdp.totals, fastdp.counts, fastdp.means, fastdp.aggregate)
}
POINTS: dict[str, Public] = {"phdstream": fastdp.PHDStream, "adaptive": fastdp.AdaptivePHDStream}
#: Columns of a release's file for each choice of ``--values``.
VALUES = {"published": ("values",), "revised": ("revised",), "both": ("values", "revised")}


def _command(name: str, publics: Mapping[str, Public], run: Any, more: list[click.Parameter]) -> click.Command:
    derived, told = options(publics), TEXTS["commands"][name]
    text = TEXTS["commands"][told.get("text_of", name)].get("text", "")
    for each in derived:
        if each.name == "keys" and each.multiple:
            each.help = TEXTS["options"]["keys"]["help"].replace("\n", " ").strip()
    texts: Json = {"help": f"{told['about']}\n\n{text}", "epilog": f"\b\nExamples\n{told['examples']}"}
    return click.Command(name, params=[*more[:2], *derived, *more[2:]], callback=run, **texts)


def source_of(given: Json, *, twice: bool = False) -> Any:
    """The input, as a :class:`fastdp.Csv` if an option describes one.

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
    taken = {each.name for each in parameters(public)}
    for each in (each for other in others for each in parameters(other)):
        if each.name not in taken and given[each.name] not in (None, ()):
            raise click.UsageError(f"{each.flag} does not apply to --method {given['method']}{because}.")


Rows = Callable[[IO[bytes]], object]


def _publish(command: str, given: Json, described: Any, call: Callable[[State, Any], tuple[Any, Rows, Json]]) -> None:
    """Check paths, `call` under state and ledger, write results."""
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
    public: Public = STREAMS[method] if endless else fastdp.release
    because = "" if endless else " without --follow or --holdout"
    _check_method(given, public, STREAMS.values(), because)
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
        if not given["quiet"]:
            click.echo(f"{path}: {publisher.n_seen} values are recorded; expected those behind them", err=True)
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
    public = TABLES[kind]

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
OF_STREAMS = [
    option("column"),
    option("method", type=click.Choice(list(STREAMS))),
    option("values_as", type=click.Choice(list(VALUES))),
    option("follow"),
]
OF_PLACES = [option("box"), option("domain"), option("points_method", type=click.Choice(list(POINTS)))]
release = _command(
    "release", {"": fastdp.release, **STREAMS}, _release, [IN, *shared()[:1], *OF_STREAMS, *shared()[1:], *CSV]
)
synthesize = _command(
    "synthesize",
    POINTS,
    _synthesize,
    [IN, *shared()[:1], *OF_PLACES, *options({"": replay}), *shared()[1:], *CSV],
)
plan = _command("plan", {"": fastdp.plan}, _plan, [])
totals, counts, means, aggregate = (
    _command(name, {"": public}, partial(_table, name), [IN, *shared("part"), option("confidence"), *CSV])
    for name, public in TABLES.items()
)
