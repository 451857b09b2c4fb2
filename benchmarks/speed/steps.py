"""PHDStream: a step against the points present and the events of its batch, and its draws alone."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared import Floats
from benchmarks.speed.inputs import circles, started
from benchmarks.speed.measure import Group, Task
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId

DEPTH, STEPS = 20, 20
#: Points present, and events in a batch, half of which are removals.
CASES = (*((present, 500) for present in (1000, 10_000, 100_000, 1_000_000)), (100_000, 5), (100_000, 50_000))
RUNS = 20


def steps() -> Group:
    """Batches that come again and again, so that making them is not timed."""
    tasks: dict[str, Task] = {}
    for present, events in CASES:
        stream, half = started(present, DEPTH), -(-events // 2)
        made = [(circles(half, 2 * k + 1), circles(events - half, 2 * k + 2)) for k in range(STEPS)]
        name = f"a step with {present:,} points and {events:,} events"
        tasks[name] = partial(step, stream, cycle(made))
        tasks[f"{name}, its draws alone"] = partial(draws, stream)
    return Group("steps", tasks)


def step(stream: Any, batches: Iterator[tuple[Floats, Floats]]) -> None:
    stream.advance(*next(batches))


def draws(stream: Any) -> None:
    """A tree cut in two has one leaf more than it has cuts; each node has a draw, and each leaf another."""
    leaves, plan, key = stream.tree.n_leaves, stream._plan, Key.from_seed(1)
    noise = np.empty(3 * leaves - 1, np.int64)
    sampler.fill(noise[leaves:], plan.split_distribution, key, StreamId(Purpose.SPLIT))
    sampler.fill(noise[:leaves], plan.cell_distribution, key, StreamId(Purpose.CELL))


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield steps
