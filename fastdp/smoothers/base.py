"""What every smoother offers."""

from __future__ import annotations

import math
from typing import Protocol, cast, runtime_checkable

import numpy as np

from fastdp.arrays.kinds import Floats

#: What a smoother remembers between two calls: numbers, so that state files can hold it.  Never changed in place.
SmootherState = Floats


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


#: Blocks that a smoother can count: whole floats are exact up to there.
MAX_BLOCKS = 2.0**53


@runtime_checkable
class CheckedSmoother(Protocol):
    """A smoother that checks which memories it may have, before memories of a state file are used."""

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """Whether :meth:`Smoother.start` and steps can have left this.

        Parameters
        ----------
        state : float64[any]
            Finite numbers, as many as a fresh state has.
        theta : float
            The threshold that the smoother was started with.
        blocks : int
            So many blocks at most have been seen since.
        """


def is_count(number: float, most: int) -> bool:
    """Whether it may be a number of blocks, at most so many."""
    return 0.0 <= number <= min(most, MAX_BLOCKS) and number == math.floor(number)


@runtime_checkable
class RowSmoother(Protocol):
    """A smoother that can predict for many streams in one call; others are asked stream by stream."""

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """Predictions of many streams from their beginning, each what ``start`` and ``step`` give for its row.

        Parameters
        ----------
        firsts, thetas : float64[n]
            The arguments of ``start``, for each stream.
        means : float64[n, k]
            Released means of each stream's first k blocks; need not be contiguous.

        Returns
        -------
        float64[n, k]
            Predictions after each block (``means`` itself if they are equal).
        """


def predict_rows(smoother: Smoother, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
    """:meth:`RowSmoother.step_rows` of any smoother."""
    # By name: isinstance with a protocol costs more than a short row.
    if hasattr(smoother, "step_rows"):
        return cast("RowSmoother", smoother).step_rows(firsts, thetas, means)
    rows = [np.ascontiguousarray(row) for row in means]
    starts = zip(firsts.tolist(), thetas.tolist(), rows, strict=True)
    predictions = [smoother.step(smoother.start(first, theta), row)[1] for first, theta, row in starts]
    return np.array(predictions).reshape(means.shape)
