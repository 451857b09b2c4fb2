"""Streams in steps of [0, THETA_STEPS] that push lengths up and down."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.kernels.adaptive_runs import THETA_STEPS

Stream = Callable[[int, np.random.Generator], np.ndarray]


def _independent(n: int, g: np.random.Generator) -> np.ndarray:
    return np.minimum(g.gamma(2.0, 80.0, n), THETA_STEPS)


def _wandering(n: int, g: np.random.Generator) -> np.ndarray:
    return np.clip(500 + np.cumsum(g.normal(0.0, 8.0, n)), 0, THETA_STEPS)


def _alternating(n: int, g: np.random.Generator) -> np.ndarray:
    """Structure at ever longer scales, so that each length shows the worst at the next."""
    k = 2 ** np.minimum(np.log2(1 + np.arange(n) / 50).astype(np.int64), 12)
    return np.where(np.arange(n) // k % 2, THETA_STEPS, 0)


def _jump(n: int, g: np.random.Generator) -> np.ndarray:
    return np.where(np.arange(n) < n // 2, 0, THETA_STEPS)


STREAMS: dict[str, Stream] = {
    "zero": lambda n, g: np.zeros(n),
    "top": lambda n, g: np.full(n, THETA_STEPS),
    "independent": _independent,
    "wandering": _wandering,
    "alternating": _alternating,
    "jump": _jump,
    "impulses": lambda n, g: np.where(g.random(n) < 0.001, THETA_STEPS, 0),
}


def make_stream(name: str, n: int, seed: int) -> np.ndarray:
    return np.rint(STREAMS[name](n, np.random.default_rng(seed))).astype(np.int64)


def laplace(n: int, scale: float, seed: int) -> np.ndarray:
    """Whole numbers of about this scale; the kernels do not care whence."""
    return np.rint(np.random.default_rng(seed + 10**6).laplace(0.0, scale, n)).astype(np.int64)
