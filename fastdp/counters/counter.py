"""Noise of running sums: the protocol of counters, and PHDStream's (2024, Algorithms 8 to 10)."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fastdp.guarantee import Guarantee
from fastdp.kinds import Integers
from fastdp.record import Flag, Whole, parameter, record

#: Longest block, and longest tree.
MAX_LENGTH = 2**40


class Counter(Protocol):
    """Draws the error of a private running sum (PHDStream Definition 4.1), without seeing values."""

    @property
    def width(self) -> int:
        """Integers of state, first 0; the first is above 0 with open noise."""

    @property
    def draws(self) -> int:
        """Most noisy sums that a value enters; noise has scale draws / epsilon."""

    @property
    def settles(self) -> bool:
        """True if a sum that stops takes back its open noise."""

    def step(self, state: Integers, noise: Integers) -> Integers:
        """Change of each sum's error after one more value: int64[n].

        `state`, int64[n, width], changes in place; `noise`, int64[n], is fresh, independent and of scale draws /
        epsilon.
        """

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """Take back open noise of sums that stop, and set the state to 0; otherwise as :meth:`step`."""


@runtime_checkable
class CheckedCounter(Protocol):
    """Counter that checks rows of a file, by ValueError."""

    def check(self, state: Integers) -> None:
        """ValueError unless steps can lead to every row."""


@runtime_checkable
class OpenCounter(Protocol):
    """Counter that knows how many draws a sum has."""

    def open_draws(self, steps: int) -> int: ...


def check_rows(counter: Counter, state: Integers) -> None:
    """Raise ValueError for rows that `counter` refuses."""
    if isinstance(counter, CheckedCounter):
        counter.check(state)


def noise_scale(counter: Counter, epsilon: Fraction) -> Fraction:
    """Noise scale of integer sums, draws / epsilon."""
    return counter.draws / epsilon


def event_guarantee(epsilon: float, *derivation: str) -> Guarantee:
    """Pure, exact `epsilon` for one event (PHDStream section 2.1)."""
    return Guarantee(
        epsilon=epsilon,
        unit="one event (one addition or one removal)",
        adjacency="add or remove one event",
        arithmetic="exact",
        derivation=derivation,
    )


def counter_guarantee(counter: Counter, epsilon: float) -> Guarantee:
    """Guarantee of all sums of a `counter`, for a change by one."""
    sums = "one noisy sum" if counter.draws == 1 else f"at most {counter.draws} noisy sums"
    scale = "1 / epsilon" if counter.draws == 1 else f"{counter.draws} / epsilon"
    return event_guarantee(epsilon, f"{type(counter).__name__}: an event enters {sums}, noise of scale {scale}")


@record
class Simple:
    """Fresh noise on every increment: variance about 2 t / epsilon^2 after t values.

    PHDStream Algorithm 8; Chan et al., "Simple II".

    Examples
    --------
    >>> import fastdp
    >>> counter = fastdp.counters.Simple()
    >>> sums = fastdp.counters.RunningCounts(counter, epsilon=1.0)
    >>> sums.step([3]).shape  # noise of scale 1 on each increment
    (1,)
    """

    rule: ClassVar[int] = 1
    width: ClassVar[int] = 0
    draws: ClassVar[int] = 1
    settles: ClassVar[bool] = False

    def step(self, state: Integers, noise: Integers) -> Integers:
        return noise

    def open_draws(self, steps: int) -> int:
        """Number of draws in a sum after `steps` values."""
        return steps

    def settle(self, state: Integers, noise: Integers) -> Integers:
        return noise - noise


@record
class Block:
    """Noise on each increment of a block; at the block's end one noisy sum replaces them.

    PHDStream Algorithm 9; Chan et al., "Two-Level".

    Parameters
    ----------
    size : int
        B, values of a block; the paper uses 8.
    settles : bool
        In PHDStream: a cell that is no longer a leaf ends its block early; without that, sums are biased
        (``docs/points.md``).

    Notes
    -----
    A value enters at most its increment and its block's sum.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.counters.Block(8).draws  # at most so many sums have an event
    2
    """

    size: int = parameter(Whole(1, MAX_LENGTH), default=8)
    settles: bool = parameter(Flag(), default=False)
    rule: ClassVar[int] = 1
    width: ClassVar[int] = 2
    draws: ClassVar[int] = 2

    def step(self, state: Integers, noise: Integers) -> Integers:
        state[:, 0] += 1
        closing = state[:, 0] == self.size
        error: Integers = noise - np.where(closing, state[:, 1], 0)
        state[:, 1] = np.where(closing, 0, state[:, 1] + noise)
        state[closing, 0] = 0
        return error

    def open_draws(self, steps: int) -> int:
        blocks, rest = divmod(steps, self.size)
        return blocks + rest

    def draws_between(self, first: int, last: int) -> int:
        """Number of draws between the sums after `first` and `last` values."""
        same = first // self.size == last // self.size
        return last - first if same else first % self.size + self.open_draws(last) - first // self.size

    def check(self, state: Integers) -> None:
        """ValueError unless steps can lead to every row."""
        if ((state[:, 0] < 0) | (state[:, 0] >= self.size)).any():
            raise ValueError("a counter out of range")

    def settle(self, state: Integers, noise: Integers) -> Integers:
        error: Integers = noise - state[:, 1]
        state[:] = 0
        return error


@record
class BinaryTree:
    """Noisy sums of 2^j values; a running sum adds those named by the binary digits of t.

    PHDStream Algorithm 10, with the number of levels corrected.

    Parameters
    ----------
    horizon : int
        T: values (activations) of one tree; later ones begin a new tree, on top of the old one's last error.
    settles : bool
        As for :class:`Block`, by one more noisy sum.

    Notes
    -----
    A value enters floor(log2 T) + 1 sums; the printed log2 T is too small for powers of two.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.counters.BinaryTree(1024).draws  # noisy sums of an event
    11
    """

    horizon: int = parameter(Whole(1, MAX_LENGTH), default=1024)
    settles: bool = parameter(Flag(), default=False)
    rule: ClassVar[int] = 1

    @property
    def width(self) -> int:
        return 1 + self._levels

    @property
    def draws(self) -> int:
        return self._levels + int(self.settles)

    @property
    def _levels(self) -> int:
        return self.horizon.bit_length()

    def step(self, state: Integers, noise: Integers) -> Integers:
        state[state[:, 0] == self.horizon] = 0
        state[:, 0] += 1
        t = state[:, :1]
        heights = np.arange(self._levels)
        # Height j of the closing sum: the number of trailing zeros of t.
        lowest = t & -t
        below = (np.int64(1) << heights) < lowest
        opened = state[:, 1:]
        error: Integers = noise - np.where(below, opened, 0).sum(axis=1)
        opened[below] = 0
        opened[(np.int64(1) << heights) == lowest] = noise
        return error

    def open_draws(self, steps: int) -> int:
        trees, rest = divmod(steps, self.horizon)
        return trees * self.horizon.bit_count() + rest.bit_count()

    def check(self, state: Integers) -> None:
        if ((state[:, 0] < 0) | (state[:, 0] > self.horizon)).any():
            raise ValueError("a counter out of range")

    def settle(self, state: Integers, noise: Integers) -> Integers:
        error: Integers = noise - state[:, 1:].sum(axis=1)
        state[:] = 0
        return error
