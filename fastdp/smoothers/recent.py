"""The Recent smoother of ToPS (Appendix D, item 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastdp.arrays.kinds import Floats
from fastdp.smoothers.base import SmootherState


@dataclass(frozen=True)
class Recent:
    """Predicts the mean of the block before (the only causal reading of Appendix D, item 1)."""

    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        """Nothing to remember."""
        return np.empty(0)

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """The prediction after a block is that block's mean."""
        return state, means

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """The same for many streams."""
        return means
