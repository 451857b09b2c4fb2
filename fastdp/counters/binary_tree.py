"""The Binary Tree counter (PHDStream Algorithm 10, with the levels that it needs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastdp import validation
from fastdp.arrays.kinds import Integers


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
