"""Many finished streams at once: batches of rows, threads, and the step of each batch.

Every row gets the output of :class:`~fastdp.streams.fixed_blocks.FixedBlocks` for one stream, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock, Thread
from typing import TypeVar

import numpy as np

from fastdp.data.frames import FrameSource
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Indices, Integers
from fastdp.noise import binding
from fastdp.noise.binding import PrefixNoise
from fastdp.noise.key import Key, repeating
from fastdp.noise.words import RowWords, distinct_of
from fastdp.perturbers import Blocks
from fastdp.perturbers.base import TreeRows, bound_distribution, correlation, noise_of_rows, theta_key
from fastdp.releases.release import ReleasedMany, ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.smoothers import Recent
from fastdp.smoothers.smoothers import predict_rows
from fastdp.streams.fixed_blocks import nodes_scratch
from fastdp.streams.ids import Ids
from fastdp.streams.parameters import StreamParameters
from fastdp_kernels.streams import many_streams, online_pass

#: Draws of a batch (4 MiB): enough that a batch's calls cost little a stream.
BATCH_WORDS = 2**19
#: Values of a batch, so that converted input stays small too.
BATCH_VALUES = 2**20
T = TypeVar("T")


def batches(order: Indices, counts: Indices, rows_at_once: Callable[[int], int]) -> Iterator[Indices]:
    """Batches of the streams `order`, sorted by length, each with at most `rows_at_once` streams."""
    begin = 0
    while begin < order.size:
        end = min(order.size, begin + rows_at_once(int(counts[order[begin]])))
        end = min(end, begin + rows_at_once(int(counts[order[end - 1]])))
        yield order[begin:end]
        begin = end


def worth(threads: int, amount: int, each: int) -> int:
    """Number of threads, at most `threads`, that `amount` of work justifies at `each` per thread."""
    return max(1, min(threads, -(-amount // each)))


def even(count: int, most: int, threads: int) -> int:
    """Batch size up to `most` that gives every thread the same number of batches."""
    turns = max(1, -(-count // (most * threads)))
    return max(1, -(-count // (turns * threads)))


def concurrently(threads: int, work: Callable[[T], object], batches: Iterable[T]) -> None:
    """Call `work` on every batch; the first error, in batch order, is raised after all threads have stopped.

    The calling thread works too, so short work does not wait for others.
    """
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
        for each in others:
            each.start()
        take()
    except BaseException as error:
        # A thread that cannot start, or an interrupt: the others begin nothing more.
        errors.append((-1, error))
    for each in others:
        while each.is_alive():
            try:
                each.join()
            except BaseException as error:
                errors.append((-1, error))
    if errors:
        raise min(errors, key=lambda found: found[0])[1]


def snapped(grid: Grid, thetas: Floats) -> Indices:
    """Thresholds in grid steps, int64[n]."""
    distinct, place = np.unique(thetas, return_inverse=True)
    steps: Indices = np.array([grid.snap(theta) for theta in distinct.tolist()], np.int64)
    return steps[place]


def borders_of(counts: Indices) -> Indices:
    """Start of each of consecutive runs, and the end of the last: int64[n + 1]."""
    borders: Indices = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=borders[1:])
    return borders


@dataclass(frozen=True)
class RowOutput:
    """Output buffer of many streams under one composition.

    Attributes
    ----------
    composition : StreamParameters
        Components and parameters of every stream.
    ids : int64[n], or tuple of int and str
        Names of the streams.
    source : FrameSource or None
        The data frame of the input.
    counts : int64[n]
        Published values of each stream.
    borders, values : int64[n + 1] and float64[all]
        Start of each stream, and all values.
    trees, nodes : int64[n + 1] and float64[all, nodes], or None
        The same of trees, if the perturber releases nodes.
    """

    composition: StreamParameters
    ids: Ids
    source: FrameSource | None
    counts: Indices
    borders: Indices
    values: Floats
    trees: Indices | None
    nodes: Floats | None

    @classmethod
    def of(
        cls, composition: StreamParameters, lengths: Indices, ids: Ids, source: FrameSource | None = None
    ) -> RowOutput:
        """An output buffer for streams of these lengths."""
        plan = composition.plan
        counts = lengths - int(composition.holdout or 0)
        borders = borders_of(counts)
        trees = borders_of(-(-counts // plan.tree_blocks)) if composition.perturber.released_nodes else None
        nodes = None if trees is None else np.empty((int(trees[-1]), plan.nodes))
        return cls(composition, ids, source, counts, borders, np.empty(int(borders[-1])), trees, nodes)

    def released(
        self, steps: Indices, *, simulated: bool, revisions: tuple[RevisedStream, ...] | None = None
    ) -> ReleasedMany:
        """The written values as one release, under thresholds in grid steps."""
        composition, plan = self.composition, self.composition.plan
        shape = plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks
        self.values.flags.writeable = False
        thetas: Floats = np.multiply(steps, composition.grid.resolution)
        return ReleasedMany(
            values=self.values,
            borders=self.borders,
            offset=int(composition.holdout or 0),
            thresholds=thetas,
            guarantee=guarantee_of_many(composition.guarantee(simulated=simulated)),
            ids=self.ids,
            block=plan.block,
            nodes=None if self.nodes is None else ReleasedNodes(self.nodes, *shape),
            tree_borders=np.zeros(self.counts.size + 1, np.int64) if self.trees is None else self.trees,
            revisions=revisions,
            source=self.source,
            noise=composition.noise,
        )


def guarantee_of_many(one: Guarantee) -> Guarantee:
    """Guarantee of all streams together: a value is in one of them."""
    step = "each value is in one of the streams, whose noise is independent: epsilon for all together (parallel)"
    return replace(one, derivation=(*one.derivation, step))


@dataclass(frozen=True)
class RowBatch:
    """Some streams, after their hold-outs.

    Attributes
    ----------
    values : float64, one-dimensional
        Contains all of them.
    starts, counts : int64[n]
        Start and number of values, at least 1, of each.
    steps : int64[n]
        Their thresholds in grid steps.
    streams : int64[n]
        Numbers that their noise belongs to.
    """

    values: Floats
    starts: Indices
    counts: Indices
    steps: Indices
    streams: Indices


@dataclass(frozen=True)
class Sums:
    """Exact block sums in grid steps, int64[m, k]; row i of a batch has those of row ``which[i]``."""

    rows: Integers
    which: Indices


@dataclass(frozen=True)
class RowPipeline:
    """Composition and key of all streams; the key has no stream number."""

    composition: StreamParameters
    key: Key

    def __post_init__(self) -> None:
        """ParameterError for perturbers whose blocks or noise follow each stream's own releases."""
        if isinstance(self.composition.perturber, Blocks):
            raise ParameterError(
                f"perturber = {self.composition.perturber!r}: expected a Hierarchy or Flat (or one publisher for "
                "each release), because these blocks follow what each release says"
            )
        if correlation(self.composition.perturber) is not None:
            raise ParameterError(
                f"perturber = {self.composition.perturber!r}: expected a Hierarchy or Flat (or one publisher for "
                "each release), because each value's noise follows that of the values before"
            )

    @cached_property
    def blocks(self) -> bool:
        """True if noise is added to block sums, not to every value."""
        return self.composition.smoother is not None and self.composition.plan.block > 1

    @cached_property
    def in_one_pass(self) -> bool:
        """True if one kernel reads, sums and publishes: a block needs only the mean of the previous one."""
        return not self.blocks or type(self.composition.smoother) is Recent

    def rows_at_once(self, count: int) -> int:
        """Number of streams of `count` published values in a batch."""
        plan = self.composition.plan
        closed = count // plan.block
        trees = -(-closed // plan.tree_blocks)
        words = trees * (plan.nodes if plan.levels > 1 else min(closed, plan.leaves))
        words += 2 * closed if self.blocks else 0
        return max(1, min(BATCH_WORDS // max(words, 1), BATCH_VALUES // count))

    def sums(self, batch: RowBatch) -> Sums | int:
        """Block sums of each row; or the index of the first row with a non-finite value."""
        c = self.composition
        rows: Integers = np.empty((batch.counts.size, -(-int(batch.counts.max()) // c.plan.block)), np.int64)
        per_unit, tops = 1.0 / c.grid.resolution, self._tops(batch)
        wrong = many_streams.sum_rows(batch.values, batch.starts, batch.counts, per_unit, tops, c.plan.block, rows)
        return Sums(rows, np.arange(batch.counts.size)) if wrong < 0 else wrong

    def publish(self, batch: RowBatch, out: Floats, out_starts: Indices, sums: Sums | None = None) -> int:
        """Publish a batch into `out`, row i from `out_starts[i]` on.

        Returns -1, or the first row with a non-finite value (`out` is then invalid).  `sums` are used if given.
        """
        c, resolution = self.composition, self.composition.grid.resolution
        block, tree_blocks = c.plan.block, c.plan.tree_blocks
        closed, thetas = batch.counts // block, np.multiply(batch.steps, resolution)
        if sums is None and self.in_one_pass:
            noise = self._bound_noise(batch) if self.is_bound else self.noise(batch, closed)
            if isinstance(noise, int):
                return noise
            publics = np.full((closed.size, 4), [1.0 / resolution, 0.0, resolution, block])
            publics[:, 1] = self._tops(batch)
            rows = batch.values, batch.starts, batch.counts
            return many_streams.publish_rows(*rows, publics, noise, tree_blocks, thetas / 2.0, out, out_starts)
        found = self.sums(batch) if sums is None else sums
        if isinstance(found, int):
            return found
        assert c.smoother is not None  # noqa: S101 - rows with blocks have one
        most = int(closed.max())
        totals, predictions = np.empty((closed.size, most)), np.empty((closed.size, most + 1))
        noise = self.noise(batch, closed)
        many_streams.close_rows(
            found.rows, found.which, closed, noise, tree_blocks, resolution, block, totals, predictions
        )
        predictions[:, 0] = thetas / 2.0
        means = predictions[:, 1:]
        predicted = predict_rows(c.smoother, predictions[:, 0].copy(), thetas, means)
        if predicted is not means:
            means[:] = predicted
        many_streams.emit_rows(totals, predictions, closed, block, out, out_starts, batch.counts)
        return -1

    @cached_property
    def is_bound(self) -> bool:
        """True if noise is bound to the prefix of values, so that it is drawn after they are known."""
        return (
            bound_distribution(self.composition.perturber, self.key, 1, self.composition.publish_epsilon) is not None
        )

    def _bound_noise(self, batch: RowBatch) -> Integers | int:
        """Noise of every value, shaped as :meth:`noise`; or the first row with a non-finite value."""
        c, tops = self.composition, self._tops(batch)
        most, size = int(batch.counts.max()), c.plan.tree_blocks
        trees = -(-most // size)
        noise: Integers = np.empty((batch.counts.size, trees, min(most, size)), np.int64)
        distinct, owners = distinct_of(batch.steps)
        keys = [theta_key(self.key, steps) for steps in distinct.tolist()]
        chains = binding.start_chains(RowWords(keys, binding.CHAIN_PIECES, owners), batch.streams)
        rounded: Integers = np.empty(most, np.int64)
        bound = PrefixNoise(self.key)
        each = zip(batch.steps.tolist(), batch.starts.tolist(), batch.counts.tolist(), strict=True)
        for row, (steps, start, count) in enumerate(each):
            values, sums = batch.values[start : start + count], rounded[:count]
            if online_pass.round_values(values, 1.0 / c.grid.resolution, tops[row], sums):
                return row
            law = bound_distribution(c.perturber, self.key, steps, c.publish_epsilon)
            assert law is not None  # noqa: S101 - the caller has looked
            noise[row].reshape(-1)[:count] = bound.draw(sums, law, chains[row], 0, int(batch.streams[row]) + 1)
        return noise

    def noise(self, batch: RowBatch, closed: Indices, *, nodes: bool = False) -> Integers:
        """Noise of the trees that `closed` blocks a row need: int64[n, trees, w], leaves first."""
        c, n = self.composition, batch.steps.size
        trees = -(-int(closed.max()) // c.plan.tree_blocks)
        if trees == 0:
            return np.empty((n, 1, 0), np.int64)
        rows = TreeRows(
            *(c.plan, c.publish_epsilon, self.key),
            theta_steps=np.repeat(batch.steps, trees),
            streams=np.repeat(batch.streams, trees),
            trees=np.tile(np.arange(trees), n),
            needed=min(int(closed.max()), c.plan.tree_blocks),
            nodes=nodes,
        )
        return noise_of_rows(c.perturber, rows).reshape(n, trees, -1)

    def release_nodes(self, batch: RowBatch, out: Floats, out_trees: Indices) -> None:
        """Write noisy sums of all nodes, row i's trees from `out[out_trees[i]]` on; values are finite."""
        plan, resolution = self.composition.plan, self.composition.grid.resolution
        # The leaves' noise is that of the published values.
        with repeating():
            noise = self.noise(batch, batch.counts, nodes=True)
        rows = batch.values, batch.starts, batch.counts, 1.0 / resolution, self._tops(batch)
        tree = plan.tree_blocks, plan.fan_out, plan.levels, plan.leaves
        many_streams.release_nodes(*rows, noise, *tree, resolution, nodes_scratch(plan), out, out_trees)

    def _tops(self, batch: RowBatch) -> Floats:
        """Largest clipped value of each row in grid steps, float64[n]."""
        return np.minimum(batch.steps, self.composition.grid.bound_steps).astype(np.float64)
