"""``fastdp synthesize``: a file of events to a folder of private synthetic points, a file for each batch."""

from __future__ import annotations

import csv
import io
import re
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import numpy as np

import fastdp
from fastdp.cli.commands import CSV, IN, source_of
from fastdp.cli.options import arguments, flags, options, parameters
from fastdp.cli.places import FILE, FLAGS, account, check_apart, check_picture, paths, shared, spent
from fastdp.cli.state import State
from fastdp.cli.terminal import as_table, progress, running, seconds
from fastdp.data.column import arrow
from fastdp.data.events import Events, open_events
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import charge
from fastdp.kinds import Floats, Json
from fastdp.noise.key import stream_key
from fastdp.points import Box, Domain
from fastdp.points.batches import Batch, Cuts
from fastdp.points.maps import read_domain, write_points
from fastdp.releases import pictures
from fastdp.state.atomic_files import atomic_file, check_target, sync_folder

METHODS = {"phdstream": fastdp.PHDStream, "adaptive": fastdp.AdaptivePHDStream}
#: Batches in a picture.
SHOWN = 4
HELP = """Release synthetic points that follow a set of points through time.

IN is a file with named columns (.csv, .tsv, .txt, also .gz or .bz2; .parquet, .arrow); each row is one event: a point
appears, or disappears. It is replayed in batches, either --batch or --every; after each one a file of synthetic
points is written whose distribution resembles that of the points present. A file appears when it is complete; what is
written stays if a later batch fails or the command is interrupted. With --state a command that was killed can be run
again on the same input: it writes all files again, with the same bytes.

That a removed point was ever added is not checked: its place counts one point less.
"""
EPILOG = """
\b
Examples
  fastdp synthesize pickups.csv.gz -o private --epsilon 1 --box -74.3 40.45 -73.65 40.95 --every 6h
  fastdp synthesize visits.parquet -o private --epsilon 0.5 --box 0 0 10 10 --batch 500 --initial 0.1
  fastdp synthesize check-ins.csv -o private --epsilon 1 --domain land.geojson --every 1w --outside clip --plot p.png
"""
OPTIONS: list[click.Parameter] = [
    click.Option(
        ["-o", "--output"], required=True, type=FILE, metavar="FOLDER",
        help="Folder for the files batch_000, batch_001, ...; made if it is not there.",
    ),
    click.Option(
        ["--box"], nargs=4, type=float, metavar="X0 Y0 X1 Y1",
        help="Public region of the points: lower left and upper right corner. Never take it from the data.",
    ),
    click.Option(
        ["--domain"], type=FILE, metavar="FILE",
        help="In place of --box: a public GeoJSON file in longitude and latitude. Polygons: synthetic points lie in "
        "their area. Lines: on them. Needs shapely: pip install 'fastdp-streams[geo]'.",
    ),
    click.Option(["--sort"], is_flag=True, help="Bring rows into the order of time; otherwise disorder is an error."),
    click.Option(
        ["--method"], type=click.Choice(list(METHODS)), default="phdstream", show_default=True,
        help="phdstream counts each batch as it comes; adaptive, whose cells follow counts of every few batches, has "
        "less error behind a large first file and with a hundred batches or more.",
    ),
    click.Option(
        ["--format", "kind"], type=click.Choice(["csv", "npy", "parquet", "geojson"]), default="csv",
        show_default=True,
        help="Kind of the files.",
    ),
]  # fmt: skip


def _synthesize(**given: Any) -> None:
    begin, public = time.perf_counter(), METHODS[given["method"]]
    taken = {each.name for each in parameters(public)}
    for each in (each for kind in METHODS.values() for each in parameters(kind)):
        if each.name not in taken and given[each.name] is not None:
            raise click.UsageError(f"{each.flag} does not apply to --method {given['method']}.")
    if (given["box"] is None) == (given["domain"] is None):
        raise click.UsageError("Expected exactly one of --box and --domain.")
    if isinstance(given["every"], float):
        raise click.UsageError(
            f"--every {given['every']:g}: expected a length of time such as 90s, 15min, 6h, 1d or 1w."
        )
    with running({**FLAGS, **flags(Cuts), **flags(fastdp.Csv), **flags(public), **flags(open_events)}):
        check_apart(paths(given))
        # All that does not depend on the events is checked before a ledger is charged for reading them.
        cuts, columns = Cuts(**arguments(Cuts, given)), arguments(open_events, given)
        timed = given["every"] is not None or given["sort"]
        source = open_events(source_of(given), **columns, timed=timed)
        domain, digest = read_domain(given["domain"]) if given["box"] is None else (_box(given["box"]), "")
        state = State("synthesize", given, domain=digest, columns=source.names)
        key = stream_key(state.key, given["stream"])
        publisher: Any = public(domain, **arguments(public, given), key=key)
        folder = PointFolder(given, source.names, replace=state.wrote(given["output"]))
        with account(given, state) as paid, charge(publisher, paid, given["stream"], part=given["part"]):
            events = _in_order(str(given["source"]), source.read(), sort=given["sort"])
            batches = _batches(str(given["source"]), events, domain, cuts, clip=given["outside"] == "clip")
            state.check(tuple(events))
            # A state file that cannot be written is no reason to remove the files of another release.
            state.begin()
            folder.clear()
            state.record(str(given["output"]))
            points, drawn = _write(publisher, batches, folder, given)
        if given["picture"] is not None:
            clouds, cells = ({"synthetic points": list(each)} for each in zip(*drawn.values(), strict=True))
            pictures.save(
                pictures.draw_points(clouds, cells, list(drawn), (domain.lower, domain.upper)), given["picture"]
            )
        if not given["quiet"]:
            facts = [
                ("batches", f"{publisher.n_steps:,}"),
                ("cells", f"{publisher.tree.n_leaves:,} in the last batch"),
                ("total", f"{publisher.total:,.0f} points in the last batch, estimated"),
                ("synthetic", f"{points:,} points in all files"),
                ("guarantee", str(publisher.guarantee)),
                *spent(given, publisher.guarantee.simulated),
                ("time", f"{seconds(time.perf_counter() - begin)}, reading and writing included"),
                ("output", f"{folder.file(0)} to {folder.file(len(batches) - 1).name}"),
                *([] if given["picture"] is None else [("picture", str(given["picture"]))]),
            ]
            click.echo(as_table(facts), err=True)


def _box(corners: tuple[float, ...]) -> Box:
    try:
        return Box(corners[:2], corners[2:])
    except ParameterError:
        typed = " ".join(repr(each).removesuffix(".0") for each in corners)
        raise ParameterError(f"--box {typed}: expected finite X0 below X1 and Y0 below Y1") from None


def _in_order(source: str, events: Events, *, sort: bool) -> Events:
    """Events by time; DataError if unsorted without `sort`."""
    if events.times is None or not np.any(back := np.diff(events.times) < 0):
        return events
    if not sort:
        row = int(np.argmax(back)) + 2
        raise DataError(
            f"{source}: row {row:,} is earlier than the one before it; expected the order of time, or --sort"
        )
    order = np.argsort(events.times, kind="stable")
    return Events(events.points[order], events.additions[order], events.times[order])


def _batches(source: str, events: Events, domain: Domain, cuts: Cuts, *, clip: bool) -> list[Batch]:
    """Events cut into batches; DataError for points outside `domain` unless `clip`."""
    count = len(events.points)
    if not count:
        raise DataError(f"{source}: empty, holds no points")
    if not clip and (outside := count - int(np.count_nonzero(domain.contains(events.points)))):
        region = "box" if isinstance(domain, Box) else "domain"
        # Without their coordinates: messages end up in logs, which are not private.
        raise DataError(
            f"{source}: {outside:,} of {count:,} points are outside the {region}; "
            "expected points inside, or --outside clip to move each to a place near by"
        )
    times = np.arange(count, dtype=np.float64) if events.times is None else events.times.astype(np.float64)
    # Periods begin at integer multiples: counted from the first event, that one would move all borders.
    ends = cuts.of(times, origin=0.0)
    borders = ends[1:-1] if ends[0] == 0 else ends[:-1]
    pieces = zip(np.split(events.points, borders), np.split(events.additions, borders), strict=True)
    return [(points[additions], points[~additions]) for points, additions in pieces]


def _write(
    publisher: Any, batches: list[Batch], folder: PointFolder, given: Json
) -> tuple[int, dict[str, tuple[Floats, pictures.Boxes]]]:
    """Write a file a batch; the number of points, and those of some batches with their cells for a picture."""
    points, drawn = 0, dict[str, tuple[Floats, pictures.Boxes]]()
    shown = {round((len(batches) - 1) * k / (SHOWN - 1)) for k in range(SHOWN)} if given["picture"] else ()
    # Files of earlier batches stay if a later one fails.
    with progress(str(given["output"]), len(batches), " batches", quiet=given["quiet"]) as bar:
        for number, batch in enumerate(batches):
            publisher.advance(*batch)
            synthetic = publisher.sample()
            folder.write(number, synthetic)
            points += len(synthetic)
            if number in shown:
                drawn[f"batch {number:,}"] = synthetic, (publisher.tree.lower, publisher.tree.upper)
            bar.update()
    return points, drawn


_BATCH = re.compile(r"batch_\d+\.(csv|npy|parquet|geojson)")


class PointFolder:
    """A folder of ``batch_000.csv``, ...; ``--force``, or a state that has recorded it, allows replacing files."""

    def __init__(self, given: Json, names: tuple[str, str], *, replace: bool) -> None:
        self._path, self._kind, self._names, self._force = given["output"], given["kind"], names, given["force"]
        if self._kind == "parquet":
            # Now, when nothing is spent.
            _ = arrow.table
        if self._path.exists() and not self._path.is_dir():
            raise ParameterError(f"output {self._path}: is a file; expected a folder")
        check_target(self.file(0) if self._path.is_dir() else self._path, overwrite=True)
        for name, path in paths(given):
            if _is_batch(path.resolve()) and path.resolve().parent == self._path.resolve():
                raise ParameterError(f"{name} {path}: is named like a file of the output; expected another file")
        for each in self._there():
            # A link would be written through, a folder cannot be replaced: better before anything is removed.
            if each.is_symlink() or not each.is_file():
                raise ParameterError(
                    f"output {self._path}: holds {each.name}, which is no plain file; expected another folder"
                )
            if not (self._force or replace):
                raise ParameterError(
                    f"output {self._path}: holds {each.name} of an earlier run; expected another folder, or --force "
                    "to replace such files"
                )
        if given["picture"] is not None:
            check_picture(given["picture"], overwrite=self._force or replace)

    def _there(self) -> list[Path]:
        return sorted(filter(_is_batch, self._path.iterdir())) if self._path.is_dir() else []

    def file(self, number: int) -> Path:
        return Path(self._path, f"batch_{number:03}.{self._kind}")

    def clear(self) -> None:
        """Make the folder, or with ``--force`` remove the files of an earlier run."""
        self._path.mkdir(exist_ok=True)
        there = self._there() if self._force else []
        for each in there:
            each.unlink()
        if there:
            # A power cut must not bring them back beside files of this release.
            sync_folder(self._path)

    def write(self, number: int, points: Floats) -> None:
        with atomic_file(self.file(number), overwrite=True) as out:
            if self._kind == "npy":
                np.save(out, points, allow_pickle=False)
            elif self._kind == "parquet":
                table = arrow.table(list(points.T), names=list(self._names))
                import_module("pyarrow.parquet").write_table(table, out)
            elif self._kind == "geojson":
                with tempfile.TemporaryDirectory() as folder:
                    write_points(draft := Path(folder) / "points.geojson", points)
                    out.write(draft.read_bytes())
            else:
                text = io.StringIO()
                csv.writer(text, lineterminator="\n").writerows([self._names, *points.tolist()])
                out.write(text.getvalue().encode())


def _is_batch(path: Path) -> bool:
    return _BATCH.fullmatch(path.name) is not None


EVERY = """Length of time of a batch: 90s, 15min, 6h, 1d, 1w. Batches begin at its multiples, counted from 1970 in
UTC. The first and the last batch that hold events count as public."""
CUTS = options({"": Cuts})
next(each for each in CUTS if each.name == "every").help = EVERY
synthesize = click.Command(
    "synthesize",
    params=[
        IN, *OPTIONS, *CUTS, *options(METHODS), *options({"": open_events}), *shared("output"), *CSV
    ],
    callback=_synthesize,
    help=HELP,
    epilog=EPILOG,
)  # fmt: skip
