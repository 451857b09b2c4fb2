"""Golden cases of running counts and selective counting."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.parts import OTHERS, SECRETS, Golden, public


class Rotating:
    """A public selector: always the next counter."""

    # A user's selector joins the noise key with its module, which may move.
    __module__ = "golden"

    def __init__(self) -> None:
        self.guarantee = public("counters.event_guarantee")(0.0, "does not look at an event")

    def select(self, increments: Any, step: int, last: Any) -> int:
        """The number of the step's counter."""
        return step % 3 if last is None else (last.counter + 1) % 3


def _cases() -> Iterator[tuple[str, Golden]]:
    rows = [np.array([t % 5, 2 * t % 7, -t % 3]) for t in range(20)]
    simple, block, tree = (public(f"counters.{name}") for name in ("Simple", "Block", "BinaryTree"))
    counters = {
        "simple": simple(),
        "block": block(4),
        "block settles": block(4, settles=True),
        "tree": tree(8),
        "tree settles": tree(8, settles=True),
    }

    def run(folder: Path, counter: Any, source: str, active: bool = False) -> Iterator[Any]:
        counts = public("counters.RunningCounts")(counter, 0.5, 3, **SECRETS[source])
        for t, row in enumerate(rows):
            chosen = np.array([0, 2]) if active and t % 2 else np.arange(3)
            yield counts.step(row[chosen], chosen)

    def select(folder: Path, source: str) -> Iterator[Any]:
        parts = simple(), block(2), tree(8)
        counting = public("counters.SelectiveCounting")(parts, Rotating(), 0.5, dimension=3, **SECRETS[source])
        for row in rows:
            found = counting.step(row)
            yield from (found.counter, found.counts)

    for name, counter in counters.items():
        yield f"counts {name}", Golden(partial(run, counter=counter, source="seed 1"))
        yield f"counts {name}, some active", Golden(partial(run, counter=counter, source="seed 1", active=True))
    for secret in OTHERS:
        yield f"counts tree, {secret}", Golden(partial(run, counter=counters["tree"], source=secret))
    for secret in SECRETS:
        yield f"selective counting, {secret}", Golden(partial(select, source=secret))


CASES = dict(_cases())
