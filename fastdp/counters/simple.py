"""The Simple counter (PHDStream Algorithm 8; Chan et al., "Simple II")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
