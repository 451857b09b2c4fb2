"""One mechanism of prefix sums at a time, in a process of its own: ``python -m benchmarks.accuracy.gaussian_prefix``.

Errors are mean variances over t = 1 ... T in theta^2, at epsilon = 1, one value protected: in closed form where there
is one (dpcrpy states its own at each t), else over repetitions.  Values a second are those of publishing a stream, or
of drawing its noise; the rise is how far the resident memory of the process rises at most meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import benchmarks  # noqa: F401 - numba's cache, before fastdp is imported
import fastdp
from benchmarks.shared import Floats
from fastdp.guarantee import gaussian_loss
from fastdp.perturbers import Flat, Hierarchy, Toeplitz
from fastdp.perturbers import toeplitz as toeplitz_fit

THETA = 50.0
#: OpenDP takes 200 us a value.
SLOW = 2**15
#: Repetitions of errors that are measured.
RUNS = 100
DPCRPY = {
    "binary tree": ("BinMech", 0),
    "Honaker": ("Honaker", 0),
    # Of 2^k - 1 values.
    "FDA": ("FDA", 0),
    "BCRG": ("BCRG", 0),
    "ABCRG": ("ABCRG", 0),
    "AuBCR": ("AuBCR", 0),
    "AuBCRComp": ("AuBCRComp", 0),
    "TwoLevel": ("TwoLevel", 0),
    "KTCR, k = 2": ("KTCR", 2),
    "KTCR, k = 3": ("KTCR", 3),
}


class Row(NamedTuple):
    """One mechanism."""

    name: str
    guarantee: str
    error: float
    speed: float
    memory: str
    rise: float


def measured(run: Callable[[], Any], values: int, repetitions: int = 3) -> tuple[float, float]:
    """Values a second, the best of several, and the rise of the first."""
    found: list[float] = []
    gc.collect()
    begin = _resident(reset=True)
    for _ in range(repetitions):
        start = time.perf_counter()
        result = run()
        found.append(time.perf_counter() - start)
        if len(found) == 1:
            rise = _resident() - begin
        del result
    return values / min(found), rise


def _resident(*, reset: bool = False) -> float:
    """Peak of the resident memory since the last reset, in bytes; NaN where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * float(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return math.nan


def said(delta: float) -> str:
    return f"(1, {delta:g})" if delta else "1"


# fastdp.


def publisher(part: Any, length: int, delta: float, seed: int = 0) -> fastdp.StreamPublisher:
    given: dict[str, Any] = {"epsilon": 1.0, "delta": delta, "bound": THETA, "max_range": length, "seed": seed}
    return fastdp.StreamPublisher(threshold=THETA, perturber=part, **given)


def published(part: Any, length: int, delta: float) -> tuple[float, float]:
    values = np.full(length, 20.0)
    # Kernels are compiled, or read, before.
    publisher(part, length, delta).publish(values[:100])
    made = publisher(part, length, delta)
    return measured(lambda: made.publish(values), length)


def correlated(part: Toeplitz, name: str, length: int, delta: float) -> Row:
    """In closed form."""
    c = publisher(part, length, delta).composition
    sigma = float(c.perturber.leaf_distribution(c.grid.snap(THETA), c.publish_epsilon).sigma) / c.grid.snap(THETA)
    error = sigma**2 * toeplitz_fit.prefix_error(np.array(part.rates), np.array(part.shares), length)
    speed, rise = published(part, length, delta)
    return Row(f"fastdp {name}", said(delta), error, speed, f"{part.memory} numbers", rise)


def of_tree(name: str, own: Callable[..., Any], length: int, delta: float) -> Row:
    """Over repetitions."""
    part, values, squares = own(), np.full(length, 20.0), []
    for seed in range(1, 1 + RUNS):
        sums = np.cumsum(publisher(part, length, delta, seed).publish(values) - values) / THETA
        squares.append(np.mean(sums**2))
    speed, rise = published(part, length, delta)
    leaves = f"{publisher(part, length, delta).plan.leaves:,} leaves"
    return Row(f"fastdp {name}", said(delta), float(np.mean(squares)), speed, leaves, rise)


def of_flat(length: int, delta: float) -> Row:
    part = Flat(noise="gaussian")
    error = (length + 1) / 2.0 / publisher(part, length, delta).composition.publish_epsilon ** 2
    speed, rise = published(part, length, delta)
    return Row("fastdp Flat(noise='gaussian')", said(delta), error, speed, "none", rise)


# Others.


def of_dpcrpy(name: str, length: int, delta: float) -> Row:
    """Its own variances, averaged; KTCR's budgets are solved before the clock starts."""
    noise = importlib.import_module("dpcrpy.framework.noiMech")
    distribution = (
        noise.GaussNoiMech(sigma0=1.0 / gaussian_loss(1.0, delta)) if delta else noise.LapNoiMech(epsilon=1.0)
    )
    kind, fan_out = DPCRPY[name]
    make = getattr(importlib.import_module("dpcrpy"), kind)
    order = length.bit_length() - 1
    sizes: dict[str, Any] = {"kOrder": order}
    if fan_out:
        sizes = {"k": fan_out, "h": math.ceil(math.log(length, fan_out) - 1e-9)}
    elif kind == "TwoLevel":
        sizes = {"kOrder": math.isqrt(length - 1) + 1}
    elif kind == "AuBCRComp":
        sizes = {"T": length}
    with contextlib.redirect_stdout(io.StringIO()):
        mechanism = make(**sizes, noiMech=distribution)
    count = min(length, mechanism.size())
    # Written to, so that it is no part of the rise.
    errors = np.ones(count)

    def release() -> None:
        for t in range(count):
            errors[t] = mechanism.dpRelease(0.4)[1]

    speed, rise = measured(release, count, 1)
    memory = "5 numbers" if kind == "TwoLevel" else f"{order + 1} nodes"
    return Row(f"dpcrpy {name}", said(delta), float(errors.mean()), speed, memory, rise)


def of_opendp(length: int, delta: float) -> Row:
    """Its exact Gaussian noise, value by value."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    # The same concentrated budget; sensitivity 2^32 steps.
    measurement = dp.m.make_gaussian(*space, scale=2.0**32 / gaussian_loss(1.0, delta))
    count = min(length, SLOW)
    zeros = [0] * count
    speed, rise = measured(lambda: measurement(zeros), count, 1)
    error = (length + 1) / 2.0 / gaussian_loss(1.0, delta) ** 2
    return Row("OpenDP make_gaussian", said(delta), error, speed, "none", rise * length / count)


def of_buffers(error: str, length: int, delta: float) -> Row:
    """jax_privacy's buffered Toeplitz noise, optimised by itself for either error, drawn in a compiled loop."""
    import jax

    jax.config.update("jax_enable_x64", True)
    buffered = importlib.import_module("jax_privacy.matrix_factorization.buffered_toeplitz")
    factor = buffered.optimize(n=length, error=error)
    decay, scale = np.array(factor.buf_decay, float), np.array(factor.output_scale, float)
    squared = toeplitz_fit.prefix_error(1.0 - decay, scale, length)
    squared *= toeplitz_fit.sensitivity_square(1.0 - decay, scale, length)
    keeps, weights = jax.numpy.asarray(decay), jax.numpy.asarray(scale)

    def step(buffers: Any, draw: Any) -> tuple[Any, Any]:
        made = draw - (weights * buffers).sum()
        return keeps * buffers + made, made

    def noise(key: Any) -> Any:
        draws = jax.random.normal(key, (length,))
        return jax.lax.scan(step, jax.numpy.zeros(keeps.size), draws)[1]

    compiled = jax.jit(noise)
    compiled(jax.random.key(0)).block_until_ready()
    speed, rise = measured(lambda: compiled(jax.random.key(1)).block_until_ready(), length)
    name = f"jax_privacy BufferedToeplitz ({error})"
    return Row(name, said(delta), squared / gaussian_loss(1.0, delta) ** 2, speed, f"{decay.size} numbers", rise)


def of_root(length: int, delta: float) -> Row:
    """The square root factorisation with jax_privacy's coefficients, whole: noise by one convolution (SciPy)."""
    import jax

    jax.config.update("jax_enable_x64", True)
    toeplitz = importlib.import_module("jax_privacy.matrix_factorization.toeplitz")
    strategy: Floats = np.asarray(toeplitz.optimal_max_error_strategy_coefs(length), float)
    inverse: Floats = np.asarray(toeplitz.optimal_max_error_noising_coefs(length), float)
    from scipy.signal import fftconvolve

    def noise() -> Any:
        return fftconvolve(np.random.default_rng().normal(size=length), inverse)[:length]

    speed, rise = measured(noise, length)
    # A = C C: the sums of C^-1 z have C's coefficients.
    squares = np.cumsum(strategy**2)
    error = float(squares.mean() * squares[-1]) / gaussian_loss(1.0, delta) ** 2
    return Row("square root, whole (jax_privacy)", said(delta), error, speed, f"{length:,} numbers", rise)


def mechanisms(delta: float) -> dict[str, Callable[[int], Row]]:
    """By name; the package that the name begins with must be there."""
    part = functools.partial
    found: dict[str, Callable[[int], Row]] = {
        "fastdp length": lambda n: correlated(Toeplitz(length=n), "Toeplitz(length=T)", n, delta),
        "fastdp endless": lambda n: correlated(Toeplitz(), "Toeplitz()", n, delta),
        "jax_privacy root": part(of_root, delta=delta),
        "jax_privacy max": part(of_buffers, "max", delta=delta),
        "jax_privacy mean": part(of_buffers, "mean", delta=delta),
        "fastdp flat": part(of_flat, delta=delta),
        "opendp": part(of_opendp, delta=delta),
        "fastdp tree, Gaussian": part(
            of_tree, "Hierarchy(prune=0, noise='gaussian')", part(Hierarchy, prune=0, noise="gaussian"), delta=delta
        ),
        "fastdp tree": part(of_tree, "Hierarchy(prune=0)", part(Hierarchy, prune=0), delta=0.0),
        "fastdp hats": part(
            of_tree, "Hierarchy(prune=0, basis='hats')", part(Hierarchy, prune=0, basis="hats"), delta=0.0
        ),
    }
    for name, (kind, _) in DPCRPY.items():
        found[f"dpcrpy {name}, Gaussian"] = part(of_dpcrpy, name, delta=delta)
        # KTCR's Laplace noise does not run: it asks for a cache that is made later.
        if kind != "KTCR":
            found[f"dpcrpy {name}"] = part(of_dpcrpy, name, delta=0.0)
    return found


if __name__ == "__main__":
    print(json.dumps(mechanisms(float(sys.argv[3]))[sys.argv[1]](int(sys.argv[2]))._asdict()))
