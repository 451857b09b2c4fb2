"""From a run to numbers: errors of the counts in boxes at several times.

Source: PHDStream section 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fastdp_lab.queries import metrics
from fastdp_lab.queries.boxes import PointIndex
from fastdp_lab.sweeps.points.mechanisms import SpatialPublisher
from fastdp_lab.sweeps.points.queries import BoxWorkload
from fastdp_lab.sweeps.points.truth import Asked, Floats, PointTruth
from fastdp_lab.sweeps.study import Row

METRICS = ("mse", "mae", "relative_error")
_Asked = tuple[BoxWorkload, Asked]


def columns(chosen: Sequence[str]) -> tuple[str, ...]:
    """Columns of numbers in the results, for the metrics of a specification."""
    return ("time", "points", "total", "leaves", "truth", "answer", *(name for name in METRICS if name in chosen))


def follow(
    truth: PointTruth,
    publisher: SpatialPublisher,
    asked: list[_Asked],
    chosen: Sequence[str],
    floor: float,
    *,
    merges: bool,
) -> Iterator[Row]:
    """Rows of a run: queries are asked between batches.

    Parameters
    ----------
    truth : PointTruth
        The stream.
    publisher : SpatialPublisher
        At its beginning.
    asked : list of (BoxWorkload, Asked)
        The queries and their times.
    chosen : sequence of str
        Among ``METRICS``.
    floor : float
        Relative errors divide by the true count, but at least by this fraction of all points.
    merges : bool
        Whether the batches between two times are sent as one.

    Yields
    ------
    workload, group, queries, numbers
        Each box of a map is a group, with truth and answer only.
        ``time`` is the number of batches since the stream's beginning, those before the first step included.
    """
    if not asked:
        # A sweep of maps only has no queries after the first repetition.
        return
    looks, stream = sorted({t for _, each in asked for t in each.looks}), truth.stream
    waiting: list[tuple[Floats, Floats]] = [(stream.initial, np.empty((0, stream.lower.size)))]
    batches = stream.batches
    for t in range(looks[-1] + 1):
        if t > 0:
            waiting.append(next(batches))
        if t in looks or not merges:
            publisher.advance(*(np.concatenate(parts) for parts in zip(*waiting, strict=True)))
            waiting.clear()
        if t in looks:
            yield from _look(truth, publisher, t, asked, chosen, floor)


def _look(
    stream: PointTruth, publisher: SpatialPublisher, t: int, asked: list[_Asked], chosen: Sequence[str], floor: float
) -> Iterator[Row]:
    present = len(stream.stream.present(t))
    tree = publisher.tree
    common = [float(stream.data_set.start + t), float(present), publisher.total, float(tree.n_leaves)]
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


def _errors(truth: Any, answers: Any, chosen: Sequence[str], floor: float) -> Iterator[float]:
    for name in METRICS:
        if name not in chosen:
            continue
        if name != "relative_error":
            yield getattr(metrics, name)(truth, answers)
        else:
            # Without points there is no relative error.
            yield metrics.relative_error(truth, answers, floor) if floor > 0.0 else math.nan
