"""Square-wave reports of a hold-out, to estimate from."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from benchmarks import sizes
from benchmarks.streams import DATA, Floats, item_counts
from fastdp import local


def hold_out() -> Floats:
    """65,536 values of POS where it is at hand, else a stream with about its quantiles."""
    path = DATA / "pos_length.npz"
    if not path.exists():
        return item_counts(sizes.HOLDOUT)
    with np.load(path) as file:
        return file["values"][: sizes.HOLDOUT].astype(np.float64)


@lru_cache(maxsize=4)
def client(epsilon: float) -> local.SquareWave:
    return local.SquareWave(epsilon, low=0.0, high=float(sizes.BOUND))


@lru_cache(maxsize=4)
def output_counts(epsilon: float) -> NDArray[np.int64]:
    """How often each output was reported."""
    users = client(epsilon)
    return np.bincount(users.perturb(hold_out(), seed=1), minlength=users.law.outputs)
