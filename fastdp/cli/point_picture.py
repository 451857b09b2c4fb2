"""A picture of what ``fastdp synthesize`` releases: synthetic points and cells, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastdp.cli.paths import check_picture

if TYPE_CHECKING:
    from fastdp.spatial.domain import Domain, Floats
    from fastdp.systems.phdstream.spatial_publisher import SpatialPublisher

#: Batches in a picture.
SHOWN = 4


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
        self._clouds: dict[str, Floats] = {}
        self._cells: list[tuple[Floats, Floats]] = []
        if path is not None:
            check_picture(path, overwrite=overwrite)

    def add(self, number: int, count: int, points: Floats, publisher: SpatialPublisher) -> None:
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
