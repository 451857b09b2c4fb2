"""A step of PHDStream against the points present and the events of its batch: a table and a picture."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Annotated, NamedTuple

import numpy as np

from benchmarks.shared import table
from benchmarks.speed.inputs import circles, started
from benchmarks.speed.measure import keep, stay_on_one_core
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId

DEPTH, STEPS, ROUNDS = 20, 20, 3
#: Points present with batches of ``BATCH`` events, and events of a batch with ``PRESENT`` points.
PRESENT, BATCH = 100_000, 500
#: Milliseconds of a step, and of each event and visited node, by hand from the table; a guide for the eye.
RULE = 0.15, 40e-6
BATCHES = (5, 50, 500, 5_000, 50_000)


class Cost(NamedTuple):
    """Of one case: its numbers, seconds of every step and of its draws alone, visited nodes, nodes in memory."""

    present: int
    batch: int
    seconds: list[float]
    draws: list[float]
    visited: int
    nodes: int

    @property
    def least(self) -> float:
        """Seconds of the fastest step: others work on the machine too."""
        return min(self.seconds)

    @property
    def work(self) -> int:
        """Events and visited nodes: what a step is linear in."""
        return self.batch + self.visited


def run(
    *,
    most: Annotated[int, "points present at most"] = 10**6,
    plot: Annotated[Path | None, "a picture of seconds"] = None,
) -> None:
    print(f"Processor seconds; process {stay_on_one_core()}.")
    presents = [round(10.0 ** (k / 2)) for k in range(6, 15) if 10.0 ** (k / 2) <= 1.0001 * most]
    cases = [(present, BATCH) for present in presents]
    cases += [(min(PRESENT, most), batch) for batch in BATCHES if batch <= most]
    measured(*cases[0])  # kernels, once
    # Cases take turns, so that a busy minute does not fall on one of them.
    rounds = [{case: measured(*case) for case in dict.fromkeys(cases)} for _ in range(ROUNDS)]
    costs = {
        case: rounds[0][case]._replace(
            seconds=[s for each in rounds for s in each[case].seconds],
            draws=[s for each in rounds for s in each[case].draws],
        )
        for case in cases
    }
    for (present, batch), cost in costs.items():
        name = f"a step with {present:,} points and {batch:,} events"
        keep("steps", name, cost.seconds, items=cost.work)
        keep("steps", f"{name}, its draws alone", cost.draws, items=cost.work)
    points, batches = ([costs[case] for case in part] for part in (cases[: len(presents)], cases[len(presents) :]))
    columns = ["points present", "batch", "ms a step", "least", "draws alone", "visited nodes", "nodes in memory"]
    rows = [
        [
            *(cost.present, cost.batch),
            *(f"{1e3 * float(s):.3f}" for s in (np.median(cost.seconds), cost.least, min(cost.draws))),
            *(cost.visited, cost.nodes, f"{1e9 * cost.least / cost.work:.0f}"),
        ]
        for cost in costs.values()
    ]
    title = f"A step of PHDStream: depth {DEPTH}, eps 1, two circles, half additions and half removals"
    table(title, [*columns, "ns / (batch + visited)"], rows)
    if plot is not None:
        draw(points, batches, plot)


def measured(present: int, batch: int) -> Cost:
    """Cost of steps with so many points and events."""
    stream = started(present, DEPTH)
    half = -(-batch // 2)
    plan, key = stream._plan, Key.from_seed(1)
    seconds, draws = [], []
    for k in range(STEPS):
        added, removed = circles(half, 2 * k + 1), circles(batch - half, 2 * k + 2)
        begin = process_time()
        stream.advance(added, removed)
        seconds.append(process_time() - begin)
        # A tree cut in two has one leaf more than it has cuts; each node has a draw, and each leaf another.
        leaves = stream.tree.n_leaves
        noise = np.empty(3 * leaves - 1, np.int64)
        begin = process_time()
        sampler.fill(noise[leaves:], plan.split_distribution, key, StreamId(Purpose.SPLIT, number=k))
        sampler.fill(noise[:leaves], plan.cell_distribution, key, StreamId(Purpose.CELL, number=k))
        draws.append(process_time() - begin)
    return Cost(present, batch, seconds, draws, 2 * leaves - 1, stream.n_nodes)


def draw(points: list[Cost], batches: list[Cost], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    by_points, by_batch, by_work = figure.subplots(1, 3, sharey=True)
    for ax, costs, x, name in (
        (by_points, points, [cost.present for cost in points], f"points present, batches of {BATCH:,}"),
        (by_batch, batches, [cost.batch for cost in batches], f"events in a batch, {batches[0].present:,} points"),
        (by_work, points + batches, [cost.work for cost in points + batches], "events and visited nodes"),
    ):
        marker = {"linestyle": "" if ax is by_work else "-", "marker": "o", "markersize": 4}
        ax.loglog(x, [1e3 * cost.least for cost in costs], **marker)
        ax.set_xlabel(name)
        ax.grid(alpha=0.3)
    work = np.array(sorted(cost.work for cost in points + batches))
    label = f"{RULE[0]} ms, and {1e6 * RULE[1]:.0f} ns each"
    by_work.loglog(work, RULE[0] + RULE[1] * work, color="black", linestyle=":", label=label)
    by_work.legend()
    by_points.set_ylabel("processor ms a step")
    figure.suptitle(f"PHDStream, one core, synthetic circles: least of {ROUNDS * STEPS} steps")
    figure.savefig(path, dpi=120)
