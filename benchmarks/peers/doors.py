"""Times of one call in other libraries and in fastdp, in one run: ``python -m benchmarks.peers.doors``.

Each library is measured where it is installed; microseconds of processor time, the least of four rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

import fastdp

Calls = Iterator[tuple[str, Callable[[], Any], int]]
LISTED = list(range(1000))


def of_fastdp() -> Calls:
    noise, sample = fastdp.noise.Laplace(4.0), np.random.default_rng(0).random(10_000)
    histogram = import_module("fastdp.interop.diffprivlib").histogram
    yield "one number", lambda: noise.add(7), 20_000
    yield "1,000 numbers", lambda: fastdp.add_noise(LISTED, sensitivity=1, epsilon=0.25), 20
    yield "histogram", lambda: histogram(sample, epsilon=1.0, bins=2_000, range=(0, 1)), 5


def of_opendp() -> Calls:
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    atom = dp.atom_domain(T="i64")
    one = dp.m.make_laplace(atom, dp.absolute_distance(T="i64"), scale=4.0)
    many = dp.m.make_laplace(dp.vector_domain(atom, size=1000), dp.l1_distance(T="i64"), scale=4.0)
    yield "one number", lambda: one(7), 500
    yield "1,000 numbers", lambda: many(LISTED), 3


def of_diffprivlib() -> Calls:
    mechanisms, tools = import_module("diffprivlib.mechanisms"), import_module("diffprivlib.tools")
    one, sample = mechanisms.Geometric(epsilon=0.25, sensitivity=1), np.random.default_rng(0).random(10_000)
    yield "one number", lambda: one.randomise(7), 5_000
    yield "histogram", lambda: tools.histogram(sample, epsilon=1.0, bins=2_000, range=(0, 1)), 1


def of_pydp() -> Calls:
    one = import_module("pydp.algorithms.numerical_mechanisms").LaplaceMechanism(0.25, 1.0)
    yield "one number", lambda: one.add_noise(7.0), 2_000


def least(call: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(4):
        before = time.process_time()
        for _ in range(times):
            call()
        found.append((time.process_time() - before) / times)
    return min(found) * 1e6


if __name__ == "__main__":
    for package, calls in {
        "fastdp-streams": of_fastdp,
        "opendp": of_opendp,
        "diffprivlib": of_diffprivlib,
        "python-dp": of_pydp,
    }.items():
        try:
            for what, call, times in calls():
                call()
                print(f"{package} {what}: {least(call, times):,.2f} us")
        except ImportError:
            print(f"{package}: not installed")
            continue
        print(f"{package}: version {version(package) if package != 'fastdp-streams' else fastdp.__version__}")
