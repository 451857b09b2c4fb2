"""``fastdp synthesize``: points and times to private synthetic points by batch."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np

from fastdp import AdaptivePHDStream, PHDStream, validation
from fastdp.cli.ledger_command import Account
from fastdp.cli.options import options_of, parameters_of, with_options
from fastdp.cli.resume import noise_of
from fastdp.cli.terminal import as_table, check_picture, check_separate, printable, progress, running, seconds
from fastdp.cli.writers import PointFolder, keep_outside
from fastdp.data.events import Events, open_events
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Indices
from fastdp.points import Box, Domain
from fastdp.points.maps import read_domain
from fastdp.record import Real, Whole, parameter, record
from fastdp.releases import pictures
from fastdp.state.driver import as_one
from fastdp.validation import DAY, FIXED, split_duration

METHODS = {"phdstream": PHDStream, "adaptive": AdaptivePHDStream}
#: Options on which the output depends, besides those of the methods, the events and the key.
SETTINGS = ("method", "box", "batch", "every", "initial", "clip")
#: Points that appear, and points that disappear.
Batch = tuple[Floats, Floats]
#: Batches in a picture.
SHOWN = 4
EPILOG = """
\b
Examples
  fastdp synthesize pickups.csv.gz -o private --epsilon 1 --box -74.3 40.45 -73.65 40.95 --every 6h
  fastdp synthesize visits.parquet -o private --epsilon 0.5 --box 0 0 10 10 --batch 500 --initial 0.1
  fastdp synthesize check-ins.csv -o private --epsilon 1 --domain land.geojson --every 1w --clip --plot private.png
  fastdp synthesize pickups.csv -o private --epsilon 1 --box 0 0 10 10 --every 1h --initial 0.1 --method adaptive
"""
OPTIONS = """
-o/--output FOLDER:path required  Folder for the files batch_000, batch_001, ..., with four digits from batch 1,000
    on; made if it is not there.
--epsilon  Privacy loss of all files together.
--box :float  Public region of the points: lower left and upper right corner (longitude first). Take it from what is
    known of the region, never from the data.
--domain FILE:file as map_file  In place of --box: a public GeoJSON file in longitude and latitude. Polygons:
    synthetic points lie in their area (land, a city). Lines: on them (streets). Needs shapely: pip install
    'fastdp-streams[geo]'.
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
--counter (simple|block|binary)
--period --max-period --max-depth --sensitivity
--format (csv|npy|parquet|geojson) as kind = csv  Kind of the files.
--plot FILE:path as picture  Draw the synthetic points and the cells after four of the batches, from the first to the
    last; the suffix chooses the format, such as .png. Needs matplotlib: pip install 'fastdp-streams[plot]'.
--seed --key-file --state --quiet
--force  Replace the files of other releases in the folder.
--ledger --stream --part --limit --limit-delta --ledger-key-file
"""


def _length(ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        number, unit = split_duration(given)
    units = {**FIXED, "d": DAY, "w": 7 * DAY}
    if not number or unit not in units:
        told = f"{given!r}: expected a length of time such as 90s, 15min, 6h, 1d, 1w, or a number"
        raise click.BadParameter(told, ctx, param)
    return float(number * units[unit] / units["s"])


@click.command(epilog=EPILOG)
@click.argument("source", metavar="IN")
@with_options(OPTIONS, METHODS, box={"nargs": 4, "metavar": "X0 Y0 X1 Y1"}, every={"callback": _length})
@click.pass_context
def synthesize(ctx: click.Context, /, **given: Any) -> None:
    """Release synthetic points that follow a set of points through time.

    IN is a .csv, .csv.gz, .txt or .parquet file with a heading; each row is one event: a point appears, or
    disappears. It is replayed in batches, either --batch or --every; after each one a file of synthetic points is
    written whose distribution resembles that of the points present. A file appears when it is complete; what is
    written stays if a later batch fails or the command is interrupted. With --state a command that was killed can be
    run again on the same input: it starts over and writes all files again, with the same bytes.

    That a removed point was ever added is not checked: its place counts one point less.
    """
    options, account = options_of(ctx, METHODS), Account.of(given)
    source, output, picture, quiet = given["source"], given["output"], given["picture"], given["quiet"]
    for pair in (("batch", "every"), ("box", "map_file")):
        if (given[pair[0]] is None) == (given[pair[1]] is None):
            raise click.UsageError(
                f"Expected exactly one of --{pair[0]} and --{pair[1].replace('map_file', 'domain')}."
            )
    with running():
        begin = time.perf_counter()
        check_separate(given)
        keep_outside(output, given)
        timed = given["every"] is not None or given["sort"]
        # All that does not depend on the events is checked before a ledger is charged for reading them.
        cuts = Cuts(given["batch"], given["every"], given["initial"])
        opened = open_events(source, given["x"], given["y"], given["moment"], given["event"], timed=timed)
        names = opened.names
        box, file = given["box"], dict[str, str]()
        if box is None:
            domain, file["domain"] = read_domain(given["map_file"])
        else:
            domain = Box(box[:2], box[2:])
        settings = [*SETTINGS, *parameters_of(ctx, METHODS)]
        resume, key = noise_of(ctx, "fastdp synthesize", settings, columns=[*names], **file)
        method: Any = METHODS[given["method"]]
        publisher = method(domain, key=key, outside="clip" if given["clip"] else "raise", **options)
        written = resume.count if resume.wrote(str(output)) else 0
        folder = PointFolder(output, given["kind"], names, force=given["force"], written=written)
        if picture is not None:
            check_picture(picture, overwrite=given["force"] or written > 0)
        with account.paid(publisher, printable(source), resume) as reservation:
            events = in_order(source, opened.read(), sort=given["sort"])
            batches = _batches(source, events, domain, cuts, clip=given["clip"])
            if resume.kept:
                for added, removed in batches:
                    resume.follow(as_one(added, removed))
            # A state file that cannot be written is no reason to remove the files of another release.
            resume.begin()
            folder.clear()
            resume.record(str(output), reservation)
            # Files of earlier batches stay if a later one fails.
            points, drawn = 0, dict[str, tuple[Floats, pictures.Boxes]]()
            shown = {round((len(batches) - 1) * k / (SHOWN - 1)) for k in range(SHOWN)} if picture else ()
            with progress(folder.name, len(batches), " batches", quiet=quiet) as bar:
                for number, batch in enumerate(batches):
                    publisher.advance(*batch)
                    synthetic = publisher.sample()
                    folder.write(number, synthetic)
                    points += len(synthetic)
                    if number in shown:
                        drawn[f"batch {number:,}"] = synthetic, (publisher.tree.lower, publisher.tree.upper)
                    bar.update()
            if picture is not None:
                clouds, cells = ({"synthetic points": list(each)} for each in zip(*drawn.values(), strict=True))
                figure = pictures.draw_points(clouds, cells, list(drawn), (domain.lower, domain.upper))
                pictures.save(figure, picture)
        if not quiet:
            facts = [
                ("batches", f"{publisher.n_steps:,}"),
                ("cells", f"{publisher.tree.n_leaves:,} in the last batch"),
                ("total", f"{publisher.total:,.0f} points in the last batch, estimated"),
                ("synthetic", f"{points:,} points in all files"),
                ("guarantee", str(publisher.guarantee)),
                *account.summary(publisher),
                ("time", f"{seconds(time.perf_counter() - begin)}, reading and writing included"),
                ("output", f"{folder.file(0)} to {folder.file(len(batches) - 1).name}"),
                *([] if picture is None else [("picture", str(picture))]),
            ]
            click.echo(as_table(facts), err=True)


def in_order(source: str, events: Events, *, sort: bool) -> Events:
    """Events by time; DataError if unsorted without `sort`."""
    back = np.flatnonzero(np.diff(events.times) < 0) if events.times is not None else np.empty(0, int)
    if events.times is None or not back.size:
        return events
    if not sort:
        raise DataError(
            f"{source}: row {back[0] + 2:,} is earlier than the one before it; expected the order of time, or --sort"
        )
    order = np.argsort(events.times, kind="stable")
    return Events(events.points[order], events.additions[order], events.times[order])


def _batches(source: str, events: Events, domain: Domain, cuts: Cuts, *, clip: bool) -> list[Batch]:
    """Events cut into batches; DataError for points outside `domain` unless `clip`."""
    outside = 0 if clip else int(np.count_nonzero(~domain.contains(events.points)))
    if outside:
        # Without their coordinates: messages end up in logs, which are not private.
        box = isinstance(domain, Box)
        region, move = ("box", "them to its border") if box else ("domain", "each to a place near by")
        raise DataError(
            f"{source}: {outside:,} of {len(events.points):,} points are outside the {region}; expected points "
            f"inside, or --clip to move {move}"
        )
    if not len(events.points):
        raise DataError(f"{source}: empty, holds no points")
    times = np.arange(len(events.points), dtype=np.float64) if events.times is None else events.times / 1e6
    # Periods begin at integer multiples: counted from the first event, that one would move all borders.
    ends = cuts.of(times, origin=0.0)
    borders = ends[1:-1] if ends[0] == 0 else ends[:-1]
    pieces = zip(np.split(events.points, borders), np.split(events.additions, borders), strict=True)
    return [(points[additions], points[~additions]) for points, additions in pieces]


@record
class Cuts:
    """Batches of ``batch`` events or ``every`` seconds, after the share ``initial``."""

    batch: int | None = parameter(Whole(1, optional=True))
    every: float | None = parameter(Real(above=0.0, optional=True))
    initial: float = parameter(Real(least=0.0, below=1.0))

    def _check(self) -> None:
        if (self.batch is None) == (self.every is None):
            raise ParameterError(f"batch, every = {self.batch}, {self.every}: expected exactly one of them")

    def of(self, times: Floats, origin: float | None = None) -> Indices:
        """Borders as event indices: the initial set's end first, the end of all last.

        Periods count from the origin, or first event; at most 2^24.
        """
        n, first = times.size, int(self.initial * times.size)
        if n == 0:
            return np.array([0])
        if self.every is None:
            return np.append(np.arange(first, n, self.batch), n)
        # The number of an event's period follows from its own time: borders in floats would shift with the first.
        zero = times[0] if origin is None else validation.real("origin", origin)
        numbers = np.floor_divide(times - zero, self.every)
        periods = int(numbers[-1] - numbers[0]) + 1
        if periods > 2**24:
            raise ParameterError(
                f"every = {self.every!r}: expected at most {2**24} periods from the first event to the last"
            )
        ends = np.append(np.searchsorted(numbers, numbers[0] + np.arange(periods), side="left"), n)
        return ends[np.searchsorted(ends, first) :]
