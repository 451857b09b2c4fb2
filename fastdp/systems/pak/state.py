"""Where a PAK publisher stands, and how a state file holds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastdp.state import codec, persistence
from fastdp.systems.pak.parameters import PAKParameters
from fastdp.systems.pak.running_sum import RunningSum, Steps


@dataclass(frozen=True)
class PAKState:
    """One position in the stream; replaced as a whole.

    Attributes
    ----------
    lag : float64[m]
        The hold-out as far as it has come; dropped once the threshold is chosen.  Secret.
    n_seen : int
        Values consumed, the hold-out included.
    tree : RunningSum or None
        The counter behind the hold-out; None before.
    running : float or None
        The running sum released last, in units of the input.
    recent : int64[at most w]
        The last running sums, in grid steps, if averages over w values are published.
    """

    lag: NDArray[np.float64]
    n_seen: int = 0
    tree: RunningSum | None = None
    running: float | None = None
    recent: Steps = field(default_factory=lambda: np.empty(0, np.int64))

    def describe(self) -> persistence.Position:
        """The position for a state file."""
        tree = self.tree
        return {
            "n_seen": self.n_seen,
            "running": self.running,
            "lag": codec.pack(self.lag[: self.n_seen] if tree is None else self.lag, "<f8"),
            "recent": codec.pack(self.recent, "<i8"),
            "counter": None if tree is None else {"theta_steps": tree.theta_steps, **tree.describe()},
        }

    @classmethod
    def resume(
        cls, saved: persistence.Position, plan: PAKParameters, plant: Callable[[int, int], RunningSum]
    ) -> PAKState:
        """The position that was described; ``plant`` makes a counter from theta in steps and a base sum.

        ValueError, LookupError or TypeError if the plan has no such position.
        """
        n_seen, running, counter = codec.whole(saved["n_seen"]), saved["running"], saved["counter"]
        held = codec.unpack(saved["lag"], "<f8").astype(np.float64)
        recent = codec.unpack(saved["recent"], "<i8").astype(np.int64)
        window = plan.average if isinstance(plan.average, int) else 0
        lag, tree, seen = np.empty(0 if counter else plan.holdout), None, held.size
        if counter:
            theta_steps = codec.whole(counter["theta_steps"])
            if not 1 <= theta_steps <= plan.grid.bound_steps:
                raise ValueError("a threshold out of range")
            tree = plant(theta_steps, 0).resume(counter["seen"], counter["total"], counter["above"])
            seen = plan.holdout + tree.seen
        else:
            lag[:seen] = held
        early = n_seen < plan.holdout
        # The first m values have one running sum, or one each.
        sums = 0 if early else n_seen - (0 if plan.lag_sums else max(plan.holdout - 1, 0))
        if (
            n_seen != seen
            or early == bool(counter)
            or recent.size != min(window, sums)
            or not np.isfinite(held).all()
        ):
            raise ValueError("a position out of range")
        if (running is None) != (sums == 0) or not (running is None or math.isfinite(running)):
            raise ValueError("a running sum out of range")
        return cls(lag, n_seen, tree, None if running is None else float(running), recent)
