"""Every kind of publisher of values: the table that the rules of ``test_conformance`` run over.

Methods are here by name, a new composition is a row.  No state file names the parts of a user's own (``OWN``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fastdp
from fastdp.data.column import PIECE
from fastdp.perturbers import Blocks, Flat, Hierarchy, Toeplitz
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent
from fastdp.streams import METHODS
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished

Make = Callable[..., Any]
HOLDOUT, LENGTH, LONG = 40, 211, 3 * 1024
COMMON: dict[str, Any] = {"epsilon": 1.0, "bound": 50.0, "holdout": HOLDOUT, "max_range": 64, "seed": 7}
STREAM = np.random.default_rng(3).integers(0, 50, LENGTH).astype(np.float64)
STREAM.flags.writeable = False


class OwnSmoother:
    """The last mean but one."""

    def start(self, first: float, theta: float) -> np.ndarray:
        return np.array([first])

    def step(self, state: np.ndarray, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        both = np.concatenate([state, means])
        return both[-1:].copy(), both[:-1].copy()


class OwnPerturber:
    """A hierarchy that only knows one stream at a time."""

    def __init__(self, inner: Hierarchy) -> None:
        self._inner = inner
        self.released_nodes = inner.released_nodes
        self.plan, self.guarantee, self.noise_constant = inner.plan, inner.guarantee, inner.noise_constant
        self.leaf_noise, self.node_noise = inner.leaf_noise, inner.node_noise


class OwnNoise(Flat):
    """Noise on every value that is drawn before the values exist."""

    def leaf_noise(self, *args: Any, **options: Any) -> Any:
        return super().leaf_noise(*args, **options)


def maker(kind: Any, **options: Any) -> Make:
    """A publisher, with a seed unless it is given a key; an option that is None is left out."""
    usual = {name: value for name, value in {**COMMON, **options}.items() if value is not None}
    return lambda **more: kind(**{**usual, **({"seed": None} if "key" in more else {}), **more})


def composed(perturber: Any = None, smoother: Any = None, threshold: Any = None, **options: Any) -> Make:
    parts = {"threshold": threshold or NoisyMax(), "perturber": perturber or Hierarchy(4, prune=1)}
    return maker(fastdp.StreamPublisher, **parts, smoother=smoother, **options)


def fixed(*parts: Any, theta: float = 20.0, **options: Any) -> Make:
    return composed(*parts, **{"threshold": Fixed(theta), "holdout": 0, **options})


def adaptive(season: float | None = None, **options: Any) -> Make:
    return maker(fastdp.Adaptive, **{"threshold": NoisyMax(), "perturber": Blocks(season=season), **options})


def events(**options: Any) -> Make:
    return maker(fastdp.Adaptive, sensitivity=1.0, bound=None, holdout=None, **options)


def pak(**options: Any) -> Make:
    return maker(fastdp.PAK, delta=1e-6, length=2 * PIECE, max_range=None, **options)


def gaussian(*parts: Any, **options: Any) -> Make:
    return fixed(*parts, delta=1e-6, **options)


def methods(*, of_parts: bool) -> dict[str, Make]:
    """The public methods that are compositions of parts, or the others."""
    kinds = {kind: getattr(fastdp, kind) for kind in METHODS.values()}
    return {name: maker(kind) for name, kind in kinds.items() if issubclass(kind, fastdp.StreamPublisher) is of_parts}


#: Compositions of threshold, perturber and smoother.
STREAMS: dict[str, Make] = {
    **methods(of_parts=True),
    "blocks, fixed": adaptive(threshold=Fixed(20.0), holdout=0),
    "blocks, scale-free": adaptive(threshold=ScaleFree()),
    "events": events(),
    "windows": adaptive(contributions=3),
    "season": adaptive(season=12.0),
    "season of events": events(perturber=Blocks(season=12.0)),
    "ToPS": maker(fastdp.ToPS, fan_out=4, prune=1),
    "ToPS, every value": maker(fastdp.ToPS, fan_out=3, prune=0),
    "ToPS, long blocks": maker(fastdp.ToPS, fan_out=2, prune=3, holdout=1),
    "ToPS, wide": maker(fastdp.ToPS, fan_out=16, prune=1, max_range=256),
    "ToPS, fixed": maker(fastdp.ToPS, fan_out=4, prune=2, threshold=20.0, holdout=0),
    "odd widths": composed(Hierarchy(3, prune=2), Recent()),
    "smoother idle": composed(Hierarchy(4, prune=0), Mean()),
    "two words a draw": fixed(None, Recent(), theta=50.0, resolution=50 / 2**45),
    "held": composed(None, Recent(), Fixed(25.0), holdout=7),
    "fractions": composed(None, Recent(), NoisyMax(noise="exponential", step=0.5, c=5.0)),
    "quantiles": composed(None, Recent(), SmoothQuantile()),
    "quantiles of PAK": composed(None, Recent(), PAKQuantile()),
    "Flat": composed(Flat(), threshold=Fixed(50.0)),
    "Blocks": composed(Blocks()),
    "nodes": fixed(Hierarchy(2, consistent=False, prune=0)),
    "nodes of 3": composed(Hierarchy(3, consistent=False, prune=0)),
    "Toeplitz": composed(Toeplitz(length=100), delta=1e-6),
    "Toeplitz, endless": gaussian(Toeplitz()),
    "Gaussian": composed(Hierarchy(4, prune=1, noise="gaussian"), Recent(), delta=1e-6),
    "Gaussian, flat": gaussian(Flat(noise="gaussian")),
    "Gaussian nodes": gaussian(Hierarchy(2, prune=0, consistent=False, noise="gaussian")),
    "Gaussian blocks": maker(fastdp.Adaptive, threshold=Fixed(20.0), holdout=0, delta=1e-6),
    "mean": composed(None, Mean()),
    "median": composed(None, Median()),
    "moving": composed(None, MovingAverage(3)),
    "exponential": composed(None, Exponential(0.3)),
    "renewed": composed(Hierarchy(4, prune=0), renewal=RenewFromHoldout(1, 20)),
    "renewed, blocks": composed(None, Recent(), renewal=RenewFromHoldout(trees=2, holdout=37), max_range=16),
    "refined": composed(None, Recent(), renewal=RenewFromPublished(0.2)),
    "refined, flat": composed(Flat(), renewal=RenewFromPublished(0.3)),
    "refined, mean": composed(None, Mean(), renewal=RenewFromPublished(0.05, trees=3), max_range=16),
}
OWN: dict[str, Make] = {
    "own smoother": composed(None, OwnSmoother()),
    "own perturber": composed(OwnPerturber(Hierarchy(4, prune=1)), Recent()),
    "own noise": fixed(OwnNoise()),
}
OTHERS: dict[str, Make] = {
    **methods(of_parts=False),
    "PAK": pak(),
    "PAK, all sums": pak(threshold=NoisyMax(), lag_sums=True),
    "PAK, averages": pak(threshold=NoisyMax(), average=7),
    "PAK, average of all": pak(threshold=NoisyMax(), average="all", lag_sums=True),
    "PAK, unclipped": pak(clip=False),
}
PUBLISHERS = {**STREAMS, **OTHERS}
