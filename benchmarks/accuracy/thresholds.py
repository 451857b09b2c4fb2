"""Ways to choose theta under one hierarchy (ToPS section 5.4, Figures 6 and 7), beside the published code."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from benchmarks import shared
from benchmarks.accuracy import scenes
from benchmarks.accuracy.scenes import (
    Errors,
    Method,
    Scene,
    hat,
    medians,
    noisy_max_for,
    ratio,
    read,
    repeat,
    shown_theta,
)
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import DATA, Data, Runs, table
from fastdp.smoothers import Recent
from fastdp.thresholds import PAKQuantile, SmoothQuantile, Threshold, TruePercentile

RANGE_EPSILON = shared.EPSILON
EPSILONS = (0.01, 0.05, 0.1)
PERCENTILES = (0.85, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999)
#: The quantile that the published code aims at, for both rules.
TARGET = 0.995
EXPERIMENT = f"ell_est range_eps={RANGE_EPSILON:g}"


class Rule(NamedTuple):
    """A way to choose theta: its name here, its name in the reference (if it is there), and the rule."""

    name: str
    published: str | None
    threshold: Threshold


def private_rules(epsilon: float) -> list[Rule]:
    """The rules of Figure 7; without the clip as in the published code, with it as fastdp publishes."""
    return [
        Rule("NM-E", "NM-E", noisy_max_for(RANGE_EPSILON, epsilon)),
        Rule("NM-E, exponential noise", None, noisy_max_for(RANGE_EPSILON, epsilon, noise="exponential")),
        Rule("S-P, theta <= B", None, SmoothQuantile(p=TARGET)),
        Rule("S-P", "S-P", SmoothQuantile(p=TARGET, clip=False)),
        Rule("S-PAK, theta <= B", None, PAKQuantile(p=TARGET)),
        Rule("S-PAK", "S-PAK", PAKQuantile(p=TARGET, clip=False)),
    ]


def true_percentiles() -> list[Rule]:
    return [Rule(f"true {100 * p:g} % (NOT PRIVATE)", None, TruePercentile(p)) for p in PERCENTILES]


def under_hat(rule: Rule) -> Method:
    return Method(rule.name, rule.threshold, hat(RANGE_EPSILON), Recent(), range_epsilon=RANGE_EPSILON)


def run(
    *,
    runs: Runs = 20,
    thetas: Annotated[int, "draws of each theta"] = 400,
    data: Data = DATA,
    streams: Annotated[Sequence[str], "real streams", list(STREAMS)] = tuple(STREAMS),
    epsilons: Annotated[Sequence[float], "budgets of theta"] = EPSILONS,
    reference: scenes.Reference = scenes.ACCURACY,
    thresholds: Annotated[Path, "the published code's thetas"] = scenes.THRESHOLDS,
) -> None:
    errors, known = read(reference), read(thresholds)
    names = [name for name in streams if STREAMS[name].there(data)]
    if not names:
        raise SystemExit(f"thresholds: no real stream in {data}; expected ../shared/data, or --data FOLDER")
    for name in names:
        scene, rows = Scene.load(data, name), []
        rules = [(rule, epsilon, thetas) for epsilon in epsilons for rule in private_rules(epsilon)]
        rules += [(rule, RANGE_EPSILON, 1) for rule in true_percentiles()]
        for rule, epsilon, draws in rules:
            drawn = [scene.theta(rule.threshold, epsilon, seed) for seed in range(draws)]
            found = medians(repeat(scene, under_hat(rule), epsilon, runs))
            # In the thetas' file NM-E prepares for the hierarchy's budget; the other rules do not look at it.
            experiment = "theta range_eps=0.05" if rule.published == "NM-E" else "theta eps=range_eps"
            key = rule.published or "", epsilon
            chosen, there = (
                known.get((scene.reference, experiment, *key)),
                errors.get((scene.reference, EXPERIMENT, *key)),
            )
            spread = [shown_theta(theta) for theta in (statistics.median(drawn), min(drawn), max(drawn))]
            budget = "-" if isinstance(rule.threshold, TruePercentile) else f"{epsilon:g}"
            rows.append([rule.name, budget, *spread, chosen and shown_theta(chosen.theta), *_errors(found, there)])
        zeros = medians(repeat(scene, Method("Base"), RANGE_EPSILON, runs))
        there = errors.get((scene.reference, EXPERIMENT, "Base", RANGE_EPSILON))
        rows.append(["Base (zeros)", *[None] * 5, *_errors(zeros, there)])
        title = (
            f"{name}, B = {scene.bound:,}: {thetas} draws of theta; errors of 200 random ranges, medians of {runs} "
        )
        title += f"runs under H_16^c, prune 3, Recent, eps = {RANGE_EPSILON:g}; n = r = 2^20, m = 65,536"
        columns = ["threshold", "eps", "theta", "least", "most", "published theta", "MSE", "published MSE", "ratio"]
        table(title, [*columns, "MAE"], rows)


def _errors(found: Errors, there: scenes.Published | None) -> list[str | None]:
    theirs = None if there is None else there.mse
    return [f"{found.mse:.3g}", theirs and f"{theirs:.3g}", ratio(found.mse, theirs), f"{found.mae:.3g}"]
