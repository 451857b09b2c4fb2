"""From the counts of 65,536 square-wave reports to the distribution: fastdp plain and accelerated, NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.peers import numpy_square_wave
from benchmarks.reports import client, output_counts
from fastdp.local.distribution import estimate
from fastdp.local.transition import cell_edges

pytestmark = pytest.mark.benchmark(group="square wave EM: d = 1,024, n = 65,536")

BINS = 1024
EPSILONS = [0.2, 1.0, 2.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("method", ["em accelerated", "em", "ems"])
def test_fastdp(per_item: Any, benchmark: Any, epsilon: float, method: str) -> None:
    law, counts = client(epsilon).law, output_counts(epsilon)
    found = per_item(
        lambda: estimate(law, epsilon, counts, method=method[:3].strip(), accelerate="accelerated" in method), BINS
    )
    benchmark.extra_info["steps"] = found.iterations
    assert found.converged


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_numpy(per_item: Any, benchmark: Any, epsilon: float) -> None:
    law = client(epsilon).law
    matrix = numpy_square_wave.dense_matrix(law, BINS)
    counts = np.add.reduceat(output_counts(epsilon), cell_edges(law, BINS)[:-1])
    tolerance = 1e-3 * math.exp(epsilon)
    theta, steps = per_item(
        lambda: numpy_square_wave.estimate(matrix, counts.astype(np.float64), tolerance, 10_000), BINS, rounds=2
    )
    benchmark.extra_info["steps"] = steps
    same = estimate(law, epsilon, counts, accelerate=False)
    assert abs(same.iterations - steps) <= 1
    assert np.abs(same.frequencies - theta).max() < 1e-6
