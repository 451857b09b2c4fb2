"""Golden cases of streams of values: every composition, one release, many releases, repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.parts import (
    CHUNKINGS,
    OTHERS,
    SECRETS,
    STARTS,
    STOPS,
    USUAL,
    Golden,
    public,
    published,
    released,
    released_many,
    replayed,
    values,
)
from tests.shared import release_many

Make = Callable[..., Any]

STREAM = values(360)
COMMON: dict[str, Any] = {"epsilon": 1.0, "bound": 64, "holdout": 60, "max_range": 64}


def threshold(name: str) -> Any:
    """A class of thresholds."""
    return public(f"thresholds.{name}")


def perturber(name: str) -> Any:
    """A class of perturbers."""
    return public(f"perturbers.{name}")


def smoother(name: str) -> Any:
    """A class of smoothers."""
    return public(f"smoothers.{name}")


def _system(name: str, **options: Any) -> Make:
    return lambda **secret: public(name)(**{**COMMON, **options}, **secret)


def _composed(rule: Any, noise: Any, predictor: Any = None, **options: Any) -> Make:
    return _system("StreamPublisher", threshold=rule, perturber=noise, smoother=predictor, **options)


def _pak(**options: Any) -> Make:
    given = {"epsilon": 1.0, "delta": 1e-6, "bound": 64, "length": 400, "holdout": 60, **options}
    return lambda **secret: public("PAK")(**given, **secret)


noisy, hierarchy, recent = threshold("NoisyMax"), perturber("Hierarchy"), smoother("Recent")
wave = threshold("SquareWave")
SMOOTHERS = ("mean", "median", "moving", "exponential")
TREE = hierarchy(4, prune=1)
BINARY = hierarchy(2, consistent=False, prune=0)

#: Publishers of the stream that every secret and chunking is tried with.
CHIEF: dict[str, Make] = {
    "tops": _system("ToPS"),
    "adaptive": _system("Adaptive", threshold=noisy()),
    "flat": _composed(noisy(), perturber("Flat")()),
    "binary": _composed(noisy(fan_out=2), BINARY),
    "quantile": _composed(threshold("SmoothQuantile")(), TREE, smoother("MovingAverage")(3)),
    "pak": _pak(threshold=noisy()),
    "pak averages": _pak(average=9, lag_sums=True),
}
#: The others, with one secret, whole and cut.
FURTHER: dict[str, Make] = {
    "tops prune 0": _system("ToPS", prune=0, threshold=noisy(20.0)),
    "tops fan_out 4": _system("ToPS", fan_out=4, prune=1, threshold=noisy(noise="exponential", fan_out=4)),
    "tops resolution": _system("ToPS", resolution=0.125, epsilon=0.3),
    **{
        f"tops {name}": _system("ToPS", prune=1, smoother=name)
        for name in ("mean", "median", "moving", "exponential")
    },
    "exponential": _composed(noisy(), TREE, smoother("Exponential")(0.25)),
    "median": _composed(noisy(), TREE, smoother("Median")()),
    "mean": _composed(noisy(), TREE, smoother("Mean")()),
    "noisy max": _composed(noisy(30.0, "exponential", step=0.5), TREE, recent()),
    "scale-free": _composed(threshold("ScaleFree")(), hierarchy(prune=0), epsilon=4.0),
    "scale-free laplace": _composed(threshold("ScaleFree")("laplace"), TREE, recent()),
    "fixed": _composed(threshold("Fixed")(20.0), TREE, recent(), holdout=0),
    "fixed flat": _composed(threshold("Fixed")(20.0), perturber("Flat")(), holdout=0),
    "quantile gaussian": _composed(threshold("SmoothQuantile")(0.9, noise="gaussian"), TREE, recent()),
    "quantile cauchy": _composed(threshold("SmoothQuantile")(0.9, noise="cauchy", gamma=4.0), TREE, recent()),
    "quantile unclipped": _composed(threshold("SmoothQuantile")(0.9, clip=False), TREE, recent()),
    "quantile of pak": _composed(threshold("PAKQuantile")(0.95, noise="gaussian"), TREE, recent()),
    "true percentile": _composed(threshold("TruePercentile")(0.95), TREE, recent()),
    "blocks": _composed(noisy(), perturber("Blocks")()),
    "hierarchy 2": _composed(noisy(), hierarchy(2, prune=2), recent()),
    "adaptive scale-free": _system("Adaptive"),
    "pak default": _pak(),
    "pak fixed": _pak(threshold=threshold("Fixed")(64.0), holdout=0),
    "pak all": _pak(average="all", tail_factor=1.5, share=0.8),
    "pak lag_sums": _pak(lag_sums=True, threshold=threshold("SmoothQuantile")(delta=1e-6)),
    "pak unclipped": _pak(clip=False),
    "base": lambda **secret: public("baselines.Zeros")(30),
}
#: Where the logarithms and sums of an estimate by expectation maximisation choose theta.
ESTIMATED: dict[str, Make] = {
    "square wave": _composed(wave(bins=64), TREE, recent()),
    "square wave sw": _composed(wave(bins=64, method="sw"), TREE, recent()),
    "square wave logarithmic": _composed(wave(scale="logarithmic"), TREE, recent()),
}
#: Thresholds that follow the stream.
withheld, refined = public("thresholds.renewals.RenewFromHoldout"), public("thresholds.renewals.RenewFromPublished")
RENEWALS: dict[str, Make] = {
    "withheld tops": _composed(noisy(fan_out=4), TREE, recent(), renewal=withheld()),
    "withheld quantile": _composed(
        threshold("SmoothQuantile")(), TREE, smoother("MovingAverage")(3), renewal=withheld(2, holdout=10)
    ),
    "withheld fixed lengths": _composed(noisy(), hierarchy(2, prune=0), renewal=withheld(1, 5), max_range=32),
    "refined tops": _composed(noisy(fan_out=4), TREE, recent(), renewal=refined(0.2)),
    "refined quantile": _composed(
        threshold("SmoothQuantile")(), TREE, smoother("Median")(), renewal=refined(0.1, trees=2)
    ),
    "refined flat": _composed(noisy(), perturber("Flat")(), renewal=refined(0.5)),
}


def _publish(make: Make, source: str = "seed 1", chunking: str = "whole", stream: np.ndarray = STREAM) -> Golden:
    return Golden(lambda folder: published(make(**SECRETS[source]), stream, chunking))


def _online() -> Iterator[tuple[str, Golden]]:
    for (name, make), secret in product(CHIEF.items(), OTHERS):
        yield f"publish {name}, {secret}", _publish(make, secret)
    for (name, make), chunking in product({**CHIEF, **RENEWALS}.items(), CHUNKINGS):
        yield f"publish {name}, {chunking}", _publish(make, chunking=chunking)
    for (name, make), chunking in product(FURTHER.items(), ("whole", "odd")):
        yield f"publish {name}, {chunking}", _publish(make, chunking=chunking)
    for name, make in ESTIMATED.items():
        yield f"publish {name}", Golden(lambda folder, make=make: published(make(**USUAL), STREAM, "odd"), False)
    for name, make in {**CHIEF, **RENEWALS}.items():
        yield f"replay {name}", Golden(lambda folder, make=make: replayed(make(**USUAL), STREAM, folder))
    for name, make in RENEWALS.items():
        yield f"publish {name}, stream named", _publish(make, "stream named", "odd")
    far = np.resize(STREAM, 66_000)
    flat = _composed(noisy(), perturber("Flat")(), renewal=withheld(holdout=100))
    yield "publish withheld flat", _publish(flat, chunking="odd", stream=far)
    holes = np.where(np.arange(360) % 50 == 7, np.nan, STREAM)
    yield "publish tops with NaN as 0", _publish(_system("ToPS", nonfinite="zero"), chunking="odd", stream=holes)
    outside = STREAM * 3.0 - 20.0
    yield "publish tops outside the bound", _publish(_system("ToPS"), stream=outside)
    rising = far[:9000] * np.linspace(1.0, 40.0, 9000)
    outgrown = _system("Adaptive", threshold=noisy(), max_range=4096, bound=6400, epsilon=8.0)
    yield "publish adaptive rising", _publish(outgrown, stream=rising, chunking="odd")
    blocks = perturber("Blocks")(focus=(8, 40))
    focused = _system("Adaptive", threshold=noisy(), max_range=4096, perturber=blocks)
    yield "publish adaptive focus", _publish(focused, stream=far[:9000], chunking="odd")
    yield "publish adaptive long", _publish(_system("Adaptive", threshold=noisy(), max_range=4096), stream=far[:9000])


def _method(method: str, holdout: int = 90, **options: Any) -> Any:
    """A publisher of the stream as a finished array, by the defaults when the table was written."""
    if method == "pak":
        return public("PAK")(1.0, 1.0 / 360**2, 64.0, 360, holdout=holdout, **options)
    kind = public({"adaptive": "Adaptive", "tops": "ToPS", "topl": "ToPL"}[method])
    return kind(1.0, 64.0, holdout, 360 - holdout, **options)


def _booked(folder: Path, method: str) -> Iterator[Any]:
    """Released under a ledger, which the output does not depend on."""
    ledger = public("Ledger")(folder / "ledger", limit_epsilon=2.0, limit_delta=0.1)
    publisher = _method(method, 40, **SECRETS["stream named"])
    with ledger.reserve(publisher, stream="meters"):
        yield from released(publisher.release(STREAM))
    yield float(ledger.spent("meters").epsilon)


def _releases() -> Iterator[tuple[str, Golden]]:
    def outputs(folder: Path, **options: Any) -> Iterator[Any]:
        return released(_method(**options).release(STREAM))

    for method, secret in product(("adaptive", "tops", "pak"), SECRETS):
        yield f"release {method}, {secret}", Golden(partial(outputs, method=method, **SECRETS[secret]))
    for secret in ("seed 1", "stream named"):
        linear = partial(outputs, method="topl", threshold="linear", **SECRETS[secret])
        yield f"release topl, {secret}", Golden(linear, portable=False)
    for method in ("adaptive", "tops", "pak"):
        named = partial(outputs, method=method, holdout=40, **SECRETS["stream named"])
        yield f"release {method}, of a stream", Golden(named)
        yield f"release {method}, with a ledger", Golden(partial(_booked, method=method))
    names = (
        "binary",
        "flat",
        "quantile",
        "scale-free",
        "median",
        "fixed",
        "pak fixed",
    )
    everything = {**CHIEF, **FURTHER}
    for name in (*names, "base"):
        make = everything[name]
        yield f"release of {name}", Golden(lambda folder, make=make: released(make(**USUAL).release(STREAM)))
    zeros = np.where(np.arange(1500) % 25, 0.0, 40.0)
    for name, array, options in (
        ("zeros", zeros, {}), ("few values", STREAM[:200], {}), ("values", values(5000), {}),
        ("a public theta", values(5000), {"threshold": 20.0}), ("Gaussian noise", values(5000), {"delta": 1e-6}),
        ("a season", values(5000), {"season": 96.0, "contributions": 2}),
    ):  # fmt: skip
        whole = partial(public("release"), array, 1.0, 64.0, **options, **USUAL)
        yield f"release of an array, {name}", Golden(lambda folder, whole=whole: released(whole()), portable=False)
    for name, make in RENEWALS.items():
        yield f"release of {name}", Golden(lambda folder, make=make: released(make(**USUAL).release(STREAM)))


MATRIX = values(12 * 50).reshape(12, 50)
RAGGED = [values(40 + 9 * k, 100 * k) for k in range(9)]
MANY: dict[str, dict[str, Any]] = {
    "default": {},
    "fixed": {"threshold": threshold("Fixed")(20.0)},
    "binary": {"perturber": BINARY, "smoother": None},
    "flat": {"perturber": perturber("Flat")(), "smoother": None},
    "quantile": {"threshold": threshold("SmoothQuantile")(), "smoother": "moving"},
    "median": {"perturber": TREE, "smoother": "median"},
    "scale-free": {"threshold": threshold("ScaleFree")(), "perturber": TREE, "smoother": "exponential"},
    "ids": {"ids": np.arange(12)[::-1] * 7, "holdout": 20, "max_range": 16},
    "threads": {"threads": 2},
}


def _batches() -> Iterator[tuple[str, Golden]]:
    def outputs(folder: Path, streams: Any, **options: Any) -> Iterator[Any]:
        return released_many(release_many(streams, 1.0, 64.0, **options))

    for name, options in MANY.items():
        yield f"release_many {name}", Golden(partial(outputs, streams=MATRIX, **options, **USUAL))
    for secret in ("seed text", "32 bytes", "stream named"):
        yield f"release_many, {secret}", Golden(partial(outputs, streams=MATRIX, **SECRETS[secret]))
    for name in ("default", "binary", "median"):
        ragged = partial(outputs, streams=RAGGED, holdout=15, **MANY[name], **USUAL)
        yield f"release_many {name}, ragged", Golden(ragged)
    joined, borders = np.concatenate(RAGGED), np.cumsum([0, *map(len, RAGGED)])
    yield "release_many, offsets", Golden(partial(outputs, streams=joined, offsets=borders, holdout=15, **USUAL))

    def again(folder: Path, make: Make, source: str, **options: Any) -> Iterator[Any]:
        found = public("repetitions.repeat")(make(**SECRETS[source]), STREAM, 5, **options)
        yield found.thresholds
        yield from () if found.answers is None else (found.answers,)
        yield from () if found.releases is None else released_many(found.releases)

    ranges = STARTS, STOPS
    for name in ("tops", "flat", "binary", "quantile"):
        make = CHIEF[name]
        yield f"repeat {name}", Golden(partial(again, make=make, source="seed 1"))
        yield (
            f"repeat {name}, queries",
            Golden(partial(again, make=make, source="seed text", queries=ranges, first=3)),
        )
    yield "repeat tops, threads", Golden(partial(again, make=CHIEF["tops"], source="seed 1", threads=2))


CASES = dict([*_online(), *_releases(), *_batches()])
