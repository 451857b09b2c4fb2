"""ToPL's theta beside the best one: expected square errors of ranges, by default and by the paper's rule."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks import shared
from benchmarks.accuracy import streams
from benchmarks.shared import DATA, Data, Floats, Runs, geometric, table
from fastdp import local
from fastdp.noise import Key
from fastdp.thresholds import SquareWave, ThresholdTask
from fastdp_lab.queries import random_ranges

EPSILONS = (0.5, 1.0, 2.0)
RULES = {"default": SquareWave(scale="logarithmic", method="concave"), "paper's SW-W": SquareWave()}
#: Ranges, and thetas among which the best is found.
RANGES, THETAS = 1000, 70


def cells(name: str, runs: int, data: Data) -> dict[tuple[str, float], float]:
    """Errors over those of the best theta, medians of runs, by rule and epsilon (of both groups of users)."""
    values, bound, m = streams.extended(name, data)
    held, body = values[:m], values[m:]
    starts, stops = random_ranges(body.size, RANGES, shared.MAX_RANGE, 5)
    thetas = np.geomspace(max(np.median(body), 1.0), bound, THETAS)
    cut = [shared.prefix_sums((body - theta).clip(0.0)) for theta in thetas]
    squares = np.array([np.mean((each[stops] - each[starts]) ** 2) for each in cut])
    found = {}
    for (rule_name, rule), epsilon in itertools.product(RULES.items(), EPSILONS):
        noise = shared.MAX_RANGE / 3 * local.Hybrid(epsilon, 0.0, 1.0).worst_variance

        def error(theta: Floats | float, noise: float = noise) -> Floats:
            return noise * np.square(theta) + np.interp(theta, thetas, squares)

        task = ThresholdTask(epsilon, bound, m, shared.MAX_RANGE, bound / 2**20)
        client = rule.client(task)
        reports = [client.perturb(held, key=Key.from_seed(seed), start=0) for seed in range(runs)]
        counts = [np.bincount(each, minlength=client.distribution.outputs) for each in reports]
        chosen = [rule.choose_from(rule.estimate(client, each), task) for each in counts]
        found[rule_name, epsilon] = float(np.median(error(np.array(chosen))) / error(thetas).min())
    return found


def run(*, runs: Runs = 5, data: Data = DATA) -> None:
    results = {name: cells(name, runs, data) for name in [*streams.every(data), *streams.GROWTHS]}
    groups = {name: "growing" if name in streams.GROWTHS else streams.half(name) for name in results}
    rows = [[name, groups[name], *found.values()] for name, found in results.items()]
    for group in (streams.TUNING, streams.REPORTING, "growing"):
        own = np.array([list(found.values()) for name, found in results.items() if groups[name] == group])
        rows.append([f"all {group}", group, *(f"{geometric(r):.2f} ({r.max():.3g})" for r in own.T)])
    columns = [f"{rule}, {epsilon:g}" for rule, epsilon in itertools.product(RULES, EPSILONS)]
    table(
        "Expected square error over that of the best theta; groups: geometric mean (largest)",
        ["", "", *columns],
        rows,
    )
