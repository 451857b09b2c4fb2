"""``fastdp synthesize``: a file of places and times in, private synthetic points for each batch out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastdp.cli.budget import Spending
from fastdp.cli.complaints import plain_errors, terminated_cleanly
from fastdp.cli.options import check_secrets, key_file_option, ledger_options, quiet_option, seed_option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fastdp.cli.event_reader import Events
    from fastdp.spatial import Box
    from fastdp.systems.phdstream import PHDStream

EPILOG = """
\b
Examples
  fastdp synthesize pickups.csv.gz -o private --epsilon 1 --box -74.3 40.45 -73.65 40.95 --every 21600
  fastdp synthesize visits.parquet -o private --epsilon 0.5 --box 0 0 10 10 --batch 500 --initial 0.1
  fastdp synthesize check-ins.csv -o private --epsilon 1 --box -180 -90 180 90 --every 86400 --format geojson
"""


@click.command(epilog=EPILOG)
@click.argument("source", metavar="IN")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    required=True,
    help="Folder for the files batch_000, batch_001, ...; made if it is not there.",
)
@click.option("--epsilon", type=float, required=True, help="Privacy loss of all files together.")
@click.option(
    "--box",
    type=float,
    nargs=4,
    metavar="X0 Y0 X1 Y1",
    required=True,
    help="Public region of the points: lower left and upper right corner. "
    "Take it from what is known of the region, never from the data.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Events in a batch, in the file's order. Which batch an event is in counts as public: the guarantee is for "
    "one event of a batch, while all others stay in theirs.",
)
@click.option(
    "--every",
    type=float,
    metavar="SECONDS",
    help="Length of time of a batch, in the unit of the times; batches begin at its whole multiples. The first and "
    "the last batch that hold events count as public.",
)
@click.option(
    "--initial",
    type=float,
    metavar="SHARE",
    default=0.0,
    show_default=True,
    help="Share of the events that make up the first file (0 to less than 1).",
)
@click.option("--x", "x", metavar="COL", help="Column of x: name or zero-based number.  [default: x, lon, longitude]")
@click.option("--y", "y", metavar="COL", help="Column of y.  [default: y, lat, latitude]")
@click.option("--time", "moment", metavar="COL", help="Column of times, for --every.  [default: time, t, timestamp]")
@click.option(
    "--event",
    metavar="COL",
    help="Column of events: 1, a point appears; -1, it disappears. Without any, all points appear."
    "  [default: event, move]",
)
@click.option("--sort", is_flag=True, help="Bring rows into the order of time first; otherwise disorder is an error.")
@click.option(
    "--clip", is_flag=True, help="Move points outside the box to its border; otherwise such points are an error."
)
@click.option(
    "--counter",
    type=click.Choice(["simple", "block", "binary"]),
    default="simple",
    show_default=True,
    help="How counts get their noise; simple is best in most cases.",
)
@click.option(
    "--max-depth", type=int, metavar="D", default=20, show_default=True, help="How often a cell is halved at most."
)
@click.option(
    "--sensitivity",
    type=int,
    metavar="K",
    default=1,
    show_default=True,
    help="Events of one person that are protected together; a point that comes and goes has two.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "npy", "parquet", "geojson"]),
    default="csv",
    show_default=True,
    help="Kind of the files.",
)
@seed_option
@key_file_option
@quiet_option
@click.option("--force", is_flag=True, help="Replace the files of an earlier run in the folder.")
@ledger_options
def synthesize(
    source: str,
    output: Path,
    epsilon: float,
    box: tuple[float, float, float, float],
    batch: int | None,
    every: float | None,
    initial: float,
    x: str | None,
    y: str | None,
    moment: str | None,
    event: str | None,
    sort: bool,
    clip: bool,
    counter: str,
    max_depth: int,
    sensitivity: int,
    kind: str,
    seed: int | None,
    key_file: Path | None,
    quiet: bool,
    force: bool,
    **budget: Any,
) -> None:
    """Release synthetic points that follow a set of points through time.

    IN is a .csv, .csv.gz, .txt or .parquet file with a heading; each row is one event: a point appears, or
    disappears. It is replayed in batches, either --batch or --every; after each one a file of synthetic points is
    written whose distribution resembles that of the points present. A file appears when it is complete; what is
    written stays if a later batch fails or the command is interrupted.

    That a removed point was ever added is not checked: its place counts one point less.
    """
    check_secrets(seed, key_file)
    spending = Spending(**budget)
    if (batch is None) == (every is None):
        raise click.UsageError("Expected exactly one of --batch and --every.")
    with plain_errors(), terminated_cleanly():
        from fastdp.cli.event_reader import read_events
        from fastdp.cli.key_file import read_key
        from fastdp.cli.point_files import PointFolder
        from fastdp.cli.progress import counted
        from fastdp.spatial import Box
        from fastdp.systems.phdstream import PHDStream

        begin = time.perf_counter()
        publisher = PHDStream(
            Box(box[:2], box[2:]),
            epsilon,
            counter,
            max_depth=max_depth,
            sensitivity=sensitivity,
            outside="clip" if clip else "raise",
            seed=seed,
            key=None if key_file is None else read_key(key_file),
        )
        columns = {"x": x, "y": y, "time": moment, "event": event}
        timed = every is not None or moment is not None or sort
        events = read_events(source, columns, timed=timed, sort=sort, quiet=quiet)
        bounds = _bounds(source, events, Box(box[:2], box[2:]), batch, every, initial, clip=clip)
        folder = PointFolder(output, kind, events.names, len(bounds) - 1, force=force)
        written = 0
        # Files of earlier batches stay, whatever happens to a later one.
        with spending.reserved(publisher, source, refundable=False):
            for number in counted(len(bounds) - 1, "batches", str(output), quiet=quiet):
                rows = slice(bounds[number], bounds[number + 1])
                points, additions = events.points[rows], events.additions[rows]
                synthetic = publisher.step(points[additions], points[~additions])
                folder.write(number, synthetic)
                written += len(synthetic)
        if not quiet:
            files = f"{folder.file(0)} to {folder.file(len(bounds) - 2).name}"
            said = spending.summary(publisher)
            click.echo(_summary(publisher, files, written, time.perf_counter() - begin, said), err=True)


def _bounds(
    source: str, events: Events, box: Box, batch: int | None, every: float | None, initial: float, *, clip: bool
) -> NDArray[np.int64]:
    """Where batches begin and end, the initial one first if there is one."""
    import numpy as np

    from fastdp.datasets import cut_events
    from fastdp.errors import DataError

    outside = int(np.count_nonzero(~box.contains(events.points)))
    if outside and not clip:
        # Without their coordinates: messages end up in logs, which are not private.
        raise DataError(
            f"{source}: {outside:,} of {len(events.points):,} points are outside the box; expected points inside, or "
            "--clip to move them to its border"
        )
    if not len(events.points):
        raise DataError(f"{source}: empty, holds no points")
    # Only the cuts are asked for, to which it does not matter what the events do.
    inside = np.clip(events.points, box.lower, box.upper)
    # Periods begin at whole multiples: counted from the first event, that one would move all borders.
    origin = None if every is None else 0.0
    corners = box.lower, box.upper
    stream = cut_events(
        source, *corners, inside, times=events.times, batch=batch, period=every, origin=origin, initial=initial
    )
    cuts: NDArray[np.int64] = stream.cuts if stream.cuts[0] == 0 else np.append(0, stream.cuts)
    return cuts


def _summary(stream: PHDStream, files: str, written: int, duration: float, spent: list[tuple[str, str]]) -> str:
    from fastdp.cli.summary import as_table, seconds, thousands

    return as_table(
        (
            ("batches", thousands(stream.n_steps)),
            ("cells", f"{thousands(stream.tree.n_leaves)} in the last batch"),
            ("total", f"{stream.total:,.0f} points in the last batch, estimated"),
            ("synthetic", f"{thousands(written)} points in all files"),
            ("guarantee", str(stream.guarantee)),
            *spent,
            ("time", f"{seconds(duration)}, reading and writing included"),
            ("output", files),
        )
    )
