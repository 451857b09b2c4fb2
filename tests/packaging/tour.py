"""A tour of public calls with whatever dtypes and containers users have, in a process of its own.

Prints, as JSON, the signatures that each kernel was compiled for.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np

import fastdp
import fastdp_kernels
from fastdp import local, noise
from fastdp.perturbers import Flat, Hierarchy
from fastdp.points import Box
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, SmoothQuantile, SquareWave
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_kernels._caching import KeptKernel
from fastdp_lab.repetitions import repeat
from tests.shared import finished

LENGTH = 700


def forms(numbers: np.ndarray) -> Iterator[Any]:
    """The same whole numbers as users have them."""
    for dtype in (float, np.float32, np.float16, np.int16, np.int64, np.uint8, bool, ">f8", np.longdouble):
        yield numbers.astype(dtype)
    yield numbers.tolist()
    yield tuple(numbers.astype(int).tolist())
    yield np.repeat(numbers, 2)[::2]
    yield numbers[::-1]
    frozen = numbers.copy()
    frozen.flags.writeable = False
    yield frozen
    yield np.asfortranarray(numbers.reshape(-1, 2))[:, 0]
    shifted = np.frombuffer(b"\0" + numbers.tobytes(), np.uint8)[1:].view(float)
    yield shifted
    yield np.ma.masked_array(numbers, numbers > 1000)
    for package, build in (("pandas", "Series"), ("polars", "Series"), ("pyarrow", "array")):
        try:
            yield getattr(importlib.import_module(package), build)(numbers)
        except ImportError:
            continue


def streams() -> None:
    numbers = np.random.default_rng(1).integers(0, 50, LENGTH).astype(float)
    ranges: tuple[tuple[Any, Any], ...] = ((0, 5), ([0, 3], [5, 9]), (np.int32([1]), np.uint8([4])))
    parts: list[tuple[Any, Any, Any]] = [
        (NoisyMax(), Hierarchy(4, prune=1), smoother)
        for smoother in (Recent(), Mean(), Median(), MovingAverage(), Exponential())
    ]
    parts += [
        (NoisyMax(noise="exponential"), Hierarchy(4, prune=0), None),
        (Fixed(20.0), Hierarchy(2, consistent=False, prune=0), None),
        (Fixed(20), Flat(), None),
        (SmoothQuantile(), Hierarchy(4, prune=1), Mean()),
        (PAKQuantile(), Flat(), None),
        (SquareWave(), Flat(), None),
    ]
    for values in forms(numbers):
        finished("tops", len(values), 1, 50, seed=1, max_range=64, prune=0).release(values)
        fastdp.release(values, 2, 50, seed=1)
        adaptive = finished("adaptive", len(values), 2, 50, seed=1).release(values)
        for first, last in ranges:
            adaptive.revised.sum(first, last)
        assert adaptive.revised.values.size == len(adaptive)
        publisher = fastdp.ToPS(1.0, 50.0, holdout=40, max_range=64, fan_out=4, prune=1, seed=1)
        publisher.publish(values)
        publisher.publish([])
        publisher.publish(np.float32([3]))
        finished("pak", len(values), 0.5, 50, seed=1).release(values)
        finished("topl", len(values), 1.0, 50, seed=1).release(values)
    frozen = np.arange(3 * LENGTH) % 50
    frozen.flags.writeable = False
    for values in (frozen, frozen.copy(), frozen.astype(float), frozen.astype(np.int32)):
        for prune in range(3):
            fastdp.ToPS(1.0, 50.0, holdout=60, max_range=512, fan_out=4, prune=prune, seed=1).release(values)
    for threshold, perturber, smoother in parts:
        options = {
            "threshold": threshold,
            "perturber": perturber,
            "smoother": smoother,
            "max_range": 64,
            "holdout": 60,
        }
        publisher = fastdp.StreamPublisher(**options, epsilon=1.0, bound=50.0, seed=1)
        repeated = repeat(publisher, numbers.astype(np.int32), 3, queries=([0, 1], [5, 40]))
        assert repeated.answers is not None
        release = publisher.release(numbers)
        for first, last in ranges:
            release.sum(first, last)
            release.revised.sum(first, last)
        for rows in (numbers.reshape(5, -1), numbers.reshape(5, -1).astype(np.float32), [numbers, numbers[:99]]):
            many = fastdp.StreamPublisher(**options, epsilon=1.0, bound=50.0, seed=1).release_many(rows)
            many.sum(0, 5, streams=0)
    publisher = fastdp.Adaptive(1.0, 50.0, max_range=64, threshold=20, seed=1)
    for part in (numbers.astype(np.float32), [], [3], numbers[::-1]):
        publisher.publish(part)
    for renewal in (RenewFromHoldout(), RenewFromPublished()):
        held = {"epsilon": 1.0, "bound": 50.0, "holdout": 40, "max_range": 64, "seed": 1}
        tree, recent = Hierarchy(4, prune=1), Recent()
        fastdp.StreamPublisher(perturber=tree, smoother=recent, renewal=renewal, **held).publish(numbers)
    for scale in (0.5, 3, 2.0**36, 2.0**45):
        noise.discrete_laplace(scale, 100, seed=1)
        noise.geometric(scale, 100, seed=1)
    for values in (numbers, numbers.astype(np.int16), numbers.astype(np.float32), numbers.tolist(), 5, 0.5, []):
        for nonfinite in ("raise", "zero"):
            fastdp.add_noise(values, 1, 1.0, nonfinite=nonfinite, seed=1)
    fastdp.add_noise([np.nan, 1.0], 1, 1.0, nonfinite="zero")


def locals_and_space() -> None:
    numbers = np.random.default_rng(1).integers(0, 50, LENGTH).astype(float)
    for name in ("Hybrid", "Piecewise", "StochasticRounding", "SquareWave"):
        mechanism = getattr(local, name)(1.0)
        for values in (numbers / 50, np.zeros(5, np.int8), np.zeros(5).tolist(), np.float32([0.5])):
            mechanism.perturb(values, seed=1)
    domain = Box([0.0, 0.0], [1.0, 1.0])
    publisher = fastdp.PHDStream(domain, epsilon=1.0, seed=1)
    points = np.random.default_rng(2).random((300, 2))
    for added in (points, points.astype(np.float32), points.tolist(), np.asfortranarray(points)):
        publisher.step(added, added)
    publisher.sample()
    publisher.count([[0.1, 0.1]], [[0.5, 0.5]])


def signatures() -> dict[str, list[str]]:
    found = {}
    for module in pkgutil.walk_packages(fastdp_kernels.__path__, "fastdp_kernels."):
        home = importlib.import_module(module.name)
        for name, member in vars(home).items():
            # Entry points are cached; the pieces inlined into them are not.
            entry = isinstance(getattr(member, "_cache", None), KeptKernel)
            if entry and member.py_func.__module__ == home.__name__:
                found[f"{module.name.rpartition('.')[2]}.{name}"] = [str(each) for each in member.signatures]
    return found


if __name__ == "__main__":
    streams()
    locals_and_space()
    print(json.dumps(signatures()))
