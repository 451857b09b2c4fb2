"""Where a stream of values stands: its progress, and what waits for the next threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from fastdp.arrays.kinds import Floats
from fastdp.errors import StateError
from fastdp.systems.stream.progress import Progress, TreeNoise
from fastdp.thresholds import Chooser

#: Values of which a chooser may have seen some.
UNKNOWN = np.empty(0)


class StreamState(NamedTuple):
    """Where a stream stands.

    Attributes
    ----------
    progress : Progress
        The numbers.
    chooser : Chooser or None
        Collects values for the next threshold, if there will be one; it has yet to see ``pending``.
    noise : (int, int64[leaves]) or None
        The tree in use; a cache.
    pending : sequence of float64 arrays
        Values for the chooser.  It is not copied for them, which would cost a pass over the hold-out a chunk.
        ``UNKNOWN`` in their place: an interrupt came while it was shown some.
    """

    progress: Progress
    chooser: Chooser | None
    noise: TreeNoise | None = None
    pending: Sequence[Floats] = ()

    def __repr__(self) -> str:
        # Not the secrets.
        return f"StreamState({self.progress})"

    def observe(self) -> None:
        """Show the chooser what is pending, in place: :meth:`check` detects that this was interrupted."""
        pending = cast("list[Floats]", self.pending)
        values = pending.copy()
        pending[:] = [UNKNOWN]
        for part in values:
            cast("Chooser", self.chooser).observe(part)
        pending.clear()

    def check(self) -> None:
        """StateError if it is not known what the chooser has seen: shown twice, a value would count twice."""
        if self.pending and self.pending[0] is UNKNOWN:
            raise StateError(
                "an earlier call was interrupted while it read the hold-out: expected a new publisher (one that "
                "keeps a file goes on after an interrupt)"
            )

    def settled(self) -> Chooser | None:
        """The chooser after what is pending; a copy, if there is any."""
        if self.chooser is None or not self.pending:
            return self.chooser
        self.check()
        twin = self.chooser.copy()
        for part in self.pending:
            twin.observe(part)
        return twin
