"""Base: the baseline that publishes zeros (ToPS section 5.3); what a method must beat to be of use."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_column, as_floats
from fastdp.errors import DataError
from fastdp.guarantee import Guarantee
from fastdp.releases.release import Release
from fastdp.state.persistence import Chunk, Position
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Reports


class Base(Reports):
    """Publishes a zero for every value after the hold-out, and so reveals nothing at all.

    Parameters
    ----------
    holdout : int
        Values that are not published, to compare with methods that have a hold-out.
    """

    _CHANGING: ClassVar[tuple[str, ...]] = ("n_seen",)

    def __init__(self, holdout: int = 0) -> None:
        super().__init__()
        self.holdout = validation.integer("holdout", holdout, 0)
        self.n_seen = 0

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon 0: the output does not depend on the values."""
        return Guarantee(epsilon=0.0, arithmetic="exact", derivation=("zeros whatever the values are: epsilon 0",))

    @exclusive
    def publish(self, chunk: Any) -> NDArray[np.float64]:
        """A zero for each value after the hold-out: float64[n]."""
        column = as_column(chunk)
        return self._consume(lambda base: base._publish(column.size), column)

    def _publish(self, size: int) -> NDArray[np.float64]:
        held = min(size, max(0, self.holdout - self.n_seen))
        self.n_seen += size
        return np.zeros(size - held)

    def release(self, values: Any) -> Release:
        """Zeros for a whole array; DataError if it is not longer than the hold-out."""
        size = as_column(values, "values").size
        if size <= self.holdout:
            raise DataError(f"values has {size} entries: expected more than the hold-out of {self.holdout}")
        return Release(np.zeros(size - self.holdout), self.holdout, 0.0, self.guarantee)

    # State files.

    @property
    def _consumed(self) -> int:
        return self.n_seen

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"holdout": self.holdout}

    def _chunk(self, parts: tuple[Any, ...]) -> Chunk:
        return as_floats(parts[0])

    def _position(self) -> Position:
        return {"n_seen": self.n_seen}

    def _led_by(self, values: Chunk) -> Position:
        return {"n_seen": self.n_seen + values.size}

    def _resume(self, saved: Position) -> None:
        self.n_seen = validation.integer("n_seen", saved["n_seen"], 0)
