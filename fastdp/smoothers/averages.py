"""Smoothers that average: Mean, MovingAverage and Exponential (ToPS Appendix D, items 2, 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.smoothers.base import Floats, SmootherState


@dataclass(frozen=True)
class Mean:
    """Predicts the mean of all blocks seen.

    Notes
    -----
    Appendix D, item 2, divides t + 1 terms (the guess u_0 among them) by t; this is the mean of the t blocks.
    """

    def start(self, first: float) -> SmootherState:
        """No block, sum 0."""
        del first
        return np.zeros(2)

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """Running mean; the sum is carried, so any cutting gives the same floats."""
        counts = state[0] + np.arange(1.0, means.size + 1.0)
        sums = np.cumsum(np.concatenate([state[1:], means]))
        return np.array([state[0] + means.size, sums[-1]]), sums[1:] / counts


@dataclass(frozen=True)
class MovingAverage:
    """Predicts the mean of the last ``window`` blocks.

    Parameters
    ----------
    window : int
        w, at least 1 and at most 65,536.

    Notes
    -----
    Appendix D, item 4: w terms (the published code takes w + 1); before w blocks have been seen the guess u_0
    counts as one of them.
    """

    window: int = 8

    def __post_init__(self) -> None:
        """Check the parameter."""
        object.__setattr__(self, "window", validation.integer("window", self.window, 1, 65_536))

    def start(self, first: float) -> SmootherState:
        """The guess is the first of the window."""
        return np.array([first])

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """Each prediction sums its own window, so no rounding errors pile up on an endless stream."""
        w = self.window
        history = np.concatenate([state, means])
        # Windows still growing are summed one by one, full ones from a view.
        growing = [history[: i + 1].mean() for i in range(state.size, min(w, history.size))]
        begin = max(state.size + len(growing) + 1 - w, 0)
        if history.size - begin >= w:
            full = np.lib.stride_tricks.sliding_window_view(history[begin:], w).mean(axis=1)
        else:
            full = np.empty(0)
        return history[-w:].copy(), np.concatenate([np.array(growing), full])


@dataclass(frozen=True)
class Exponential:
    """Predicts alpha times the last block's mean plus (1 - alpha) times the prediction before.

    Parameters
    ----------
    alpha : float
        In (0, 1]; 1 is :class:`Recent`.

    Notes
    -----
    Appendix D, item 5; the first prediction is the guess u_0.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        """Check the parameter."""
        alpha = validation.positive("alpha", self.alpha)
        if alpha > 1.0:
            raise ParameterError(f"alpha = {self.alpha!r}: expected a number above 0 and at most 1")
        object.__setattr__(self, "alpha", alpha)

    def start(self, first: float) -> SmootherState:
        """The guess."""
        return np.array([first])

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """A first-order recursive filter."""
        if means.size == 0:
            return state, means
        from scipy.signal import lfilter

        keep = 1.0 - self.alpha
        predictions, _ = lfilter([self.alpha], [1.0, -keep], means, zi=keep * state)
        return predictions[-1:].copy(), predictions
