"""Small random instances of everything that publishes a stream of values, for couplings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import fastdp
from fastdp import Key
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.streams.methods import SMOOTHERS
from fastdp.streams.release import WholeStream
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit.couplings import streams
from fastdp_lab.audit.couplings.check import KEY, Draw, Generator, Instance, Shift, Shifts, Table, pick
from fastdp_lab.audit.couplings.streams import BOUND, Floats, Make, altered, values_of
from fastdp_lab.baselines.w_event import SCHEMES, WEvent

EPSILONS, RESOLUTIONS = (0.5, 1.0, 6.0), (1.0, 0.25, 0.1)
#: Ends of blocks; longest ranges.
CLOSINGS, RANGES = ("spread", "spike", "none"), (4, 64, 1024)
NODES = Hierarchy(2, consistent=False, prune=0)


# Parameters.


def noisy_choice(rng: Generator) -> NoisyMax | ScaleFree:
    """A rule that looks at the hold-out."""
    noise = pick(rng, "laplace", "exponential")
    return pick(rng, NoisyMax(step=1.0, fan_out=2, noise=noise), ScaleFree(noise))  # type: ignore[no-any-return]


def parameters_of(rng: Generator, **options: Any) -> dict[str, Any]:
    """Of ``StreamPublisher`` and ``release_many``; ``options`` replace the random ones."""
    rule = noisy_choice(rng)
    if "renewal" not in options:
        rule = pick(rng, Fixed(pick(rng, 1.0, 3.0, 8.0)), rule, rule)
    threshold = options.get("threshold", rule)
    return {
        "threshold": threshold,
        "smoother": None,
        "epsilon": pick(rng, *EPSILONS),
        "bound": BOUND,
        "holdout": pick(rng, 3, 8, 24) if threshold.uses_holdout else 0,
        "max_range": pick(rng, 2, 5, 8),
        "resolution": pick(rng, *RESOLUTIONS),
        **options,
    }


def pruned(rng: Generator, fan_out: int, *levels: int) -> dict[str, Any]:
    """A hierarchy that leaves out one of these numbers of levels, and a smoother where there are any."""
    prune = pick(rng, *levels)
    smoother = pick(rng, *SMOOTHERS.values())() if prune else None
    basis = pick(rng, "boxes", "boxes", "hats")
    return {"perturber": Hierarchy(fan_out, prune=prune, basis=basis), "smoother": smoother}


def publisher(rng: Generator, kind: type = fastdp.StreamPublisher, **options: Any) -> Make:
    """A publisher of random parameters, by key."""
    return partial(kind, **parameters_of(rng, **options))


def place_of(rng: Generator, size: int, holdout: int, borders: int) -> int:
    """Where the streams differ: at an end, at a border of hold-outs or trees, or anywhere."""
    marks = [0, holdout - 1, holdout, holdout + 1, size - 1]
    marks += [holdout + border + by for border in range(borders, size, borders) for by in (-1, 0)]
    inside = [mark for mark in marks if 0 <= mark < size]
    return int(pick(rng, int(rng.integers(size)), pick(rng, *inside)))


# Instances.


def of_stream(rng: Generator, make: Make, size: int, place: int | None = None, *, saves: bool = True) -> Instance:
    """A publisher on ``size`` values after its hold-out; ``place`` counts from the end of the hold-out."""
    c = make(key=KEY).composition
    x = values_of(rng, c.task.holdout + c.warm_up + size)
    trees = c.plan.tree_blocks * c.plan.block
    at = place_of(rng, x.size, c.task.holdout, trees) if place is None else c.task.holdout + place
    return of_pair(rng, make, x, altered(rng, x, at), [at], saves=saves)


def of_pair(
    rng: Generator,
    make: Make,
    x: Floats,
    there: Floats,
    places: Sequence[int],
    shift: Shift | None = None,
    *,
    saves: bool = True,
    releases: bool = True,
) -> Instance:
    """A publisher on streams that differ at these places; by default with the shifts of ``StreamPublisher``."""
    cuts = sorted(rng.integers(0, x.size + 1, 3).tolist())
    saved = int(rng.integers(4)) if saves else -1
    publish = partial(streams.see_stream, make, cuts, saved, releases)
    shift = shift or partial(streams.stream_shifts, make, x, there, places)
    return Instance(make(key=KEY).guarantee.epsilon, publish, x, there, shift)


def adaptive(rng: Generator) -> Instance:
    """All closings, with a warm-up from 16 values of hold-out on."""
    options = parameters_of(rng, max_range=pick(rng, *RANGES))
    del options["smoother"]
    options["holdout"] *= pick(rng, 1, 4)
    closing, season = pick(rng, *CLOSINGS), pick(rng, None, 4.0, 9.5)
    make = partial(fastdp.Adaptive, **options, perturber=Blocks(closing, season=season))
    return of_stream(rng, make, int(rng.integers(1, 120)))


def whole(rng: Generator, kind: type[WholeStream] = WholeStream) -> Instance:
    """A finished array: each value enters the choice of theta and one block."""
    size = int(rng.integers(1, 120))
    rule, closing = noisy_choice(rng), pick(rng, *CLOSINGS)
    epsilon, resolution = pick(rng, *EPSILONS), pick(rng, *RESOLUTIONS)
    options: dict[str, Any] = {"threshold": rule, "resolution": resolution}
    make = partial(kind, size, epsilon, BOUND, pick(rng, *RANGES), perturber=Blocks(closing), **options)
    x = values_of(rng, size)
    there = altered(rng, x, place_of(rng, size, 0, 16))

    def shift(table: Table, shifts: Shifts) -> None:
        made = make(key=table.key)
        if made.share:
            streams.choice_shift(rule, made.task, made._key, x, there, shifts)

    return Instance(epsilon, partial(streams.see_whole, make), x, there, shift)


def flat(rng: Generator) -> Instance:
    """Noise on every value."""
    return of_stream(rng, publisher(rng, perturber=Flat()), int(rng.integers(1, 60)))


def tops(rng: Generator) -> Instance:
    """A consistent hierarchy, several trees, pruned or not."""
    options = pruned(rng, pick(rng, 2, 3), 0, 1, 2)
    return of_stream(rng, publisher(rng, max_range=pick(rng, 10, 16), **options), 70)


def nodes(rng: Generator) -> Instance:
    """An inconsistent hierarchy, whose nodes are released."""
    perturber = Hierarchy(pick(rng, 2, 3), consistent=False, prune=0)
    return of_stream(rng, publisher(rng, perturber=perturber), int(rng.integers(1, 40)))


def renewed(rng: Generator) -> Instance:
    """Thresholds that follow the stream, from withheld or published values."""
    held = RenewFromHoldout(1, 5), RenewFromHoldout(2, None)
    renewal = pick(rng, *held, RenewFromPublished(0.3, 1), RenewFromPublished(0.5, 2))
    return of_stream(rng, publisher(rng, renewal=renewal, max_range=4, **pruned(rng, 2, 0, 1)), 60)


def pak(rng: Generator) -> Instance:
    """Running sums, lag sums, averages; with a threshold from the hold-out, or a known one."""
    rule, holdout = pick(rng, (Fixed(3.0), 0), (Fixed(8.0), 5), (NoisyMax(step=1.0, fan_out=2), 9))
    length = holdout + pick(rng, 3, 7, 8, 17)
    lag_sums, average = holdout and pick(rng, False, True), pick(rng, None, "all", 3)
    epsilon, tail_factor = pick(rng, *EPSILONS), pick(rng, 1.0, 1.5)
    options = {"lag_sums": bool(lag_sums), "average": average, "resolution": pick(rng, *RESOLUTIONS)}
    options |= {"holdout": holdout, "tail_factor": tail_factor, "threshold": rule}
    make = partial(fastdp.PAK, epsilon, 0.0, BOUND, length, **options)
    x = values_of(rng, length)
    place = place_of(rng, length, holdout, 4)
    there = altered(rng, x, place)
    shift = partial(streams.pak_shifts, make, x, there, place)
    return of_pair(rng, make, x, there, [place], shift, releases=average is None and not lag_sums)


def events(rng: Generator, factor: float = 1.0) -> Instance:
    """Counts without a bound: events that each move one of them; noise is for ``factor`` times as much."""
    sensitivity, several = pick(rng, 0.5, 1.0, 3.0), pick(rng, 1, 1, 3)
    epsilon, longest, closing = pick(rng, *EPSILONS), pick(rng, *RANGES), pick(rng, *CLOSINGS)
    options = {"resolution": pick(rng, None, 0.25), "season": pick(rng, None, 7.0), "max_range": longest}
    options |= {"sensitivity": factor * sensitivity, "contributions": several, "closing": closing}
    make = partial(fastdp.Adaptive, epsilon, **options)
    x = values_of(rng, int(rng.integers(1, 120))) * pick(rng, -1.0, 1.0, 50.0)
    there, places = x.copy(), rng.integers(0, x.size, several)
    for place in places:
        there[place] += sensitivity * pick(rng, -1.0, 0.5, 1.0)
    return of_pair(rng, make, x, there, sorted(set(places.tolist())))


def windows(rng: Generator, claimed: int = 0) -> Instance:
    """w consecutive values, often some of a hold-out and some behind it; noise is for ``claimed`` more."""
    w = pick(rng, 2, 3, 5)
    renewal = pick(rng, None, RenewFromHoldout(1, 5), RenewFromPublished(0.3, 1))
    blocks = {"perturber": Blocks(pick(rng, *CLOSINGS)), "max_range": 64}
    trees = pruned(rng, 2, 0, 1) | ({"renewal": renewal, "max_range": 4} if renewal else {"max_range": 8})
    kind = pick(rng, blocks, {"perturber": Flat()}, {"perturber": NODES}, trees)
    make = publisher(rng, contributions=w + claimed, **kind)
    c = make(key=KEY).composition
    x = values_of(rng, c.task.holdout + c.warm_up + 40)
    begin = place_of(rng, x.size - w + 1, c.task.holdout, c.plan.tree_blocks * c.plan.block)
    if c.task.holdout and pick(rng, False, True):
        begin = c.task.holdout - int(rng.integers(1, min(w, c.task.holdout + 1)))
    places = range(begin, begin + w)
    return of_pair(rng, make, x, altered(rng, x, *places), places)


def w_event(rng: Generator) -> Instance:
    """The baselines for w-event privacy: a window of w values."""
    w = pick(rng, 1, 2, 5)
    scheme, epsilon = pick(rng, *SCHEMES), pick(rng, 0.5, 6.0, 60.0)
    make = partial(WEvent, scheme, epsilon, BOUND, w, resolution=pick(rng, 1.0, 0.25))
    x = values_of(rng, 30)
    begin = int(rng.integers(0, x.size - w + 1))
    places = range(begin, begin + w)
    there = altered(rng, x, *places)
    return of_pair(rng, make, x, there, places, partial(streams.baseline_shifts, make, x, there, places))


def row_parameters(rng: Generator) -> dict[str, Any]:
    """Of ``release_many``."""
    perturber = pick(rng, {"perturber": NODES}, {"perturber": Flat()}, pruned(rng, 2, 0, 1))
    return parameters_of(rng, max_range=pick(rng, 5, 8), **perturber)


def of_row(make: Make, row: int, *, key: Key) -> Any:
    """The publisher of one of several rows."""
    return make(key=key.of_stream(row))


def release_many(rng: Generator) -> Instance:
    """``release_many``: a value of one row."""
    parameters = row_parameters(rng)
    x = np.stack([values_of(rng, parameters["holdout"] + 30) for _ in range(4)])
    row, place = int(rng.integers(4)), place_of(rng, x.shape[1], parameters["holdout"], 4)
    there = x.copy()
    there[row] = altered(rng, x[row], place)
    make = partial(of_row, partial(fastdp.StreamPublisher, **parameters), row)
    shift = partial(streams.stream_shifts, make, x[row], there[row], [place])
    return Instance(parameters["epsilon"], partial(streams.see_many, parameters), x, there, shift)


def repeat(rng: Generator) -> Instance:
    """``repeat``: all repetitions of a stream, each of which loses epsilon."""
    parameters, count = row_parameters(rng), 3
    make = partial(fastdp.StreamPublisher, **parameters)
    x = values_of(rng, parameters["holdout"] + 30)
    place = place_of(rng, x.size, parameters["holdout"], 4)
    there = altered(rng, x, place)

    def shift(table: Table, shifts: Shifts) -> None:
        for number in range(count):
            streams.stream_shifts(partial(of_row, make, number), x, there, [place], table, shifts)

    return Instance(count * parameters["epsilon"], partial(streams.see_repeated, make, count), x, there, shift)


_DRAWN = (adaptive, whole, flat, tops, nodes, renewed, pak, events, windows, w_event, release_many, repeat)
#: Publishers of values.
STREAMS: dict[str, Draw] = {draw.__name__.replace("_", "-"): draw for draw in _DRAWN}
