"""What a domain of points offers; its cells come from cutting its bounding box."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.kinds import Floats, Integers

#: What becomes of points outside the domain: an error, or the nearest place inside.
Outside = Literal["raise", "clip"]


class Domain(Protocol):
    """A public region with a measure; nothing here depends on data.

    A domain that is thinner than its tolerance, such as a road network, may also have ``snap(points)``: the place in
    the domain nearest to each point, float64[n, d].

    Attributes
    ----------
    dim : int
        d.
    lower, upper : float64[d]
        Corners of the bounding box.
    """

    @property
    def dim(self) -> int:
        """Coordinates of a point."""

    @property
    def lower(self) -> Floats:
        """Lower corner of the bounding box, float64[d]."""

    @property
    def upper(self) -> Floats:
        """Upper corner of the bounding box, float64[d]."""

    def measure(self, lower: Floats, upper: Floats) -> Floats:
        """Volume, area or length of the domain inside each box; lower, upper float64[n, d], returns float64[n]."""

    def sample(self, lower: Floats, upper: Floats, counts: Integers, generator: np.random.Generator) -> Floats:
        """Uniform points of the domain inside each box, box by box: float64[sum of counts, d]."""

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Which of the points, float64[n, d], lie in the domain, its border included."""
