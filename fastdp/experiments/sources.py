"""The data sets of a sweep: made up by name, from a file, or downloaded before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_floats
from fastdp.datasets import CATALOGUE, TABLE1, catalogue, dns_like_day, hold_out_and_extend, table1
from fastdp.datasets.generated import DNS_BOUND
from fastdp.errors import DataError, FastDPError
from fastdp.experiments.origin import KINDS, Origin
from fastdp.experiments.spatial_sources import SPATIAL_GENERATORS
from fastdp.experiments.tables import TableReader, placed
from fastdp.files.readers import open_source

Floats = NDArray[np.float64]
_CHUNK = 2**18


@dataclass(frozen=True)
class Generator:
    """A made-up stream: what makes it, what it accepts, and its bound by default."""

    make: Callable[..., NDArray[Any]]
    accepted: tuple[str, ...]
    bound: Callable[[Mapping[str, Any]], float]


def _table1_bound(parameters: Mapping[str, Any]) -> float:
    return float(TABLE1[validation.choice("stream", parameters.get("stream"), tuple(TABLE1))].bound)


#: Generators by the name that a specification calls them; add to it what else a sweep is to run on.
GENERATORS: dict[str, Generator] = {
    "table1": Generator(table1, ("stream", "n", "order", "seed"), _table1_bound),
    "dns_like_day": Generator(dns_like_day, ("n", "seed"), lambda parameters: float(DNS_BOUND)),
}
_KEYS = ("name", *KINDS, "column", "bound", "published", "holdout", "max_range", "overlap")


@dataclass(frozen=True)
class DataSet(Origin):
    """A stream to publish.

    Attributes
    ----------
    name, kind, source : str
        As every :class:`Origin` has them.
    bound : float
        Public bound of a value.
    holdout, max_range : int
        m and r.
    parameters : mapping
        Of the generator.
    column : str or None
        Of the file.
    published : int or None
        Length of the published part; a stream that is shorter is extended by reflection, a longer one cut off.  None:
        all there is after the hold-out.
    overlap : bool
        The published part begins with the hold-out again, as in ToPS section 5.4; no privacy then.
    place : str
        Where it stands in TOML, for messages.
    """

    bound: float
    holdout: int
    max_range: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    published: int | None = None
    overlap: bool = False
    place: str = field(default="datasets", compare=False)

    def load(self, folder: Path) -> Floats:
        """The hold-out and then the published part: float64[holdout + published], read-only.

        Parameters
        ----------
        folder : Path
            Where files are sought that have no absolute path.

        Raises
        ------
        DataError
            If there are no data, or they are shorter than the hold-out.
        """
        values = self._read(folder)
        if values.size <= self.holdout:
            raise DataError(
                f"{self.place}: holdout = {self.holdout}: expected less than the {values.size} values of {self.name}"
            )
        if not np.isfinite(values).all():
            raise DataError(f"{self.place}: {self.name} holds NaN or infinity: expected finite values")
        rest = values if self.overlap else values[self.holdout :]
        published = rest.size if self.published is None else self.published
        if self.overlap:
            whole = np.concatenate([values[: self.holdout], hold_out_and_extend(values, 0, published)])
        else:
            whole = hold_out_and_extend(values, self.holdout, published)
        return as_floats(whole)

    def _read(self, folder: Path) -> Floats:
        if self.kind == "generator":
            with placed(self.place):
                return as_floats(GENERATORS[self.source].make(**self.parameters))
        try:
            if self.kind == "download":
                return catalogue.load(self.source, self.column)
            with open_source(str(folder / self.source), self.column, _CHUNK) as source:
                return np.concatenate([np.empty(0), *source.chunks])
        except FastDPError as error:
            raise type(error)(f"{self.place}: {error}") from error


def read_data_set(table: Mapping[str, Any], place: str, name: str, holdout: int, max_range: int) -> DataSet:
    """A data set from its table, every list already expanded.

    Parameters
    ----------
    table : mapping
        A ``[[datasets]]`` table.
    place : str
        Where it stands.
    name : str
        Its label.
    holdout, max_range : int
        Where the table has none of its own.
    """
    reader = TableReader(table, place)
    kind = reader.one_of(KINDS)
    if kind == "generator":
        source = reader.choice(kind, (*GENERATORS, *SPATIAL_GENERATORS))
        generator = GENERATORS[source]
        reader.refuse_others((*(key for key in _KEYS if key != "column"), *generator.accepted))
        parameters = {key: table[key] for key in generator.accepted if key in table}
        with placed(place):
            usual: float | None = generator.bound(parameters)
    else:
        source = reader.choice(kind, tuple(CATALOGUE)) if kind == "download" else reader.text(kind)
        reader.refuse_others(_KEYS)
        parameters = {}
        usual = CATALOGUE[source].bound if kind == "download" else None
    column = reader.text("column") if "column" in reader else None
    bound = reader.positive("bound") if usual is None or "bound" in reader else usual
    return DataSet(
        name=name,
        kind=kind,
        source=source,
        bound=bound,
        holdout=reader.integer("holdout", holdout),
        max_range=reader.integer("max_range", max_range, 1, 2**40),
        parameters=parameters,
        column=column,
        published=reader.integer("published", low=1) if "published" in reader else None,
        overlap=reader.flag("overlap", False),
        place=place,
    )
