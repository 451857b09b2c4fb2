"""Predictions of the next block from released means."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from fastdp.kinds import Floats
from fastdp.record import Real, Whole, parameter, record
from fastdp_kernels.streams import windows

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


@record
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


BINS = 2**14


def _bins(theta: float) -> Floats:
    """Lower end and width."""
    return np.array([-theta, 3.0 * theta / BINS])


@record
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
        windows.follow_median(following[2:], float(state[0]), float(state[1]), means, out)
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
            windows.follow_medians(-thetas, widths, dense, counts, scratch, out)
        return out


@record
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


@record
class MovingAverage:
    """Predicts the mean of the last ``window`` blocks.

    Parameters
    ----------
    window : int
        w, the number of blocks, at least 1 and at most 65,536.

    Notes
    -----
    Appendix D, item 4: w terms (the published code takes w + 1); before w blocks have been seen the guess u_0
    counts as one of them.
    """

    window: int = parameter(Whole(1, 65_536), default=8)
    rule: ClassVar[int] = 1

    def start(self, first: float, theta: float) -> SmootherState:
        """How many blocks, the running sum, then the ring; the guess is the first of the window."""
        return self.step(np.zeros(self.window + 2), np.array([first]))[0]

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """O(1) a block; sums never outlive two windows, so rounding errors do not pile up on an endless stream."""
        if means.size == 0:
            return state, means
        following, out = state.copy(), np.empty(means.size)
        following[0] += means.size
        following[1] = windows.follow_window(following[2:], int(state[0]), float(state[1]), means, out)
        return following, out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """A number of blocks comes first, the guess among them; it says where in the ring the next one goes."""
        return is_count(float(state[0]) - 1.0, blocks)

    def step_rows(self, firsts: Floats, thetas: Floats, means: Floats) -> Floats:
        """The same for many streams."""
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
