"""The step of a publisher whose block lengths follow released sums: where blocks close and get their noise.

A pure function from (progress, values) to (progress, published values); kernels choose the lengths.
Source: ``docs/adaptive.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastdp.integer_grid import EventGrid, Grid
from fastdp.kinds import Floats, Integers, Records
from fastdp.noise import binding
from fastdp.noise.key import ENABLED, Key
from fastdp.perturbers import Blocks, HierarchyShape
from fastdp.perturbers.base import BoundDistributions
from fastdp.releases.revised import RevisedStream
from fastdp.state.machine import record
from fastdp.streams.stream_state import NO_CHAIN, NO_FLOATS, Progress, Published, Step, TreeNoise, next_chain
from fastdp_kernels.streams import adaptive_pass, block_lengths, seasons

#: Largest rise of theta.
MAX_UNIT = 2.0**64
#: Prior before any release: values of theta / 2, with a deviation of theta / 2.
FIRST_LEVEL = 0.5
FIRST_VARIANCE = 0.25
#: Prior for events: a level of 0, with a variance of so many times that of a first sum.
FIRST_EVENTS = 1e6


@dataclass(frozen=True)
class AdaptiveBlocks:
    """Turns clipped values into noisy block sums, and these into predictions and lengths of later blocks.

    Attributes
    ----------
    plan, grid, perturber, epsilon, key
        As of :class:`fastdp.streams.fixed_blocks.FixedBlocks`.
    max_range, warm_up : int
        r, and the number of values released as blocks before anything is published.
    rises : bool
        True if theta follows a stream that outgrows its hold-out.
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
        """True if values are counts of events, without a bound."""
        return isinstance(self.grid, EventGrid)

    @cached_property
    def shape(self) -> Records:
        """Public parameters of the kernels, SHAPE[1]."""
        return self.perturber.shape(self.epsilon, self.max_range, self.warm_up, events=self.events)

    @property
    def _memory(self) -> Any:
        """Record type of the kernels' memory, with seasonal fields if there is a season."""
        return block_lengths.MEMORY if self.perturber.season is None else seasons.SEASON

    @cached_property
    def lengths(self) -> Floats | None:
        """Query lengths for counts of events, float64; None otherwise."""
        return block_lengths.lengths_of_events(self.shape)

    @cached_property
    def _under(self) -> dict[int, tuple[Records, Records]]:
        """Results of :meth:`under`, by threshold in grid steps."""
        return {}

    def under(self, theta_steps: int) -> tuple[Records, Records]:
        """Public parameters of the pass and of block lengths, under a first threshold in grid steps."""
        # Cached: short calls would be slower otherwise.
        made = self._under.get(theta_steps)
        if made is None:
            shape, resolution = self.shape.copy(), self.grid.resolution
            if self.rises:
                shape["top_unit"] = max(1.0, self.grid.bound_steps / theta_steps)
            numbers = 1.0 / resolution, self.top(theta_steps), theta_steps, theta_steps * resolution
            public = np.array([(*numbers, self.grid.bound_steps)], adaptive_pass.PUBLIC)
            made = self._under[theta_steps] = public, shape
        return made

    @cached_property
    def laws(self) -> BoundDistributions:
        """Distribution of prefix-bound noise, by threshold in grid steps."""
        return BoundDistributions(self.perturber, self.key, self.epsilon)

    def open(self, progress: Progress, theta: float) -> Progress:
        """Progress at the start of publishing with threshold `theta`."""
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
        rises = self.rises and self.laws[steps] is not None
        block_lengths.start_memory(level, variance, max(first, 0), rises, self.shape, plain_of(memory))
        if self.perturber.season is not None:
            memory["period"] = self.perturber.season
        chain = next_chain(self.perturber, self.key, steps, self.epsilon, progress.chain)
        return progress._replace(cycle=progress.cycle + 1, theta_steps=steps, smoother=memory, chain=chain)

    def prepare(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Step | None:
        """The step of `values` after the hold-out; None if one of them is NaN or infinite."""
        theta_steps, leaves = progress.theta_steps, self.plan.leaves
        bound = self.laws[theta_steps] is not None
        public, shape = self.under(theta_steps)
        public = public.copy()
        theta = float(public["theta"][0])
        counters = np.array([(progress.filled, progress.open_sum, 0, 0, 0, 0)], adaptive_pass.COUNTERS)
        memory, chain, closed, at = progress.smoother.copy(), progress.chain.copy(), progress.blocks, 0
        plain = plain_of(memory)
        parts: list[Records] = []
        bends = None if self.perturber.season is None else np.empty(values.size)
        done = False
        while not done:
            # The current theta, if it has risen.
            steps = self.steps(theta_steps, memory)
            public["top"] = self.top(steps)
            law = self.laws[steps]
            if bound:
                drawn: Integers = np.empty(min(values.size - at, leaves), np.int64)
                # Without a distribution the pass leaves every draw to its caller.
                own = law.constants if law is not None and self.key.given is None else NO_FLOATS
                bind = chain, own
            else:
                batch, used = divmod(closed, leaves)
                if noise is None or noise[0] != batch:
                    noise = batch, self.perturber.leaf_noise(self.plan, steps, self.epsilon, self.key, batch)
                drawn = noise[1][used:]
                bind = NO_CHAIN, NO_FLOATS
            part = np.empty(drawn.size + 1, adaptive_pass.BLOCK)
            counters["blocks"], counters["given"] = closed, 0
            while True:
                given = values[at:], public, shape, self.lengths, drawn, *bind, counters, plain, part
                waves = (None, None) if bends is None else (memory, bends[at:])
                consumed = adaptive_pass.sum_bound(*given, *waves)
                if consumed < 0:
                    return None
                at += consumed
                _, open_sum, closing, stopped, _, _ = counters[0].tolist()
                counters["stopped"] = 0
                if stopped != adaptive_pass.UNSETTLED:
                    break
                # The few draws that need exact arithmetic.
                assert law is not None  # noqa: S101 - that of a higher theta is bound like the first
                drawn[closing] = binding.resolve(law, self.key, chain, closed + closing, open_sum)
                counters["given"] = closing + 1
            closed += closing
            done = at == values.size
            counters["closed"] = 0
            risen = self.steps(theta_steps, memory)
            if bound and risen != steps:
                # No random word is used with two scales, also where another version lets theta rise elsewhere.
                chain = next_chain(self.perturber, self.key, risen, self.epsilon, chain)
            # A block left open by a batch is the first one of the next.
            parts.append(part[: closing + done])
        if ENABLED and bound:
            binding.record(self.key, progress.chain, chain, closed - progress.blocks)
        filled, open_sum, *_ = counters[0].tolist()
        # By position: names cost more than the kernel of a short call.
        following = Progress(
            *(progress.n_seen + values.size, progress.cycle, progress.held, progress.released, theta_steps, closed),
            *(filled, open_sum, float(plain["prediction"][0]) * theta, memory, chain),
        )
        blocks = parts[0] if len(parts) == 1 else np.concatenate(parts)
        emit = partial(self._emit, blocks, progress.filled, theta, bends)
        return Step(following, noise, values.size, write=emit, blocks=blocks, before=plain_of(progress.smoother))

    def _emit(self, blocks: Records, filled: int, theta: float, bends: Floats | None, out: Floats) -> None:
        """Write the predictions of `blocks` into `out`, plus the seasonal terms `bends`."""
        spikes = self.perturber.closing == "spike"
        adaptive_pass.emit_adaptive(blocks, filled, theta, spikes, self.events, out)
        if bends is not None:
            out += theta * bends

    def in_one_pass(self, theta_steps: int) -> bool:
        """True if one kernel call can publish values that leave the block open: there is no season."""
        # In a season predictions differ within a block.
        return self.perturber.season is None

    def public(self, theta_steps: int) -> Floats:
        """Public parameters of the one pass, float64."""
        return self.under(theta_steps)[0].view(np.float64)

    def publish(
        self, progress: Progress, noise: TreeNoise | None, values: Floats, published: Floats, public: Floats
    ) -> Published:
        """Publish values that leave the block open, so that nothing is released and the memory stays the same.

        Returns no progress if they fill the block, or if one of them is NaN or infinite.
        """
        n_seen, cycle, held, released, steps, blocks, filled, total, prediction, memory, chain = progress
        total, prediction = adaptive_pass.publish_open(values, public, filled, total, memory, published)
        if prediction != prediction:  # NaN
            return None, noise
        size = values.size
        now = n_seen + size, cycle, held, released, steps, blocks, filled + size, total, prediction, memory, chain
        return record(Progress, now), noise

    def revised(self, steps: Sequence[Step], theta_steps: int) -> RevisedStream:
        """Everything that `steps`, from the first published value on, have released."""
        closed = np.concatenate([step.blocks[:-1] for step in steps])
        return RevisedStream(
            exponents=closed["exponent"].copy(),
            totals=closed["released"].copy(),
            threshold=theta_steps * self.grid.resolution,
            memory=steps[0].before,
            shape=self.under(theta_steps)[1],
            season=self.perturber.season,
        )

    def top(self, theta_steps: int) -> float:
        """Largest value after clipping, in grid steps; negative if both signs are allowed."""
        return -float(self.grid.bound_steps) if self.events else float(min(theta_steps, self.grid.bound_steps))

    def steps(self, theta_steps: int, memory: Records) -> int:
        """Threshold in use, in grid steps."""
        return self._in_steps(theta_steps, float(plain_of(memory)["unit"][0]))

    def highest(self, theta_steps: int, memory: Records) -> int:
        """Highest threshold so far, in grid steps."""
        return self._in_steps(theta_steps, float(plain_of(memory)["highest"][0]))

    def _in_steps(self, theta_steps: int, unit: float) -> int:
        """The threshold `unit` * `theta_steps` in whole grid steps, at most the bound."""
        if unit == 1.0:
            return theta_steps
        # In floats, unit * theta_steps may miss the bound by rounding.
        bound = self.grid.bound_steps
        return bound if unit >= bound / theta_steps else int(unit * theta_steps)

    def clips(self, progress: Progress) -> bool:
        """True if released sums show that theta is far below the values."""
        memory, steps = progress.smoother, progress.theta_steps
        if self.events or not memory.size or self.steps(steps, memory) >= self.grid.bound_steps:
            return False
        plain = plain_of(memory)[0]
        certain = plain["level"] - block_lengths.CERTAIN * math.sqrt(plain["variance"])
        return bool(certain > block_lengths.CUT_OFF * plain["unit"])

    def block(self, progress: Progress) -> int:
        """Length of the open block, or of the first one."""
        memory = progress.smoother
        return 1 << int(plain_of(memory)["exponent"][0] if memory.size else self.shape["first"][0])

    def remembered(self, numbers: Floats) -> Records:
        """The kernels' memory from the numbers of a state file; ValueError if their count is wrong."""
        if numbers.nbytes != self._memory.itemsize:
            raise ValueError("a memory out of range")
        return numbers.view(self._memory)

    def fits(self, progress: Progress) -> bool:
        """True if a state's memory is finite and its indices are in range for the kernels."""
        memory: Records = progress.smoother
        if memory.size != 1 or not np.isfinite(memory.view(np.float64)).all():
            return False
        if self.perturber.season is not None and memory["period"][0] != self.perturber.season:
            return False
        plain, most = plain_of(memory)[0], self.shape["most"][0]
        whole = [float(plain[name]) for name in ("position", "decided", "exponent", "last")]
        position, decided, exponent, last = (int(number) for number in whole)
        return bool(
            whole == [position, decided, exponent, last]
            and 0 <= exponent <= most
            and 0 <= last <= most
            and progress.filled < 1 << exponent
            and 0 <= decided <= position
            and 1.0 <= plain["unit"] <= plain["highest"] <= MAX_UNIT
        )


def plain_of(memory: Records) -> Records:
    """The memory of block lengths, without seasonal fields."""
    return memory if memory.dtype == block_lengths.MEMORY else memory["plain"]
