"""Domains for tests of points mechanisms."""

from __future__ import annotations

import numpy as np

from fastdp.points import Box


class HalfBox(Box):
    """A box of which only the part below a line counts: measures that halves do not share equally."""

    def __init__(self, lower, upper, ceiling: float) -> None:
        super().__init__(lower, upper)
        self.ceiling = ceiling

    def measure(self, lower, upper):
        cut = upper.copy()
        cut[:, -1] = np.minimum(cut[:, -1], self.ceiling)
        return super().measure(lower, cut)

    def sample(self, lower, upper, counts, generator):
        cut = upper.copy()
        cut[:, -1] = np.minimum(cut[:, -1], self.ceiling)
        return super().sample(lower, cut, counts, generator)

    def contains(self, points):
        return super().contains(points) & (points[:, -1] <= self.ceiling)


class Plain:
    """A domain that is not a :class:`Box`: mechanisms take the path of general domains."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def __getattr__(self, name: str):
        return getattr(self.box, name)
