"""``fastdp release``: read a file's column, write its private release."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import fastdp
from fastdp import streams
from fastdp._version import __version__
from fastdp.cli.ledger_command import Account
from fastdp.cli.options import fields_of, options_of, parameters_of, with_options
from fastdp.cli.resume import Resume, noise_of
from fastdp.cli.terminal import (
    STANDARD,
    as_table,
    check_picture,
    check_separate,
    printable,
    progress,
    rate,
    running,
    seconds,
)
from fastdp.cli.writers import COLUMNS, check_suffix, description_of, write_target
from fastdp.data.column import as_floats
from fastdp.data.files import live_numbers, read_numbers
from fastdp.errors import DataError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Json
from fastdp.local.topl import ToPL
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks
from fastdp.perturbers.block_noise import Total
from fastdp.releases.release import Release
from fastdp.streams.pak import PAK
from fastdp.streams.parameters import DEFAULT_RANGE
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.release import WholeStream

Publisher = StreamPublisher | ToPL | PAK
METHODS: dict[str, Callable[..., Publisher]] = {
    name: getattr(fastdp, public) for name, public in streams.METHODS.items()
}

#: Columns of the output for each choice of ``--values``.
VALUES = {"published": ("value",), "revised": ("revised",), "both": ("value", "revised")}
#: Inputs that say how many values they hold.
COUNTED = (".npy", ".npz", ".parquet", ".pq")
EPILOG = """
\b
Examples
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000
  fastdp release trips.parquet --column fare -o private.parquet --epsilon 0.1 --bound 500 --values both
  fastdp release people_a_minute.csv -o private.csv --epsilon 0.5 --sensitivity 1
  zcat log.gz | fastdp release - -o - --state log.state --epsilon 0.05 --bound 2000 > private.csv
  tail -f log.txt | fastdp release - -o - --follow --threshold 50 --epsilon 0.05 --bound 2000
  fastdp release meter.npy -o private.npy --method pak --length 1000000 --epsilon 1 --bound 10000
  fastdp release meter.npy -o private.npy --epsilon 0.1 --bound 10000 --ledger budget --stream meter --limit 1
"""
OPTIONS = """
-o/--output OUT required  Output file, or - for CSV on standard output.
--epsilon
--bound  Public upper bound of a value; values outside [0, bound] are clipped. Take it from what is known of the
    quantity, never from the data.
--sensitivity S:float  In place of --bound: each value counts events, and one event moves one value by at most S (1
    for people a minute). Nothing is clipped or held out, and every value is published.
--contributions
--column C  Column: a name or a zero-based number. Needed where there are several.
--method  The system: adaptive, whose blocks follow the stream; tops, the paper's; pak, the differences of private
    running sums of a stream of known length. All three trust this computer with the values; topl simulates the local
    model, where each value is hidden by a report of its own, with far more noise.
--holdout M:int  First values, which choose the threshold; published values begin after them.  [default: none with
    --threshold; none for adaptive where IN says how many values it holds (.npy, .npz, .parquet): the threshold then
    takes up to a tenth of epsilon; fewer with --expected-length or --every; else 65,536]
--threshold X:float  Publicly known threshold, in units of a value: values above it are clipped to it, and none is
    withheld.  It must not come from the data.
--max-range --expected-length --every
--season N:float  After how many values the stream repeats, a public number (1440 for counts a minute with a day):
    values follow that pattern where released sums show it (adaptive).
--fan-out
--prune [S|optimal]  Lowest levels to prune: noise is added once per B^S values.
--length
--delta D:float  adaptive: above 0 noise is Gaussian and the release (epsilon, delta)-DP.  pak: the threshold's
    share of the guarantee.  [default: 0; of pak 1 / length^2]
--resolution
--nonfinite (raise|zero)
--values (published|revised|both) = published  Form of the output: values as they are published; revised ones, which
    use everything that was released and are more accurate; or both, in two columns. Revised values need the end of
    the input: it is kept in memory.
--plot FILE:path as picture  Draw the means of up to 1,000 stretches of the output, with their intervals; the suffix
    chooses the format, such as .png. The input is kept in memory. Needs matplotlib: pip install
    'fastdp-streams[plot]'.
--follow  IN - is a live pipe: each line is answered at once. Needs -o - and no --state (which holds standard output
    back).
--seed --key-file --state
--chunk-size N:from1 = 65536  Values in memory at a time; the output does not depend on it.
--quiet --force --ledger --stream --part --limit --limit-delta --ledger-key-file
"""


def _prune(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    if value != "optimal" and not (value.isascii() and value.isdigit()):
        raise click.BadParameter(f"{value!r} is neither a whole number nor 'optimal'.", ctx, param)
    return value if value == "optimal" else int(value)


@click.command(epilog=EPILOG)
@click.argument("source", metavar="IN")
@with_options(
    OPTIONS,
    METHODS,
    method={"type": click.Choice(list(METHODS)), "default": "adaptive", "show_default": True},
    prune={"callback": _prune},
)
@click.pass_context
def release(ctx: click.Context, /, **given: Any) -> None:
    """Release a column of numbers under differential privacy.

    IN is a .csv, .csv.gz, .txt, .parquet, .npy or .npz file, or - for lines on standard input. Text may have a
    heading. OUT is a .csv, .csv.gz, .npy, .npz or .parquet file, or - for standard output; it appears only when
    everything went well, and says where it begins, theta and the guarantee: in Parquet's schema and in the archive
    under "fastdp", beside the others in OUT.json. With --state a command that was killed can be run again on the same
    input: it starts over and writes the same bytes. Standard output is then held back until the input has ended.

    The first M values choose a threshold (none with --sensitivity); each later value is published as one private
    value. Where IN says how many values it holds, adaptive withholds none: all of them choose the threshold, in a
    pass of their own. Values are read and written in chunks, in constant memory; a .npz output is held in memory.
    """
    options, account = options_of(ctx, METHODS), Account.of(given)
    if given["season"] is not None and given["method"] != "adaptive":
        raise click.UsageError(f"--season does not apply to --method {given['method']}.")
    if ("bound" in options) == (given["sensitivity"] is not None):
        raise click.UsageError("Expected either --bound, or for counts of events --sensitivity.")
    if given["follow"]:
        if given["source"] != STANDARD or given["output"] != STANDARD:
            raise click.UsageError("--follow needs IN - and -o -: a file appears only when everything went well.")
        if given["state"] is not None:
            raise click.UsageError("--follow and --state exclude each other: --state holds standard output back.")
        if given["values"] != "published":
            raise click.UsageError("--follow publishes values as they come: expected --values published.")
        if given["picture"] is not None:
            raise click.UsageError("--follow and --plot exclude each other: a picture needs the end of the input.")
    run = Run(**fields_of(Run, given))
    with running():
        check_separate({**given, "description": description_of(run.output)})
        check_suffix(run.output)
        size = run.size(options)
        # The full input is one release: of a longer one nothing may be published under this one's noise.
        whole = {} if size is None else {"whole": size}
        resume, key = noise_of(ctx, "fastdp release", ["method", "season", *parameters_of(ctx, METHODS)], **whole)
        if run.picture is not None:
            check_picture(run.picture, overwrite=run.force or resume.wrote(run.output))
        system = run.system(options, size, key)
        begin = time.perf_counter()
        publisher = run.publish(system, resume, account)
        if not run.quiet:
            told = _summary(publisher, system.guarantee, run, time.perf_counter() - begin, account)
            click.echo(told, err=True)


@dataclass(frozen=True)
class ValueSource:
    """An open input: ``chunks`` of float64[n], and their number if known."""

    name: str
    chunks: Iterator[Floats]
    total: int | None = None


@contextmanager
def open_values(path: str, column: str | None, chunk_size: int, *, live: bool) -> Iterator[ValueSource]:
    """The numbers of an input by chunk; those of a live pipe as they arrive."""
    if live:
        yield ValueSource("standard input", live_numbers(sys.stdin.buffer, column))
        return
    values = read_numbers(path, column)
    chunks = (as_floats(values[i : i + chunk_size]) for i in range(0, values.size, chunk_size))
    yield ValueSource("standard input" if path == STANDARD else path, chunks, values.size)


@dataclass(frozen=True)
class Run:
    """Options about reading and writing, and their run."""

    method: str
    source: str
    output: str
    column: str | None
    season: float | None
    chunk_size: int
    values: str
    picture: Path | None
    follow: bool
    quiet: bool
    force: bool

    def opened(self) -> AbstractContextManager[ValueSource]:
        """The open input."""
        return open_values(self.source, self.column, self.chunk_size, live=self.follow)

    def size(self, options: Json) -> int | None:
        """Number of values, if counted and all choose the threshold."""
        known = self.method == "adaptive" and self.source.lower().endswith(COUNTED)
        if not known or "bound" not in options or {"holdout", "threshold"} & options.keys():
            return None
        with self.opened() as opened:
            _check_count(opened.name, opened.total or 0, 0)
            return opened.total

    def system(self, options: Json, size: int | None, key: Key) -> Publisher | WholeStream:
        """The publisher, or a :class:`WholeStream` if the size is known."""
        if self.season is not None:
            options["perturber"] = Blocks(season=self.season)
        if size is not None:
            if unused := sorted({"every", "expected_length"} & options.keys()):
                option = unused[0].replace("_", "-")
                raise click.UsageError(
                    f"--{option} chooses a hold-out, and IN says how many values it holds: expected --holdout as "
                    f"well, or no --{option}."
                )
            given = {"max_range": min(DEFAULT_RANGE, size), **options, "key": key}
            return WholeStream(size, **fields_of(WholeStream, given))
        if self.method == "pak":
            if "length" not in options:
                raise click.UsageError("--method pak needs --length, the number of values of the whole stream.")
            options = {"delta": 1.0 / max(2, options["length"]) ** 2, **options}
        return METHODS[self.method](key=key, **options)

    def publish(self, system: Publisher | WholeStream, resume: Resume, account: Account) -> Publisher:
        """Read, publish and write; the publisher in its last state."""
        made: list[Publisher] = []
        kept: list[Release] = []
        reservation: Json | None = None
        shorter = ", --expected-length," if isinstance(system, (StreamPublisher, WholeStream)) else ""

        def released(opened: ValueSource) -> Generator[tuple[Array, ...], None, None]:
            nonlocal reservation
            if opened.total is not None:
                # Their number is public, so an error about it costs nothing.
                _check_count(opened.name, opened.total, system.holdout, shorter)
                if isinstance(system, PAK):
                    system.check_room(opened.total)
            with account.paid(system, printable(self.source), resume) as reservation:
                if isinstance(system, WholeStream):
                    with self.opened() as first:
                        made.append(system.publisher(self._finite(system, first)))
                else:
                    made.append(system)
                chunks = self._columns(opened, system, made[0], self._read(opened, resume), kept)
                yield from (columns for columns in chunks if columns[0].size)
                _check_count(opened.name, made[0].n_seen, system.holdout, shorter)

        with self.opened() as opened, closing(released(opened)) as chunks:
            write_target(
                self.output,
                chunks,
                force=self.force or resume.wrote(self.output),
                record=(lambda: resume.record(self.output, reservation)) if resume.kept else None,
                columns=VALUES[self.values],
                # Public, and the same at each run.
                describe=lambda: {
                    "fastdp": __version__,
                    "method": self.method,
                    "offset": system.holdout,
                    "threshold": made[0].threshold,
                    "guarantee": system.guarantee.to_dict(),
                },
                live=self.follow,
            )
        if self.picture is not None:
            # After --state has recorded the input, as every output.
            kept[0].plot(self.picture)
        return made[0]

    def _read(self, opened: ValueSource, resume: Resume) -> Iterator[Floats]:
        for chunk in with_progress(opened, quiet=self.quiet):
            resume.follow(chunk)
            yield chunk

    def _finite(self, system: WholeStream, opened: ValueSource) -> Iterator[Floats]:
        before = 0
        for chunk in with_progress(opened, quiet=self.quiet):
            with self._named(opened, system, before, chunk):
                yield system.composition.finite(chunk, before, "values")
            before += chunk.size

    def _columns(
        self,
        opened: ValueSource,
        system: Publisher | WholeStream,
        publisher: Publisher,
        chunks: Iterator[Floats],
        kept: list[Release],
    ) -> Iterator[tuple[Floats, ...]]:
        """Columns of the output by chunk; revised values, pictures and totals need a release, added to `kept`."""
        one_sum = isinstance(publisher, StreamPublisher) and isinstance(publisher.composition.perturber, Total)
        if self.values == "published" and self.picture is None and not one_sum:
            for chunk in chunks:
                with self._named(opened, publisher, publisher.n_seen, chunk):
                    published = _publish_values(publisher, chunk)
                yield (published,)
            return
        values = np.concatenate([np.empty(0), *chunks])
        _check_count(opened.name, values.size, publisher.holdout)
        with self._named(opened, publisher, 0, values):
            release = publisher.release(values)
        kept.append(system.complete(release) if isinstance(system, WholeStream) else release)
        columns = [getattr(kept[0], COLUMNS[name]) for name in VALUES[self.values]]
        for begin in range(0, len(kept[0]), self.chunk_size):
            yield tuple(column[begin : begin + self.chunk_size] for column in columns)

    @contextmanager
    def _named(
        self, opened: ValueSource, system: Publisher | WholeStream, before: int, chunk: Floats
    ) -> Iterator[None]:
        """Name the index in the input in a DataError about a value."""
        try:
            yield
        except DataError:
            bad = np.flatnonzero(~np.isfinite(chunk))
            if not bad.size:
                raise
            raise DataError(
                f"{opened.name}: value {before + bad[0] + 1:,} is missing, NaN or infinite; expected finite numbers"
                + " (or --nonfinite zero, which counts such values as 0)" * (not isinstance(system, PAK))
            ) from None


def with_progress(source: ValueSource, *, quiet: bool) -> Iterator[Floats]:
    """The chunks of `source`, with a progress bar."""
    with progress(source.name, source.total, " values", quiet=quiet) as bar:
        for chunk in source.chunks:
            yield chunk
            bar.update(chunk.size)


def _publish_values(publisher: Publisher, chunk: Floats) -> Floats:
    if not isinstance(publisher, PAK):
        return publisher.publish(chunk)
    before = publisher.running_sum
    sums = publisher.publish(chunk)
    if before is None and sums.size and publisher.holdout:
        # The hold-out's sum is where the running sums begin.
        before, sums = float(sums[0]), sums[1:]
    return np.diff(sums, prepend=0.0 if before is None else before)


def _check_count(name: str, count: int, holdout: int, shorter: str = "") -> None:
    if not count:
        raise DataError(f"{name}: empty, holds no values")
    if count <= holdout:
        raise DataError(
            f"{name}: {count:,} values came, all within the hold-out of {holdout:,}, so nothing can be "
            f"published; expected more values, a smaller --holdout{shorter} or a public --threshold"
        )


def _summary(publisher: Publisher, guarantee: Guarantee, run: Run, duration: float, account: Account) -> str:
    size = ("threshold", f"{publisher.threshold:g} (values above it were clipped to it)")
    if isinstance(publisher, ToPL):
        error = math.sqrt(publisher.server.value_variance)
        particulars = [("standard error", f"at most {error:.4g} for one value, times sqrt(n) for a sum of n values")]
    else:
        particulars = [("resolution", f"{publisher.resolution:g}")]
    if isinstance(publisher, StreamPublisher):
        follows = "follows the stream; {:,} values so far"
        block = follows if isinstance(publisher.composition.perturber, Blocks) else "{:,}"
        particulars.insert(0, ("block length", block.format(publisher.block)))
        if publisher.sensitivity is not None:
            told = f"{publisher.sensitivity:g} (an event moves one value by at most so much; nothing was clipped)"
            size = ("sensitivity", told)
    return as_table(
        (
            ("values read", f"{publisher.n_seen:,}"),
            ("held out", f"{publisher.holdout:,}"),
            ("published", f"{publisher.n_seen - publisher.holdout:,}"),
            size,
            ("guarantee", str(guarantee)),
            *account.summary(publisher),
            *particulars,
            ("time", f"{seconds(duration)}, {rate(publisher.n_seen, duration)}, reading and writing included"),
            ("output", "standard output" if run.output == STANDARD else run.output),
            *([] if run.picture is None else [("picture", str(run.picture))]),
        )
    )
