"""Real streams and methods of ToPS section 5 on them: theta, then a release under it, then the error of ranges.

The two phases see disjoint values, so theta can be chosen once under one budget and used under another, and a
theta beyond the bound can be carried over: the published code does both.  With one budget and a theta within the
bound this is, bit for bit, what :class:`fastdp.StreamPublisher` releases
(``tests/streams/test_methods_agree.py``).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, NamedTuple

import numpy as np

import fastdp
import fastdp_lab
from benchmarks import shared
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import REFERENCE, Floats, prefix_sums
from fastdp.noise.key import Binding, Key
from fastdp.perturbers import Hierarchy, Perturber
from fastdp.smoothers import Smoother
from fastdp.thresholds import Chooser, Fixed, NoisyMax, Threshold, ThresholdTask
from fastdp.thresholds.base import held_out
from fastdp_lab.datasets import hold_out_and_extend
from fastdp_lab.queries.metrics import mae, mmae, mmse, mse
from fastdp_lab.queries.workloads import random_ranges

#: The factor that the reference's own spread allows.
TOLERANCE = 1.5
Reference = Annotated[Path, "the published code's figures"]
ACCURACY, THRESHOLDS = (REFERENCE / f"dp-cont-{name}.csv" for name in ("accuracy", "thresholds"))


class Published(NamedTuple):
    """Medians of the published code, for one stream, experiment, method and budget."""

    theta: float
    mse: float
    #: Share of its thetas above the bound.
    above: float = float("nan")


Table = dict[tuple[str, str, str, float], Published]


def read(path: Path) -> Table:
    """Medians by stream, experiment, method and budget; empty if the file is absent."""
    if not path.is_file():
        return {}
    with path.open(newline="") as lines:
        return {
            (row["dataset"], row["experiment"], row["method"], float(row["eps"])): Published(
                float(row["theta_median"]),
                *(float(row.get(column) or "nan") for column in ("mse_median", "frac_gt_B")),
            )
            for row in csv.DictReader(lines)
        }


def ratio(measured: float, published: float | None) -> str:
    return "-" if published is None else f"{measured / published:.2f}"


def shown_theta(theta: float) -> str:
    """Whole units from 100; a rule that falls below 0 gives one step of the grid."""
    if theta < 1e-3:
        return "one step" if theta else "0"
    return f"{theta:,.0f}" if theta >= 100.0 else f"{theta:.4g}"


H_2 = Hierarchy(2, consistent=False, prune=0)
H_16 = Hierarchy(16, consistent=False, prune=0)
H_16C = Hierarchy(16, prune=0)


def noise_key(seed: int) -> Key:
    """A key that is bound to no composition's parameters: the two phases of a release have one."""
    return Key(Key.from_seed(seed).reveal(), simulated=True, binding=Binding.COMPOSITION)


def published_prune(epsilon: float) -> int:
    """Levels that the published code prunes at r = 2^20: blocks of 4,096 up to epsilon = .05, of 256 above."""
    return 3 if epsilon <= 0.05 else 2


def hat(epsilon: float) -> Hierarchy:
    """H_16^c pruned as the published code prunes it (the paper's hat)."""
    return Hierarchy(16, prune=published_prune(epsilon))


def noisy_max_for(range_epsilon: float, epsilon: float, **options: str) -> NoisyMax:
    """NM-E with budget ``epsilon`` that prepares for a hierarchy with ``range_epsilon``.

    Eq. 6 has one epsilon; the one in its noise term is the hierarchy's, and enters as c epsilon.
    """
    return NoisyMax(c=60.0 * range_epsilon / epsilon, **options)  # type: ignore[arg-type]


class Errors(NamedTuple):
    """One run: theta, the paper's four metrics, and seconds for choosing theta and publishing."""

    theta: float
    mse: float
    mae: float
    mmse: float
    mmae: float
    seconds: float


@dataclass
class Scene:
    """A stream with its hold-out taken first and the rest extended by reflection."""

    name: str
    bound: float
    values: Floats
    holdout: int = shared.HOLDOUT
    max_range: int = shared.MAX_RANGE
    _choosers: dict[tuple[Threshold, float], Chooser] = field(default_factory=dict, repr=False)
    _prefixes: dict[float, Floats] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, folder: Path, name: str, published: int = shared.PUBLISHED) -> Scene:
        values = hold_out_and_extend(STREAMS[name].values(folder), shared.HOLDOUT, published)
        return cls(name, STREAMS[name].bound, values)

    @property
    def reference(self) -> str:
        """The stream's name in the reference; empty if it has none."""
        return STREAMS[self.name].reference

    @property
    def body(self) -> Floats:
        """The values to publish."""
        return self.values[self.holdout :]

    def prefix(self, ceiling: float = np.inf) -> Floats:
        """Prefix sums of the published part, values above ``ceiling`` cut off."""
        if ceiling not in self._prefixes:
            self._prefixes[ceiling] = prefix_sums(np.minimum(self.body, ceiling))
        return self._prefixes[ceiling]

    def theta(self, rule: Threshold, epsilon: float, seed: int) -> float:
        """Theta as ``rule`` chooses it from the hold-out, which is collected once."""
        chooser = self._choosers.get((rule, epsilon))
        if chooser is None:
            public = {"epsilon": epsilon, "bound": self.bound, "max_range": self.max_range, "holdout": self.holdout}
            publisher = fastdp.StreamPublisher(threshold=rule, perturber=H_16C, seed=0, **public)
            chooser = rule.start(ThresholdTask(**public, resolution=publisher.resolution))
            chooser.observe(self.values[: self.holdout])
            self._choosers[rule, epsilon] = chooser
        # A chooser chooses once: it may sort what it holds, and so pack it otherwise.
        return chooser.copy().choose(held_out(noise_key(seed), chooser.pack()))

    def release(
        self, theta: float, perturber: Perturber, smoother: Smoother | None, epsilon: float, seed: int
    ) -> fastdp.Release:
        """The published part under a theta at hand; beyond the bound, the grid reaches up to theta."""
        parts = {"threshold": Fixed(theta), "perturber": perturber, "smoother": smoother}
        public = {"epsilon": epsilon, "bound": max(self.bound, theta), "max_range": self.max_range}
        return fastdp.StreamPublisher(**parts, **public, key=noise_key(seed)).release(self.body)


class Method(NamedTuple):
    """A row or a curve; no perturber means Base (zeros), no smoother a perturber that releases every value.

    ``truncated``: errors against values cut off at theta, as in section 5.3.  ``range_epsilon``: the perturber's
    budget where it is not the threshold's, as in section 5.4.
    """

    name: str
    threshold: Threshold | None = None
    perturber: Perturber | None = None
    smoother: Smoother | None = None
    truncated: bool = False
    range_epsilon: float | None = None


def run(scene: Scene, method: Method, epsilon: float, seed: int) -> Errors:
    """One release and its answers to 200 random ranges."""
    n = scene.body.size
    starts, stops = random_ranges(n, shared.QUERIES, scene.max_range, seed)
    begin = perf_counter()
    theta = 0.0 if method.threshold is None else scene.theta(method.threshold, epsilon, seed)
    if method.perturber is None:
        release = fastdp_lab.baselines.Zeros().release(scene.body)
    else:
        budget = epsilon if method.range_epsilon is None else method.range_epsilon
        release = scene.release(theta, method.perturber, method.smoother, budget, seed)
    seconds = perf_counter() - begin
    prefix = scene.prefix(theta if method.truncated else np.inf)
    truth, answers, lengths = prefix[stops] - prefix[starts], release.sum(starts, stops), stops - starts
    means = [metric(truth, answers, lengths) for metric in (mmse, mmae)]
    return Errors(theta, mse(truth, answers), mae(truth, answers), *means, seconds)


def repeat(scene: Scene, method: Method, epsilon: float, runs: int) -> Floats:
    """Runs with seeds 0, 1, ...: float64[runs, 6], columns as in :class:`Errors`."""
    return np.array([run(scene, method, epsilon, seed) for seed in range(runs)])


def medians(rows: Floats) -> Errors:
    return Errors(*np.median(rows, axis=0).tolist())
