"""How often intervals of releases hold the sum of the clipped stream, and the true one, and how wide they are.

Ranges of whole blocks first, where the distribution is exact; then ranges at any place on every stream, by epsilon
and length, published and revised; true sums and widths: revised.  Ranges of one release share noise, so that what
counts is the number of releases.  ``-o`` keeps the numbers (JSON): ``benchmarks/results/coverage.json``.
"""

import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.accuracy import streams
from benchmarks.shared import DATA, Data, Floats, prefix_sums, table
from fastdp.errors import AccuracyWarning
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.releases.release import Release
from fastdp_lab.queries import random_ranges

EPSILONS = (0.01, 0.1, 1.0)
LENGTHS = (1_000, 10_000, 100_000, 2**20)
QUERIES = 200
#: Shares of intervals that hold the clipped sum (twice), and the true one.
COVERED = ("published", "revised", "true")
ALIGNED = 1_000_000
#: Values of a release of aligned queries, and blocks of the longest query.
VALUES, LONGEST = 4096, 64
THETA, EPSILON = 15.0, 0.5
SYSTEMS: dict[str, Callable[..., Release]] = {
    "adaptive": lambda values, **given: fastdp.Adaptive(**given).release(values),
    "tops": lambda values, **given: fastdp.ToPS(**given).release(values),
}


def aligned_kinds() -> dict[str, Callable[[int], Any]]:
    """Publishers by seed, all with theta 15 and epsilon 0.5."""
    common = {"epsilon": EPSILON, "bound": 64.0, "max_range": VALUES}

    def of(perturber: Any, smoother: Any = None) -> Callable[[int], Any]:
        return lambda seed: fastdp.StreamPublisher(
            threshold=THETA, perturber=perturber, smoother=smoother, seed=seed, **common
        )

    return {
        "independent values": of(Flat()),
        "binary tree (inconsistent)": of(Hierarchy(2, consistent=False, prune=0)),
        "PAK's running sums": lambda seed: fastdp.PAK(
            EPSILON, 1e-6, 64.0, VALUES, holdout=0, threshold=THETA, seed=seed
        ),
        "Adaptive": of(Blocks()),
        "consistent tree (bound)": of(Hierarchy(16, prune=0)),
        "ToPS, blocks of 16 (bound)": of(Hierarchy(16, prune=1), fastdp.smoothers.Recent()),
    }


def aligned_ranges(count: int) -> Iterator[dict[str, Any]]:
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
            hits += [covered(each, truth, edges[first], edges[last]) for each in (release, release.revised)]
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
    before = prefix_sums(clipped)
    return np.asarray(before[stops] - before[starts])


def covered(release: Release, truth: Floats, starts: Any, stops: Any) -> float:
    """Share of the ranges whose interval holds the truth."""
    low, high = release.interval(starts, stops)
    return float(np.mean((low <= truth) & (truth <= high)))


def any_place(folder: Path, repetitions: int, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Coverage and width of ranges at any place, of each stream, method, epsilon and longest range."""
    for name in streams.every(folder):
        values, bound, held = streams.extended(name, folder)
        for method, epsilon in itertools.product(methods, EPSILONS):
            found = np.zeros((len(LENGTHS), 6))
            for seed in range(repetitions):
                release = SYSTEMS[method](values, epsilon=epsilon, bound=bound, holdout=held, seed=seed)
                before = prefix_sums(values[release.offset :])
                for row, longest in enumerate(LENGTHS):
                    starts, stops = random_ranges(len(release), QUERIES, longest, seed)
                    clipped = true_sums(release, values, starts, stops)
                    truth = before[stops] - before[starts]
                    revised = release.revised
                    for column, each in enumerate((release, revised)):
                        found[row, column] += covered(each, clipped, starts, stops)
                    found[row, 2] += covered(revised, truth, starts, stops)
                    low, high = revised.interval(starts, stops)
                    answers = revised.sum(starts, stops)
                    found[row, 3] += np.mean((high - low) ** 2) / 4.0
                    found[row, 4:] += [np.mean((answers - sums) ** 2) for sums in (clipped, truth)]
            for longest, (*shares, squared, error, true_error) in zip(LENGTHS, found, strict=True):
                facts = {"stream": name, "half": streams.half(name), "method": method, "epsilon": epsilon}
                facts |= {"longest": longest, "releases": repetitions}
                facts |= dict(zip(COVERED, np.divide(shares, repetitions).tolist(), strict=True))
                yield facts | {"width": (squared / error) ** 0.5, "true_width": (squared / true_error) ** 0.5}
        print(f"  {name}", flush=True)


def percent(share: float) -> str:
    return f"{100.0 * share:.1f}"


def run(
    *,
    output: Annotated[Path | None, "file for the numbers (JSON)"] = None,
    repetitions: Annotated[int, "releases a cell"] = 40,
    aligned: Annotated[int, "ranges of whole blocks of each kind"] = ALIGNED,
    method: Annotated[Sequence[str], "methods", list(SYSTEMS)] = tuple(SYSTEMS),
    data: Data = DATA,
) -> None:
    """Measure, keep, show."""
    warnings.simplefilter("ignore", AccuracyWarning)
    blocks, places = list(aligned_ranges(aligned)), list(any_place(data, repetitions, method))
    found: dict[str, Any] = {"aligned": blocks, "any_place": places}
    if output:
        output.write_text(json.dumps(found, indent=1) + "\n")
    rows = ((row["kind"], percent(row["published"]), percent(row["revised"])) for row in blocks)
    table("Whole blocks: coverage in per cent", ("kind", "published", "revised"), rows)
    low = [row for row in places if min(row["published"], row["revised"]) < 0.94 or row["true"] < 0.9]
    columns = ["stream", "method", "epsilon", "longest", *COVERED]
    title = "Ranges at any place: clipped sums below 94 per cent, or true ones below 90"
    table(title, columns, [[row[name] for name in columns] for row in low])
    print(f"{len(low)} of {len(places)} cells")
