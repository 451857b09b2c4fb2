"""Ways to choose theta under one hierarchy (ToPS section 5.4, Figures 6 and 7), beside the published code."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from benchmarks import shared
from benchmarks.accuracy import reference
from benchmarks.accuracy.reference import ratio, shown, shown_theta
from benchmarks.accuracy.scenes import STREAMS, Method, Scene, hat, medians, noisy_max_for, repeat
from benchmarks.shared import REFERENCE, add_data_option, table
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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind (default 20)")
    parser.add_argument("--thetas", type=int, default=400, help="draws of each theta (default 400)")
    add_data_option(parser)
    parser.add_argument("--streams", nargs="+", choices=list(STREAMS), default=list(STREAMS), metavar="NAME",
                        help=f"among {', '.join(STREAMS)} (default: all whose file is there)")  # fmt: skip
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS, help="budgets of theta")
    reference.add_option(parser)
    parser.add_argument(
        "--thresholds",
        type=Path,
        default=REFERENCE / "dp-cont-thresholds.csv",
        help="the published code's thetas (default ../shared/reference/dp-cont-thresholds.csv)",
    )


def run(options: argparse.Namespace) -> None:
    errors, thetas = reference.read(options.reference), reference.read(options.thresholds)
    names = [name for name in options.streams if (options.data / STREAMS[name].file).is_file()]
    if not names:
        raise SystemExit(f"thresholds: no real stream in {options.data}; expected ../shared/data, or --data FOLDER")
    for name in names:
        start = perf_counter()
        scene = Scene.load(options.data, name)
        rows = list(_lines(scene, options, errors, thetas))
        table(
            f"{name}, B = {scene.bound:,}: {options.thetas} draws of theta; errors of 200 random ranges, medians of "
            f"{options.runs} runs under H_16^c, prune 3, Recent, eps = {RANGE_EPSILON:g}; n = r = 2^20, m = 65,536; "
            f"{perf_counter() - start:.0f} s",
            ["threshold", "eps", "theta", "least", "most", "published theta", "MSE", "published MSE", "ratio",
             "MAE"],
            rows,
        )  # fmt: skip


def _lines(
    scene: Scene, options: argparse.Namespace, errors: reference.Table, thetas: reference.Table
) -> Iterator[list[str]]:
    runs, draws = options.runs, options.thetas
    for epsilon in options.epsilons:
        for rule in private_rules(epsilon):
            # In the thetas' file NM-E prepares for the hierarchy's budget; the other rules do not look at it.
            experiment = "theta range_eps=0.05" if rule.published == "NM-E" else "theta eps=range_eps"
            key = (scene.reference, rule.published or "", epsilon)
            chosen = thetas.get((key[0], experiment, *key[1:]))
            published = errors.get((key[0], EXPERIMENT, *key[1:]))
            yield _line(scene, rule, epsilon, runs, draws, chosen, published)
    for rule in true_percentiles():
        yield _line(scene, rule, RANGE_EPSILON, runs, 1, None, None)
    zeros = medians(repeat(scene, Method("Base"), RANGE_EPSILON, runs))
    published = errors.get((scene.reference, EXPERIMENT, "Base", RANGE_EPSILON))
    yield ["Base (zeros)", "-", "-", "-", "-", "-", *_errors(zeros.mse, published, zeros.mae)]


def _line(
    scene: Scene,
    rule: Rule,
    epsilon: float,
    runs: int,
    draws: int,
    chosen: reference.Published | None,
    published: reference.Published | None,
) -> list[str]:
    drawn = [scene.theta(rule.threshold, epsilon, seed) for seed in range(draws)]
    measured = medians(repeat(scene, under_hat(rule), epsilon, runs))
    spread = [shown_theta(theta) for theta in (statistics.median(drawn), min(drawn), max(drawn))]
    budget = "-" if isinstance(rule.threshold, TruePercentile) else f"{epsilon:g}"
    theirs = "-" if chosen is None else shown_theta(chosen.theta)
    return [rule.name, budget, *spread, theirs, *_errors(measured.mse, published, measured.mae)]


def _errors(measured: float, published: reference.Published | None, absolute: float) -> list[str]:
    theirs = None if published is None else published.mse
    return [shown(measured), shown(theirs), ratio(measured, theirs), shown(absolute)]
