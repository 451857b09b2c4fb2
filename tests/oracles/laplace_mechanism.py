"""The Laplace mechanism on a vector, naively: fractions, AES one block at a time, draws in 200 digits.

Sources: ``docs/noise.md``, sections 1 and 3; RFC 7693.
"""

from __future__ import annotations

import hashlib
import math
import struct
from fractions import Fraction

from tests.oracles import exact_noise, words


def in_steps(value, resolution):
    """A number in steps of the grid: the nearest, halves up, at most 2^62 on either side."""
    return max(-(2**62), min(2**62, math.floor(Fraction(value) / Fraction(resolution) + Fraction(1, 2))))


def sensitivity_steps(sensitivity, size, resolution, integers):
    """The most by which rounded values move in all."""
    if integers:
        return Fraction(sensitivity)
    return Fraction(math.ceil(Fraction(sensitivity) / Fraction(resolution)) + size - 1)


def noisy(values, sensitivity, epsilon, resolution, wanted, integers, secret, member=0):
    """The values in steps, with noise: Python integers; ``wanted`` is the resolution that was asked for, or None."""
    steps = [in_steps(value, resolution) for value in values]
    scale = sensitivity_steps(sensitivity, len(values), resolution, integers) / Fraction(epsilon)
    named = {"sensitivity": sensitivity, "epsilon": epsilon, "size": len(values), "wanted": wanted}
    own = words.bound(secret, "VectorNoise", 1, {**named, "integers": integers})
    message = struct.pack(">3Q", 0, 1, 8 * len(steps)) + struct.pack(f"<{len(steps)}q", *steps)
    bound = hashlib.blake2b(message, key=own, person=b"fastdp step 1").digest()[:32]

    def draw(position):
        def further(k):
            return words.words(bound, 255, 1, refinement=k, member=member, start=position)[0]

        return exact_noise.draw(further(0), further, scale, one_sided=False)

    return [step + draw(position) for position, step in enumerate(steps)]
