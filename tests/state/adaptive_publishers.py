"""Publishers whose blocks follow the stream, small enough for tests, and a stream that changes its pace."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp.perturbers import Blocks
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, NoisyMax


def stream(n: int = 6000, seed: int = 1) -> np.ndarray:
    generator = np.random.default_rng(seed)
    level = 8.0 + 6.0 * np.sin(np.arange(n) / 300.0)
    return generator.gamma(4.0, level / 4.0)


def make(**options: Any) -> Adaptive:
    """The hold-out's last 64 values are its warm-up."""
    usual = {"epsilon": 2.0, "bound": 200, "holdout": 600, "max_range": 1024, "seed": 4, "threshold": NoisyMax()}
    blocks = Blocks(**{name: options.pop(name) for name in ("focus", "season") if name in options})
    return Adaptive(**{**usual, "perturber": blocks, **options})


def fixed(theta: float = 20.0, **options: Any) -> Adaptive:
    """No hold-out."""
    return make(**{"threshold": Fixed(theta), "holdout": 0, "resolution": 2.0**-16, **options})
