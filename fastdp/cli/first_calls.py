"""Calls of each system that need all of its kernels, for ``fastdp compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fastdp
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.smoothers import Recent
from fastdp.spatial import Box
from fastdp.thresholds import NoisyMax

LENGTH = 2_000
BOUND = 50.0
SECRET = bytes(32)


def _answer(release: fastdp.Release) -> None:
    release.interval(0, 5)
    release.sum(0, 5, revised=True)


def _adaptive() -> None:
    _answer(fastdp.release(np.arange(LENGTH) % BOUND, 1.0, BOUND, seed=1))
    seasonal = fastdp.Adaptive(1.0, BOUND, perturber=Blocks(season=16), threshold=20.0, seed=1)
    seasonal.publish(np.arange(LENGTH) % BOUND)
    # Counts of events, which nothing bounds, have a pass of their own.
    _answer(fastdp.release(np.arange(LENGTH) % 5, 1.0, sensitivity=1.0, seed=1))


def _tops() -> None:
    tops = fastdp.ToPS(1.0, BOUND, holdout=LENGTH // 4, max_range=3 * LENGTH // 4, seed=1)
    _answer(tops.release(np.arange(LENGTH) % BOUND))
    # Into the caller's memory it writes by other kernels.
    parts: dict[str, Any] = {"threshold": 20.0, "perturber": Hierarchy(prune=1), "smoother": Recent()}
    publisher = fastdp.StreamPublisher(**parts, epsilon=1.0, bound=BOUND, max_range=256, seed=1)
    publisher.publish(np.arange(LENGTH) % BOUND, out=np.empty(LENGTH))
    # Whole numbers are read as they are.
    fastdp.StreamPublisher(**parts, epsilon=1.0, bound=BOUND, max_range=256, seed=1).release(np.arange(LENGTH))
    # A hold-out of many values a candidate has histograms of its own.
    parts["threshold"] = NoisyMax(step=BOUND / 8)
    coarse = fastdp.StreamPublisher(**parts, epsilon=1.0, bound=BOUND, max_range=256, holdout=LENGTH, seed=1)
    coarse.publish(np.arange(LENGTH) % BOUND)


def _pak() -> None:
    pak = fastdp.PAK(1.0, 1.0 / LENGTH**2, BOUND, LENGTH, holdout=LENGTH // 4, seed=1)
    _answer(pak.release(np.arange(LENGTH) % BOUND))


def _topl() -> None:
    topl = fastdp.ToPL(1.0, BOUND, LENGTH // 4, 3 * LENGTH // 4, seed=1)
    _answer(topl.release(np.arange(LENGTH) % BOUND))


def _phdstream() -> None:
    points = [[0.1 * i, 0.1 * i] for i in range(10)] * 20
    for system in (fastdp.PHDStream, fastdp.AdaptivePHDStream):
        publisher = system(Box([0.0, 0.0], [1.0, 1.0]), epsilon=1.0, seed=1)
        publisher.step(points, points[:5])
        publisher.sample()
        publisher.count([[0.1, 0.1]], [[0.5, 0.5]])


def _totals() -> None:
    import narwhals  # noqa: F401 - the command leaves tables out where one of the two is missing
    import pyarrow

    hours = np.arange("2026-01-01", "2026-01-03", dtype="datetime64[h]").astype("datetime64[us]")
    table = pyarrow.table({"at": hours, "value": np.ones(hours.size)})
    private = fastdp.totals(table, "value", "at", "1h", epsilon=1.0, bound=BOUND, clip=5.0, seed=1)
    private.frame.validate()


def _fleet() -> None:
    fleet = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=BOUND, threshold=20.0), key=SECRET)
    fleet.publish(np.arange(100), np.ones(100))
    counted = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, sensitivity=1.0), key=SECRET)
    counted.publish(np.arange(100), np.ones(100))


CALLS: dict[str, Callable[[], object]] = {
    "adaptive": _adaptive,
    "tops": _tops,
    "pak": _pak,
    "topl": _topl,
    "phdstream": _phdstream,
    "totals": _totals,
    "fleet": _fleet,
}
