"""The step of a stream: hold-out, warm-up, publishing and renewed thresholds (ToPS sections 3.2 and 7)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np

from fastdp.data.column import FLOAT64, INT64, as_floats, convert, is_in_order, pieces, read_only
from fastdp.errors import AccuracyWarning, StateError, warn
from fastdp.kinds import Array, Floats, Json
from fastdp.noise.chain_keys import CHAIN_WORDS
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks
from fastdp.releases.release import Release
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
    Published,
    Step,
    TreeNoise,
    next_chain,
)
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import held_out

Pipeline = FixedBlocks | AdaptiveBlocks
#: Batches of at least LONG values are published while they are read, if the output is new memory; batches of at most
#: MAX_SHORT in one pass, copied afterwards.
LONG, MAX_SHORT = 1024, 8192
#: Bits of an array's flags: C-contiguous, aligned, writable.
IN_ORDER = 0x0501
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


#: Marks pending values of which a chooser may have seen some.
UNKNOWN = np.empty(0)


class StreamState(NamedTuple):
    """State of a stream."""

    #: Counters and sums.
    progress: Progress
    #: Collects values for the next threshold; it has not seen ``pending``.
    chooser: Chooser | None
    #: (int, int64[leaves]) or None. The tree in use; a cache.
    noise: TreeNoise | None = None
    #: Values for the chooser, whose copy would cost a pass over the hold-out a chunk. ``UNKNOWN`` after an interrupt.
    pending: Sequence[Floats] = ()

    def __repr__(self) -> str:
        # Without the secrets.
        return f"StreamState({self.progress})"

    def observe(self) -> None:
        pending = cast("list[Floats]", self.pending)
        values = pending.copy()
        pending[:] = [UNKNOWN]
        for chunk in values:
            cast("Chooser", self.chooser).observe(chunk)
        pending.clear()

    def check(self) -> None:
        if self.pending and self.pending[0] is UNKNOWN:
            raise StateError(
                "an earlier call was interrupted while it read the hold-out: expected a new publisher (one that "
                "keeps a file goes on after an interrupt)"
            )

    def chooser_after_pending(self) -> Chooser | None:
        """Return the chooser after the pending values, a copy if there are any."""
        if self.chooser is None or not self.pending:
            return self.chooser
        self.check()
        twin = self.chooser.copy()
        for chunk in self.pending:
            twin.observe(chunk)
        return twin


@dataclass(frozen=True)
class Emission:
    """Output of a batch: ``size`` values of the ``steps``, written when it is called, once they are recorded."""

    steps: list[Step]
    size: int

    def __call__(self, out: Floats | None = None) -> Floats:
        if out is None and len(self.steps) == 1 and self.steps[0].published is not None:
            return self.steps[0].published
        target: Floats = np.empty(self.size) if out is None else out[: self.size]
        begin = 0
        for step in self.steps:
            step.emit(target[begin : begin + step.size])
            begin += step.size
        return target


def copied_into(published: Floats, out: Floats | None = None) -> Floats:
    """Return `published`, or its copy in `out`."""
    if out is None:
        return published
    target = out[: published.size]
    target[:] = published
    return target


def fill_in(value: float, out: Floats) -> None:
    """Publish the constant `value` in place of withheld values."""
    out[:] = value


@dataclass(frozen=True)
class Schedule(Machine[StreamState]):
    """Transition function of a stream of values, with parameters `composition`."""

    SPLITS: ClassVar[bool] = True
    rule: ClassVar[int] = StreamParameters.rule

    composition: StreamParameters
    #: Key, first threshold, one-pass function for short batches (None without one), its public parameters, and the
    #: first value that it may process.
    _short: ClassVar[tuple[Key, int, Callable[..., Published] | None, Floats, int] | None] = None

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

    def _remember_short(
        self, key: Key, theta_steps: int
    ) -> tuple[Key, int, Callable[..., Published] | None, Floats, int]:
        publish, public = None, NO_FLOATS
        pipeline = self.pipeline(key) if theta_steps and self.composition.renewal is None else None
        if pipeline is not None and pipeline.in_one_pass(theta_steps):
            publish, public = pipeline.publish, pipeline.public(theta_steps)
        # The first call must return its steps for a release of all values.
        made = key, theta_steps, publish, public, max(1, self.composition.holdout)
        object.__setattr__(self, "_short", made)
        return made

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
        values, progress = batch.values, state.progress
        if values.size <= MAX_SHORT and values.dtype is FLOAT64:
            short = self._short
            # One publisher has one key and one first threshold.
            if short is None or short[0] is not key or short[1] != progress.theta_steps:
                short = self._remember_short(key, progress.theta_steps)
            _, _, publish, public, begin = short
            if publish is not None and progress.n_seen >= begin:
                if values.flags.num & IN_ORDER != IN_ORDER or type(values) is not np.ndarray:
                    values = np.array(values)
                # Copying a short output costs less than a second call.
                published = np.empty(values.size)
                following, noise = publish(progress, state.noise, values, published, public)
                if following is not None:
                    after = record(StreamState, (following, state.chooser, noise, ()))
                    return record(Transition, (after, partial(copied_into, published), None, NOTHING_DRAWN))
                # The same words are not drawn again.
                state = StreamState(progress, state.chooser, noise, state.pending)
        pipeline = self.pipeline(key)
        refines = self.composition.renewal is not None and self.composition.renewal.share > 0.0
        if state.pending:
            state.check()
        steps: list[Step] = []
        at = 0
        while at < values.size:
            stage, room = self.stage(state.progress)
            chunk = values[at : at + room]
            if stage in ("publish", "warm-up"):
                new, readable = self._in_new_memory(batch, chunk, pipeline, state.progress, refines=refines)
                for begin, floats in readable:
                    if new is None:
                        made = pipeline.prepare(state.progress, state.noise, as_floats(floats))
                    else:
                        assert isinstance(pipeline, FixedBlocks)  # noqa: S101 - others get no new memory
                        out = new[begin : begin + floats.size]
                        made = pipeline.publish_long(state.progress, state.noise, floats, out)
                    if made is None:
                        floats = as_floats(chunk[begin : begin + floats.size])
                        floats = self.composition.finite(floats, at + begin, batch.name)
                        made = pipeline.prepare(state.progress, state.noise, floats)
                    assert made is not None  # noqa: S101 - the values are finite now
                    # A copy: the caller's array may change before the chooser reads it.
                    pending = [*state.pending, floats.copy()] if refines else state.pending
                    state = StreamState(made.following, state.chooser, made.noise, pending)
                    if stage == "publish" and new is None:
                        steps.append(made)
                if new is not None:
                    steps.append(Step(state.progress, state.noise, new.size, new))
                complete = refines and chunk.size == room
            else:
                complete = chunk.size == room
                floats = as_floats(chunk)
                # A copy, unless the chooser reads them now: the caller's array may change later.
                state = self._withhold(state, floats, at, batch.name, steps, copied=not complete)
            if complete:
                state = self._choose(state, key)
            at += chunk.size
        size = steps[0].size if len(steps) == 1 else sum([step.size for step in steps])
        finish = state.observe if state.pending else None
        return record(Transition, (state, Emission(steps, size), finish, NOTHING_DRAWN))

    def _in_new_memory(
        self, batch: Column, chunk: Array, pipeline: Pipeline, progress: Progress, *, refines: bool
    ) -> tuple[Floats | None, Iterable[tuple[int, Array]]]:
        new_memory = chunk.size >= LONG and batch.new_memory and self.composition.nonfinite == "raise"
        if not new_memory or isinstance(pipeline, AdaptiveBlocks) or not pipeline.is_long_pass(progress.theta_steps):
            return None, pieces(chunk)
        new = np.empty(chunk.size)
        if not refines and is_in_order(chunk, INT64):
            return new, [(0, read_only(chunk))]
        if refines or chunk.dtype == FLOAT64 or pipeline.every_value:
            return new, pieces(chunk)
        # In place: a block is read before it is written.
        convert(chunk, new)
        return new, [(0, as_floats(new))]

    def _withhold(
        self, state: StreamState, floats: Floats, at: int, name: str, steps: list[Step], *, copied: bool
    ) -> StreamState:
        progress = state.progress
        chooser = None if copied else _counted(state, floats)
        finite = floats if chooser is not None else self.composition.finite(floats, at, name)
        following = progress._replace(n_seen=progress.n_seen + floats.size)
        if progress.theta_steps:
            period = self.composition.period
            assert period is not None  # noqa: S101 - only renewals withhold later
            resolution = self.composition.grid.resolution
            mean = progress.released / period * resolution
            value = min(max(mean, 0.0), progress.theta_steps * resolution)
            steps.append(Step(progress, state.noise, floats.size, write=partial(fill_in, value)))
            following = following._replace(held=progress.held + floats.size)
        if chooser is not None:
            return StreamState(following, chooser, state.noise)
        return StreamState(
            following, state.chooser, state.noise, [*state.pending, finite.copy() if copied else finite]
        )

    def _choose(self, state: StreamState, key: Key) -> StreamState:
        chooser = state.chooser_after_pending()
        assert chooser is not None  # noqa: S101 - a stage that ends in a choice has one
        cycle = state.progress.cycle
        secret = key.derive("threshold", cycle) if cycle else key
        theta = chooser.choose(held_out(secret, chooser.pack()))
        if getattr(chooser, "unresolved", False):
            warn(AT_BOUND.format(theta), AccuracyWarning)
        progress = self.pipeline(key).open(state.progress, theta)
        return StreamState(progress, self.chooser_for(progress), state.noise)

    # Releases of full arrays.

    def release(self, values: Array, name: str, key: Key, *, warns: bool = False) -> Release:
        made = self.step(self.start(key), Column(values, name, new_memory=True), key)
        return self.released(made.state, cast("Emission", made.emit), Column(values, name), key, warns=warns)

    def released(
        self, after: StreamState, emission: Emission, batch: Column, key: Key, *, warns: bool = True
    ) -> Release:
        """Release a full array, `batch`, after its step; if it `warns`, also of a theta far below the values."""
        c, progress, pipeline, published = self.composition, after.progress, self.pipeline(key), emission()
        steps, nodes = progress.theta_steps, None
        revisions: tuple[RevisedStream, ...] = ()
        if isinstance(pipeline, AdaptiveBlocks):
            revisions = (pipeline.revised(emission.steps, steps),)
            if warns and pipeline.clips(progress):
                theta = pipeline.steps(steps, progress.smoother) * c.grid.resolution
                warn(FAR_BELOW.format(theta), AccuracyWarning)
            steps = pipeline.highest(steps, progress.smoother)
        elif c.perturber.released_nodes:
            finite = c.finite(as_floats(batch.values[c.holdout :]), c.holdout, batch.name)
            nodes = pipeline.released_nodes(steps, finite)
        published.flags.writeable = False
        return Release(
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
        progress, chooser = state.progress, state.chooser_after_pending()
        packed = np.empty(0, np.int64) if chooser is None else chooser.pack()
        return {
            **progress._asdict(),
            "smoother": codec.pack(progress.smoother.view(np.float64), "<f8"),
            "chain": codec.pack(progress.chain, "<u8"),
            "holdout": codec.pack(packed, "<i8"),
        }

    def unpack(self, packed: Packed, key: Key) -> StreamState:
        numbers = {name: codec.restore(kind, packed[name]) for name, kind in _FIELDS.items()}
        smoother = codec.unpack(packed["smoother"], "<f8").astype(np.float64)
        if numbers["theta_steps"] > 0:
            smoother = self.pipeline(key).remembered(smoother)
        chain = codec.unpack(packed["chain"], "<u8").astype(np.uint64)
        progress = Progress(smoother=smoother, chain=chain, **numbers)
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
            in_range &= progress.n_seen < c.task.holdout and not progress.smoother.size and not progress.chain.size
        elif in_range:
            bound = self.pipeline(key).distributions[progress.theta_steps] is not None
            in_range = self.pipeline(key).fits(progress)
            in_range &= progress.chain.size == (CHAIN_WORDS if bound else 0) and self.stage(progress)[1] > 0
        if not in_range:
            raise ValueError("a position out of range")

    def settled(self, state: StreamState) -> StreamState:
        return StreamState(state.progress, state.chooser_after_pending(), state.noise) if state.pending else state

    def rekeyed(self, state: StreamState, key: Key) -> StreamState:
        progress, c = state.progress, self.composition
        if progress.theta_steps:
            chain = next_chain(c.perturber, key, progress.theta_steps, c.publish_epsilon, progress.chain)
            progress = progress._replace(chain=chain)
        chooser = state.chooser_after_pending()
        return StreamState(progress, None if chooser is None else chooser.copy())


def _counted(state: StreamState, floats: Floats) -> Chooser | None:
    # By name: other choosers take finite values only.
    if not hasattr(state.chooser, "observe_unchecked"):
        return None
    twin = state.chooser_after_pending()
    assert twin is not None  # noqa: S101 - there is one
    twin = twin.copy() if twin is state.chooser else twin
    finite: bool = twin.observe_unchecked(floats)  # type: ignore[attr-defined]
    return twin if finite else None


_FIELDS: Json = {
    name: float if name == "prediction" else int for name in Progress._fields if name not in ("smoother", "chain")
}
