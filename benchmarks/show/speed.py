"""Every speed that the project promises, in one process on one core, side by side with peers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.pak_holdouts import HOLDOUTS
from benchmarks.peers import numpy_tops, open_dp
from benchmarks.show.report import table
from benchmarks.streams import item_counts
from benchmarks.timing import BURST, Timing, side_by_side, stay_on_one_core
from benchmarks.tree import make_tree
from fastdp.perturbers import Hierarchy
from fastdp.randomness import Key, discrete_laplace
from fastdp.randomness.words import Purpose, StreamId, WordStream
from fastdp.thresholds import Fixed, NoisyMax, ThresholdTask
from fastdp.workloads import random_ranges
from fastdp_kernels.smooth_sensitivity import divide_pairs, scan_pairs

SCALES = {
    "1": 1.0,
    "10": 10.0,
    "10^3": 1e3,
    "2^22": 2.0**22,
    "2^34": 2.0**34,
    "2^36": 2.0**36,
    "2^40": 2.0**40,
    "2^44": 2.0**44,
}
DRAWS = 2**20
OPENDP_DRAWS = 10_000
CHUNK = 4096


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=50, help="warm runs of each task (default 50)")


def run(options: argparse.Namespace) -> None:
    print(f"Process {stay_on_one_core()}; {options.runs} warm runs, bursts of {BURST} in turn.")
    sampler(options.runs)
    consistency(options.runs)
    noisy_max(options.runs)
    smooth_sensitivity(options.runs)
    online_pass(options.runs)
    whole_release(options.runs)
    other_releases(options.runs)
    latency(options.runs)


def milliseconds(timing: Timing) -> list[str]:
    return [f"{timing.median * 1e3:.3f}", f"{timing.least * 1e3:.3f}"]


def sampler(runs: int) -> None:
    words, key, generator = np.empty(DRAWS, np.uint64), Key.random(), np.random.default_rng(1)
    tasks: dict[str, Callable[[], Any]] = {
        f"fastdp exact, scale {label}": lambda scale=scale: discrete_laplace(scale, DRAWS)
        for label, scale in SCALES.items()
    }
    tasks["NumPy Generator.laplace, float (unsafe)"] = lambda: generator.laplace(0.0, 2.0**22, DRAWS)
    tasks["AES-256 key stream alone (words)"] = lambda: WordStream(key, StreamId(Purpose.DRAWS)).fill(words)
    timings = side_by_side(tasks, runs)
    draws = dict.fromkeys(tasks, DRAWS)
    if open_dp.INSTALLED:
        zeros = np.zeros(OPENDP_DRAWS, np.int64)
        for label in ("2^22", "2^34"):
            name = f"OpenDP exact, scale {label}"
            measurement = open_dp.discrete_laplace(SCALES[label])
            timings |= side_by_side({name: lambda measurement=measurement: measurement(zeros)}, 5)
            draws[name] = OPENDP_DRAWS
    table(
        "Discrete Laplace noise, key stream included",
        ["task", "draws a call", "M draws/s (median)", "M draws/s (best)"],
        (
            [name, f"{draws[name]:,}", *(f"{draws[name] / s / 1e6:.4g}" for s in (timing.median, timing.least))]
            for name, timing in timings.items()
        ),
    )


def consistency(runs: int) -> None:
    tree = make_tree(16, 2**20)
    own, levels, out = tree.copy(), tree.float_levels(), np.empty_like(tree.nodes)
    tasks = {
        "fastdp, integers": own.make_consistent,
        "careful NumPy, floats": lambda: numpy_tops.make_consistent(levels, 16),
        "np.copyto of the nodes": lambda: np.copyto(out, tree.nodes),
    }
    # Both work in place; start each run from fresh noise.
    prepare = {"fastdp, integers": lambda: np.copyto(own.nodes, tree.nodes)}
    timings = side_by_side(tasks, runs, prepare)
    if open_dp.INSTALLED:
        postprocessor, nodes = open_dp.consistent_leaves(16), tree.breadth_first()
        timings |= side_by_side({"OpenDP b-ary tree, floats": lambda: postprocessor(nodes)}, 5)
    rows = ([name, *milliseconds(timing)] for name, timing in timings.items())
    table("Consistency, 2^20 leaves, fan-out 16", ["task", "ms (median)", "ms (min)"], rows)


def noisy_max(runs: int) -> None:
    values, key, generator = item_counts(sizes.HOLDOUT), Key.random(), np.random.default_rng(1)
    bound = sizes.WIDE_BOUND
    task = ThresholdTask(sizes.EPSILON, float(bound), sizes.HOLDOUT, sizes.MAX_RANGE, 2.0**-20)
    ready = NoisyMax().start(task)
    ready.observe(values)

    def whole() -> None:
        chooser = NoisyMax().start(task)
        chooser.observe(values)
        chooser.choose(key)

    tasks: dict[str, Callable[[], Any]] = {
        "fastdp exact, histogram of 65,536 values included": whole,
        "fastdp exact, histogram ready": lambda: ready.choose(key),
        "careful NumPy, float noise (unsafe), histogram included": lambda: numpy_tops.choose_threshold(
            values, bound, sizes.EPSILON, sizes.MAX_RANGE, generator
        ),
    }
    rows = ([name, *milliseconds(timing)] for name, timing in side_by_side(tasks, runs).items())
    table(f"Noisy max, B = {bound:,}", ["task", "ms (median)", "ms (min)"], rows)


def smooth_sensitivity(runs: int) -> None:
    """The scan is timed once: its worst case takes seconds."""
    rows = []
    for name, make in HOLDOUTS.items():
        task = make()
        timing = side_by_side({"divide": lambda task=task: divide_pairs(*task)}, runs)["divide"]
        values, bound, rank, decay = task
        scan_pairs(values[:64], bound, min(rank, 64), decay[:66])
        start = perf_counter()
        scan_pairs(*task)
        rows.append([name, *milliseconds(timing), f"{(perf_counter() - start) * 1e3:.1f}"])
    columns = ["hold-out", "divide and conquer, ms (median)", "ms (min)", "the papers' scan, ms (one run)"]
    table("Smooth sensitivity of a quantile of 65,536 values, to the last bit", columns, rows)


def online_pass(runs: int) -> None:
    """2^20 values into memory at hand; one whole noise tree falls into each run that includes it."""
    n = sizes.PUBLISHED
    values, out, scratch = item_counts(n), np.empty(n), np.empty(n)
    tasks: dict[str, Callable[[], Any]] = {"np.copyto": lambda: np.copyto(out, values)}
    prepare: dict[str, Callable[[], Any]] = {}
    counts = {"np.copyto": n}
    for prune in range(4):
        block = sizes.FAN_OUT**prune
        rest, rest_out = values[block:], out[block:]
        publishers = [fastdp.ToPS(epsilon=sizes.EPSILON, bound=sizes.BOUND, prune=prune, seed=1) for _ in range(2)]
        for publisher in publishers:
            publisher.publish(item_counts(sizes.HOLDOUT))
        ready, endless = publishers
        name = f"prune = {prune}, noise ready"
        # The block before is the first of a new tree: it makes the tree's noise.
        prepare[name] = lambda publisher=ready, first=values[:block]: publisher.publish(first)
        tasks[name] = lambda publisher=ready, rest=rest, to=rest_out: publisher.publish(rest, out=to)
        counts[name] = rest.size
        name = f"prune = {prune}, with a new tree of noise every 2^20 values"
        tasks[name] = lambda publisher=endless: publisher.publish(values, out=out)
        counts[name] = n
    noise = np.random.default_rng(1).normal(0.0, 1000.0, n // 256)
    name = "careful NumPy, prune = 2, noise ready"
    tasks[name] = lambda: numpy_tops.publish(values, sizes.THETA, noise, 256, scratch, out)
    counts[name] = n
    timings = side_by_side(tasks, runs, prepare)

    def share(name: str, pick: Callable[[Timing], float]) -> str:
        return f"{pick(timings['np.copyto']) / n / (pick(timings[name]) / counts[name]):.0%}"

    table(
        "Online pass, 2^20 values",
        ["task", "ns/value (median)", "of copyto (medians)", "of copyto (mins)"],
        (
            [
                name,
                f"{timing.median / counts[name] * 1e9:.3f}",
                share(name, lambda t: t.median),
                share(name, lambda t: t.least),
            ]
            for name, timing in timings.items()
        ),
    )


def whole_release(runs: int) -> None:
    values = item_counts(sizes.HOLDOUT + sizes.PUBLISHED)
    body, out, integers = values[sizes.HOLDOUT :], np.empty(sizes.PUBLISHED), values.astype(np.int32)
    generator = np.random.default_rng(1)
    queries = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=1)

    def release(data: np.ndarray, prune: Any = "optimal") -> fastdp.Release:
        return fastdp.ToPS(sizes.EPSILON, sizes.BOUND, prune=prune).release(data)

    def release_into(prune: Any = "optimal") -> None:
        fastdp.ToPS(sizes.EPSILON, sizes.BOUND, prune=prune).publish(values, out=out)

    def careful(prune: int) -> np.ndarray:
        shape = numpy_tops.Shape(sizes.FAN_OUT, 5 - prune, prune)
        return numpy_tops.release(
            values, sizes.HOLDOUT, sizes.BOUND, sizes.EPSILON, shape, sizes.MAX_RANGE, generator
        )

    ready = release(values)

    def ask() -> None:
        # A fresh object, so that prefix sums are not remembered.
        fresh = fastdp.Release(ready.values, ready.offset, ready.threshold, ready.guarantee, ready.block)
        fresh.range_sum(*queries)

    tasks: dict[str, Callable[[], Any]] = {
        "np.copyto of the published part": lambda: np.copyto(out, body),
        "copy of the published part into new memory": body.copy,
        "fastdp ToPS (prune optimal: 2)": lambda: release(values),
        "fastdp ToPS (prune optimal: 2), into memory at hand": release_into,
        "fastdp ToPS, int32 input": lambda: release(integers),
        "fastdp ToPS, prune = 3": lambda: release(values, 3),
        "careful NumPy ToPS, prune = 2, float noise (unsafe)": lambda: careful(2),
        "fastdp H_16^c (s = 0)": lambda: release(values, 0),
        "careful NumPy H_16^c (s = 0), float noise (unsafe)": lambda: careful(0),
        "fastdp 200 range queries, prefix sums included": ask,
        "careful NumPy 200 range queries, prefix sums included": lambda: numpy_tops.range_sums(
            ready.values, *queries
        ),
    }
    timings = side_by_side(tasks, max(runs, 50))
    copy = timings["np.copyto of the published part"]
    table(
        f"Whole release, n = 2^20 + 65,536, eps = {sizes.EPSILON}, B = {sizes.BOUND:,}; {max(runs, 50)} warm runs",
        ["task", "ms (median)", "ms (min)", "np.copyto times (medians)"],
        ([name, *milliseconds(timing), f"{timing.median / copy.median:.2f}"] for name, timing in timings.items()),
    )


def other_releases(runs: int) -> None:
    """The papers' other methods, whole; a fresh key and all noise in each run."""
    n = sizes.HOLDOUT + sizes.PUBLISHED
    values, delta = item_counts(n), 1.0 / n**2
    parts = {"threshold": NoisyMax(), "epsilon": sizes.EPSILON, "bound": sizes.BOUND, "holdout": sizes.HOLDOUT}
    h_2, h_16 = Hierarchy(2, consistent=False, prune=0), Hierarchy(sizes.FAN_OUT, prune=0)

    def pak(**options: Any) -> np.ndarray:
        return fastdp.PAK(sizes.EPSILON, delta, sizes.BOUND, n, **options).publish(values)

    tasks: dict[str, Callable[[], Any]] = {
        "PAK: S-PAK, running sums": pak,
        "PAK: S-PAK, moving averages of 1,000": lambda: pak(average=1000),
        "plain binary tree over all values": lambda: pak(threshold=Fixed(float(sizes.BOUND))),
        "NM-E + H_2": lambda: fastdp.StreamPublisher(perturber=h_2, **parts).release(values),
        "NM-E + H_16^c": lambda: fastdp.StreamPublisher(perturber=h_16, **parts).release(values),
    }
    rows = ([name, *milliseconds(timing)] for name, timing in side_by_side(tasks, runs).items())
    table(
        f"Other whole releases, n = 2^20 + 65,536, eps = {sizes.EPSILON}, B = {sizes.BOUND:,}",
        ["task", "ms (median)", "ms (min)"],
        rows,
    )


def latency(runs: int) -> None:
    """One call of publish in a running stream, the tree's noise ready."""
    rows = []
    for prune in (0, 2):
        publisher = fastdp.ToPS(epsilon=sizes.EPSILON, bound=sizes.BOUND, prune=prune, seed=1)
        publisher.publish(item_counts(sizes.HOLDOUT + CHUNK))
        for size, calls in ((1, 200 * runs), (CHUNK, 4 * runs)):
            chunk, out, copy = item_counts(size), np.empty(size), np.empty(size)
            seconds, copies = np.empty(calls), np.empty(calls)
            for k in range(calls):
                start = perf_counter()
                publisher.publish(chunk, out=out)
                middle = perf_counter()
                np.copyto(copy, chunk)
                copies[k] = perf_counter() - middle
                seconds[k] = middle - start
            microseconds = [float(q) * 1e6 for q in np.quantile(seconds, [0.5, 0.99])]
            rows.append(
                [
                    f"publish {size:,} value{'s' if size > 1 else ''}, prune = {prune}",
                    f"{calls:,}",
                    *(f"{q:.2f}" for q in microseconds),
                    f"{microseconds[0] * 1e3 / size:.2f}",
                    f"{float(np.median(copies)) * 1e6:.2f}",
                ]
            )
    columns = ["task", "calls", "us (median)", "us (99 %)", "ns/value", "np.copyto us (median)"]
    table("Latency of one call", columns, rows)
