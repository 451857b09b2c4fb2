"""Releases many finished streams in one call, bit for bit as a publisher each would, at the cost of a long stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock, Thread
from typing import TypeVar

import numpy as np

from fastdp.data.column import as_floats, check_size
from fastdp.data.frames import StreamRows, Streams
from fastdp.errors import AccuracyWarning, warn
from fastdp.guarantee import Guarantee
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Indices, Integers
from fastdp.noise import chain_keys
from fastdp.noise.bulk import PrefixNoise
from fastdp.noise.chain_keys import bound_distribution, theta_key
from fastdp.noise.key import Binding, Key, repeating
from fastdp.noise.words import RowWords, distinct_of
from fastdp.perturbers import Blocks
from fastdp.perturbers.base import TreeRows, correlation, noise_of_rows
from fastdp.releases.release import Ids, OnlineRelease, Release, ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.smoothers.smoothers import predict_rows, repeats_means
from fastdp.streams.ids import distinct_ids
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.pipelines import nodes_scratch
from fastdp.streams.stream_machine import AT_BOUND, Schedule
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import RowChooser, held_out
from fastdp.validation import refusal
from fastdp_kernels.streams import many_streams, online_pass

#: Draws of a batch (4 MiB): enough that a batch's calls cost little a stream.
BATCH_WORDS = 2**19
#: Values of a batch, so that converted input stays small too.
BATCH_VALUES = 2**20
#: Streams that a thread takes at a time, where each has a call of its own.
STREAMS = 64
T = TypeVar("T")


def check_lengths(lengths: Indices, holdout: int) -> None:
    """DataError for the first stream no longer than the hold-out."""
    short = lengths <= holdout
    if short.any():
        check_size(int(lengths[short][0]), holdout, f"streams[{int(short.argmax())}]")


def release_rows(
    composition: StreamParameters, secret: Key, streams: Streams, ids: object, threads: int
) -> OnlineRelease:
    """Release all streams, stream i under ``secret.of_stream(ids[i])``."""
    rows, holdout, plan = streams.rows, int(composition.holdout), composition.plan
    check_lengths(rows.lengths, holdout)
    if secret.member:
        raise refusal("key", secret, "a key without a stream number, which is for one stream")
    named = distinct_ids(streams.ids if ids is None else ids, rows.size)
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
    many = OnlineRelease(
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
    )
    alone = isinstance(composition.perturber, Blocks) or correlation(composition.perturber) is not None
    if numbers is None or alone or composition.renewal is not None:
        names = named if numbers is None else numbers
        many = replace(many, revisions=_release_singly(composition, secret, rows, names, threads, many))
    else:
        RowPass(composition, composition.noise_key(secret), rows, numbers, threads, many).run()
    many.values.flags.writeable = False
    if secret.simulated:
        return many
    return replace(many, noise_fingerprint=f"{composition.noise_key(secret.of_stream(0)).family.hex()}:*")


def _release_singly(
    composition: StreamParameters,
    secret: Key,
    rows: StreamRows,
    ids: Ids,
    threads: int,
    into: Release,
) -> tuple[RevisedStream, ...]:
    machine, shared = Schedule(composition), composition.noise_key(secret)
    revisions: list[RevisedStream | None] = [None] * rows.size

    def publish(which: range) -> None:
        for i in which:
            name = ids[i]
            named = isinstance(name, str)
            key = composition.noise_key(secret.of_stream(name)) if named else shared.of_stream(int(name))
            values, starts = rows.take(np.array([i]), 0)
            # Rows of one array lie in it as they are; others come alone.
            begin = int(starts[0])
            one = machine.release(as_floats(values[begin : begin + int(rows.lengths[i])]), f"streams[{i}]", key)
            into.values[into.borders[i] : into.borders[i + 1]] = one.values
            into.thresholds[i], revisions[i] = one.threshold, one.revision
            if into.nodes is not None and one.nodes is not None:
                into.nodes.sums[into.tree_borders[i] : into.tree_borders[i + 1]] = one.nodes.sums

    concurrently(threads, publish, (range(i, min(rows.size, i + STREAMS)) for i in range(0, rows.size, STREAMS)))
    return tuple(revision for revision in revisions if revision is not None)


def guarantee_of_many(one: Guarantee) -> Guarantee:
    """Guarantee of all streams, of which one has a given value."""
    step = "each value is in one of the streams, whose noise is independent: epsilon for all together (parallel)"
    return replace(one, derivation=(*one.derivation, step))


@dataclass(frozen=True)
class RowBatch:
    """A batch of streams, after their hold-outs."""

    #: Array that contains all of them.
    values: Floats
    #: `starts`, `counts`: int64[n]. Start and number of values, at least 1, of each.
    starts: Indices
    counts: Indices
    #: `steps`, `tops`: int64[n], float64[n]. Thresholds, and largest values after clipping, in grid steps.
    steps: Indices
    tops: Floats
    #: int64[n]. Stream numbers of their noise.
    streams: Indices


@dataclass(frozen=True)
class RowPass:
    """One pass over finished streams whose blocks have a fixed length, under a key without a stream number."""

    #: `composition`, `key`, `rows`, `ids`: those of all streams.
    composition: StreamParameters
    key: Key
    rows: StreamRows
    ids: Indices
    #: Largest number of threads.
    threads: int
    #: Receives values, thresholds and nodes.
    into: Release

    def run(self) -> None:
        grid, holdout = self.composition.grid, self.composition.task.holdout
        steps, counts = self._thresholds(), self.rows.lengths - holdout
        tops = np.minimum(steps, grid.bound_steps).astype(np.float64)
        # Streams of one length and one threshold together: batches are dense, and drawn from few distributions.
        order = np.lexsort((np.arange(steps.size), steps, counts))

        def publish(which: Indices) -> None:
            into = self.into
            into.thresholds[which] = np.multiply(steps[which], grid.resolution)
            taken, starts = self.rows.take(which, holdout)
            batch = RowBatch(taken, starts, counts[which], steps[which], tops[which], self.ids[which])
            wrong = self.publish(batch, into.values, into.borders[which])
            if wrong >= 0:
                taken, starts = self._replace_nonfinite(taken, starts, batch.counts, which, wrong, holdout)
                batch = replace(batch, values=taken, starts=starts)
                # None of the noise drawn so far was released.
                with repeating():
                    self.publish(batch, into.values, into.borders[which])
            if into.nodes is not None:
                self._release_nodes(batch, into.nodes.sums, into.tree_borders[which])

        threads = worth(self.threads, int(counts.sum()), BATCH_VALUES)

        def rows_at_once(count: int) -> int:
            return even(steps.size, self.rows_at_once(count), threads)

        concurrently(threads, publish, batches(order, counts, rows_at_once))

    # Thresholds.

    def _thresholds(self) -> Indices:
        composition, n, threads = self.composition, self.rows.size, self.threads
        holdout, grid, uses_holdout = composition.task.holdout, composition.grid, composition.threshold.uses_holdout
        first = composition.threshold.start(composition.task)
        steps: Indices = np.full(n, 0 if uses_holdout else grid.snap(first.choose(self.key)), np.int64)

        def choose(which: Indices) -> None:
            counts: Indices = np.full(which.size, holdout, np.int64)
            values, starts = self.rows.take(which, 0, holdout)
            wrong = many_streams.first_nonfinite(values, starts, counts)
            if wrong >= 0:
                values, starts = self._replace_nonfinite(values, starts, counts, which, wrong, 0)
            if uses_holdout:
                thetas = choose_thetas(first, holdout, values, starts, self.key, self.ids[which])
                steps[which] = snapped(grid, thetas)

        if holdout:
            words = first.row_words if isinstance(first, RowChooser) else 1
            size = even(n, max(1, min(BATCH_WORDS // words, BATCH_VALUES // holdout)), threads)
            concurrently(threads, choose, (np.arange(i, min(n, i + size)) for i in range(0, n, size)))
        return steps

    def _replace_nonfinite(
        self, values: Floats, starts: Indices, counts: Indices, which: Indices, wrong: int, before: int
    ) -> tuple[Floats, Indices]:
        rows = [values[begin : begin + count] for begin, count in zip(starts.tolist(), counts.tolist(), strict=True)]
        names = (f"streams[{i}]" for i in which.tolist())
        rows = [self.composition.finite(row, before, name) for row, name in zip(rows, names, strict=True)]
        return as_floats(np.concatenate(rows)), borders_of(counts)[:-1]

    # Published values.

    @cached_property
    def blocks(self) -> bool:
        return self.composition.smoother is not None and self.composition.plan.block > 1

    def rows_at_once(self, count: int) -> int:
        plan = self.composition.plan
        closed = count // plan.block
        trees = -(-closed // plan.tree_blocks)
        words = trees * (plan.nodes if plan.levels > 1 else min(closed, plan.leaves))
        words += 2 * closed if self.blocks else 0
        return max(1, min(BATCH_WORDS // max(words, 1), BATCH_VALUES // count))

    def publish(self, batch: RowBatch, out: Floats, starts: Indices) -> int:
        """Publish a batch, row i from ``out[starts[i]]`` on; -1, or the first row that is not finite."""
        c, resolution = self.composition, self.composition.grid.resolution
        block, tree_blocks = c.plan.block, c.plan.tree_blocks
        closed, thetas = batch.counts // block, np.multiply(batch.steps, resolution)
        noise = self._bound_noise(batch) if self._is_bound else self._noise(batch, closed)
        if isinstance(noise, int):
            return noise
        rows = batch.values, batch.starts, batch.counts
        if not self.blocks or repeats_means(c.smoother):
            publics = np.full((closed.size, 4), [1.0 / resolution, 0.0, resolution, block])
            publics[:, 1] = batch.tops
            return many_streams.publish_rows(*rows, publics, noise, tree_blocks, thetas / 2.0, out, starts)
        assert c.smoother is not None  # noqa: S101 - rows with blocks have one
        most = int(closed.max())
        totals, predictions = np.empty((closed.size, most)), np.empty((closed.size, most + 1))
        means = predictions[:, 1:]
        wrong = many_streams.close_rows(*rows, resolution, batch.tops, block, noise, tree_blocks, totals, means)
        if wrong >= 0:
            return wrong
        predictions[:, 0] = thetas / 2.0
        predicted = predict_rows(c.smoother, predictions[:, 0].copy(), thetas, means)
        if predicted is not means:
            means[:] = predicted
        many_streams.emit_rows(totals, predictions, closed, block, out, starts, batch.counts)
        return -1

    @cached_property
    def _is_bound(self) -> bool:
        return bound_distribution(self.composition.perturber, 1, self.composition.publish_epsilon) is not None

    def _bound_noise(self, batch: RowBatch) -> Integers | int:
        c = self.composition
        most, size = int(batch.counts.max()), c.plan.tree_blocks
        noise: Integers = np.empty((batch.counts.size, -(-most // size), min(most, size)), np.int64)
        distinct, owners = distinct_of(batch.steps)
        keys = [theta_key(self.key, steps) for steps in distinct.tolist()]
        chains = chain_keys.start_chains(RowWords(keys, chain_keys.CHAIN_PIECES, owners), batch.streams)
        rounded: Integers = np.empty(most, np.int64)
        bound = PrefixNoise(self.key)
        rows = zip(batch.steps.tolist(), batch.starts.tolist(), batch.counts.tolist(), strict=True)
        for row, (steps, start, count) in enumerate(rows):
            values, sums = batch.values[start : start + count], rounded[:count]
            if online_pass.round_values(values, 1.0 / c.grid.resolution, batch.tops[row], sums):
                return row
            distribution = bound_distribution(c.perturber, steps, c.publish_epsilon)
            assert distribution is not None  # noqa: S101 - the caller has looked
            noise[row].reshape(-1)[:count] = bound.draw(
                sums, distribution, chains[row], 0, int(batch.streams[row]) + 1
            )
        return noise

    def _noise(self, batch: RowBatch, closed: Indices, *, nodes: bool = False) -> Integers:
        c, n = self.composition, batch.steps.size
        trees = -(-int(closed.max()) // c.plan.tree_blocks)
        if trees == 0:
            return np.empty((n, 1, 0), np.int64)
        rows = TreeRows(
            plan=c.plan,
            epsilon=c.publish_epsilon,
            key=self.key,
            theta_steps=np.repeat(batch.steps, trees),
            streams=np.repeat(batch.streams, trees),
            trees=np.tile(np.arange(trees), n),
            needed=min(int(closed.max()), c.plan.tree_blocks),
            nodes=nodes,
        )
        return noise_of_rows(c.perturber, rows).reshape(n, trees, -1)

    def _release_nodes(self, batch: RowBatch, out: Floats, starts: Indices) -> None:
        plan, resolution = self.composition.plan, self.composition.grid.resolution
        # The leaves' noise is that of the published values.
        with repeating():
            noise = self._noise(batch, batch.counts, nodes=True)
        rows = batch.values, batch.starts, batch.counts, 1.0 / resolution, batch.tops
        tree = plan.tree_blocks, plan.fan_out, plan.levels, plan.leaves
        many_streams.release_nodes(*rows, noise, *tree, resolution, nodes_scratch(plan), out, starts)


def choose_thetas(
    chooser: Chooser, holdout: int, values: Floats, starts: Indices, key: Key, streams: Indices
) -> Floats:
    """Choose theta of each stream from the hold-out at `starts[i]`; `chooser` stays empty."""
    same = starts.size and (starts == starts[0]).all()
    if isinstance(chooser, RowChooser):
        return chooser.choose_rows(chooser.histograms(values, starts[:1] if same else starts), key, streams)
    thetas, one, choice_key = np.empty(streams.size), chooser, key
    for row, (start, number) in enumerate(zip(starts.tolist(), streams.tolist(), strict=True)):
        if row == 0 or not same:
            one = chooser.copy()
            one.observe(values[start : start + holdout])
            choice_key = held_out(key, one.pack())
        thetas[row] = one.choose(choice_key.of_stream(number))
        if getattr(one, "unresolved", False):
            warn(AT_BOUND.format(thetas[row]), AccuracyWarning)
    return thetas


def snapped(grid: Grid, thetas: Floats) -> Indices:
    """Thresholds in grid steps, int64[n]."""
    distinct, inverse = np.unique(thetas, return_inverse=True)
    steps: Indices = np.array([grid.snap(theta) for theta in distinct.tolist()], np.int64)
    return steps[inverse]


def borders_of(counts: Indices) -> Indices:
    """Start of each consecutive run, and the last end."""
    borders: Indices = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=borders[1:])
    return borders


# Batches of rows, and threads.


def batches(order: Indices, counts: Indices, rows_at_once: Callable[[int], int]) -> Iterator[Indices]:
    """Yield the streams `order`, sorted by length, at most `rows_at_once` at a time."""
    begin = 0
    while begin < order.size:
        end = min(order.size, begin + rows_at_once(int(counts[order[begin]])))
        end = min(end, begin + rows_at_once(int(counts[order[end - 1]])))
        yield order[begin:end]
        begin = end


def worth(threads: int, amount: int, per_thread: int) -> int:
    """Number of threads, up to `threads`, that `amount` of work keeps busy with `per_thread` each."""
    return max(1, min(threads, -(-amount // per_thread)))


def even(count: int, most: int, threads: int) -> int:
    """Batch size, up to `most`, that gives all threads equally many batches."""
    turns = max(1, -(-count // (most * threads)))
    return max(1, -(-count // (turns * threads)))


def concurrently(threads: int, work: Callable[[T], object], batches: Iterable[T]) -> None:
    """Call `work` on every batch; the first error is raised after all have stopped."""
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
