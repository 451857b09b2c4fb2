"""The streams of points of a sweep: synthetic ones by name, from a file, or downloaded before."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fastdp import validation
from fastdp.errors import DataError, ParameterError
from fastdp.spatial import Box
from fastdp_lab.datasets import (
    SpatialStream,
    concentric_circles,
    load_circles,
    load_gowalla,
    load_pickups,
    made_up_check_ins,
    made_up_pickups,
)
from fastdp_lab.datasets.files import CIRCLES, EARTH, NEW_YORK
from fastdp_lab.sweeps.data_source import DataSource, read_source
from fastdp_lab.sweeps.points.domains import DOMAINS, confined, load_domain
from fastdp_lab.sweeps.points.truth import PointTruth
from fastdp_lab.sweeps.reading import as_table, check_keys, placed, read, text

Corners = tuple[tuple[float, float], tuple[float, float]]
Make = Callable[..., SpatialStream]
#: Synthetic streams by their name in a specification, and their box; add others here.
SPATIAL_GENERATORS: dict[str, tuple[Make, Corners]] = {
    "circles": (concentric_circles, CIRCLES),
    "pickups": (made_up_pickups, NEW_YORK),
    "check_ins": (made_up_check_ins, EARTH),
}
#: File formats by name: the loader, and the box unless the table has one.
FORMATS: dict[str, tuple[Make, Corners]] = {
    "circles": (load_circles, CIRCLES),
    "pickups": (load_pickups, NEW_YORK),
    "gowalla": (load_gowalla, EARTH),
}
DOWNLOADS = ("gowalla",)
SIDES = ("left", "bottom", "right", "top")
#: Of synthetic streams and random choices of loaders, unless the table has one.
DEFAULT_SEED = 7


@dataclass(frozen=True)
class SpatialDataSet(DataSource):
    """A stream of points to publish.

    Attributes
    ----------
    name, kind, source : str
        As in every :class:`DataSource`.
    format : str
        Of the file; empty for synthetic data.
    box : two (float, float)
        Lower and upper corner of the public domain, or of the points that are read if there is another domain.
    domain : str
        A name of ``DOMAINS``, a GeoJSON file, or empty: the box.
    start : int
        Batches that belong to the initial set: the paper's initialisation time t0.
    parameters : mapping
        Of the generator or loader.
    place : str
        Its path in the TOML file, for messages.
    """

    study: ClassVar[str] = "points"

    format: str
    box: Corners
    domain: str = ""
    start: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    place: str = field(default="datasets", compare=False)

    def __post_init__(self) -> None:
        """Check ranges."""
        validation.integer("start", self.start, 0)

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        return {**super().table(), "parameters": dict(self.parameters), "box": [list(corner) for corner in self.box]}

    def files(self, folder: Path) -> list[Path]:
        """The points' and the domain's."""
        own = self.domain and self.domain not in DOMAINS
        return [*super().files(folder), *([folder / self.domain] if own else [])]

    def load(self, folder: Path) -> PointTruth:
        """The events, and the domain that contains them.

        Raises
        ------
        ParameterError, DataError
            If a parameter or the file is wrong, or fewer than ``start`` batches exist.
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
            return PointTruth(self, stream, Box(*self.box), "")
        domain, digest = load_domain(self.domain, folder)
        return PointTruth(self, confined(stream, domain), domain, digest)


def claims(table: Mapping[str, Any]) -> bool:
    """Whether a ``[[datasets]]`` table is one of points rather than of values."""
    made = table.get("generator")
    downloaded = table.get("download") in DOWNLOADS and "column" not in table
    return "format" in table or downloaded or (isinstance(made, str) and made in SPATIAL_GENERATORS)


def read_data_set(table: Mapping[str, Any], place: str, name: str, top: Mapping[str, Any]) -> SpatialDataSet:
    """A data set from its ``[[datasets]]`` table, lists expanded."""
    kind, source = read_source(table, place, tuple(SPATIAL_GENERATORS), DOWNLOADS)
    file_format = ""
    if kind == "generator":
        make, box = SPATIAL_GENERATORS[source]
    else:
        given = table.get("format") if kind == "file" else source
        file_format = validation.choice(f"{place}.format", given, tuple(FORMATS))
        make, box = FORMATS[file_format]
    further = {"generator": (), "download": ("box",), "file": ("box", "format")}[kind]
    accepted = [key for key in inspect.signature(make).parameters if key not in ("path", "box")]
    check_keys(table, place, ("name", kind, "start", "domain", *further, *accepted))
    parameters = {key: table[key] for key in accepted if key in table}
    if "seed" in accepted:
        seed = parameters.get("seed", DEFAULT_SEED)
        parameters["seed"] = validation.integer(f"{place}.seed", seed, 0)
    if "box" in table:
        box = read_box(table["box"], f"{place}.box")
    if "domain" in table:
        text(f"{place}.domain", table["domain"])
    own = {key: table[key] for key in ("start", "domain") if key in table}
    identity: dict[str, Any] = {"name": name, "kind": kind, "source": source, "format": file_format, "box": box}
    return read(SpatialDataSet, own, place, **identity, parameters=parameters, place=place)


def read_box(table: object, place: str) -> Corners:
    """Corners from a table with the numbers left, bottom, right and top."""
    checked = as_table(table, place)
    check_keys(checked, place, SIDES, SIDES)
    left, bottom, right, top = (validation.real(f"{place}.{side}", checked[side]) for side in SIDES)
    with placed(place):
        Box((left, bottom), (right, top))
    return (left, bottom), (right, top)
