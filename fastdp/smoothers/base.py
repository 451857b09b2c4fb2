"""What every smoother offers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: What a smoother remembers between two calls: numbers, so that state files can hold it.  Never changed in place.
SmootherState = NDArray[np.float64]


class Smoother(Protocol):
    """Predicts the values of a block from the released means of earlier blocks.

    Smoothers see released numbers only, so they cost no privacy (post-processing).  A step is a pure function,
    and cutting the blocks into several steps changes nothing.
    """

    def start(self, first: float, theta: float) -> SmootherState:
        """State before any block.

        Parameters
        ----------
        first : float
            The prediction for the first block, u_0 / b^s in the paper, in units of the input.
        theta : float
            The threshold: no value exceeds it.
        """
        ...

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """State and predictions after each of the blocks whose released means (total / g) are given.

        Parameters
        ----------
        state : float64[any]
            From :meth:`start` or the step before.
        means : float64[k]
            Released means of k further blocks, in units of the input.

        Returns
        -------
        state : float64[any]
            For the next step.
        predictions : float64[k]
            What the values of the block after each of these are predicted to be.
        """
        ...
