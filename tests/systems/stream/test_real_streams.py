"""ToPS on the real streams, against the medians of the authors' published code (skipped where they are absent)."""

from __future__ import annotations

import numpy as np
import pytest

import fastdp
from tests.shared import real_stream

HOLDOUT, LENGTH, RUNS = 65_536, 2**20, 20


def load(name: str) -> np.ndarray:
    values = real_stream(name)
    # The hold-out first; then the rest forward, backward, forward, ... so that no held-out value reappears.
    rest, parts, size = values[HOLDOUT:], [], 0
    while size < LENGTH:
        parts.append(rest if len(parts) % 2 == 0 else rest[::-1])
        size += rest.size
    return np.concatenate([values[:HOLDOUT], np.concatenate(parts)[:LENGTH]])


def run(values: np.ndarray, bound: float, epsilon: float, prune: int | str) -> tuple[float, float, float]:
    """Medians of MSE, MSE of publishing zeros, and theta."""
    prefix = np.concatenate([[0.0], np.cumsum(values[HOLDOUT:])])
    rows = []
    for seed in range(RUNS):
        release = fastdp.ToPS(epsilon, bound, HOLDOUT, LENGTH, prune=prune, seed=seed).release(values)
        starts, stops = fastdp.workloads.random_ranges(LENGTH, 200, LENGTH, seed)
        truth = prefix[stops] - prefix[starts]
        answers = release.range_sum(starts, stops)
        rows.append((fastdp.metrics.mse(truth, answers), fastdp.metrics.mse(truth, 0 * truth), release.threshold))
    error, base, theta = np.median(np.array(rows), axis=0)
    return float(error), float(base), float(theta)


@pytest.mark.parametrize(
    ("epsilon", "prune", "reference", "theta_reference"),
    [(0.01, 3, 2.0e9, 46), (0.05, 3, 1.65e8, 62), (0.1, 2, 1.5e8, 69)],
)
def test_pos_agrees_with_the_published_code(
    epsilon: float, prune: int, reference: float, theta_reference: float
) -> None:
    error, base, theta = run(load("pos_length"), 1657, epsilon, prune)
    assert reference / 1.5 < error < reference * 1.5
    assert abs(theta - theta_reference) <= 5
    assert 8e12 < base < 1.3e13
    assert error < base / 1000


def test_pos_threshold_takes_five_levels_not_six() -> None:
    """Eq. 6 with log_b r = 5 (medians 46 / 62 / 69 of 1,000 runs); the published code's 6 gives 44 / 58 / 66."""
    values = load("pos_length")[:HOLDOUT]
    medians = []
    for epsilon in (0.01, 0.05, 0.1):
        thetas = []
        for seed in range(400):
            publisher = fastdp.ToPS(epsilon, 1657, HOLDOUT, LENGTH, seed=seed)
            publisher.publish(values)
            thetas.append(publisher.threshold)
        medians.append(float(np.median(thetas)))
    assert medians == pytest.approx([46, 62, 69], abs=1.5)


def test_taxi_distances_are_published_usefully() -> None:
    error, base, theta = run(load("green_taxi_streethail_distance_centimiles"), 30_000, 0.05, "optimal")
    assert error < base / 50
    assert 500 < theta < 10_000
