"""The quick set, about a minute: one task of each kind, in least processor time, on which others hardly act.

Task by task beside another commit: ``python -m benchmarks tracking compare``.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time, process_time_ns
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts
from benchmarks.speed import batch
from benchmarks.speed.inputs import LENGTH, Tree, begun, circles, endless_pak, started
from benchmarks.speed.local import plain_steps, report_values
from fastdp import local
from fastdp.noise import Key, discrete_laplace
from fastdp.thresholds import NoisyMax, ThresholdTask
from fastdp_lab.queries import random_ranges

Task = Callable[[], Any]


def _publish(publisher: Any, size: int) -> Task:
    chunk = item_counts(size)
    begun(publisher)
    return lambda: publisher.publish(chunk)


def _endless(system: Callable[..., Any], **options: Any) -> Any:
    return system(shared.EPSILON, shared.BOUND, max_range=shared.MAX_RANGE, seed=1, **options)


def _release(system: Callable[..., Any]) -> Task:
    values = item_counts(LENGTH)
    return lambda: system(shared.EPSILON, shared.BOUND, shared.HOLDOUT, shared.MAX_RANGE).release(values)


def _draws() -> Task:
    return lambda: discrete_laplace(2.0**22, 2**18)


def _threshold() -> Task:
    values, key = item_counts(shared.HOLDOUT), Key.random()
    task = ThresholdTask(shared.EPSILON, float(shared.BOUND), shared.HOLDOUT, shared.MAX_RANGE, 2.0**-20)

    def choose() -> None:
        chooser = NoisyMax().start(task)
        chooser.observe(values)
        chooser.choose(key)

    return choose


def _queries() -> Task:
    ready = fastdp.ToPS(shared.EPSILON, shared.BOUND, seed=1).release(item_counts(LENGTH))
    queries = random_ranges(shared.PUBLISHED, shared.QUERIES, shared.MAX_RANGE, seed=1)

    def ask() -> None:
        # A fresh object, so that prefix sums are not remembered.
        fastdp.Release(ready.values, ready.offset, ready.thresholds, ready.guarantee, ready.block).sum(*queries)

    return ask


def _points() -> Task:
    stream: Any = started(10_000, 20, fastdp.PHDStream)
    there, back = circles(250, 1), circles(250, 2)
    stream.advance(there, np.empty((0, 2)))

    def exchange() -> None:
        stream.advance(back, there)
        stream.advance(there, back)

    return exchange


def _many() -> Task:
    values = batch.meters(1000, 1000)
    return lambda: batch.many(values, "prune 1", 1)


def _fleet() -> Task:
    fleet = fastdp.Fleet(fastdp.Adaptive(0.5, 100.0, threshold=20.0, max_range=4096, seed=1))
    ids, values = np.arange(10_000), item_counts(10_000)
    fleet.publish(ids, values)
    return lambda: fleet.publish(ids, values)


def _steps() -> Task:
    (task,) = plain_steps([1024]).tasks.values()
    return task


def _reports() -> Task:
    values, client = report_values()[: 2**18], local.Hybrid(1.0, -1.0, 1.0)
    return lambda: client.perturb(values)


def _suite() -> Task:
    # Within: other commits have no suites.
    from fastdp_lab import suites
    from fastdp_lab.sweeps.specification import parts, run_part

    (suite,) = suites.of_name("streams", quick=True)
    one = {"datasets": suite.specification.datasets[:1], "epsilons": (1.0,), "repetitions": 1}
    specification = replace(suite.specification, **one)
    return lambda: [run_part(specification, part, Path()) for part in parts(specification)]


def _consistency() -> Task:
    return Tree.make(shared.FAN_OUT, 2**20).make_consistent


TASKS: dict[str, Callable[[], Task]] = {
    "2^18 draws": _draws,
    "fan-out-16 consistency": _consistency,
    "noisy max": _threshold,
    "ToPS, s = 1, 65,536 values": lambda: _publish(_endless(fastdp.ToPS, prune=1), 65_536),
    "ToPS, s = 2, one value": lambda: _publish(_endless(fastdp.ToPS, prune=2), 1),
    "Adaptive, 65,536 values": lambda: _publish(_endless(fastdp.Adaptive), 65_536),
    "PAK, 4,096 values": lambda: _publish(endless_pak(), 4096),
    "ToPS, whole": lambda: _release(fastdp.ToPS),
    "Adaptive, whole": lambda: _release(fastdp.Adaptive),
    "200 range queries": _queries,
    "1,000 streams of 1,000": _many,
    "fleet of 10,000": _fleet,
    "PHDStream, two steps": _points,
    "200 EM steps": _steps,
    "2^18 hybrid reports": _reports,
    "suite of streams, a run each": _suite,
}


#: Processor seconds of one measurement, so that the clock's own call does not count.
MEASURED = 5e-4


def least(task: Task, seconds: float) -> float:
    """Nanoseconds of a call: the least of the measurements that fit into so many processor seconds."""
    begin = process_time()
    task()
    calls = max(1, round(MEASURED / max(process_time() - begin, 1e-7)))
    found = []
    while not found or process_time() - begin < seconds:
        start = process_time_ns()
        for _ in range(calls):
            task()
        found.append((process_time_ns() - start) / calls)
    return min(found)


class Quick:
    """Least processor time of a call, which work beside it lengthens less than a median."""

    params = (list(TASKS),)
    param_names = ("task",)
    unit = "nanoseconds"
    timeout = 120

    def setup(self, task: str) -> None:
        self.task = TASKS[task]()
        self.task()

    def track_task(self, task: str) -> float:
        return least(self.task, 1.0)
