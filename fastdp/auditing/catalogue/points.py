"""Whole streams of points, and selective counting."""

from __future__ import annotations

from typing import Any

from fastdp.auditing.catalogue.case import SLOW, Case
from fastdp.auditing.inputs import EVENT, additions, late_events, repeated_counts
from fastdp.auditing.mechanisms import SelectiveTrials, SpatialTrials
from fastdp.counters import Block
from fastdp.spatial import Box
from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
from fastdp.systems.phdstream.publisher import PHDStream


def points(epsilon: float) -> list[Case]:
    """A fresh object for each stream."""
    first = [0.1] * 40
    removed = additions(first, []), [(first, []), ([], [0.1])]
    # Three points that come, and then nothing: the counter of a leaf that was merged settles.
    few = additions([0.1] * 2, [], [], []), additions([0.1] * 3, [], [], [])
    return [
        Case("selective-counting", SelectiveTrials(epsilon), *EVENT, SLOW),
        Case(
            "phdstream",
            phdstream(epsilon, max_depth=4),
            additions([0.1] * 5, [0.1] * 3),
            additions([0.1] * 6, [0.1] * 3),
            SLOW,
        ),
        Case("phdstream-counts", phdstream(epsilon), *late_events(2), SLOW),
        Case("phdstream-removal", phdstream(epsilon), *removed, SLOW),
        Case("phdstream-two-events", phdstream(epsilon, sensitivity=2), *late_events(3, 2), SLOW),
        Case("phdstream-settling", phdstream(epsilon, counter=Block(2, settles=True), max_depth=1), *few, SLOW),
        Case("phdstream-adaptive", adaptive(epsilon, max_depth=2, period=2), *late_events(4), SLOW),
        Case(
            "phdstream-adaptive-first",
            adaptive(epsilon, share=0.5),
            additions(first),
            additions([*first, 0.1]),
            SLOW,
        ),
        Case(
            "phdstream-adaptive-planted",
            # Next to nothing at first, so that the second count is planted; at twice epsilon its halves can be told.
            adaptive(2.0 * epsilon, max_depth=2, shrink=False),
            additions([], [0.1]),
            additions([], []),
            SLOW,
        ),
        Case(
            "phdstream-adaptive-two-events",
            adaptive(epsilon, sensitivity=2),
            *late_events(4, 2),
            SLOW,
            events=(repeated_counts,),
        ),
    ]


def phdstream(epsilon: float, *, max_depth: int = 0, **options: Any) -> SpatialTrials:
    """A publisher on [0, 1]; of depth 0 it counts alone, with half of epsilon."""
    made = PHDStream(Box(0, 1), epsilon, max_depth=max_depth, seed=0, **options)
    return SpatialTrials(made._fresh, share=1.0 if max_depth else 0.5)


def adaptive(
    epsilon: float, *, max_depth: int = 0, period: int = 1, share: float = 1.0, **options: Any
) -> SpatialTrials:
    """The same for cells that follow counts, which are made every ``period`` steps."""
    made = AdaptivePHDStream(Box(0, 1), epsilon, max_depth=max_depth, period=period, seed=0, **options)
    return SpatialTrials(made._fresh, share)
