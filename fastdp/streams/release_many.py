"""Releases many finished streams in one call, bit for bit as a publisher each would, at the cost of a long stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any, TypeVar

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_floats, check_size
from fastdp.data.frames import StreamColumns, StreamRows, Streams, as_streams
from fastdp.errors import AccuracyWarning, argument, warn
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Indices, Values
from fastdp.noise.key import Binding, Key, repeating
from fastdp.perturbers import Blocks
from fastdp.releases.release import Ids, Release, ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.streams.fixed_blocks import BATCH_WORDS, FixedBlocks
from fastdp.streams.ids import distinct_ids
from fastdp.streams.methods import ToPS
from fastdp.streams.parameters import DEFAULT_RANGE, StreamParameters
from fastdp.streams.state import RowKeys, RowValues
from fastdp.streams.stream_machine import AT_BOUND, Schedule
from fastdp.thresholds import Chooser, Threshold
from fastdp.thresholds.base import DEFAULT_HOLDOUT, RowChooser, as_rule, held_out
from fastdp.validation import refusal
from fastdp_kernels.streams import fixed_pass

#: Values of a batch, so that converted input stays small too.
BATCH_VALUES = 2**20
#: Streams that a thread takes at a time, where each has a call of its own.
STREAMS = 64
T = TypeVar("T")


@validation.plain
def release_many(
    streams: StreamColumns,
    epsilon: float,
    bound: float,
    *,
    value: str | None = None,
    by: str | None = None,
    time: str | None = None,
    offsets: Values | None = None,
    ids: Values | Sequence[int | str] | None = None,
    threshold: Threshold | float | None = None,
    holdout: int | None = None,
    max_range: int | None = None,
    nonfinite: Nonfinite = "raise",
    threads: int = 1,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Release:
    """Release many independent streams, say of 100,000 meters with 1,000 values each, by :class:`fastdp.ToPS`.

    Other methods and options: ``fastdp.Adaptive(1.0, 5.0, threshold=2.0).release_many(streams)``.

    Parameters
    ----------
    streams : array-like, mapping or data frame
        Each stream in order and longer than the hold-out: rows of an array, a list of columns, a mapping of ids to
        columns, an Arrow or polars column of lists, or with ``offsets`` one column.  Or a data frame (pandas, polars,
        Arrow, DuckDB): with ``value`` and ``by`` its rows are values, else its columns streams.
    epsilon : float
        Privacy loss for one value of one stream.
    bound : float
        Public upper bound of a value, not computed from the data.
    value, by, time : str, optional
        Columns of a data frame: values, ids of their streams, and times (timestamps, dates or numbers) that order a
        stream; by default the frame's order.  Ids and lengths of streams are public.
    offsets : int[n + 1], optional
        Borders of the streams in a column, ascending from 0.
    ids : int[n] or str[n], optional
        Distinct names of the streams, or numbers from 0 to 2^32 - 2; by default those of the mapping or frame, else
        indices.
    threshold : Threshold or float, optional
        By default :class:`fastdp.thresholds.NoisyMax`, from each stream's own hold-out, poor if short.
    holdout : int, optional
        First values of each stream, which choose its threshold and are not published.  By default a quarter of the
        shortest stream, at most 65,536; none with ``Fixed``.
    max_range : int, optional
        The longest query; by default the longest stream's published length, at most 2^20.
    threads : int
        Largest number of threads; the output does not depend on it.
    nonfinite, seed, key
        As for :func:`fastdp.release`.  Never use one key with the same parameters and id for two streams, or an
        altered copy: noise trees would reveal their difference (``docs/sharp_edges.md``).

    Returns
    -------
    Release
        Release of all streams: stream i is ``ToPS(..., key=key.of_stream(ids[i])).release(streams[i])``.
        ``many["meter-7"]`` is the stream of that name, ``many.frame`` a data frame of the input's family.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted; nothing is released.

    Notes
    -----
    Privacy: each value is in one stream, so all together are as private as one; a person's values in several streams
    add up.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> meters = np.full((500, 96), 0.4)
    >>> day = fastdp.release_many(meters, 1.0, 5.0, threshold=2.0, seed=1)
    >>> day.matrix.shape
    (500, 96)
    """
    rule = None if threshold is None else as_rule("threshold", threshold)
    threads = validation.threads(threads)
    read = as_streams(streams, offsets, value, by, time)
    lengths = read.rows.lengths
    if holdout is None:
        shortest = int(lengths.min(initial=4 * DEFAULT_HOLDOUT))
        uses = rule is None or rule.uses_holdout
        holdout = max(1, min(DEFAULT_HOLDOUT, shortest // 4)) if uses else 0
    # Errors of the streams come before errors of components that depend on their lengths.
    check_lengths(lengths, validation.integer("holdout", holdout, 0, 2**50))
    if max_range is None:
        max_range = min(DEFAULT_RANGE, int(lengths.max()) - holdout) if lengths.size else DEFAULT_RANGE
    options: dict[str, Any] = {"threshold": threshold, "nonfinite": nonfinite, "seed": seed, "key": key}
    publisher = ToPS(epsilon, bound, holdout, max_range, **options)
    return publisher._release_many(read, ids, threads)


def check_lengths(lengths: Indices, holdout: int) -> None:
    """DataError for the first stream no longer than the hold-out."""
    short = lengths <= holdout
    if short.any():
        check_size(int(lengths[short][0]), holdout, f"streams[{int(short.argmax())}]")


def release_rows(composition: StreamParameters, secret: Key, streams: Streams, ids: object, threads: int) -> Release:
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
    )
    keys = RowKeys(composition.noise_key(secret), numbers, _named_keys(composition, secret, named), goes_on=False)
    machine = Schedule(composition)
    if isinstance(composition.perturber, Blocks) or composition.renewal is not None:
        many = replace(many, revisions=_release_singly(machine, keys, rows, threads, many))
    else:
        RowPass(machine, keys, rows, threads, many).run()
    many.values.flags.writeable = False
    if secret.simulated:
        return many
    return replace(many, noise_fingerprint=f"{composition.noise_key(secret.of_stream(0)).family.hex()}:*")


def _named_keys(composition: StreamParameters, secret: Key, names: Ids) -> Sequence[Key] | None:
    """Key of each named stream; None for numbers, and under a fresh key, whose streams have their indices'."""
    if isinstance(names, np.ndarray) or secret.binding is Binding.COMPOSITION:
        return None
    return composition.noise_keys([secret.of_stream(str(name)) for name in names])


def _release_singly(
    machine: Schedule, keys: RowKeys, rows: StreamRows, threads: int, into: Release
) -> tuple[RevisedStream, ...]:
    revisions: list[RevisedStream | None] = [None] * rows.size

    def publish(which: range) -> None:
        for i in which:
            values, starts = rows.take(np.array([i]), 0)
            # Rows of one array lie in it as they are; others come alone.
            begin = int(starts[0])
            row = as_floats(values[begin : begin + int(rows.lengths[i])])
            one = machine.release(row, f"streams[{i}]", keys.of(i))
            into.values[into.borders[i] : into.borders[i + 1]] = one.values
            into.thresholds[i], revisions[i] = one.threshold, one.revision

    concurrently(threads, publish, (range(i, min(rows.size, i + STREAMS)) for i in range(0, rows.size, STREAMS)))
    return tuple(revision for revision in revisions if revision is not None)


def guarantee_of_many(one: Guarantee) -> Guarantee:
    """Guarantee of all streams, of which one has a given value."""
    step = "each value is in one of the streams, whose noise is independent: epsilon for all together (parallel)"
    return replace(one, derivation=(*one.derivation, step))


@dataclass(frozen=True)
class RowPass:
    """The pass over finished streams whose blocks have a fixed length, in batches."""

    machine: Schedule
    #: `keys`, `rows`: those of all streams.
    keys: RowKeys
    rows: StreamRows
    #: Largest number of threads.
    threads: int
    #: Receives values, thresholds and nodes.
    into: Release

    def run(self) -> None:
        composition, keys, n = self.machine.composition, self.keys, self.rows.size
        holdout = composition.task.holdout
        thetas, counts = self._thresholds(), self.rows.lengths - holdout
        # Streams of one length and one threshold together: batches are dense, and drawn from few distributions.
        order = np.lexsort((np.arange(n), thetas, counts))
        pipeline = self.machine.pipeline_of(keys.key)
        assert isinstance(pipeline, FixedBlocks)  # noqa: S101 - Blocks are released singly

        def publish(which: Indices) -> None:
            into, every = self.into, np.arange(which.size)
            own = RowKeys(
                keys.key,
                None if keys.numbers is None else keys.numbers[which],
                None if keys.own is None else [keys.own[i] for i in which.tolist()],
                goes_on=False,
            )
            values, starts = self.rows.take(which, holdout)
            batch = RowValues(values, starts, counts[which], every, into.values, into.borders[which])
            begun = pipeline.open(pipeline.columns(which.size), every, thetas[which], own)
            made = pipeline.publish(begun.copied(), batch, own)
            if isinstance(made, int):
                values, starts = self._replace_nonfinite(values, starts, batch.counts, which, -1 - made, holdout)
                batch = batch._replace(values=values, starts=starts)
                # None of the noise drawn so far was released.
                with repeating():
                    begun = pipeline.open(pipeline.columns(which.size), every, thetas[which], own)
                    pipeline.publish(begun, batch, own)
            steps = begun.rows["theta_steps"]
            into.thresholds[which] = np.multiply(steps, composition.grid.resolution)
            if into.nodes is not None:
                pipeline.released_nodes(steps, batch, own, into.nodes, into.tree_borders[which])

        threads, width = worth(self.threads, int(counts.sum()), BATCH_VALUES), pipeline.columns(1).smoother.size

        def rows_at_once(count: int) -> int:
            return even(n, self.rows_at_once(count, width), threads)

        concurrently(threads, publish, batches(order, counts, rows_at_once))

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
            size = even(n, max(1, min(BATCH_WORDS // words, BATCH_VALUES // holdout)), threads)
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
        """Rows of `count` values in a batch, with `width` numbers of a smoother each."""
        plan = self.machine.composition.plan
        closed = count // plan.block
        trees = -(-closed // plan.tree_blocks)
        words = trees * (plan.nodes if plan.levels > 1 else min(closed, plan.leaves))
        words += width + (2 * closed if plan.block > 1 else 0)
        return max(1, min(BATCH_WORDS // max(words, 1), BATCH_VALUES // count))


def choose_thetas(
    chooser: Chooser, holdout: int, values: Floats, starts: Indices, which: Indices, keys: RowKeys
) -> Floats:
    """Choose theta of each of the streams `which` from the hold-out at `starts[i]`; `chooser` stays empty."""
    same = starts.size and (starts == starts[0]).all()
    if keys.numbers is not None and isinstance(chooser, RowChooser):
        histograms = chooser.histograms(values, starts[:1] if same else starts)
        return chooser.choose_rows(histograms, keys.key, keys.numbers[which])
    thetas, one, collected = np.empty(which.size), chooser, np.empty(0, np.int64)
    for row, (start, stream) in enumerate(zip(starts.tolist(), which.tolist(), strict=True)):
        if row == 0 or not same:
            one = chooser.copy()
            one.observe(values[start : start + holdout])
            collected = one.pack()
        thetas[row] = one.choose(held_out(keys.of(stream), collected))
        if getattr(one, "unresolved", False):
            warn(AT_BOUND.format(thetas[row], argument(threshold=50.0)), AccuracyWarning)
    return thetas


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
