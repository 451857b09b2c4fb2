"""Files of ``fastdp synthesize``: batches of events in; one file of synthetic points for each, and a picture, out.

A file of points is complete or not there.  A picture shows synthetic points and cells, nothing else.
"""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.cli.errors import check_picture, places
from fastdp.data.event_reader import Events
from fastdp.errors import DataError, ParameterError
from fastdp.spatial import Box, Domain
from fastdp.spatial.spatial_publisher import SpatialPublisher
from fastdp.state.durable import atomic_file, remove_parts, sync_folder

FORMATS = ("csv", "npy", "parquet", "geojson")
#: Batches in a picture.
SHOWN = 4
_STEM = "batch_"
_FILES = re.compile(rf"{_STEM}\d+\.({'|'.join(FORMATS)})")

Points = NDArray[np.float64]
Names = tuple[str, str]
#: Points that appear, and points that disappear.
Batch = tuple[Points, Points]


def in_order(source: str, events: Events, *, sort: bool) -> Events:
    """Events in the order of their times, if they have any; DataError if they are not and ``sort`` is not set."""
    if events.times is None:
        return events
    back = np.flatnonzero(np.diff(events.times) < 0)
    if not back.size:
        return events
    if not sort:
        raise DataError(
            f"{source}: row {back[0] + 2:,} is earlier than the one before it; expected the order of time, or --sort"
        )
    order = np.argsort(events.times, kind="stable")
    return replace(events, points=events.points[order], additions=events.additions[order], times=events.times[order])


def cut(
    source: str, events: Events, domain: Domain, batch: int | None, every: float | None, initial: float, *, clip: bool
) -> list[Batch]:
    """Cut events by number or by time; the initial share is the first batch, if there is one.

    Parameters
    ----------
    source : str
        The file, for messages.
    events : Events
        What it holds.
    domain : Domain
        Where points must be.
    batch : int or None
        Events in a batch.
    every : float or None
        Length of time of a batch; either this or ``batch``.
    initial : float
        Share of the events before the first batch.
    clip : bool
        Whether points outside will be moved, as :func:`fastdp.spatial.cells.inside` does; they are an error
        otherwise.

    Raises
    ------
    DataError
        If there are points outside, or none at all.
    ParameterError
        If batch, period or share is not as said.
    """
    outside = 0 if clip else int(np.count_nonzero(~domain.contains(events.points)))
    if outside:
        # Without their coordinates: messages end up in logs, which are not private.
        what, move = (
            ("box", "them to its border") if isinstance(domain, Box) else ("domain", "each to a place near by")
        )
        raise DataError(
            f"{source}: {outside:,} of {len(events.points):,} points are outside the {what}; expected points inside, "
            f"or --clip to move {move}"
        )
    if not len(events.points):
        raise DataError(f"{source}: empty, holds no points")
    times = np.arange(len(events.points), dtype=np.float64) if events.times is None else events.times
    # Periods begin at whole multiples: counted from the first event, that one would move all borders.
    cuts = cuts_of(times, batch, every, 0.0, initial)
    borders = cuts[1:-1] if cuts[0] == 0 else cuts[:-1]
    parts = zip(np.split(events.points, borders), np.split(events.additions, borders), strict=True)
    return [(points[additions], points[~additions]) for points, additions in parts]


def check_cuts(batch: object, period: object, initial: object) -> tuple[int | None, float, float]:
    """Batch or else period, and initial share; ParameterError where they exclude each other or are out of range."""
    share = validation.real("initial", initial)
    if not 0.0 <= share < 1.0:
        raise ParameterError(f"initial = {initial!r}: expected a number in [0, 1)")
    if (batch is None) == (period is None):
        raise ParameterError(
            f"batch, period = {validation.shown(batch)}, {validation.shown(period)}: expected exactly one of them"
        )
    if batch is not None:
        return validation.integer("batch", batch, 1), 0.0, share
    return None, validation.positive("period", period), share


def cuts_of(
    times: NDArray[np.float64], batch: int | None, period: float | None, origin: float | None, initial: float
) -> NDArray[np.int64]:
    """Borders of batches: events before the first number are the initial set, and the last number ends them all.

    Periods are counted from the origin, or from the first event; at most 2^24.
    """
    size, length, share = check_cuts(batch, period, initial)
    n = times.size
    first = int(share * n)
    if size is not None:
        return np.append(np.arange(first, n, size), n) if n else np.array([0])
    if n == 0:
        return np.array([0])
    # The number of an event's period follows from its own time: borders in floats would shift with the first event.
    zero = times[0] if origin is None else validation.real("origin", origin)
    numbers = np.floor_divide(times - zero, length)
    periods = int(numbers[-1] - numbers[0]) + 1
    if periods > 2**24:
        raise ParameterError(
            f"period = {period!r}: expected at most {2**24} periods from the first event to the last"
        )
    ends = np.searchsorted(numbers, numbers[0] + np.arange(periods), side="left")
    cuts: NDArray[np.int64] = np.append(ends, n)
    return cuts[np.searchsorted(cuts, first) :]


class PointFolder:
    """A folder of files ``batch_000.csv``, ``batch_001.csv``, ...; numbers from 1,000 on have more digits.

    Parameters
    ----------
    path : Path
        Made by :meth:`clear` if it is not there; its parent must be.
    kind : str
        One of ``FORMATS``.
    names : tuple of two str
        Of the columns.
    force : bool
        Whether the files of an earlier run may be replaced; any that would be left over are removed.
    written : int
        How many of the first files earlier runs of this very release may have written: they are written again.

    Raises
    ------
    ParameterError
        If the path is a file, may not be written, or holds other such files and ``force`` is not set; if something
        else than a plain file is in the place of one.
    DataError
        If the package that writes the format is missing.

    Attributes
    ----------
    name : str
        The folder's.
    kind : str
        Of the files.
    """

    def __init__(self, path: Path, kind: str, names: Names, *, force: bool, written: int = 0) -> None:
        self.name, self.kind = str(path), kind
        self._path, self._names, self._force, self._written = path, names, force, written
        if kind == "parquet":
            from fastdp.data.readers import import_pyarrow

            # Now, when nothing is spent.
            import_pyarrow()
        if path.exists() and not path.is_dir():
            raise ParameterError(f"output {path}: is a file; expected a folder")
        if not path.parent.is_dir():
            raise ParameterError(f"output {path}: there is no folder {path.parent}")
        wanted = os.W_OK | os.X_OK
        if not (os.access(path, wanted | os.R_OK) if path.exists() else os.access(path.parent, wanted)):
            raise ParameterError(f"output {path}: no permission to write in it")
        there = sorted(each for each in path.iterdir() if is_batch(each.name)) if path.exists() else []
        self._refuse_odd(there)
        mine = {self.file(number).name for number in range(written)}
        self._others = [each for each in there if each.name not in mine]
        if self._others and not force:
            raise ParameterError(
                f"output {path}: holds {self._others[0].name} of an earlier run; expected another folder, or "
                "--force to replace such files"
            )

    def _refuse_odd(self, there: list[Path]) -> None:
        """A link would be written through, a folder cannot be replaced: better before anything is removed."""
        for each in there:
            if each.is_symlink() or not each.is_file():
                raise ParameterError(
                    f"output {self._path}: holds {each.name}, which is no plain file; expected it to be moved away, "
                    "or another folder"
                )

    def clear(self) -> None:
        """Make the folder, or remove the files of another release in it, and what killed runs have begun."""
        self._path.mkdir(exist_ok=True)
        clear_parts(self._path)
        for file in self._others:
            file.unlink()
        if self._others:
            # A power cut must not bring them back beside files of this release.
            sync_folder(self._path)
        self._others = []

    def file(self, number: int) -> Path:
        """The file of a batch, whatever their count: it may grow."""
        return self._path / f"{_STEM}{number:03}.{self.kind}"

    def write(self, number: int, points: Points) -> None:
        """Write a batch's file; points are float64[n, 2]."""
        with atomic_file(self.file(number), overwrite=self._force or number < self._written) as out:
            WRITERS[self.kind](out, points, self._names)


class PointPicture:
    """Points and cells after some of the batches.

    Parameters
    ----------
    path : Path or None
        The picture; None for no picture.
    overwrite : bool
        Whether a picture of that name is replaced.

    Raises
    ------
    ParameterError
        If the suffix is no picture's, or the file may not be written.
    StateError
        If matplotlib is not installed.
    """

    def __init__(self, path: Path | None, *, overwrite: bool) -> None:
        self._path = path
        self._clouds: dict[str, Points] = {}
        self._cells: list[tuple[Points, Points]] = []
        if path is not None:
            check_picture(path, overwrite=overwrite)

    def add(self, number: int, count: int, points: Points, publisher: SpatialPublisher) -> None:
        """Keep what batch ``number`` of ``count`` released, if it is one of those that are shown."""
        if self._path is not None and number in {round((count - 1) * k / (SHOWN - 1)) for k in range(SHOWN)}:
            self._clouds[f"batch {number:,}"] = points
            self._cells.append((publisher.tree.lower, publisher.tree.upper))

    def write(self, domain: Domain) -> None:
        """Draw what was kept."""
        if self._path is not None:
            from fastdp.plots import points_and_cells

            label, (columns, clouds) = "synthetic points", zip(*self._clouds.items(), strict=True)
            box = domain.lower, domain.upper
            points_and_cells({label: clouds}, self._path, cells={label: self._cells}, columns=columns, box=box)


def is_batch(name: str) -> bool:
    """Whether a file of this name is one batch of a release."""
    return _FILES.fullmatch(name) is not None


def clear_parts(folder: Path) -> None:
    """Remove what killed runs have begun in a folder of batches."""
    remove_parts(folder, f"{_STEM}[0-9]*.*")


def keep_outside(folder: Path, options: Mapping[str, Any]) -> None:
    """Refuse a command one of whose other places, be it behind a link, the folder's own files would replace.

    Parameters
    ----------
    folder : Path
        The output.
    options : mapping
        As for :func:`fastdp.cli.errors.check_separate`.

    Raises
    ------
    ParameterError
    """
    inside = folder.resolve()
    for what, path in places(options):
        real = path.resolve()
        if is_batch(real.name) and real.parent == inside:
            raise ParameterError(f"{what} {path}: is named like a file of the output; expected another file")


def _csv(out: BinaryIO, points: Points, names: Names) -> None:
    text = io.TextIOWrapper(out, "utf-8", newline="")
    csv.writer(text, lineterminator="\n").writerow(names)
    text.writelines(f"{x!r},{y!r}\n" for x, y in points.tolist())
    text.detach()


def _npy(out: BinaryIO, points: Points, names: Names) -> None:
    del names
    np.save(out, points, allow_pickle=False)


def _parquet(out: BinaryIO, points: Points, names: Names) -> None:
    from fastdp.data.readers import import_pyarrow

    arrow = import_pyarrow()
    arrow.parquet.write_table(arrow.table(list(points.T), names=list(names)), out)


def _geojson(out: BinaryIO, points: Points, names: Names) -> None:
    from fastdp.spatial.map_files import write_points

    del names
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "points.geojson"
        write_points(draft, points)
        out.write(draft.read_bytes())


WRITERS = {"csv": _csv, "npy": _npy, "parquet": _parquet, "geojson": _geojson}
