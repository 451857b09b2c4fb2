"""Counters of public structure: one noise a step, a block at a time, a binary tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastdp import validation
from fastdp.arrays.kinds import Integers


@dataclass(frozen=True)
class Simple:
    """Fresh noise on every increment: after t values the error has variance 2 t / epsilon^2, roughly."""

    width: ClassVar[int] = 0
    draws: ClassVar[int] = 1
    settles: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def step(self, state: Integers, noise: Integers) -> Integers:
        """The noise itself; there is no state."""
        return noise

    def open_draws(self, steps: int) -> int:
        """Draws in the error of a running sum after so many values."""
        return steps

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """Nothing is open."""
        return noise - noise


@dataclass(frozen=True)
class Block:
    """Increments with noise inside a block; at its end one noisy sum of the block takes their place.

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

    size: int = 8
    settles: bool = False
    width: ClassVar[int] = 2
    draws: ClassVar[int] = 2
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        validation.integer("size", self.size, 1, 2**40)
        validation.flag("settles", self.settles)

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


@dataclass(frozen=True)
class BinaryTree:
    """Noisy sums of 2^j values; a running sum is made of those that the binary digits of t name.

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

    horizon: int = 1024
    settles: bool = False
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        validation.integer("horizon", self.horizon, 1, 2**40)
        validation.flag("settles", self.settles)

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
        return int(self.horizon).bit_length()

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
