"""The Recent smoother of ToPS (Appendix D, item 1), and what every smoother offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: What a smoother remembers between two calls: a few numbers, so that state files can hold it.
SmootherState = tuple[float, ...]


class Smoother(Protocol):
    """Predicts the values of a block from the released means of earlier blocks.

    Smoothers see released numbers only, so they cost no privacy.  A step is a pure function.
    """

    def start(self, first: float) -> SmootherState:
        """State before any block; ``first`` is the prediction for the first block."""
        ...

    def step(self, state: SmootherState, means: NDArray[np.float64]) -> tuple[SmootherState, NDArray[np.float64]]:
        """State and predictions after each of the blocks whose released means (total / g) are given."""
        ...


@dataclass(frozen=True)
class Recent:
    """Predicts the mean of the block before (the only causal reading of Appendix D, item 1)."""

    def start(self, first: float) -> SmootherState:
        """Nothing to remember."""
        del first
        return ()

    def step(self, state: SmootherState, means: NDArray[np.float64]) -> tuple[SmootherState, NDArray[np.float64]]:
        """The prediction after a block is that block's mean."""
        return state, means
