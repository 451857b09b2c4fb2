"""Inputs of tasks: endless streams, ledgers, noise trees, hold-outs of smooth sensitivity, reports, points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastdp
from benchmarks import shared
from benchmarks.shared import DATA, Floats, item_counts
from fastdp import PHDStream, local
from fastdp.guarantee import Guarantee
from fastdp.ledger import Entry, Ledger
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.hierarchy import HierarchyShape, consistency_weights
from fastdp.points import Box
from fastdp.thresholds import PAKQuantile
from fastdp.thresholds.quantile import calibrate, decay_table
from fastdp_kernels.streams import hierarchy_nodes
from fastdp_lab.datasets import concentric_circles


@dataclass(frozen=True)
class Tree:
    """Independent node noise of an unpruned tree, the leaf level first."""

    shape: HierarchyShape
    nodes: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def make(cls, fan_out: int, leaves: int) -> Tree:
        """A tree with noise of about 2^26 steps a node."""
        shape = Hierarchy(fan_out=fan_out, prune=0).plan(1.0, leaves)
        noise = np.random.default_rng(1).integers(-(2**26), 2**26, shape.nodes)
        return cls(shape, noise, consistency_weights(shape))

    def copy(self) -> Tree:
        return Tree(self.shape, self.nodes.copy(), self.weights)

    def make_consistent(self) -> None:
        """In place.  A second call costs the same as the first, though it changes nothing."""
        shape = self.shape
        hierarchy_nodes.make_consistent(self.nodes[None], shape.tops, shape.fan_out, shape.levels, self.weights)

    def _levels(self) -> list[NDArray[np.int64]]:
        widths = [self.shape.leaves // self.shape.fan_out**level for level in range(self.shape.levels)]
        return np.split(self.nodes, np.cumsum(widths)[:-1])

    def float_levels(self) -> list[Floats]:
        """The levels as separate float arrays, for the NumPy peer."""
        return [part.astype(np.float64) for part in self._levels()]

    def breadth_first(self) -> NDArray[np.int64]:
        """A root of 0, then the levels from the top: OpenDP's order."""
        return np.concatenate([np.zeros(1, np.int64), *self._levels()[::-1]])


class QuantileTask(NamedTuple):
    """Arguments of the kernels of the smooth sensitivity."""

    values: NDArray[np.int64]
    bound: int
    rank: int
    decay: Floats


def pos_holdout() -> Floats:
    """65,536 values of BMS-POS where the file is at hand, else a stream with about its quantiles."""
    path = DATA / "pos_length.npz"
    if not path.exists():
        return item_counts(shared.HOLDOUT)
    with np.load(path) as file:
        values: Floats = file["values"][: shared.HOLDOUT].astype(np.float64)
    return values


def pos() -> QuantileTask:
    """BMS-POS at eps = .05, a grid step of 2^-20."""
    return _at_quantile((np.sort(pos_holdout()) * 2.0**20).astype(np.int64), shared.BOUND * 2**20)


def worst() -> QuantileTask:
    """Differences D (1 + b (j - i)), b = 10^-12: all pairs lie within rounding of the best, none is left out."""
    b, spread, half = 1e-12, 2**49, shared.HOLDOUT // 2
    step = round(spread * b)
    low = np.arange(half - 1) * step
    values = np.concatenate([low, spread + low[-1] + np.arange(1, half + 2) * step])
    return QuantileTask(values, 2**50, half + 1, decay_table(b, values.size))


def _at_quantile(values: NDArray[np.int64], bound: int) -> QuantileTask:
    # b of Laplace noise at the papers' eps and delta.
    b = calibrate("laplace", shared.EPSILON, 1.0 / (shared.HOLDOUT + shared.PUBLISHED) ** 2, 2.0).b
    return QuantileTask(values, bound, round(0.995 * values.size), decay_table(b, values.size))


HOLDOUTS = {"POS": pos, "worst": worst}


@lru_cache(maxsize=4)
def client(epsilon: float) -> local.SquareWave:
    return local.SquareWave(epsilon, low=0.0, high=float(shared.BOUND))


@lru_cache(maxsize=4)
def output_counts(epsilon: float) -> NDArray[np.int64]:
    """How often the users of a hold-out reported each output of the square wave."""
    users = client(epsilon)
    return np.bincount(users.perturb(pos_holdout(), seed=1), minlength=users.distribution.outputs)


def endless_pak(holdout: int = shared.HOLDOUT) -> fastdp.PAK:
    """A publisher for a stream so long that it has no end here."""
    rule = PAKQuantile(delta=1e-12)
    return fastdp.PAK(shared.EPSILON, 1e-12, shared.BOUND, 2**33, holdout=holdout, threshold=rule)


def circles(n: int, seed: int) -> Floats:
    """Points on two concentric circles."""
    return concentric_circles(max(n, 1), deletion=False, seed=seed).points[:n]


def started(present: int, depth: int, system: Any = PHDStream) -> Any:
    """A stream of points that has consumed so many in its first batch."""
    stream = system(Box([-1.25] * 2, [1.25] * 2), 1.0, max_depth=depth, seed=1)
    stream.advance(circles(present, 0))
    return stream


# Endless streams, and ledgers.

LENGTH = shared.HOLDOUT + shared.PUBLISHED


def begun(publisher: Any) -> Any:
    """The publisher, which has chosen its threshold and made its tree."""
    publisher.publish(item_counts(shared.HOLDOUT))
    publisher.publish(item_counts(4096))
    return publisher


GUARANTEE = Guarantee(epsilon=1e-6)


def fill(ledger: Ledger, first: int, stop: int) -> None:
    """Record releases of one stream in one transaction."""
    with ledger._store.transaction(write=True) as state:
        for _ in range(first, stop):
            release = Entry(0, "", "meter", GUARANTEE, None, None, None, None, "", "spent")
            state.append({"kind": "spend", **release.to_line()})
    # Moves them from the log to the file.
    ledger.close()
