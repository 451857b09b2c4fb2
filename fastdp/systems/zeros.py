"""Zeros: the baseline that publishes zeros (ToPS section 5.3); what a method must beat to be of use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_column
from fastdp.arrays.whole import check_size
from fastdp.guarantee import Guarantee
from fastdp.releases.release import Release


class Base:
    """Publishes a zero for every value after the hold-out, and so reveals nothing at all.

    Parameters
    ----------
    holdout : int
        Values that are not published, to compare with methods that have a hold-out.
    """

    def __init__(self, holdout: int = 0) -> None:
        self.holdout = validation.integer("holdout", holdout, 0)
        self.n_seen = 0

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon 0: the output does not depend on the values."""
        return Guarantee(epsilon=0.0, arithmetic="exact", derivation=("zeros whatever the values are: epsilon 0",))

    def publish(self, chunk: Any) -> NDArray[np.float64]:
        """A zero for each value after the hold-out: float64[n]."""
        size = as_column(chunk).size
        held = min(size, max(0, self.holdout - self.n_seen))
        self.n_seen += size
        return np.zeros(size - held)

    def release(self, values: Any) -> Release:
        """Zeros for a whole array; DataError if it is not longer than the hold-out."""
        size = as_column(values, "values").size
        check_size(size, self.holdout)
        return Release(np.zeros(size - self.holdout), self.holdout, 0.0, self.guarantee)
