"""A binary tree as a running counter: noisy running sums of a known number of values.

Source: PAK (NDSS 2019) section II-D; Chan, Shi and Song; Dwork et al.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fastdp.arrays.kinds import Integers
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.state import codec
from fastdp_kernels import binary_counter


class RunningSum(NamedTuple):
    """A binary counter over N values, continuing from a base sum; a value, never changed.

    Pure epsilon for values within [0, theta] (replace one): each enters at most ``levels`` nodes, and a node's
    noise is exact discrete Laplace of scale theta levels / epsilon, in grid steps.

    Attributes
    ----------
    number : int
        Which counter of the stream.
    length : int
        N.
    levels : int
        floor(log2 N) + 1: the most nodes that one of N values enters.
    theta_steps : int
        Sensitivity of the sums, in grid steps.
    seen : int
        Values counted.
    total : int
        Base and exact sum, in grid steps.  Secret.
    above : int64[levels + 1]
        Noise of the open nodes, summed from each height up.  Secret.
    """

    key: Key
    number: int
    length: int
    levels: int
    theta_steps: int
    law: sampler.Law
    seen: int
    total: int
    above: Integers

    def __repr__(self) -> str:
        # Not the secrets.
        return f"RunningSum(length={self.length}, theta_steps={self.theta_steps}, seen={self.seen})"

    @classmethod
    def start(cls, key: Key, number: int, length: int, theta_steps: int, epsilon: float, base: int) -> RunningSum:
        """A counter before its first value."""
        levels = length.bit_length()
        law = sampler.discrete_laplace_law(Fraction(theta_steps * levels) / Fraction(epsilon))
        return cls(key, number, length, levels, theta_steps, law, 0, base, np.zeros(levels + 1, np.int64))

    def advance(self, steps: Integers) -> tuple[RunningSum, Integers]:
        """The counter after these values, and the noisy running sum after each (modulo 2^64)."""
        key, number, length, levels, theta_steps, law, seen, before, above = self
        after, above, out = seen + steps.size, above.copy(), np.empty(steps.size, np.int64)
        noise, offsets = sampler.draw_nodes(law, key, number, seen, after, levels)
        total = binary_counter.count_on(steps, seen, before, above, noise, offsets, out)
        return RunningSum(key, number, length, levels, theta_steps, law, after, total, above), out

    def describe(self) -> dict[str, Any]:
        """Where the counter stands, for a state file."""
        return {"seen": self.seen, "total": self.total, "above": self.above.tolist()}

    def resume(self, seen: int, total: int, above: list[int]) -> RunningSum:
        """The same counter where :meth:`describe` said it stood; ValueError if that is no place of it."""
        noise = np.array(above, np.int64)
        if not 0 <= codec.whole(seen) <= self.length or noise.shape != self.above.shape:
            raise ValueError("a counter out of range")
        return self._replace(seen=seen, total=int(np.int64(codec.whole(total))), above=noise)
