"""Square-wave EM: by the number of bins, which must show linear growth, and whole estimates by epsilon."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.reports import client, output_counts
from fastdp.local.distribution import estimate
from fastdp.local.transition import cell_edges, transition
from fastdp_kernels import square_wave_em

STEPS = 200


class Iteration:
    """The same number of plain steps for every number of bins."""

    params = ((256, 1024, 4096, 16_384),)
    param_names = ("bins",)
    timeout = 120

    def setup(self, bins: int) -> None:
        law = client(1.0).law
        counts = np.add.reduceat(output_counts(1.0), cell_edges(law, bins)[:-1])
        self.reports = transition(law, bins, counts)
        self.theta = np.empty(bins)
        self.time_em(bins)

    def time_em(self, bins: int) -> None:
        self.theta[:] = 1.0 / bins
        square_wave_em.iterate_plain(self.reports, False, -math.inf, STEPS, self.theta)

    def time_ems(self, bins: int) -> None:
        self.theta[:] = 1.0 / bins
        square_wave_em.iterate_plain(self.reports, True, -math.inf, STEPS, self.theta)


class Estimate:
    """From 65,536 reports' counts to the distribution, 1,024 bins."""

    params = ((0.2, 1.0, 2.0), (False, True))
    param_names = ("epsilon", "accelerate")
    timeout = 120

    def setup(self, epsilon: float, accelerate: bool) -> None:
        self.counts = output_counts(epsilon)
        self.time_estimate(epsilon, accelerate)

    def time_estimate(self, epsilon: float, accelerate: bool) -> None:
        estimate(client(epsilon).law, epsilon, self.counts, accelerate=accelerate)

    def track_steps(self, epsilon: float, accelerate: bool) -> int:
        return estimate(client(epsilon).law, epsilon, self.counts, accelerate=accelerate).iterations
