"""Small random instances of everything that publishes a stream of values, for couplings."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fastdp.auditing.couplings import KEY, Case, Instance, Seen, Shifts, Table
from fastdp.auditing.stream_couplings import (
    BOUND,
    Floats,
    Generator,
    Make,
    altered,
    choice_shift,
    pak_shifts,
    pick,
    see_many,
    see_pak,
    see_repeated,
    see_stream,
    stream_shifts,
    values_of,
)
from fastdp.guarantee import Guarantee
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.randomness.key import Key
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.stream.adaptive import Adaptive
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.tops import SMOOTHERS
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.base import Threshold, ThresholdTask
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished

#: Values of a stream on which blocks have changed their length.
LONG = 1200


def places(generator: Generator, size: int, holdout: int, borders: int) -> int:
    """Where the streams differ: at an end, at a border of hold-outs or trees, or anywhere."""
    marks = [0, holdout - 1, holdout, holdout + 1, size - 1]
    marks += [holdout + border + by for border in range(borders, size, borders) for by in (-1, 0)]
    inside = [mark for mark in marks if 0 <= mark < size]
    return int(pick(generator, int(generator.integers(size)), pick(generator, *inside)))


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
    """A publisher, on a stream of ``size`` values behind its hold-out, or on a given pair and where it differs.

    By default the publisher claims what it guarantees.
    """
    c = make(KEY).composition
    holdout = c.task.holdout + c.warm_up
    if pair is None:
        x = values_of(generator, holdout + size)
        if place is None:
            place = places(generator, x.size, c.task.holdout, c.plan.tree_blocks * c.plan.block)
        pair = x, altered(generator, x, place), place
    x, there, at = pair
    cuts = sorted(generator.integers(0, x.size + 1, 3).tolist())
    saved = int(generator.integers(4)) if saves else -1

    def shifts(_: Table) -> Shifts:
        found = Shifts()
        stream_shifts(make, KEY, x, there, at, found)
        return found

    claim = make(KEY).guarantee.epsilon if epsilon is None else epsilon
    return Instance(claim, partial(see_stream, make, cuts, saved), x, there, shifts)


def threshold_of(generator: Generator) -> tuple[Threshold, int]:
    """A rule and its hold-out."""
    rule = pick(
        generator,
        Fixed(float(pick(generator, 1.0, 3.0, 8.0))),
        NoisyMax(step=1.0, fan_out=2, noise=pick(generator, "laplace", "exponential")),
        ScaleFree(pick(generator, "laplace", "exponential")),
    )
    return rule, int(pick(generator, 3, 8, 24)) if rule.uses_holdout else 0


def composed(generator: Generator, perturber: Any, smoother: Any = None, renewal: Any = None, **options: Any) -> Make:
    """A publisher of random parameters."""
    threshold, holdout = threshold_of(generator)
    while renewal is not None and not threshold.uses_holdout:
        threshold, holdout = threshold_of(generator)
    usual = {
        "threshold": threshold,
        "epsilon": float(pick(generator, 0.5, 1.0, 6.0)),
        "bound": BOUND,
        "holdout": holdout,
        "max_range": int(pick(generator, 2, 5, 8)),
        "resolution": float(pick(generator, 1.0, 0.25, 0.1)),
    }
    parameters = {**usual, **options}

    def make(key: Key) -> StreamPublisher:
        return StreamPublisher(perturber=perturber, smoother=smoother, renewal=renewal, key=key, **parameters)

    return make


def adaptive(generator: Generator) -> Instance:
    """All closings, with a warm-up from 16 values of hold-out on."""
    closing = pick(generator, "spread", "spike", "none")
    threshold, holdout = threshold_of(generator)
    parameters = {
        "epsilon": float(pick(generator, 0.5, 2.0, 8.0)),
        "bound": BOUND,
        "holdout": holdout * int(pick(generator, 1, 4)),
        "max_range": int(pick(generator, 4, 64, 1024)),
        "closing": closing,
        "resolution": float(pick(generator, 1.0, 0.25, 0.1)),
        "threshold": threshold,
    }
    return of_stream(generator, lambda key: Adaptive(**parameters, key=key), int(generator.integers(1, 120)))


def turning(generator: Generator) -> tuple[Make, Floats, Floats, int]:
    """A publisher whose blocks change their length, and streams that differ where true sums would change it.

    On the way from a calm stream to a wild one, value by value, lengths change somewhere.
    """
    options = {"threshold": Fixed(8.0), "holdout": 0, "resolution": 1.0, "max_range": 256}
    make = composed(generator, Blocks(pick(generator, "spread", "spike", "none")), **options)
    wild = np.where(np.arange(LONG) // int(pick(generator, 1, 8, 32)) % 2, 8.0, 0.0)
    calm = np.full(LONG, float(pick(generator, 0.0, 3.0, 8.0)))

    def lengths(changed: int) -> bytes:
        # The first spread is 0: no noise.
        with Table(0):
            revision = make(KEY).release(np.concatenate([wild[:changed], calm[changed:]])).revision
        assert revision is not None  # noqa: S101 - blocks have one
        return revision.exponents.tobytes()

    low, high, first = 0, LONG, lengths(0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lengths(middle) == first else (low, middle)
    streams = [np.concatenate([wild[:changed], calm[changed:]]) for changed in (low, high)]
    return make, streams[0], streams[1], low


def adaptive_lengths(generator: Generator) -> Instance:
    """Where true sums would change the length of blocks."""
    make, x, there, place = turning(generator)
    return of_stream(generator, make, pair=(x, there, place))


def adaptive_batches(generator: Generator) -> Instance:
    """Blocks of one value past the border of a batch of noise."""
    make = composed(generator, Blocks(), max_range=4, epsilon=2.0)
    holdout = make(KEY).composition.task.holdout
    place = holdout + int(pick(generator, 1023, 1024, 1025, 2047, 2048))
    return of_stream(generator, make, 2100, place=place)


def flat(generator: Generator) -> Instance:
    """Noise on every value."""
    return of_stream(generator, composed(generator, Flat()), int(generator.integers(1, 60)))


def flat_batches(generator: Generator) -> Instance:
    """Past the border of a batch of noise."""
    make = composed(generator, Flat())
    holdout = make(KEY).composition.task.holdout
    return of_stream(generator, make, 65_600, place=holdout + int(pick(generator, 65_535, 65_536, 65_599)))


def smoother_of(generator: Generator) -> Any:
    """One of all smoothers."""
    return pick(generator, *SMOOTHERS.values())()


def tops(generator: Generator) -> Instance:
    """A consistent hierarchy, several trees, pruned or not."""
    prune = int(pick(generator, 0, 1, 2))
    perturber = Hierarchy(int(pick(generator, 2, 3)), prune=prune)
    smoother = smoother_of(generator) if prune else None
    return of_stream(generator, composed(generator, perturber, smoother, max_range=int(pick(generator, 10, 16))), 70)


def nodes(generator: Generator) -> Instance:
    """An inconsistent hierarchy, whose nodes are released."""
    perturber = Hierarchy(int(pick(generator, 2, 3)), consistent=False, prune=0)
    return of_stream(generator, composed(generator, perturber), int(generator.integers(1, 40)))


def renewed(generator: Generator) -> Instance:
    """Thresholds that follow the stream, from values withheld or published."""
    prune = int(pick(generator, 0, 1))
    renewal = pick(
        generator,
        RenewFromHoldout(1, 5),
        RenewFromHoldout(2, None),
        RenewFromPublished(0.3, 1),
        RenewFromPublished(0.5, 2),
    )
    perturber = Hierarchy(2, prune=prune)
    make = composed(generator, perturber, smoother_of(generator) if prune else None, renewal, max_range=4)
    return of_stream(generator, make, 60)


def pak(generator: Generator) -> Instance:
    """Running sums, lag sums, averages; with a threshold from the hold-out, or a known one."""
    rule, holdout = pick(generator, (Fixed(3.0), 0), (Fixed(8.0), 5), (NoisyMax(step=1.0, fan_out=2), 9))
    length = holdout + int(pick(generator, 3, 7, 8, 17))
    parameters: dict[str, Any] = {
        "epsilon": float(pick(generator, 0.5, 1.0, 6.0)),
        "delta": 0.0,
        "bound": BOUND,
        "length": length,
        "holdout": holdout,
        "tail_factor": float(pick(generator, 1.0, 1.5)),
        "threshold": rule,
        "lag_sums": bool(holdout and pick(generator, False, True)),
        "average": pick(generator, None, "all", 3),
        "resolution": float(pick(generator, 1.0, 0.25, 0.1)),
    }

    def make(key: Key) -> PAK:
        return PAK(**parameters, key=key)

    x = values_of(generator, length)
    place = places(generator, length, holdout, 4)
    there = altered(generator, x, place)
    cuts = sorted(generator.integers(0, length + 1, 3).tolist())

    def shifts(_: Table) -> Shifts:
        found = Shifts()
        pak_shifts(make, x, there, place, found)
        return found

    publish = partial(see_pak, make, cuts, int(generator.integers(4)))
    return Instance(make(KEY).guarantee.epsilon, publish, x, there, shifts)


def rows(generator: Generator) -> Instance:
    """``release_many``: a value of one row."""
    parameters = row_parameters(generator)
    count, size = 4, 30
    x = np.stack([values_of(generator, parameters["holdout"] + size) for _ in range(count)])
    row, place = int(generator.integers(count)), places(generator, x.shape[1], parameters["holdout"], 4)
    there = x.copy()
    there[row] = altered(generator, x[row], place)

    def shifts(_: Table) -> Shifts:
        found = Shifts()
        stream_shifts(partial(_single, parameters), KEY.of_stream(row), x[row], there[row], place, found)
        return found

    return Instance(parameters["epsilon"], partial(see_many, parameters), x, there, shifts)


def repeated(generator: Generator) -> Instance:
    """``repeat``: all repetitions of a stream, each of which loses epsilon."""
    parameters = row_parameters(generator)
    x = values_of(generator, parameters["holdout"] + 30)
    place = places(generator, x.size, parameters["holdout"], 4)
    there = altered(generator, x, place)
    make, count = partial(_single, parameters), 3

    def shifts(_: Table) -> Shifts:
        found = Shifts()
        for number in range(count):
            stream_shifts(make, KEY.of_stream(number), x, there, place, found)
        return found

    return Instance(count * parameters["epsilon"], partial(see_repeated, make, count), x, there, shifts)


def row_parameters(generator: Generator) -> dict[str, Any]:
    """Of ``release_many``."""
    threshold, holdout = threshold_of(generator)
    perturber, smoother = pick(
        generator,
        (Hierarchy(2, prune=0), None),
        (Hierarchy(2, prune=1), smoother_of(generator)),
        (Hierarchy(2, consistent=False, prune=0), None),
        (Flat(), None),
    )
    return {
        "epsilon": float(pick(generator, 0.5, 1.0, 6.0)),
        "bound": BOUND,
        "threshold": threshold,
        "perturber": perturber,
        "smoother": smoother,
        "holdout": holdout,
        "max_range": int(pick(generator, 5, 8)),
        "resolution": float(pick(generator, 1.0, 0.25, 0.1)),
    }


def _single(parameters: dict[str, Any], key: Key) -> StreamPublisher:
    return StreamPublisher(**parameters, key=key)


def choices(generator: Generator) -> Instance:
    """Noisy max alone, on hold-outs of few values, where ties are frequent."""
    rule = pick(
        generator,
        *(NoisyMax(step=1.0, noise=noise) for noise in ("laplace", "exponential")),
        *(ScaleFree(noise) for noise in ("laplace", "exponential")),
    )
    task = ThresholdTask(
        epsilon=float(pick(generator, 0.5, 1.0, 6.0)),
        bound=BOUND,
        holdout=int(pick(generator, 2, 5, 30)),
        max_range=4,
        resolution=1.0,
        publish_epsilon=1.0,
        noise_constant=1.0,
    )
    x = values_of(generator, task.holdout)
    there = altered(generator, x, int(generator.integers(task.holdout)))

    def publish(values: Floats) -> Seen:
        seen = Seen()
        with seen.warned():
            chooser = rule.start(task)
            chooser.observe(values)
            seen.add("theta", chooser.choose(KEY))
        return seen

    def shifts(_: Table) -> Shifts:
        found = Shifts()
        choice_shift(found, rule, task, KEY, x, there)
        return found

    claim: Guarantee = rule.guarantee(task)
    return Instance(claim.epsilon, publish, x, there, shifts)


def stream_cases() -> list[Case]:
    """Publishers of values, and the choices of thresholds alone."""
    return [
        Case("choices", choices),
        Case("adaptive", adaptive),
        Case("adaptive-lengths", adaptive_lengths),
        Case("adaptive-batches", adaptive_batches),
        Case("flat", flat),
        Case("flat-batches", flat_batches),
        Case("tops", tops),
        Case("nodes", nodes),
        Case("renewed", renewed),
        Case("pak", pak),
        Case("release-many", rows),
        Case("repeat", repeated),
    ]
