"""The step of a publisher whose blocks follow what was released: where they close and get their noise.

A pure function from (progress, values) to (progress, published values); the kernels choose the lengths.

Source: ``docs/adaptive.md``; the project's design beyond the papers, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastdp.integer_grid import EventGrid, Grid
from fastdp.kinds import Floats, Integers
from fastdp.noise import binding
from fastdp.noise.binding import Chain
from fastdp.noise.draws import Distribution
from fastdp.noise.key import ENABLED, Key
from fastdp.perturbers import Blocks, HierarchyShape
from fastdp.perturbers.base import BoundLaws
from fastdp.releases.revised import RevisedStream
from fastdp.state.machine import record
from fastdp.streams.stream_state import NO_CHAIN, NO_FLOATS, Progress, Published, Step, TreeNoise, next_chain
from fastdp_kernels.streams import adaptive_pass, block_lengths, seasons

#: No theta rises further.
MAX_UNIT = 2.0**64
#: Before anything is released a value is taken to be about theta / 2, give or take as much.
FIRST_LEVEL = 0.5
FIRST_VARIANCE = 0.25
#: Of events next to nothing is known: a level of about 0 whose variance is so many times that of a first sum.
FIRST_EVENTS = 1e6


@dataclass(frozen=True)
class AdaptiveBlocks:
    """Clipped values to noisy sums of blocks, and those to predictions and to the lengths of further blocks.

    Attributes
    ----------
    plan, grid, perturber, epsilon, key
        As of :class:`fastdp.streams.fixed_blocks.FixedBlocks`.
    max_range, warm_up : int
        r, and how many values are released as blocks before anything is published.
    rises : bool
        Whether theta follows a stream that outgrows those.
    """

    plan: HierarchyShape
    grid: Grid
    perturber: Blocks
    epsilon: float
    key: Key
    max_range: int
    warm_up: int
    rises: bool

    @cached_property
    def events(self) -> bool:
        """Whether values are counts of events, without a bound."""
        return isinstance(self.grid, EventGrid)

    @cached_property
    def shape(self) -> Floats:
        """The kernels' public parameters."""
        return self.perturber.shape(self.epsilon, self.max_range, self.warm_up, events=self.events)

    @property
    def _memory(self) -> int:
        """Size of the kernels' memory: that of a season is behind the other."""
        return block_lengths.MEMORY if self.perturber.season is None else seasons.SEASON_MEMORY

    @cached_property
    def lengths(self) -> Floats | None:
        """Of queries of counts of events, or None."""
        return block_lengths.lengths_of_events(self.shape)

    def shape_under(self, theta_steps: int) -> Floats:
        """The same with the first threshold, which says how far it may rise."""
        # One publisher has one first threshold: short calls would notice if they were made again.
        made: tuple[int, Floats] | None = self.__dict__.get("_under")
        if made is None or made[0] != theta_steps:
            shape = self.shape.copy()
            if self.rises:
                shape[block_lengths.TOP_UNIT] = max(1.0, self.grid.bound_steps / theta_steps)
            made = self.__dict__["_under"] = theta_steps, shape
        return made[1]

    @cached_property
    def laws(self) -> BoundLaws:
        """Of noise that is bound to the prefix."""
        return BoundLaws(self.perturber, self.key, self.epsilon)

    def open(self, progress: Progress, theta: float) -> Progress:
        """Begin to publish with this threshold."""
        steps = self.grid.snap(theta)
        memory = np.empty(self._memory)
        first = int(self.shape[block_lengths.FIRST])
        level, variance = FIRST_LEVEL, FIRST_VARIANCE
        if self.events:
            level, variance = 0.0, FIRST_EVENTS * (1.0 + self.shape[block_lengths.NOISE])
        elif not self.warm_up:
            # A guess is published first: only until its error meets that of a noisy mean.
            first = min(first, math.frexp(math.sqrt(self.shape[block_lengths.NOISE] / FIRST_VARIANCE))[1])
        # Noise that was drawn before the sums exist has the scale of one theta.
        rises = self.rises and self.laws[steps] is not None
        block_lengths.start_memory(level, variance, max(first, 0), rises, self.shape, memory)
        if self.perturber.season is not None:
            seasons.start_season(self.perturber.season, memory)
        chain = next_chain(self.perturber, self.key, steps, self.epsilon, progress.chain)
        return progress._replace(cycle=progress.cycle + 1, theta_steps=steps, smoother=memory, chain=chain)

    def prepare(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Step | None:
        """The step of values after the hold-out; None if one of them is NaN or infinite."""
        counters: Integers = np.zeros(4, np.int64)
        counters[0], counters[1] = progress.filled, progress.open_sum
        memory, chain, closed, at = progress.smoother.copy(), progress.chain.copy(), progress.blocks, 0
        bound = self.laws[progress.theta_steps] is not None
        theta_steps, resolution = progress.theta_steps, self.grid.resolution
        shape = self.shape_under(theta_steps)
        parts: list[Floats] = []
        bends = NO_FLOATS if self.perturber.season is None else np.empty(values.size)
        done = False
        while not done:
            # What theta has risen to, if it has.
            steps = self.steps(theta_steps, memory)
            public = 1.0 / resolution, self.top(steps), float(theta_steps), shape, self.lengths
            if bound:
                part = np.empty((min(values.size - at, self.plan.leaves) + 1, adaptive_pass.COLUMNS))
                law = self.laws[steps]
                consumed = self._close_bound(
                    values[at:], public, law, chain, closed, counters, memory, part, bends[at:]
                )
            else:
                batch, used = divmod(closed, self.plan.leaves)
                if noise is None or noise[0] != batch:
                    noise = batch, self.perturber.leaf_noise(self.plan, steps, self.epsilon, self.key, batch)
                part = np.empty((self.plan.leaves - used + 1, adaptive_pass.COLUMNS))
                drawn = noise[1][used:]
                rest = drawn, NO_CHAIN, 0, NO_FLOATS, drawn.size, counters, memory, part
                consumed = self._pass(values[at:], *public, *rest, bends[at:])
            if consumed < 0:
                return None
            at += consumed
            closing = int(counters[2])
            closed += closing
            done = at == values.size
            counters[2] = 0
            risen = self.steps(theta_steps, memory)
            if bound and risen != steps:
                # No random word is used with two scales, also where another version lets theta rise elsewhere.
                chain = next_chain(self.perturber, self.key, risen, self.epsilon, chain)
            # What is left open at the end of a batch is the first block of the next.
            parts.append(part[: closing + done])
        if ENABLED and bound:
            binding.record(self.key, progress.chain, chain, closed - progress.blocks)
        theta = theta_steps * resolution
        # By position: names cost more than the kernel of a short call.
        following = Progress(
            *(progress.n_seen + values.size, progress.cycle, progress.held, progress.released, theta_steps, closed),
            *(int(counters[0]), int(counters[1]), float(memory[block_lengths.PREDICTION]) * theta, memory, chain),
        )
        blocks = parts[0] if len(parts) == 1 else np.concatenate(parts)
        emit = partial(self._emit, blocks, progress.filled, theta, bends)
        return Step(following, noise, values.size, write=emit, blocks=blocks, before=progress.smoother)

    def _emit(self, blocks: Floats, filled: int, theta: float, bends: Floats, out: Floats) -> None:
        """Publish predictions; ``bends`` are those of a season, or empty."""
        spikes = self.perturber.closing == "spike"
        adaptive_pass.emit_adaptive(blocks, filled, theta, spikes, self.events, out)
        if bends.size:
            out += theta * bends

    def in_one_pass(self, theta_steps: int) -> bool:
        """Whether values that leave a block open are published by one call of a kernel."""
        # In a season predictions differ within a block.
        return self.perturber.season is None

    def publish(self, progress: Progress, noise: TreeNoise | None, values: Floats, published: Floats) -> Published:
        """Publish values that leave the block open: nothing is released, and the memory stays as it is.

        Without progress if they fill the block, or one of them is NaN or infinite.
        """
        n_seen, cycle, held, released, steps, blocks, filled, total, prediction, memory, chain = progress
        under = self.publics.get(steps)
        if under is None:
            under = self._public(steps)
        per_unit, top, theta = under
        if memory.item(block_lengths.UNIT) != 1.0:
            top = self.top(self.steps(steps, memory))
        total, prediction = adaptive_pass.publish_open(values, per_unit, top, filled, total, memory, theta, published)
        if prediction != prediction:  # NaN
            return None, noise
        size = values.size
        now = n_seen + size, cycle, held, released, steps, blocks, filled + size, total, prediction, memory, chain
        return record(Progress, now), noise

    @cached_property
    def publics(self) -> dict[int, tuple[float, float, float]]:
        """Steps per unit, top and theta by the first theta in grid steps."""
        return {}

    def _public(self, theta_steps: int) -> tuple[float, float, float]:
        resolution = self.grid.resolution
        public = self.publics[theta_steps] = 1.0 / resolution, self.top(theta_steps), theta_steps * resolution
        return public

    def _pass(self, *arguments: Any) -> int:
        """The kernels' pass; its last argument is for the season alone."""
        if self.perturber.season is None:
            return adaptive_pass.sum_bound(*arguments[:-1])
        return seasons.sum_in_season(*arguments)

    def _close_bound(
        self,
        values: Floats,
        public: tuple[float, float, float, Floats, Floats | None],
        law: Distribution | None,
        chain: Chain,
        first: int,
        counters: Integers,
        memory: Floats,
        blocks: Floats,
        bends: Floats,
    ) -> int:
        """One pass with noise bound to the prefix; settles the few draws that doubles leave doubtful."""
        assert law is not None  # noqa: S101 - that of a higher theta is bound like the first
        noise: Integers = np.empty(blocks.shape[0] - 1, np.int64)
        # Without a law the pass leaves every draw to its caller.
        constants = law.constants if self.key.given is None else NO_FLOATS
        at = settled = 0
        while True:
            rest = noise, chain, first, constants, settled, counters, memory, blocks
            consumed = self._pass(values[at:], *public, *rest, bends[at:])
            if consumed < 0:
                return consumed
            at += consumed
            if counters[3] != adaptive_pass.UNSETTLED:
                counters[3] = 0
                return at
            closed = int(counters[2])
            noise[closed] = binding.resolve(law, self.key, chain, first + closed, int(counters[1]))
            settled, counters[3] = closed + 1, 0

    def revised(self, steps: Sequence[Step], theta_steps: int) -> RevisedStream:
        """All that steps from the first published value on have released."""
        closed = np.concatenate([step.blocks[:-1] for step in steps])
        return RevisedStream(
            exponents=closed[:, 0].copy(),
            totals=closed[:, 1].copy(),
            threshold=theta_steps * self.grid.resolution,
            memory=steps[0].before[: block_lengths.MEMORY],
            shape=self.shape_under(theta_steps),
            season=self.perturber.season,
        )

    def top(self, theta_steps: int) -> float:
        """The largest step that a value counts as; negative: in size."""
        return -float(self.grid.bound_steps) if self.events else float(min(theta_steps, self.grid.bound_steps))

    def steps(self, theta_steps: int, memory: Floats) -> int:
        """The threshold in use, in grid steps: the first one, or where it is now."""
        return self._in_steps(theta_steps, float(memory[block_lengths.UNIT]))

    def highest(self, theta_steps: int, memory: Floats) -> int:
        """The highest threshold so far, in grid steps."""
        return self._in_steps(theta_steps, float(memory[block_lengths.HIGHEST]))

    def _in_steps(self, theta_steps: int, unit: float) -> int:
        if unit == 1.0:
            return theta_steps
        # A quotient of the two, times one of them, need not be the other.
        bound = self.grid.bound_steps
        return bound if unit >= bound / theta_steps else int(unit * theta_steps)

    def clips(self, progress: Progress) -> bool:
        """Whether theta is far below the values, as far as released sums say: most of a mean of clipped values."""
        memory, steps = progress.smoother, progress.theta_steps
        if self.events or not memory.size or self.steps(steps, memory) >= self.grid.bound_steps:
            return False
        unit, level = memory[block_lengths.UNIT], memory[block_lengths.LEVEL]
        deviation = math.sqrt(memory[block_lengths.VARIANCE])
        return bool(level - block_lengths.CERTAIN * deviation > block_lengths.CUT_OFF * unit)

    def block(self, progress: Progress) -> int:
        """Length of the open block, or of the first one."""
        name = block_lengths.FIRST if not progress.smoother.size else block_lengths.EXPONENT
        return 1 << int((progress.smoother if progress.smoother.size else self.shape)[name])

    def fits(self, progress: Progress) -> bool:
        """Whether the memory has its form, and what kernels follow as an index is in range."""
        b, memory = block_lengths, progress.smoother
        if memory.size != self._memory or not np.isfinite(memory).all():
            return False
        if self.perturber.season is not None and memory[seasons.PERIOD] != self.perturber.season:
            return False
        whole = memory[[b.POSITION, b.DECIDED, b.EXPONENT, b.LAST]]
        position, decided, exponent, last = (int(number) for number in whole)
        return bool(
            np.array_equal(whole, [position, decided, exponent, last])
            and 0 <= exponent <= self.shape[b.MOST]
            and 0 <= last <= self.shape[b.MOST]
            and progress.filled < 1 << exponent
            and 0 <= decided <= position
            and 1.0 <= memory[b.UNIT] <= memory[b.HIGHEST] <= MAX_UNIT
        )
