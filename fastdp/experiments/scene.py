"""A data set ready to be measured on: exact range sums, raw and clipped, shared by all cells."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.experiments.kept import Kept
from fastdp.experiments.queries import Queries
from fastdp.experiments.sources import DataSet
from fastdp.experiments.spatial_scene import SpatialScene
from fastdp.experiments.spatial_sources import SpatialDataSet

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
#: What is kept: thresholds repeat where candidates are whole numbers, queries in every mechanism.
MOST_CLIPPED, MOST_QUERIES = 64, 1024
MAX_SCENES = 4


@dataclass(frozen=True, eq=False)
class Clipped:
    """Prefix sums of what clipping at a threshold takes away; few values are above a threshold.

    Attributes
    ----------
    places : int64[k]
        Positions of the values above it.
    excess : float64[k + 1]
        Prefix sums of value minus threshold over these.
    """

    places: Indices
    excess: Floats

    def before(self, stops: Indices) -> Floats:
        """What is taken away from the first ``stops`` values: float64[q]."""
        sums: Floats = self.excess[np.searchsorted(self.places, stops)]
        return sums


@dataclass(frozen=True, eq=False)
class Scene:
    """A stream, hold-out first, and the truth of its published part; safe for threads.

    Attributes
    ----------
    data_set : DataSet
        What it was loaded from.
    values : float64[holdout + published], read-only
        The whole stream.
    queries : Kept
        Queries drawn before, which all mechanisms share.
    """

    data_set: DataSet
    values: Floats
    queries: Kept[Queries] = field(default_factory=lambda: Kept(MOST_QUERIES), repr=False)
    _clipped: Kept[Clipped] = field(default_factory=lambda: Kept(MOST_CLIPPED), repr=False)

    @property
    def size(self) -> int:
        """Length of the published part."""
        return self.body.size

    @property
    def facts(self) -> dict[str, Any]:
        """Length and digest, for the manifest."""
        return {"values": self.values.size, "sha256": self.digest}

    def prepare(self) -> None:
        """Make what all cells need, so that no two threads do it."""
        assert self.prefix.size  # noqa: S101
        assert self.digest  # noqa: S101

    @property
    def body(self) -> Floats:
        """The published part."""
        return self.values[self.data_set.holdout :]

    @cached_property
    def digest(self) -> str:
        """A short name for exactly these values."""
        return hashlib.sha256(self.values.data).hexdigest()[:32]

    @cached_property
    def prefix(self) -> Floats:
        """Prefix sums of the published part: float64[published + 1]."""
        sums = np.zeros(self.body.size + 1)
        np.cumsum(self.body, out=sums[1:])
        return sums

    def clipped(self, theta: float) -> Clipped:
        """What clipping at theta takes away; values below 0 are left out, publishers clip them to 0."""
        return self._clipped.get(theta, lambda: self._clip(theta))

    def _clip(self, theta: float) -> Clipped:
        body = self.body
        places = np.flatnonzero((body > theta) | (body < 0.0))
        excess = np.zeros(places.size + 1)
        np.cumsum(body[places] - np.clip(body[places], 0.0, theta), out=excess[1:])
        return Clipped(places, excess)


AnyScene = Scene | SpatialScene
_SCENES: OrderedDict[tuple[str, str], AnyScene] = OrderedDict()
_SCENES_LOCK = threading.Lock()


def load_scene(data_set: DataSet | SpatialDataSet, folder: Path) -> AnyScene:
    """The scene of a data set, loaded once in a process; a cache that nothing but speed depends on."""
    key = (str(folder), repr((data_set, data_set.stamp(folder))))
    with _SCENES_LOCK:
        if key not in _SCENES:
            if isinstance(data_set, SpatialDataSet):
                _SCENES[key] = SpatialScene(data_set, *data_set.load(folder))
            else:
                _SCENES[key] = Scene(data_set, data_set.load(folder))
            _SCENES[key].prepare()
            while len(_SCENES) > MAX_SCENES:
                _SCENES.popitem(last=False)
        _SCENES.move_to_end(key)
        return _SCENES[key]
