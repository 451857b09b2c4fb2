"""Parts by size: draws, consistency, thresholds, reports and EM of the local model."""

from __future__ import annotations

import math

from benchmarks import shared
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import HOLDOUTS, Tree, client, output_counts
from benchmarks.speed.local import plain_steps, report_values
from fastdp import local
from fastdp.local.distribution import estimate
from fastdp.noise import Key, discrete_laplace
from fastdp.thresholds import NoisyMax, ThresholdTask
from fastdp_kernels.streams.threshold_choice import divide_pairs

DRAWS = 2**20


class Sampler:
    """2^20 exact draws, key stream included."""

    params = ([1.0, 1e3, 2.0**22, 2.0**34, 2.0**36, 2.0**40, 2.0**44],)
    param_names = ("scale",)
    timeout = 120

    def setup(self, scale: float) -> None:
        self.time_draws(scale)

    def time_draws(self, scale: float) -> None:
        discrete_laplace(scale, DRAWS)


class Consistency:
    """Linear in the leaves."""

    params = ((2, 4, 16), (2**12, 2**16, 2**20))
    param_names = ("fan_out", "leaves")
    timeout = 120

    def setup(self, fan_out: int, leaves: int) -> None:
        self.tree = Tree.make(fan_out, leaves)
        self.tree.make_consistent()

    def time_make_consistent(self, fan_out: int, leaves: int) -> None:
        self.tree.make_consistent()


class NoisyMaxThreshold:
    """By the number of candidates, the histogram of 65,536 held-out values included."""

    params = ((shared.BOUND, shared.WIDE_BOUND, 2**20),)
    param_names = ("bound",)
    timeout = 120

    def setup(self, bound: int) -> None:
        self.values, self.key = item_counts(shared.HOLDOUT), Key.random()
        self.task = ThresholdTask(shared.EPSILON, float(bound), shared.HOLDOUT, shared.MAX_RANGE, 2.0**-20)
        self.time_choose(bound)

    def time_choose(self, bound: int) -> None:
        chooser = NoisyMax().start(self.task)
        chooser.observe(self.values)
        chooser.choose(self.key)


class SmoothSensitivity:
    """Of a quantile of 65,536 values, by divide and conquer."""

    params = (tuple(HOLDOUTS),)
    param_names = ("holdout",)
    timeout = 120

    def setup(self, holdout: str) -> None:
        self.task = HOLDOUTS[holdout]()
        divide_pairs(*self.task)

    def time_divide(self, holdout: str) -> None:
        divide_pairs(*self.task)


class Reports:
    """2^20 values into reports, random words included; and one."""

    params = (["SquareWave", "StochasticRounding", "Piecewise", "Hybrid"], [0.2, 1.0, 4.0])
    param_names = ("mechanism", "epsilon")
    timeout = 120

    def setup(self, mechanism: str, epsilon: float) -> None:
        self.values = report_values()
        self.client = getattr(local, mechanism)(epsilon, -1.0, 1.0)
        self.client.perturb(self.values)

    def time_reports(self, mechanism: str, epsilon: float) -> None:
        self.client.perturb(self.values)

    def time_one_report(self, mechanism: str, epsilon: float) -> None:
        self.client.perturb(0.3)


class PlainEM:
    """200 plain steps: linear in the bins."""

    params = ((256, 1024, 4096, 16_384),)
    param_names = ("bins",)
    timeout = 120

    def setup(self, bins: int) -> None:
        (self.task,) = plain_steps([bins]).tasks.values()
        self.task()

    def time_em(self, bins: int) -> None:
        self.task()


class Estimate:
    """From 65,536 reports' counts to the distribution, 1,024 bins."""

    params = ((0.2, 1.0, 2.0), (False, True))
    param_names = ("epsilon", "accelerate")
    timeout = 120

    def setup(self, epsilon: float, accelerate: bool) -> None:
        self.counts = output_counts(epsilon)
        self.time_estimate(epsilon, accelerate)

    def time_estimate(self, epsilon: float, accelerate: bool) -> None:
        estimate(client(epsilon).distribution, epsilon, self.counts, accelerate=accelerate)

    def track_steps(self, epsilon: float, accelerate: bool) -> float:
        found = estimate(client(epsilon).distribution, epsilon, self.counts, accelerate=accelerate)
        return found.iterations if found.converged else math.nan
