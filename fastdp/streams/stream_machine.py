"""The step of a stream: hold-out, warm-up, publishing, renewed thresholds (ToPS sections 3.2 and 7)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from fastdp.data.column import INT64, as_floats, is_in_order, read_only
from fastdp.errors import AccuracyWarning, argument, warn
from fastdp.kinds import Array, Flags, Floats, Json, Records
from fastdp.noise.chain_keys import CHAIN_WORDS
from fastdp.noise.key import Key, repeating
from fastdp.perturbers import Blocks
from fastdp.releases.published_answer import ReleasedNodes
from fastdp.releases.release import Release
from fastdp.releases.revised import RevisedStream
from fastdp.state import codec
from fastdp.state.codec import Packed
from fastdp.state.machine import NOTHING_DRAWN, Column, Machine, Transition, record
from fastdp.streams.adaptive_blocks import AdaptiveBlocks, Closed, reach_of, singles_of
from fastdp.streams.columns import NO_FLOATS, ZERO, RowKeys, RowValues, Streams
from fastdp.streams.fixed_blocks import HALF, FixedBlocks, next_chain
from fastdp.streams.holdout import choose_theta
from fastdp.streams.parameters import StreamParameters
from fastdp.thresholds import Chooser
from fastdp_kernels.streams.adaptive_pass import ADAPTIVE_ROW

Pipeline = FixedBlocks | AdaptiveBlocks
FAR_BELOW = (
    "threshold: {:.3g} is far below the values, as released sums show: their mean is more than three quarters of it "
    "although they are clipped to it; expected {}a larger threshold that is known publicly ({}), unless values "
    "hardly differ"
)
#: Use of the next value.
Stage = Literal["holdout", "warm-up", "publish", "withhold"]


@dataclass(frozen=True)
class Schedule(Machine[Streams]):
    """Transition function of a stream of values."""

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

    def start(self, key: Key) -> Streams:
        keys = RowKeys(key)
        state = self.pipeline(key).columns(1)
        state.choosers[0] = self.composition.threshold.start(self.composition.task)
        return state if self.composition.task.holdout else self._choose(state, 0, keys)

    def consumed(self, state: Streams) -> int:
        return int(state.rows["n_seen"][0])

    def log_messages(self, before: Streams, after: Streams) -> Iterator[tuple[int, str]]:
        was, now = before.rows[0], after.rows[0]
        if now.cycle > was.cycle:
            theta = float(now.theta_steps) * self.composition.grid.resolution
            yield logging.INFO, f"threshold chosen: {theta:g}, {now.n_seen:,} values seen"
        if now.blocks > was.blocks:
            closed = now.blocks - was.blocks
            yield logging.DEBUG, f"{closed:,} blocks closed, {now.blocks:,} in all, {now.n_seen:,} values seen"

    def chooser_for(self, row: Any) -> Chooser | None:
        if row.theta_steps == 0:
            return self.composition.threshold.start(self.composition.task)
        if self.composition.renewal is None:
            return None
        return self.composition.threshold.start(self.composition.renewal_task)

    def stage(self, row: Any) -> tuple[Stage, int]:
        """Use of a stream's next value, and number of values used so."""
        c = self.composition
        if row.theta_steps == 0:
            return "holdout", c.task.holdout - int(row.n_seen)
        if row.n_seen < c.holdout:
            return "warm-up", c.holdout - int(row.n_seen)
        if c.period is None:
            return "publish", sys.maxsize
        left = int(row.cycle * c.period - (row.blocks * c.plan.block + row.filled))
        if left:
            return "publish", left
        return "withhold", c.renewal_task.holdout - int(row.held)

    def step(self, state: Streams, batch: Column, key: Key) -> Transition[Streams]:
        if batch.finished:
            after, published, closed = self._advance(state, batch, key, Closed())
            emit = partial(self.released, after, published, closed, batch, key)
            return record(Transition, (after, emit, None, NOTHING_DRAWN))
        after, published, _ = self._advance(state, batch, key, None)
        return record(Transition, (after, lambda: published, None, NOTHING_DRAWN))

    def _advance(
        self, state: Streams, batch: Column, key: Key, into: Closed | None
    ) -> tuple[Streams, Floats, Closed | None]:
        values, keys = batch.values, RowKeys(key)
        whole = is_in_order(values, INT64) and isinstance(self.pipeline(key), FixedBlocks)
        values = read_only(values) if whole else as_floats(values)
        try:
            return *self._take(state.copied(), values, keys, into), into
        except NotFiniteError:
            values, into = self.composition.finite(as_floats(values), 0, batch.name), into and Closed()
            # None of the noise drawn so far was released.
            with repeating():
                return *self._take(state.copied(), as_floats(values), keys, into), into

    def _take(self, state: Streams, values: Array, keys: RowKeys, into: Closed | None) -> tuple[Streams, Floats]:
        size, holdout = values.size, self.composition.holdout
        skipped = min(size, max(0, holdout - int(state.rows["n_seen"][0]))) if holdout else 0
        published = np.empty(size - skipped)
        call = values, ZERO, np.array((size,)), ZERO, published, np.array((-skipped,))
        return self.take(state, record(RowValues, call), keys, into), published

    def take(self, state: Streams, batch: RowValues, keys: RowKeys, into: Closed | None = None) -> Streams:
        """Consume values of rows, which change in place, and publish one for each after the hold-outs.

        Value k of a call is published at ``out_starts + k``.  NotFiniteError may come after some values were
        consumed.
        """
        c, which = self.composition, batch.which
        if c.period is None:
            ready = which.size if not c.holdout else np.count_nonzero(state.rows["n_seen"][which] >= c.holdout)
            if ready == which.size:
                return self.publish(state, batch, keys, into)
            if ready:
                begun = state.rows["n_seen"][which] >= c.holdout
                for calls in (np.flatnonzero(begun), np.flatnonzero(~begun)):
                    state = self.take(state, batch.at(calls), keys, into)
                return state
        for call in range(which.size):
            state = self._take_row(state, batch.at(np.array((call,))), keys, into)
        return state

    def publish(self, state: Streams, batch: RowValues, keys: RowKeys, into: Closed | None) -> Streams:
        pipeline = self.pipeline(keys.key)
        made = pipeline.publish(state, batch, keys, into)
        if isinstance(made, int):
            raise NotFiniteError(int(batch.which[-1 - made]))
        return made

    def _take_row(self, state: Streams, batch: RowValues, keys: RowKeys, into: Closed | None) -> Streams:
        i, c = int(batch.which[0]), self.composition
        begin, size, to, at = int(batch.starts[0]), int(batch.counts[0]), int(batch.out_starts[0]), 0
        while at < size:
            stage, room = self.stage(state.rows[i])
            count = min(room, size - at)
            values, out = batch.values[begin + at : begin + at + count], batch.out
            chooses = stage in ("holdout", "withhold")
            if chooses:
                state = self._withhold(state, i, as_floats(values), out[max(0, to + at) : max(0, to + at + count)])
            else:
                part = batch._replace(starts=np.array((begin + at,)), counts=np.array((count,)))
                if stage == "warm-up":
                    # Released as sums of blocks, and not published.
                    part = part._replace(out=np.empty(count), out_starts=ZERO)
                    state = self.publish(state, part, keys, None)
                else:
                    state = self.publish(state, part._replace(out_starts=np.array((to + at,))), keys, into)
                    chooses = c.refines
                if chooses:
                    chooser = _chooser_of(state, i).copy()
                    chooser.observe(as_floats(values))
                    state = _with_chooser(state, i, chooser)
            if chooses and count == room:
                state = self._choose(state, i, keys)
            at += count
        return state

    def _withhold(self, state: Streams, i: int, values: Floats, out: Floats) -> Streams:
        row, chooser = state.rows[i], _chooser_of(state, i).copy()
        # By name: most choosers take finite values only.
        if hasattr(chooser, "observe_unchecked"):
            if not chooser.observe_unchecked(values):
                raise NotFiniteError(i)
        elif np.isfinite(values).all():
            chooser.observe(values)
        else:
            raise NotFiniteError(i)
        row.n_seen += values.size
        if row.theta_steps:
            period = self.composition.period
            assert period is not None  # noqa: S101 - only renewals withhold later
            resolution, released = self.composition.grid.resolution, released_sum(row)
            out[:] = min(max(released / period * resolution, 0.0), float(row.theta_steps) * resolution)
            row.held += values.size
        return _with_chooser(state, i, chooser)

    def _choose(self, state: Streams, i: int, keys: RowKeys) -> Streams:
        chooser, cycle, key = _chooser_of(state, i), int(state.rows["cycle"][i]), keys.of(i)
        secret = key.derive("threshold", cycle) if cycle else key
        theta = choose_theta(chooser, secret)
        state = self.pipeline(keys.key).open(state, np.array((i,)), np.array((theta,)), keys)
        return _with_chooser(state, i, self.chooser_for(state.rows[i]))

    # Releases of full arrays.

    def released(
        self,
        after: Streams,
        published: Floats,
        closed: Closed | None,
        batch: Column,
        key: Key,
    ) -> Release:
        c, pipeline, nodes = self.composition, self.pipeline(key), None
        theta_steps = after.rows["theta_steps"]
        revisions: tuple[RevisedStream, ...] = ()
        if isinstance(pipeline, AdaptiveBlocks):
            assert closed is not None  # noqa: S101 - of a finished array
            revisions = pipeline.revised(closed, theta_steps, ZERO)
            if pipeline.clips(after):
                theta = pipeline.steps(after) * c.grid.resolution
                warn(FAR_BELOW.format(theta, "a longer hold-out, or ", argument(threshold=50.0)), AccuracyWarning)
            theta_steps = pipeline.highest(after.rows)
        elif c.perturber.released_nodes:
            values = as_floats(c.finite(as_floats(batch.values[c.holdout :]), c.holdout, batch.name))
            plan = c.plan
            sums = np.empty((-(-values.size // plan.tree_blocks), plan.nodes))
            nodes = ReleasedNodes(sums, plan.leaves, plan.fan_out, plan.levels, plan.tree_blocks)
            call = RowValues(values, ZERO, np.array([values.size]), ZERO, published, ZERO)
            pipeline.released_nodes(theta_steps.copy(), call, RowKeys(key), nodes, ZERO)
        published.flags.writeable = False
        return Release(
            published,
            c.holdout,
            theta_steps * c.grid.resolution,
            c.guarantee(simulated=key.simulated),
            c.plan.block,
            nodes,
            revisions,
            c.noise_and_fraction_above,
            noise_fingerprint=None if key.simulated else key.fingerprint(),
            online=True,
        )

    # State files.

    def describe(self) -> Json:
        return self.composition.describe()

    @classmethod
    def from_description(cls, description: Json, **own: Any) -> Schedule:
        return cls(StreamParameters.from_description(description))

    def pack(self, state: Streams) -> Packed:
        row, chooser = state.rows[0], state.choosers[0]
        held = np.empty(0, np.int64) if chooser is None else chooser.pack()
        # At once: NumPy reads a record's fields one by one thirty times as slowly.
        values = dict(zip(state.rows.dtype.names or (), state.rows[:1].tolist()[0], strict=True))
        numbers = {name: values[name] for name in self._numbers(state.rows)}
        columns = self._columns(state) if values["theta_steps"] else {}
        return {
            **numbers,
            **{name: codec.pack(columns.get(name, NO_FLOATS).reshape(-1), "<f8") for name in _FLOATS},
            "chain": codec.pack(row["chain"] if any(values["chain"]) else row["chain"][:0], "<u8"),
            "holdout": codec.pack(held, "<i8"),
        }

    @staticmethod
    def _numbers(rows: Records) -> list[str]:
        return [name for name in rows.dtype.names or () if name in _NUMBERS]

    def _columns(self, state: Streams) -> dict[str, Floats]:
        memory = NO_FLOATS
        if state.rows.dtype == ADAPTIVE_ROW:
            memory = singles_of(state.rows)
            state = state._replace(scales=state.scales[:, :, : reach_of(state)])
        return {
            "smoother": state.smoother,
            "correlated": state.correlated,
            "memory": memory,
            "scales": state.scales,
            "season": state.season.view(np.float64) if state.season.size else NO_FLOATS,
        }

    def unpack(self, packed: Packed, key: Key) -> Streams:
        pipeline = self.pipeline(key)
        state = pipeline.columns(1)
        row = state.rows[0]
        for name in self._numbers(state.rows):
            state.rows[name] = codec.restore(float if name == "prediction" else int, packed[name])
        chain = codec.unpack(packed["chain"], "<u8").astype(np.uint64)
        arrays: Json = {name: codec.unpack(packed[name], "<f8").astype(np.float64) for name in _FLOATS}
        bound = row.theta_steps > 0 and pipeline.is_bound
        if chain.size != (CHAIN_WORDS if bound else 0):
            raise ValueError("a chain key out of range")
        if bound:
            row.chain[:] = chain
        if row.theta_steps > 0:
            state = pipeline.restored(state, arrays)
        elif any(array.size for array in arrays.values()):
            raise ValueError("a position out of range")
        if not self.fits(state, pipeline).all():
            raise ValueError("a position out of range")
        return _with_chooser(state, 0, self.restored_chooser(row, packed["holdout"]))

    def restored_chooser(self, row: Any, packed: bytes) -> Chooser | None:
        """Chooser with values of a file, if any; ValueError without a threshold to choose."""
        held, chooser = codec.unpack(packed, "<i8").astype(np.int64), self.chooser_for(row)
        if held.size:
            if chooser is None:
                raise ValueError("values held for no threshold")
            chooser.unpack(held)
        return chooser

    def fits(self, state: Streams, pipeline: Pipeline) -> Flags:
        """True for each stream whose state a run can reach."""
        c, rows = self.composition, state.rows
        grid, begun, n_seen = c.grid, rows["theta_steps"] > 0, rows["n_seen"]
        fits: Flags = rows["theta_steps"] <= max(grid.bound_steps, grid.ceiling_steps)
        for name in self._numbers(rows):
            fits &= (rows[name] >= 0) | (name in _SIGNED)
        for name in _IN_CALLS.intersection(rows.dtype.names or ()):
            fits &= rows[name] == 0
        # Every value was held out for a threshold, or is in a block.
        adaptive, later = rows.dtype == ADAPTIVE_ROW, 0
        block, held = (1, 0) if adaptive else (c.plan.block, rows["held"])
        if c.renewal is not None and not c.refines:
            later = c.renewal_task.holdout
        fits &= (rows["blocks"] <= n_seen // block) & (rows["cycle"] - 1 <= n_seen // max(later, 1))
        before = (rows["cycle"] > 0) | (held > 0) | (rows["blocks"] > 0) | (rows["filled"] > 0)
        with np.errstate(all="ignore"):
            in_blocks = rows["position"] if adaptive else rows["blocks"] * block
            seen = c.task.holdout + in_blocks + rows["filled"] + (rows["cycle"] - 1) * later + held
            seen = (n_seen == seen) & ((rows["cycle"] == 1) | (c.renewal is not None))
            fits &= np.where(begun, pipeline.fits(state) & seen, (n_seen < c.task.holdout) & ~before)
        if c.period is not None:
            for i in np.flatnonzero(fits & begun):
                fits[i] = self.stage(rows[i])[1] > 0
        return fits

    def rekeyed(self, state: Streams, key: Key) -> Streams:
        c, state, chooser = self.composition, state.copied(), state.choosers[0]
        row = state.rows[0]
        if row.theta_steps:
            chain = next_chain(c.perturber, key, int(row.theta_steps), c.publish_epsilon, row.chain)
            if chain is not None:
                row.chain[:] = chain
        # The key is another, and so is the noise of its trees.
        twin = self.pipeline(key).columns(1)
        state = state._replace(trees=twin.trees, noise=twin.noise)
        return _with_chooser(state, 0, None if chooser is None else chooser.copy())


class NotFiniteError(Exception):
    """A value of this row is not finite; drop the changed state."""


def released_sum(row: Any) -> int:
    """Sum released under the present threshold, in grid steps."""
    return (int(row.released_high) << HALF) + int(row.released_low)


def _chooser_of(state: Streams, i: int) -> Chooser:
    chooser = state.choosers[i]
    assert chooser is not None  # noqa: S101 - a stage that holds out or refines has one
    return chooser


def _with_chooser(state: Streams, i: int, chooser: Chooser | None) -> Streams:
    if len(state.choosers) == 1:
        return state._replace(choosers=[chooser])
    state.choosers[i] = chooser
    return state


_FLOATS = ("smoother", "correlated", "memory", "scales", "season")
_SIGNED = ("open_sum", "released_high", "released_low", "group_sum", "prediction")
#: Numbers that are 0 between calls.
_IN_CALLS = {"taken", "closed", "stopped", "given", "drawn"}
_NUMBERS = ("n_seen", "cycle", "held", "theta_steps", "blocks", "filled", *_SIGNED)
