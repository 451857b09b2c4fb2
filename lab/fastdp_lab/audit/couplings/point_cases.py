"""Small random instances of everything that publishes a changing set of points, for couplings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.spatial import Box, PrivTree
from fastdp.spatial.cells import encode
from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
from fastdp.systems.phdstream.publisher import PHDStream
from fastdp.systems.phdstream.spatial_publisher import SpatialPublisher
from fastdp_lab.audit.couplings.check import KEY, Case, Instance, Seen, Shifts, Table
from fastdp_lab.audit.couplings.counter_cases import counter_of, running_counts, selective
from fastdp_lab.audit.couplings.points import (
    COORDINATES,
    Batch,
    Event,
    Floats,
    Generator,
    Make,
    counted_shifts,
    decide,
    followed_shifts,
    leaf_of,
    noted_steps,
    see_points,
)
from fastdp_lab.audit.couplings.streams import pick
from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch


def points_of(generator: Generator, dim: int, most: int) -> Floats:
    """A few points, many of them equal."""
    drawn: Floats = generator.choice(COORDINATES, (int(generator.integers(most + 1)), dim))
    return drawn


def batches_of(generator: Generator, dim: int, count: int) -> list[Batch]:
    """Batches of few points or none, the first one larger."""
    sizes = [40, *generator.choice([0, 3, 12], count - 1).tolist()]
    return [(points_of(generator, dim, size), points_of(generator, dim, size // 3), 0) for size in sizes]


def event_of(generator: Generator, dim: int, count: int, *, removal: bool | None = None) -> Event:
    """An event in the first batch, the last or any other."""
    batch = int(pick(generator, 0, 1, count - 1, int(generator.integers(count))))
    removes = bool(pick(generator, False, True)) if removal is None else removal
    return Event(batch % count, generator.choice(COORDINATES, (1, dim)), removes, bool(pick(generator, False, True)))


def of_points(
    generator: Generator,
    make: Make,
    count: int,
    *,
    saves: bool = True,
    event: Event | None = None,
    batches: list[Batch] | None = None,
    epsilon: float | None = None,
) -> Instance:
    """A publisher of points and so many batches; by default it claims what it guarantees."""
    stream = make(KEY)
    dim, plan = stream.domain.dim, stream._plan
    event = event_of(generator, dim, count) if event is None else event
    x, there = event.streams(batches_of(generator, dim, count) if batches is None else batches)
    code = int(encode(plan, event.point)[0])

    def shifts(table: Table) -> Shifts:
        if isinstance(stream, AdaptivePHDStream):
            return counted_shifts(make, table, x, there, event, code)
        return followed_shifts(make, table, x, there, event, code)

    saved = int(generator.integers(count)) if saves else -1
    claim = stream.guarantee.epsilon if epsilon is None else epsilon
    return Instance(claim, partial(see_points, make, saved), x, there, shifts)


def domain_of(generator: Generator) -> Box:
    """The unit interval, or the unit square."""
    domain: Box = pick(generator, Box(0, 1), Box((0, 0), (1, 1)))
    return domain


def shape_of(generator: Generator) -> dict[str, Any]:
    """Parameters of all publishers of points."""
    return {
        "domain": domain_of(generator),
        "epsilon": float(pick(generator, 0.5, 1.0, 6.0)),
        "max_depth": int(pick(generator, 0, 2, 6)),
        "fan_out": int(pick(generator, 2, 3)),
    }


def phdstream(generator: Generator) -> Instance:
    """Each counter; cells that are forgotten."""
    options = {**shape_of(generator), "counter": counter_of(generator), "retention": int(pick(generator, 0, 1, 16))}
    return with_whole(generator, options, PHDStream, int(generator.integers(1, 10)))


def adaptive_phdstream(generator: Generator) -> Instance:
    """Counts at public times, with cells of the past or chosen by PrivTree."""
    options = {
        **shape_of(generator),
        "period": pick(generator, None, 1, 3),
        "max_period": 4,
        "shrink": bool(pick(generator, False, True)),
    }
    if options["period"] is not None:
        del options["max_period"]
    return with_whole(generator, options, AdaptivePHDStream, int(generator.integers(1, 14)))


def with_whole(
    generator: Generator, options: dict[str, Any], kind: Callable[..., SpatialPublisher], count: int
) -> Instance:
    """With a count of the whole in every other instance, of which a block may end."""
    share = float(pick(generator, 0.0, 0.0, 0.05, 0.5))
    more = {**options, "total_share": share}
    return of_points(
        generator, lambda key: kind(**more, key=key), int(pick(generator, count, 18)) if share else count
    )


def baselines(generator: Generator) -> Instance:
    """Those with a guarantee; of the one that scales its trees up the number of points is public."""
    options = shape_of(generator)
    if pick(generator, False, True):
        return of_points(generator, lambda key: OfflineOnBatch(**options, key=key), int(generator.integers(1, 6)))
    counter = counter_of(generator)
    return of_points(
        generator, lambda key: FixedTree(counter=counter, **options, key=key), int(generator.integers(1, 12))
    )


def privtree(generator: Generator) -> Instance:
    """One set of points."""
    options = shape_of(generator)
    dim, plan = options["domain"].dim, PrivTree(**options, key=KEY)._plan
    event = replace(event_of(generator, dim, 1, removal=False), batch=0)
    x, there = event.streams([(points_of(generator, dim, 40), np.zeros((0, dim)), 0)])
    code = int(encode(plan, event.point)[0])

    def publish(key: Key, batches: list[Batch]) -> Seen:
        seen = Seen()
        with seen.warned():
            fitted = PrivTree(**options, key=key)
            tree = fitted.fit(batches[0][0])
            seen.add("tree", tree.lower, tree.upper, tree.counts, tree.depths, tree.total, repr(tree), str(tree))
            seen.add("samples", tree.sample(1), fitted.guarantee)
        return seen

    def shifts(table: Table) -> Shifts:
        found = Shifts()
        with noted_steps() as steps:
            PrivTree(**options, key=table.key).fit(x[0][0])
        decide(found, plan, 0, steps[0], code, event.effect)
        found.add(KEY, StreamId(Purpose.CELL), leaf_of(plan, steps[0], code), -event.effect)
        return found

    return Instance(PrivTree(**options, key=KEY).guarantee.epsilon, publish, x, there, shifts)


def point_cases() -> list[Case]:
    """Counters, and publishers of points."""
    return [
        Case("running-counts", running_counts),
        Case("selective-counting", selective),
        Case("privtree", privtree),
        Case("phdstream", phdstream),
        Case("phdstream-adaptive", adaptive_phdstream),
        Case("baselines", baselines),
    ]
