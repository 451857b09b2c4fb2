"""``fastdp release``: a file's column in, its private release out."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastdp.cli.budget import LedgerOptions
from fastdp.cli.errors import legible, plain_errors, terminated_cleanly
from fastdp.cli.options import (
    check_secrets,
    force_option,
    key_file_option,
    ledger_options,
    options_of,
    quiet_option,
    seed_option,
    state_option,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdp.cli.resume import Resume
    from fastdp.systems.pak.publisher import PAK
    from fastdp.systems.stream.publisher import StreamPublisher
    from fastdp.systems.topl.publisher import ToPL

    Publisher = StreamPublisher | ToPL | PAK

METHODS = ("adaptive", "tops", "pak", "topl")
#: Options that not every method has, and the methods that have them.
USERS = {
    "max_range": ("adaptive", "tops", "topl"),
    "fan_out": ("tops",),
    "prune": ("tops",),
    "length": ("pak",),
    "delta": ("pak",),
    "resolution": ("adaptive", "tops", "pak"),
    "nonfinite": ("adaptive", "tops"),
    "sensitivity": ("adaptive",),
    "contributions": ("adaptive", "tops"),
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


@click.command(epilog=EPILOG)
@click.argument("source", metavar="IN")
@click.option("-o", "--output", metavar="OUT", required=True, help="Output file, or - for CSV on standard output.")
@click.option("--epsilon", type=float, required=True, help="Privacy loss for one value of the stream.")
@click.option(
    "--bound",
    type=float,
    help="Public upper bound of a value; values outside [0, bound] are clipped. "
    "Take it from what is known of the quantity, never from the data.",
)
@click.option(
    "--sensitivity",
    type=float,
    metavar="S",
    help="In place of --bound: each value counts events, and one event moves one value by at most S (1 for people a "
    "minute). Nothing is clipped or held out, and every value is published (adaptive).",
)
@click.option(
    "--contributions",
    type=int,
    metavar="W",
    default=1,
    show_default=True,
    help="Epsilon is for any W consecutive values together (adaptive, tops), or with --sensitivity for any W events.",
)
@click.option("--column", metavar="C", help="Column: a name or a zero-based number. Needed where there are several.")
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="adaptive",
    show_default=True,
    help="The system: adaptive, whose blocks follow the stream; tops, the paper's; pak, the differences of private "
    "running sums of a stream of known length. All three trust this computer with the values; topl simulates the "
    "local model, where each value is hidden by a report of its own, with far more noise.",
)
@click.option(
    "--holdout",
    type=int,
    metavar="M",
    default=65_536,
    show_default=True,
    help="First values, which choose the threshold; published values begin after them. adaptive releases up to an "
    "eighth of them as noisy sums, pak the noisy sum of all.",
)
@click.option(
    "--max-range",
    type=int,
    metavar="R",
    default=2**20,
    show_default=True,
    help="Longest range of values whose sum will be asked for (not pak).",
)
@click.option("--fan-out", type=int, metavar="B", default=16, show_default=True, help="Tree fan-out (tops).")
@click.option(
    "--prune",
    callback=_prune,
    metavar="[S|optimal]",
    default="optimal",
    show_default=True,
    help="Lowest levels to prune: noise is added once per B^S values (tops).",
)
@click.option(
    "--length",
    type=int,
    metavar="N",
    help="Values of the whole stream, the hold-out included: a public number (pak, which needs it).",
)
@click.option(
    "--delta", type=float, metavar="D", help="The threshold's share of the guarantee (pak).  [default: 1 / length^2]"
)
@click.option(
    "--resolution",
    type=float,
    metavar="X",
    help="Step to which values are rounded (not topl).  [default: bound / 2^32]",
)
@click.option(
    "--nonfinite",
    type=click.Choice(["raise", "zero"]),
    default="raise",
    show_default=True,
    help="Missing values, NaN and infinity: stop with an error, or count as 0 (adaptive, tops).",
)
@seed_option
@key_file_option
@state_option
@click.option(
    "--chunk-size",
    type=click.IntRange(min=1),
    metavar="N",
    default=65_536,
    show_default=True,
    help="Values in memory at a time; the output does not depend on it.",
)
@quiet_option
@force_option
@ledger_options
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
    only when everything went well. With --state a command that was killed can be run again on the same input: it
    starts over and writes the same bytes. Standard output is then held back until the input has ended.

    The first M values choose a threshold (none with --sensitivity); each later value is published as one private
    value. Values are read and written in chunks, in constant memory.
    """
    options = _options(ctx, method)
    if (bound is None) == (ctx.params["sensitivity"] is None):
        raise click.UsageError("Expected either --bound, or for counts of events --sensitivity.")
    if bound is None and ctx.get_parameter_source("holdout") is ParameterSource.DEFAULT:
        holdout = None
    check_secrets(seed, key_file)
    budget = LedgerOptions(**{name: value for name, value in others.items() if name not in USERS})
    with plain_errors(), terminated_cleanly():
        from fastdp.cli.paths import check_separate
        from fastdp.cli.resume import noise_of
        from fastdp.cli.writers import check_suffix
        from fastdp.systems.release import METHODS as SYSTEMS

        check_separate(ctx.params)
        check_suffix(output)
        resume, key = noise_of(ctx, "fastdp release", SETTINGS)
        system: Any = SYSTEMS[method]
        publisher: Publisher = system(epsilon=epsilon, bound=bound, holdout=holdout, key=key, **options)
        begin = time.perf_counter()
        _publish(publisher, source, output, column, chunk_size, resume, budget, quiet=quiet, force=force)
        if not quiet:
            spent = budget.summary(publisher)
            click.echo(_summary(publisher, output, time.perf_counter() - begin, spent), err=True)


def _options(ctx: click.Context, method: str) -> dict[str, Any]:
    """Those of the method; others that were given although it has no use for them are refused."""
    options = options_of(ctx, method, USERS)
    if method == "pak":
        if options["length"] is None:
            raise click.UsageError("--method pak needs --length, the number of values of the whole stream.")
        if options["delta"] is None:
            options["delta"] = 1.0 / max(2, options["length"]) ** 2
    return options


def _publish(
    publisher: Publisher,
    source: str,
    output: str,
    column: str | None,
    chunk_size: int,
    resume: Resume | None,
    budget: LedgerOptions,
    *,
    quiet: bool,
    force: bool,
) -> None:
    import numpy as np

    from fastdp.cli.progress import watched
    from fastdp.cli.writers import open_target
    from fastdp.errors import DataError
    from fastdp.files.readers import open_source
    from fastdp.systems.pak.publisher import PAK

    with ExitStack() as stack:
        opened = stack.enter_context(open_source(source, column, chunk_size))
        record, again = None, False
        reservation: dict[str, Any] | None = None
        if resume is not None:
            again = resume.wrote(output)
            record = lambda: resume.record(output, reservation)  # noqa: E731 - the reservation is made below
        write = stack.enter_context(open_target(output, force=force or again, record=record))
        if opened.unit == "values" and opened.total is not None:
            # Their number is public: what is wrong with it costs nothing.
            _check_count(opened.name, opened.total, publisher)
            if isinstance(publisher, PAK):
                publisher.check_room(opened.total)
        if resume is not None:
            stack.enter_context(resume.unless_refused())
        reservation = stack.enter_context(budget.paid(publisher, legible(source), resume))
        for chunk in watched(opened, quiet=quiet):
            if resume is not None:
                resume.follow(chunk)
            try:
                published = _publish_values(publisher, chunk)
            except DataError:
                bad = np.flatnonzero(~np.isfinite(chunk))
                if not bad.size:
                    raise
                raise DataError(
                    f"{opened.name}: value {publisher.n_seen + bad[0] + 1:,} is missing, NaN or infinite; "
                    f"expected finite numbers{_way_out(publisher)}"
                ) from None
            if published.size:
                write(published)
        _check_count(opened.name, publisher.n_seen, publisher)


def _publish_values(publisher: Publisher, chunk: NDArray[Any]) -> NDArray[Any]:
    """One value for each behind the hold-out; of PAK, as ``PAK.release``, the differences of its running sums."""
    import numpy as np

    from fastdp.systems.pak.publisher import PAK

    if not isinstance(publisher, PAK):
        return publisher.publish(chunk)
    before = publisher.running_sum
    sums = publisher.publish(chunk)
    if before is None and sums.size and publisher.holdout:
        # The hold-out's sum is where the running sums begin.
        before, sums = float(sums[0]), sums[1:]
    return np.diff(sums, prepend=0.0 if before is None else before)


def _check_count(name: str, count: int, publisher: Publisher) -> None:
    """DataError if that many values are too few."""
    from fastdp.errors import DataError

    if not count:
        raise DataError(f"{name}: empty, holds no values")
    if count <= publisher.holdout:
        raise DataError(
            f"{name}: {count:,} values came, all within the hold-out of {publisher.holdout:,}, so nothing can be "
            "published; expected more values, or a smaller --holdout"
        )


def _way_out(publisher: Publisher) -> str:
    """What else can be done about values that are missing."""
    from fastdp.systems.stream.publisher import StreamPublisher

    central = isinstance(publisher, StreamPublisher)
    return " (or --nonfinite zero, which counts such values as 0)" if central else ""


def _block(publisher: StreamPublisher) -> str:
    """Values under one noisy sum."""
    from fastdp.cli.summary import thousands
    from fastdp.perturbers import Blocks

    if isinstance(publisher.composition.perturber, Blocks):
        return f"follows the stream; {thousands(publisher.block)} values so far"
    return thousands(publisher.block)


def _size(publisher: Publisher) -> tuple[str, str]:
    """What noise is scaled to."""
    sensitivity = getattr(publisher, "sensitivity", None)
    if sensitivity is not None:
        return "sensitivity", f"{sensitivity:g} (an event moves one value by at most so much; nothing was clipped)"
    return "threshold", f"{publisher.threshold:g} (values above it were clipped to it)"


def _summary(publisher: Publisher, output: str, duration: float, spent: list[tuple[str, str]]) -> str:
    from fastdp.cli.summary import as_table, rate, seconds, thousands
    from fastdp.systems.pak.publisher import PAK
    from fastdp.systems.topl.publisher import ToPL

    if isinstance(publisher, ToPL):
        error = math.sqrt(publisher.server.value_variance)
        particulars = [("standard error", f"at most {error:.4g} for one value, times sqrt(n) for a sum of n values")]
    elif isinstance(publisher, PAK):
        particulars = [("resolution", f"{publisher.resolution:g}")]
    else:
        particulars = [("block length", _block(publisher)), ("resolution", f"{publisher.resolution:g}")]
    return as_table(
        (
            ("values read", thousands(publisher.n_seen)),
            ("held out", thousands(publisher.holdout)),
            ("published", thousands(publisher.n_seen - publisher.holdout)),
            _size(publisher),
            ("guarantee", str(publisher.guarantee)),
            *spent,
            *particulars,
            ("time", f"{seconds(duration)}, {rate(publisher.n_seen, duration)}, reading and writing included"),
            ("output", "standard output" if output == "-" else output),
        )
    )
