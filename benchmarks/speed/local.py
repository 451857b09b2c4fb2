"""The local model: the EM, reports a second on the users' side, messages a second on the server's."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.peers import numpy_peers
from benchmarks.shared import Floats
from benchmarks.speed.inputs import client, output_counts
from benchmarks.speed.measure import Group, Task
from fastdp import local
from fastdp.local.distribution import MAX_ITERATIONS, TOLERANCE, cell_edges, estimate, transition
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp.thresholds import Fixed
from fastdp_kernels.local import square_wave_em

REPORTS = 2**20
BINS = 1024
EPSILONS = (0.2, 1.0, 2.0)
PLAIN = "EM, plain"
VARIANTS: dict[str, dict[str, Any]] = {PLAIN: {"accelerate": False}, "EM, accelerated": {}, "EMS": {"method": "ems"}}
BATCHES = (1, 100, 10_000)
STEPS = 200
THETA = 50.0
RUNS = 25


def square_wave(epsilon: float) -> Group:
    """From counts of 65,536 reports to the distribution, the same stopping rule everywhere; items are EM steps."""
    counts = output_counts(epsilon)
    tasks = {
        name: partial(estimate, client(epsilon).distribution, epsilon, counts, **options)
        for name, options in VARIANTS.items()
    }
    stop = cell_counts(epsilon), TOLERANCE * math.exp(epsilon), MAX_ITERATIONS
    products = numpy_peers.products(client(epsilon).distribution, BINS)
    peer = partial(numpy_peers.estimate, *products, *stop)
    items = {name: task().iterations for name, task in tasks.items()} | {"careful NumPy": peer()[1]}
    return Group(f"square wave EM, eps {epsilon:g}", {**tasks}, items=items, slow={"careful NumPy": peer})


def cell_counts(epsilon: float) -> Floats:
    """The counts of cells that NumPy works with."""
    edges = cell_edges(client(epsilon).distribution, BINS)
    return np.add.reduceat(output_counts(epsilon), edges[:-1]).astype(np.float64)


def plain_steps(sizes: Sequence[int] = (256, 1024, 4096, 16_384)) -> Group:
    """``STEPS`` plain steps by the number of bins; their time must be linear in it."""
    tasks: dict[str, Task] = {}
    distribution = client(1.0).distribution
    for bins in sizes:
        reports = transition(
            distribution, bins, np.add.reduceat(output_counts(1.0), cell_edges(distribution, bins)[:-1])
        )

        def em(reports: Any = reports, theta: Floats = np.empty(bins)) -> None:  # noqa: B008 - one array a task
            theta[:] = 1.0 / theta.size
            square_wave_em.iterate_plain(reports, False, -math.inf, STEPS, theta)

        tasks[f"{bins:,} bins"] = em
    return Group("square wave EM, plain steps", tasks, items=dict.fromkeys(tasks, STEPS))


def report_values() -> Floats:
    return np.random.default_rng(1).uniform(-1.0, 1.0, REPORTS)


def reports() -> Group:
    """2^20 values in, reports out, random words included; and what the server computes from them."""
    values, words, key = report_values(), np.empty(REPORTS, np.uint64), Key.random()
    generator, copied = np.random.default_rng(2), np.empty(REPORTS)
    tasks: dict[str, Task] = {}
    for mechanism in (local.Hybrid, local.Piecewise, local.StochasticRounding, local.SquareWave):
        user = mechanism(1.0, -1.0, 1.0)
        tasks[f"{mechanism.__name__}: perturb"] = lambda user=user: user.perturb(values)
    hybrid = local.Hybrid(1.0, -1.0, 1.0)
    sent = hybrid.perturb(values)
    collector = local.HistogramCollector(client(1.0))
    square = client(1.0).perturb(values * 50.0)
    tasks["Hybrid: estimate"] = lambda: hybrid.estimate(sent)
    tasks["SquareWave: count reports"] = lambda: collector.add(square)
    tasks["careful NumPy hybrid, float noise (unsafe)"] = lambda: numpy_peers.hybrid(values, 1.0, generator)
    tasks["AES-256 key stream alone (words)"] = lambda: WordStream(key, StreamId(Purpose.LOCAL)).fill(words)
    tasks["np.copyto of the values"] = lambda: np.copyto(copied, values)
    return Group("reports", tasks, items=dict.fromkeys(tasks, REPORTS), limit="np.copyto of the values")


def one_report() -> Group:
    """A device's work: one value, one message, words from the operating system."""
    announced = local.Announcement(local.Hybrid(1.0, 0.0, THETA))
    tasks = {"Client(1.0).answer(announcement, 20.0)": lambda: local.Client(1.0).answer(announced, 20.0)}
    return Group("one report", tasks, times=40)


def server() -> Group:
    """Messages of several sizes, one a call of receive and all in one call, at both stages; items are reports."""
    tasks: dict[str, Task] = {}
    items: dict[str, int] = {}
    for batch in BATCHES:
        count = max(batch, 2_000)
        values = np.random.default_rng(3).uniform(0.0, THETA, count)
        for stage, at in (
            ("square waves, threshold sought", fastdp.ToPLServer(1.0, float(shared.BOUND), holdout=2**50)),
            ("hybrid, estimates published", fastdp.ToPLServer(1.0, float(shared.BOUND), threshold=Fixed(THETA))),
        ):
            asked = at.announcement.mechanism
            sent = asked.perturb(values)
            parts = [local.encode(asked, sent[i : i + batch]) for i in range(0, count, batch)]
            name = f"{stage}, messages of {batch:,}"
            tasks[name] = lambda at=at, parts=parts: [at.receive(part) for part in parts]
            tasks[f"{name}, in one call"] = partial(at.receive, b"".join(parts))
            items[name] = items[f"{name}, in one call"] = count
    return Group("server", tasks, items=items)


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield from (partial(square_wave, epsilon) for epsilon in EPSILONS)
    yield from (plain_steps, reports, one_report, server)
