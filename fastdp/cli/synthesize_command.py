"""``fastdp synthesize``: a file of places and times in, private synthetic points for each batch out."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastdp.cli.errors import legible, plain_errors, terminated_cleanly
from fastdp.cli.options import (
    LedgerOptions,
    check_secrets,
    declared,
    key_file_option,
    ledger_options,
    options_of,
    quiet_option,
    seed_option,
    state_option,
    with_options,
)

if TYPE_CHECKING:
    from fastdp.cli.point_files import Batch, PointFolder, PointPicture
    from fastdp.spatial import Domain
    from fastdp.spatial.phdstream import SpatialPublisher

METHODS = ("phdstream", "adaptive")
#: Options that not every method has, and the methods that have them.
USERS = {"counter": ("phdstream",), "period": ("adaptive",), "max_period": ("adaptive",)}
#: Options on which the output depends, besides the events and the key.
SETTINGS = ("method", "epsilon", "box", "batch", "every", "initial", "clip", "max_depth", "sensitivity", *USERS)

EPILOG = """
\b
Examples
  fastdp synthesize pickups.csv.gz -o private --epsilon 1 --box -74.3 40.45 -73.65 40.95 --every 6h
  fastdp synthesize visits.parquet -o private --epsilon 0.5 --box 0 0 10 10 --batch 500 --initial 0.1
  fastdp synthesize check-ins.csv -o private --epsilon 1 --box -180 -90 180 90 --every 1d --format geojson
  fastdp synthesize check-ins.csv -o private --epsilon 1 --domain land.geojson --every 1w --clip --plot private.png
  fastdp synthesize pickups.csv -o private --epsilon 1 --box 0 0 10 10 --every 1h --state pickups.state
  fastdp synthesize pickups.csv -o private --epsilon 1 --box 0 0 10 10 --every 1h --initial 0.1 --method adaptive
"""


def _length(ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    """Seconds, or the number as it is."""
    from fastdp.validation import DAY, FIXED, split_duration

    del ctx, param
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        number, unit = split_duration(given)
    units = {**FIXED, "d": DAY, "w": 7 * DAY}
    if not number or unit not in units:
        raise click.BadParameter(f"{given!r}: expected a length of time such as 90s, 15min, 6h, 1d, 1w, or a number")
    return float(number * units[unit] / units["s"])


_OPTIONS = (
    click.argument("source", metavar="IN"),
    *declared(
        """
-o/--output FOLDER:path required  Folder for the files batch_000, batch_001, ..., with four digits from batch 1,000
    on; made if it is not there.
--epsilon :float required  Privacy loss of all files together.
--box :float  Public region of the points: lower left and upper right corner (longitude first). Take it from what is
    known of the region, never from the data.
--domain FILE:file  In place of --box: a public GeoJSON file in longitude and latitude. Polygons: synthetic points lie
    in their area (land, a city). Lines: on them (streets). Needs shapely: pip install 'fastdp-streams[geo]'.
--batch N:from1  Events in a batch, in the file's order. Which batch an event is in counts as public: the guarantee is
    for one event of a batch, while all others stay in theirs.
--every LENGTH  Length of time of a batch: 90s, 15min, 6h, 1d, 1w, or a plain number in the unit of a numeric column
    of times. Batches begin at its whole multiples, counted from 1970 in UTC. The first and the last batch that hold
    events count as public.
--initial SHARE:float = 0.0  Share of the events that make up the first file (0 to less than 1).
--x COL  Column of x: name or zero-based number.  [default: x, lon, longitude]
--y COL  Column of y.  [default: y, lat, latitude]
--time COL as moment  Column of times, for --every.  [default: time, t, timestamp]
--event COL  Column of events: 1, a point appears; -1, it disappears. Without any, all points appear.  [default:
    event, move]
--sort  Bring rows into the order of time first; otherwise disorder is an error.
--clip  Move points outside the box to its border, outside polygons into a cell near by, beside streets to the nearest
    street; otherwise such points are an error.
--method (phdstream|adaptive) = phdstream  The system: phdstream, which counts each batch as it comes; adaptive, whose
    cells follow counts that are made every few batches. It has less error behind a large first file (--initial) and
    with a hundred batches or more, and far more error with few: an event shows up to --max-period batches late.
--counter (simple|block|binary) = simple  How counts get their noise; simple is best in most cases (phdstream).
--period P:int  Batches from one count to the next (adaptive).  [default: 8 at first, then chosen again at each count]
--max-period P:int = 64  The longest period that may be chosen (adaptive).
--max-depth D:int = 20  How often a cell is halved at most.
--sensitivity K:int = 1  Events of one person that are protected together; a point that comes and goes has two.
--format (csv|npy|parquet|geojson) as kind = csv  Kind of the files.
--plot FILE:path as picture  Draw the synthetic points and the cells after four of the batches, from the first to the
    last; the suffix chooses the format, such as .png. Needs matplotlib: pip install 'fastdp-streams[plot]'.
""",
        box={"nargs": 4, "metavar": "X0 Y0 X1 Y1"},
        every={"callback": _length},
    ),
    *(seed_option, key_file_option, state_option, quiet_option),
    *declared("""
--force  Replace the files of other releases in the folder.
"""),
    *ledger_options,
)


@click.command(epilog=EPILOG)
@with_options(_OPTIONS)
@click.pass_context
def synthesize(ctx: click.Context, /, source: str, output: Path, method: str, **given: Any) -> None:
    """Release synthetic points that follow a set of points through time.

    IN is a .csv, .csv.gz, .txt or .parquet file with a heading; each row is one event: a point appears, or
    disappears. It is replayed in batches, either --batch or --every; after each one a file of synthetic points is
    written whose distribution resembles that of the points present. A file appears when it is complete; what is
    written stays if a later batch fails or the command is interrupted. With --state a command that was killed can be
    run again on the same input: it starts over and writes all files again, with the same bytes.

    That a removed point was ever added is not checked: its place counts one point less.
    """
    options = options_of(ctx, method, USERS)
    check_secrets(given["seed"], given["key_file"])
    budget = LedgerOptions(**{each.name: given[each.name] for each in fields(LedgerOptions)})
    batch, every, initial, picture = (given[name] for name in ("batch", "every", "initial", "picture"))
    quiet, force, clip = (bool(given[name]) for name in ("quiet", "force", "clip"))
    if (batch is None) == (every is None):
        raise click.UsageError("Expected exactly one of --batch and --every.")
    if (given["box"] is None) == (given["domain"] is None):
        raise click.UsageError("Expected exactly one of --box and --domain.")
    with plain_errors(), terminated_cleanly():
        from fastdp import AdaptivePHDStream, PHDStream
        from fastdp.cli.errors import check_separate
        from fastdp.cli.point_files import PointFolder, PointPicture, check_cuts, cut, in_order, keep_outside
        from fastdp.cli.release_run import watched
        from fastdp.cli.resume import fingerprint, noise_of
        from fastdp.data.event_reader import heading_of, read_events

        begin = time.perf_counter()
        check_separate(ctx.params)
        keep_outside(output, ctx.params)
        columns = {name: given[name] for name in ("x", "y", "event")}
        if every is not None or given["moment"] is not None or given["sort"]:
            columns["time"] = given["moment"]
        # Whatever does not depend on the events is checked before a ledger is charged for reading them.
        check_cuts(batch, every, initial)
        names = heading_of(source, columns)
        region, extra = _region(given["box"], given["domain"])
        resume, key = noise_of(ctx, "fastdp synthesize", SETTINGS, columns=[*names], **extra)
        options |= {name: given[name] for name in ("max_depth", "sensitivity")}
        system: Any = {"phdstream": PHDStream, "adaptive": AdaptivePHDStream}[method]
        publisher = system(region, given["epsilon"], key=key, outside="clip" if clip else "raise", **options)
        written = resume.count if resume is not None and resume.wrote(str(output)) else 0
        folder = PointFolder(output, given["kind"], names, force=force, written=written)
        drawn = PointPicture(picture, overwrite=force or written > 0)
        with ExitStack() as stack:
            if resume is not None:
                stack.enter_context(resume.unless_refused())
            reservation = stack.enter_context(budget.paid(publisher, legible(source), resume))
            events = read_events(source, columns, watch=partial(watched, quiet=quiet))
            events = in_order(source, events, sort=given["sort"])
            batches = cut(source, events, publisher.domain, batch, every, initial, clip=clip)
            if resume is not None:
                for added, removed in batches:
                    resume.follow(fingerprint(added, removed))
                # A state file that cannot be written is no reason to remove the files of another release.
                resume.begin()
            folder.clear()
            if resume is not None:
                resume.record(str(output), reservation)
            points = _publish(publisher, batches, folder, drawn, quiet=quiet)
        files = f"{folder.file(0)} to {folder.file(len(batches) - 1).name}"
        if not quiet:
            spent = budget.summary(publisher)
            click.echo(_summary(publisher, files, picture, points, time.perf_counter() - begin, spent), err=True)


def _region(box: tuple[float, float, float, float] | None, path: Path | None) -> tuple[Domain, dict[str, str]]:
    """The domain, and what a state file remembers of its file."""
    from fastdp.spatial import Box
    from fastdp.spatial.map_files import read_domain

    if box is not None:
        return Box(box[:2], box[2:]), {}
    domain, digest = read_domain(str(path))
    return domain, {"domain": digest}


def _publish(
    publisher: SpatialPublisher[Any], batches: list[Batch], folder: PointFolder, drawn: PointPicture, *, quiet: bool
) -> int:
    """Write a file for each batch; how many points they hold.  Files of earlier batches stay if a later one fails."""
    from fastdp.cli.release_run import counted

    points = 0
    for number in counted(len(batches), "batches", folder.name, quiet=quiet):
        publisher.advance(*batches[number])
        synthetic = publisher.sample()
        folder.write(number, synthetic)
        drawn.add(number, len(batches), synthetic, publisher)
        points += len(synthetic)
    drawn.write(publisher.domain)
    return points


def _summary(
    stream: SpatialPublisher[Any], files: str, picture: Path | None, points: int, duration: float, spent: list[Any]
) -> str:
    from fastdp.cli.release_run import as_table, seconds

    return as_table(
        (
            ("batches", f"{stream.n_steps:,}"),
            ("cells", f"{stream.tree.n_leaves:,} in the last batch"),
            ("total", f"{stream.total:,.0f} points in the last batch, estimated"),
            ("synthetic", f"{points:,} points in all files"),
            ("guarantee", str(stream.guarantee)),
            *spent,
            ("time", f"{seconds(duration)}, reading and writing included"),
            ("output", files),
            *([] if picture is None else [("picture", str(picture))]),
        )
    )
