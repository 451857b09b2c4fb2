"""Publishing in blocks of one length under a known threshold (ToPS, CCS 2021, Algorithm 1, lines 11 to 28).

Kernels clip, sum and publish for n streams; here the noise of trees is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from fastdp.integer_grid import Grid
from fastdp.kinds import Flags, Floats, Indices, Integers, Records
from fastdp.noise import chain_keys
from fastdp.noise.bound_noise import PrefixNoise
from fastdp.noise.chain_keys import BoundDistributions, Chain, bound_distribution, theta_key
from fastdp.noise.key import Key, repeating
from fastdp.noise.words import distinct_of
from fastdp.perturbers import HierarchyShape, Perturber
from fastdp.perturbers.base import RowPerturber, TreeRows, correlation
from fastdp.releases.published_answer import ReleasedNodes
from fastdp.smoothers import Smoother
from fastdp.smoothers.smoothers import CheckedSmoother, repeats_means, start_rows, step_rows
from fastdp.streams.columns import NamedKeys, RowKeys, RowValues, Streams, new_rows
from fastdp_kernels.streams import fixed_pass, hierarchy_nodes

#: Draws at a time (4 MiB): enough that a call costs little a stream.
BATCH_WORDS = 2**19
HALF, LOW_HALF = 32, 2**32 - 1


def next_chain(perturber: Perturber, key: Key, theta_steps: int, epsilon: float, before: Chain) -> Chain | None:
    """Derive the chain key of the first sum under this threshold; None for trees."""
    if bound_distribution(perturber, theta_steps, epsilon) is None:
        return None
    chain_key = key.within("behind", before.tobytes()) if before.any() else key
    return chain_keys.start_chain(theta_key(chain_key, theta_steps))


def start_chains(
    perturber: Perturber, epsilon: float, before: Chain, which: Indices, steps: Indices, keys: RowKeys
) -> Chain:
    """:func:`next_chain` of rows: uint64[m, 4]."""
    if keys.key.given is None and not before.any():
        if keys.numbers is not None:
            distinct, owners = distinct_of(steps)
            own = chain_keys.words_of([theta_key(keys.key, each).reveal() for each in distinct.tolist()])
            secrets = own[owners]
            return chain_keys.start_chains(keys.key, secrets, keys.numbers[which] + 1)
        if isinstance(keys.own, NamedKeys) and keys.own.are_texts(which):
            secrets = chain_keys.theta_secrets(keys.own.secrets[which], steps)
            return chain_keys.start_chains(keys.key, secrets, np.zeros(which.size, np.int64))
    chains: Chain = before.copy()
    for i, row in enumerate(which.tolist()):
        chain = next_chain(perturber, keys.of(row), int(steps[i]), epsilon, before[i])
        assert chain is not None  # noqa: S101 - this noise is bound
        chains[i] = chain
    return chains


@dataclass(frozen=True)
class FixedBlocks:
    """Turns values into noisy sums of blocks of one length, and these into published values."""

    #: `plan`, `grid`, `perturber`, `smoother`: the publisher's.
    plan: HierarchyShape
    grid: Grid
    perturber: Perturber
    smoother: Smoother | None
    #: The perturber's budget.
    epsilon: float
    key: Key
    #: True keeps the sum of what is released, for a renewal.
    sums_releases: bool = False

    @cached_property
    def distributions(self) -> BoundDistributions:
        return BoundDistributions(self.perturber, self.epsilon)

    @cached_property
    def is_bound(self) -> bool:
        """True if noise is bound to sums; else it is drawn by tree."""
        return self.distributions[1] is not None

    @cached_property
    def prefixes(self) -> PrefixNoise:
        return PrefixNoise(self.key)

    @cached_property
    def public(self) -> Records:
        grid, plan = self.grid, self.plan
        numbers = 1.0 / grid.resolution, grid.resolution, grid.bound_steps, plan.block, plan.tree_blocks
        return np.array([numbers], fixed_pass.PASS)

    @cached_property
    def in_one_pass(self) -> bool:
        """True if one kernel publishes: noise by tree, predictions by the last mean."""
        repeats = self.smoother is None or self.plan.block == 1 or repeats_means(self.smoother)
        return repeats and not self.is_bound and not self.sums_releases

    def columns(self, count: int) -> Streams:
        follows, smoother = correlation(self.perturber), np.empty((count, 0))
        if self.smoother is not None:
            smoother = np.zeros((count, start_rows(self.smoother, np.ones(1), np.ones(1)).shape[1]))
        correlated = np.zeros((count, 0 if follows is None else follows.memory))
        return Streams(new_rows(count), [None] * count, smoother, correlated)

    def open(self, state: Streams, which: Indices, thetas: Floats, keys: RowKeys) -> Streams:
        """Start publishing with these thresholds.

        The first prediction is theta / 2 or, after a renewal, the last one.
        """
        distinct, owners = np.unique(thetas, return_inverse=True)
        steps = np.array([self.grid.snap(theta) for theta in distinct.tolist()], np.int64)[owners]
        rows, tops = state.rows, np.multiply(steps, self.grid.resolution)
        begun = rows["cycle"][which] > 0
        firsts = np.where(begun, np.minimum(rows["prediction"][which], tops), tops / 2.0)
        rows["cycle"][which] += 1
        for name in ("held", "released_high", "released_low"):
            rows[name][which] = 0
        rows["theta_steps"][which], rows["prediction"][which] = steps, firsts
        smoother, correlated, follows = state.smoother, state.correlated, correlation(self.perturber)
        if self.smoother is not None:
            smoother = _with(smoother, which, start_rows(self.smoother, firsts, tops))
        if follows is not None:
            correlated = _with(correlated, which, np.zeros((which.size, follows.memory)))
        if self.is_bound:
            before = rows["chain"][which]
            rows["chain"][which] = start_chains(self.perturber, self.epsilon, before, which, steps, keys)
        return state._replace(smoother=smoother, correlated=correlated)

    # The pass.

    def publish(self, state: Streams, batch: RowValues, keys: RowKeys, into: object = None) -> Streams | int:
        """Publish values of rows, which change in place; else -1 less the first call with one that is not finite."""
        del into
        if not self.in_one_pass:
            return self._publish_by_arrays(state, batch, keys)
        waiting: Indices = np.empty(batch.counts.size, np.int64)
        values, starts, counts, which, out, out_starts = batch
        public, rows = self.public, state.rows
        slots = which if state.trees.size == rows.size else np.zeros(which.size, np.int64)
        waits = fixed_pass.publish_rows(
            values, starts, counts, which, public, rows, state.trees, state.noise, slots, waiting, out, out_starts
        )
        if waits < 0:
            return waits
        left: Indices = waiting[:waits].copy()
        while left.size:
            # Of the rows that wait: the tree that each is in, and further ones that this call reaches.
            calls = left[: max(1, BATCH_WORDS // self.plan.nodes)]
            part = batch.at(calls)
            trees, noise = self._trees_from(rows, part, keys)
            slots = np.arange(calls.size)
            waits = fixed_pass.publish_rows(
                *part[:4], public, rows, trees, noise, slots, waiting, out, part.out_starts
            )
            if waits < 0:
                return -1 - int(calls[-1 - waits])
            state = _remembered(state, part.which, trees, noise)
            left = np.concatenate([calls[waiting[:waits]], left[calls.size :]])
        return state

    def _trees_from(self, rows: Records, batch: RowValues, keys: RowKeys) -> tuple[Indices, Integers]:
        """First tree of each row, and noise of those needed."""
        plan, which = self.plan, batch.which
        blocks, taken = rows["blocks"][which], rows["taken"][which]
        trees = blocks // plan.tree_blocks
        closed = blocks + (rows["filled"][which] + batch.counts - taken) // plan.block
        reached = -(-closed // plan.tree_blocks) - trees
        # Nothing is drawn ahead of a row that goes on, or it would be drawn again.
        count = int(reached.min() if keys.goes_on else reached.max())
        count = max(1, min(count, BATCH_WORDS // (plan.nodes * which.size)))
        needed = plan.tree_blocks
        if not keys.goes_on:
            needed = min(needed, int((closed - trees * plan.tree_blocks).max()))
        return trees, self._draw_trees(rows["theta_steps"][which], which, trees, count, needed, keys)

    def _draw_trees(
        self,
        steps: Indices,
        which: Indices,
        trees: Indices,
        count: int,
        needed: int,
        keys: RowKeys,
        *,
        nodes: bool = False,
    ) -> Integers:
        """Noise of `count` trees a row: int64[m, count, w]."""
        if keys.numbers is not None and isinstance(self.perturber, RowPerturber):
            rows = TreeRows(
                plan=self.plan,
                epsilon=self.epsilon,
                key=self.key,
                theta_steps=np.repeat(steps, count),
                streams=np.repeat(keys.numbers[which], count),
                trees=(trees[:, None] + np.arange(count)).reshape(-1),
                needed=needed,
                nodes=nodes,
            )
            noise = self.perturber.noise_rows(rows)
            if noise is not None:
                return noise.reshape(which.size, count, -1)
        draw = self.perturber.node_noise if nodes else self.perturber.leaf_noise
        drawn = [
            draw(self.plan, theta, self.epsilon, theta_key(keys.of(row), theta), tree + k)
            for theta, row, tree in zip(steps.tolist(), which.tolist(), trees.tolist(), strict=True)
            for k in range(count)
        ]
        one = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
        return one.reshape(which.size, count, -1)

    def _publish_by_arrays(self, state: Streams, batch: RowValues, keys: RowKeys) -> Streams | int:
        """:meth:`publish` where noise follows sums, or a smoother predicts."""
        values, starts, counts, which, out, out_starts = batch
        rows, public, block = state.rows, self.public, self.plan.block
        closing = (rows["filled"][which] + counts) // block
        most = int(closing.max(initial=0))
        sums: Integers = np.empty((which.size, most + 1), np.int64)
        wrong = fixed_pass.sum_rows(values, starts, counts, which, public, rows, sums)
        if wrong >= 0:
            return -1 - wrong
        totals, predictions = np.empty((which.size, 0)), np.empty((which.size, most + 1))
        predictions[:, 0] = rows["prediction"][which]
        if most:
            state, released = self._add_noise(state, which, closing, sums[:, :most], keys)
            totals = np.multiply(released, self.grid.resolution)
        if most and block > 1 and self.smoother is not None:
            memory = state.smoother[which]
            predictions[:, 1:] = step_rows(self.smoother, memory, totals / block, closing)
            state = state._replace(smoother=_with(state.smoother, which, memory))
        fixed_pass.emit_rows(sums, totals, predictions, counts, which, public, rows, out, out_starts)
        return state

    def _add_noise(
        self, state: Streams, which: Indices, closing: Indices, sums: Integers, keys: RowKeys
    ) -> tuple[Streams, Integers]:
        rows = state.rows
        if self.is_bound:
            state, noise = self._bound_noise(state, which, closing, sums, keys)
        else:
            noise, size = np.zeros_like(sums), self.plan.tree_blocks
            first = rows["blocks"][which] % size
            reached = np.where(closing > 0, -(-(first + closing) // size), 0)
            # Rows that reach equally many trees together.
            for count in np.unique(reached[reached > 0]).tolist():
                calls = np.flatnonzero(reached == count)
                state, drawn = self._leaves_of(state, which[calls], count, int((first + closing)[calls].max()), keys)
                index = first[calls, None] + np.arange(int(closing[calls].max()))
                own = index < (first + closing)[calls, None]
                flat = np.where(own, index // size * drawn.shape[2] + index % size, 0)
                found = np.take_along_axis(drawn.reshape(calls.size, -1), flat, axis=1)
                noise[calls, : flat.shape[1]] = np.where(own, found, 0)
        # Modulo 2^64.
        released = np.where(np.arange(sums.shape[1]) < closing[:, None], sums, 0) + noise
        if self.sums_releases:
            rows["released_high"][which] += (released >> HALF).sum(axis=1)
            rows["released_low"][which] += (released & LOW_HALF).sum(axis=1)
        return state, released

    def _leaves_of(
        self, state: Streams, which: Indices, count: int, needed: int, keys: RowKeys
    ) -> tuple[Streams, Integers]:
        """Noise of each row's tree, and of the `count` - 1 after it."""
        rows, size = state.rows, self.plan.tree_blocks
        steps, trees = rows["theta_steps"][which], rows["blocks"][which] // size
        needed = size if keys.goes_on else min(size, needed)
        if state.trees.size < rows.size:
            return state, self._draw_trees(steps, which, trees, count, needed, keys)
        held = state.trees[which] == trees
        parts: list[Integers] = []
        for calls, kept in ((np.flatnonzero(held), 1), (np.flatnonzero(~held), 0)):
            drawn = state.noise[which[calls], :kept, :size]
            if calls.size and count > kept:
                one = steps[calls], which[calls], trees[calls] + kept
                further = self._draw_trees(*one, count - kept, needed, keys)[:, :, :size]
                drawn = np.concatenate([drawn, further], axis=1) if kept else further
            parts += [drawn] if calls.size else []
        order = np.argsort(~held, kind="stable")
        noise = np.empty((which.size, *parts[0].shape[1:]), np.int64)
        noise[order] = np.concatenate(parts)
        return _remembered(state, which, trees, noise), noise

    def _bound_noise(
        self, state: Streams, which: Indices, closing: Indices, sums: Integers, keys: RowKeys
    ) -> tuple[Streams, Integers]:
        rows, noise = state.rows, np.zeros_like(sums)
        follows, correlated = correlation(self.perturber), state.correlated[which]
        one = keys.numbers is None and keys.own is None
        prefixes = self.prefixes if one else PrefixNoise(self.key)
        for i in np.flatnonzero(closing).tolist():
            row, size = int(which[i]), int(closing[i])
            if keys.own is not None:
                prefixes = PrefixNoise(keys.own[row])
            distribution = self.distributions[int(rows["theta_steps"][row])]
            assert distribution is not None  # noqa: S101 - this noise is bound
            blocks, member = int(rows["blocks"][row]), None if keys.numbers is None else int(keys.numbers[row]) + 1
            drawn = prefixes.draw(sums[i, :size], distribution, rows["chain"][row], blocks, member)
            if follows is not None:
                correlated[i] = follows.correlate(drawn, correlated[i], blocks)
            noise[i, :size] = drawn
        if follows is not None:
            state = state._replace(correlated=_with(state.correlated, which, correlated))
        return state, noise

    # Releases, and states from files.

    def steps(self, state: Streams) -> int:
        return int(state.rows["theta_steps"][0])

    def released_nodes(
        self, steps: Indices, batch: RowValues, keys: RowKeys, into: ReleasedNodes, borders: Indices
    ) -> None:
        """Sum all nodes of rows with noise; leaves equal the published values."""
        plan, which = self.plan, batch.which
        tops = np.minimum(steps, self.grid.bound_steps).astype(np.float64)
        most = int((-(-batch.counts // plan.tree_blocks)).max())
        # The leaves' noise is that of the published values.
        with repeating():
            noise = self._draw_trees(steps, which, np.zeros_like(which), most, plan.tree_blocks, keys, nodes=True)
        scratch = np.empty(2 * max(hierarchy_nodes.PIECE, plan.fan_out) + plan.leaves, np.int64)
        rows_of = *batch[:3], 1.0 / self.grid.resolution, tops, noise
        shape = plan.tree_blocks, plan.fan_out, plan.levels, plan.leaves
        fixed_pass.release_nodes(*rows_of, *shape, self.grid.resolution, scratch, into.sums, borders)

    def restored(self, state: Streams, arrays: dict[str, Floats]) -> Streams:
        if any(arrays[name].size for name in ("memory", "scales", "season")):
            raise ValueError("a memory out of range")
        smoother, correlated = arrays["smoother"].reshape(1, -1), arrays["correlated"].reshape(1, -1)
        if smoother.shape != state.smoother.shape or correlated.shape != state.correlated.shape:
            raise ValueError("a memory out of range")
        return state._replace(smoother=smoother, correlated=correlated)

    def fits(self, state: Streams) -> Flags:
        rows, smoother = state.rows, cast("object", self.smoother)
        fits: Flags = (rows["filled"] < self.plan.block) & np.isfinite(state.correlated).all(axis=1)
        fits &= np.isfinite(state.smoother).all(axis=1)
        # A user's smoother need not implement the check.
        if isinstance(smoother, CheckedSmoother):
            for i in np.flatnonzero(fits & (rows["theta_steps"] > 0)).tolist():
                theta = float(rows["theta_steps"][i]) * self.grid.resolution
                fits[i] = smoother.is_state(state.smoother[i], theta, int(rows["blocks"][i]))
        return fits


def _with(column: Floats, which: Indices, entries: Floats) -> Floats:
    """Replace entries of the column; a single stream gets a new one, as its old state stays."""
    if len(column) == len(entries) == 1 or column.shape[1:] != entries.shape[1:]:
        return entries
    column[which] = entries
    return column


def _remembered(state: Streams, which: Indices, trees: Indices, noise: Integers) -> Streams:
    last = noise.shape[1] - 1
    if state.rows.size == 1:
        return state._replace(trees=trees + last, noise=noise[:, last:])
    if state.noise.shape[2]:
        state.trees[which], state.noise[which] = trees + last, noise[:, last:, : state.noise.shape[2]]
    return state
