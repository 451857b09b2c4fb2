"""Predictions of the next block from released means."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from fastdp.kinds import Floats
from fastdp.record import Real, Whole, parameter, record
from fastdp_kernels.streams import windows

#: State of a smoother between two calls, as numbers for state files; never changed in place.
SmootherState = Floats


class Smoother(Protocol):
    """Predicts the values of a block from the released means of earlier blocks (post-processing).

    `step` is a pure function; cutting the blocks into several steps changes nothing.
    """

    def start(self, first: float, theta: float) -> SmootherState:
        """State before any block; `first` predicts it, no value exceeds `theta`."""

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """State and predictions, float64[k], after each of k blocks with these `means`."""


#: Largest number of blocks that a smoother can count exactly in floats.
MAX_BLOCKS = 2.0**53


@runtime_checkable
class CheckedSmoother(Protocol):
    """A smoother that validates a state from a file."""

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """True if `start` and at most `blocks` blocks can lead to `state`."""


def is_count(number: float, most: int) -> bool:
    """True for a number of blocks from 0 to `most`."""
    return 0.0 <= number <= min(most, MAX_BLOCKS) and number == math.floor(number)


@runtime_checkable
class RowSmoother(Protocol):
    """A smoother that predicts for many streams in one call."""

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """Predictions (float64[n, k]) for n streams from their first block.

        `firsts` and `thetas` (float64[n]) are those of `start`; `means` (float64[n, k]) may be strided and returned
        itself.
        """


@runtime_checkable
class RepeatingSmoother(Protocol):
    """Smoother that says whether it predicts the released means themselves."""

    @property
    def repeats_means(self) -> bool: ...


def repeats_means(smoother: object) -> bool:
    """True if the smoother predicts the released means, so that a pass need not call it."""
    return isinstance(smoother, RepeatingSmoother) and smoother.repeats_means


def predict_rows(smoother: Smoother, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
    """Predict every block of n streams, float64[n, k], in one call if the smoother offers it."""
    # By name: isinstance with a protocol costs more than a short row.
    if hasattr(smoother, "step_rows"):
        return cast("RowSmoother", smoother).step_rows(firsts, thetas, means)
    rows = [np.ascontiguousarray(row) for row in means]
    starts = zip(firsts.tolist(), thetas.tolist(), rows, strict=True)
    predictions = [smoother.step(smoother.start(first, theta), row)[1] for first, theta, row in starts]
    return np.array(predictions).reshape(means.shape)


@record
class Recent:
    """Predicts the mean of the block before (the causal reading of Appendix D, item 1)."""

    rule: ClassVar[int] = 1

    @property
    def repeats_means(self) -> bool:
        """True, unless a subclass predicts otherwise."""
        return type(self) is Recent

    def start(self, first: float, theta: float) -> SmootherState:
        return np.empty(0)

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        return state, means

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        return means


BINS = 2**14


def _bins(theta: float) -> Floats:
    return np.array([-theta, 3.0 * theta / BINS])


@record
class Median:
    """Predicts the median of the means of all blocks seen.

    Notes
    -----
    Appendix D, item 3, without 1 / b^s: the median per value, within theta / 10,000, by counts of 16,384 bins over
    [-theta, 2 theta].
    """

    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        return np.concatenate([_bins(theta), np.zeros(BINS)])

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        if means.size == 0:
            return state, means
        following = state.copy()
        out = np.empty(means.size)
        windows.follow_median(following[2:], float(state[0]), float(state[1]), means, out)
        return following, out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        counts = state[2:]
        counted = counts.min() >= 0.0 and bool((counts == np.floor(counts)).all())
        return bool(np.array_equal(state[:2], _bins(theta)) and counted and is_count(float(counts.sum()), blocks))

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        out = np.empty(means.shape)
        if out.size:
            dense, counts = np.ascontiguousarray(means), np.empty(BINS)
            widths, scratch = 3.0 * thetas / BINS, np.empty(means.shape[1])
            windows.follow_medians(-thetas, widths, dense, counts, scratch, out)
        return out


@record
class Mean:
    """Predicts the mean of all blocks seen.

    Notes
    -----
    Appendix D, item 2, divides t + 1 terms (with the guess u_0) by t; this is the mean of t.
    """

    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        return np.zeros(2)

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        counts = state[0] + np.arange(1.0, means.size + 1.0)
        sums = np.cumsum(np.concatenate([state[1:], means]))
        return np.array([state[0] + means.size, sums[-1]]), sums[1:] / counts

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        return is_count(float(state[0]), blocks)

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        return np.cumsum(means, axis=1) / np.arange(1.0, means.shape[1] + 1.0)


@record
class MovingAverage:
    """Predicts the mean of the last ``window`` blocks.

    Parameters
    ----------
    window : int
        w, the number of blocks, from 1 to 65,536.

    Notes
    -----
    Appendix D, item 4: w terms (the published code takes w + 1), at first with the guess u_0.
    """

    window: int = parameter(Whole(1, 65_536), default=8)
    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        """Number of blocks, running sum and ring buffer: float64[w + 2]."""
        return self.step(np.zeros(self.window + 2), np.array([first]))[0]

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        if means.size == 0:
            return state, means
        following, out = state.copy(), np.empty(means.size)
        following[0] += means.size
        following[1] = windows.follow_window(following[2:], int(state[0]), float(state[1]), means, out)
        return following, out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        return is_count(float(state[0]) - 1.0, blocks)

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        out = np.empty(means.shape)
        if out.size:
            windows.follow_windows(
                firsts, np.ascontiguousarray(means), np.empty(self.window), np.empty(means.shape[1]), out
            )
        return out


@record
class Exponential:
    """Predicts alpha times the last block's mean plus (1 - alpha) times the prediction before.

    Parameters
    ----------
    alpha : float
        Weight of the last block, in (0, 1]; 1 is :class:`Recent`.

    Notes
    -----
    Appendix D, item 5; the first prediction is the guess u_0.
    """

    alpha: float = parameter(Real(above=0.0, most=1.0), default=0.5)
    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        return np.array([first])

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        if means.size == 0:
            return state, means
        from scipy.signal import lfilter

        keep = 1.0 - self.alpha
        predictions, _ = lfilter([self.alpha], [1.0, -keep], means, zi=keep * state)
        return predictions[-1:].copy(), predictions

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        if means.shape[1] == 0:
            return means
        from scipy.signal import lfilter

        keep = 1.0 - self.alpha
        return lfilter([self.alpha], [1.0, -keep], means, axis=1, zi=keep * firsts[:, None])[0]
