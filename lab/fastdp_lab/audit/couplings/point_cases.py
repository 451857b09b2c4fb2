"""Small random instances of counters and of everything that publishes a changing set of points, for couplings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastdp import AdaptivePHDStream, Key, PHDStream
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, SelectiveCounting, Simple
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial import Box, PrivTree
from fastdp.spatial.domains import encode
from fastdp_lab.audit.catalogue import Coin
from fastdp_lab.audit.couplings import check, points
from fastdp_lab.audit.couplings.check import KEY, Draw, Generator, Instance, Outputs, Shifts, Table, pick
from fastdp_lab.audit.couplings.points import COORDINATES, Batch, Event, Follower, Make
from fastdp_lab.baselines.points import FixedTree, OfflineOnBatch
from fastdp_lab.planning.tree_loss import noted_steps

COUNTERS = Simple(), Block(3), Block(3, settles=True), BinaryTree(4), BinaryTree(5, settles=True)


# Counters.


def counter_of(rng: Generator) -> Counter:
    """One of all counters, with trees and blocks short enough to end."""
    return pick(rng, *COUNTERS)  # type: ignore[no-any-return]


def running_counts(rng: Generator, counter: Counter | None = None) -> Instance:
    """Several running sums, one event in one of them; by default with any counter."""
    saves, counter = counter is None, counter_of(rng) if counter is None else counter
    size, count = 3, int(rng.integers(1, 12))
    make = partial(RunningCounts, counter, pick(rng, 0.5, 1.0, 6.0), size)
    x = rng.integers(-2, 3, (count, size))
    step, row, effect = int(rng.integers(count)), int(rng.integers(size)), pick(rng, -1, 1)
    there = x.copy()
    there[step, row] += effect
    saved = int(rng.integers(count)) if saves else -1

    def publish(key: Key, values: check.Integers) -> Outputs:
        counts = make(key=key)
        for number, increments in enumerate(values):
            yield "sums", counts.step(increments)
            if number == saved:
                counts = check.reloaded(counts)
            yield "released", counts.released, counts.n_steps, counts.guarantee

    def shifts(table: Table, found: Shifts) -> None:
        first = Follower([])
        event = {check.name_of(KEY, StreamId(Purpose.CELL, number=step)): (row, effect)}
        for values, follower in ((x, first), (there, Follower(first.errors, found, event))):
            counts = make(key=table.key)
            with follower.on(table):
                for increments in values:
                    counts.step(increments)

    return Instance(make(key=KEY).guarantee.epsilon, publish, x, there, shifts)


@dataclass(frozen=True)
class FlippedCoin(Coin):
    """A coin whose word is the opposite at one step: what keeps its choice where the input changes sides."""

    flipped: int = -1

    def select(self, values: check.Integers, step: int, last: Any) -> int:
        """The coin's."""
        choice = super().select(values, step, last)
        return 1 - choice if step == self.flipped else choice


def selective_counting(rng: Generator, key_of: Callable[[Key], Key] = lambda key: key) -> Instance:
    """Two counters and a coin, whose word is coupled too; ``key_of`` makes the publisher's key of a table's."""
    counters = [counter_of(rng) for _ in range(2)]
    epsilon, seed, count = pick(rng, 0.5, 1.0, 6.0), int(rng.integers(2**30)), 12
    x = rng.integers(-1, 2, count)
    step, effect = int(rng.integers(count)), pick(rng, -1, 1)
    there = x.copy()
    there[step] += effect
    flipped = step if (x[step] > 0) != (there[step] > 0) else -1
    saved = int(rng.integers(count))

    def make(key: Key, coin: FlippedCoin) -> SelectiveCounting:
        return SelectiveCounting(counters, coin, epsilon, key=key_of(key))

    def publish(key: Key, data: tuple[check.Integers, int]) -> Outputs:
        coin = FlippedCoin(epsilon, seed, data[1])
        counting = make(key, coin)
        for number, value in enumerate(data[0].tolist()):
            selected = counting.step(value)
            yield "counts", selected.counter, selected.counts, repr(selected)
            if number == saved:
                counting = check.reloaded(counting, selector=coin)
            yield "place", counting.n_steps, counting.guarantee

    def shifts(table: Table, found: Shifts) -> None:
        def choices(values: check.Integers, flips: int, follower: Follower) -> list[int]:
            counting = make(table.key, FlippedCoin(epsilon, seed, flips))
            with follower.on(table):
                return [counting.step(value).counter for value in values.tolist()]

        first = Follower([])
        chosen = choices(x, -1, first)
        # Each counter has steps of its own, so the event is at one of the chosen counter's.
        where = StreamId(Purpose.CELL, number=chosen[:step].count(chosen[step]))
        own = check.name_of(key_of(table.key).derive("counter", chosen[step]), where)
        choices(there, flipped, Follower(first.errors, found, {own: (0, effect)}))
        found.loss += epsilon if flipped >= 0 else 0.0

    claim = make(KEY, FlippedCoin(epsilon, seed)).guarantee.epsilon
    return Instance(claim, publish, (x, -1), (there, flipped), shifts)


# Points.


def event_of(rng: Generator, dim: int, count: int, *, removal: bool | None = None) -> Event:
    """An event in the first batch, the last or any other."""
    batch = pick(rng, 0, 1, count - 1, int(rng.integers(count)))
    removes = pick(rng, False, True) if removal is None else removal
    return Event(batch % count, rng.choice(COORDINATES, (1, dim)), removes, pick(rng, False, True))


def of_points(
    rng: Generator,
    make: Make,
    count: int,
    *,
    saves: bool = True,
    event: Event | None = None,
    batches: list[Batch] | None = None,
) -> Instance:
    """A publisher of points and so many batches."""
    stream = make(key=KEY)
    event = event or event_of(rng, stream.domain.dim, count)
    x, there = event.streams(batches or points.batches_of(rng, stream.domain.dim, count))
    shifts = partial(points.point_shifts, make, x, there, event, int(encode(stream._plan, event.point)[0]))
    saved = int(rng.integers(count)) if saves else -1
    return Instance(stream.guarantee.epsilon, partial(points.see_points, make, saved), x, there, shifts)


def shape_of(rng: Generator) -> dict[str, Any]:
    """Parameters of all publishers of points, on the unit interval or the unit square."""
    return {
        "domain": pick(rng, Box(0, 1), Box((0, 0), (1, 1))),
        "epsilon": pick(rng, 0.5, 1.0, 6.0),
        "max_depth": pick(rng, 0, 2, 6),
        "fan_out": pick(rng, 2, 3),
    }


def phdstream(rng: Generator) -> Instance:
    """Each counter; cells that are forgotten."""
    options = {**shape_of(rng), "counter": counter_of(rng), "retention": pick(rng, 0, 1, 16)}
    return with_whole(rng, options, PHDStream, int(rng.integers(1, 10)))


def phdstream_adaptive(rng: Generator) -> Instance:
    """Counts at public times, with cells of the past or chosen by PrivTree."""
    options = {**shape_of(rng), "period": pick(rng, None, 1, 3), "shrink": pick(rng, False, True)}
    options |= {"max_period": 4} if options["period"] is None else {}
    return with_whole(rng, options, AdaptivePHDStream, int(rng.integers(1, 14)))


def with_whole(rng: Generator, options: dict[str, Any], kind: Make, count: int) -> Instance:
    """With a count of the whole in every other instance, of which a block may end."""
    share = pick(rng, 0.0, 0.0, 0.05, 0.5)
    make = partial(kind, **options, total_share=share)
    return of_points(rng, make, pick(rng, count, 18) if share else count)


def baselines(rng: Generator) -> Instance:
    """Those with a guarantee; of the one that scales its trees up the number of points is public."""
    options = shape_of(rng)
    if pick(rng, False, True):
        return of_points(rng, partial(OfflineOnBatch, **options), int(rng.integers(1, 6)))
    make = partial(FixedTree, counter=counter_of(rng), **options)
    return of_points(rng, make, int(rng.integers(1, 12)))


def privtree(rng: Generator) -> Instance:
    """One set of points."""
    make = partial(PrivTree, **shape_of(rng))
    plan, dim = make(key=KEY)._plan, make(key=KEY).domain.dim
    event = event_of(rng, dim, 1, removal=False)._replace(batch=0)
    x, there = event.streams([(points.points_of(rng, dim, 40), np.zeros((0, dim)), 0)])
    code = int(encode(plan, event.point)[0])

    def publish(key: Key, batches: list[Batch]) -> Outputs:
        fitted = make(key=key)
        tree = fitted.fit(batches[0][0])
        yield "tree", tree.lower, tree.upper, tree.counts, tree.depths, tree.total, repr(tree), str(tree)
        yield "samples", tree.sample(1), fitted.guarantee

    def shifts(table: Table, found: Shifts) -> None:
        with noted_steps() as steps:
            make(key=table.key).fit(x[0][0])
        points.decide(found, plan, 0, steps[0], code, event.effect)
        found.add(KEY, StreamId(Purpose.CELL), points.leaf_of(plan, steps[0], code), -event.effect)

    return Instance(make(key=KEY).guarantee.epsilon, publish, x, there, shifts)


_DRAWN = (running_counts, selective_counting, privtree, phdstream, phdstream_adaptive, baselines)
#: Counters, and publishers of points.
POINTS: dict[str, Draw] = {draw.__name__.replace("_", "-"): draw for draw in _DRAWN}
