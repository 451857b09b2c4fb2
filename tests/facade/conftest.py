"""Small publishers that every facade test shares; ``make`` builds a ToPS, ``compose`` a StreamPublisher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastdp

TOPS = {"epsilon": 1.0, "bound": 50, "holdout": 40, "max_range": 64, "fan_out": 4, "prune": 1, "seed": 7}
PARTS = {"epsilon": 1.0, "bound": 50, "max_range": 64, "seed": 7}


@pytest.fixture(scope="session")
def make() -> Callable[..., fastdp.ToPS]:
    def build(**options: Any) -> fastdp.ToPS:
        return fastdp.ToPS(**(TOPS | options))

    return build


@pytest.fixture(scope="session")
def compose() -> Callable[..., fastdp.StreamPublisher]:
    def build(**options: Any) -> fastdp.StreamPublisher:
        parts = {
            "threshold": fastdp.thresholds.Fixed(50.0),
            "perturber": fastdp.perturbers.Hierarchy(fan_out=4, prune=0),
        }
        return fastdp.StreamPublisher(**(PARTS | parts | options))

    return build


@pytest.fixture(scope="session")
def stream() -> np.ndarray:
    """Whole numbers from 0 to 49, which every real dtype holds exactly; longer than hold-out and trees."""
    numbers = np.random.default_rng(3).integers(0, 50, 211).astype(np.float64)
    numbers.flags.writeable = False
    return numbers
