"""Small random instances of everything that publishes a stream of values, for couplings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import fastdp
from fastdp import Key
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.systems.stream.tops import SMOOTHERS
from fastdp.systems.stream.whole import WholeStream
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit.couplings.check import Draw, Generator, Instance, Shift, pick
from fastdp_lab.audit.couplings.noise import KEY, Shifts, Table
from fastdp_lab.audit.couplings.streams import (
    BOUND,
    Floats,
    Make,
    altered,
    baseline_shifts,
    choice_shift,
    pak_shifts,
    see_many,
    see_repeated,
    see_stream,
    see_whole,
    stream_shifts,
    values_of,
)
from fastdp_lab.baselines.w_event import SCHEMES, WEvent

EPSILONS, RESOLUTIONS = (0.5, 1.0, 6.0), (1.0, 0.25, 0.1)
#: Ends of blocks; longest ranges.
CLOSINGS, RANGES = ("spread", "spike", "none"), (4, 64, 1024)
NODES = Hierarchy(2, consistent=False, prune=0)


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
        rule = pick(generator, Fixed(pick(generator, 1.0, 3.0, 8.0)), rule, rule)
    threshold = options.get("threshold", rule)
    return {
        "threshold": threshold,
        "smoother": None,
        "epsilon": pick(generator, *EPSILONS),
        "bound": BOUND,
        "holdout": pick(generator, 3, 8, 24) if threshold.uses_holdout else 0,
        "max_range": pick(generator, 2, 5, 8),
        "resolution": pick(generator, *RESOLUTIONS),
        **options,
    }


def pruned(generator: Generator, fan_out: int, *levels: int) -> dict[str, Any]:
    """A hierarchy that leaves out one of these numbers of levels, and a smoother where there are any."""
    prune = pick(generator, *levels)
    smoother = pick(generator, *SMOOTHERS.values())() if prune else None
    basis = pick(generator, "boxes", "boxes", "hats")
    return {"perturber": Hierarchy(fan_out, prune=prune, basis=basis), "smoother": smoother}


def publisher(generator: Generator, kind: type = fastdp.StreamPublisher, **options: Any) -> Make:
    """A publisher of random parameters, by key."""
    return partial(kind, **parameters_of(generator, **options))


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
    c = make(key=KEY).composition
    if pair is None:
        x = values_of(generator, c.task.holdout + c.warm_up + size)
        trees = c.plan.tree_blocks * c.plan.block
        at = place_of(generator, x.size, c.task.holdout, trees) if place is None else c.task.holdout + place
        pair = x, altered(generator, x, at), at
    x, there, at = pair
    return of_pair(generator, make, x, there, [at], saves=saves, epsilon=epsilon)


def of_pair(
    generator: Generator,
    make: Make,
    x: Floats,
    there: Floats,
    places: Sequence[int],
    shift: Shift | None = None,
    *,
    saves: bool = True,
    epsilon: float | None = None,
    releases: bool = True,
) -> Instance:
    """A publisher on streams that differ at these places; by default with the shifts of ``StreamPublisher``."""
    cuts = sorted(generator.integers(0, x.size + 1, 3).tolist())
    saved = int(generator.integers(4)) if saves else -1
    claim = make(key=KEY).guarantee.epsilon if epsilon is None else epsilon
    shift = shift or partial(stream_shifts, make, x, there, places)
    return Instance(claim, partial(see_stream, make, cuts, saved, releases), x, there, shift)


def adaptive(generator: Generator) -> Instance:
    """All closings, with a warm-up from 16 values of hold-out on."""
    options = parameters_of(generator, max_range=pick(generator, *RANGES))
    del options["smoother"]
    options["holdout"] *= pick(generator, 1, 4)
    closing, season = pick(generator, *CLOSINGS), pick(generator, None, 4.0, 9.5)
    make = partial(fastdp.Adaptive, **options, closing=closing, season=season)
    return of_stream(generator, make, int(generator.integers(1, 120)))


def whole(generator: Generator, kind: type[WholeStream] = WholeStream) -> Instance:
    """A finished array: each value enters the choice of theta and one block."""
    size = int(generator.integers(1, 120))
    rule, closing = noisy_choice(generator), pick(generator, *CLOSINGS)
    epsilon, resolution = pick(generator, *EPSILONS), pick(generator, *RESOLUTIONS)
    options: dict[str, Any] = {"threshold": rule, "resolution": resolution}
    make = partial(kind, size, epsilon, BOUND, pick(generator, *RANGES), closing, **options)
    x = values_of(generator, size)
    there = altered(generator, x, place_of(generator, size, 0, 16))

    def shift(table: Table, shifts: Shifts) -> None:
        made = make(key=table.key)
        if made.share:
            choice_shift(rule, made.task, made._key, x, there, shifts)

    return Instance(epsilon, partial(see_whole, make), x, there, shift)


def flat(generator: Generator) -> Instance:
    """Noise on every value."""
    return of_stream(generator, publisher(generator, perturber=Flat()), int(generator.integers(1, 60)))


def tops(generator: Generator) -> Instance:
    """A consistent hierarchy, several trees, pruned or not."""
    options = pruned(generator, pick(generator, 2, 3), 0, 1, 2)
    return of_stream(generator, publisher(generator, max_range=pick(generator, 10, 16), **options), 70)


def nodes(generator: Generator) -> Instance:
    """An inconsistent hierarchy, whose nodes are released."""
    perturber = Hierarchy(pick(generator, 2, 3), consistent=False, prune=0)
    return of_stream(generator, publisher(generator, perturber=perturber), int(generator.integers(1, 40)))


def renewed(generator: Generator) -> Instance:
    """Thresholds that follow the stream, from withheld or published values."""
    held = RenewFromHoldout(1, 5), RenewFromHoldout(2, None)
    renewal = pick(generator, *held, RenewFromPublished(0.3, 1), RenewFromPublished(0.5, 2))
    return of_stream(generator, publisher(generator, renewal=renewal, max_range=4, **pruned(generator, 2, 0, 1)), 60)


def pak(generator: Generator) -> Instance:
    """Running sums, lag sums, averages; with a threshold from the hold-out, or a known one."""
    rule, holdout = pick(generator, (Fixed(3.0), 0), (Fixed(8.0), 5), (NoisyMax(step=1.0, fan_out=2), 9))
    length = holdout + pick(generator, 3, 7, 8, 17)
    lag_sums, average = holdout and pick(generator, False, True), pick(generator, None, "all", 3)
    make = partial(
        fastdp.PAK,
        epsilon=pick(generator, *EPSILONS),
        delta=0.0,
        bound=BOUND,
        length=length,
        holdout=holdout,
        tail_factor=pick(generator, 1.0, 1.5),
        threshold=rule,
        lag_sums=bool(lag_sums),
        average=average,
        resolution=pick(generator, *RESOLUTIONS),
    )
    x = values_of(generator, length)
    place = place_of(generator, length, holdout, 4)
    there = altered(generator, x, place)
    shift = partial(pak_shifts, make, x, there, place)
    return of_pair(generator, make, x, there, [place], shift, releases=average is None and not lag_sums)


def events(generator: Generator, factor: float = 1.0) -> Instance:
    """Counts without a bound: events that each move one of them; noise is for ``factor`` times as much."""
    sensitivity, several = pick(generator, 0.5, 1.0, 3.0), pick(generator, 1, 1, 3)
    make = partial(
        fastdp.Adaptive,
        epsilon=pick(generator, *EPSILONS),
        sensitivity=factor * sensitivity,
        contributions=several,
        max_range=pick(generator, *RANGES),
        closing=pick(generator, *CLOSINGS),
        resolution=pick(generator, None, 0.25),
        season=pick(generator, None, 7.0),
    )
    x = values_of(generator, int(generator.integers(1, 120))) * pick(generator, -1.0, 1.0, 50.0)
    there, places = x.copy(), generator.integers(0, x.size, several)
    for place in places:
        there[place] += sensitivity * pick(generator, -1.0, 0.5, 1.0)
    return of_pair(generator, make, x, there, sorted(set(places.tolist())))


def windows(generator: Generator, claimed: int = 0) -> Instance:
    """w consecutive values, often some of a hold-out and some behind it; noise is for ``claimed`` more."""
    w = pick(generator, 2, 3, 5)
    renewal = pick(generator, None, RenewFromHoldout(1, 5), RenewFromPublished(0.3, 1))
    blocks = {"perturber": Blocks(pick(generator, *CLOSINGS)), "max_range": 64}
    trees = pruned(generator, 2, 0, 1) | ({"renewal": renewal, "max_range": 4} if renewal else {"max_range": 8})
    kind = pick(generator, blocks, {"perturber": Flat()}, {"perturber": NODES}, trees)
    make = publisher(generator, contributions=w + claimed, **kind)
    c = make(key=KEY).composition
    x = values_of(generator, c.task.holdout + c.warm_up + 40)
    begin = place_of(generator, x.size - w + 1, c.task.holdout, c.plan.tree_blocks * c.plan.block)
    if c.task.holdout and pick(generator, False, True):
        begin = c.task.holdout - int(generator.integers(1, min(w, c.task.holdout + 1)))
    places = range(begin, begin + w)
    return of_pair(generator, make, x, altered(generator, x, *places), places)


def w_event(generator: Generator) -> Instance:
    """The baselines for w-event privacy: a window of w values."""
    w = pick(generator, 1, 2, 5)
    scheme, epsilon = pick(generator, *SCHEMES), pick(generator, 0.5, 6.0, 60.0)
    make = partial(WEvent, scheme, epsilon, BOUND, w, resolution=pick(generator, 1.0, 0.25))
    x = values_of(generator, 30)
    begin = int(generator.integers(0, x.size - w + 1))
    places = range(begin, begin + w)
    there = altered(generator, x, *places)
    return of_pair(generator, make, x, there, places, partial(baseline_shifts, make, x, there, places))


def row_parameters(generator: Generator) -> dict[str, Any]:
    """Of ``release_many``."""
    perturber = pick(generator, {"perturber": NODES}, {"perturber": Flat()}, pruned(generator, 2, 0, 1))
    return parameters_of(generator, max_range=pick(generator, 5, 8), **perturber)


def of_row(make: Make, row: int, *, key: Key) -> Any:
    """The publisher of one of several rows."""
    return make(key=key.of_stream(row))


def rows(generator: Generator) -> Instance:
    """``release_many``: a value of one row."""
    parameters = row_parameters(generator)
    x = np.stack([values_of(generator, parameters["holdout"] + 30) for _ in range(4)])
    row, place = int(generator.integers(4)), place_of(generator, x.shape[1], parameters["holdout"], 4)
    there = x.copy()
    there[row] = altered(generator, x[row], place)
    make = partial(of_row, partial(fastdp.StreamPublisher, **parameters), row)
    shift = partial(stream_shifts, make, x[row], there[row], [place])
    return Instance(parameters["epsilon"], partial(see_many, parameters), x, there, shift)


def repeated(generator: Generator) -> Instance:
    """``repeat``: all repetitions of a stream, each of which loses epsilon."""
    parameters, count = row_parameters(generator), 3
    make = partial(fastdp.StreamPublisher, **parameters)
    x = values_of(generator, parameters["holdout"] + 30)
    place = place_of(generator, x.size, parameters["holdout"], 4)
    there = altered(generator, x, place)

    def shift(table: Table, shifts: Shifts) -> None:
        for number in range(count):
            stream_shifts(partial(of_row, make, number), x, there, [place], table, shifts)

    return Instance(count * parameters["epsilon"], partial(see_repeated, make, count), x, there, shift)


#: Publishers of values.
STREAMS: dict[str, Draw] = {
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
