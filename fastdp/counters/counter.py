"""Noise of one running sum: the protocol of counters, and the paper's Simple, Block and Binary Tree."""

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
    """A private running sum (PHDStream Definition 4.1), as the error that it adds: released = true sum + error.

    A counter never sees the values.  What it remembers of one running sum is a row of ``width`` integers, so that the
    state of a million running sums is one array.
    """

    @property
    def width(self) -> int:
        """Integers of state for each running sum; all 0 at first, the first one above 0 while noise is open."""

    @property
    def draws(self) -> int:
        """In how many noisy sums a value enters at most: noise of scale draws / epsilon gives epsilon in all."""

    @property
    def settles(self) -> bool:
        """True if a running sum that is left, for a while or for good, takes back its open noise."""

    def step(self, state: Integers, noise: Integers) -> Integers:
        """One more value for each of n running sums.

        Parameters
        ----------
        state : int64[n, width]
            Changed in place.
        noise : int64[n]
            Fresh independent noise of scale draws / epsilon.

        Returns
        -------
        int64[n]
            By how much the error of each released sum changes.
        """

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """Take back the open noise of running sums that are left: only called if :attr:`settles`.

        Parameters and result as :meth:`step`; the state is 0 afterwards, as before the first value.
        """


@runtime_checkable
class CheckedCounter(Protocol):
    """A counter that checks which rows it may have, before rows of a state file are used."""

    def check(self, state: Integers) -> None:
        """ValueError unless each row, int64[n, width], is one that steps can leave."""


def check_rows(counter: Counter, state: Integers) -> None:
    """ValueError for rows that the counter says it cannot have; counters of one's own need not say."""
    if isinstance(counter, CheckedCounter):
        counter.check(state)


def noise_scale(counter: Counter, epsilon: Fraction) -> Fraction:
    """Scale of a counter's noise for sums of integers: draws / epsilon."""
    return counter.draws / epsilon


def event_guarantee(epsilon: float, *derivation: str) -> Guarantee:
    """A pure, exact guarantee for one event of a stream of additions and removals (PHDStream section 2.1)."""
    return Guarantee(
        epsilon=epsilon,
        unit="one event (one addition or one removal)",
        adjacency="add or remove one event",
        arithmetic="exact",
        derivation=derivation,
    )


def counter_guarantee(counter: Counter, epsilon: float) -> Guarantee:
    """Guarantee of the whole sequence of released sums: epsilon for one value that changes by one."""
    sums = "one noisy sum" if counter.draws == 1 else f"at most {counter.draws} noisy sums"
    scale = "1 / epsilon" if counter.draws == 1 else f"{counter.draws} / epsilon"
    return event_guarantee(epsilon, f"{type(counter).__name__}: an event enters {sums}, noise of scale {scale}")


@record
class Simple:
    """Fresh noise on every increment: after t values the error has variance 2 t / epsilon^2, roughly.

    PHDStream Algorithm 8; Chan et al., "Simple II".
    """

    rule: ClassVar[int] = 1
    width: ClassVar[int] = 0
    draws: ClassVar[int] = 1
    settles: ClassVar[bool] = False

    def step(self, state: Integers, noise: Integers) -> Integers:
        """The noise itself; there is no state."""
        return noise

    def open_draws(self, steps: int) -> int:
        """Draws in the error of a running sum after so many values."""
        return steps

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """Nothing is open."""
        return noise - noise


@record
class Block:
    """Increments with noise inside a block; at its end one noisy sum of the block takes their place.

    PHDStream Algorithm 9; Chan et al., "Two-Level".

    Parameters
    ----------
    size : int
        B, values of a block; the paper uses 8.
    settles : bool
        In PHDStream: a cell that is no leaf any more ends its block early.  That costs nothing and takes out the bias
        (below); the paper's counter does not.

    Notes
    -----
    A value enters its own increment and its block's sum, except the last of a block, which enters the sum alone.
    State: values in the open block; the noise of its increments so far.  Where the choice of the active counters
    depends on what they released, as in PHDStream, the sums are biased unless they settle: a node that happens to
    look small is merged and keeps its noise (``docs/phdstream.md``).
    """

    size: int = parameter(Whole(1, MAX_LENGTH), default=8)
    settles: bool = parameter(Flag(), default=False)
    rule: ClassVar[int] = 1
    width: ClassVar[int] = 2
    draws: ClassVar[int] = 2

    def step(self, state: Integers, noise: Integers) -> Integers:
        """Noise of the increment, or of the block's sum less that of the increments that it replaces."""
        state[:, 0] += 1
        closing = state[:, 0] == self.size
        error: Integers = noise - np.where(closing, state[:, 1], 0)
        state[:, 1] = np.where(closing, 0, state[:, 1] + noise)
        state[closing, 0] = 0
        return error

    def open_draws(self, steps: int) -> int:
        """Draws in the error of a running sum after so many values: closed blocks, and values of the open one."""
        blocks, rest = divmod(steps, self.size)
        return blocks + rest

    def check(self, state: Integers) -> None:
        """The open block has fewer than ``size`` values."""
        if ((state[:, 0] < 0) | (state[:, 0] >= self.size)).any():
            raise ValueError("a counter out of range")

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """The block ends here: its sum takes the place of the increments."""
        error: Integers = noise - state[:, 1]
        state[:] = 0
        return error


@record
class BinaryTree:
    """Noisy sums of 2^j values; a running sum is made of those that the binary digits of t name.

    PHDStream Algorithm 10, with the levels that it needs.

    Parameters
    ----------
    horizon : int
        T: values (activations) of one tree.  Past it a new tree begins on the values after it, which are others:
        epsilon stays, the old tree's last error stays in the sum.
    settles : bool
        In PHDStream: a cell that is no leaf any more ends its tree with one noisy sum of all of it, one sum more that
        a value enters.  It takes out a bias that makes the printed counter useless there (``docs/phdstream.md``).

    Notes
    -----
    A value enters floor(log2 T) + 1 sums; with the printed log2 T the claim fails where T is a power of two.
    State: values in the open tree; the noise of the open sum of each height.
    """

    horizon: int = parameter(Whole(1, MAX_LENGTH), default=1024)
    settles: bool = parameter(Flag(), default=False)
    rule: ClassVar[int] = 1

    @property
    def width(self) -> int:
        """The count, and one number a level."""
        return 1 + self._levels

    @property
    def draws(self) -> int:
        """floor(log2 T) + 1, and the last sum if it settles."""
        return self._levels + int(self.settles)

    @property
    def _levels(self) -> int:
        return self.horizon.bit_length()

    def step(self, state: Integers, noise: Integers) -> Integers:
        """Noise of the sum that closes, less that of the lower ones that it replaces."""
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
        """Draws in the error of a running sum after so many values: the binary digits 1, tree by tree."""
        trees, rest = divmod(steps, self.horizon)
        return trees * self.horizon.bit_count() + rest.bit_count()

    def check(self, state: Integers) -> None:
        """The open tree has at most ``horizon`` values."""
        if ((state[:, 0] < 0) | (state[:, 0] > self.horizon)).any():
            raise ValueError("a counter out of range")

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """The tree ends here: one sum takes the place of the open ones."""
        error: Integers = noise - state[:, 1:].sum(axis=1)
        state[:] = 0
        return error
