"""How often intervals of releases hold the true sum of the clipped stream, and how wide they are.

Ranges of whole blocks first, where the law is exact; then ranges at any place on every stream, by epsilon and length,
published and revised.  Ranges of one release share noise, so that what counts is the number of releases.
``-o`` keeps the numbers (JSON), ``--docs`` writes the tables into ``docs/intervals.md``.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import fastdp
from benchmarks import ROOT, shared
from benchmarks.accuracy.streams import ORDERS, REAL, SYNTHETIC, holdout
from benchmarks.shared import Floats, add_data_option, table
from fastdp.errors import AccuracyWarning
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.releases.release import Release
from fastdp_lab.datasets import TABLE1, hold_out_and_extend
from fastdp_lab.datasets.synthetic import table1
from fastdp_lab.queries.workloads import random_ranges

EPSILONS = (0.01, 0.1, 1.0)
LENGTHS = (1_000, 10_000, 100_000, 2**20)
QUERIES = 200
ALIGNED = 1_000_000
#: Values of a release of aligned queries, and blocks of the longest query.
VALUES, LONGEST = 4096, 64
THETA, EPSILON = 15.0, 0.5
RESULTS = ROOT / "benchmarks" / "results" / "coverage.json"
PAGE = ROOT / "docs" / "intervals.md"


def aligned_kinds() -> dict[str, Callable[[int], Any]]:
    """Publishers by seed, all with theta 15 and epsilon 0.5."""
    common = {"epsilon": EPSILON, "bound": 64.0, "max_range": VALUES}

    def of(perturber: Any, smoother: Any = None) -> Callable[[int], Any]:
        return lambda seed: fastdp.StreamPublisher(
            threshold=THETA, perturber=perturber, smoother=smoother, seed=seed, **common
        )

    def pak(seed: int) -> fastdp.PAK:
        return fastdp.PAK(EPSILON, 1e-6, 64.0, VALUES, holdout=0, threshold=THETA, seed=seed)

    return {
        "independent values": of(Flat()),
        "binary tree (inconsistent)": of(Hierarchy(2, consistent=False, prune=0)),
        "PAK's running sums": lambda seed: fastdp.PAK(
            EPSILON, 1e-6, 64.0, VALUES, holdout=0, threshold=THETA, seed=seed
        ),
        "Adaptive, closing='spike'": of(Blocks("spike")),
        "Adaptive": of(Blocks()),
        "consistent tree (bound)": of(Hierarchy(16, prune=0)),
        "ToPS, blocks of 16 (bound)": of(Hierarchy(16, prune=1), fastdp.smoothers.Recent()),
    }


def aligned(count: int) -> Iterator[dict[str, Any]]:
    """Coverage of ``count`` ranges of whole blocks of each kind."""
    generator = np.random.default_rng(1)
    values = generator.integers(0, 20, VALUES).astype(float)
    queries = 400
    for name, make in aligned_kinds().items():
        hits = np.zeros(2)
        for seed in range(count // queries):
            release = make(seed).release(values)
            edges = np.arange(0, len(release) + 1, release.block)
            edges = edges if release.revision is None else release.revision.edges
            first = generator.integers(0, edges.size - 1, queries)
            last = np.minimum(first + generator.integers(1, LONGEST + 1, queries), edges.size - 1)
            truth = true_sums(release, values, edges[first], edges[last])
            hits += [covered(release, truth, edges[first], edges[last], revised) for revised in (False, True)]
        published, revised = hits / (count // queries)
        yield {"kind": name, "queries": count, "published": published, "revised": revised}


def true_sums(release: Release, values: Floats, starts: Any, stops: Any) -> Floats:
    """Of the clipped stream: where theta rose, each value to the theta of its block."""
    published = values[release.offset :]
    theta: Any = release.threshold
    if release.revision is not None:
        lengths = np.diff(release.revision.edges, append=published.size)
        theta = np.repeat(release.revision.thetas, lengths)
    clipped = np.minimum(published, theta)
    before = np.concatenate([[0.0], np.cumsum(clipped)])
    sums: Floats = before[stops] - before[starts]
    return sums


def covered(release: Release, truth: Floats, starts: Any, stops: Any, revised: bool) -> float:
    """Share of the ranges whose interval holds the truth."""
    low, high = release.interval(starts, stops, revised=revised)
    return float(np.mean((low <= truth) & (truth <= high)))


def streams(folder: Path) -> Iterator[tuple[str, float, int, Floats]]:
    """Name, bound, hold-out and values of every stream; real ones where their files are."""
    for name, each in REAL.items():
        if (folder / each.file).exists():
            values, held = each.read(folder / each.file).clip(0.0), holdout(each, folder)
            yield name, each.bound, held, hold_out_and_extend(values, held, shared.PUBLISHED)
    for stream in SYNTHETIC:
        for order in ORDERS:
            values = table1(stream, shared.HOLDOUT + shared.PUBLISHED, order).astype(float)
            yield f"{stream} {order}", float(TABLE1[stream].bound), shared.HOLDOUT, values


def any_place(folder: Path, repetitions: int, methods: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Coverage and width of ranges at any place, of each stream, method, epsilon and longest range."""
    for name, bound, held, values in streams(folder):
        for method in methods:
            system = fastdp.ToPS if method == "tops" else fastdp.Adaptive
            for epsilon in EPSILONS:
                found = np.zeros((len(LENGTHS), 4))
                for seed in range(repetitions):
                    release = system(epsilon=epsilon, bound=bound, holdout=held, seed=seed).release(values)
                    for row, longest in enumerate(LENGTHS):
                        starts, stops = random_ranges(len(release), QUERIES, longest, seed)
                        truth = true_sums(release, values, starts, stops)
                        for column, revised in enumerate((False, True)):
                            found[row, column] += covered(release, truth, starts, stops, revised)
                        low, high = release.interval(starts, stops, revised=True)
                        errors = release.sum(starts, stops, revised=True) - truth
                        found[row, 2:] += [np.mean((high - low) ** 2) / 4.0, np.mean(errors**2)]
                for longest, (published, revised, squared, error) in zip(LENGTHS, found, strict=True):
                    yield {
                        "stream": name,
                        "method": method,
                        "epsilon": epsilon,
                        "longest": longest,
                        "releases": repetitions,
                        "published": published / repetitions,
                        "revised": revised / repetitions,
                        "width": float(np.sqrt(squared / error)),
                    }
        print(f"  {name}", flush=True)


def seconds(folder: Path) -> dict[str, float]:
    """Of 200 intervals at any place: the first call of a release, and the best of 20 more."""
    _, bound, held, values = next(streams(folder))
    for _ in range(2):
        release = fastdp.Adaptive(epsilon=0.1, bound=bound, holdout=held, seed=1).release(values)
        starts, stops = random_ranges(len(release), 200, 2**20, 1)
        times = []
        for _ in range(21):
            begin = perf_counter()
            release.interval(starts, stops)
            times.append(perf_counter() - begin)
    return {"first": times[0], "again": min(times[1:])}


def tables(found: dict[str, Any]) -> str:
    """The page's tables."""
    lines = ["| whole blocks | queries | published | revised |", "|---|---|---|---|"]
    for row in found["aligned"]:
        lines.append(
            f"| {row['kind']} | {row['queries']:,} | {percent(row['published'])} | {percent(row['revised'])} |"
        )
    for method in dict.fromkeys(row["method"] for row in found["any_place"]):
        rows = [row for row in found["any_place"] if row["method"] == method]
        heads = " | ".join(f"up to {length:,}" for length in LENGTHS)
        lines += ["", f'`method="{method}"`, {rows[0]["releases"]} releases a cell:', ""]
        lines += [f"| stream | epsilon | {heads} |", "|---|---|" + "---|" * len(LENGTHS)]
        for stream, epsilon in dict.fromkeys((row["stream"], row["epsilon"]) for row in rows):
            own = [row for row in rows if (row["stream"], row["epsilon"]) == (stream, epsilon)]
            cells = [f"{percent(row['published'])}, {percent(row['revised'])} ({row['width']:.1f})" for row in own]
            lines.append(f"| {stream} | {epsilon:g} | {' | '.join(cells)} |")
    first, again = (1e3 * found["seconds"][name] for name in ("first", "again"))
    return "\n".join([*lines, "", f"200 intervals take {again:.2f} ms, the first 200 of a release {first:.1f} ms."])


def percent(share: float) -> str:
    return f"{100.0 * share:.1f}"


def write_page(text: str, page: Path = PAGE) -> None:
    """Put the tables between the page's marks."""
    begin, end = "<!-- coverage: begin -->\n", "<!-- coverage: end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + text + "\n" + end + rest.partition(end)[2])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, help="file for the numbers (JSON)")
    parser.add_argument("--repetitions", type=int, default=40, help="releases a cell")
    parser.add_argument("--aligned", type=int, default=ALIGNED, help="ranges of whole blocks of each kind")
    parser.add_argument("--method", action="append", choices=("adaptive", "tops"), help="by default both")
    parser.add_argument("--docs", action="store_true", help=f"write the tables of {RESULTS.name} into {PAGE.name}")
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    """Measure, keep, show."""
    warnings.simplefilter("ignore", AccuracyWarning)
    if options.docs:
        write_page(tables(json.loads(RESULTS.read_text())))
        return
    methods = tuple(options.method or ("adaptive", "tops"))
    found: dict[str, Any] = {
        "aligned": list(aligned(options.aligned)),
        "any_place": list(any_place(options.data, options.repetitions, methods)),
        "seconds": seconds(options.data),
    }
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")
    rows = ((row["kind"], percent(row["published"]), percent(row["revised"])) for row in found["aligned"])
    table("Whole blocks: coverage in per cent", ("kind", "published", "revised"), rows)
    low = [row for row in found["any_place"] if min(row["published"], row["revised"]) < 0.94]
    table(
        "Ranges at any place below 94 per cent",
        ("stream", "method", "epsilon", "longest", "published", "revised"),
        (
            (
                *(row["stream"], row["method"], f"{row['epsilon']:g}", f"{row['longest']:,}"),
                *(percent(row["published"]), percent(row["revised"])),
            )
            for row in low
        ),
    )
    print(f"{len(low)} of {len(found['any_place'])} cells; 200 intervals: {found['seconds']}")
