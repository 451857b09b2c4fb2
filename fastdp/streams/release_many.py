"""``fastdp.release_many``: many short streams in one call, at about the cost of one long stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from fastdp import validation
from fastdp.data.column import NOT_FINITE, Nonfinite, as_floats, check_size
from fastdp.data.frames import StreamRows, as_streams
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Indices
from fastdp.noise.key import Key, repeating
from fastdp.perturbers import Blocks, Hierarchy, Perturber
from fastdp.releases.release import ReleasedMany
from fastdp.releases.revised import RevisedStream
from fastdp.smoothers import Smoother
from fastdp.state.machine import Column
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.ids import as_row_ids
from fastdp.streams.methods import SmootherName, as_smoother
from fastdp.streams.parameters import DEFAULT_HOLDOUT, DEFAULT_RANGE, StreamParameters, default_threshold
from fastdp.streams.row_pipeline import (
    BATCH_VALUES,
    BATCH_WORDS,
    RowBatch,
    RowOutput,
    RowPipeline,
    batches,
    borders_of,
    concurrently,
    even,
    snapped,
    worth,
)
from fastdp.streams.stream_machine import Emission, Schedule
from fastdp.thresholds import Chooser, Threshold
from fastdp.thresholds.base import RowChooser, as_rule, held_out
from fastdp_kernels.streams import many_streams


@validation.plain
def release_many(
    streams: Any,
    epsilon: float,
    bound: float,
    *,
    value: str | None = None,
    by: str | None = None,
    time: str | None = None,
    offsets: Any = None,
    threshold: Threshold | float | None = None,
    perturber: Perturber | None = None,
    smoother: SmootherName | Smoother | None = "recent",
    holdout: int | None = None,
    max_range: int | None = None,
    resolution: float | None = None,
    nonfinite: Nonfinite = "raise",
    ids: Any = None,
    threads: int = 1,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> ReleasedMany:
    """Release many independent streams, say of 100,000 meters with 1,000 values each, under differential privacy.

    Parameters
    ----------
    streams : array-like, mapping or data frame
        Each stream in order: a two-dimensional array with one row a stream, a list of columns, a mapping of ids to
        columns, an Arrow or polars column of lists, or with ``offsets`` one column with all of them.  Or a data frame
        (pandas, polars, Arrow, DuckDB): with ``value`` and ``by`` its rows are values; without them its columns are
        streams.  Each must be longer than the hold-out.
    epsilon : float
        Privacy loss for one value of one stream.
    bound : float
        Public upper bound of a value, in units of the input.  It must not be computed from the data.
    value, by, time : str, optional
        Columns of a data frame: values, ids of their streams (texts or whole numbers), and times (timestamps, dates
        or
        numbers) that order a stream; by default the frame's order.  Ids and lengths of streams are public.
    offsets : int[n + 1], optional
        Borders of the streams in a column, ascending from 0.
    threshold : Threshold or float, optional
        By default :class:`fastdp.thresholds.NoisyMax`, for each stream from its own hold-out, which chooses poorly if
        short.  A publicly known threshold, given as a number, is also much faster.
    perturber : Perturber, optional
        By default ToPS's :class:`fastdp.perturbers.Hierarchy`.  :class:`fastdp.perturbers.Blocks` gives
        :class:`fastdp.Adaptive`, with ``ScaleFree(lengths="all")`` and no smoother as defaults; ``many[i].revised``
        is
        then the more accurate answer.
    smoother : "recent", "mean", "median", "moving", "exponential", Smoother or None
        As for :class:`fastdp.ToPS`.  None if the perturber releases every value, or inconsistent nodes.
    holdout : int, optional
        First values of each stream, which choose its threshold and are not published.  By default a quarter of the
        shortest stream, at most 65,536; none with ``Fixed``.
    max_range : int, optional
        The longest query; by default the published length of the longest stream, at most 2^20.
    resolution, nonfinite
        As for :class:`fastdp.StreamPublisher`.
    ids : int[n] or str[n], optional
        Distinct names of the streams, or numbers from 0 to 2^32 - 2; by default those of the mapping or frame, else
        their indices.  With a secret of your own, names cost some tenths of a millisecond a stream.
    threads : int
        Largest number of threads; the output does not depend on it.
    seed : int or str, optional
        Simulation: reproducible noise, no privacy.
    key : Key or 32 bytes, optional
        A secret of your own; by default a fresh one from the operating system.  Other parameters (the defaults of
        ``holdout`` and ``max_range`` included) or other ids get independent noise; the same ones on the same values
        give
        the same output.  Never use one key with the same parameters and id for two streams, or for a stream and an
        altered
        copy: noise trees would reveal their difference, and epsilon is spent again (``docs/sharp_edges.md``).

    Returns
    -------
    ReleasedMany
        Stream i is, bit for bit, ``StreamPublisher(..., key=key.of_stream(ids[i])).release(streams[i])``, independent
        of
        the other streams if ``holdout`` and ``max_range`` are given.  ``many["meter-7"]`` is the stream of that name,
        and
        ``many.frame`` a data frame of the input's family.

    Raises
    ------
    ParameterError, DataError
        Naming the argument and what is accepted, of data never a value; nothing is released then.

    Notes
    -----
    Privacy: each value is in one stream with its own noise, so all streams together are as private as one (parallel
    composition).  One person's values in several streams add up their losses.

    Memory beyond input and output: some 10 MiB a thread, and noise trees of streams longer than 2^18 values.  Your
    own
    components, and the quantile thresholds, cost a call for each stream.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> meters = np.full((500, 96), 0.4)
    >>> day = fastdp.release_many(meters, 1.0, 5.0, threshold=2.0, seed=1)
    >>> day.matrix.shape
    (500, 96)
    """
    perturber = Hierarchy() if perturber is None else perturber
    follows = isinstance(perturber, Blocks)
    if isinstance(smoother, str):
        smoother = None if follows and smoother == "recent" else as_smoother(smoother)
    rule = default_threshold(perturber) if threshold is None else as_rule("threshold", threshold)
    threads = validation.threads(threads)
    found = as_streams(streams, offsets, value, by, time)
    rows = found.rows
    shortest, longest = (int(rows.lengths.min()), int(rows.lengths.max())) if rows.size else (1, 1)
    if holdout is None:
        holdout = max(1, min(DEFAULT_HOLDOUT, shortest // 4)) if rule.uses_holdout else 0
    # Errors of the streams come before errors of components that depend on their lengths.
    short = rows.lengths <= validation.integer("holdout", holdout, 0, 2**50)
    if short.any():
        check_size(int(rows.lengths[short][0]), holdout, f"streams[{int(short.argmax())}]")
    if max_range is None:
        max_range = min(DEFAULT_RANGE, longest - holdout) if rows.size else DEFAULT_RANGE
    composition = StreamParameters(
        rule, perturber, smoother, epsilon, bound, holdout, max_range, resolution, nonfinite
    )
    secret = Key.choose(seed, key)
    if secret.member:
        raise ParameterError(f"key = {secret!r}: expected a key without a stream number, which is for one stream")
    named = as_row_ids(found.ids if ids is None else ids, rows.size)
    numbers = named if isinstance(named, np.ndarray) else None
    if numbers is None and seed is None and key is None:
        # Streams of a fresh key cannot be released again, so their noise may follow their indices.
        numbers = np.arange(rows.size)
    out = RowOutput.of(composition, rows.lengths, named, found.source)
    if numbers is None or follows:
        each = list(named) if numbers is None else numbers.tolist()
        many = _EachStream(composition, secret, rows, each).release(out, threads)
    else:
        pipeline = RowPipeline(composition, composition.noise_key(secret))
        many = _Many(pipeline, rows, numbers, threads).release(out)
    if secret.simulated:
        return many
    return replace(many, noise_fingerprint=f"{composition.noise_key(secret.of_stream(0)).family.hex()}:*")


@dataclass(frozen=True)
class _Many:
    """One call on rows with a common pipeline: the pipeline, the streams and their numbers."""

    pipeline: RowPipeline
    rows: StreamRows
    ids: Indices
    threads: int

    def release(self, out: RowOutput) -> ReleasedMany:
        """Publish every stream into the output."""
        composition, n = self.pipeline.composition, self.rows.size
        holdout = composition.task.holdout
        counts, borders, values, nodes, trees = out.counts, out.borders, out.values, out.nodes, out.trees
        steps = self._thresholds()
        # Streams of one length and one threshold together: batches are dense, and drawn from few distributions.
        order = np.lexsort((np.arange(n), steps, counts))

        def publish(which: Indices) -> None:
            taken, starts = self.rows.take(which, holdout)
            batch = RowBatch(taken, starts, counts[which], steps[which], self.ids[which])
            wrong = self.pipeline.publish(batch, values, borders[which])
            if wrong >= 0:
                taken, starts = self._replace_nonfinite(taken, starts, batch.counts, which, wrong, holdout)
                batch = replace(batch, values=taken, starts=starts)
                # None of the noise drawn so far was released.
                with repeating():
                    self.pipeline.publish(batch, values, borders[which])
            if nodes is not None and trees is not None:
                self.pipeline.release_nodes(batch, nodes, trees[which])

        threads = worth(self.threads, values.size, BATCH_VALUES)

        def rows_at_once(count: int) -> int:
            return even(n, self.pipeline.rows_at_once(count), threads)

        concurrently(threads, publish, batches(order, counts, rows_at_once))
        return out.released(steps, simulated=self.pipeline.key.simulated)

    def _thresholds(self) -> Indices:
        """Theta of each stream, in grid steps: int64[n]."""
        composition, n = self.pipeline.composition, self.rows.size
        task, key, grid = composition.task, self.pipeline.key, composition.grid
        uses_holdout = composition.threshold.uses_holdout
        first = composition.threshold.start(task)
        steps: Indices = np.full(n, 0 if uses_holdout else grid.snap(first.choose(key)), np.int64)

        def choose(which: Indices) -> None:
            values, starts = self._held(which)
            if not uses_holdout:
                return
            thetas = choose_thetas(first, task.holdout, values, starts, key, self.ids[which])
            steps[which] = snapped(grid, thetas)

        if task.holdout:
            words = first.row_words if isinstance(first, RowChooser) else 1
            size = even(n, max(1, min(BATCH_WORDS // words, BATCH_VALUES // task.holdout)), self.threads)
            concurrently(self.threads, choose, (np.arange(i, min(n, i + size)) for i in range(0, n, size)))
        return steps

    def _held(self, which: Indices) -> tuple[Floats, Indices]:
        """Finite hold-outs of the streams `which`, and the index at which each begins."""
        holdout = self.pipeline.composition.task.holdout
        values, starts = self.rows.take(which, 0, holdout)
        counts: Indices = np.full(which.size, holdout, np.int64)
        wrong = many_streams.first_nonfinite(values, starts, counts)
        return (values, starts) if wrong < 0 else self._replace_nonfinite(values, starts, counts, which, wrong, 0)

    def _replace_nonfinite(
        self, values: Floats, starts: Indices, counts: Indices, which: Indices, wrong: int, before: int
    ) -> tuple[Floats, Indices]:
        """Values with zeros for NaN and infinity; DataError that names the first, in row `wrong`, if not allowed."""
        if self.pipeline.composition.nonfinite == "raise":
            row = values[starts[wrong] : starts[wrong] + counts[wrong]]
            place = int(np.flatnonzero(~np.isfinite(row))[0])
            raise DataError(
                f"streams[{which[wrong]}][{before + place}]: {NOT_FINITE}; expected finite values "
                "(nonfinite='zero' makes them count as 0)"
            )
        rows = [values[start : start + count] for start, count in zip(starts.tolist(), counts.tolist(), strict=True)]
        joined = np.concatenate(rows)
        return as_floats(np.where(np.isfinite(joined), joined, 0.0)), borders_of(counts)[:-1]


def choose_thetas(
    chooser: Chooser, holdout: int, values: Floats, starts: Indices, key: Key, streams: Indices
) -> Floats:
    """Theta of each stream, float64[n], whose hold-out begins at `starts[i]`; `chooser` stays empty."""
    if isinstance(chooser, RowChooser):
        return chooser.choose_rows(chooser.histograms(values, starts), key, streams)
    thetas = np.empty(streams.size)
    for row, (start, number) in enumerate(zip(starts.tolist(), streams.tolist(), strict=True)):
        one = chooser.copy()
        one.observe(values[start : start + holdout])
        thetas[row] = one.choose(held_out(key, one.pack()).of_stream(number))
    return thetas


#: Streams that a thread takes at a time.
STREAMS = 64


@dataclass(frozen=True)
class _EachStream:
    """Streams that are published one by one, with their ids.

    Attributes
    ----------
    composition : StreamParameters
        Components and parameters of every stream.
    secret : Key
        Of all streams; stream i has ``secret.of_stream(ids[i])``.
    rows : StreamRows
        Each longer than the hold-out.
    ids : list of int or str
        Distinct.
    """

    composition: StreamParameters
    secret: Key
    rows: StreamRows
    ids: list[int | str]

    def release(self, out: RowOutput, threads: int) -> ReleasedMany:
        """Publish every stream into the output, on `threads` threads."""
        values, borders, nodes, trees = out.values, out.borders, out.nodes, out.trees
        n, machine = self.rows.size, Schedule(self.composition)
        steps: Indices = np.empty(n, np.int64)
        revisions: list[RevisedStream | None] = [None] * n

        def publish(which: range) -> None:
            for i in which:
                key, stream, name = self._key(i), self._values(i), f"streams[{i}]"
                made = machine.step(machine.start(key), Column(stream, name), key)
                emission = cast("Emission", made.emit)
                emission(values[borders[i] : borders[i + 1]])
                progress, pipeline = made.state.progress, machine.pipeline(key)
                steps[i] = progress.theta_steps
                if isinstance(pipeline, AdaptiveBlocks):
                    steps[i] = pipeline.highest(progress.theta_steps, progress.smoother)
                    revisions[i] = pipeline.revised(emission.parts, progress.theta_steps)
                elif nodes is not None and trees is not None:
                    nodes[trees[i] : trees[i + 1]] = self._nodes(machine, pipeline, stream, name, int(steps[i]))

        concurrently(threads, publish, (range(i, min(n, i + STREAMS)) for i in range(0, n, STREAMS)))
        found = tuple(each for each in revisions if each is not None)
        simulated = self.secret.simulated
        return out.released(steps, simulated=simulated, revisions=found if n and len(found) == n else None)

    @cached_property
    def _shared(self) -> Key:
        """Noise key of the composition, for ids that are numbers."""
        return self.composition.noise_key(self.secret)

    def _key(self, i: int) -> Key:
        """Noise key of stream `i`: ``noise_key(secret.of_stream(ids[i]))``."""
        name = self.ids[i]
        if isinstance(name, str):
            return self.composition.noise_key(self.secret.of_stream(name))
        return self._shared.of_stream(name)

    def _values(self, i: int) -> Floats:
        """Values of stream `i`, float64."""
        values, starts = self.rows.take(np.array([i]), 0)
        # Rows of one array lie in it as they are; others come alone.
        begin = int(starts[0])
        return as_floats(values[begin : begin + int(self.rows.lengths[i])])

    def _nodes(self, machine: Schedule, pipeline: FixedBlocks, stream: Floats, name: str, steps: int) -> Floats:
        """Released nodes of a published stream."""
        holdout = self.composition.task.holdout
        return pipeline.released_nodes(steps, machine.finite(as_floats(stream[holdout:]), holdout, name)).sums
