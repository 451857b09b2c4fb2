"""Box queries: how many points are in boxes, at several times.

Source: PHDStream section 5.4: boxes in three classes of size, asked at regular intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp_lab.queries.boxes import PAPER_SETS, BoxQueries, Placement, random_boxes
from fastdp_lab.sweeps.data_source import plain
from fastdp_lab.sweeps.points.data_set import Corners, read_box
from fastdp_lab.sweeps.reading import check_entries, check_rising, read, text

CLASSES = tuple(name for name, *_ in PAPER_SETS)
ANSWERS = ("points", "cells")
PLACEMENTS = ("inside", "clipped")
#: Keys of the table of each kind.
_KEYS = {
    "boxes": ("name", "kind", "times", "count", "answers", "classes", "placement", "fixed"),
    "map": ("name", "kind", "times", "count", "answers", "box"),
}
_TIMES = {"boxes": 11, "map": 3}
_MAX_COUNTS = {"boxes": 10**6, "map": 1000}
_MAP_SIDE = 48


@dataclass(frozen=True)
class BoxWorkload:
    """A kind of box queries.

    Attributes
    ----------
    name : str
        The label in results.
    kind : "boxes" or "map"
        Random boxes, each class of size a group; or a grid of boxes that covers the domain, each its own group, in
        the first repetition only, for pictures.
    times : int or tuple of int
        The batches after which queries are asked, 0 for the initial set; or how many such times, evenly spaced, first
        and last included.
    classes : tuple of str
        Among "small" (0.01 to 0.1 % of the domain), "medium" (to 1 %) and "large" (to 10 %).
    count : int or None
        Boxes of each class, by default the paper's 10,000, 5,000 and 1,000; or of a map along each axis.
    placement : "inside" or "clipped"
        See :func:`fastdp.spatial.random_boxes`.
    answers : "points" or "cells"
        Whether synthetic points are counted, as in the paper, or the released tree is asked.
    fixed : bool
        The same boxes in every repetition; else each repetition draws its own, and all mechanisms share them.
    box : two (float, float) or None
        What a map shows; by default the domain.
    place : str
        Its path in the TOML file, for messages.
    """

    name: str = "boxes"
    kind: str = "boxes"
    times: int | tuple[int, ...] = _TIMES["boxes"]
    classes: tuple[str, ...] = CLASSES
    count: int | None = None
    placement: str = "inside"
    answers: str = "points"
    fixed: bool = True
    box: Corners | None = None
    place: str = field(default="workloads", compare=False)

    def __post_init__(self) -> None:
        """Check ranges."""
        text("name", self.name)
        validation.choice("kind", self.kind, tuple(_KEYS))
        if isinstance(self.times, tuple):
            check_rising("times", self.times, 0, "numbers of batches")
        else:
            validation.integer("times", self.times, 2)
        check_entries("classes", self.classes, lambda name, each: validation.choice(name, each, CLASSES))
        if self.count is not None:
            validation.integer("count", self.count, 1, _MAX_COUNTS[self.kind])
        validation.choice("placement", self.placement, PLACEMENTS)
        validation.choice("answers", self.answers, ANSWERS)

    def table(self) -> dict[str, Any]:
        """All fields, as plain values."""
        return plain(self)

    def looks(self, steps: int) -> tuple[int, ...]:
        """The batches after which queries are asked, of a stream with so many."""
        if isinstance(self.times, tuple):
            return self.times
        return tuple(np.unique(np.linspace(0, steps, self.times).astype(int)).tolist())

    def check(self, size: int) -> None:
        """ParameterError if a stream of this many batches ends before the last time."""
        if isinstance(self.times, tuple) and self.times[-1] > size:
            raise ParameterError(f"{self.place}.times = {list(self.times)}: expected at most the {size} batches")

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


def read_workload(table: dict[str, Any], place: str) -> BoxWorkload:
    """A workload from its ``[[workloads]]`` table."""
    kind = validation.choice(f"{place}.kind", table.get("kind", "boxes"), tuple(_KEYS))
    chosen = {"name": kind, "times": _TIMES[kind], **table}
    box = read_box(chosen.pop("box"), f"{place}.box") if kind == "map" and "box" in chosen else None
    return read(BoxWorkload, chosen, place, _KEYS[kind], box=box, place=place)
