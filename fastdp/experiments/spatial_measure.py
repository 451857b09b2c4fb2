"""From a spatial run to numbers: errors of the counts in boxes at several times.

Source: PHDStream section 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fastdp.experiments.boxes import BoxWorkload
from fastdp.experiments.spatial_mechanisms import SpatialPublisher, SpatialSystem
from fastdp.experiments.spatial_scene import Asked, Floats, SpatialScene
from fastdp.queries import metrics
from fastdp.spatial import PointIndex

METRICS = ("mse", "mae", "relative_error")
#: A workload's name, the group's label, how many boxes, and the numbers of :func:`columns`.
Row = tuple[str, str, int, list[float]]
Found = tuple[BoxWorkload, Asked]


def columns(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of numbers that a row has, for the metrics of a specification."""
    return ("time", "points", "total", "leaves", "truth", "answer", *(name for name in METRICS if name in chosen))


def follow(
    scene: SpatialScene,
    system: SpatialSystem,
    publisher: SpatialPublisher,
    asked: list[Found],
    chosen: tuple[str, ...],
    floor: float,
) -> Iterator[Row]:
    """Send a stream through a publisher and ask on the way.

    Parameters
    ----------
    scene : SpatialScene
        The stream.
    system : SpatialSystem
        What the publisher is of.
    publisher : SpatialPublisher
        At its beginning.
    asked : list of (BoxWorkload, Asked)
        What is asked, and when.
    chosen : tuple of str
        Among ``METRICS``.
    floor : float
        Relative errors divide by the true count, but not by less than this part of all points.

    Yields
    ------
    workload, group, queries, numbers
        Of a map each box is a group, with truth and answer alone.
        ``time`` is the number of batches since the stream's beginning, those before the first step included.
    """
    if not asked:
        # A sweep of maps alone has nothing to ask after the first repetition.
        return
    looks = sorted({t for _, each in asked for t in each.looks})
    waiting: list[tuple[Floats, Floats]] = [(scene.stream.initial, np.empty((0, scene.stream.lower.size)))]
    batches = scene.stream.batches
    for t in range(looks[-1] + 1):
        if t > 0:
            waiting.append(next(batches))
        if t in looks or not system.merges:
            publisher.advance(*(np.concatenate(parts) for parts in zip(*waiting, strict=True)))
            waiting.clear()
        if t in looks:
            yield from _look(scene, publisher, t, asked, chosen, floor)


def _look(
    scene: SpatialScene,
    publisher: SpatialPublisher,
    t: int,
    asked: list[Found],
    chosen: tuple[str, ...],
    floor: float,
) -> Iterator[Row]:
    present = len(scene.stream.present(t))
    tree = publisher.tree
    common = [float(scene.data_set.start + t), float(present), publisher.total, float(tree.n_leaves)]
    nothing = [math.nan] * (len(columns(chosen)) - len(common) - 2)
    sampled: PointIndex | None = None
    for workload, each in asked:
        if t not in each.looks:
            continue
        count: Callable[[Floats, Floats], Any] = tree.count
        if workload.answers == "points":
            sampled = PointIndex(publisher.sample()) if sampled is None else sampled
            count = sampled.count
        for boxes, truth in zip(each.boxes, each.counts[each.looks.index(t)], strict=True):
            answers = np.asarray(count(boxes.lower, boxes.upper), np.float64)
            if workload.kind == "map":
                for k, pair in enumerate(zip(truth.tolist(), answers.tolist(), strict=True)):
                    yield workload.name, str(k), 1, [*common, *pair, *nothing]
            else:
                errors = _errors(truth, answers, chosen, floor * present)
                yield workload.name, boxes.name, truth.size, [*common, truth.mean(), answers.mean(), *errors]


def _errors(truth: Any, answers: Any, chosen: tuple[str, ...], floor: float) -> Iterator[float]:
    for name in METRICS:
        if name not in chosen:
            continue
        if name != "relative_error":
            yield getattr(metrics, name)(truth, answers)
        else:
            # Without points there is no relative error.
            yield metrics.relative_error(truth, answers, floor) if floor > 0.0 else math.nan
