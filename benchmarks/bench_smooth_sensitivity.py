"""Smooth sensitivity of a quantile of 65,536 values, by divide and conquer and by the papers' scan."""

from __future__ import annotations

from benchmarks.pak_holdouts import HOLDOUTS
from fastdp_kernels.smooth_sensitivity import divide_pairs, scan_pairs


class SmoothSensitivity:
    params = (tuple(HOLDOUTS),)
    param_names = ("holdout",)
    timeout = 120

    def setup(self, holdout: str) -> None:
        self.task = HOLDOUTS[holdout]()
        divide_pairs(*self.task)

    def time_divide(self, holdout: str) -> None:
        divide_pairs(*self.task)


class Scan:
    """O(m^2) with the early stop: seconds in the worst case, so each is timed once."""

    params = (tuple(HOLDOUTS),)
    param_names = ("holdout",)
    timeout = 300
    number, repeat, rounds, warmup_time = 1, 1, 1, 0.0

    def setup(self, holdout: str) -> None:
        self.task = HOLDOUTS[holdout]()
        values, bound, rank, decay = HOLDOUTS["heavy ties"]()
        scan_pairs(values[:64], bound, min(rank, 64), decay[:66])

    def time_scan(self, holdout: str) -> None:
        scan_pairs(*self.task)
