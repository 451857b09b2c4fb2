"""Publishing in blocks whose length follows released sums (:class:`fastdp.Adaptive`; ``docs/streams.md``).

A pass over one stream: the kernel returns to Python for draws that need exact arithmetic, and where noise gets
another scale.  The caller is ``stream_machine.Schedule``; ``rows`` has one kernel for all streams of a fleet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastdp.integer_grid import EventGrid, Grid
from fastdp.kinds import Floats, Indices, Integers, Records
from fastdp.noise import chain_keys
from fastdp.noise.chain_keys import BoundDistributions
from fastdp.noise.key import ENABLED, Key
from fastdp.perturbers import Blocks, HierarchyShape
from fastdp.perturbers.block_noise import FINE
from fastdp.releases.revised import RevisedStream
from fastdp.state.machine import record
from fastdp.streams.fixed_blocks import next_chain
from fastdp.streams.state import RowKeys, Streams, copied, new_rows
from fastdp_kernels.streams import adaptive_pass, block_lengths, seasons

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
NO_FLOATS, NO_CHAIN = np.empty(0), np.empty(0, np.uint64)


class Closed(NamedTuple):
    """All that some values led to."""

    #: The state after them.
    state: Streams
    #: BLOCK[k + 1]. Closed blocks, and the open one.
    blocks: Records
    #: MEMORY[1]. The memory before.
    before: Records


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

    def columns(self, count: int) -> Streams:
        """State of `count` streams before their first values, without choosers."""
        return Streams(new_rows(count), [None] * count)

    def open(self, state: Streams, which: Indices, thetas: Floats, keys: RowKeys) -> Streams:
        """Start publishing one stream with this threshold."""
        del which
        rows, steps = state.rows, self.grid.snap(float(thetas[0]))
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
        chain = next_chain(self.perturber, keys.of(0), steps, self.epsilon, rows["chain"][0])
        if chain is not None:
            rows["chain"][0] = chain
        rows["cycle"] += 1
        rows["theta_steps"] = steps
        return state._replace(memory=memory)

    def publish(self, state: Streams, values: Floats, out: Floats) -> Closed | None:
        """Publish values of one stream into `out`; its rows change in place.  None if a value is not finite."""
        # In a season predictions differ within a block.
        if values.size <= AT_ONCE and self.perturber.season is None:
            public = self.under(int(state.rows["theta_steps"][0]))[0]
            if adaptive_pass.publish_open(values, public, state.rows, state.memory, out):
                return record(Closed, (state, STILL_OPEN, state.memory))
        return self._close_blocks(state, values, out)

    def _close_blocks(self, state: Streams, values: Floats, out: Floats) -> Closed | None:
        rows, trees, noise = state.rows, state.trees, state.noise
        row = rows[0]
        theta_steps, begun, leaves = int(row.theta_steps), int(row.filled), self.plan.leaves
        bound = self.distributions[theta_steps] is not None
        public, shape = self.under(theta_steps)
        public = public.copy()
        theta = float(public["theta"][0])
        memory, chain = copied(state.memory), row.chain
        before, first = chain.copy(), int(row.blocks)
        closed, at, plain = first, 0, plain_of(memory)
        chunks: list[Records] = []
        bends = None if self.perturber.season is None else np.empty(values.size)
        done = False
        while not done:
            # The current theta, if it has risen.
            steps = self._in_steps(theta_steps, float(plain["unit"][0]))
            public["top"] = self.top(steps)
            scale, group_scale = self._scales(steps, plain)
            distribution = self.distributions[scale]
            if bound:
                drawn: Integers = np.empty(min(values.size - at, leaves), np.int64)
                # Without a distribution the pass leaves every draw to its caller.
                noise_inputs = chain, NO_FLOATS if self.key.given is not None else self._constants(scale, group_scale)
            else:
                batch, used = divmod(closed, leaves)
                if trees[0] != batch:
                    drawn = self.perturber.leaf_noise(self.plan, steps, self.epsilon, self.key, batch)
                    trees, noise = np.array([batch]), drawn.reshape(1, 1, -1)
                drawn = noise[0, 0, used:]
                noise_inputs = NO_CHAIN, NO_FLOATS
            new_blocks = np.empty(drawn.size + 1, adaptive_pass.BLOCK)
            row.blocks, row.given = closed, 0
            while True:
                inputs = values[at:], public, shape, self.lengths, drawn, *noise_inputs, rows, plain, new_blocks
                waves = (None, None) if bends is None else (memory, bends[at:])
                consumed = adaptive_pass.sum_bound(*inputs, *waves)
                if consumed < 0:
                    return None
                at += consumed
                closing, stopped = int(row.closed), int(row.stopped)
                row.stopped = 0
                if stopped != adaptive_pass.UNSETTLED:
                    break
                # The few draws that need exact arithmetic.
                assert distribution is not None  # noqa: S101 - that of a higher theta is bound like the first
                open_sum = int(row.open_sum)
                drawn[closing] = chain_keys.resolve(distribution, self.key, chain, closed + closing, open_sum)
                row.given = closing + 1
            closed += closing
            if stopped == adaptive_pass.ENDED:
                of_group, index = self.distributions[group_scale], adaptive_pass.OF_GROUP + closed - 1
                assert of_group is not None  # noqa: S101 - groups have bound noise
                total = int(row.group_sum)
                released = (total + chain_keys.resolve(of_group, self.key, chain, index, total)) / theta_steps
                new_blocks["group"][closing - 1] = released
                block_lengths.end_group(plain, released, shape)
                row.group_sum = 0
            done = at == values.size
            row.closed = 0
            if bound and stopped:
                following_scale, _ = self._scales(self._in_steps(theta_steps, float(plain["unit"][0])), plain)
                if following_scale != scale:
                    # No random word is used with two scales, also where another version lets theta rise elsewhere.
                    chain[:] = next_chain(self.perturber, self.key, following_scale, self.epsilon, chain)
            # A block left open by a batch is the first one of the next.
            chunks.append(new_blocks[: closing + done])
        if ENABLED and bound:
            chain_keys.record(self.key, before, chain, closed - first)
        row.n_seen += values.size
        row.blocks, row.given = closed, 0
        row.prediction = float(plain["prediction"][0]) * theta
        blocks = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        adaptive_pass.emit_adaptive(blocks, begun, theta, self.events, out)
        if bends is not None:
            out += theta * bends
        after = state._replace(memory=memory, trees=trees, noise=noise)
        return Closed(after, blocks, plain_of(state.memory))

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

    def revised(self, parts: Sequence[Closed], theta_steps: int) -> RevisedStream:
        """Collect everything that was released, from the first published value on."""
        closed = np.concatenate([each.blocks[:-1] for each in parts])
        return RevisedStream(
            exponents=closed["exponent"].copy(),
            totals=closed["released"].copy(),
            places=closed["place"].copy(),
            groups=closed["group"].copy(),
            threshold=theta_steps * self.grid.resolution,
            memory=parts[0].before,
            shape=self.under(theta_steps)[1],
            season=self.perturber.season,
        )

    def top(self, theta_steps: int) -> float:
        """Largest value after clipping, in steps; negative for both signs."""
        return -float(self.grid.bound_steps) if self.events else float(min(theta_steps, self.grid.bound_steps))

    def steps(self, state: Streams) -> int:
        """The present threshold in grid steps."""
        first = int(state.rows["theta_steps"][0])
        return self._in_steps(first, float(plain_of(state.memory)["unit"][0])) if first else 0

    def highest(self, state: Streams) -> int:
        """The highest threshold so far in grid steps."""
        return self._in_steps(int(state.rows["theta_steps"][0]), float(plain_of(state.memory)["highest"][0]))

    def _in_steps(self, theta_steps: int, unit: float) -> int:
        if unit == 1.0:
            return theta_steps
        # In floats, unit * theta_steps may miss the bound by rounding.
        bound = self.grid.bound_steps
        return bound if unit >= bound / theta_steps else int(unit * theta_steps)

    def clips(self, state: Streams) -> bool:
        """True if theta is far below the values, as released sums show."""
        if self.events or not state.memory.size or self.steps(state) >= self.grid.bound_steps:
            return False
        plain = plain_of(state.memory)[0]
        certain = plain["level"] - block_lengths.CERTAIN * math.sqrt(plain["variance"])
        return bool(certain > block_lengths.CUT_OFF * plain["unit"])

    def block(self, state: Streams) -> int:
        """Length of the open block."""
        return 1 << int(plain_of(state.memory)["exponent"][0] if state.memory.size else self.shape["first"][0])

    def remembered(self, numbers: Floats) -> Records:
        """Memory of a state file."""
        if numbers.nbytes != self._memory.itemsize:
            raise ValueError("a memory out of range")
        return numbers.view(self._memory)

    def fits(self, state: Streams) -> bool:
        """True if a run can lead to the state."""
        memory, row = state.memory, state.rows[0]
        if state.smoother.size or state.correlated.size or row.released_high or row.released_low:
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
            and row.filled < 1 << exponent
            and 0 <= decided <= position
            and 1.0 <= plain["unit"] <= plain["highest"] <= MAX_UNIT
            and plain["members"] >= 0.0
            and 0.0 <= plain["group"] <= self.max_range
        )


def plain_of(memory: Records) -> Records:
    """Return the memory without seasonal fields."""
    return memory if memory.dtype == block_lengths.MEMORY else memory["plain"]
