"""The Block counter (PHDStream Algorithm 9; Chan et al., "Two-Level")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastdp import validation
from fastdp.arrays.kinds import Integers


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
