"""PAK and the plain binary tree on real streams: what the tables and figures of PAK's evaluation share.

Parameters come from the first m values by ``fastdp_lab.planning.optimise_pak``, as in the paper: an evaluation on
public data, not a private release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.paper.pak_tables import DELTA, P_MAX, PAPER, REAL, SampleSensitivity, best
from benchmarks.shared import Floats
from fastdp.thresholds import Fixed
from fastdp_lab import planning
from fastdp_lab.datasets import hold_out_and_extend
from fastdp_lab.planning import Optimum


@dataclass(frozen=True, eq=False)
class Stream:
    """Values with their unit and public bound; equal to itself only, so that results can be remembered."""

    name: str
    unit: str
    bound: float
    values: Floats


@dataclass(frozen=True)
class Runs:
    """Errors of the sum at step n, by run; in units of a value.

    ``clipped`` is the part of PAK's error that comes from clipping at r tau, below 0.
    """

    optimum: Optimum
    pak: Floats
    plain: Floats
    thresholds: Floats
    clipped: Floats

    @property
    def factor_of_means(self) -> float:
        return float(np.mean(np.abs(self.plain)) / np.mean(np.abs(self.pak)))


def load(folder: Path) -> list[Stream]:
    """Smart meters, taxis, and POS extended by reflection as in ToPS; SystemExit names what is absent."""
    streams = []
    for name, file, unit, bound in (*REAL, ("POS", "pos_length.npz", "items", float(shared.BOUND))):
        path = folder / file
        if not path.exists():
            raise SystemExit(f"{file} is absent from the folder of real streams; expected ../shared/data or --data")
        with np.load(path) as archive:
            values = archive["values"].astype(np.float64)
        if name == "POS":
            values = hold_out_and_extend(values, shared.HOLDOUT, shared.PUBLISHED)
        streams.append(Stream(name, unit, bound, values))
    return streams


def synthetic() -> list[Stream]:
    """Streams of the distributions that Tables I and II suggest (``pak_tables``), the trains' cut to 2^21 values."""
    streams = []
    for k, (name, (unit, quantile, bound, n, _)) in enumerate(PAPER.items()):
        sample = np.random.default_rng(k).exponential(quantile / -math.log(P_MAX), min(n, 2**21))
        streams.append(
            Stream(f"{name.partition(', ')[2]} (synthetic)", unit, bound, np.minimum(np.rint(sample), bound))
        )
    return streams


def optimise(stream: Stream, m: int, epsilon: float) -> Optimum:
    """Section VI-A with the first m values as the distribution and for the smooth sensitivity."""
    first = np.sort(stream.values[:m])
    exact = SampleSensitivity(first, stream.bound)
    return best(planning.sample_quantile(first), exact, stream.values.size, m, stream.bound, epsilon=epsilon)


@lru_cache(maxsize=32)
def plain_errors(stream: Stream, epsilon: float, runs: int) -> Floats:
    """Errors of the plain binary tree over the whole stream, noise scaled to B."""
    errors, truth = np.empty(runs), float(stream.values.sum())
    for seed in range(runs):
        tree = fastdp.PAK(
            *(epsilon, DELTA, stream.bound, stream.values.size), threshold=Fixed(stream.bound), seed=f"tree {seed}"
        )
        errors[seed] = tree.publish(stream.values)[-1] - truth
    return errors


def measure(stream: Stream, m: int, epsilon: float, runs: int) -> Runs:
    """Both mechanisms with the best parameters; PAK is the plain tree where the optimiser falls back to it."""
    optimum, truth = optimise(stream, m, epsilon), float(stream.values.sum())
    plain = plain_errors(stream, epsilon, runs)
    if optimum.fallback:
        return Runs(optimum, plain, plain, np.full(runs, stream.bound), np.zeros(runs))
    errors, thresholds, clipped = np.empty(runs), np.empty(runs), np.empty(runs)
    for seed in range(runs):
        publisher = fastdp.PAK(**optimum.arguments(), seed=f"PAK {seed}")
        errors[seed] = publisher.publish(stream.values)[-1] - truth
        thresholds[seed] = publisher.threshold
        clipped[seed] = np.minimum(stream.values, thresholds[seed]).sum() - truth
    return Runs(optimum, errors, plain, thresholds, clipped)


def outlier_bound(runs: Runs, n: int) -> float:
    """The second term of Eq. 16, which bounds the error by clipping."""
    chosen = runs.optimum
    return planning.outlier_error(chosen.quantile, n, chosen.p, chosen.r, chosen.beta_out)
