"""A binary tree as a running counter: noisy running sums of a known number of values.

Source: PAK (NDSS 2019) section II-D; Chan, Shi and Song; Dwork et al.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Part, Purpose, StreamId
from fastdp.state import codec
from fastdp_kernels import binary_counter

Steps = NDArray[np.int64]


@dataclass(frozen=True)
class RunningSum:
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
    total: int = field(repr=False)
    above: Steps = field(repr=False)

    @classmethod
    def start(cls, key: Key, number: int, length: int, theta_steps: int, epsilon: float, base: int) -> RunningSum:
        """A counter before its first value."""
        levels = length.bit_length()
        law = sampler.discrete_laplace_law(Fraction(theta_steps * levels) / Fraction(epsilon))
        return cls(key, number, length, levels, theta_steps, law, 0, base, np.zeros(levels + 1, np.int64))

    def count(self, steps: Steps) -> tuple[RunningSum, Steps]:
        """The counter after these values, and the noisy running sum after each (modulo 2^64)."""
        after = self.seen + steps.size
        firsts = [self.seen >> height for height in range(self.levels)]
        counts = [(after >> height) - first for height, first in enumerate(firsts)]
        noise: Steps = np.empty(sum(counts), np.int64)
        offsets: Steps = np.empty(self.levels, np.int64)
        begin, parts = 0, list[Part]()
        for height, (first, size) in enumerate(zip(firsts, counts, strict=True)):
            # A call with few values has no new node at most heights.
            if size:
                parts.append((StreamId(Purpose.COUNTER, height, self.number), first, size))
            offsets[height] = begin - first
            begin += size
        sampler.fill_parts(noise, self.law, self.key, parts)
        above, out = self.above.copy(), np.empty(steps.size, np.int64)
        total = binary_counter.count_on(steps, self.seen, np.int64(self.total), above, noise, offsets, out)
        return replace(self, seen=after, total=int(total), above=above), out

    def describe(self) -> dict[str, Any]:
        """Where the counter stands, for a state file."""
        return {"seen": self.seen, "total": self.total, "above": self.above.tolist()}

    def resume(self, seen: int, total: int, above: list[int]) -> RunningSum:
        """The same counter where :meth:`describe` said it stood; ValueError if that is no place of it."""
        noise = np.array(above, np.int64)
        if not 0 <= codec.whole(seen) <= self.length or noise.shape != self.above.shape:
            raise ValueError("a counter out of range")
        return replace(self, seen=seen, total=int(np.int64(codec.whole(total))), above=noise)
