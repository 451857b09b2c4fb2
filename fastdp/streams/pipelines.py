"""Publishing under a known threshold (ToPS, CCS 2021, Algorithm 1, lines 11 to 28): clip, sum, add noise, predict.

:class:`FixedBlocks` sums blocks of one length (ToPS and every composition without Blocks); :class:`AdaptiveBlocks`
lets released sums choose the next block's length (:class:`fastdp.Adaptive`; ``docs/streams.md``).  Both are pure
functions from (progress, values) to (progress, published values), and kernels do the arithmetic.  Their caller is
``stream_machine.Schedule``, which chooses thresholds; ``rows`` has one kernel for all streams of a fleet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastdp.data.column import FLOAT64, INT64, as_floats, convert, exact_sum, is_in_order, read_only
from fastdp.integer_grid import EventGrid, Grid
from fastdp.kinds import Array, Floats, Integers, Records
from fastdp.noise import chain_keys
from fastdp.noise.bulk import PrefixNoise
from fastdp.noise.chain_keys import BoundDistributions, Chain, bound_distribution, theta_key
from fastdp.noise.key import ENABLED, Key, repeating
from fastdp.perturbers import Blocks, HierarchyShape, Perturber
from fastdp.perturbers.base import correlation
from fastdp.perturbers.block_noise import FINE
from fastdp.releases.release import ReleasedNodes
from fastdp.releases.revised import RevisedStream
from fastdp.smoothers import Smoother, SmootherState
from fastdp.smoothers.smoothers import CheckedSmoother, repeats_means
from fastdp.state.machine import record
from fastdp_kernels.streams import adaptive_pass, block_lengths, hierarchy_nodes, online_pass, seasons

#: The number of a tree and the noise of its leaves; a cache, since the key determines it.
TreeNoise = tuple[int, Integers]
NO_FLOATS, NO_CHAIN = np.empty(0), np.empty(0, np.uint64)
NO_RECORDS: Records = np.empty(0, [])


class Progress(NamedTuple):
    """State between two chunks; the hold-out's summary and the noise (a function of the key) are kept elsewhere."""

    #: Values consumed.
    n_seen: int = 0
    #: Thresholds chosen so far.
    cycle: int = 0
    #: Values withheld for the next threshold (:class:`fastdp.thresholds.renewals.RenewFromHoldout`).
    held: int = 0
    #: Sum released under this threshold, in grid steps, if a renewal needs it.
    released_sum: int = 0
    #: The threshold in grid steps; first 0.
    theta_steps: int = 0
    #: Closed blocks.
    blocks: int = 0
    #: Values in the open block.
    filled: int = 0
    #: Their exact sum, in grid steps. Secret.
    open_sum: int = 0
    #: Exact sum of the open group of blocks, in grid steps. Secret.
    group_sum: int = 0
    #: Published for each value of the open block.
    prediction: float = 0.0
    #: float64[any]. State of the smoother.
    smoother: SmootherState = NO_FLOATS
    #: float64[any]. State of correlated noise. Secret.
    correlated: Floats = NO_FLOATS
    #: MEMORY[1], or empty. What blocks that follow released sums know of the stream.
    memory: Records = NO_FLOATS
    #: uint64[4 or 0]. Chain key of bound noise (:mod:`fastdp.noise.chain_keys`). Secret.
    chain: Chain = NO_CHAIN

    def __repr__(self) -> str:
        # Without the secrets.
        return f"Progress(n_seen={self.n_seen}, cycle={self.cycle}, blocks={self.blocks}, filled={self.filled})"


class Step(NamedTuple):
    """Progress after some values, and what they were published as."""

    following: Progress
    #: (int, int64[leaves]) or None. The tree in use.
    noise: TreeNoise | None
    published: Floats
    #: `blocks`, `before`: AdaptiveBlocks alone: closed blocks and the open one, and the memory before.
    blocks: Records = NO_RECORDS
    before: Records = NO_RECORDS


def next_chain(perturber: Perturber, key: Key, theta_steps: int, epsilon: float, before: Chain) -> Chain:
    """Derive the chain key for the first sum under this threshold from `before`; empty for trees."""
    if bound_distribution(perturber, theta_steps, epsilon) is None:
        return NO_CHAIN
    chain_key = key.within("behind", before.tobytes()) if before.size else key
    return chain_keys.start_chain(theta_key(chain_key, theta_steps))


# Blocks of fixed length.

NO_NOISE: Integers = np.empty(0, np.int64)


def nodes_scratch(plan: HierarchyShape) -> Integers:
    """Scratch buffer while a tree's nodes are released."""
    return np.empty(2 * max(hierarchy_nodes.PIECE, plan.fan_out) + plan.leaves, np.int64)


def with_output(values: Array, *kinds: np.dtype[Any]) -> tuple[Array, Floats]:
    """The values as kernels take them, and memory for the output; types that kernels lack are converted there."""
    published = np.empty(values.size)
    if is_in_order(values, FLOAT64) or (kinds and is_in_order(values, kinds[0])):
        return read_only(values), published
    convert(values, published)
    return read_only(published), published


@dataclass(frozen=True)
class FixedBlocks:
    """Turns clipped values into noisy sums of blocks of one length, and these into published values."""

    #: `plan`, `grid`, `perturber`, `smoother`, `key`: the publisher's.
    plan: HierarchyShape
    grid: Grid
    perturber: Perturber
    smoother: Smoother | None
    #: The perturber's budget.
    epsilon: float
    key: Key
    #: True keeps ``Progress.released_sum``.
    sums_releases: bool = False

    @cached_property
    def distributions(self) -> BoundDistributions:
        return BoundDistributions(self.perturber, self.epsilon)

    @cached_property
    def prefixes(self) -> PrefixNoise:
        return PrefixNoise(self.key)

    def open(self, progress: Progress, theta: float) -> Progress:
        """Start publishing with `theta`; the first prediction is theta / 2 or, after a renewal, the last one."""
        steps = self.grid.snap(theta)
        top = steps * self.grid.resolution
        first = min(progress.prediction, top) if progress.cycle else top / 2.0
        follows = correlation(self.perturber)
        return progress._replace(
            cycle=progress.cycle + 1,
            held=0,
            released_sum=0,
            theta_steps=steps,
            prediction=first,
            smoother=NO_FLOATS if self.smoother is None else self.smoother.start(first, top),
            correlated=NO_FLOATS if follows is None else np.zeros(follows.memory),
            chain=next_chain(self.perturber, self.key, steps, self.epsilon, progress.chain),
        )

    @cached_property
    def every_value(self) -> bool:
        return self.smoother is None or self.plan.block == 1

    @cached_property
    def predicts_last_mean(self) -> bool:
        return repeats_means(self.smoother)

    def in_one_pass(self, theta_steps: int) -> bool:
        """True if one pass can publish: noise independent of sums, predictions from the last mean."""
        ready = not self.sums_releases and self.distributions[theta_steps] is None
        return ready and (self.every_value or self.predicts_last_mean)

    def publish(self, progress: Progress, noise: TreeNoise | None, values: Array) -> Step | None:
        """Publish `values`; None if one is not finite."""
        # By position: names, and _replace, cost more than the kernel of a short call.
        n_seen, cycle, held, released, theta, blocks, filled, total, group, prediction, *others = progress
        public = self._publics[theta] if theta in self._publics else self._public(theta)
        if public is None:
            return self._publish_by_arrays(progress, noise, as_floats(values))
        # In place too: a block is read before it is written.
        values, published = with_output(values, INT64)
        (block, tree_blocks), begin, size = self.sizes, 0, values.size
        while begin < size:
            stop = min(size, begin + (tree_blocks - blocks % tree_blocks) * block - filled)
            closing, leaf, drawn = (filled + stop - begin) // block, 0, NO_NOISE
            if closing:
                tree, leaf = divmod(blocks, tree_blocks)
                if noise is None or noise[0] != tree:
                    noise = self._tree(tree, theta)
                drawn = noise[1]
            part = values[begin:stop], public, drawn, leaf, closing, filled, total, prediction, published[begin:stop]
            total, prediction = online_pass.publish(*part)
            if prediction != prediction:  # NaN
                return None
            begin, blocks, filled = stop, blocks + closing, filled + stop - begin - closing * block
        now = n_seen + size, cycle, held, released, theta, blocks, filled, total, group, prediction, *others
        return record(Step, (record(Progress, now), noise, published, NO_RECORDS, NO_RECORDS))

    @cached_property
    def sizes(self) -> tuple[int, int]:
        return self.plan.block, self.plan.tree_blocks

    def _public(self, theta_steps: int) -> Floats | None:
        # Public numbers of one pass; None without one.
        made = None
        if self.in_one_pass(theta_steps):
            top, resolution = float(min(theta_steps, self.grid.bound_steps)), self.grid.resolution
            made = np.array([1.0 / resolution, top, resolution, self.plan.block])
        self._publics[theta_steps] = made
        return made

    @cached_property
    def _publics(self) -> dict[int, Floats | None]:
        return {}

    def _publish_by_arrays(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Step | None:
        per_unit, top = 1.0 / self.grid.resolution, float(min(progress.theta_steps, self.grid.bound_steps))
        n_seen, size, block = progress.n_seen + values.size, values.size, self.plan.block
        if self.every_value:
            steps: Integers = np.empty(size, np.int64)
            if online_pass.round_values(values, per_unit, top, steps):
                return None
            following, noise = self._add_noise(progress, noise, steps)
            following = following._replace(n_seen=n_seen, blocks=progress.blocks + size)
            return Step(following, noise, steps.view(np.float64))
        closing, filled = divmod(progress.filled + size, block)
        sums: Integers = np.empty(closing + 1, np.int64)
        sums[closing] = 0
        touched = sums if filled else sums[:closing]
        if online_pass.sum_blocks(values, per_unit, top, block, progress.filled, touched):
            return None
        sums[0] += progress.open_sum
        following, predictions, totals = progress, np.empty(closing + 1), NO_FLOATS
        predictions[0] = progress.prediction
        if closing:
            following, noise = self._add_noise(progress, noise, sums[:closing])
            # Means take the memory of the predictions: long chunks of short blocks stay lean.
            totals = sums[:closing].view(np.float64)
            means = np.divide(totals, block, out=predictions[1:])
            assert self.smoother is not None  # noqa: S101 - blocks have one
            state, predicted = self.smoother.step(progress.smoother, means)
            if predicted is not means:
                means[:] = predicted
            following = following._replace(prediction=float(predictions[closing]), smoother=state)
        blocks, open_sum = progress.blocks + closing, int(sums[closing])
        following = following._replace(n_seen=n_seen, blocks=blocks, filled=filled, open_sum=open_sum)
        published = np.empty(size)
        online_pass.emit_blocks(totals, predictions, block, progress.filled, published)
        return Step(following, noise, published)

    def steps(self, theta_steps: int, memory: Floats) -> int:
        return theta_steps

    def remembered(self, numbers: Floats) -> Records:
        return numbers

    def fits(self, progress: Progress) -> bool:
        follows, state = correlation(self.perturber), NO_FLOATS
        if self.smoother is not None:
            state = self.smoother.start(0.5, 1.0)
        fits = progress.filled < self.plan.block and not progress.memory.size and not progress.group_sum
        fits = fits and progress.correlated.size == (0 if follows is None else follows.memory)
        fits = fits and progress.smoother.size == state.size
        fits = fits and bool(np.isfinite(progress.smoother).all() and np.isfinite(progress.correlated).all())
        smoother: object = self.smoother
        # A user's smoother need not implement the check.
        if not fits or not isinstance(smoother, CheckedSmoother):
            return fits
        return smoother.is_state(progress.smoother, progress.theta_steps * self.grid.resolution, progress.blocks)

    def released_nodes(self, theta_steps: int, values: Floats) -> ReleasedNodes:
        """Release noisy sums of all nodes of a fully published stream; leaves equal the published values."""
        plan = self.plan
        trees = -(-values.size // plan.tree_blocks)
        top = float(min(theta_steps, self.grid.bound_steps))
        scratch, key = nodes_scratch(plan), theta_key(self.key, theta_steps)
        released = np.empty((0 if trees == 1 else trees, plan.nodes))
        for tree in range(trees):
            # The leaves' noise is that of the published values.
            with repeating():
                noise = self.perturber.node_noise(plan, theta_steps, self.epsilon, key, tree)
            # New memory costs as much as the sums, so a single tree overwrites its noise.
            out = noise.view(np.float64) if trees == 1 else released[tree]
            hierarchy_nodes.release_tree(
                values[tree * plan.tree_blocks : (tree + 1) * plan.tree_blocks],
                1.0 / self.grid.resolution,
                top,
                noise,
                plan.fan_out,
                plan.levels,
                plan.leaves,
                self.grid.resolution,
                scratch,
                out,
            )
            released = out.reshape(1, -1) if trees == 1 else released
        return ReleasedNodes(released, plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks)

    def _add_noise(
        self, progress: Progress, noise: TreeNoise | None, sums: Integers
    ) -> tuple[Progress, TreeNoise | None]:
        begin, released, correlated = 0, progress.released_sum, progress.correlated
        distribution = self.distributions[progress.theta_steps]
        if distribution is not None:
            chain = progress.chain.copy()
            drawn = self.prefixes.draw(sums, distribution, chain, progress.blocks)
            follows = correlation(self.perturber)
            if follows is not None:
                correlated = follows.correlate(drawn, correlated, progress.blocks)
            if self.sums_releases:
                released += exact_sum(sums + drawn)
            online_pass.add_noise(sums, drawn, self.grid.resolution, sums.view(np.float64))
            return progress._replace(released_sum=released, correlated=correlated, chain=chain), None
        while begin < sums.size:
            noise, leaf = self._leaf(progress, noise, begin)
            count = min(sums.size - begin, self.plan.tree_blocks - leaf)
            tree_sums, drawn = sums[begin : begin + count], noise[1][leaf : leaf + count]
            if self.sums_releases:
                # Sum of the released totals modulo 2^64: sums without noise would wrap elsewhere.
                released += exact_sum(tree_sums + drawn)
            online_pass.add_noise(tree_sums, drawn, self.grid.resolution, tree_sums.view(np.float64))
            begin += count
        return progress._replace(released_sum=released), noise

    def _leaf(self, progress: Progress, noise: TreeNoise | None, after: int) -> tuple[TreeNoise, int]:
        tree, leaf = divmod(progress.blocks + after, self.plan.tree_blocks)
        return noise if noise is not None and noise[0] == tree else self._tree(tree, progress.theta_steps), leaf

    def _tree(self, tree: int, theta_steps: int) -> TreeNoise:
        key = theta_key(self.key, theta_steps)
        return tree, self.perturber.leaf_noise(self.plan, theta_steps, self.epsilon, key, tree)


# Blocks whose length follows released sums.

#: More values rarely leave a block open; then a first release compiles no way for those that do.
AT_ONCE = 2048
#: Largest rise of theta.
MAX_UNIT = 2.0**64
#: Prior before any release: values of theta / 2, with a deviation of theta / 2.
FIRST_LEVEL = 0.5
FIRST_VARIANCE = 0.25
#: Prior for events: a level of 0, with a variance of so many times that of a first sum.
FIRST_EVENTS = 1e6
#: The open block of values that leave it open; nothing reads it.
STILL_OPEN: Records = np.zeros(1, adaptive_pass.BLOCK)


@dataclass(frozen=True)
class AdaptiveBlocks:
    """Turns clipped values into noisy block sums, and these into predictions and lengths of later blocks."""

    #: `plan`, `grid`, `perturber`, `epsilon`, `key`: as for :class:`FixedBlocks`.
    plan: HierarchyShape
    grid: Grid
    perturber: Blocks
    epsilon: float
    key: Key
    #: `max_range`, `warm_up`: r, and the number of values released as blocks before anything is published.
    max_range: int
    warm_up: int
    #: True if theta follows a stream that outgrows its hold-out.
    rises: bool

    @cached_property
    def events(self) -> bool:
        return isinstance(self.grid, EventGrid)

    @cached_property
    def shape(self) -> Records:
        return self.perturber.shape(self.epsilon, self.max_range, self.warm_up, events=self.events)

    @property
    def _memory(self) -> Any:
        return block_lengths.MEMORY if self.perturber.season is None else seasons.SEASON

    @cached_property
    def lengths(self) -> Floats | None:
        return block_lengths.lengths_of_events(self.shape)

    @cached_property
    def _under(self) -> dict[int, tuple[Records, Records]]:
        return {}

    def under(self, theta_steps: int) -> tuple[Records, Records]:
        # Cached: short calls would be slower otherwise.
        made = self._under.get(theta_steps)
        if made is None:
            shape, resolution = self.shape.copy(), self.grid.resolution
            if theta_steps < FINE or self.distributions[theta_steps] is None:
                shape["group"] = 0.0
            if self.rises:
                shape["top_unit"] = max(1.0, self.grid.bound_steps / theta_steps)
            numbers = 1.0 / resolution, self.top(theta_steps), theta_steps, theta_steps * resolution
            public = np.array([(*numbers, self.grid.bound_steps)], adaptive_pass.PUBLIC)
            made = self._under[theta_steps] = public, shape
        return made

    @cached_property
    def distributions(self) -> BoundDistributions:
        return BoundDistributions(self.perturber, self.epsilon)

    def open(self, progress: Progress, theta: float) -> Progress:
        steps = self.grid.snap(theta)
        memory: Records = np.zeros(1, self._memory)
        first, noise = int(self.shape["first"][0]), float(self.shape["noise"][0])
        level, variance = FIRST_LEVEL, FIRST_VARIANCE
        if self.events:
            level, variance = 0.0, FIRST_EVENTS * (1.0 + noise)
        elif not self.warm_up:
            # A guess is published first: only until its error meets that of a noisy mean.
            first = min(first, math.frexp(math.sqrt(noise / FIRST_VARIANCE))[1])
        # Noise that was drawn before the sums exist has the scale of one theta.
        rises = self.rises and self.distributions[steps] is not None
        block_lengths.start_memory(level, variance, max(first, 0), rises, self.shape, plain_of(memory))
        if self.perturber.season is not None:
            memory["period"] = self.perturber.season
        chain = next_chain(self.perturber, self.key, steps, self.epsilon, progress.chain)
        return progress._replace(cycle=progress.cycle + 1, theta_steps=steps, memory=memory, chain=chain)

    def publish(self, progress: Progress, noise: TreeNoise | None, values: Array) -> Step | None:
        """Publish `values`; None if one is not finite."""
        floats, published = with_output(values)
        # In a season predictions differ within a block; converted values lie where the output will.
        at_once = floats.size <= AT_ONCE and self.perturber.season is None and floats.base is not published
        made = self._leave_open(progress, noise, floats, published) if at_once else None
        return made or self._close_blocks(progress, noise, floats, published)

    def _leave_open(
        self, progress: Progress, noise: TreeNoise | None, values: Floats, published: Floats
    ) -> Step | None:
        # None if the values fill the block.
        n_seen, cycle, held, released, steps, blocks, filled, total, group, prediction, *others = progress
        memory = progress.memory
        public = self._publics[steps] if steps in self._publics else self._public(steps)
        total, prediction = adaptive_pass.publish_open(values, public, filled, total, memory, published)
        if prediction != prediction:  # NaN
            return None
        size = values.size
        now = n_seen + size, cycle, held, released, steps, blocks, filled + size, total, group, prediction, *others
        return record(Step, (record(Progress, now), noise, published, STILL_OPEN, memory))

    def _public(self, theta_steps: int) -> Floats:
        made = self._publics[theta_steps] = self.under(theta_steps)[0].view(np.float64)
        return made

    @cached_property
    def _publics(self) -> dict[int, Floats]:
        return {}

    def _close_blocks(
        self, progress: Progress, noise: TreeNoise | None, values: Floats, published: Floats
    ) -> Step | None:
        theta_steps, leaves = progress.theta_steps, self.plan.leaves
        bound = self.distributions[theta_steps] is not None
        public, shape = self.under(theta_steps)
        public = public.copy()
        theta = float(public["theta"][0])
        counters = np.array(
            [(progress.filled, progress.open_sum, 0, 0, 0, 0, progress.group_sum)], adaptive_pass.COUNTERS
        )
        # NumPy copies a record field by field, four times as slowly.
        memory = self.remembered(progress.memory.view(np.float64).copy())
        chain, closed, at = progress.chain.copy(), progress.blocks, 0
        plain = plain_of(memory)
        chunks: list[Records] = []
        bends = None if self.perturber.season is None else np.empty(values.size)
        done = False
        while not done:
            # The current theta, if it has risen.
            steps = self.steps(theta_steps, memory)
            public["top"] = self.top(steps)
            scale, group_scale = self._scales(steps, plain)
            distribution = self.distributions[scale]
            if bound:
                drawn: Integers = np.empty(min(values.size - at, leaves), np.int64)
                # Without a distribution the pass leaves every draw to its caller.
                noise_inputs = chain, NO_FLOATS if self.key.given is not None else self._constants(scale, group_scale)
            else:
                batch, used = divmod(closed, leaves)
                if noise is None or noise[0] != batch:
                    noise = batch, self.perturber.leaf_noise(self.plan, steps, self.epsilon, self.key, batch)
                drawn = noise[1][used:]
                noise_inputs = NO_CHAIN, NO_FLOATS
            new_blocks = np.empty(drawn.size + 1, adaptive_pass.BLOCK)
            counters["blocks"], counters["given"] = closed, 0
            while True:
                inputs = values[at:], public, shape, self.lengths, drawn, *noise_inputs, counters, plain, new_blocks
                waves = (None, None) if bends is None else (memory, bends[at:])
                consumed = adaptive_pass.sum_bound(*inputs, *waves)
                if consumed < 0:
                    return None
                at += consumed
                _, open_sum, closing, stopped, _, _, group_sum = counters[0].tolist()
                counters["stopped"] = 0
                if stopped != adaptive_pass.UNSETTLED:
                    break
                # The few draws that need exact arithmetic.
                assert distribution is not None  # noqa: S101 - that of a higher theta is bound like the first
                drawn[closing] = chain_keys.resolve(distribution, self.key, chain, closed + closing, open_sum)
                counters["given"] = closing + 1
            closed += closing
            if stopped == adaptive_pass.ENDED:
                of_group, index = self.distributions[group_scale], adaptive_pass.OF_GROUP + closed - 1
                assert of_group is not None  # noqa: S101 - groups have bound noise
                released = (group_sum + chain_keys.resolve(of_group, self.key, chain, index, group_sum)) / theta_steps
                new_blocks["group"][closing - 1] = released
                block_lengths.end_group(plain, released, shape)
                counters["group_sum"] = 0
            done = at == values.size
            counters["closed"] = 0
            if bound and stopped:
                following_scale, _ = self._scales(self.steps(theta_steps, memory), plain)
                if following_scale != scale:
                    # No random word is used with two scales, also where another version lets theta rise elsewhere.
                    chain = next_chain(self.perturber, self.key, following_scale, self.epsilon, chain)
            # A block left open by a batch is the first one of the next.
            chunks.append(new_blocks[: closing + done])
        if ENABLED and bound:
            chain_keys.record(self.key, progress.chain, chain, closed - progress.blocks)
        filled, open_sum, *_, group_sum = counters[0].tolist()
        following = progress._replace(
            n_seen=progress.n_seen + values.size,
            blocks=closed,
            filled=filled,
            open_sum=open_sum,
            group_sum=group_sum,
            prediction=float(plain["prediction"][0]) * theta,
            memory=memory,
            chain=chain,
        )
        blocks = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        adaptive_pass.emit_adaptive(blocks, progress.filled, theta, self.events, published)
        if bends is not None:
            published += theta * bends
        return Step(following, noise, published, blocks, plain_of(progress.memory))

    @staticmethod
    def _scales(steps: int, plain: Records) -> tuple[int, int]:
        """Noise scales, as thetas in grid steps, of a block and of the sum of its group (0 outside groups)."""
        if not plain["group"][0]:
            return steps, 0
        # LOUDER and GROUP_SCALE, exactly; rounded up, so that no fraction of epsilon is passed.
        return -(-6 * steps // 5), 6 * steps

    def _constants(self, scale: int, group_scale: int) -> Floats:
        constants = self._joined.get((scale, group_scale))
        if constants is None:
            distributions = [self.distributions[steps] for steps in (scale, group_scale) if steps]
            tables = [distribution.constants for distribution in distributions if distribution is not None]
            constants = self._joined[scale, group_scale] = np.concatenate([NO_FLOATS, *tables])
        return constants

    @cached_property
    def _joined(self) -> dict[tuple[int, int], Floats]:
        return {}

    def revised(self, steps: Sequence[Step], theta_steps: int) -> RevisedStream:
        """Collect everything that `steps` released, from the first published value on."""
        closed = np.concatenate([step.blocks[:-1] for step in steps])
        return RevisedStream(
            exponents=closed["exponent"].copy(),
            totals=closed["released"].copy(),
            places=closed["place"].copy(),
            groups=closed["group"].copy(),
            threshold=theta_steps * self.grid.resolution,
            memory=steps[0].before,
            shape=self.under(theta_steps)[1],
            season=self.perturber.season,
        )

    def top(self, theta_steps: int) -> float:
        """Largest value after clipping, in steps; negative for both signs."""
        return -float(self.grid.bound_steps) if self.events else float(min(theta_steps, self.grid.bound_steps))

    def steps(self, theta_steps: int, memory: Records) -> int:
        return self._in_steps(theta_steps, float(plain_of(memory)["unit"][0]))

    def highest(self, theta_steps: int, memory: Records) -> int:
        return self._in_steps(theta_steps, float(plain_of(memory)["highest"][0]))

    def _in_steps(self, theta_steps: int, unit: float) -> int:
        if unit == 1.0:
            return theta_steps
        # In floats, unit * theta_steps may miss the bound by rounding.
        bound = self.grid.bound_steps
        return bound if unit >= bound / theta_steps else int(unit * theta_steps)

    def clips(self, progress: Progress) -> bool:
        memory, steps = progress.memory, progress.theta_steps
        if self.events or not memory.size or self.steps(steps, memory) >= self.grid.bound_steps:
            return False
        plain = plain_of(memory)[0]
        certain = plain["level"] - block_lengths.CERTAIN * math.sqrt(plain["variance"])
        return bool(certain > block_lengths.CUT_OFF * plain["unit"])

    def block(self, progress: Progress) -> int:
        memory = progress.memory
        return 1 << int(plain_of(memory)["exponent"][0] if memory.size else self.shape["first"][0])

    def remembered(self, numbers: Floats) -> Records:
        if numbers.nbytes != self._memory.itemsize:
            raise ValueError("a memory out of range")
        return numbers.view(self._memory)

    def fits(self, progress: Progress) -> bool:
        memory = progress.memory
        if progress.smoother.size or progress.correlated.size or progress.released_sum:
            return False
        if memory.size != 1 or not np.isfinite(memory.view(np.float64)).all():
            return False
        if self.perturber.season is not None and memory["period"][0] != self.perturber.season:
            return False
        plain, most = plain_of(memory)[0], self.shape["most"][0]
        integers = [float(plain[name]) for name in ("position", "decided", "exponent", "last")]
        position, decided, exponent, last = (int(number) for number in integers)
        return bool(
            integers == [position, decided, exponent, last]
            and 0 <= exponent <= most
            and 0 <= last <= most
            and progress.filled < 1 << exponent
            and 0 <= decided <= position
            and 1.0 <= plain["unit"] <= plain["highest"] <= MAX_UNIT
            and plain["members"] >= 0.0
            and 0.0 <= plain["group"] <= self.max_range
        )


def plain_of(memory: Records) -> Records:
    """Return the memory without seasonal fields."""
    return memory if memory.dtype == block_lengths.MEMORY else memory["plain"]
