"""Whole streams of points, and selective counting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.counters import Block, SelectiveCounting, Simple
from fastdp.counters.counter import event_guarantee
from fastdp.counters.selective import Selected
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.spatial import Box
from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
from fastdp.systems.phdstream.publisher import PHDStream
from fastdp_lab.audit.catalogue.case import SLOW, Case, OneRun, one_run
from fastdp_lab.audit.catalogue.inputs import EVENT, Batches, additions, late_events, repeated_counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: The place of the events in which the inputs differ.
TARGET = 0.1


@dataclass(frozen=True)
class Coin:
    """A selector of two counters by randomised response: whether the input is positive, reported truly or not."""

    epsilon: float
    seed: int

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for an event, which changes one input."""
        return event_guarantee(self.epsilon, "randomised response to one input")

    def select(self, values: Integers, step: int, last: Selected | None) -> int:
        """The second counter if the input is positive, or with probability 1 / (1 + e^epsilon) if it is not."""
        del last
        word = np.random.default_rng([self.seed, step]).random()
        return int((values[0] > 0) == (word < 1.0 / (1.0 + math.exp(-self.epsilon))))


def make_selective(key: Key, *, epsilon: float) -> SelectiveCounting:
    """Two counters; half of epsilon for the selector, half for the counters."""
    coin = Coin(epsilon / 2.0, int.from_bytes(key.derive("coin").reveal(), "big"))
    return SelectiveCounting([Simple(), Simple()], coin, epsilon / 2.0, key=key)


def chosen_counts(fresh: Callable[[], Any], data: Sequence[int]) -> Integers:
    """Which counter was active at each time, and its sum."""
    counting = fresh()
    steps = [counting.step(value) for value in data]
    return np.array([number for one in steps for number in (one.counter, *one.counts.tolist())])


def trees(fresh: Callable[[], Any], data: Batches) -> Floats:
    """After each batch: number of leaves, depth and count of the leaf around :data:`TARGET`, and the total."""
    stream, seen = fresh(), list[float]()
    for batch in data:
        stream.advance(*(np.asarray(points, np.float64).reshape(-1, 1) for points in batch))
        tree = stream.tree
        leaf = int(np.flatnonzero((tree.lower[:, 0] <= TARGET) & (tree.upper[:, 0] > TARGET))[0])
        seen += [tree.n_leaves, tree.depths[leaf], tree.counts[leaf], tree.total]
    return np.array(seen, np.float64)


def phdstream(epsilon: float, *, max_depth: int = 0, factor: float = 0.5, **options: Any) -> OneRun:
    """A publisher on [0, 1]; of depth 0 it only counts, with half of epsilon."""
    make = partial(PHDStream, Box(0, 1), epsilon, max_depth=max_depth, **options)
    return one_run(lambda key: make(key=key), trees, 1.0 if max_depth else factor)


def adaptive(epsilon: float, *, max_depth: int = 0, period: int = 1, factor: float = 1.0, **options: Any) -> OneRun:
    """The same for cells that follow counts, which are made every ``period`` steps."""
    make = partial(AdaptivePHDStream, Box(0, 1), epsilon, max_depth=max_depth, period=period, **options)
    return one_run(lambda key: make(key=key), trees, factor)


def points(epsilon: float) -> list[Case]:
    """A new object for each run."""
    first = [0.1] * 40
    removed = additions(first, []), [(first, []), ([], [0.1])]
    # Three points that are added and then none: the counter of a leaf that was merged settles.
    few = additions([0.1] * 2, [], [], []), additions([0.1] * 3, [], [], [])
    more = additions([0.1] * 5, [0.1] * 3), additions([0.1] * 6, [0.1] * 3)
    settling = phdstream(epsilon, counter=Block(2, settles=True), max_depth=1)
    # Next to nothing at first, so that PrivTree plants the second count; its half needs twice epsilon to be detected.
    planted = adaptive(2.0 * epsilon, max_depth=2, shrink=False)
    two = adaptive(epsilon, sensitivity=2)
    # A single cell: half for the whole, and three tenths for the cell, because nothing is decided.
    whole = phdstream(epsilon, factor=0.8, total_share=0.5)
    return [
        Case("selective-counting", one_run(partial(make_selective, epsilon=epsilon), chosen_counts), *EVENT, SLOW),
        Case("phdstream", phdstream(epsilon, max_depth=4), *more, SLOW),
        Case("phdstream-counts", phdstream(epsilon), *late_events(2), SLOW),
        Case("phdstream-whole", whole, *late_events(2), SLOW),
        Case("phdstream-removal", phdstream(epsilon), *removed, SLOW),
        Case("phdstream-two-events", phdstream(epsilon, sensitivity=2), *late_events(3, 2), SLOW),
        Case("phdstream-settling", settling, *few, SLOW),
        Case("phdstream-adaptive", adaptive(epsilon, max_depth=2, period=2), *late_events(4), SLOW),
        Case(
            "phdstream-adaptive-first",
            adaptive(epsilon, factor=0.5),
            additions(first),
            additions([*first, 0.1]),
            SLOW,
        ),
        Case("phdstream-adaptive-planted", planted, additions([], [0.1]), additions([], []), SLOW),
        Case("phdstream-adaptive-two-events", two, *late_events(4, 2), SLOW, events=(repeated_counts,)),
    ]
