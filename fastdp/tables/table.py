"""What ``fastdp.totals``, ``counts`` and ``means`` return."""

from __future__ import annotations

from dataclasses import dataclass

from fastdp.guarantee import Guarantee
from fastdp.tables.sums import WindowSums


@dataclass(frozen=True, eq=False)
class Table:
    """Released windows of a table.

    Attributes
    ----------
    sums : WindowSums
        What was released.
    confidence : float
        Of the intervals.
    """

    sums: WindowSums
    confidence: float = 0.95

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return self.sums.guarantee
