"""Every online object with inputs for it: the table that the tests of state files run over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fastdp
from fastdp.counters import BinaryTree, Block, RunningCounts, SelectiveCounting, Simple, event_guarantee
from fastdp.local import (
    Announcement,
    Client,
    HistogramCollector,
    Hybrid,
    LogSquareWave,
    Piecewise,
    SquareWave,
    SumCollector,
    encode,
)
from fastdp.noise.key import Key
from fastdp.perturbers import Hierarchy
from fastdp.points import Box
from fastdp.smoothers import Median, MovingAverage
from fastdp.streams import METHODS
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds import SquareWave as SquareWaveThreshold
from fastdp.thresholds.renewals import RenewFromHoldout
from tests.shared import usual_arguments

KEY = bytes(range(32))
SQUARE = Box([0.0, 0.0], [1.0, 1.0])


class Alternating:
    """A selector for tests: public, and the same for the same input."""

    # Joins the noise key, so it stays as it is if this file moves.
    __module__ = "tests.systems.saved_objects"
    guarantee = event_guarantee(0.0, "does not look at an event")

    def select(self, values, step, last) -> int:
        return step % 3 if last is None else (last.counter + 1) % 3


@dataclass(frozen=True)
class Case:
    """An online object.

    Attributes
    ----------
    make : callable
        A new one.
    calls : sequence
        What it consumes, call by call.
    run : callable
        Object, input -> what it publishes, as an array.
    alter : callable
        Another input instead of one.
    options : dict
        What ``load`` needs besides.
    copies : bool
        Whether it can be copied.
    plain : bool
        Whether it draws no noise, so that copies and pickles give the same.
    portable : bool
        Whether outputs are the same with other versions of the libraries below.
    """

    make: Callable[[], Any]
    calls: Sequence[Any]
    run: Callable[[Any, Any], np.ndarray] = lambda publisher, chunk: publisher.publish(chunk)
    alter: Callable[[Any], Any] = lambda chunk: np.concatenate([chunk[:-1], chunk[-1:] + 20.0])
    options: dict[str, Any] = field(default_factory=dict)
    copies: bool = True
    plain: bool = False
    portable: bool = True


#: A scale-free threshold warns of so short a hold-out.
ADAPTIVE: dict[str, Any] = {
    "epsilon": 1.0, "bound": 64, "holdout": 64, "max_range": 4096, "seed": 1, "threshold": NoisyMax(),
}  # fmt: skip


def stream(n: int) -> np.ndarray:
    """Values without a generator, so that they are the same for ever."""
    return (np.arange(n) * 7919 % 41 + np.arange(n) * 104729 % 7 / 8.0).astype(float)


def _chunks(*sizes: int) -> list[np.ndarray]:
    ends = np.cumsum(sizes)
    return [stream(int(ends[-1]))[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _batches() -> list[tuple[np.ndarray, np.ndarray]]:
    points = np.stack([np.arange(300) * 61 % 127 / 254.0, np.arange(300) * 89 % 113 / 170.0], axis=1)
    ends = [(0, 120), (120, 150), (150, 150), (150, 230), (230, 260)]
    return [(points[a:b], points[a // 4 : a // 4 + t]) for t, (a, b) in enumerate(ends)]


def _spatial(make: Callable[..., Any], *arguments: Any, domain: Callable[[], Any] | None = None, **options) -> Case:
    return Case(
        lambda: make(
            SQUARE if domain is None else domain(), 4.0, *arguments, max_depth=6, seed=3, outside="clip", **options
        ),
        _batches(),
        _synthesize,
        lambda batch: (np.concatenate([batch[0], [[0.9, 0.9]]]), batch[1]),
        portable=domain is None,
    )


def _synthesize(publisher: Any, batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    points = publisher.step(*batch)
    return np.concatenate([points.sum(axis=0), publisher.tree.lower[:, 0], publisher.tree.counts])


def _polygons() -> Any:
    from shapely.geometry import Point

    from fastdp.points import Polygons

    return Polygons([Point(0.3, 0.3).buffer(0.3, quad_segs=100), Point(0.7, 0.7).buffer(0.25)], geographic=True)


def _network() -> Any:
    from shapely.geometry import LineString

    from fastdp.points import Network

    lines = [LineString([(0, 0), (0.4, 0.7), (1, 1)]), LineString([(0, 1), (1, 0.1)]), LineString([(0, 0), (1, 0)])]
    return Network(lines, tolerance=2.0)


def _adaptive(**options: Any) -> Case:
    # The hold-out's first part, 56 values, the warm-up in the middle of a block, then blocks of changing lengths.
    return Case(lambda: Adaptive(**{**ADAPTIVE, **options}), _chunks(30, 29, 150, 900, 0, 3000, 1))


def _counts(counter: Any) -> Case:
    return Case(
        lambda: RunningCounts(counter, 1.0, 3, seed=4),
        [np.array([t, 2 * t, -t]) for t in range(6)],
        lambda counts, values: counts.step(values),
        lambda values: values + 1,
    )


def _windows(*sizes: int) -> list[tuple[np.ndarray, ...]]:
    """Rows of some minutes each, out of order by up to an hour: times, values, keys, persons."""
    numbers = np.arange(sum(sizes))
    minutes = (numbers * 7 + numbers * 7919 % 60).astype("timedelta64[m]")
    rows = np.datetime64("2024-03-30T22:00") + minutes, stream(numbers.size), numbers * 31 % 4, numbers * 17 % 5
    ends = np.cumsum(sizes)
    return [tuple(column[end - size : end] for column in rows) for end, size in zip(ends, sizes, strict=True)]


def _add_rows(windows: fastdp.Windows, rows: tuple[np.ndarray, ...]) -> np.ndarray:
    return windows.add(*rows).released.measured[0].steps.ravel()


def _report(mechanism: Any, values: np.ndarray) -> Any:
    # Reports are the input of servers and collectors.
    return mechanism.perturb(values, key=Key.from_seed(2), start=0)


def _receive(server: fastdp.ToPLServer, values: np.ndarray) -> np.ndarray:
    mechanism = server.announcement.mechanism
    return server.receive(encode(mechanism, _report(mechanism, values)))


def _add(collector: Any, values: np.ndarray) -> np.ndarray:
    collector.add(_report(collector.mechanism, values))
    return collector.totals.copy()


def _collected(make: Callable[[], Any]) -> Case:
    return Case(make, _chunks(40, 50, 20), _add, lambda values: values[::-1], plain=True)


def _answer(client: Client, value: float) -> np.ndarray:
    return np.frombuffer(client.answer(Announcement(Hybrid(1.0, 0.0, 40.0)), value, seed=6), np.uint8)


CASES: dict[str, Case] = {
    "tops": Case(
        lambda: fastdp.ToPS(epsilon=1.0, bound=64, holdout=50, max_range=64, seed=1), _chunks(20, 29, 1, 0, 83, 117)
    ),
    "stream_publisher": Case(
        lambda: fastdp.StreamPublisher(
            threshold=SmoothQuantile(),
            perturber=Hierarchy(fan_out=4, prune=1),
            smoother=MovingAverage(3),
            epsilon=1.0,
            bound=64,
            holdout=60,
            max_range=16,
            renewal=RenewFromHoldout(trees=2, holdout=10),
            seed=1,
        ),
        _chunks(30, 30, 11, 100, 7, 60),
    ),
    "median": Case(
        lambda: fastdp.StreamPublisher(
            threshold=NoisyMax(),
            perturber=Hierarchy(prune=1),
            smoother=Median(),
            epsilon=1.0,
            bound=64,
            holdout=40,
            seed=1,
        ),
        _chunks(50, 50, 50),
    ),
    "one_of_many": Case(
        lambda: fastdp.ToPS(epsilon=1.0, bound=64, holdout=50, max_range=64, key=Key.from_seed(1).of_stream(7)),
        _chunks(60, 70, 80),
    ),
    "scale_free": Case(
        lambda: fastdp.StreamPublisher(
            threshold=ScaleFree(),
            perturber=Hierarchy(prune=0),
            epsilon=4.0,
            bound=64,
            holdout=50,
            max_range=64,
            seed=1,
        ),
        _chunks(30, 10, 80),
    ),
    "adaptive": _adaptive(),
    "adaptive_fixed": _adaptive(threshold=Fixed(20.0), holdout=0),
    "adaptive_events": Case(
        lambda: Adaptive(1.0, sensitivity=1.0, max_range=4096, seed=1), _chunks(1, 29, 150, 0, 800, 3)
    ),
    "windows": _adaptive(contributions=3),
    "pak": Case(
        lambda: fastdp.PAK(1.0, 1e-6, 64, 400, holdout=80, threshold=NoisyMax(), seed=1),
        _chunks(30, 49, 1, 150, 0, 170),
    ),
    "pak_averages": Case(
        lambda: fastdp.PAK(
            *(1.0, 1e-6, 64, 400), holdout=80, threshold=PAKQuantile(delta=1e-6), lag_sums=True, average=9, seed=1
        ),
        _chunks(30, 60, 210, 100),
    ),
    "topl": Case(
        lambda: fastdp.ToPL(epsilon=1.0, bound=64, holdout=100, max_range=256, threshold="linear", seed=1),
        _chunks(40, 59, 2, 0, 30, 50),
    ),
    "topl_server": Case(
        lambda: fastdp.ToPLServer(1.0, 64, 100, 256, threshold="linear", publish_epsilon=2.0),
        _chunks(40, 50, 20, 30, 50),
        _receive,
        lambda values: values[::-1],
        plain=True,
    ),
    "topl_logarithmic": Case(
        lambda: fastdp.ToPL(1.0, 64, 60, 256, threshold=SquareWaveThreshold(scale="logarithmic"), seed=1),
        _chunks(40, 30, 2, 0, 30),
    ),
    "log_histogram": _collected(lambda: HistogramCollector(LogSquareWave(1.0, 1.0, 64.0), 64)),
    "histogram": _collected(lambda: HistogramCollector(SquareWave(1.0, 0.0, 64.0), 64)),
    "sums": _collected(lambda: SumCollector(Piecewise(1.0, 0.0, 64.0), 3)),
    "client": Case(lambda: Client(1.0), [12.5], _answer, lambda value: value + 1.0, copies=False),
    "simple_counts": _counts(Simple()),
    "block_counts": _counts(Block(4)),
    "tree_counts": _counts(BinaryTree(4)),
    "selective_counting": Case(
        lambda: SelectiveCounting([Simple(), Block(2), BinaryTree(8)], Alternating(), 1.0, dimension=2, seed=5),
        [np.array([t, -t]) for t in range(6)],
        lambda counting, values: np.concatenate([[(out := counting.step(values)).counter], out.counts]),
        lambda values: values + 1,
        {"selector": Alternating()},
        copies=False,
    ),
    "table_windows": Case(
        lambda: fastdp.Windows(
            {"kwh": ["mean", "var"], "*": "count"},
            fastdp.Time("at", "1h", start="2024-03-30", zone="Europe/Paris"),
            epsilon=1.0,
            bounds=40.0,
            by="key",
            keys=[0, 1, 2],
            lateness="20min",
            unit=fastdp.Person("person", rows=50, per="1d", per_window=2),
            seed=8,
        ),
        _windows(20, 1, 60, 5, 90),
        _add_rows,
        lambda rows: (rows[0], rows[1] + 1.0, *rows[2:]),
    ),
    "phdstream": _spatial(fastdp.PHDStream, retention=2),
    "phdstream_tree": _spatial(fastdp.PHDStream, "binary", fan_out=3),
    "phdstream_polygons": _spatial(fastdp.PHDStream, domain=_polygons),
    "phdstream_network": _spatial(fastdp.PHDStream, "block", domain=_network),
    # Counts at steps 1 and 4, and at steps 1, 3 and 5: between two of them when a fixture is cut, and at one.
    "adaptive_phdstream": _spatial(fastdp.AdaptivePHDStream, max_period=3),
    "adaptive_phdstream_paced": _spatial(fastdp.AdaptivePHDStream, max_period=2, shrink=False),
    "adaptive_phdstream_polygons": _spatial(fastdp.AdaptivePHDStream, domain=_polygons, period=2, sensitivity=2),
}


def _method(name: str) -> Case:
    make = getattr(fastdp, METHODS[name])
    return Case(
        lambda: make(epsilon=1.0, bound=64, holdout=50, seed=1, **usual_arguments(name)),
        _chunks(20, 29, 1, 0, 83, 117),
    )


CASES |= {name: _method(name) for name in METHODS if name not in CASES}


def is_empty(chunk: Any) -> bool:
    """True if a call with this input consumes nothing."""
    return isinstance(chunk, np.ndarray) and chunk.size == 0


def golden_cut(case: Case) -> int:
    """How many calls an object has seen when it is saved."""
    return (len(case.calls) + 1) // 2
