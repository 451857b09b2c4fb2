"""Every speed of streams that has a target, on one core, side by side with peers."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.peers import numpy_peers, open_dp
from benchmarks.peers.paper_scan import scan_pairs
from benchmarks.shared import item_counts
from benchmarks.speed.gaussian import gaussian_publishers, gaussian_sampler
from benchmarks.speed.inputs import HOLDOUTS, Tree
from benchmarks.speed.measure import Group
from fastdp.noise import Key, Laplace, discrete_laplace
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp.perturbers import Hierarchy
from fastdp.thresholds import NoisyMax, ThresholdTask
from fastdp_kernels.streams import threshold_choice
from fastdp_lab.queries import random_ranges

SCALES = {"1": 1.0, "10": 10.0, "10^3": 1e3, **{f"2^{k}": 2.0**k for k in (22, 34, 36, 44)}}
DRAWS = 2**20
OPENDP_DRAWS = 10_000
COPY = "np.copyto"
COPY_OF_RELEASE = "np.copyto of the published part"
KEY_STREAM = "AES-256 key stream alone (words)"


def sampler() -> Group:
    words, key, generator = np.empty(DRAWS, np.uint64), Key.random(), np.random.default_rng(1)
    tasks: dict[str, Callable[[], Any]] = {
        f"fastdp exact, scale {label}": lambda scale=scale: discrete_laplace(scale, DRAWS)
        for label, scale in SCALES.items()
    }
    tasks["NumPy Generator.laplace, float (unsafe)"] = lambda: generator.laplace(0.0, 2.0**22, DRAWS)
    tasks[KEY_STREAM] = lambda: WordStream(key, StreamId(Purpose.DRAWS)).fill(words)
    slow: dict[str, Callable[[], Any]] = {}
    if open_dp.INSTALLED:
        zeros = np.zeros(OPENDP_DRAWS, np.int64)
        for label in ("2^22", "2^34"):
            measurement = open_dp.discrete_laplace(SCALES[label])
            slow[f"OpenDP exact, scale {label}"] = lambda measurement=measurement: measurement(zeros)
    items = dict.fromkeys(tasks, DRAWS) | dict.fromkeys(slow, OPENDP_DRAWS)
    return Group("sampler", tasks, items=items, slow=slow, limit=KEY_STREAM)


def one_number() -> Group:
    """Noise on one integer, and a measurement of OpenDP called with one."""
    measurements = open_dp.one_number(SCALES["10"]) if open_dp.INSTALLED else {}
    tasks: dict[str, Callable[[], Any]] = {"fastdp.noise.Laplace": partial(Laplace(SCALES["10"]).add, 5)}
    tasks |= {name: lambda measurement=measurement: measurement(5) for name, measurement in measurements.items()}
    return Group("one number", tasks, times=20, limit="OpenDP" if measurements else "")


def consistency() -> Group:
    tree = Tree.make(shared.FAN_OUT, 2**20)
    own, levels, out = tree.copy(), tree.float_levels(), np.empty_like(tree.nodes)
    tasks = {
        "fastdp, integers": own.make_consistent,
        "careful NumPy, floats": lambda: numpy_peers.make_consistent(levels, shared.FAN_OUT),
        "np.copyto of the nodes": lambda: np.copyto(out, tree.nodes),
    }
    slow: dict[str, Callable[[], Any]] = {}
    if open_dp.INSTALLED:
        postprocessor, nodes = open_dp.consistent_leaves(shared.FAN_OUT), tree.breadth_first()
        slow["OpenDP b-ary tree, floats"] = lambda: postprocessor(nodes)
    # Both work in place; start each run from fresh noise.
    prepare = {"fastdp, integers": lambda: np.copyto(own.nodes, tree.nodes)}
    return Group("consistency", tasks, prepare, slow=slow, limit="np.copyto of the nodes")


def noisy_max() -> Group:
    values, key, generator = item_counts(shared.HOLDOUT), Key.random(), np.random.default_rng(1)
    bound = shared.WIDE_BOUND
    task = ThresholdTask(shared.EPSILON, float(bound), shared.HOLDOUT, shared.MAX_RANGE, 2.0**-20)

    def whole() -> None:
        chooser = NoisyMax().start(task)
        chooser.observe(values)
        chooser.choose(key)

    tasks: dict[str, Callable[[], Any]] = {
        "fastdp exact, histogram of 65,536 values included": whole,
        "careful NumPy, float noise (unsafe), histogram included": lambda: numpy_peers.choose_threshold(
            values, bound, shared.EPSILON, shared.MAX_RANGE, generator
        ),
    }
    return Group("noisy max", tasks)


def smooth_sensitivity() -> Group:
    inputs = {name: make() for name, make in HOLDOUTS.items()}
    return Group(
        "smooth sensitivity",
        {name: lambda task=task: threshold_choice.smooth_sensitivity(*task) for name, task in inputs.items()},
        slow={f"{name}, the papers' scan": lambda task=task: scan_pairs(*task) for name, task in inputs.items()},
    )


def online_pass() -> Group:
    """2^20 values; one whole noise tree falls into each run that includes it."""
    n = shared.PUBLISHED
    values, out, scratch = item_counts(n), np.empty(n), np.empty(n)
    tasks: dict[str, Callable[[], Any]] = {COPY: lambda: np.copyto(out, values)}
    prepare: dict[str, Callable[[], Any]] = {}
    items = {COPY: n}
    for prune in range(4):
        block = shared.FAN_OUT**prune
        rest = values[block:]
        publishers = [fastdp.ToPS(epsilon=shared.EPSILON, bound=shared.BOUND, prune=prune, seed=1) for _ in range(2)]
        for publisher in publishers:
            publisher.publish(item_counts(shared.HOLDOUT))
        ready, endless = publishers
        name = f"prune = {prune}, noise ready"
        # The block before is the first of a new tree: it makes the tree's noise.
        prepare[name] = lambda publisher=ready, first=values[:block]: publisher.publish(first)
        tasks[name] = lambda publisher=ready, rest=rest: publisher.publish(rest)
        items[name] = rest.size
        name = f"prune = {prune}, with a new tree of noise every 2^20 values"
        tasks[name] = lambda publisher=endless: publisher.publish(values)
        items[name] = n
    noise = np.random.default_rng(1).normal(0.0, 1000.0, n // 256)
    name = "careful NumPy, prune = 2, noise ready"
    tasks[name] = lambda: numpy_peers.publish(values, shared.THETA, noise, 256, scratch, out)
    items[name] = n
    return Group("online pass", tasks, prepare, items, limit=COPY)


def whole_release() -> Group:
    values = item_counts(shared.HOLDOUT + shared.PUBLISHED)
    body, out, integers = values[shared.HOLDOUT :], np.empty(shared.PUBLISHED), values.astype(np.int32)
    generator = np.random.default_rng(1)
    queries = random_ranges(shared.PUBLISHED, shared.QUERIES, shared.MAX_RANGE, seed=1)

    def release(data: np.ndarray, prune: int = 2) -> fastdp.Release:
        return fastdp.ToPS(shared.EPSILON, shared.BOUND, prune=prune).release(data)

    def careful(prune: int) -> np.ndarray:
        shape = numpy_peers.Shape(shared.FAN_OUT, 5 - prune, prune)
        return numpy_peers.release(
            values, shared.HOLDOUT, shared.BOUND, shared.EPSILON, shape, shared.MAX_RANGE, generator
        )

    ready = release(values)
    blocks = fastdp.Adaptive(shared.EPSILON, shared.BOUND).release(values)

    def ask() -> None:
        # A fresh object, so that prefix sums are not remembered.
        fresh = fastdp.Release(ready.values, ready.offset, ready.thresholds, ready.guarantee, ready.block)
        fresh.sum(*queries)

    tasks: dict[str, Callable[[], Any]] = {
        COPY_OF_RELEASE: lambda: np.copyto(out, body),
        "copy of the published part into new memory": body.copy,
        "fastdp ToPS (prune 2)": lambda: release(values),
        "fastdp ToPS, int32 input": lambda: release(integers),
        "careful NumPy ToPS, prune = 2, float noise (unsafe)": lambda: careful(2),
        "fastdp H_16^c (s = 0)": lambda: release(values, 0),
        "careful NumPy H_16^c (s = 0), float noise (unsafe)": lambda: careful(0),
        "fastdp 200 range queries, prefix sums included": ask,
        "fastdp ToPS, 200 intervals": lambda: ready.interval(*queries),
        "fastdp Adaptive, 200 intervals": lambda: blocks.revised.interval(*queries),
        "careful NumPy 200 range queries, prefix sums included": lambda: numpy_peers.range_sums(
            ready.values, *queries
        ),
    }
    return Group("whole release", tasks, limit=COPY_OF_RELEASE)


def other_releases() -> Group:
    """The papers' other methods and Adaptive, whole; a fresh key and all noise in each run."""
    n = shared.HOLDOUT + shared.PUBLISHED
    values, delta = item_counts(n), 1.0 / n**2
    body, out = values[shared.HOLDOUT :], np.empty(shared.PUBLISHED)
    parts = {"threshold": NoisyMax(), "epsilon": shared.EPSILON, "bound": shared.BOUND, "holdout": shared.HOLDOUT}
    h_2 = Hierarchy(2, consistent=False, prune=0)

    tasks: dict[str, Callable[[], Any]] = {
        COPY_OF_RELEASE: lambda: np.copyto(out, body),
        "Adaptive": lambda: fastdp.Adaptive(shared.EPSILON, shared.BOUND, shared.HOLDOUT).release(values),
        "PAK: S-PAK, running sums": lambda: fastdp.PAK(shared.EPSILON, delta, shared.BOUND, n).publish(values),
        "NM-E + H_2": lambda: fastdp.StreamPublisher(perturber=h_2, **parts).release(values),
    }
    return Group("other releases", tasks, limit=COPY_OF_RELEASE)


#: Warm runs by default.
RUNS = 50


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield from (
        sampler,
        one_number,
        consistency,
        noisy_max,
        smooth_sensitivity,
        online_pass,
        whole_release,
        other_releases,
        gaussian_sampler,
        gaussian_publishers,
    )
