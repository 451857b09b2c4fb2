"""Predictions of the next block from released means."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fastdp.kinds import Floats, Indices
from fastdp.record import Real, Whole, parameter, record
from fastdp_kernels.streams import windows

#: State of a smoother between two calls, as numbers for state files; never changed in place.
SmootherState = Floats


class Smoother(Protocol):
    """Predicts the values of a block from the released means of earlier blocks (post-processing).

    `step` is pure; cutting blocks into several steps changes nothing.
    """

    def start(self, first: float, theta: float) -> SmootherState:
        """State before any block; `first` predicts it, no value exceeds `theta`."""

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        """State and predictions, float64[k], after each of k blocks."""


#: Largest number of blocks that a smoother can count exactly in floats.
MAX_BLOCKS = 2.0**53


@runtime_checkable
class CheckedSmoother(Protocol):
    """Smoother that checks a state of a file."""

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        """True if at most `blocks` blocks can lead to `state`."""


def is_count(number: float, most: int) -> bool:
    """True for a number of blocks from 0 to `most`."""
    return 0.0 <= number <= min(most, MAX_BLOCKS) and number == math.floor(number)


class ByRows(ABC):
    """Smoother that predicts for many streams in one call."""

    @abstractmethod
    def start_rows(self, firsts: Floats, thetas: Floats) -> Floats:
        """:meth:`Smoother.start` of n streams: float64[n, k]."""

    @abstractmethod
    def step_rows(self, memory: Floats, means: Floats, counts: Indices) -> Floats:
        """Predictions, float64[n, m], after each of the first ``counts[i]`` blocks of stream i.

        `memory`, the states, changes in place; `means`, 0 beyond the counts, may be returned itself.
        """

    def start(self, first: float, theta: float) -> SmootherState:
        (state,) = self.start_rows(np.array([first]), np.array([theta]))
        return np.asarray(state)

    def step(self, state: SmootherState, means: Floats) -> tuple[SmootherState, Floats]:
        memory = state[None].copy()
        return memory[0], self.step_rows(memory, means[None], np.array([means.size]))[0]


def start_rows(smoother: Smoother, firsts: Floats, thetas: Floats) -> Floats:
    """States of n streams, float64[n, k]."""
    if isinstance(smoother, ByRows):
        return smoother.start_rows(firsts, thetas)
    starts = zip(firsts.tolist(), thetas.tolist(), strict=True)
    return np.array([smoother.start(first, theta) for first, theta in starts])


def step_rows(smoother: Smoother, memory: Floats, means: Floats, counts: Indices) -> Floats:
    """:meth:`ByRows.step_rows`, if need be stream by stream."""
    if isinstance(smoother, ByRows):
        return smoother.step_rows(memory, means, counts)
    predictions = means.copy()
    for i, count in enumerate(counts.tolist()):
        if count:
            memory[i], predictions[i, :count] = smoother.step(memory[i].copy(), means[i, :count].copy())
    return predictions


@runtime_checkable
class RepeatingSmoother(Protocol):
    """Smoother that may predict the released means themselves."""

    @property
    def repeats_means(self) -> bool:
        """True if predictions are the released means."""


def repeats_means(smoother: object) -> bool:
    """True if the smoother predicts the released means."""
    return isinstance(smoother, RepeatingSmoother) and smoother.repeats_means


@record
class Recent(ByRows):
    """Predicts the mean of the block before (the causal reading of Appendix D, item 1).

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> smoother = fastdp.smoothers.Recent()
    >>> publisher = fastdp.ToPS(
    ...     1.0, bound=100, threshold=50.0, smoother=smoother, seed=1
    ... )
    >>> publisher.publish(np.full(1000, 20)).shape
    (1000,)
    """

    rule: ClassVar[int] = 1

    @property
    def repeats_means(self) -> bool:
        """True for the released means themselves."""
        return type(self) is Recent

    def start_rows(self, firsts: Floats, thetas: Floats) -> Floats:
        return np.empty((firsts.size, 0))

    def step_rows(self, memory: Floats, means: Floats, counts: Indices) -> Floats:
        return means


BINS = 2**14


def _bins(theta: float) -> Floats:
    return np.array([-theta, 3.0 * theta / BINS])


@record
class Median(ByRows):
    """Predicts the median of the means of all blocks seen.

    Notes
    -----
    Appendix D, item 3, per value: within theta / 10,000, by 16,384 bins over [-theta, 2 theta].

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> smoother = fastdp.smoothers.Median()
    >>> publisher = fastdp.ToPS(
    ...     1.0, bound=100, threshold=50.0, smoother=smoother, seed=1
    ... )
    >>> publisher.publish(np.full(1000, 20)).shape
    (1000,)
    """

    rule: ClassVar[int] = 1

    def start_rows(self, firsts: Floats, thetas: Floats) -> Floats:
        states = np.zeros((firsts.size, 2 + BINS))
        states[:, 0], states[:, 1] = -thetas, 3.0 * thetas / BINS
        return states

    def step_rows(self, memory: Floats, means: Floats, counts: Indices) -> Floats:
        out = np.zeros(means.shape)
        windows.follow_medians(memory, np.ascontiguousarray(means), counts, out)
        return out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        counts = state[2:]
        counted = counts.min() >= 0.0 and bool((counts == np.floor(counts)).all())
        return bool(np.array_equal(state[:2], _bins(theta)) and counted and is_count(float(counts.sum()), blocks))


@record
class Mean(ByRows):
    """Predicts the mean of all blocks seen.

    Notes
    -----
    Appendix D, item 2, divides t + 1 terms by t; this is the mean of t.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> smoother = fastdp.smoothers.Mean()
    >>> publisher = fastdp.ToPS(
    ...     1.0, bound=100, threshold=50.0, smoother=smoother, seed=1
    ... )
    >>> publisher.publish(np.full(1000, 20)).shape
    (1000,)
    """

    rule: ClassVar[int] = 1

    def start_rows(self, firsts: Floats, thetas: Floats) -> Floats:
        return np.zeros((firsts.size, 2))

    def step_rows(self, memory: Floats, means: Floats, counts: Indices) -> Floats:
        numbers = memory[:, :1] + np.arange(1.0, means.shape[1] + 1.0)
        sums = np.cumsum(np.hstack([memory[:, 1:], means]), axis=1)
        memory[:, 0] += counts
        memory[:, 1] = sums[np.arange(counts.size), counts]
        return sums[:, 1:] / numbers

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        return is_count(float(state[0]), blocks)


@record
class MovingAverage(ByRows):
    """Predicts the mean of the last ``window`` blocks.

    Parameters
    ----------
    window : int
        Number of blocks w, from 1 to 65,536.

    Notes
    -----
    Appendix D, item 4, with w terms (the published code has w + 1), at first with the guess u_0.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> smoother = fastdp.smoothers.MovingAverage(4)
    >>> publisher = fastdp.ToPS(
    ...     1.0, bound=100, threshold=50.0, smoother=smoother, seed=1
    ... )
    >>> publisher.publish(np.full(1000, 20)).shape
    (1000,)
    """

    window: int = parameter(Whole(1, 65_536), default=8)
    rule: ClassVar[int] = 1

    def start_rows(self, firsts: Floats, thetas: Floats) -> Floats:
        states = np.zeros((firsts.size, self.window + 2))
        self.step_rows(states, firsts[:, None], np.ones(firsts.size, np.int64))
        return states

    def step_rows(self, memory: Floats, means: Floats, counts: Indices) -> Floats:
        out = np.zeros(means.shape)
        windows.follow_windows(memory, np.ascontiguousarray(means), counts, out)
        return out

    def is_state(self, state: SmootherState, theta: float, blocks: int) -> bool:
        return is_count(float(state[0]) - 1.0, blocks)


@record
class Exponential(ByRows):
    """Predicts alpha times the last block's mean plus (1 - alpha) times the prediction before.

    Parameters
    ----------
    alpha : float
        Weight of the last block, in (0, 1]; 1 is :class:`Recent`.

    Notes
    -----
    Appendix D, item 5.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> smoother = fastdp.smoothers.Exponential(0.3)
    >>> publisher = fastdp.ToPS(
    ...     1.0, bound=100, threshold=50.0, smoother=smoother, seed=1
    ... )
    >>> publisher.publish(np.full(1000, 20)).shape
    (1000,)
    """

    alpha: float = parameter(Real(above=0.0, most=1.0), default=0.5)
    rule: ClassVar[int] = 1

    def start_rows(self, firsts: Floats, thetas: Floats) -> Floats:
        return firsts[:, None].copy()

    def step_rows(self, memory: Floats, means: Floats, counts: Indices) -> Floats:
        if means.shape[1] == 0:
            return means
        from scipy.signal import lfilter

        keep = 1.0 - self.alpha
        predictions, _ = lfilter([self.alpha], [1.0, -keep], means, axis=1, zi=keep * memory)
        memory[:, 0] = np.hstack([memory, predictions])[np.arange(counts.size), counts]
        return predictions
