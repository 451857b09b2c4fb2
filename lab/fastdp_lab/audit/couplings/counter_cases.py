"""Small random instances of counters, for couplings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, Selected, SelectiveCounting, Simple
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp_lab.audit.catalogue.points import Coin
from fastdp_lab.audit.couplings.check import KEY, Instance, Seen, Shifts, Table
from fastdp_lab.audit.couplings.points import Follower, Generator, Integers
from fastdp_lab.audit.couplings.streams import pick


def counter_of(generator: Generator) -> Counter:
    """One of all counters, with trees and blocks short enough to end."""
    counter: Counter = pick(
        generator,
        Simple(),
        Block(3),
        Block(3, settles=True),
        BinaryTree(4),
        BinaryTree(5, settles=True),
    )
    return counter


def running_counts(generator: Generator, counter: Counter | None = None) -> Instance:
    """Several running sums, one event in one of them; by default with any counter."""
    saves = counter is None
    counter = counter_of(generator) if counter is None else counter
    size, count = 3, int(generator.integers(1, 12))
    epsilon = float(pick(generator, 0.5, 1.0, 6.0))
    x = generator.integers(-2, 3, (count, size))
    step, row, effect = int(generator.integers(count)), int(generator.integers(size)), int(pick(generator, -1, 1))
    there = x.copy()
    there[step, row] += effect
    saved = int(generator.integers(count)) if saves else -1

    def publish(key: Key, values: Integers) -> Seen:
        seen = Seen()
        counts = RunningCounts(counter, epsilon, size, key=key)
        for number, increments in enumerate(values):
            seen.add("sums", counts.step(increments))
            if number == saved:
                counts = seen.reloaded(counts)
            seen.add("released", counts.released, counts.n_steps, counts.guarantee)
        return seen

    def shifts(table: Table) -> Shifts:
        found, errors = Shifts(), list[Integers]()
        where = StreamId(Purpose.CELL, number=step), row, effect
        for values, others in ((x, ()), (there, (found, where))):
            counts = RunningCounts(Follower(counter, table, errors, *others), epsilon, size, key=table.key)
            for increments in values:
                counts.step(increments)
        return found

    return Instance(RunningCounts(counter, epsilon, size, key=KEY).guarantee.epsilon, publish, x, there, shifts)


@dataclass(frozen=True)
class FlippedCoin(Coin):
    """A coin whose word is the opposite at one step: what keeps its choice where the input changes sides."""

    flipped: int = -1

    def select(self, values: Integers, step: int, last: Selected | None) -> int:
        """The coin's."""
        choice = super().select(values, step, last)
        return 1 - choice if step == self.flipped else choice


def selective(generator: Generator, key_of: Callable[[Key], Key] = lambda key: key) -> Instance:
    """Two counters and a coin, whose word is coupled too; ``key_of`` makes the publisher's key of a table's."""
    counters = [counter_of(generator) for _ in range(2)]
    epsilon, seed, count = float(pick(generator, 0.5, 1.0, 6.0)), int(generator.integers(2**30)), 12
    x = generator.integers(-1, 2, count)
    step, effect = int(generator.integers(count)), int(pick(generator, -1, 1))
    there = x.copy()
    there[step] += effect
    flipped = step if (x[step] > 0) != (there[step] > 0) else -1
    saved = int(generator.integers(count))

    def publish(key: Key, data: tuple[Integers, int]) -> Seen:
        seen, coin = Seen(), FlippedCoin(epsilon, seed, data[1])
        counting = SelectiveCounting(counters, coin, epsilon, key=key_of(key))
        for number, value in enumerate(data[0].tolist()):
            selected = counting.step(value)
            seen.add("counts", selected.counter, selected.counts, repr(selected))
            if number == saved:
                counting = seen.reloaded(counting, selector=coin)
            seen.add("place", counting.n_steps, counting.guarantee)
        return seen

    def shifts(table: Table) -> Shifts:
        found = Shifts()
        chosen: list[int] = []
        counting = SelectiveCounting(counters, FlippedCoin(epsilon, seed), epsilon, key=key_of(table.key))
        for value in x.tolist():
            chosen.append(counting.step(value).counter)
        # Each counter has steps of its own, so the event is at one of the chosen counter's.
        own = chosen[step]
        where = StreamId(Purpose.CELL, number=chosen[:step].count(own)), 0, effect
        errors: list[list[Integers]] = [[], []]
        for values, coin, others in (
            (x, FlippedCoin(epsilon, seed), ((), ())),
            (there, FlippedCoin(epsilon, seed, flipped), ((found, where), (found, None))),
        ):
            followers = [
                Follower(counter, table, errors[number], *others[number != own])
                for number, counter in enumerate(counters)
            ]
            counting = SelectiveCounting(followers, coin, epsilon, key=key_of(table.key))
            for value in values.tolist():
                counting.step(value)
        found.loss += epsilon if flipped >= 0 else 0.0
        return found

    claim = SelectiveCounting(counters, FlippedCoin(epsilon, seed), epsilon, key=KEY).guarantee.epsilon
    return Instance(claim, publish, (x, -1), (there, flipped), shifts)
