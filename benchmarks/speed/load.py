"""Many publishers that take turns in one process: rates, and memory of each."""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time
from typing import Annotated, Literal

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts, table

#: Chunks are cut from a stream of this length, repeatedly.
POOL = 2**22
#: Values of one publisher's turn.
TURN = 4096


def run(
    *,
    publishers: Annotated[int, "side by side"] = 1000,
    rounds: Annotated[int, "turns of each, of 4,096 values (256: one noise tree)"] = 256,
) -> None:
    # At prune = 0 each holds the noise of 2^20 values: fewer of them fit.
    few = max(1, publishers // 10)
    columns = ["system", "publishers", "values", "M values a CPU second", "one alone", "KiB: made", "in the hold-out"]
    table(
        f"Publishers side by side, turns of {TURN:,} values; KiB a publisher, above the memory before them",
        [*columns, "publishing", "at the end"],
        [many_publishers("optimal", publishers, rounds), many_publishers(0, few, rounds)],
    )


def resident() -> float:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def many_publishers(prune: int | Literal["optimal"], count: int, rounds: int) -> list[str]:
    """One row: publishers that take turns, and one alone in the same turns."""
    pool, out = item_counts(POOL), np.empty(TURN)
    warm = shared.HOLDOUT // TURN + 1

    def make(number: int) -> fastdp.ToPS:
        return fastdp.ToPS(shared.EPSILON, shared.BOUND, prune=prune, seed=f"load {number}")

    def turns(publishers: list[fastdp.ToPS], begin: int, end: int) -> float:
        # On a shared machine only the time of this process compares.
        start = process_time()
        for turn in range(begin, end):
            at = turn * TURN % POOL
            for publisher in publishers:
                publisher.publish(pool[at : at + TURN], out=out)
        return process_time() - start

    alone = [make(0)]
    turns(alone, 0, warm)
    alone_seconds = turns(alone, warm, warm + count * rounds)
    levels = [resident()]
    publishers = [make(number) for number in range(count)]
    levels.append(resident())
    for begin, end in ((0, 1), (1, warm), (warm, warm + rounds)):
        seconds = turns(publishers, begin, end)
        levels.append(resident())
    n, name = count * rounds * TURN, f"prune = {prune!r} (block {publishers[0].plan.block:,})"
    rates = [f"{n / seconds / 1e6:,.0f}", f"{n / alone_seconds / 1e6:,.0f}"]
    kib = [f"{(level - levels[0]) * 1024 / count:,.1f}" for level in levels[1:]]
    return [name, f"{count:,}", f"{n / 1e6:,.0f} M", *rates, *kib]
