"""Releases of many finished streams at once, bit for bit as publishers make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import NamedTuple, TypeVar

import numpy as np

from fastdp.data.column import as_floats, check_size
from fastdp.data.frames import StreamRows, Streams
from fastdp.errors import StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Indices
from fastdp.noise.key import Binding, Key, repeating
from fastdp.releases.published_answer import ReleasedNodes
from fastdp.releases.release import Ids, Release
from fastdp.releases.revised import RevisedStream
from fastdp.streams.adaptive_blocks import AdaptiveBlocks, Closed
from fastdp.streams.columns import RowKeys, RowValues
from fastdp.streams.columns import Streams as States
from fastdp.streams.fixed_blocks import BATCH_WORDS
from fastdp.streams.holdout import choose_thetas
from fastdp.streams.ids import distinct_ids
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.stream_machine import NotFiniteError, Schedule
from fastdp.thresholds.base import RowChooser
from fastdp.validation import refusal
from fastdp_kernels.streams import fixed_pass

#: Values of streams that go through the rule of finished arrays at a time.
AT_ONCE = 2**18
T = TypeVar("T")


class Sizes(NamedTuple):
    """Limits of a batch."""

    words: int = BATCH_WORDS
    #: So that converted input stays small too.
    values: int = 2**20


BATCH = Sizes()


def check_lengths(lengths: Indices, holdout: int) -> None:
    """Raise DataError for a stream no longer than the hold-out."""
    short = lengths <= holdout
    if short.any():
        check_size(int(lengths[short][0]), holdout, f"streams[{int(short.argmax())}]")


def unused(secret: Key | None) -> Key:
    """Secret of a publisher whose ``release_many`` has not run; else StateError."""
    if secret is None:
        raise StateError(
            "release_many() of a publisher that has released many streams, or that was copied or read from a "
            "state: expected a new one (equal noise on other values reveals their difference)"
        )
    return secret


def names_of(streams: Streams, ids: object, holdout: int, secret: Key) -> Ids:
    """Check lengths and names of streams, and the key."""
    check_lengths(streams.rows.lengths, holdout)
    if secret.member:
        raise refusal("key", secret, "a key without a stream number, which is for one stream")
    return distinct_ids(streams.ids if ids is None else ids, streams.rows.size)


def release_rows(
    composition: StreamParameters, secret: Key, streams: Streams, ids: object, threads: int, sizes: Sizes = BATCH
) -> Release:
    """Release stream i under ``secret.of_stream(ids[i])``."""
    rows, holdout, plan = streams.rows, int(composition.holdout), composition.plan
    named = names_of(streams, ids, holdout, secret)
    numbers = named if isinstance(named, np.ndarray) else None
    if numbers is None and secret.binding is Binding.COMPOSITION:
        # Streams of a fresh key cannot be released again, so their noise may follow their indices.
        numbers = np.arange(rows.size)
    published = rows.lengths - holdout
    keeps_nodes = composition.perturber.released_nodes
    trees = borders_of(-(-published // plan.tree_blocks) if keeps_nodes else 0 * published)
    nodes = None
    if keeps_nodes:
        sums = np.empty((int(trees[-1]), plan.nodes))
        nodes = ReleasedNodes(sums, plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks)
    many = Release(
        values=np.empty(int(published.sum())),
        offset=holdout,
        thresholds=np.empty(published.size),
        guarantee=guarantee_of_many(composition.guarantee(simulated=secret.simulated)),
        block=plan.block,
        nodes=nodes,
        noise=composition.noise_and_fraction_above,
        ids=named,
        borders=borders_of(published),
        tree_borders=trees,
        source=streams.source,
        online=True,
    )
    keys = RowKeys(composition.noise_key(secret), numbers, _named_keys(composition, secret, named), goes_on=False)
    machine = Schedule(composition)
    revisions = RowPass(machine, keys, rows, threads, sizes, many).run()
    if revisions:
        many = replace(many, revisions=revisions)
    many.values.flags.writeable = False
    if secret.simulated:
        return many
    return replace(many, noise_fingerprint=f"{composition.noise_key(secret.of_stream(0)).family.hex()}:*")


def _named_keys(composition: StreamParameters, secret: Key, names: Ids) -> Sequence[Key] | None:
    """Keys of named streams; None for numbers and fresh keys."""
    if isinstance(names, np.ndarray) or secret.binding is Binding.COMPOSITION:
        return None
    return composition.noise_keys([secret.of_stream(str(name)) for name in names])


def guarantee_of_many(one: Guarantee) -> Guarantee:
    """Guarantee of all streams."""
    step = "each value is in one of the streams, whose noise is independent: epsilon for all together (parallel)"
    return replace(one, derivation=(*one.derivation, step))


@dataclass(frozen=True)
class RowPass:
    """Releases finished streams in batches."""

    machine: Schedule
    #: `keys`, `rows`: those of all streams.
    keys: RowKeys
    rows: StreamRows
    #: Largest number of threads.
    threads: int
    sizes: Sizes
    #: Receives values, thresholds and nodes.
    into: Release

    def run(self) -> tuple[RevisedStream, ...]:
        composition, keys, n = self.machine.composition, self.keys, self.rows.size
        # A renewed threshold follows its own stream, from the hold-out on.
        begin = 0 if composition.renewal is not None else composition.task.holdout
        thetas, counts = self._thresholds() if begin else np.zeros(n), self.rows.lengths - begin
        if not composition.task.holdout:
            thetas[:] = composition.threshold.start(composition.task).choose(keys.key)
        # Streams of one length and one threshold together: batches are dense, and drawn from few distributions.
        order = np.lexsort((np.arange(n), thetas, counts))
        revisions: list[RevisedStream | None] = [None] * n

        def publish(which: Indices) -> None:
            values, starts = self.rows.take(which, begin)
            out_starts = self.into.borders[which] - (composition.holdout - begin)
            every = np.arange(which.size)
            batch = RowValues(values, starts, counts[which], every, self.into.values, out_starts)
            own = RowKeys(
                keys.key,
                None if keys.numbers is None else keys.numbers[which],
                None if keys.own is None else [keys.own[i] for i in which.tolist()],
                goes_on=False,
            )
            try:
                state, closed = self._published(batch, thetas[which], own)
            except NotFiniteError as error:
                wrong = int(error.args[0])
                values, starts = self._replace_nonfinite(values, starts, batch.counts, which, wrong, begin)
                batch = batch._replace(values=values, starts=starts)
                # None of the noise drawn so far was released.
                with repeating():
                    state, closed = self._published(batch, thetas[which], own)
            steps = state.rows["theta_steps"].copy()
            pipeline = self.machine.pipeline(keys.key)
            if isinstance(pipeline, AdaptiveBlocks):
                for i, revised in zip(which.tolist(), pipeline.revised(closed, steps, every), strict=True):
                    revisions[i] = revised
                steps = pipeline.highest(state.rows)
            elif self.into.nodes is not None:
                nodes = self.into.nodes, self.into.tree_borders[which]
                pipeline.released_nodes(steps, batch, own, *nodes)
            self.into.thresholds[which] = np.multiply(steps, composition.grid.resolution)

        width = self.machine.pipeline(keys.key).columns(1).smoother.size
        threads = worth(self.threads, int(counts.sum()), self.sizes.values)

        def rows_at_once(count: int) -> int:
            return even(n, self.rows_at_once(count, width), threads)

        concurrently(threads, publish, batches(order, counts, rows_at_once))
        return tuple(revision for revision in revisions if revision is not None)

    def _published(self, batch: RowValues, thetas: Floats, keys: RowKeys) -> tuple[States, Closed]:
        c, closed, every = self.machine.composition, Closed(), batch.which
        state = self.machine.pipeline(keys.key).columns(every.size)
        if c.renewal is not None:
            first = c.threshold.start(c.task)
            state = state._replace(choosers=[first.copy() for _ in every])
            return self.machine.take(state, batch, keys, closed), closed
        state = self.machine.pipeline(keys.key).open(state, every, thetas, keys)
        state.rows["n_seen"] = c.task.holdout
        if c.warm_up:
            warm_up = np.full(every.size, c.warm_up)
            unseen = batch._replace(counts=warm_up, out=np.empty(warm_up.sum()), out_starts=borders_of(warm_up)[:-1])
            state = self.machine.publish(state, unseen, keys, None)
            later = batch.starts + c.warm_up, batch.counts - c.warm_up, batch.out_starts + c.warm_up
            batch = batch._replace(starts=later[0], counts=later[1], out_starts=later[2])
        return self.machine.publish(state, batch, keys, closed), closed

    # Thresholds.

    def _thresholds(self) -> Floats:
        composition, n, threads, keys = self.machine.composition, self.rows.size, self.threads, self.keys
        holdout, uses_holdout = composition.task.holdout, composition.threshold.uses_holdout
        first = composition.threshold.start(composition.task)
        thetas = np.full(n, 0.0 if uses_holdout else first.choose(keys.key))

        def choose(which: Indices) -> None:
            counts: Indices = np.full(which.size, holdout, np.int64)
            values, starts = self.rows.take(which, 0, holdout)
            wrong = fixed_pass.first_nonfinite(values, starts, counts)
            if wrong >= 0:
                values, starts = self._replace_nonfinite(values, starts, counts, which, wrong, 0)
            if uses_holdout:
                thetas[which] = choose_thetas(first, holdout, values, starts, which, keys)

        if holdout:
            words = first.row_words if isinstance(first, RowChooser) else 1
            size = even(n, max(1, min(self.sizes.words // words, self.sizes.values // holdout)), threads)
            concurrently(threads, choose, (np.arange(i, min(n, i + size)) for i in range(0, n, size)))
        return thetas

    def _replace_nonfinite(
        self, values: Floats, starts: Indices, counts: Indices, which: Indices, wrong: int, before: int
    ) -> tuple[Floats, Indices]:
        rows = [values[begin : begin + count] for begin, count in zip(starts.tolist(), counts.tolist(), strict=True)]
        names = (f"streams[{i}]" for i in which.tolist())
        rows = [self.machine.composition.finite(row, before, name) for row, name in zip(rows, names, strict=True)]
        return as_floats(np.concatenate(rows)), borders_of(counts)[:-1]

    def rows_at_once(self, count: int, width: int) -> int:
        plan = self.machine.composition.plan
        closed = count // plan.block
        trees = -(-closed // plan.tree_blocks)
        words = trees * (plan.nodes if plan.levels > 1 else min(closed, plan.leaves))
        words += width + (2 * closed if plan.block > 1 else 0)
        return max(1, min(self.sizes.words // max(words, 1), self.sizes.values // count))


def borders_of(counts: Indices) -> Indices:
    """Start of each consecutive run, and the last end."""
    borders: Indices = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=borders[1:])
    return borders


# Batches of rows, and threads.


def batches(order: Indices, counts: Indices, rows_at_once: Callable[[int], int]) -> Iterator[Indices]:
    """Yield streams, sorted by length, at most `rows_at_once` at a time."""
    begin = 0
    while begin < order.size:
        end = min(order.size, begin + rows_at_once(int(counts[order[begin]])))
        end = min(end, begin + rows_at_once(int(counts[order[end - 1]])))
        yield order[begin:end]
        begin = end


def of_one_length(lengths: Indices) -> Iterator[Indices]:
    """Yield streams of one length, some at a time."""
    order = np.argsort(lengths, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        at_once = max(1, AT_ONCE // int(lengths[same[0]])) if same.size else 1
        yield from (same[begin : begin + at_once] for begin in range(0, same.size, at_once))


def worth(threads: int, amount: int, per_thread: int) -> int:
    """Number of threads kept busy."""
    return max(1, min(threads, -(-amount // per_thread)))


def even(count: int, most: int, threads: int) -> int:
    """Batch size for equally many batches a thread."""
    turns = max(1, -(-count // (most * threads)))
    return max(1, -(-count // (turns * threads)))


def concurrently(threads: int, work: Callable[[T], object], batches: Iterable[T]) -> None:
    """Call `work` on every batch; raise the first error at the end."""
    if threads == 1:
        for batch in batches:
            work(batch)
        return
    source, turn = enumerate(batches), Lock()
    errors: list[tuple[int, BaseException]] = []

    def take() -> None:
        number = -1
        try:
            # Batches may bring memory along, so none is made before its turn.
            while not errors:
                with turn:
                    number, batch = next(source, (number, None))
                if batch is None:
                    return
                work(batch)
        except BaseException as error:
            errors.append((number, error))

    others = [Thread(target=take) for _ in range(threads - 1)]
    try:
        for thread in others:
            thread.start()
        take()
    except BaseException as error:
        # A thread that cannot start, or an interrupt: the others begin nothing more.
        errors.append((-1, error))
    for thread in others:
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as error:
                errors.append((-1, error))
    if errors:
        raise min(errors, key=lambda numbered: numbered[0])[1]
