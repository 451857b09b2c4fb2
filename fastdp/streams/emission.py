"""What a batch of a stream publishes, once its place in the stream is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastdp.data.kinds import Floats
from fastdp.streams.adaptive_blocks import AdaptiveStep
from fastdp.streams.fixed_blocks import Step, SummedStep


class FillIn(NamedTuple):
    """What is published in the place of withheld values: a constant made of released values."""

    value: float
    size: int

    def emit(self, out: Floats) -> None:
        """Write it into ``out``."""
        out[:] = self.value


#: What a part of a batch publishes: it has a ``size`` and an ``emit``.
Output = Step | SummedStep | AdaptiveStep | FillIn


@dataclass(frozen=True)
class Emission:
    """What a batch publishes; called, it writes it.

    Attributes
    ----------
    parts : list of Step, SummedStep, AdaptiveStep or FillIn
        In order.
    size : int
        Published values.
    """

    parts: list[Output]
    size: int

    def __call__(self, out: Floats | None = None) -> Floats:
        """The published values, in the first entries of ``out`` if it is given."""
        first = self.parts[0] if len(self.parts) == 1 else None
        if out is None and isinstance(first, Step) and first.predictions is None:
            return first.totals
        target: Floats = np.empty(self.size) if out is None else out[: self.size]
        begin = 0
        for part in self.parts:
            part.emit(target[begin : begin + part.size])
            begin += part.size
        return target


def as_given(published: Floats, out: Floats | None = None) -> Floats:
    """The published values, in the first entries of ``out`` if it is given."""
    if out is None:
        return published
    target = out[: published.size]
    target[:] = published
    return target
