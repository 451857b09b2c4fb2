"""Where a stream of values stands between two chunks, behind its hold-out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastdp.arrays.kinds import Integers
from fastdp.perturbers import Perturber
from fastdp.perturbers.base import bound_law, theta_key
from fastdp.randomness import prefix
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import Chain
from fastdp.smoothers import SmootherState

#: The number of a tree and the noise of its leaves; a cache, since the key determines it.
TreeNoise = tuple[int, Integers]
NO_FLOATS, NO_CHAIN = np.empty(0), np.empty(0, np.uint64)


class Progress(NamedTuple):
    """Everything that lives between two chunks, but for the hold-out's summary and the noise (a function of the key).

    Attributes
    ----------
    n_seen : int
        Values consumed, the hold-out included.
    cycle : int
        Thresholds chosen so far.
    held : int
        Values withheld so far for the next threshold (:class:`fastdp.thresholds.renewals.RenewFromHoldout`).
    released : int
        Sum of what was released under the present threshold, in grid steps, where a renewal needs it.
    theta_steps : int
        The threshold in grid steps; 0 until it is chosen.
    blocks : int
        Closed blocks.
    filled : int
        Values in the open block.
    open_sum : int
        Their exact sum, in grid steps.  Secret.
    prediction : float
        What each value of the open block is published as.
    smoother : float64[any]
        The smoother's own memory, or that of noise that follows the noise before.  Secret then.
    chain : uint64[4 or 0]
        The chain key of noise that is bound to the prefix of sums (:mod:`fastdp.randomness.prefix`); empty where
        noise belongs to trees.  Secret.
    """

    n_seen: int = 0
    cycle: int = 0
    held: int = 0
    released: int = 0
    theta_steps: int = 0
    blocks: int = 0
    filled: int = 0
    open_sum: int = 0
    prediction: float = 0.0
    smoother: SmootherState = NO_FLOATS
    chain: Chain = NO_CHAIN

    def __repr__(self) -> str:
        # Not the secrets.
        return f"Progress(n_seen={self.n_seen}, cycle={self.cycle}, blocks={self.blocks}, filled={self.filled})"


def next_chain(perturber: Perturber, key: Key, theta_steps: int, epsilon: float, before: Chain) -> Chain:
    """The chain key before the first sum under this threshold, behind those under an earlier one.

    Empty where noise belongs to trees.
    """
    if bound_law(perturber, key, theta_steps, epsilon) is None:
        return NO_CHAIN
    own = key.within("behind", before.tobytes()) if before.size else key
    return prefix.start_chain(theta_key(own, theta_steps))
