"""Prefix sums under (epsilon, delta) beside jax_privacy, dpcrpy and OpenDP, and a person with many windows.

Errors of prefix sums are mean variances over t = 1 ... T in theta^2, at epsilon = 1, one value protected: in closed
form where there is one (dpcrpy states its own), else over repetitions.  Values a second are those of publishing a
stream, or of drawing its noise; memory is what lives between two values.  Peers that are not installed are left out:
put ``jax_privacy`` and ``dpcrpy`` on the path.  The second table is the standard error of a window's total in bounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastdp
from benchmarks import ROOT
from benchmarks.shared import Floats, table
from fastdp.guarantee import gaussian_loss
from fastdp.perturbers import Flat, Hierarchy, Toeplitz, toeplitz_fit

THETA = 50.0
#: Values that publishers are timed with.
LONG = np.full(2**19, 20.0)
RESULTS = ROOT / "benchmarks" / "results" / "gaussian.json"
#: dpcrpy takes 60 to 120 us a value.
SLOW = 2**15


class Row(NamedTuple):
    """One mechanism."""

    name: str
    guarantee: str
    error: float
    speed: float
    memory: str


def rate(run: Callable[[], Any], values: int, repetitions: int = 3) -> float:
    """Values a second, the best of several."""
    best = math.inf
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return values / best


def ours(length: int, delta: float) -> Iterator[Row]:
    """Publishers of fastdp."""
    values = np.full(length, 20.0)

    def made(part: Any, own: float, seed: int = 0) -> fastdp.StreamPublisher:
        given = {"epsilon": 1.0, "delta": own, "bound": THETA, "max_range": length, "seed": seed}
        return fastdp.StreamPublisher(threshold=THETA, perturber=part, **given)

    def speed(part: Any, own: float) -> float:
        publisher = made(part, own)
        return rate(lambda: publisher.publish(LONG), LONG.size)

    def measured(part: Any, own: float, repetitions: int) -> float:
        squares = []
        for seed in range(repetitions):
            sums = np.cumsum(made(part, own, seed).publish(values) - values) / THETA
            squares.append(np.mean(sums**2))
        return float(np.mean(squares))

    for name, part in (("Toeplitz(length=T)", Toeplitz(length=length)), ("Toeplitz()", Toeplitz())):
        c = made(part, delta).composition
        sigma = float(c.perturber.leaf_law(c.grid.snap(THETA), c.publish_epsilon).sigma) / c.grid.snap(THETA)
        error = sigma**2 * toeplitz_fit.prefix_error(np.array(part.rates), np.array(part.shares), length)
        yield Row(f"fastdp {name}", f"(1, {delta:g})", error, speed(part, delta), f"{part.memory} numbers")
    for name, part, own in (
        ("Hierarchy(prune=0)", Hierarchy(prune=0), 0.0),
        ("the same, Gaussian", Hierarchy(prune=0, noise="gaussian"), delta),
        ("Flat(noise='gaussian')", Flat(noise="gaussian"), delta),
    ):
        error, plan = measured(part, own, 12), made(part, own).plan
        if isinstance(part, Flat):
            error = (length + 1) / 2.0 / made(part, own).composition.publish_epsilon ** 2
        memory = "none" if isinstance(part, Flat) else f"{plan.leaves:,} leaves"
        yield Row(f"fastdp {name}", "1" if not own else f"(1, {delta:g})", error, speed(part, own), memory)


def of_dpcrpy(length: int, delta: float) -> Iterator[Row]:
    """Its mechanisms, whose own variances are averaged."""
    noise = importlib.import_module("dpcrpy.framework.noiMech")
    order = length.bit_length() - 1
    kinds = {
        "binary tree": ("dpcrpy.treeMethods.binMech", "BinMech"),
        "Honaker": ("dpcrpy.treeMethods.honaker", "Honaker"),
        "FDA": ("dpcrpy.bitMethods.fda", "FDA"),
        "AuBCR": ("dpcrpy.bitMethods.aubcr", "AuBCR"),
    }
    laws = {
        "1": lambda: noise.LapNoiMech(epsilon=1.0),
        f"(1, {delta:g})": lambda: noise.GaussNoiMech(sigma0=1.0 / gaussian_loss(1.0, delta)),
    }
    for guarantee, law in laws.items():
        for name, (module, kind) in kinds.items():
            mechanism = getattr(importlib.import_module(module), kind)(kOrder=order, noiMech=law())
            start = time.perf_counter()
            errors = [mechanism.dpRelease(0.4)[1] for _ in range(length)]
            speed = length / (time.perf_counter() - start)
            yield Row(f"dpcrpy {name}", guarantee, float(np.mean(errors)), speed, f"{order + 1} nodes")


def of_opendp(length: int, delta: float) -> Iterator[Row]:
    """Its exact Gaussian noise, value by value."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    # The same concentrated budget; sensitivity 2^32 steps.
    scale = 2.0**32 / gaussian_loss(1.0, delta)
    measurement = dp.m.make_gaussian(*space, scale=scale)
    count = min(length, SLOW)
    zeros = [0] * count
    error = (length + 1) / 2.0 / gaussian_loss(1.0, delta) ** 2
    yield Row("OpenDP make_gaussian", f"(1, {delta:g})", error, rate(lambda: measurement(zeros), count, 1), "none")


def of_jax_privacy(length: int, delta: float) -> Iterator[Row]:
    """Its buffered Toeplitz noise, optimised by itself for either error, drawn in a loop that is compiled."""
    import jax

    jax.config.update("jax_enable_x64", True)
    buffered = importlib.import_module("jax_privacy.matrix_factorization.buffered_toeplitz")
    for error in ("max", "mean"):
        factor = buffered.optimize(n=length, error=error)
        decay, scale = np.array(factor.buf_decay, float), np.array(factor.output_scale, float)
        mean = toeplitz_fit.prefix_error(1.0 - decay, scale, length)
        squared = mean * toeplitz_fit.sensitivity_square(1.0 - decay, scale, length)
        yield Row(
            f"jax_privacy BufferedToeplitz ({error})",
            f"(1, {delta:g})",
            squared / gaussian_loss(1.0, delta) ** 2,
            _jax_rate(jax, decay, scale, length),
            f"{decay.size} numbers",
        )


def _jax_rate(jax: Any, decay: Floats, scale: Floats, length: int) -> float:
    """Noise of normal draws through its recursion, compiled by XLA."""
    keeps, weights = jax.numpy.asarray(decay), jax.numpy.asarray(scale)

    def step(buffers: Any, draw: Any) -> tuple[Any, Any]:
        made = draw - (weights * buffers).sum()
        return keeps * buffers + made, made

    def noise(key: Any) -> Any:
        draws = jax.random.normal(key, (length,))
        return jax.lax.scan(step, jax.numpy.zeros(keeps.size), draws)[1]

    compiled = jax.jit(noise)
    compiled(jax.random.key(0)).block_until_ready()
    return rate(lambda: compiled(jax.random.key(1)).block_until_ready(), length)


PEERS = {"dpcrpy": of_dpcrpy, "opendp": of_opendp, "jax_privacy": of_jax_privacy}


def prefixes(length: int, delta: float) -> list[Row]:
    """All that is installed."""
    rows = list(ours(length, delta))
    for name, peer in PEERS.items():
        try:
            importlib.import_module(name)
        except ImportError as missing:
            print(f"left out: {name} ({missing})")
            continue
        rows += peer(length, delta)
    return rows


def persons() -> list[dict[str, Any]]:
    """Standard errors of totals of people with k windows, one row in each, as ``fastdp.plan`` states them."""
    found = []
    for name, k in (("smart meters, a day of 48 half-hours", 48), ("retail, 20 baskets", 20), ("retail, 100", 100)):
        for delta in (1e-6, 1e-9):
            plan = fastdp.plan(epsilon=1.0, bound=1.0, contributions=k, per_window=1, delta=delta)
            each = {noise: plan.std_error_with(noise) for noise in ("laplace", "gaussian")}
            found.append({"unit": name, "k": k, "delta": delta, **each, "plan says": plan.noise})
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--length", type=int, default=2**15, help="T, a power of two (default 2^15)")
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--json", type=Path, nargs="?", const=RESULTS, help=f"write the numbers (default {RESULTS})")


def run(given: argparse.Namespace) -> None:
    rows = prefixes(given.length, given.delta)
    columns = ("mechanism", "guarantee", "MSE", "values/s", "memory")
    cells = [(r.name, r.guarantee, f"{r.error:,.1f}", f"{r.speed:,.0f}", r.memory) for r in rows]
    table(f"Prefix sums, T = {given.length:,}, in theta^2", columns, cells)
    people = persons()
    listed = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in each.values()] for each in people]
    table("Standard error of a window's total, in bounds, epsilon = 1", tuple(people[0]), listed)
    if given.json is not None:
        facts = {"length": given.length, "delta": given.delta, "prefix sums": [r._asdict() for r in rows]}
        given.json.write_text(json.dumps({**facts, "persons": people}, indent=1) + "\n")
