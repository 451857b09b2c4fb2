"""A threshold that the user knows from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.thresholds.base import ThresholdTask

Rule = TypeVar("Rule")


@dataclass(frozen=True)
class Fixed:
    """Theta is public: no hold-out, no budget.

    Parameters
    ----------
    theta : float
        In units of the input, above 0 and at most the bound.  It must not come from the data.
    """

    theta: float
    uses_holdout: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameter."""
        object.__setattr__(self, "theta", validation.positive("theta", self.theta))

    def start(self, task: ThresholdTask) -> _FixedChooser:
        """A chooser that returns theta."""
        if self.theta > task.bound:
            raise ParameterError(
                f"theta = {self.theta!r} (the threshold): expected at most the bound, {task.bound!r}"
            )
        return _FixedChooser(float(self.theta))

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """Nothing is looked at."""
        return None


def as_rule(threshold: Rule | float) -> Rule | Fixed:
    """The rule itself; for a number, the threshold known publicly."""
    if isinstance(threshold, Real) and not isinstance(threshold, bool):
        return Fixed(validation.positive("threshold", threshold))
    return cast("Rule", threshold)


@dataclass(frozen=True)
class _FixedChooser:
    theta: float

    def copy(self) -> _FixedChooser:
        return self

    def observe(self, values: NDArray[np.float64]) -> None:
        """Hold-out values, if the user asks for a hold-out, are dropped unseen."""

    def choose(self, key: Key) -> float:
        return self.theta

    def pack(self) -> NDArray[np.int64]:
        return np.empty(0, np.int64)

    def unpack(self, packed: NDArray[np.int64]) -> None:
        if packed.size:
            raise ValueError("a fixed threshold holds no data")
