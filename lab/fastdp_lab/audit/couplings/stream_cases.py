"""Small random instances of everything that publishes a stream of values, for couplings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.randomness.key import Key
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.stream.adaptive import Adaptive
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.tops import SMOOTHERS
from fastdp.systems.stream.whole import WholeStream
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit.couplings.check import KEY, Case, Instance, Shifts, Table
from fastdp_lab.audit.couplings.streams import (
    BOUND,
    Floats,
    Generator,
    Make,
    altered,
    baseline_shifts,
    choice_shift,
    pak_shifts,
    pick,
    see_many,
    see_repeated,
    see_stream,
    see_whole,
    stream_shifts,
    values_of,
    window_shifts,
)
from fastdp_lab.baselines.w_event import SCHEMES, WEvent

#: Adds shifts, under the key of a table.
Shift = Callable[[Key, Shifts], None]

# Parameters.


def noisy_choice(generator: Generator) -> NoisyMax | ScaleFree:
    """A rule that looks at the hold-out."""
    noise = pick(generator, "laplace", "exponential")
    rule: NoisyMax | ScaleFree = pick(generator, NoisyMax(step=1.0, fan_out=2, noise=noise), ScaleFree(noise))
    return rule


def parameters_of(generator: Generator, **options: Any) -> dict[str, Any]:
    """Of ``StreamPublisher`` and ``release_many``; ``options`` replace the random ones."""
    rule = noisy_choice(generator)
    if "renewal" not in options:
        rule = pick(generator, Fixed(float(pick(generator, 1.0, 3.0, 8.0))), rule, rule)
    threshold = options.get("threshold", rule)
    return {
        "threshold": threshold,
        "smoother": None,
        "epsilon": float(pick(generator, 0.5, 1.0, 6.0)),
        "bound": BOUND,
        "holdout": int(pick(generator, 3, 8, 24)) if threshold.uses_holdout else 0,
        "max_range": int(pick(generator, 2, 5, 8)),
        "resolution": float(pick(generator, 1.0, 0.25, 0.1)),
        **options,
    }


def pruned(generator: Generator, fan_out: int, *levels: int) -> dict[str, Any]:
    """A hierarchy that leaves out one of these numbers of levels, and a smoother where there are any."""
    prune = int(pick(generator, *levels))
    smoother = pick(generator, *SMOOTHERS.values())() if prune else None
    basis = pick(generator, "boxes", "boxes", "hats")
    return {"perturber": Hierarchy(fan_out, prune=prune, basis=basis), "smoother": smoother}


def place_of(generator: Generator, size: int, holdout: int, borders: int) -> int:
    """Where the streams differ: at an end, at a border of hold-outs or trees, or anywhere."""
    marks = [0, holdout - 1, holdout, holdout + 1, size - 1]
    marks += [holdout + border + by for border in range(borders, size, borders) for by in (-1, 0)]
    inside = [mark for mark in marks if 0 <= mark < size]
    return int(pick(generator, int(generator.integers(size)), pick(generator, *inside)))


# Instances.


def of_stream(
    generator: Generator,
    make: Make,
    size: int = 0,
    *,
    place: int | None = None,
    pair: tuple[Floats, Floats, int] | None = None,
    saves: bool = True,
    epsilon: float | None = None,
) -> Instance:
    """A publisher on ``size`` values after its hold-out, or on a given pair of streams that differ at a given place.

    ``place`` counts from the end of the hold-out.  By default the publisher claims what it guarantees.
    """
    c = make(KEY).composition
    holdout = c.task.holdout + c.warm_up
    if pair is None:
        x = values_of(generator, holdout + size)
        trees = c.plan.tree_blocks * c.plan.block
        at = place_of(generator, x.size, c.task.holdout, trees) if place is None else c.task.holdout + place
        pair = x, altered(generator, x, at), at
    x, there, at = pair
    return _instance(generator, make, x, there, partial(of_one, make, x, there, at), saves, epsilon)


def _instance(
    generator: Generator,
    make: Callable[..., Any],
    x: Floats,
    there: Floats,
    shift: Shift,
    saves: bool = True,
    epsilon: float | None = None,
    *,
    releases: bool = True,
) -> Instance:
    cuts = sorted(generator.integers(0, x.size + 1, 3).tolist())
    saved = int(generator.integers(4)) if saves else -1
    claim = make(KEY).guarantee.epsilon if epsilon is None else epsilon
    return Instance(claim, partial(see_stream, make, cuts, saved, releases), x, there, shifted(shift))


def shifted(*several: Shift) -> Callable[[Table], Shifts]:
    """All these shifts."""

    def shifts(table: Table) -> Shifts:
        found = Shifts()
        for shift in several:
            shift(table.key, found)
        return found

    return shifts


def of_one(make: Make, x: Floats, there: Floats, place: int, key: Key, shifts: Shifts) -> None:
    """Shifts of a stream that differs at one place."""
    stream_shifts(make, key, x, there, place, shifts)


def of_several(make: Make, x: Floats, there: Floats, places: Sequence[int], key: Key, shifts: Shifts) -> None:
    """Shifts of a stream that differs at several places."""
    window_shifts(make, key, x, there, places, shifts)


def publisher(generator: Generator, kind: type[StreamPublisher] = StreamPublisher, **options: Any) -> Make:
    """A publisher of random parameters, by key."""
    parameters = parameters_of(generator, **options)
    return lambda key: kind(**parameters, key=key)


def adaptive(generator: Generator) -> Instance:
    """All closings, with a warm-up from 16 values of hold-out on."""
    options = parameters_of(generator, max_range=int(pick(generator, 4, 64, 1024)))
    del options["smoother"]
    options["holdout"] *= int(pick(generator, 1, 4))
    closing, season = pick(generator, "spread", "spike", "none"), pick(generator, None, 4.0, 9.5)
    make = partial(Adaptive, **options, closing=closing, season=season)
    return of_stream(generator, lambda key: make(key=key), int(generator.integers(1, 120)))


def whole(generator: Generator, kind: type[WholeStream] = WholeStream) -> Instance:
    """A finished array: each value enters the choice of theta and one block."""
    size = int(generator.integers(1, 120))
    rule, closing = noisy_choice(generator), pick(generator, "spread", "spike", "none")
    epsilon, resolution = float(pick(generator, 0.5, 1.0, 6.0)), float(pick(generator, 1.0, 0.25, 0.1))
    longest = int(pick(generator, 4, 64, 1024))

    def make(key: Key) -> WholeStream:
        return kind(size, epsilon, BOUND, longest, closing, threshold=rule, resolution=resolution, key=key)

    x = values_of(generator, size)
    at = place_of(generator, size, 0, 16)
    there = altered(generator, x, at)

    def shift(key: Key, shifts: Shifts) -> None:
        if make(key).share:
            choice_shift(rule, make(key).task, make(key)._key, x, there, shifts)

    return Instance(epsilon, partial(see_whole, make), x, there, shifted(shift))


def flat(generator: Generator) -> Instance:
    """Noise on every value."""
    return of_stream(generator, publisher(generator, perturber=Flat()), int(generator.integers(1, 60)))


def tops(generator: Generator) -> Instance:
    """A consistent hierarchy, several trees, pruned or not."""
    options = pruned(generator, int(pick(generator, 2, 3)), 0, 1, 2)
    return of_stream(generator, publisher(generator, max_range=int(pick(generator, 10, 16)), **options), 70)


def nodes(generator: Generator) -> Instance:
    """An inconsistent hierarchy, whose nodes are released."""
    perturber = Hierarchy(int(pick(generator, 2, 3)), consistent=False, prune=0)
    return of_stream(generator, publisher(generator, perturber=perturber), int(generator.integers(1, 40)))


def renewed(generator: Generator) -> Instance:
    """Thresholds that follow the stream, from withheld or published values."""
    renewal = pick(
        generator,
        *(RenewFromHoldout(1, 5), RenewFromHoldout(2, None)),
        *(RenewFromPublished(0.3, 1), RenewFromPublished(0.5, 2)),
    )
    return of_stream(generator, publisher(generator, renewal=renewal, max_range=4, **pruned(generator, 2, 0, 1)), 60)


def pak(generator: Generator) -> Instance:
    """Running sums, lag sums, averages; with a threshold from the hold-out, or a known one."""
    rule, holdout = pick(generator, (Fixed(3.0), 0), (Fixed(8.0), 5), (NoisyMax(step=1.0, fan_out=2), 9))
    length = holdout + int(pick(generator, 3, 7, 8, 17))
    lag_sums, average = bool(holdout and pick(generator, False, True)), pick(generator, None, "all", 3)
    make = partial(
        PAK,
        epsilon=float(pick(generator, 0.5, 1.0, 6.0)),
        delta=0.0,
        bound=BOUND,
        length=length,
        holdout=holdout,
        tail_factor=float(pick(generator, 1.0, 1.5)),
        threshold=rule,
        lag_sums=lag_sums,
        average=average,
        resolution=float(pick(generator, 1.0, 0.25, 0.1)),
    )
    x = values_of(generator, length)
    place = place_of(generator, length, holdout, 4)
    there = altered(generator, x, place)
    by_key = lambda key: make(key=key)  # noqa: E731
    shift = partial(pak_shifts, by_key, x, there, place)
    return _instance(generator, by_key, x, there, shift, releases=average is None and not lag_sums)


def events(generator: Generator, factor: float = 1.0) -> Instance:
    """Counts without a bound: events that each move one of them; noise is for ``factor`` times as much."""
    sensitivity, several = float(pick(generator, 0.5, 1.0, 3.0)), int(pick(generator, 1, 1, 3))
    make = partial(
        Adaptive,
        epsilon=float(pick(generator, 0.5, 1.0, 6.0)),
        sensitivity=factor * sensitivity,
        contributions=several,
        max_range=int(pick(generator, 4, 64, 1024)),
        closing=pick(generator, "spread", "spike", "none"),
        resolution=pick(generator, None, 0.25),
        season=pick(generator, None, 7.0),
    )
    x = values_of(generator, int(generator.integers(1, 120))) * pick(generator, -1.0, 1.0, 50.0)
    there, places = x.copy(), generator.integers(0, x.size, several)
    for place in places:
        there[place] += sensitivity * pick(generator, -1.0, 0.5, 1.0)
    by_key = lambda key: make(key=key)  # noqa: E731
    shift = partial(of_several, by_key, x, there, sorted(set(places.tolist())))
    return _instance(generator, by_key, x, there, shift)


def windows(generator: Generator, claimed: int = 0) -> Instance:
    """w consecutive values, often some of a hold-out and some behind it; noise is for ``claimed`` more."""
    w = int(pick(generator, 2, 3, 5))
    renewal = pick(generator, None, RenewFromHoldout(1, 5), RenewFromPublished(0.3, 1))
    kind: dict[str, Any] = pick(
        generator,
        {"perturber": Blocks(pick(generator, "spread", "spike", "none")), "max_range": 64},
        {"perturber": Flat()},
        {"perturber": Hierarchy(2, consistent=False, prune=0)},
        {**pruned(generator, 2, 0, 1), "renewal": renewal, "max_range": 4}
        if renewal
        else {**pruned(generator, 2, 0, 1), "max_range": 8},
    )
    make = publisher(generator, contributions=w + claimed, **kind)
    c = make(KEY).composition
    x = values_of(generator, c.task.holdout + c.warm_up + 40)
    begin = place_of(generator, x.size - w + 1, c.task.holdout, c.plan.tree_blocks * c.plan.block)
    if c.task.holdout and pick(generator, False, True):
        begin = c.task.holdout - int(generator.integers(1, min(w, c.task.holdout + 1)))
    places = range(begin, begin + w)
    there = altered(generator, x, *places)
    return _instance(generator, make, x, there, partial(of_several, make, x, there, places))


def w_event(generator: Generator) -> Instance:
    """The baselines for w-event privacy: a window of w values."""
    w = int(pick(generator, 1, 2, 5))
    make = partial(
        WEvent,
        scheme=pick(generator, *SCHEMES),
        epsilon=float(pick(generator, 0.5, 6.0, 60.0)),
        bound=BOUND,
        contributions=w,
        resolution=float(pick(generator, 1.0, 0.25)),
    )
    x = values_of(generator, 30)
    begin = int(generator.integers(0, x.size - w + 1))
    places = range(begin, begin + w)
    there = altered(generator, x, *places)
    by_key = lambda key: make(key=key)  # noqa: E731
    instance = _instance(generator, by_key, x, there, lambda *_: None)
    return replace(instance, shifts=partial(baseline_shifts, by_key, x, there, places))


def row_parameters(generator: Generator) -> dict[str, Any]:
    """Of ``release_many``."""
    perturber = pick(
        generator,
        *({"perturber": kind} for kind in (Hierarchy(2, consistent=False, prune=0), Flat())),
        pruned(generator, 2, 0, 1),
    )
    return parameters_of(generator, max_range=int(pick(generator, 5, 8)), **perturber)


def rows(generator: Generator) -> Instance:
    """``release_many``: a value of one row."""
    parameters = row_parameters(generator)
    x = np.stack([values_of(generator, parameters["holdout"] + 30) for _ in range(4)])
    row, place = int(generator.integers(4)), place_of(generator, x.shape[1], parameters["holdout"], 4)
    there = x.copy()
    there[row] = altered(generator, x[row], place)
    make = lambda key: StreamPublisher(**parameters, key=key.of_stream(row))  # noqa: E731
    shift = partial(of_one, make, x[row], there[row], place)
    return Instance(parameters["epsilon"], partial(see_many, parameters), x, there, shifted(shift))


def repeated(generator: Generator) -> Instance:
    """``repeat``: all repetitions of a stream, each of which loses epsilon."""
    parameters, count = row_parameters(generator), 3
    x = values_of(generator, parameters["holdout"] + 30)
    place = place_of(generator, x.size, parameters["holdout"], 4)
    there = altered(generator, x, place)
    make: Make = lambda key: StreamPublisher(**parameters, key=key)  # noqa: E731

    def shift(number: int) -> Shift:
        return partial(of_one, lambda key: make(key.of_stream(number)), x, there, place)

    by = [shift(number) for number in range(count)]
    return Instance(count * parameters["epsilon"], partial(see_repeated, make, count), x, there, shifted(*by))


def stream_cases() -> list[Case]:
    """Publishers of values."""
    drawn = {
        "adaptive": adaptive,
        "whole": whole,
        "flat": flat,
        "tops": tops,
        "nodes": nodes,
        "renewed": renewed,
        "pak": pak,
        "events": events,
        "windows": windows,
        "w-event": w_event,
        "release-many": rows,
        "repeat": repeated,
    }
    return [Case(name, draw) for name, draw in drawn.items()]
