"""State of a stream, and the output of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from fastdp.errors import StateError
from fastdp.kinds import Floats, Integers, Records
from fastdp.noise import binding
from fastdp.noise.binding import Chain
from fastdp.noise.key import Key
from fastdp.perturbers import Perturber
from fastdp.perturbers.base import bound_distribution, theta_key
from fastdp.smoothers import SmootherState
from fastdp.thresholds import Chooser

#: The number of a tree and the noise of its leaves; a cache, since the key determines it.
TreeNoise = tuple[int, Integers]
NO_FLOATS, NO_CHAIN = np.empty(0), np.empty(0, np.uint64)
NO_RECORDS: Records = np.empty(0, [])


class Progress(NamedTuple):
    """State between two chunks, except the hold-out's summary and the noise (a function of the key).

    Attributes
    ----------
    n_seen : int
        Values consumed.
    cycle : int
        Thresholds chosen so far.
    held : int
        Values withheld for the next threshold (:class:`fastdp.thresholds.renewals.RenewFromHoldout`).
    released : int
        Sum released under this threshold, in grid steps, if a renewal needs it.
    theta_steps : int
        The threshold in grid steps; first 0.
    blocks : int
        Closed blocks.
    filled : int
        Values in the open block.
    open_sum : int
        Their exact sum, in grid steps.  Secret.
    prediction : float
        Published for each value of the open block.
    smoother : float64[any]
        State of the smoother, or of correlated noise (secret).
    chain : uint64[4 or 0]
        Chain key of bound noise (:mod:`fastdp.noise.binding`).  Secret.
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
    smoother: SmootherState | Records = NO_FLOATS
    chain: Chain = NO_CHAIN

    def __repr__(self) -> str:
        # Without the secrets.
        return f"Progress(n_seen={self.n_seen}, cycle={self.cycle}, blocks={self.blocks}, filled={self.filled})"


class Step(NamedTuple):
    """Progress after some values, and their output.

    Attributes
    ----------
    following : Progress
        Progress after the values.
    noise : (int, int64[leaves]) or None
        The tree in use.
    size : int
        Number of values.
    published : float64[size] or None
        Published values, if computed.
    write : callable
        Otherwise writes them into an array.
    blocks, before : float64
        Of blocks that follow released sums: closed ones and the open one, and the memory before.
    """

    following: Progress
    noise: TreeNoise | None
    size: int
    published: Floats | None = None
    write: Callable[[Floats], object] | None = None
    blocks: Records = NO_RECORDS
    before: Records = NO_RECORDS

    def emit(self, out: Floats) -> None:
        """Write the published values into ``out``."""
        if self.write is None:
            out[:] = self.published
        else:
            self.write(out)


#: Progress after values published in one pass (None if they were not), and the tree in use.
Published = tuple[Progress | None, TreeNoise | None]


def next_chain(perturber: Perturber, key: Key, theta_steps: int, epsilon: float, before: Chain) -> Chain:
    """Chain key before the first sum under this threshold, derived from `before`; empty for trees."""
    if bound_distribution(perturber, key, theta_steps, epsilon) is None:
        return NO_CHAIN
    own = key.within("behind", before.tobytes()) if before.size else key
    return binding.start_chain(theta_key(own, theta_steps))


#: Marks pending values of which a chooser may have seen some.
UNKNOWN = np.empty(0)


class StreamState(NamedTuple):
    """State of a stream.

    Attributes
    ----------
    progress : Progress
        Counters and sums.
    chooser : Chooser or None
        Collects values for the next threshold; it has not seen ``pending``.
    noise : (int, int64[leaves]) or None
        The tree in use; a cache.
    pending : sequence of float64 arrays
        Values for the chooser, whose copy would cost a pass over the hold-out a chunk.  ``UNKNOWN`` after an
        interrupt.
    """

    progress: Progress
    chooser: Chooser | None
    noise: TreeNoise | None = None
    pending: Sequence[Floats] = ()

    def __repr__(self) -> str:
        # Without the secrets.
        return f"StreamState({self.progress})"

    def observe(self) -> None:
        """Show the pending values to the chooser, in place."""
        pending = cast("list[Floats]", self.pending)
        values = pending.copy()
        pending[:] = [UNKNOWN]
        for part in values:
            cast("Chooser", self.chooser).observe(part)
        pending.clear()

    def check(self) -> None:
        """StateError if an interrupt left the chooser's values unknown."""
        if self.pending and self.pending[0] is UNKNOWN:
            raise StateError(
                "an earlier call was interrupted while it read the hold-out: expected a new publisher (one that "
                "keeps a file goes on after an interrupt)"
            )

    def settled(self) -> Chooser | None:
        """The chooser after the pending values, copied if any."""
        if self.chooser is None or not self.pending:
            return self.chooser
        self.check()
        twin = self.chooser.copy()
        for part in self.pending:
            twin.observe(part)
        return twin
