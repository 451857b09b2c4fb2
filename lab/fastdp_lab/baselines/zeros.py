"""Zeros: the baseline that publishes zeros (ToPS section 5.3); a method is useful where it beats this one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp import Guarantee, Release, validation
from fastdp.data.column import as_column, as_whole
from fastdp.kinds import Floats


class Zeros:
    """Publishes a zero for every value after the hold-out, and so reveals nothing.

    Parameters
    ----------
    holdout : int
        Values that are not published, to compare with methods that have a hold-out.
    """

    guarantee = Guarantee(epsilon=0.0, arithmetic="exact", derivation=("zeros whatever the values are: epsilon 0",))
    #: There is no noise.
    noise_fingerprint = None

    def __init__(self, holdout: int = 0) -> None:
        self.holdout = validation.integer("holdout", holdout, 0)
        self.n_seen = 0

    def publish(self, chunk: Any) -> Floats:
        """A zero for each value after the hold-out: float64[n]."""
        size = as_column(chunk).size
        held = min(size, max(0, self.holdout - self.n_seen))
        self.n_seen += size
        return np.zeros(size - held)

    def release(self, values: Any) -> Release:
        """Zeros for a whole array, longer than the hold-out (a fresh object only)."""
        published = self.publish(as_whole(values, self.n_seen, self.holdout))
        return Release(published, self.holdout, np.zeros(1), self.guarantee)
