"""States of a fleet's streams as columns, and the pass over them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_column, read_only
from fastdp.errors import DataError
from fastdp.kinds import Array, Floats, Indices, Integers, Json, Records
from fastdp.noise.key import KEY_BYTES, Key, repeating
from fastdp.noise.words import Words
from fastdp.state import codec
from fastdp.state.machine import Column, Machine, Transition
from fastdp.streams.adaptive_blocks import AdaptiveBlocks, reach_of, reaching
from fastdp.streams.columns import NamedKeys, RowKeys, RowValues, Streams
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.release_many import concurrently
from fastdp.streams.stream_machine import Schedule
from fastdp_kernels.streams.block_lengths import SCALES
from fastdp_kernels.streams.seasons import SEASON

#: One array a column; entry i of each is of stream i.
Columns = tuple[Array, ...]
#: Mask of the values that publish (None: all), and the outputs.
Published = tuple[NDArray[np.bool_] | None, Floats]
#: Takes the next array of a type and shape from a state.
Take = Callable[[Any, tuple[int, ...]], Any]
#: Makes names of streams as :meth:`Rows.start` takes them.
Names = Callable[[], Indices | Words | Sequence[Key]]
#: Arrays grow by a quarter; unused rows count as memory of the streams.
GROWTH = 4
#: Values below which a thread costs more than it saves.
MIN_PER_THREAD = 2**14
NO_ROWS: Indices = np.empty(0, np.int64)
NO_SECRETS: Words = np.empty((0, KEY_BYTES // 8), np.uint64)


class Rows(ABC):
    """The streams of a fleet, an entry of every column each; `key` is the composition's."""

    def __init__(self, key: Key, *columns: Array) -> None:
        self.key, self.columns, self.size = key, columns, 0

    @abstractmethod
    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        """Fill in streams before their first value, by number, key, or secret (uint64[n, 4])."""

    @abstractmethod
    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        """Return a call that consumes `values`, in order, of rows `which`."""

    @abstractmethod
    def pack(self) -> tuple[Any, list[Array]]: ...

    @abstractmethod
    def unpack(self, size: int, names: Names, described: Any, take: Take) -> None:
        """Restore `size` states from :meth:`pack`; ValueError if out of range."""

    @property
    def filled(self) -> Columns:
        return tuple(column[: self.size] for column in self.columns)

    def names(self, columns: Columns) -> NamedKeys:
        return NamedKeys(self.key, *columns[-2:])

    def begin(self, ids: Indices | Words | Sequence[Key]) -> None:
        begin, end = self.size, self.size + len(ids)
        if end > len(self.columns[0]):
            longer = max(end, begin + begin // GROWTH)
            self.columns = tuple(_longer(column, begin, longer) for column in self.columns)
        self.start(ids, tuple(column[begin:end] for column in self.columns))
        self.size = end

    def taken(self, which: Indices, key: Key) -> Self:
        other = copy.copy(self)
        other.key = key
        other.keep(which)
        return other

    def keep(self, which: Indices) -> None:
        self.columns, self.size = tuple(column[which] for column in self.columns), which.size

    def join(self, others: Sequence[Self]) -> None:
        columns = zip(*(rows.filled for rows in (self, *others)), strict=True)
        self.columns = tuple(np.concatenate(_as_wide(arrays)) for arrays in columns)
        self.size = len(self.columns[0])


def _as_wide(arrays: Sequence[Array]) -> list[Array]:
    most = max(array.shape[-1] for array in arrays) if arrays[0].ndim > 1 else 0
    widths = ([(0, 0)] * (array.ndim - 1) + [(0, most - array.shape[-1])] for array in arrays)
    return [np.pad(array, width) if most else array for array, width in zip(arrays, widths, strict=True)]


def _longer(array: Array, used: int, size: int) -> Array:
    longer = np.empty((size, *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer


#: Bytes beyond which the noise of trees is drawn again rather than kept.
MAX_KEPT = 2**31


class StreamRows(Rows):
    """Streams of values: the pass of a publisher, for all rows of a call.

    Columns: :class:`fastdp.streams.columns.Streams`, records as numbers, then numbers and secrets of keys.
    """

    def __init__(self, machine: Schedule, key: Key) -> None:
        self._machine, self._pipeline = machine, machine.pipeline_of(key)
        first = self._pipeline.columns(1)
        fixed = isinstance(self._pipeline, FixedBlocks) and not self._pipeline.is_bound
        width = self._pipeline.plan.tree_blocks if fixed else 0
        self._kind, numbers, season = first.rows.dtype, _as_numbers(first.rows), _as_numbers(first.season)
        columns = numbers, first.smoother, first.correlated, first.scales[:, :, :0], season
        trees = NO_ROWS, np.empty((0, 1, width), np.int64)
        super().__init__(key, *(column[:0] for column in columns), *trees, np.empty(0, object), NO_ROWS, NO_SECRETS)
        #: Whether values of a call may stay in any order.
        self._unsorted = isinstance(self._pipeline, AdaptiveBlocks) and not machine.composition.holdout

    def _state(self, columns: Columns) -> Streams:
        numbers, smoother, correlated, scales, season, trees, noise, choosers, *_ = columns
        rows = np.ndarray(len(numbers), self._kind, np.ascontiguousarray(numbers))
        waves = np.ndarray(len(numbers) if season.shape[1] else 0, SEASON, np.ascontiguousarray(season))
        return Streams(rows, choosers, smoother, correlated, scales, waves, trees, noise)

    def _set(self, state: Streams) -> None:
        choosers: Array = state.choosers  # type: ignore[assignment]
        if isinstance(state.choosers, list):
            choosers = np.empty(1, object)
            choosers[:] = state.choosers
        before, (*_, numbers, secrets) = self.columns, self.columns
        kept = before[0], state.smoother, state.correlated, state.scales, before[4], state.trees, state.noise
        self.columns = *kept, choosers, numbers, secrets

    def begin(self, ids: Indices | Words | Sequence[Key]) -> None:
        noise = self.columns[6]
        if noise.shape[2] and (self.size + len(ids)) * noise[:1].size * noise.itemsize > MAX_KEPT:
            self.columns = *self.columns[:6], np.empty((len(noise), 1, 0), np.int64), *self.columns[7:]
            self.columns[5][:] = -1
        super().begin(ids)

    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        c, count = self._machine.composition, len(ids)
        _name(ids, into)
        for column in into[:5]:
            column[:] = 0
        into[5][:] = -1
        first = c.threshold.start(c.task)
        for row in range(count if c.task.holdout else 0):
            into[7][row] = first.copy()
        if not c.task.holdout:
            every, theta = np.arange(count), first.choose(self.key)
            keys = self._keys(into, named=bool(into[8][0] < 0))
            state = self._pipeline.open(self._state(into), every, np.full(count, theta), keys)
            into[1][:], into[2][:] = state.smoother, state.correlated

    def _keys(self, columns: Columns, *, named: bool) -> RowKeys:
        return RowKeys(self.key, None, self.names(columns)) if named else RowKeys(self.key, columns[-2])

    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        threads = min(threads, max(1, values.size // MIN_PER_THREAD))
        if self._unsorted and threads == 1:
            return partial(self._publish_in_order, which, read_only(values))
        return partial(self._publish, which, values, threads)

    def _publish_in_order(self, which: Indices, values: Floats) -> Published:
        out, every = np.empty(values.size), np.arange(values.size)
        batch = RowValues(values, every, np.ones(values.size, np.int64), which, out, every)
        self._take(batch, named=True)
        return None, out

    def _publish(self, which: Indices, values: Floats, threads: int) -> Published:
        order = np.argsort(which, kind="stable")
        ordered, out = which[order], np.empty(values.size)
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        counts, rows = np.diff(begins, append=ordered.size), ordered[begins]
        holdout, state = self._machine.composition.holdout, self._state(self.columns)
        shown = np.empty(values.size, np.bool_) if holdout else None
        if shown is not None:
            seen = state.rows["n_seen"][rows]
            shown[order] = np.arange(ordered.size) + np.repeat(seen - begins, counts) >= holdout
        if threads > 1 and isinstance(self._pipeline, AdaptiveBlocks):
            # Or threads would make longer columns, each its own.
            self._set(reaching(state, rows, counts))
        batch = RowValues(read_only(values[order]), begins, counts, rows, out, begins)
        own = self.columns[-2][rows] < 0
        owners = 2 * (rows % threads) + own
        calls = [np.flatnonzero(owners == owner) for owner in range(2 * threads)]

        def work(mine: Indices) -> None:
            if mine.size:
                self._take(batch.at(mine), named=bool(own[mine[0]]))

        concurrently(threads, work, calls)
        published = np.empty(values.size)
        published[order] = out
        return shown, published if shown is None else published[shown]

    def _take(self, batch: RowValues, *, named: bool) -> None:
        # Without its noise a tree is drawn for each block.
        with nullcontext() if self.columns[6].shape[2] or self._pipeline.is_bound else repeating():
            self._set(self._machine.take(self._state(self.columns), batch, self._keys(self.columns, named=named)))

    def pack(self) -> tuple[Json, list[Array]]:
        numbers, smoother, correlated, scales, season, _, _, choosers, *_ = self.filled
        reached = reach_of(self._state(self.filled)) if scales.shape[1] else 0
        held = [codec.pack(NO_ROWS if chooser is None else chooser.pack(), "<i8") for chooser in choosers]
        described = {"scales": reached, "holdouts": held if any(held) else None}
        return described, [numbers, smoother, correlated, np.ascontiguousarray(scales[:, :, :reached]), season]

    def unpack(self, size: int, names: Names, described: Json, take: Take) -> None:
        first, reached = self._pipeline.columns(1), codec.require_int(described["scales"])
        if not 0 <= reached < SCALES:
            raise ValueError("a number of scales out of range")
        shapes = [(size, *column.shape[1:]) for column in self.columns[:5]]
        shapes[3] = size, first.scales.shape[1], reached
        kinds = [column.dtype for column in self.columns[:5]]
        taken = tuple(take(kind, shape) for kind, shape in zip(kinds, shapes, strict=True))
        self.columns = *taken, *(_longer(column, 0, size) for column in self.columns[5:])
        self.size, self.columns[5][:] = size, -1
        _name(names(), self.columns)
        state = self._state(self.columns)
        for wrong in np.flatnonzero(~self._machine.fits(state, self._pipeline)):
            raise ValueError(f"stream {wrong} has a position out of range")
        held = described["holdouts"] or [b""] * size
        for row, packed in zip(range(size), held, strict=True):
            self.columns[7][row] = self._machine.restored_chooser(state.rows[row], packed)


def _as_numbers(records: Records) -> Integers:
    width = records.itemsize // 8
    return records.view(np.int64).reshape(records.size, width) if records.size else np.empty((1, 0), np.int64)


def _name(ids: Indices | Words | Sequence[Key], into: Columns) -> None:
    *_, numbers, secrets = into
    if isinstance(ids, np.ndarray):
        numbers[:], secrets[:] = (ids, 0) if ids.ndim == 1 else (-1, ids)
    else:
        numbers[:] = [-1 - key.member for key in ids]
        secrets[:] = np.frombuffer(b"".join(key.reveal() for key in ids), np.uint64).reshape(secrets.shape)


class MachineRows(Rows):
    """Streams of a machine without a compiled pass; columns: states, numbers and secrets."""

    def __init__(self, machine: Machine[Any], key: Key) -> None:
        super().__init__(key, np.empty(0, object), NO_ROWS, NO_SECRETS)
        self._machine = machine

    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        _name(ids, into)
        for row, key in enumerate(self.names(into)):
            into[0][row] = self._machine.start(key)

    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        keys, states = self.names(self.columns), self.columns[0]
        order = np.argsort(which, kind="stable")
        borders = np.flatnonzero(np.diff(which[order])) + 1
        made: list[tuple[int, Indices, list[Transition[Any]]]] = []
        # Steps change nothing.
        for positions in np.split(order, borders):
            row = int(which[positions[0]])
            try:
                made.append((row, positions, self._steps(keys[row], states[row], values[positions])))
            except DataError as error:
                raise DataError(f"{error} (within the stream of ids[{positions[0]}])") from None
        return partial(self._publish, states, made, values)

    def _publish(
        self, states: Array, made: list[tuple[int, Indices, list[Transition[Any]]]], values: Floats
    ) -> Published:
        published, out = np.zeros(values.size, np.bool_), np.empty(values.size)
        for row, positions, transitions in made:
            states[row] = transitions[-1].state
            # Earlier ones are finished already, in a copy.
            if transitions[-1].finish is not None:
                transitions[-1].finish()
            emitted = np.concatenate([np.atleast_1d(transition.emit()) for transition in transitions])
            last = positions[positions.size - emitted.size :]
            published[last], out[last] = True, emitted
        return published, out[published]

    def _steps(self, key: Key, state: Any, values: Floats) -> list[Transition[Any]]:
        machine = self._machine
        if machine.SPLITS:
            return [machine.step(state, Column(as_column(values), "values"), key)]
        transitions: list[Transition[Any]] = []
        for value in values:
            transitions.append(machine.step(state, machine.read([value]), key))
            state = machine.settled(transitions[-1].state)
        return transitions

    def pack(self) -> tuple[list[Json], list[Array]]:
        return [self._machine.pack(self._machine.settled(state)) for state in self.filled[0]], []

    def unpack(self, size: int, names: Names, described: list[Json], take: Take) -> None:
        self.columns, self.size = tuple(_longer(column, 0, size) for column in self.columns), size
        _name(names(), self.columns)
        for row, (state, key) in enumerate(zip(described, self.names(self.columns), strict=True)):
            self.columns[0][row] = self._machine.unpack(state, key)
