"""Publishers that choose theta by a rule, and the same values through a saved state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from fastdp.perturbers import Hierarchy
from fastdp.releases.release import Release

TREE = Hierarchy(4, prune=1)


def publisher_of(rule: Any, holdout: int, perturber: Any = TREE) -> fastdp.StreamPublisher:
    smoother = fastdp.smoothers.Recent() if perturber == TREE else None
    return fastdp.StreamPublisher(
        threshold=rule, perturber=perturber, smoother=smoother, epsilon=1.0, bound=100,
        holdout=holdout, max_range=256, seed=3,
    )  # fmt: skip


def check_resumed(publisher: fastdp.StreamPublisher, values: np.ndarray, release: Release, folder: Path) -> None:
    """Saved within the hold-out, loaded, continued in chunks that end about its end: the same values."""
    publisher.publish(values[:123])
    publisher.save(folder / "state")
    loaded, m = fastdp.StreamPublisher.load(folder / "state"), publisher.holdout
    rest = [loaded.publish(part) for part in (values[123 : m - 1], values[m - 1 : m + 1], values[m + 1 :])]
    assert (np.concatenate(rest) == release.values).all()
    assert loaded.threshold == release.threshold
