"""The advice of docs/howto/choosing.md: a clip public, chosen or the bound; counts beside release.

Errors are root mean squares over parts of a stream and ranges.  The 99.9 % quantile of a stream's first quarter
stands for a public clip; once it is the bound too.  Values are numbers of rows where counts are compared.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fastdp
from benchmarks.accuracy import streams
from benchmarks.shared import DATA, Data, Runs, geometric, prefix_sums, table
from fastdp.errors import AccuracyWarning

EPSILONS = (0.1, 0.5, 1.0)
SIZES, BOUNDS = (30, 100, 300, 1000, 3000, 10_000, 2**18), ("own", "public clip")
WINDOWS, SPANS, START = 24, ("a window", "a day"), np.datetime64("2024-01-01", "s")
#: Rows and windows of a table at most; minutes of its windows; kinds of releases.
ROWS, MOST, MINUTES, DOORS = 2**21, 2**14, (1, 15, 60), ("stream", "table")
ANSWERS = ("counts, published", "counts, revised", "release")


def windows(seconds: int, number: int) -> fastdp.Time:
    stop = START + number * np.timedelta64(seconds)
    return fastdp.Time("time", every=f"{seconds}s", start=str(START), stop=str(stop), origin=str(START))


def clips(name: str, runs: int, data: Path) -> Iterator[tuple[Any, ...]]:
    """Errors of a clip that is public, chosen, the bound: of sums of windows, in a stream and a table."""
    values, bound, _ = streams.extended(name, data)
    public = max(float(np.quantile(values[: values.size // 4], 0.999)), bound / 2**14)
    starts, stops = np.triu_indices(WINDOWS + 1, 1)
    for n, kind, epsilon in itertools.product(SIZES, BOUNDS, EPSILONS):
        every, squares, limit = n // WINDOWS, np.zeros((2, 3)), bound if kind == "own" else public
        for seed, at in enumerate(np.linspace(values.size // 4, values.size - n, runs).astype(int)):
            part = np.minimum(values[at : at + every * WINDOWS], limit)
            rows = pd.DataFrame({"time": START + np.arange(part.size), "x": part})
            for k, clip in enumerate((public, None, limit)):
                given: Any = {"epsilon": epsilon, "bound": limit, "seed": f"{name} {seed}"}
                revised = fastdp.release(part, threshold=clip, **given).values
                totals = fastdp.totals(rows, "x", windows(every, WINDOWS), clip=clip, **given)
                found = totals.sum(np.arange(WINDOWS), np.arange(1, WINDOWS + 1), revised=True)
                for door, sums in enumerate((prefix_sums(revised)[::every], prefix_sums(found))):
                    errors = sums - prefix_sums(part)[::every]
                    squares[door, k] += np.mean((errors[stops] - errors[starts]) ** 2)
        yield from (((n, door, kind), *each) for door, each in zip(DOORS, np.sqrt(squares), strict=True))


def doors(name: str, runs: int, data: Path) -> Iterator[tuple[Any, ...]]:
    """Errors of ANSWERS, by epsilon times rows a window."""
    values = np.rint(streams.extended(name, data)[0])
    for minutes in MINUTES:
        numbers = values[: values.size // minutes * minutes].reshape(-1, minutes).sum(axis=1)[:MOST]
        numbers, day = numbers[: np.searchsorted(np.cumsum(numbers), ROWS)], 1440 // minutes
        if numbers.size < 2 * day:
            continue
        each, time = np.arange(numbers.size), windows(60 * minutes, numbers.size)
        rows = pd.DataFrame({"time": np.repeat(START + each * np.timedelta64(60 * minutes), numbers.astype(int))})
        for epsilon in (0.001, 0.01, *EPSILONS):
            squares = np.zeros((2, len(ANSWERS)))
            for seed in range(runs):
                counts = fastdp.counts(rows, time, epsilon=epsilon, seed=seed)
                release = fastdp.release(numbers, epsilon, sensitivity=1, seed=seed)
                counted = (counts.sum(each, each + 1, revised=revised) for revised in (False, True))
                for k, answer in enumerate((*counted, release.values)):
                    errors = prefix_sums(answer - numbers)
                    squares[:, k] += [np.mean((errors[n:] - errors[:-n]) ** 2) for n in (1, day)]
            band = ("0 to 1", "1 to 20", "20 and more")[np.searchsorted((1, 20), epsilon * numbers.mean())]
            yield from (((band, span), *np.sqrt(found)) for span, found in zip(SPANS, squares, strict=True))


def over(errors: Any, others: Any, limit: float) -> str:
    return f"{geometric(errors / others):.2f} ({max(errors / others):.3g}; {np.mean(errors > limit * others):.0%})"


def run(*, runs: Runs = 5, data: Data = DATA) -> None:
    """Print ratios of errors over all epsilons: geometric mean (largest; share above 1, or above 1.1)."""
    warnings.simplefilter("ignore", AccuracyWarning)
    for half, names in itertools.groupby(sorted(streams.every(data), key=streams.half), streams.half):
        own = list(names)
        rows = [
            [*key, over(chosen, public, 1.0), over(chosen, bound, 1.0)]
            for key, (public, chosen, bound) in cells(clips, own, runs, data)
        ]
        table(f"{half} half: ratios of errors", ["values", "", "bound", "chosen over public", "over bound"], rows)
        rows = [
            [*key, found.shape[1], *(over(each, found.min(axis=0), 1.1) for each in found)]
            for key, found in cells(doors, own, runs // 2, data)
        ]
        table(f"{half} half: error over the best answer's", ["epsilon rows", "sums of", "cells", *ANSWERS], rows)


def cells(measure: Any, names: list[str], runs: int, data: Path) -> Iterator[tuple[Any, Any]]:
    """Errors of all streams by key: [answers, cells]."""
    found: dict[Any, list[Any]] = {}
    for key, *errors in itertools.chain.from_iterable(measure(name, runs, data) for name in names):
        found.setdefault(key, []).append(errors)
    return ((key, np.transpose(found[key])) for key in sorted(found))
