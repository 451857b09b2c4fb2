"""ToPS on real streams: error of 200 random range queries beside the published code's medians."""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np

import fastdp
from benchmarks import sizes
from benchmarks.show.report import table
from benchmarks.streams import DATA, REFERENCE, Floats, hold_out_and_extend
from fastdp.metrics import mse
from fastdp.workloads import random_ranges


class Case(NamedTuple):
    """One row: a stream, a budget, a number of pruned levels."""

    stream: str
    epsilon: float
    prune: int | Literal["optimal"]


class Stream(NamedTuple):
    """A file of real values, their public bound, and their name in the reference."""

    file: str
    bound: int
    reference: str | None


STREAMS = {
    "POS": Stream("pos_length.npz", 1657, "pos"),
    "taxi distance": Stream("green_taxi_streethail_distance_centimiles.npz", 30_000, None),
}
#: The published code's own block lengths on POS: 4096, 4096 and 256.
PUBLISHED_PRUNE = {0.01: 3, 0.05: 3, 0.1: 2}
CASES = [
    *(Case("POS", epsilon, prune) for epsilon, prune in PUBLISHED_PRUNE.items()),
    *(Case("POS", epsilon, "optimal") for epsilon in PUBLISHED_PRUNE),
    Case("taxi distance", 0.05, "optimal"),
    Case("taxi distance", 0.05, 3),
]
#: The factor that the reference's own spread allows.
TOLERANCE = 1.5


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind (default 20)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")
    parser.add_argument(
        "--reference",
        type=Path,
        default=REFERENCE / "dp-cont-accuracy.csv",
        help="the published code's figures (default ../shared/reference/dp-cont-accuracy.csv)",
    )


def run(options: argparse.Namespace) -> None:
    if not options.data.is_dir():
        raise SystemExit("accuracy: the folder of real streams is absent; expected ../shared/data, or --data FOLDER")
    start = perf_counter()
    reference = read_reference(options.reference)
    values = {name: load(options.data, stream) for name, stream in STREAMS.items()}
    rows = [row for case in CASES for row in one_case(case, values[case.stream], options.runs, reference)]
    table(
        f"MSE of 200 random ranges, medians of {options.runs} runs, truth not truncated; "
        f"n = r = 2^20, m = 65,536; {perf_counter() - start:.1f} s",
        ["stream", "eps", "prune", "block", "theta", "MSE", "MSE, retrospective", "Base (zeros)",
         "published theta", "published MSE", "published Base", f"MSE ratio (within {TOLERANCE}?)"],
        rows,
    )  # fmt: skip


def read_reference(path: Path) -> dict[tuple[str, str, float], tuple[float, float]]:
    """Medians of theta and MSE by stream, method and budget; empty if the file is absent."""
    if not path.is_file():
        return {}
    with path.open(newline="") as lines:
        return {
            (row["dataset"], row["method"], float(row["eps"])): (float(row["theta_median"]), float(row["mse_median"]))
            for row in csv.DictReader(lines)
            if row["experiment"] == "end_to_end"
        }


def load(folder: Path, stream: Stream) -> Floats:
    try:
        with np.load(folder / stream.file) as archive:
            values = archive["values"].astype(np.float64)
    except FileNotFoundError:
        raise SystemExit(f"accuracy: {stream.file} is absent from the folder of real streams (--data)") from None
    return hold_out_and_extend(values, sizes.HOLDOUT, sizes.PUBLISHED)


def one_case(
    case: Case, values: Floats, runs: int, reference: dict[tuple[str, str, float], tuple[float, float]]
) -> Iterator[list[str]]:
    stream = STREAMS[case.stream]
    prefix = np.concatenate([[0.0], np.cumsum(values[sizes.HOLDOUT :])])
    thetas, online, retrospective, base = [], [], [], []
    block = 0
    for seed in range(runs):
        release = fastdp.release(
            values,
            case.epsilon,
            stream.bound,
            seed=seed,
            holdout=sizes.HOLDOUT,
            max_range=sizes.MAX_RANGE,
            prune=case.prune,
        )
        starts, stops = random_ranges(sizes.PUBLISHED, sizes.QUERIES, sizes.MAX_RANGE, seed=seed)
        truth = prefix[stops] - prefix[starts]
        block = release.block
        thetas.append(release.threshold)
        online.append(mse(truth, release.range_sum(starts, stops)))
        retrospective.append(mse(truth, release.range_sum(starts, stops, retrospective=True)))
        base.append(mse(truth, np.zeros(truth.size)))
    measured = statistics.median(online)
    row = [case.stream, f"{case.epsilon:g}", str(case.prune), f"{block:,}", f"{statistics.median(thetas):.4g}"]
    row += [f"{statistics.median(errors):.3g}" for errors in (online, retrospective, base)]
    # The published code prunes as in PUBLISHED_PRUNE; other block lengths have no counterpart there.
    like = case.prune == PUBLISHED_PRUNE.get(case.epsilon) and stream.reference is not None
    published = reference.get((stream.reference or "", "ToPS", case.epsilon)) if like else None
    zeros = reference.get((stream.reference or "", "Base", case.epsilon)) if like else None
    if published is None or zeros is None:
        yield [*row, "-", "-", "-", "-"]
        return
    ratio = measured / published[1]
    verdict = "yes" if 1 / TOLERANCE <= ratio <= TOLERANCE else "NO"
    yield [*row, f"{published[0]:.4g}", f"{published[1]:.3g}", f"{zeros[1]:.3g}", f"{ratio:.2f} ({verdict})"]
