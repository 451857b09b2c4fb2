"""The step of a stream: hold-out, warm-up, publishing and renewed thresholds (ToPS sections 3.2 and 7)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fastdp.data.column import as_floats
from fastdp.errors import AccuracyWarning, warn
from fastdp.kinds import Array, Floats, Json
from fastdp.noise.chain_keys import CHAIN_WORDS
from fastdp.noise.key import Key, repeating
from fastdp.perturbers import Blocks
from fastdp.releases.release import OnlineRelease
from fastdp.releases.revised import RevisedStream
from fastdp.state import codec
from fastdp.state.codec import Packed
from fastdp.state.machine import NOTHING_DRAWN, Column, Machine, Transition, record
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.pipelines import (
    NO_FLOATS,
    AdaptiveBlocks,
    FixedBlocks,
    Progress,
    Step,
    TreeNoise,
    next_chain,
)
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import held_out

Pipeline = FixedBlocks | AdaptiveBlocks
FAR_BELOW = (
    "threshold: {:.3g} is far below the values, as released sums show: their mean is more than three quarters of it "
    "although they are clipped to it; expected a longer hold-out, or a larger threshold that is known publicly "
    "(threshold=50.0), unless values hardly differ"
)
AT_BOUND = (
    "threshold: the hold-out does not show that one below the bound cuts off little, so it is the bound, {:g}, and "
    "noise is at its largest; expected a longer hold-out, fewer zeros, a larger epsilon, or a threshold known "
    "publicly (threshold=50.0)"
)
#: Use of the next value.
Stage = Literal["holdout", "warm-up", "publish", "withhold"]


class StreamState(NamedTuple):
    """State of a stream."""

    #: Counters and sums.
    progress: Progress
    #: Values for the next threshold, as its rule summarizes them.
    chooser: Chooser | None
    #: (int, int64[leaves]) or None. The tree in use; a cache.
    noise: TreeNoise | None = None

    def __repr__(self) -> str:
        # Without the secrets.
        return f"StreamState({self.progress})"


def joined(steps: Sequence[Step]) -> Floats:
    """Published values of all `steps`."""
    if len(steps) == 1:
        return steps[0].published
    return np.concatenate([NO_FLOATS, *(step.published for step in steps)])


@dataclass(frozen=True)
class Schedule(Machine[StreamState]):
    """Transition function of a stream of values, with parameters `composition`."""

    SPLITS: ClassVar[bool] = True
    rule: ClassVar[int] = StreamParameters.rule

    composition: StreamParameters

    def pipeline(self, key: Key) -> Pipeline:
        # Cached for the publisher's only key: building a pipeline would slow short calls.
        made: tuple[Key, Pipeline] | None = self.__dict__.get("_pipeline")
        if made is None or made[0] is not key:
            made = self.__dict__["_pipeline"] = key, self.pipeline_of(key)
        return made[1]

    def pipeline_of(self, key: Key) -> Pipeline:
        c = self.composition
        if isinstance(c.perturber, Blocks):
            return AdaptiveBlocks(
                plan=c.plan,
                grid=c.grid,
                perturber=c.perturber,
                epsilon=c.publish_epsilon,
                key=key,
                max_range=c.max_range,
                warm_up=c.warm_up,
                rises=c.rises,
            )
        withholds = c.renewal is not None and not c.renewal.share
        return FixedBlocks(c.plan, c.grid, c.perturber, c.smoother, c.publish_epsilon, key, withholds)

    def bind(self, key: Key) -> Key:
        return self.composition.noise_key(key)

    def start(self, key: Key) -> StreamState:
        state = StreamState(Progress(), self.composition.threshold.start(self.composition.task))
        return state if self.composition.task.holdout else self._choose(state, key)

    def consumed(self, state: StreamState) -> int:
        return state.progress.n_seen

    def log_messages(self, before: StreamState, after: StreamState) -> Iterator[tuple[int, str]]:
        was, now = before.progress, after.progress
        if now.cycle > was.cycle:
            theta = now.theta_steps * self.composition.grid.resolution
            yield logging.INFO, f"threshold chosen: {theta:g}, {now.n_seen:,} values seen"
        if now.blocks > was.blocks:
            closed = now.blocks - was.blocks
            yield logging.DEBUG, f"{closed:,} blocks closed, {now.blocks:,} in all, {now.n_seen:,} values seen"

    def chooser_for(self, progress: Progress) -> Chooser | None:
        if progress.theta_steps == 0:
            return self.composition.threshold.start(self.composition.task)
        if self.composition.renewal is None:
            return None
        return self.composition.threshold.start(self.composition.renewal_task)

    def stage(self, progress: Progress) -> tuple[Stage, int]:
        c = self.composition
        if progress.theta_steps == 0:
            return "holdout", c.task.holdout - progress.n_seen
        if progress.n_seen < c.holdout:
            return "warm-up", c.holdout - progress.n_seen
        if c.period is None:
            return "publish", sys.maxsize
        left = progress.cycle * c.period - (progress.blocks * c.plan.block + progress.filled)
        if left:
            return "publish", left
        return "withhold", c.renewal_task.holdout - progress.held

    def step(self, state: StreamState, batch: Column, key: Key) -> Transition[StreamState]:
        after, steps = self.advance(state, batch, key)
        emit = partial(self.released, after, steps, batch, key) if batch.finished else partial(joined, steps)
        return record(Transition, (after, emit, None, NOTHING_DRAWN))

    def advance(self, state: StreamState, batch: Column, key: Key) -> tuple[StreamState, list[Step]]:
        """State after a batch, and the steps that publish."""
        values, at = batch.values, 0
        made: Step | None
        steps: list[Step] = []
        while at < values.size:
            stage, room = self.stage(state.progress)
            chunk = values[at : at + room]
            if stage == "publish" or stage == "warm-up":
                state, made = self._publish(state, chunk, at, batch.name, key)
                chooses = self.composition.refines
            else:
                state, made = self._withhold(state, as_floats(chunk), at, batch.name)
                chooses = True
            if made is not None and stage != "warm-up":
                steps.append(made)
            if chooses and chunk.size == room:
                state = self._choose(state, key)
            at += chunk.size
        return state, steps

    def _publish(self, state: StreamState, chunk: Array, at: int, name: str, key: Key) -> tuple[StreamState, Step]:
        pipeline = self.pipeline(key)
        values = as_floats(chunk) if self.composition.refines else chunk
        made = pipeline.publish(state.progress, state.noise, values)
        if made is None:
            values = self.composition.finite(as_floats(chunk), at, name)
            # None of the noise drawn so far was released.
            with repeating():
                made = pipeline.publish(state.progress, state.noise, values)
            assert made is not None  # noqa: S101 - the values are finite now
        chooser = state.chooser
        if self.composition.refines:
            assert chooser is not None  # noqa: S101 - a renewal has one
            chooser = chooser.copy()
            chooser.observe(values)
        return record(StreamState, (made.following, chooser, made.noise)), made

    def _withhold(self, state: StreamState, floats: Floats, at: int, name: str) -> tuple[StreamState, Step | None]:
        progress, made = state.progress, None
        assert state.chooser is not None  # noqa: S101 - a stage that withholds has one
        following = progress._replace(n_seen=progress.n_seen + floats.size)
        if progress.theta_steps:
            period = self.composition.period
            assert period is not None  # noqa: S101 - only renewals withhold later
            resolution = self.composition.grid.resolution
            mean = progress.released_sum / period * resolution
            value = min(max(mean, 0.0), progress.theta_steps * resolution)
            following = following._replace(held=progress.held + floats.size)
            made = Step(following, state.noise, np.full(floats.size, value))
        return StreamState(following, self._counted(state.chooser, floats, at, name), state.noise), made

    def _counted(self, chooser: Chooser, floats: Floats, at: int, name: str) -> Chooser:
        # By name: most choosers take finite values only.
        if hasattr(chooser, "observe_unchecked"):
            twin = chooser.copy()
            if twin.observe_unchecked(floats):  # type: ignore[attr-defined]
                return twin
        floats, twin = self.composition.finite(floats, at, name), chooser.copy()
        twin.observe(floats)
        return twin

    def _choose(self, state: StreamState, key: Key) -> StreamState:
        chooser = state.chooser
        assert chooser is not None  # noqa: S101 - a stage that ends in a choice has one
        cycle = state.progress.cycle
        secret = key.derive("threshold", cycle) if cycle else key
        theta = chooser.choose(held_out(secret, chooser.pack()))
        if getattr(chooser, "unresolved", False):
            warn(AT_BOUND.format(theta), AccuracyWarning)
        progress = self.pipeline(key).open(state.progress, theta)
        return StreamState(progress, self.chooser_for(progress), state.noise)

    # Releases of full arrays.

    def release(self, values: Array, name: str, key: Key, *, warns: bool = False) -> OnlineRelease:
        batch = Column(values, name)
        return self.released(*self.advance(self.start(key), batch, key), batch, key, warns=warns)

    def released(
        self, after: StreamState, made: Sequence[Step], batch: Column, key: Key, *, warns: bool = True
    ) -> OnlineRelease:
        """Release a full array, `batch`, after its step; if it `warns`, also of a theta far below the values."""
        c, progress, pipeline, published = self.composition, after.progress, self.pipeline(key), joined(made)
        steps, nodes = progress.theta_steps, None
        revisions: tuple[RevisedStream, ...] = ()
        if isinstance(pipeline, AdaptiveBlocks):
            revisions = (pipeline.revised(made, steps),)
            if warns and pipeline.clips(progress):
                theta = pipeline.steps(steps, progress.memory) * c.grid.resolution
                warn(FAR_BELOW.format(theta), AccuracyWarning)
            steps = pipeline.highest(steps, progress.memory)
        elif c.perturber.released_nodes:
            finite = c.finite(as_floats(batch.values[c.holdout :]), c.holdout, batch.name)
            nodes = pipeline.released_nodes(steps, finite)
        published.flags.writeable = False
        return OnlineRelease(
            published,
            c.holdout,
            np.array([steps * c.grid.resolution]),
            c.guarantee(simulated=key.simulated),
            c.plan.block,
            nodes,
            revisions,
            c.noise_and_fraction_above,
            noise_fingerprint=None if key.simulated else key.fingerprint(),
        )

    # State files.

    def describe(self) -> Json:
        return self.composition.describe()

    @classmethod
    def from_description(cls, description: Json, **own: Any) -> Schedule:
        return cls(StreamParameters.from_description(description))

    def pack(self, state: StreamState) -> Packed:
        progress, chooser = state.progress, state.chooser
        packed = np.empty(0, np.int64) if chooser is None else chooser.pack()
        return {
            **progress._asdict(),
            **{name: codec.pack(getattr(progress, name).view(np.float64), "<f8") for name in _FLOATS},
            "chain": codec.pack(progress.chain, "<u8"),
            "holdout": codec.pack(packed, "<i8"),
        }

    def unpack(self, packed: Packed, key: Key) -> StreamState:
        numbers = {name: codec.restore(kind, packed[name]) for name, kind in _FIELDS.items()}
        floats: Json = {name: codec.unpack(packed[name], "<f8").astype(np.float64) for name in _FLOATS}
        if numbers["theta_steps"] > 0:
            floats["memory"] = self.pipeline(key).remembered(floats["memory"])
        chain = codec.unpack(packed["chain"], "<u8").astype(np.uint64)
        progress = Progress(**numbers, **floats, chain=chain)
        self._check(progress, key)
        held = codec.unpack(packed["holdout"], "<i8").astype(np.int64)
        chooser = self.chooser_for(progress)
        if held.size:
            if chooser is None:
                raise ValueError("values held for no threshold")
            chooser.unpack(held)
        return StreamState(progress, chooser)

    def _check(self, progress: Progress, key: Key) -> None:
        c, counts = self.composition, (progress.n_seen, progress.cycle, progress.held, progress.blocks)
        top = max(c.grid.bound_steps, c.grid.ceiling_steps)
        in_range = min(counts) >= 0 and progress.filled >= 0 and 0 <= progress.theta_steps <= top
        if progress.theta_steps == 0:
            arrays = progress.smoother, progress.correlated, progress.memory, progress.chain
            in_range &= progress.n_seen < c.task.holdout and not any(array.size for array in arrays)
        elif in_range:
            bound = self.pipeline(key).distributions[progress.theta_steps] is not None
            in_range = self.pipeline(key).fits(progress)
            in_range &= progress.chain.size == (CHAIN_WORDS if bound else 0) and self.stage(progress)[1] > 0
        if not in_range:
            raise ValueError("a position out of range")

    def rekeyed(self, state: StreamState, key: Key) -> StreamState:
        progress, c = state.progress, self.composition
        if progress.theta_steps:
            chain = next_chain(c.perturber, key, progress.theta_steps, c.publish_epsilon, progress.chain)
            progress = progress._replace(chain=chain)
        return StreamState(progress, None if state.chooser is None else state.chooser.copy())


_FLOATS = ("smoother", "correlated", "memory")
_FIELDS: Json = {
    name: float if name == "prediction" else int for name in Progress._fields if name not in (*_FLOATS, "chain")
}
