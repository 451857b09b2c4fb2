"""From a run to numbers: errors of range answers, by group of queries, split into their causes.

For every query, answer - truth = noise + truncation + smoothing, where

* truncation = clipped truth - truth: what values above theta lose;
* smoothing = noiseless answer - clipped truth: what a range that cuts a block errs because values within a block
  are predictions.  The noiseless answer is what the same mechanism with the same theta would give if no noise were
  added: block sums are exact, and the smoother predicts from exact means;
* noise = answer - noiseless answer: the rest, rounding to the grid included.

Source: ToPS section 3.1 and Eq. 1 (bias by truncation, noise) and section 3.5 (error of smoothing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.experiments.mechanisms import Outcome
from fastdp.experiments.queries import Queries
from fastdp.experiments.scene import Clipped, Scene
from fastdp.experiments.specification import Specification
from fastdp.queries import metrics

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
PARTS = ("noise", "truncation", "smoothing")


@dataclass(frozen=True)
class Split:
    """The errors of answers, float64[q] each; noise + truncation + smoothing is their sum."""

    noise: Floats
    truncation: Floats
    smoothing: Floats


def columns(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of numbers that a row has, for the metrics of a specification."""
    plain = tuple(name for name in metrics_by_name() if name in chosen)
    parts = tuple(f"{part}_{kind}" for part in PARTS for kind in ("mse", "mean")) if "parts" in chosen else ()
    return ("truth", "answer", *plain, *parts)


def metrics_by_name() -> tuple[str, ...]:
    """The metrics of :mod:`fastdp.metrics`."""
    return ("mse", "mae", "mmse", "mmae", "relative_error")


def measure(
    specification: Specification, scene: Scene, queries: Queries, outcome: Outcome
) -> Iterator[tuple[str, int, list[float]]]:
    """Rows of a run: a group's label, how many queries it has, and the numbers of :func:`columns`.

    ``truth`` and ``answer`` are means over the group.  Parts are NaN where theta changed on the way; the clipped
    truth is then refused.
    """
    starts, stops = queries.starts, queries.stops
    truth = scene.prefix[stops] - scene.prefix[starts]
    answers = outcome.answer(starts, stops)
    split = None
    if not math.isnan(outcome.theta):
        clipped = scene.clipped(min(outcome.theta, scene.data_set.bound))
        split = split_errors(scene, clipped, outcome, starts, stops, answers - truth)
        if specification.truth == "clipped":
            truth = truth + split.truncation
            split = Split(split.noise, np.zeros_like(truth), split.smoothing)
        if not outcome.splits:
            unknown = np.full(truth.size, math.nan)
            split = Split(unknown, split.truncation, unknown)
    elif specification.truth == "clipped":
        raise ParameterError("truth = 'clipped': expected 'raw', because there is no one threshold to clip at")
    lengths = (stops - starts).astype(np.float64)
    for label, which in queries.groups:
        yield label, lengths[which].size, _row(specification, truth, answers, lengths, split, which)


def _row(
    specification: Specification, truth: Floats, answers: Floats, lengths: Floats, split: Split | None, which: Any
) -> list[float]:
    exact, private, length = truth[which], answers[which], lengths[which]
    found = [float(exact.mean()), float(private.mean())]
    for name in metrics_by_name():
        if name not in specification.metrics:
            continue
        if name == "relative_error":
            found.append(metrics.relative_error(exact, private, specification.relative_floor))
        elif name in ("mmse", "mmae"):
            found.append(getattr(metrics, name)(exact, private, length))
        else:
            found.append(getattr(metrics, name)(exact, private))
    if "parts" in specification.metrics:
        for name in PARTS:
            part = None if split is None else getattr(split, name)[which]
            found += [math.nan] * 2 if part is None else [float(np.mean(part * part)), float(np.mean(part))]
    return found


def split_errors(
    scene: Scene, clipped: Clipped, outcome: Outcome, starts: Indices, stops: Indices, errors: Floats
) -> Split:
    """The three parts of ``errors``, as the module's docstring defines them."""
    truncation = clipped.before(starts) - clipped.before(stops)
    if outcome.exact is not None:
        ends = np.concatenate([starts, stops])
        shifts = outcome.exact(partial(_clipped_before, scene, clipped), ends) - _clipped_before(scene, clipped, ends)
        smoothing = shifts[starts.size :] - shifts[: starts.size]
    elif outcome.smoother is None or outcome.block == 1:
        smoothing = np.zeros(starts.size)
    else:
        shifts = _shifts(scene, clipped, outcome, np.concatenate([starts, stops]))
        smoothing = shifts[starts.size :] - shifts[: starts.size]
    return Split(errors - truncation - smoothing, truncation, smoothing)


def _clipped_before(scene: Scene, clipped: Clipped, ends: Indices) -> Floats:
    """Prefix sums of the clipped stream before each of ``ends``."""
    sums: Floats = scene.prefix[ends] - clipped.before(ends)
    return sums


def _shifts(scene: Scene, clipped: Clipped, outcome: Outcome, ends: Indices) -> Floats:
    """Noiseless prefix sum minus clipped prefix sum before each of ``ends``.

    Both agree at the borders of blocks; within block j the noiseless one grows by the prediction for j a value.
    """
    smoother, block = outcome.smoother, outcome.block
    assert smoother is not None  # noqa: S101 - asked for by runs that have one
    borders = np.arange(0, scene.body.size + 1, block)
    before = _clipped_before(scene, clipped, borders)
    first = outcome.theta / 2.0
    _, predicted = smoother.step(smoother.start(first, outcome.theta), np.diff(before) / block)
    predictions = np.concatenate([[first], predicted])
    number, inside = np.divmod(ends, block)
    shifts: Floats = before[number] + inside * predictions[number] - _clipped_before(scene, clipped, ends)
    return shifts
