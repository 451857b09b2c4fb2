"""Noise variance of a random range under H_16^c (theta = 1, r = 2^20, s = 0), in units of 1 / eps^2."""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

from benchmarks import shared
from benchmarks.shared import table
from fastdp.perturbers import Hierarchy
from fastdp.queries.workloads import random_ranges
from fastdp.randomness import Key

#: The design's figure for the consistent hierarchy of fan-out 16.
EXPECTED = 1196.0
#: theta = 1 on a grid of 2^-20: discreteness plays no part.
THETA_STEPS = 2**20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trees", type=int, default=2000, help="independent noise trees (default 2000)")
    parser.add_argument("--ranges", type=int, default=4096, help="random ranges a tree (default 4096)")
    parser.add_argument("--seed", type=int, default=1, help="seed of noise and ranges (default 1)")


def run(options: argparse.Namespace) -> None:
    hierarchy, key = Hierarchy(fan_out=shared.FAN_OUT, prune=0), Key.from_seed(options.seed)
    plan = hierarchy.plan(1.0, shared.MAX_RANGE)
    prefix = np.zeros(plan.leaves + 1, np.int64)
    squares, means = np.empty(options.trees), np.empty(options.trees)
    start = perf_counter()
    for tree in range(options.trees):
        np.cumsum(hierarchy.leaf_noise(plan, THETA_STEPS, 1.0, key, tree), out=prefix[1:])
        starts, stops = random_ranges(
            shared.MAX_RANGE, options.ranges, shared.MAX_RANGE, seed=options.seed * options.trees + tree
        )
        noise = (prefix[stops] - prefix[starts]) / THETA_STEPS
        squares[tree], means[tree] = np.mean(noise**2), np.mean(noise)
    seconds = perf_counter() - start
    root = np.sqrt(options.trees)
    variance, error = float(np.mean(squares)), float(np.std(squares, ddof=1) / root)
    bias, bias_error = float(np.mean(means)), float(np.std(means, ddof=1) / root)
    table(
        f"Noise of random ranges at theta = 1, r = 2^20, fan-out 16, s = 0, eps = 1; "
        f"{options.trees:,} trees of {plan.nodes:,} draws, {options.ranges:,} ranges each, {seconds:.1f} s",
        ["quantity", "value", "standard error", "expected", "standard errors off"],
        [
            ["variance, units of 1/eps^2", f"{variance:.1f}", f"{error:.1f}", f"{EXPECTED:,.0f}",
             f"{(variance - EXPECTED) / error:+.2f}"],
            ["mean, units of 1/eps", f"{bias:.3f}", f"{bias_error:.3f}", "0", f"{bias / bias_error:+.2f}"],
        ],
    )  # fmt: skip
