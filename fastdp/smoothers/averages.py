"""Smoothers that average: Mean, MovingAverage and Exponential (ToPS Appendix D, items 2, 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastdp import validation
from fastdp.arrays.kinds import Floats
from fastdp.errors import ParameterError
from fastdp.smoothers.base import SmootherState, is_count
from fastdp_kernels import moving_window


@dataclass(frozen=True)
class Mean:
    """Predicts the mean of all blocks seen.

    Notes
    -----
    Appendix D, item 2, divides t + 1 terms (the guess u_0 among them) by t; this is the mean of the t blocks.
    """

    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        """No block, sum 0."""
        return np.zeros(2)

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """Running mean; the sum is carried, so any cutting gives the same floats."""
        counts = state[0] + np.arange(1.0, means.size + 1.0)
        sums = np.cumsum(np.concatenate([state[1:], means]))
        return np.array([state[0] + means.size, sums[-1]]), sums[1:] / counts

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """A number of blocks comes first."""
        return is_count(float(state[0]), blocks)

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """Running means of many streams, added up in the same order."""
        return np.cumsum(means, axis=1) / np.arange(1.0, means.shape[1] + 1.0)


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
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameter."""
        object.__setattr__(self, "window", validation.integer("window", self.window, 1, 65_536))

    def start(self, first: float, theta: float) -> SmootherState:
        """How many blocks, the running sum, then the ring; the guess is the first of the window."""
        return self.step(np.zeros(self.window + 2), np.array([first]))[0]

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """O(1) a block; sums never outlive two windows, so rounding errors do not pile up on an endless stream."""
        if means.size == 0:
            return state, means
        following, out = state.copy(), np.empty(means.size)
        following[0] += means.size
        following[1] = moving_window.follow_window(following[2:], int(state[0]), float(state[1]), means, out)
        return following, out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """A number of blocks comes first, the guess among them; it says where in the ring the next one goes."""
        return is_count(float(state[0]) - 1.0, blocks)

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """The same for many streams."""
        out = np.empty(means.shape)
        if out.size:
            moving_window.follow_windows(
                firsts, np.ascontiguousarray(means), np.empty(self.window), np.empty(means.shape[1]), out
            )
        return out


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
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameter."""
        alpha = validation.positive("alpha", self.alpha)
        if alpha > 1.0:
            raise ParameterError(f"alpha = {self.alpha!r}: expected a number above 0 and at most 1")
        object.__setattr__(self, "alpha", alpha)

    def start(self, first: float, theta: float) -> SmootherState:
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

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """The same for many streams."""
        if means.shape[1] == 0:
            return means
        from scipy.signal import lfilter

        keep = 1.0 - self.alpha
        return lfilter([self.alpha], [1.0, -keep], means, axis=1, zi=keep * firsts[:, None])[0]
