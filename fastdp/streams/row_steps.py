"""The step of a publisher, for many streams at once: each from its beginning to its end.

Every row gets what :class:`~fastdp.streams.fixed_blocks.FixedBlocks` gives to one stream, bit for bit; work
that would cost a call for each stream is done for a batch of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Indices
from fastdp.noise import binding
from fastdp.noise.binding import PrefixNoise
from fastdp.noise.key import Key, repeating
from fastdp.noise.words import RowWords, distinct_of
from fastdp.perturbers import Blocks
from fastdp.perturbers.base import TreeRows, bound_law, correlation, noise_of_rows, theta_key
from fastdp.smoothers.smoothers import predict_rows
from fastdp.streams.fixed_blocks import nodes_scratch
from fastdp.streams.parameters import StreamParameters
from fastdp_kernels.streams import many_streams, online_pass

#: Draws of a slab (4 MiB): enough that a slab's calls cost little a stream.
SLAB_WORDS = 2**19
#: Values of a slab, so that converted input stays small too.
SLAB_VALUES = 2**20


@dataclass(frozen=True)
class RowBatch:
    """Some streams behind their hold-outs.

    Attributes
    ----------
    values : float64, one-dimensional
        Holds all of them.
    starts, counts : int64[n]
        Where each begins and how many values it has, at least 1.
    steps : int64[n]
        Their thresholds in grid steps.
    streams : int64[n]
        The numbers that their noise belongs to.
    """

    values: Floats
    starts: Indices
    counts: Indices
    steps: Indices
    streams: Indices


@dataclass(frozen=True)
class Sums:
    """Exact block sums in grid steps, int64[m, k]; a slab's row i has those of row ``which[i]``."""

    rows: NDArray[np.int64]
    which: Indices


@dataclass(frozen=True)
class RowPipeline:
    """StreamParameters and key of all streams; the key has no stream number itself."""

    composition: StreamParameters
    key: Key

    def __post_init__(self) -> None:
        """Rows are cut alike: ParameterError for blocks that each stream cuts by itself."""
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
        """Whether noise is added to block sums, not to every value."""
        return self.composition.smoother is not None and self.composition.plan.block > 1

    def rows_at_once(self, count: int) -> int:
        """Streams of ``count`` published values that make a slab."""
        plan = self.composition.plan
        closed = count // plan.block
        trees = -(-closed // plan.tree_blocks)
        words = trees * (plan.nodes if plan.levels > 1 else min(closed, plan.leaves))
        words += 2 * closed if self.blocks else 0
        return max(1, min(SLAB_WORDS // max(words, 1), SLAB_VALUES // count))

    def sums(self, slab: RowBatch) -> Sums | int:
        """Block sums of each row, or the first row with a value that is not finite."""
        c = self.composition
        rows: NDArray[np.int64] = np.empty((slab.counts.size, -(-int(slab.counts.max()) // c.plan.block)), np.int64)
        wrong = many_streams.sum_rows(
            slab.values, slab.starts, slab.counts, 1.0 / c.grid.resolution, self._tops(slab), c.plan.block, rows
        )
        return Sums(rows, np.arange(slab.counts.size)) if wrong < 0 else wrong

    def publish(self, slab: RowBatch, out: Floats, out_starts: Indices, sums: Sums | None = None) -> int:
        """Publish a slab into ``out``, row i from ``out_starts[i]`` on.

        Parameters
        ----------
        slab : RowBatch
            The streams.
        out : float64
            Receives the rows.
        out_starts : int64[n]
            Where.
        sums : Sums, optional
            If known already.

        Returns
        -------
        int
            The first row with a value that is not finite (``out`` is then of no use), or -1.
        """
        c, resolution = self.composition, self.composition.grid.resolution
        plan = c.plan
        closed = slab.counts // plan.block
        if not self.blocks:
            noise = self._bound_noise(slab) if self.is_bound else self.noise(slab, closed)
            if isinstance(noise, int):
                return noise
            return many_streams.publish_values(
                slab.values,
                slab.starts,
                slab.counts,
                1.0 / resolution,
                self._tops(slab),
                noise,
                plan.tree_blocks,
                resolution,
                out,
                out_starts,
            )
        found = self.sums(slab) if sums is None else sums
        if isinstance(found, int):
            return found
        assert c.smoother is not None  # noqa: S101 - rows with blocks have one
        most = int(closed.max())
        totals, predictions = np.empty((closed.size, most)), np.empty((closed.size, most + 1))
        many_streams.close_rows(
            found.rows,
            found.which,
            closed,
            self.noise(slab, closed),
            plan.tree_blocks,
            resolution,
            plan.block,
            totals,
            predictions,
        )
        thetas: Floats = np.multiply(slab.steps, resolution)
        predictions[:, 0] = thetas / 2.0
        means = predictions[:, 1:]
        predicted = predict_rows(c.smoother, predictions[:, 0].copy(), thetas, means)
        if predicted is not means:
            means[:] = predicted
        many_streams.emit_rows(totals, predictions, closed, plan.block, out, out_starts, slab.counts)
        return -1

    @cached_property
    def is_bound(self) -> bool:
        """Whether noise is bound to the prefix of values, so that it is drawn once they are known."""
        return bound_law(self.composition.perturber, self.key, 1, self.composition.publish_epsilon) is not None

    def _bound_noise(self, slab: RowBatch) -> NDArray[np.int64] | int:
        """Noise of every value, as :meth:`noise` shapes it, or the first row with a value that is not finite."""
        c, tops = self.composition, self._tops(slab)
        most, size = int(slab.counts.max()), c.plan.tree_blocks
        trees = -(-most // size)
        noise: NDArray[np.int64] = np.empty((slab.counts.size, trees, min(most, size)), np.int64)
        distinct, owners = distinct_of(slab.steps)
        keys = [theta_key(self.key, steps) for steps in distinct.tolist()]
        chains = binding.start_chains(RowWords(keys, binding.CHAIN_PIECES, owners), slab.streams)
        rounded: NDArray[np.int64] = np.empty(most, np.int64)
        bound = PrefixNoise(self.key)
        each = zip(slab.steps.tolist(), slab.starts.tolist(), slab.counts.tolist(), strict=True)
        for row, (steps, start, count) in enumerate(each):
            values, sums = slab.values[start : start + count], rounded[:count]
            if online_pass.round_values(values, 1.0 / c.grid.resolution, tops[row], sums):
                return row
            law = bound_law(c.perturber, self.key, steps, c.publish_epsilon)
            assert law is not None  # noqa: S101 - the caller has looked
            noise[row].reshape(-1)[:count] = bound.draw(sums, law, chains[row], 0, int(slab.streams[row]) + 1)
        return noise

    def noise(self, slab: RowBatch, closed: Indices, *, nodes: bool = False) -> NDArray[np.int64]:
        """Noise of every tree that ``closed`` blocks a row need: int64[n, trees, w], the leaves first."""
        c, n = self.composition, slab.steps.size
        trees = -(-int(closed.max()) // c.plan.tree_blocks)
        if trees == 0:
            return np.empty((n, 0, 0), np.int64)
        needed = min(int(closed.max()), c.plan.tree_blocks)
        rows = TreeRows(
            c.plan,
            c.publish_epsilon,
            self.key,
            theta_steps=np.repeat(slab.steps, trees),
            streams=np.repeat(slab.streams, trees),
            trees=np.tile(np.arange(trees), n),
            needed=needed,
            nodes=nodes,
        )
        return noise_of_rows(c.perturber, rows).reshape(n, trees, -1)

    def release_nodes(self, slab: RowBatch, out: Floats, out_trees: Indices) -> None:
        """Noisy sums of all nodes, row i's trees from ``out[out_trees[i]]`` on; values are finite."""
        plan, resolution = self.composition.plan, self.composition.grid.resolution
        # The leaves' noise is that of the published values.
        with repeating():
            noise = self.noise(slab, slab.counts, nodes=True)
        many_streams.release_nodes(
            slab.values,
            slab.starts,
            slab.counts,
            1.0 / resolution,
            self._tops(slab),
            noise,
            plan.tree_blocks,
            plan.fan_out,
            plan.levels,
            plan.leaves,
            resolution,
            nodes_scratch(plan),
            out,
            out_trees,
        )

    def _tops(self, slab: RowBatch) -> Floats:
        """Thresholds in steps, as far as values go."""
        return np.minimum(slab.steps, self.composition.grid.bound_steps).astype(np.float64)
