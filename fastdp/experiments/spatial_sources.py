"""The spatial data sets of a sweep: points that come and go; made up by name, from a file, or downloaded before."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdp.datasets import (
    SpatialStream,
    concentric_circles,
    load_circles,
    load_gowalla,
    load_pickups,
    made_up_check_ins,
    made_up_pickups,
)
from fastdp.datasets.spatial_files import CIRCLES, EARTH, NEW_YORK
from fastdp.errors import DataError, ParameterError
from fastdp.experiments.domains import DOMAINS, confined, load_domain
from fastdp.experiments.origin import KINDS, Origin
from fastdp.experiments.tables import TableReader, placed
from fastdp.spatial import Box, Domain

Corners = tuple[tuple[float, float], tuple[float, float]]
Make = Callable[..., SpatialStream]
#: Made-up streams by the name that a specification calls them, and their box; add to it what else is to run.
SPATIAL_GENERATORS: dict[str, tuple[Make, Corners]] = {
    "circles": (concentric_circles, CIRCLES),
    "pickups": (made_up_pickups, NEW_YORK),
    "check_ins": (made_up_check_ins, EARTH),
}
#: Kinds of files by name: what reads them, and the box unless the table has one.
FORMATS: dict[str, tuple[Make, Corners]] = {
    "circles": (load_circles, CIRCLES),
    "pickups": (load_pickups, NEW_YORK),
    "gowalla": (load_gowalla, EARTH),
}
DOWNLOADS = ("gowalla",)
SIDES = ("left", "bottom", "right", "top")
#: What is drawn at random follows from this, unless the table says otherwise.
_SEED = 7


@dataclass(frozen=True)
class SpatialDataSet(Origin):
    """A stream of points to publish.

    Attributes
    ----------
    name, kind, source : str
        As every :class:`Origin` has them.
    format : str
        Of the file; empty for what is made up.
    box : two (float, float)
        Lower and upper corner of the public domain, or of what is read if there is another domain.
    domain : str
        A name of ``DOMAINS``, a GeoJSON file, or empty: the box.
    start : int
        Batches that the initial set takes in: the paper's initialisation time t0.
    parameters : mapping
        Of the generator or loader.
    place : str
        Where it stands in TOML, for messages.
    """

    format: str
    box: Corners
    domain: str = ""
    start: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="datasets", compare=False)

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        return {**super().table(), "box": [list(corner) for corner in self.box]}

    def files(self, folder: Path) -> list[Path]:
        """The points' and the domain's."""
        own = self.domain and self.domain not in DOMAINS
        return [*super().files(folder), *([folder / self.domain] if own else [])]

    def load(self, folder: Path) -> tuple[SpatialStream, Domain, str]:
        """The events, the domain that they are in, and the domain's digest.

        Parameters
        ----------
        folder : Path
            Where files are sought that have no absolute path.

        Raises
        ------
        ParameterError, DataError
            If a parameter or the file is wrong, or nothing is left after ``start``.
        """
        path = next(iter(super().files(folder)), None)
        if path is not None and not path.exists():
            hint = f"; run: fastdp datasets --download {self.source}" if self.kind == "download" else ""
            raise DataError(f"{self.name}: no such file, {path}{hint}")
        try:
            if path is None:
                stream = SPATIAL_GENERATORS[self.source][0](**self.parameters)
            else:
                stream = FORMATS[self.format][0](path, box=self.box, **self.parameters)
        except ParameterError as error:
            raise ParameterError(f"{self.place}.{error}") from None
        if self.start > stream.n_steps:
            raise ParameterError(
                f"{self.place}.start = {self.start}: expected at most the {stream.n_steps} batches of {self.name}"
            )
        stream = stream.starting_at(self.start)
        if not self.domain:
            return stream, Box(*self.box), ""
        domain, digest = load_domain(self.domain, folder)
        return confined(stream, domain), domain, digest


def is_spatial(table: object) -> bool:
    """Whether a ``[[datasets]]`` table is one of points rather than of values."""
    if not isinstance(table, Mapping):
        return False
    made = table.get("generator")
    downloaded = table.get("download") in DOWNLOADS and "column" not in table
    return "format" in table or downloaded or (isinstance(made, str) and made in SPATIAL_GENERATORS)


def read_spatial_data_set(table: Mapping[str, Any], place: str, name: str) -> SpatialDataSet:
    """A data set from its table, every list already expanded.

    Parameters
    ----------
    table : mapping
        A ``[[datasets]]`` table.
    place : str
        Where it stands.
    name : str
        Its label.
    """
    reader = TableReader(table, place)
    kind = reader.one_of(KINDS)
    own = ["name", kind, "start", "domain"]
    file_format = ""
    if kind == "generator":
        source = reader.choice(kind, tuple(SPATIAL_GENERATORS))
        make, box = SPATIAL_GENERATORS[source]
    else:
        source = reader.choice(kind, DOWNLOADS) if kind == "download" else reader.text(kind)
        file_format = source if kind == "download" else reader.choice("format", tuple(FORMATS))
        make, box = FORMATS[file_format]
        own += ["box", "format"] if kind == "file" else ["box"]
    accepted = [key for key in inspect.signature(make).parameters if key not in ("path", "box")]
    reader.refuse_others((*own, *accepted))
    parameters = {key: table[key] for key in accepted if key in table}
    if "seed" in accepted:
        parameters["seed"] = reader.integer("seed", _SEED)
    if "box" in reader:
        box = read_box(reader.get("box"), reader.at("box"))
    domain = reader.text("domain") if "domain" in reader else ""
    return SpatialDataSet(name, kind, source, file_format, box, domain, reader.integer("start", 0), parameters, place)


def read_box(table: object, place: str) -> Corners:
    """Corners from a table with the numbers left, bottom, right and top."""
    reader = TableReader(table, place, SIDES)
    left, bottom, right, top = (reader.real(side) for side in SIDES)
    with placed(place):
        Box((left, bottom), (right, top))
    return (left, bottom), (right, top)
