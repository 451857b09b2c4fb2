"""The course of a publisher: which values choose a threshold, which are published under it, and what follows.

Source: ToPS section 3.2 (hold-out, then stream) and section 7 (thresholds that are renewed).
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.column import as_floats, pieces
from fastdp.perturbers import Blocks
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import CHAIN_WORDS
from fastdp.state import codec, persistence
from fastdp.systems.stream.adaptive_blocks import AdaptiveBlocks, AdaptiveStep
from fastdp.systems.stream.fixed_blocks import FixedBlocks, Progress, Step, TreeNoise
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import held_out

Floats = NDArray[np.float64]
#: Finite values in place of those given at a position of the chunk, or an error.
Mend = Callable[[Floats, int], Floats]


class Stage(Enum):
    """What the next value is used for."""

    HOLDOUT = auto()
    WARM_UP = auto()
    PUBLISH = auto()
    WITHHOLD = auto()


@dataclass(frozen=True)
class FillIn:
    """What leaves in the place of withheld values: a constant made of released values."""

    value: float
    count: int

    def emit(self, out: Floats) -> None:
        """Write what leaves into ``out``."""
        out[:] = self.value


#: What a step prepares to leave: it has a ``count`` and an ``emit``.
Output = Step | AdaptiveStep | FillIn


@dataclass(frozen=True)
class StreamState:
    """Where a publisher stands; replaced as a whole.

    Attributes
    ----------
    progress : Progress
        The numbers.
    chooser : Chooser or None
        Collects values for the next threshold, if there will be one.
    noise : (int, int64[leaves]) or None
        The tree in use; a cache.
    """

    progress: Progress
    chooser: Chooser | None
    noise: TreeNoise | None = None

    def forked(self) -> StreamState:
        """The same place, with a chooser of its own."""
        return replace(self, chooser=None if self.chooser is None else self.chooser.copy())


@dataclass
class Advance:
    """What further values lead to, before anything leaves or is remembered.

    Attributes
    ----------
    standing : StreamState
        Where they lead; its chooser has yet to see ``pending``.
    pending : list of float64 arrays
        Values for that chooser.  It is not copied for them, which would cost a pass over the hold-out a chunk.
    steps : list of Step, AdaptiveStep or FillIn
        What will leave, in order.
    """

    standing: StreamState
    pending: list[Floats] = field(default_factory=list)
    steps: list[Output] = field(default_factory=list)

    def observe(self) -> None:
        """Show the chooser what is pending, in place."""
        for values in self.pending:
            assert self.standing.chooser is not None  # noqa: S101 - only a stage with a chooser leaves any
            self.standing.chooser.observe(values)
        self.pending.clear()

    def settled(self) -> StreamState:
        """The standing with a chooser of its own that has seen everything."""
        if self.pending:
            self.standing = self.standing.forked()
            self.observe()
        return self.standing


@dataclass(frozen=True)
class Schedule:
    """Pure functions of the public composition and the key.

    Attributes
    ----------
    composition, key
        As given to the publisher.
    """

    composition: StreamParameters
    key: Key

    @cached_property
    def pipeline(self) -> FixedBlocks | AdaptiveBlocks:
        """The parts between clipped values and published ones."""
        c = self.composition
        if isinstance(c.perturber, Blocks):
            return AdaptiveBlocks(c.plan, c.grid, c.perturber, c.publish_epsilon, self.key, c.max_range, c.warm_up)
        withholds = c.renewal is not None and not c.renewal.share
        return FixedBlocks(c.plan, c.grid, c.perturber, c.smoother, c.publish_epsilon, self.key, withholds)

    def begin(self) -> StreamState:
        """Before the first value."""
        standing = StreamState(Progress(), self.composition.threshold.start(self.composition.task))
        if self.composition.task.holdout:
            return standing
        return self._choose(Advance(standing)).standing

    def chooser_for(self, progress: Progress) -> Chooser | None:
        """An empty chooser for the threshold that comes after this progress."""
        if progress.theta_steps == 0:
            return self.composition.threshold.start(self.composition.task)
        if self.composition.renewal is None:
            return None
        return self.composition.threshold.start(self.composition.renewal_task)

    def stage(self, progress: Progress) -> tuple[Stage, int]:
        """What the next value is used for, and how many values will be."""
        c = self.composition
        if progress.theta_steps == 0:
            return Stage.HOLDOUT, c.task.holdout - progress.n_seen
        if progress.n_seen < c.task.holdout + c.warm_up:
            return Stage.WARM_UP, c.task.holdout + c.warm_up - progress.n_seen
        if c.period is None:
            return Stage.PUBLISH, sys.maxsize
        left = progress.cycle * c.period - self.pipeline.consumed(progress)
        if left:
            return Stage.PUBLISH, left
        return Stage.WITHHOLD, c.renewal_task.holdout - progress.held

    def follow(self, standing: StreamState, values: NDArray[Any], mend: Mend) -> Advance:
        """Where these values lead.

        Parameters
        ----------
        standing : StreamState
            Where the publisher stands; not changed.
        values : any real dtype [n]
            The chunk.
        mend : callable
            Called with values that are not all finite, and their position in the chunk.
        """
        journey, pipeline = Advance(standing), self.pipeline
        refines = self.composition.renewal is not None and self.composition.renewal.share > 0.0
        at = 0
        while at < values.size:
            stage, room = self.stage(journey.standing.progress)
            part = values[at : at + room]
            if stage in (Stage.PUBLISH, Stage.WARM_UP):
                for begin, floats in pieces(part):
                    finite = self._publish(journey, pipeline, floats, at + begin, mend)
                    if stage is Stage.WARM_UP:
                        journey.steps.pop()
                    if refines:
                        journey.pending.append(finite)
                complete = refines and part.size == room
            else:
                self._withhold(journey, as_floats(part), at, mend)
                complete = part.size == room
            if complete:
                journey = self._choose(journey)
            at += part.size
        return journey

    def _publish(
        self, journey: Advance, pipeline: FixedBlocks | AdaptiveBlocks, floats: Floats, at: int, mend: Mend
    ) -> Floats:
        standing = journey.standing
        step = pipeline.prepare(standing.progress, standing.noise, floats)
        if step is None:
            floats = mend(floats, at)
            step = pipeline.prepare(standing.progress, standing.noise, floats)
        assert step is not None  # noqa: S101 - mended values are finite
        journey.standing = StreamState(step.following, standing.chooser, step.noise)
        journey.steps.append(step)
        return floats

    def _withhold(self, journey: Advance, floats: Floats, at: int, mend: Mend) -> None:
        """Values of a hold-out; of a later one, something is published in their place."""
        progress = journey.standing.progress
        journey.pending.append(floats if np.isfinite(floats).all() else mend(floats, at))
        following = replace(progress, n_seen=progress.n_seen + floats.size)
        if progress.theta_steps:
            period = self.composition.period
            assert period is not None  # noqa: S101 - only renewals withhold later
            resolution = self.composition.grid.resolution
            mean = progress.released / period * resolution
            value = min(max(mean, 0.0), progress.theta_steps * resolution)
            journey.steps.append(FillIn(value, floats.size))
            following = replace(following, held=progress.held + floats.size)
        journey.standing = replace(journey.standing, progress=following)

    def _choose(self, journey: Advance) -> Advance:
        """The journey goes on under the threshold that its values choose."""
        settled = journey.settled()
        assert settled.chooser is not None  # noqa: S101 - a stage that ends in a choice has one
        cycle = settled.progress.cycle
        secret = self.key.derive("threshold", cycle) if cycle else self.key
        theta = settled.chooser.choose(held_out(secret, settled.chooser.pack()))
        progress = self.pipeline.open(settled.progress, theta)
        return Advance(StreamState(progress, self.chooser_for(progress), settled.noise), [], journey.steps)


def position(standing: StreamState) -> persistence.Position:
    """A standing as a state file holds it, with the summary of the values held for the next threshold."""
    progress, chooser = standing.progress, standing.chooser
    packed = np.empty(0, np.int64) if chooser is None else chooser.pack()
    fields = {field.name: getattr(progress, field.name) for field in dataclasses.fields(progress)}
    return {
        **fields,
        "smoother": codec.pack(progress.smoother, "<f8"),
        "chain": codec.pack(progress.chain, "<u8"),
        "holdout": codec.pack(packed, "<i8"),
    }


def restore(saved: persistence.Position, course: Schedule) -> StreamState:
    """The place saved, with the summary of the values held put into a fresh chooser."""
    # The others may be younger than the file.
    fields = {**saved, "n_seen": saved["n_seen"]}
    packed = codec.unpack(fields.pop("holdout"), "<i8").astype(np.int64)
    fields["smoother"] = codec.unpack(fields["smoother"], "<f8").astype(np.float64)
    if "chain" in fields:
        fields["chain"] = codec.unpack(fields["chain"], "<u8").astype(np.uint64)
        if fields["chain"].size not in (0, CHAIN_WORDS):
            raise ValueError("a chain of another length")
    progress = Progress(**fields)
    if not (_is_typed(progress) and _is_place(progress, course)):
        raise ValueError("a position out of range")
    chooser = course.chooser_for(progress)
    if packed.size:
        if chooser is None:
            raise ValueError("values held for no threshold")
        chooser.unpack(packed)
    return StreamState(progress, chooser)


def _is_typed(progress: Progress) -> bool:
    """Whether the numbers are whole where they must be, and not negative."""
    counts = (progress.n_seen, progress.cycle, progress.held, progress.blocks, progress.filled, progress.theta_steps)
    whole = all(type(number) is int for number in (*counts, progress.released, progress.open_sum))
    return whole and min(counts) >= 0 and type(progress.prediction) is float and math.isfinite(progress.prediction)


def _is_place(progress: Progress, course: Schedule) -> bool:
    """Whether a stream can have got there."""
    c = course.composition
    if progress.theta_steps == 0:
        counts = (progress.cycle, progress.held, progress.blocks, progress.filled)
        others = (*counts, progress.released, progress.open_sum, progress.smoother.size)
        return progress.n_seen < c.task.holdout and not any(others)
    # First whether the memory has its form: where it does not, nothing can be read from it.
    if not course.pipeline.is_place(progress):
        return False
    published = course.pipeline.consumed(progress)
    later = 0 if c.renewal is None or c.renewal.share else c.renewal_task.holdout
    if progress.n_seen != c.task.holdout + published + (progress.cycle - 1) * later + progress.held:
        return False
    if c.period is None:
        on_course = progress.cycle == 1 and progress.held == 0
    else:
        left = progress.cycle * c.period - published
        between = left == 0 and progress.held < later
        on_course = progress.cycle >= 1 and (between or (0 < left <= c.period and progress.held == 0))
    return (
        on_course
        and progress.theta_steps <= max(c.grid.bound_steps, c.grid.ceiling_steps)
        and 0 <= progress.open_sum <= progress.filled * c.grid.bound_steps
        # Last: a theta out of range has no law.
        and bool(progress.chain.size) is (course.pipeline.laws[progress.theta_steps] is not None)
    )
