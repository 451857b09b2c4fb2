"""``fastdp release``: a file's column in, its private release out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastdp.cli.errors import plain_errors, terminated_cleanly
from fastdp.cli.options import (
    LedgerOptions,
    check_secrets,
    declared,
    force_option,
    key_file_option,
    ledger_options,
    options_of,
    quiet_option,
    seed_option,
    state_option,
    with_options,
)

if TYPE_CHECKING:
    from fastdp.cli.release_run import Publisher
    from fastdp.guarantee import Guarantee
    from fastdp.streams.publisher import StreamPublisher

#: Options that not every method has, and the methods that have them.
USERS = {
    "threshold": ("adaptive", "pak", "topl"),
    "max_range": ("adaptive", "tops", "topl"),
    "expected_length": ("adaptive", "tops"),
    "every": ("adaptive", "tops"),
    "fan_out": ("tops",),
    "prune": ("tops",),
    "length": ("pak",),
    "delta": ("pak",),
    "resolution": ("adaptive", "tops", "pak"),
    "nonfinite": ("adaptive", "tops"),
    "sensitivity": ("adaptive",),
    "contributions": ("adaptive", "tops"),
    "season": ("adaptive",),
}
#: Options on which the output depends, besides the values and the key.
SETTINGS = ("method", "epsilon", "bound", "holdout", *USERS)

EPILOG = """
\b
Examples
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000
  fastdp release trips.parquet --column fare -o private.parquet --epsilon 0.1 --bound 500
  fastdp release people_a_minute.csv -o private.csv --epsilon 0.5 --sensitivity 1
  zcat log.gz | fastdp release - -o - --epsilon 0.05 --bound 2000 > private.csv
  fastdp release log.csv -o - --state log.state --epsilon 0.05 --bound 2000 > private.csv
  tail -f log.txt | fastdp release - -o - --follow --threshold 50 --epsilon 0.05 --bound 2000
  fastdp release meter.npy -o private.parquet --values both --index --epsilon 0.1 --bound 10000
  fastdp release meter.npy -o private.npy --method pak --length 1000000 --epsilon 1 --bound 10000
  fastdp release meter.npy -o private.npy --method topl --epsilon 1 --bound 10000
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000 --ledger budget --stream meter --limit 1
"""


def _prune(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """A whole number, or the word."""
    if value == "optimal":
        return value
    if value.isascii() and value.isdigit():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a whole number nor 'optimal'.", ctx, param)


_OPTIONS = (
    click.argument("source", metavar="IN"),
    *declared(
        """
-o/--output OUT required  Output file, or - for CSV on standard output.
--epsilon :float required  Privacy loss for one value of the stream.
--bound :float  Public upper bound of a value; values outside [0, bound] are clipped. Take it from what is known of
    the quantity, never from the data.
--sensitivity S:float  In place of --bound: each value counts events, and one event moves one value by at most S (1
    for people a minute). Nothing is clipped or held out, and every value is published (adaptive).
--contributions W:int = 1  Epsilon is for any W consecutive values together (adaptive, tops), or with --sensitivity
    for any W events.
--column C  Column: a name or a zero-based number. Needed where there are several.
--method (adaptive|tops|pak|topl) = adaptive  The system: adaptive, whose blocks follow the stream; tops, the paper's;
    pak, the differences of private running sums of a stream of known length. All three trust this computer with the
    values; topl simulates the local model, where each value is hidden by a report of its own, with far more noise.
--holdout M:int  First values, which choose the threshold; published values begin after them. adaptive releases up to
    an eighth of them as noisy sums, pak the noisy sum of all.  [default: none with --threshold; none for adaptive
    where IN says how many values it holds (.npy, .npz, .parquet): the threshold then takes up to a tenth of epsilon;
    fewer with --expected-length or --every; else 65,536]
--threshold X:float  Publicly known threshold, in units of a value: values above it are clipped to it, and none is
    withheld (not tops).  It must not come from the data.
--max-range R:int  Longest range of values whose sum will be asked for (not pak).  [default: 2^20, or fewer with
    --expected-length or --every; the input's length where adaptive withholds none because IN says it]
--expected-length N:int  About how many values will come, a public number: chooses the defaults of --holdout and
    --max-range (adaptive, tops).
--every T  Time between two values, such as 30min, a public number: without --expected-length the stream is planned
    for a year (adaptive, tops).
--season N:float  After how many values the stream repeats, a public number (1440 for counts a minute with a day):
    values follow that pattern where released sums show it (adaptive).
--fan-out B:int = 16  Tree fan-out (tops).
--prune [S|optimal] = optimal  Lowest levels to prune: noise is added once per B^S values (tops).
--length N:int  Values of the whole stream, the hold-out included: a public number (pak, which needs it).
--delta D:float  The threshold's share of the guarantee (pak).  [default: 1 / length^2]
--resolution X:float  Step to which values are rounded (not topl).  [default: bound / 2^32]
--nonfinite (raise|zero) = raise  Missing values, NaN and infinity: stop with an error, or count as 0 (adaptive,
    tops).
--values (published|revised|both) = published  What is written: values as they are published; revised ones, which use
    everything that was released and are more accurate; or both, in two columns. Revised values need the end of the
    input: it is kept in memory.
--index  A first column: the place of each value in the input, from 0.
--follow  IN - is a live pipe: each line is answered at once. Needs -o - and no --state (which holds standard output
    back).
""",
        prune={"callback": _prune},
    ),
    *(seed_option, key_file_option, state_option),
    *declared("""
--chunk-size N:from1 = 65536  Values in memory at a time; the output does not depend on it.
"""),
    *(quiet_option, force_option, *ledger_options),
)


def release_command(function: Callable[..., None]) -> click.Command:
    """The command with all of them."""
    return click.command(epilog=EPILOG)(with_options(_OPTIONS)(function))


@release_command
@click.pass_context
def release(
    ctx: click.Context,
    /,
    source: str,
    output: str,
    epsilon: float,
    bound: float | None,
    column: str | None,
    method: str,
    holdout: int | None,
    values: str,
    index: bool,
    follow: bool,
    seed: int | None,
    key_file: Path | None,
    state: Path | None,
    chunk_size: int,
    quiet: bool,
    force: bool,
    **others: Any,
) -> None:
    """Release a column of numbers under differential privacy.

    IN is a .csv, .csv.gz, .txt, .parquet, .npy or .npz file, or - for lines on standard input. Text may
    have a heading. OUT is a .csv, .csv.gz, .npy, .npz or .parquet file, or - for standard output; it appears
    only when everything went well, and says where it begins, theta and the guarantee: in Parquet's schema and in the
    archive under "fastdp", beside the others in OUT.json. With --state a command that was killed can be run again on
    the same input: it starts over and writes the same bytes. Standard output is then held back until the input has
    ended.

    The first M values choose a threshold (none with --sensitivity); each later value is published as one private
    value. Where IN says how many values it holds, adaptive withholds none: all of them choose the threshold, in a
    pass of their own. Values are read and written in chunks, in constant memory.
    """
    options = _options(ctx, method)
    if (bound is None) == (ctx.params["sensitivity"] is None):
        raise click.UsageError("Expected either --bound, or for counts of events --sensitivity.")
    check_secrets(seed, key_file)
    _check_follow(source, output, state, values, follow=follow)
    budget = LedgerOptions(**{name: value for name, value in others.items() if name not in USERS})
    with plain_errors(), terminated_cleanly():
        import fastdp
        from fastdp.cli.errors import check_separate
        from fastdp.cli.release_run import Run
        from fastdp.cli.resume import noise_of
        from fastdp.cli.writers import check_suffix, description_of
        from fastdp.streams import METHODS

        check_separate({**ctx.params, "description": description_of(output)})
        check_suffix(output)
        run = Run(method, source, output, column, chunk_size, values, index, follow, quiet, force)
        if (
            method == "adaptive"
            and holdout is None
            and options["threshold"] is None
            and bound is not None
            and run.counted
        ):
            with run.opened() as opened:
                size = opened.total
            # The whole input is one release: of a longer one nothing may be published under this one's noise.
            resume, key = noise_of(ctx, "fastdp release", SETTINGS, whole=size)
            system = _whole(size, key, epsilon, bound, options, opened.name)
        else:
            resume, key = noise_of(ctx, "fastdp release", SETTINGS)
            given = {**options} if holdout is None else {**options, "holdout": holdout}
            if "season" in given:
                given["perturber"] = _blocks(given.pop("season"))
            kind: Any = getattr(fastdp, METHODS[method])
            system = kind(epsilon=epsilon, bound=bound, key=key, **given)
        begin = time.perf_counter()
        publisher = run.publish(system, resume, budget)
        if not quiet:
            spent = budget.summary(system)
            duration = time.perf_counter() - begin
            click.echo(_summary(publisher, system.guarantee, output, duration, spent), err=True)


def _check_follow(source: str, output: str, state: Path | None, values: str, *, follow: bool) -> None:
    """A live pipe is answered as it comes; click.UsageError where it could not be."""
    if not follow:
        return
    if source != "-" or output != "-":
        raise click.UsageError("--follow needs IN - and -o -: a file appears only when everything went well.")
    if state is not None:
        raise click.UsageError("--follow and --state exclude each other: --state holds standard output back.")
    if values != "published":
        raise click.UsageError("--follow publishes values as they come: expected --values published.")


def _whole(size: int, key: Any, epsilon: float, bound: float, options: dict[str, Any], name: str) -> Any:
    """The release of an input of known length, of which nothing is withheld."""
    from fastdp.errors import DataError
    from fastdp.streams.parameters import DEFAULT_RANGE
    from fastdp.streams.release import WholeStream

    if not size:
        raise DataError(f"{name}: empty, holds no values")
    longest = options["max_range"] or min(DEFAULT_RANGE, size)
    given = {each: options[each] for each in ("contributions", "resolution", "nonfinite")}
    return WholeStream(size, epsilon, bound, longest, perturber=_blocks(options["season"]), key=key, **given)


def _blocks(season: float | None) -> Any:
    """The perturber of Adaptive."""
    from fastdp.perturbers import Blocks

    return Blocks(season=season)


def _options(ctx: click.Context, method: str) -> dict[str, Any]:
    """Those of the method; others that were given although it has no use for them are refused."""
    options = options_of(ctx, method, USERS)
    if method == "topl" and options["max_range"] is None:
        del options["max_range"]
    if method == "pak":
        if options["length"] is None:
            raise click.UsageError("--method pak needs --length, the number of values of the whole stream.")
        if options["delta"] is None:
            options["delta"] = 1.0 / max(2, options["length"]) ** 2
    return options


def _block(publisher: StreamPublisher) -> str:
    """Values under one noisy sum."""
    from fastdp.perturbers import Blocks

    if isinstance(publisher.composition.perturber, Blocks):
        return f"follows the stream; {publisher.block:,} values so far"
    return f"{publisher.block:,}"


def _size(publisher: Publisher) -> tuple[str, str]:
    """What noise is scaled to."""
    sensitivity = getattr(publisher, "sensitivity", None)
    if sensitivity is not None:
        return "sensitivity", f"{sensitivity:g} (an event moves one value by at most so much; nothing was clipped)"
    return "threshold", f"{publisher.threshold:g} (values above it were clipped to it)"


def _summary(
    publisher: Publisher, guarantee: Guarantee, output: str, duration: float, spent: list[tuple[str, str]]
) -> str:
    from fastdp.cli.release_run import as_table, rate, seconds
    from fastdp.streams.pak import PAK
    from fastdp.streams.topl_publisher import ToPL

    if isinstance(publisher, ToPL):
        error = math.sqrt(publisher.server.value_variance)
        particulars = [("standard error", f"at most {error:.4g} for one value, times sqrt(n) for a sum of n values")]
    elif isinstance(publisher, PAK):
        particulars = [("resolution", f"{publisher.resolution:g}")]
    else:
        particulars = [("block length", _block(publisher)), ("resolution", f"{publisher.resolution:g}")]
    return as_table(
        (
            ("values read", f"{publisher.n_seen:,}"),
            ("held out", f"{publisher.holdout:,}"),
            ("published", f"{publisher.n_seen - publisher.holdout:,}"),
            _size(publisher),
            ("guarantee", str(guarantee)),
            *spent,
            *particulars,
            ("time", f"{seconds(duration)}, {rate(publisher.n_seen, duration)}, reading and writing included"),
            ("output", "standard output" if output == "-" else output),
        )
    )
