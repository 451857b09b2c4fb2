"""Every kernel by itself, on the arguments of the largest call that the packages' work makes: throughput.

asv reads a larger number as worse: here it is better.  The quick set is ``bench_quick.Quick``.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
from numba.core.caching import FunctionCache

import fastdp
import fastdp_kernels
from benchmarks import shared
from benchmarks.asv.bench_streams import LENGTH, RELEASES, composed
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import circles, client, output_counts, started
from fastdp import local
from fastdp.local import distribution
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.smoothers import Mean, Median, MovingAverage, Recent
from fastdp.spatial.released_tree import CellIndex
from fastdp.thresholds import NoisyMax, SmoothQuantile
from fastdp_lab.queries.boxes import PointIndex
from fastdp_lab.queries.workloads import random_ranges

#: A kernel is called for so many seconds, at least so many times.
SECONDS, CALLS = 0.2, 5


def _dispatchers() -> dict[str, Any]:
    """Entry points of the core by "module.function"."""
    found = {}
    for module in pkgutil.walk_packages(fastdp_kernels.__path__, "fastdp_kernels."):
        home = importlib.import_module(module.name)
        for name, member in vars(home).items():
            entry = isinstance(getattr(member, "_cache", None), FunctionCache)
            if entry and member.py_func.__module__ == home.__name__:
                found[f"{module.name.rpartition('.')[2]}.{name}"] = member
    return found


KERNELS = _dispatchers()


def _streams() -> None:
    values = item_counts(LENGTH)
    for name in ("Adaptive", "ToPS", "NM-E + H_16^c", "NM-E + H_2", "PAK, running sums", "S-PAK + H_2"):
        release = RELEASES[name](values)
        if isinstance(release, fastdp.Release):
            starts, stops = random_ranges(len(release), shared.QUERIES, 2**16, seed=1)
            release.sum(starts, stops, revised=True)
            release.interval(starts, stops)
    fastdp.release(values, 1.0, shared.BOUND, "topl", seed=1)
    events = fastdp.release(values[:100_000] % 5, 0.5, sensitivity=1.0, seed=1)
    events.sum(0, 50, revised=True)
    for smoother in (Mean(), Median(), MovingAverage()):
        composed(NoisyMax(), Hierarchy(16, prune=1), smoother)(values)
    composed(SmoothQuantile(), Flat())(values)
    fastdp.add_noise(values, 1.0, 1.0)
    local.StochasticRounding(1.0).perturb(values / shared.BOUND)
    distribution.estimate(client(1.0).distribution, 1.0, output_counts(1.0), accelerate=True)
    for scale in (1e3, 2.0**45):
        fastdp.discrete_laplace(scale, 2**20)
    fastdp.discrete_gaussian(1e3, 2**20)


def _many() -> None:
    rows = item_counts(2**20).reshape(-1, 1024)
    binary = Hierarchy(2, consistent=False, prune=0)
    composed_of = (
        (binary, None),
        (Hierarchy(16, prune=0), None),
        (Hierarchy(16, prune=1), Recent()),
        (Blocks(), None),
    )
    for perturber, smoother in composed_of:
        parts: dict[str, Any] = {"perturber": perturber, "smoother": smoother, "threshold": 20.0, "max_range": 1024}
        many = fastdp.release_many(rows, 1.0, float(shared.BOUND), seed=1, **parts)
        many.sum(0, 0, 500)
    chosen: dict[str, Any] = {"threshold": NoisyMax(), "holdout": 500, "max_range": 256}
    fastdp.release_many(rows, 1.0, float(shared.BOUND), seed=1, perturber=Flat(), smoother=None, **chosen)
    fleet = fastdp.Fleet(fastdp.Adaptive(1.0, shared.BOUND, threshold=20.0), key=bytes(32))
    for _ in range(3):
        fleet.publish(np.arange(100_000), item_counts(100_000))


def _places() -> None:
    for system in (fastdp.PHDStream, fastdp.AdaptivePHDStream):
        stream: Any = started(100_000, 20, system)
        stream.advance(circles(5_000, 1), circles(5_000, 2))
        stream.advance(circles(5_000, 3), circles(5_000, 4))
        stream.sample()
        lower = np.random.default_rng(1).uniform(-1.0, 0.9, (2_000, 2))
        stream.count(lower, lower + 0.1)
    points = PointIndex(circles(100_000, 5))
    points.count(lower, lower + 0.1)
    cells = np.random.default_rng(2).uniform(-1.0, 0.9, (20_000, 2))
    CellIndex(cells, cells + 0.01, np.ones(len(cells))).count(lower, lower + 0.1)


def _tables() -> None:
    import pyarrow

    times = np.arange(2**18) * 60_000_000 + 1_700_000_000_000_000
    table = pyarrow.table({"at": times.view("datetime64[us]"), "value": item_counts(2**18)})
    windows: dict[str, Any] = {"time": "at", "every": "1h", "epsilon": 1.0, "seed": 1}
    fastdp.totals(table, "value", bound=shared.BOUND, **windows)
    fastdp.counts(table, **windows)


WORK: tuple[Callable[[], None], ...] = (_streams, _many, _places, _tables)


class Recorder:
    """Calls a kernel and keeps the arguments of its largest call, as they were before."""

    def __init__(self, kernel: Any, name: str, kept: dict[str, tuple[Any, ...]]) -> None:
        self.kernel, self.name, self.kept, self.largest = kernel, name, kept, -1

    def __call__(self, *arguments: Any) -> Any:
        size = sum(each.size for each in _arrays(arguments))
        if size > self.largest:
            self.largest, self.kept[self.name] = size, _copied(arguments)
        return self.kernel(*arguments)


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with copies of all arrays, in tuples too."""
    copies = ((_copied(each) if type(each) is tuple else each) for each in arguments)
    return tuple(each.copy() if isinstance(each, np.ndarray) else each for each in copies)


def _arrays(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """All arrays among the arguments."""
    for each in arguments:
        yield from _arrays(each) if type(each) is tuple else (each,) if isinstance(each, np.ndarray) else ()


def recorded() -> dict[str, tuple[Any, ...]]:
    """Arguments of every kernel that the work calls.

    The work runs twice: what one kernel calls in another must be compiled before recorders take their places.
    """
    for work in WORK:
        work()
    kept: dict[str, tuple[Any, ...]] = {}
    recorders = {id(kernel): Recorder(kernel, name, kept) for name, kernel in KERNELS.items()}
    places = [
        (module, name, member)
        for place, module in list(sys.modules.items())
        if place.partition(".")[0] in ("fastdp", "fastdp_kernels")
        for name, member in list(vars(module).items())
        if id(member) in recorders
    ]
    for module, name, member in places:
        setattr(module, name, recorders[id(member)])
    try:
        for work in WORK:
            work()
    finally:
        for module, name, member in places:
            setattr(module, name, member)
    return kept


class Kernels:
    """Entries of a kernel's largest array, a second: the median over calls."""

    params = (list(KERNELS),)
    param_names = ("kernel",)
    timeout = 300

    def setup_cache(self) -> dict[str, tuple[Any, ...]]:
        return recorded()

    setup_cache.timeout = 300  # type: ignore[attr-defined]

    def track_throughput(self, calls: dict[str, tuple[Any, ...]], kernel: str) -> float:
        if kernel not in calls:
            return np.nan
        arguments, function, times = calls[kernel], KERNELS[kernel], list[float]()
        function(*_copied(arguments))
        while sum(times) < SECONDS or len(times) < CALLS:
            fresh = _copied(arguments)
            begin = perf_counter()
            function(*fresh)
            times.append(perf_counter() - begin)
        entries = max((each.size for each in _arrays(arguments)), default=1)
        return float(entries / np.median(times) / 1e6)

    track_throughput.unit = "M entries/s"  # type: ignore[attr-defined]
