"""Days and weeks in revised answers: streams that repeat, and some that do not, with and without a given period.

Mean square errors of sums over all ranges of 10 to 10^5 values, beside flat blocks, the best length in hindsight.
``--published``: published values with ``season=`` beside those without, also with periods that streams do not have.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from benchmarks.accuracy import streams
from benchmarks.shared import DATA, Data, Floats, Runs, geometric, prefix_sums, table
from fastdp import Adaptive, StreamPublisher, release
from fastdp.errors import AccuracyWarning
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks
from fastdp.streams.parameters import DEFAULT_RANGE
from fastdp.streams.release import WholeStream
from fastdp.streams.stream_machine import Schedule
from fastdp.thresholds import ScaleFree

EPSILONS = (0.01, 0.1, 1.0)
LENGTHS = (10, 100, 1000, 10_000, 100_000)
FLAT = range(17)


class Case(NamedTuple):
    """A real stream, and how many of its values a day has (0: it has none); counts, or values under their bound."""

    stream: str
    day: int
    counts: bool


CASES = (
    *(Case(name, 1440, counts) for name in ("pickups a minute", "trips a minute") for counts in (True, False)),
    Case("order lines a minute", 1440, True),
    Case("check-ins an hour", 24, True),
    Case("DNS", 0, True),
    Case("DNS", 0, False),
    *(Case(name, 0, False) for name in ("smart meter", "trip seconds", "check-in gaps", "web clicks")),
)


#: Streams for ``--published``: those that have the period, and those that have not.
SEASONS = (
    *(
        Case(name, day, counts)
        for name, day in (
            ("pickups a minute", 1440),
            ("trips a minute", 1440),
            ("order lines a minute", 1440),
            ("check-ins an hour", 24),
            ("people an hour", 96),
        )
        for counts in (True, False)
    ),
    Case("smart meter", 480, False),
)
WRONG = (
    *(Case("DNS", period, counts) for period in (100, 1440, 20_000) for counts in (True, False)),
    *(Case("taxi distance", period, False) for period in (2000, 20_000)),
    *(Case(name, 1440, False) for name in ("POS", "MSNBC", "trip seconds", "web clicks", "check-in gaps")),
    *(Case(name, 1440, False) for name in ("order pence", "order items")),
)


def squares(answer: Floats, true: Floats) -> Floats:
    """Of all ranges of each length; NaN where the stream is shorter than two of them."""
    errors = answer - true
    found = [np.mean((errors[n:] - errors[:-n]) ** 2) if 2 * n < errors.size else np.nan for n in LENGTHS]
    return np.array(found)


def flat(values: Floats, true: Floats, scale: float, generator: np.random.Generator) -> Floats:
    """The least errors of flat blocks of 1 to 2^16 values, length by length."""
    prefix, best = prefix_sums(values), np.full(len(LENGTHS), np.inf)
    for k in FLAT:
        edges = np.append(np.arange(0, values.size, 2**k), values.size)
        sums = np.diff(prefix[edges]) + generator.laplace(0.0, scale, edges.size - 1)
        best = np.fmin(best, squares(np.interp(np.arange(values.size + 1), edges, prefix_sums(sums)), true))
    return best


def measure(case: Case, values: Floats, epsilon: float, runs: int) -> tuple[Floats, Floats, Floats]:
    """Mean square errors of revised answers, of those with the day, and of the best flat blocks."""
    true, found = prefix_sums(values), []
    options = {"sensitivity": 1} if case.counts else {"bound": streams.REAL[case.stream].bound}
    for seed in range(runs):
        made = release(values, epsilon, seed=seed, **options)
        theta = 1.0 if case.counts else made.threshold
        rest = values if case.counts else np.minimum(values, theta)
        daily = made.with_season(case.day) if case.day else made
        answers = [squares(prefix_sums(each.revised), true) for each in (made, daily)]
        found.append([*answers, flat(rest, true, theta / epsilon, np.random.default_rng(seed))])
    plain, daily_errors, best = np.mean(found, axis=0)
    return plain, daily_errors, best


def published(case: Case, values: Floats, epsilon: float, runs: int) -> Floats:
    """Mean square errors of published values with the season, divided by those without, from the same noise."""
    true, found, longest = prefix_sums(values), [], min(DEFAULT_RANGE, values.size)
    for seed in range(runs):
        key = Key.from_seed(seed)
        if case.counts:
            plain: StreamPublisher = Adaptive(epsilon, sensitivity=1, max_range=longest, key=key)
        else:
            bound = streams.REAL[case.stream].bound
            plain = WholeStream(values.size, epsilon, bound, longest, threshold=ScaleFree(), key=key).publisher(
                (values,)
            )
        composition = plain.composition
        assert isinstance(composition.perturber, Blocks)
        daily = replace(composition, perturber=replace(composition.perturber, season=float(case.day)))
        both = StreamPublisher._of(Schedule(daily), plain._key.again()), plain
        found.append([squares(prefix_sums(each.release(values).values), true) for each in both])
    with_season, without = np.mean(found, axis=0)
    return np.asarray(with_season / without)


def show_published(data: Path, runs: int) -> None:
    """Cell by cell, then geometric means and the most of each group of streams."""
    rows, groups = [], dict[str, list[Floats]]()
    for case in SEASONS + WRONG:
        values = streams.REAL[case.stream].values(data)
        for epsilon in EPSILONS:
            ratios = published(case, values, epsilon, runs)
            group = f"{streams.half(case.stream)} half" if case in SEASONS else "a season that is not there"
            groups.setdefault(group, []).append(ratios)
            name = f"{case.stream}{', counts' if case.counts else ''} ({group})"
            rows.append([name, case.day, f"{epsilon:g}", *ratios])
    lengths = [f"{n:,}" for n in LENGTHS]
    table("MSE of published values: with season / without", ["stream", "season", "epsilon", *lengths], rows)
    rows = [
        [group, len(found), *(f"{geometric(each):.3f} ({np.nanmax(each):.2f})" for each in np.array(found).T)]
        for group, found in groups.items()
    ]
    table("Geometric means (and the most in a cell)", ["streams", "cells", *lengths], rows)


def run(
    *,
    data: Data = DATA,
    runs: Runs = 3,
    published: Annotated[bool, "published values with season= beside those without"] = False,
) -> None:
    warnings.simplefilter("ignore", AccuracyWarning)
    if published:
        show_published(data, runs)
        return
    rows = []
    for case in CASES:
        values = streams.REAL[case.stream].values(data)
        for epsilon in EPSILONS:
            plain, daily, best = measure(case, values, epsilon, runs)
            name = f"{case.stream}{', counts' if case.counts else ''} ({streams.half(case.stream)})"
            ratios = zip(daily / plain, plain / best, daily / best, strict=True)
            rows.append([name, f"{epsilon:g}", *(f"{a:.2f} / {b:.2f} / {c:.2f}" for a, b, c in ratios)])
    title = (
        "MSE of revised answers: given day / none given, none given / best flat blocks, given day / best flat blocks"
    )
    table(title, ["stream", "epsilon", *(f"{n:,}" for n in LENGTHS)], rows)
