"""The batch mode: many short streams beside one long stream, repetitions beside a loop."""

from __future__ import annotations

import argparse

from benchmarks import many_streams, records, sizes
from benchmarks.show.report import table
from benchmarks.streams import item_counts
from benchmarks.timing import Timing, side_by_side

REPETITIONS = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="warm runs of each task (default 10)")
    parser.add_argument("--streams", type=int, default=4_000, help="streams of 1,000 values (default 4,000)")


def run(options: argparse.Namespace) -> None:
    streams(options.streams, options.runs)
    repetitions(options.runs)


def streams(count: int, runs: int) -> None:
    values = many_streams.meters(count)
    rows = []
    for kind in many_streams.KINDS:
        timings = side_by_side(
            {
                "long": lambda kind=kind: many_streams.one_long(values, kind),
                "many": lambda kind=kind: many_streams.many(values, kind),
                "threads": lambda kind=kind: many_streams.many(values, kind, 2),
                "loop": lambda kind=kind: many_streams.loop(values, kind),
            },
            runs,
        )
        looped = min(many_streams.LOOPED, count) * many_streams.LENGTH
        records.keep_all(f"many streams, {kind}", timings, {**dict.fromkeys(timings, values.size), "loop": looped})
        costs = {name: _cost(timing, looped if name == "loop" else values.size) for name, timing in timings.items()}
        rows.append(
            [
                kind,
                *(f"{costs[name]:.2f}" for name in ("long", "many", "threads", "loop")),
                f"{timings['many'].median / timings['long'].median:.2f}",
                f"{timings['many'].least / timings['long'].least:.2f}",
            ]
        )
    table(
        f"{count:,} streams of 1,000 values, eps = 1, B = 100, theta = 60; ns/value, medians of {runs} warm runs",
        ["kind", "one long stream", "many", "many, 2 threads", "a publisher each", "many : long", "of the least"],
        rows,
    )


def repetitions(runs: int) -> None:
    rows = []
    for length, holdout in ((12_000, 2_000), (sizes.HOLDOUT + sizes.PUBLISHED, sizes.HOLDOUT)):
        for prune in (0, 2):
            tasks = many_streams.repetition_tasks(item_counts(length), prune, REPETITIONS, holdout)
            timings = side_by_side(tasks, runs)
            records.keep_all(
                f"repetitions, {length:,} values, prune {prune}", timings, dict.fromkeys(tasks, REPETITIONS)
            )
            rates = [f"{REPETITIONS / timing.median:,.0f}" for timing in timings.values()]
            gain = timings["loop"].median / timings["repeat"].median
            rows.append([f"{length:,}", str(prune), *rates, f"{gain:.2f}"])
    table(
        f"Repetitions a second of ToPS with 200 queries, B = {sizes.BOUND:,}; medians of {runs} warm runs",
        ["values", "prune", "loop", "repeat", "repeat, 2 threads", "repeat : loop"],
        rows,
    )


def _cost(timing: Timing, values: int) -> float:
    return timing.median / values * 1e9
