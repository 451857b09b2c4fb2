"""The queries of a spatial sweep: how many points are in boxes, at several times.

Source: PHDStream section 5.4: boxes in three classes of size, asked at regular intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.experiments.spatial_sources import Corners, read_box
from fastdp.experiments.tables import TableReader
from fastdp.spatial import BoxQueries, random_boxes
from fastdp.spatial.queries import PAPER_SETS, Placement

KINDS = ("boxes", "map")
CLASSES = tuple(name for name, *_ in PAPER_SETS)
ANSWERS = ("points", "cells")
PLACEMENTS = ("inside", "clipped")
#: Looks at a stream, and boxes of a map along each axis, unless said otherwise.
_LOOKS, _MAP_LOOKS, _MAP_SIDE = 11, 3, 48


@dataclass(frozen=True)
class BoxWorkload:
    """A kind of box queries.

    Attributes
    ----------
    name : str
        The label in results.
    kind : "boxes" or "map"
        Random boxes, each class of size a group; or a grid of boxes that covers the domain, each a group of its own,
        in the first repetition alone, for pictures.
    times : int or tuple of int
        The batches after which is asked, 0 for the initial set; or how many, evenly over the stream, first and last.
    classes : tuple of str
        Among "small" (0.01 to 0.1 % of the domain), "medium" (to 1 %) and "large" (to 10 %).
    count : int or None
        Boxes of each class, by default the paper's 10,000, 5,000 and 1,000; or of a map along each axis.
    placement : "inside" or "clipped"
        See :func:`fastdp.spatial.random_boxes`.
    answers : "points" or "cells"
        Whether synthetic points are counted, as in the paper, or the released tree is asked.
    fixed : bool
        The same boxes in every repetition; else each repetition has its own, and all mechanisms share them.
    box : two (float, float) or None
        What a map shows; by default the domain.
    place : str
        Where it stands in TOML, for messages.
    """

    name: str = "boxes"
    kind: str = "boxes"
    times: int | tuple[int, ...] = _LOOKS
    classes: tuple[str, ...] = CLASSES
    count: int | None = None
    placement: str = "inside"
    answers: str = "points"
    fixed: bool = True
    box: Corners | None = None
    place: str = field(default="workloads", compare=False)

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "place"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    def looks(self, steps: int) -> tuple[int, ...]:
        """The batches after which is asked, of a stream with this many."""
        if isinstance(self.times, tuple):
            return self.times
        return tuple(np.unique(np.linspace(0, steps, self.times).astype(int)).tolist())

    def check(self, steps: int) -> None:
        """ParameterError if a stream of this many batches ends before a time that is asked for."""
        if isinstance(self.times, tuple) and self.times[-1] > steps:
            raise ParameterError(f"{self.place}.times = {list(self.times)}: expected at most the {steps} batches")

    def draw(self, box: Corners, seed: int) -> list[BoxQueries]:
        """The boxes in a domain's box, by group; a map is one group here."""
        if self.kind == "map":
            side = self.count or _MAP_SIDE
            low, high = self.box or box
            edges = [np.linspace(low[k], high[k], side + 1) for k in range(2)]
            corners = [
                np.stack(np.meshgrid(*(each[part] for each in edges), indexing="xy"), axis=-1).reshape(-1, 2)
                for part in (slice(None, -1), slice(1, None))
            ]
            return [BoxQueries(self.name, *corners)]
        seeds = np.random.SeedSequence(seed).generate_state(len(PAPER_SETS), np.uint64)
        return [
            random_boxes(
                *box,
                self.count or usual,
                low,
                high,
                placement=cast("Placement", self.placement),
                seed=int(own),
                name=name,
            )
            for (name, usual, low, high), own in zip(PAPER_SETS, seeds, strict=True)
            if name in self.classes
        ]


def read_box_workload(table: object, place: str) -> BoxWorkload:
    """A workload from its ``[[workloads]]`` table."""
    reader = TableReader(table, place, [name for name in BoxWorkload.__dataclass_fields__ if name != "place"])
    kind = reader.choice("kind", KINDS, "boxes")
    own = ("name", "kind", "times", "count", "answers")
    reader.refuse_others((*own, "box") if kind == "map" else (*own, "classes", "placement", "fixed"))
    times: int | tuple[int, ...] = _MAP_LOOKS if kind == "map" else _LOOKS
    if "times" in reader:
        if isinstance(reader.get("times"), (list, tuple)):
            times = reader.items("times", lambda name, value: validation.integer(name, value, 0))
            if list(times) != sorted(times):
                raise ParameterError(f"{reader.at('times')} = {list(times)}: expected rising numbers of batches")
        else:
            times = reader.integer("times", low=2)
    return BoxWorkload(
        name=reader.text("name", kind),
        kind=kind,
        times=times,
        classes=reader.items("classes", lambda name, value: validation.choice(name, value, CLASSES), CLASSES),
        count=reader.integer("count", low=1, high=10**6 if kind == "boxes" else 1000) if "count" in reader else None,
        placement=reader.choice("placement", PLACEMENTS, "inside"),
        answers=reader.choice("answers", ANSWERS, "points"),
        fixed=reader.flag("fixed", True),
        box=read_box(reader.get("box"), reader.at("box")) if "box" in reader else None,
        place=place,
    )
