"""From a run to numbers: errors of range answers, by group of queries, split into their causes.

For every query, answer - truth = noise + truncation + smoothing, where

* truncation = clipped truth - truth: what values above theta lose;
* smoothing = noiseless answer - clipped truth: the error of a range that cuts a block, because values within a block
  are predictions.  The noiseless answer is that of the same mechanism with the same theta and no noise: block sums
  are exact, and the smoother predicts from exact means;
* noise = answer - noiseless answer: the rest, rounding to the grid included.

Source: ToPS section 3.1 and Eq. 1 (bias by truncation, noise) and section 3.5 (error of smoothing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp_lab.queries import metrics
from fastdp_lab.sweeps.values.mechanisms import RunResult
from fastdp_lab.sweeps.values.queries import Queries
from fastdp_lab.sweeps.values.truth import Clipped, ValueTruth

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Specification

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
METRICS = ("mse", "mae", "mmse", "mmae", "relative_error")
PARTS = ("noise", "truncation", "smoothing")


@dataclass(frozen=True)
class Split:
    """The errors of answers, float64[q] each; noise + truncation + smoothing is their sum."""

    noise: Floats
    truncation: Floats
    smoothing: Floats


def columns(chosen: Sequence[str]) -> tuple[str, ...]:
    """Columns of numbers in the results, for the metrics of a specification."""
    parts = tuple(f"{part}_{kind}" for part in PARTS for kind in ("mse", "mean")) if "parts" in chosen else ()
    return ("truth", "answer", *(name for name in METRICS if name in chosen), *parts)


def measure(
    specification: Specification, stream: ValueTruth, queries: Queries, result: RunResult
) -> Iterator[tuple[str, int, list[float]]]:
    """Rows of a run: a group's label, its number of queries, and the numbers of :func:`columns`.

    ``truth`` and ``answer`` are means over the group.  Parts are NaN if theta changed during the run; the clipped
    truth is then refused.
    """
    starts, stops = queries.starts, queries.stops
    truth = stream.prefix[stops] - stream.prefix[starts]
    answers = result.answer(starts, stops)
    split = None
    if not math.isnan(result.theta):
        clipped = stream.clipped(min(result.theta, stream.data_set.bound))
        split = split_errors(stream, clipped, result, starts, stops, answers - truth)
        if specification.truth == "clipped":
            truth = truth + split.truncation
            split = Split(split.noise, np.zeros_like(truth), split.smoothing)
        if not result.splits:
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
    exact, private = truth[which], answers[which]
    third = {"mmse": lengths[which], "mmae": lengths[which], "relative_error": specification.relative_floor}
    row = [float(exact.mean()), float(private.mean())]
    for name in METRICS:
        if name in specification.metrics:
            row.append(getattr(metrics, name)(exact, private, *([third[name]] if name in third else [])))
    if "parts" in specification.metrics:
        for name in PARTS:
            part = None if split is None else getattr(split, name)[which]
            row += [math.nan] * 2 if part is None else [float(np.mean(part * part)), float(np.mean(part))]
    return row


def split_errors(
    stream: ValueTruth, clipped: Clipped, result: RunResult, starts: Indices, stops: Indices, errors: Floats
) -> Split:
    """The three parts of ``errors``, as the module's docstring defines them."""
    truncation = clipped.before(starts) - clipped.before(stops)
    ends = np.concatenate([starts, stops])
    if result.exact is not None:
        before = partial(stream.clipped_before, clipped)
        shifts = result.exact(before, ends) - before(ends)
    elif result.smoother is None or result.block == 1:
        shifts = np.zeros(ends.size)
    else:
        shifts = _shifts(stream, clipped, result, ends)
    smoothing = shifts[starts.size :] - shifts[: starts.size]
    return Split(errors - truncation - smoothing, truncation, smoothing)


def _shifts(stream: ValueTruth, clipped: Clipped, result: RunResult, ends: Indices) -> Floats:
    """Noiseless prefix sum minus clipped prefix sum before each of ``ends``.

    Both agree at the borders of blocks; within block j the noiseless one grows by the prediction for j a value.
    """
    assert result.smoother is not None  # noqa: S101 - the caller has checked
    before, predictions = stream.noiseless(result.theta, result.block, result.smoother)
    number, inside = np.divmod(ends, result.block)
    shifts: Floats = before[number] + inside * predictions[number] - stream.clipped_before(clipped, ends)
    return shifts
