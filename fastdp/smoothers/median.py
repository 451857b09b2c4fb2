"""The Median smoother of ToPS (Appendix D, item 3), in constant memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastdp.arrays.kinds import Floats
from fastdp.smoothers.base import SmootherState, is_count
from fastdp_kernels import running_median

BINS = 2**14


def _bins(theta: float) -> Floats:
    """Lower end and width."""
    return np.array([-theta, 3.0 * theta / BINS])


@dataclass(frozen=True)
class Median:
    """Predicts the median of the means of all blocks seen.

    Notes
    -----
    Appendix D, item 3, misses the factor 1 / b^s; this is the median per value.  An exact running median would
    have to remember every block of an endless stream.  Here block means are counted in 16,384 bins over
    [-theta, 2 theta], so the prediction is off by at most theta / 10,000, far below the noise, and memory is
    constant (128 KiB).  Means beyond these ends count as the ends.
    """

    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        """Lower end and width of the bins, then their counts."""
        return np.concatenate([_bins(theta), np.zeros(BINS)])

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """Count the blocks and follow the median."""
        if means.size == 0:
            return state, means
        following = state.copy()
        out = np.empty(means.size)
        running_median.follow_median(following[2:], float(state[0]), float(state[1]), means, out)
        return following, out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """The bins of this threshold, and in each a number of blocks."""
        counts = state[2:]
        counted = counts.min() >= 0.0 and bool((counts == np.floor(counts)).all())
        return bool(np.array_equal(state[:2], _bins(theta)) and counted and is_count(float(counts.sum()), blocks))

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """The same for many streams; the bins are cleared for each."""
        out = np.empty(means.shape)
        if out.size:
            dense, counts = np.ascontiguousarray(means), np.empty(BINS)
            widths, scratch = 3.0 * thetas / BINS, np.empty(means.shape[1])
            running_median.follow_medians(-thetas, widths, dense, counts, scratch, out)
        return out
