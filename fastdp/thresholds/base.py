"""What every threshold optimiser offers to a publisher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp.privacy import Guarantee
from fastdp.randomness.key import Key


@dataclass(frozen=True)
class ThresholdTask:
    """The public facts a threshold is chosen under.

    Attributes
    ----------
    epsilon : float
        Budget for the hold-out.
    bound : float
        B, in units of the input.
    holdout : int
        m, the number of values that are looked at and never published.
    max_range : int
        r, the longest query.
    """

    epsilon: float
    bound: float
    holdout: int
    max_range: int


class Chooser(Protocol):
    """Collects the hold-out and chooses theta; holds a summary, never the values."""

    def copy(self) -> Chooser:
        """An independent copy, so that a rejected chunk can be forgotten."""
        ...

    def observe(self, values: NDArray[np.float64]) -> None:
        """Add values (finite; a publisher sees to it)."""
        ...

    def choose(self, key: Key) -> float:
        """Theta in units of the input, in (0, bound]."""
        ...

    @property
    def counts(self) -> NDArray[np.int64]:
        """The summary, for a state file."""
        ...


class Threshold(Protocol):
    """A rule that chooses theta."""

    @property
    def uses_holdout(self) -> bool:
        """Whether the rule looks at data at all."""
        ...

    def start(self, task: ThresholdTask) -> Chooser:
        """A chooser for one publisher."""
        ...

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """What choosing theta costs; None if no data are looked at."""
        ...
