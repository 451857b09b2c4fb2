"""The streams of a sweep: synthetic ones by name, from a file, or downloaded before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_floats
from fastdp.cli.day import DNS_BOUND
from fastdp.errors import DataError, FastDPError
from fastdp.files.readers import open_source
from fastdp_lab.datasets import (
    CATALOGUE,
    TABLE1,
    catalogue,
    dns_like_day,
    extend_by_reflection,
    hold_out_and_extend,
    table1,
)
from fastdp_lab.sweeps.data_source import KINDS, DataSource, read_source
from fastdp_lab.sweeps.points.data_set import SPATIAL_GENERATORS
from fastdp_lab.sweeps.reading import check_keys, placed, read, text
from fastdp_lab.sweeps.values.mechanisms import Setting
from fastdp_lab.sweeps.values.truth import ValueTruth

Floats = NDArray[np.float64]
_CHUNK = 2**18


@dataclass(frozen=True)
class Generator:
    """A synthetic stream: the function that returns it, the parameters it accepts, and its default bound."""

    make: Callable[..., NDArray[Any]]
    accepted: tuple[str, ...]
    bound: Callable[[Mapping[str, Any]], float]


def _table1_bound(parameters: Mapping[str, Any]) -> float:
    return float(TABLE1[validation.choice("stream", parameters.get("stream"), tuple(TABLE1))].bound)


#: Generators by their name in a specification; add others here.
GENERATORS: dict[str, Generator] = {
    "table1": Generator(table1, ("stream", "n", "order", "seed"), _table1_bound),
    "dns_like_day": Generator(dns_like_day, ("n", "seed"), lambda parameters: float(DNS_BOUND)),
}
_FIELDS = ("column", "bound", "published", "holdout", "max_range", "overlap")


@dataclass(frozen=True)
class DataSet(DataSource):
    """A stream to publish.

    Attributes
    ----------
    name, kind, source : str
        As in every :class:`DataSource`.
    bound : float
        Public bound of a value.
    holdout, max_range : int
        m and r.
    parameters : mapping
        Of the generator.
    column : str or None
        Of the file.
    published : int or None
        Length of the published part: a shorter stream is extended by reflection, a longer one is cut.  None: all
        values after the hold-out.
    overlap : bool
        Whether the published part begins with the hold-out again, as in ToPS section 5.4, which is not private; a
        stream shorter than the hold-out is extended by reflection then.
    place : str
        Its path in the TOML file, for messages.
    """

    study: ClassVar[str] = "values"

    bound: float
    holdout: int
    max_range: int
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    column: str | None = None
    published: int | None = None
    overlap: bool = False
    place: str = field(default="datasets", compare=False)

    def __post_init__(self) -> None:
        """Check ranges."""
        validation.positive("bound", self.bound)
        validation.integer("holdout", self.holdout, 0)
        validation.integer("max_range", self.max_range, 1, 2**40)
        if self.published is not None:
            validation.integer("published", self.published, 1)
        if self.column is not None:
            text("column", self.column)

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        return {**super().table(), "parameters": dict(self.parameters)}

    def setting(self, published: int, epsilon: float) -> Setting:
        """The public facts of a cell."""
        return Setting(self.bound, self.holdout, published, self.max_range, epsilon)

    def load(self, folder: Path) -> ValueTruth:
        """The hold-out and then the published part.

        Raises
        ------
        DataError
            If the data are absent, not finite, or not longer than the hold-out.
        """
        values = self._read(folder)
        if self.overlap:  # nothing is kept apart: a short stream may be as long as its hold-out
            values = extend_by_reflection(values, max(values.size, self.holdout))
        elif values.size <= self.holdout:
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
        return ValueTruth(self, as_floats(whole))

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
    """A data set from its ``[[datasets]]`` table, lists expanded, with defaults for hold-out and longest range."""
    kind, source = read_source(table, place, (*GENERATORS, *SPATIAL_GENERATORS), tuple(CATALOGUE))
    generator = GENERATORS[source] if kind == "generator" else None
    accepted = () if generator is None else generator.accepted
    own = _FIELDS if generator is None else _FIELDS[1:]
    check_keys(table, place, ("name", *KINDS, *own, *accepted))
    parameters = {key: table[key] for key in accepted if key in table}
    defaults: dict[str, Any] = {"holdout": holdout, "max_range": max_range}
    if generator is not None:
        with placed(place):
            defaults["bound"] = generator.bound(parameters)
    elif kind == "download" and (bound := CATALOGUE[source].bound) is not None:
        defaults["bound"] = bound
    chosen = {**defaults, **{key: table[key] for key in own if key in table}}
    return read(DataSet, chosen, place, name=name, kind=kind, source=source, parameters=parameters, place=place)
