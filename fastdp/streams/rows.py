"""States of a fleet's streams as columns, one entry a stream, and the pass that consumes values of any of them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_column, read_only
from fastdp.errors import DataError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Flags, Floats, Indices, Json, Records
from fastdp.noise import chain_keys
from fastdp.noise.key import DrawnTwiceError, Key, repeating
from fastdp.noise.words import RowWords, Words
from fastdp.state.machine import Column, Machine, Transition
from fastdp.streams.adaptive_blocks import NO_FLOATS, AdaptiveBlocks
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.parameters import of_stream
from fastdp.streams.release_many import concurrently
from fastdp.streams.state import RowKeys, RowValues, Streams
from fastdp.streams.stream_machine import Schedule
from fastdp_kernels.streams import adaptive_pass, block_lengths
from fastdp_kernels.streams.adaptive_pass import BY_SCALE, SINGLES, STREAM
from fastdp_kernels.streams.fixed_pass import STREAM_ROW

#: One array a column; entry i of each is of stream i.
Columns = tuple[Array, ...]
#: Mask of the values that publish (None: all), and the outputs.
Published = tuple[NDArray[np.bool_] | None, Floats]
#: Takes the next array of a type and shape from a state.
Take = Callable[[Any, tuple[int, ...]], Any]
#: Arrays grow by a quarter; unused rows count as memory of the streams.
GROWTH = 4
#: Values below which a thread costs more than it saves.
MIN_PER_THREAD = 2**14
#: Rows are counted in an array over all streams if these are at most so many times as many.
DENSE = 16
_ONE = np.ones(1, np.int64)
NO_ROWS: Indices = np.empty(0, np.int64)
NO_OBJECTS: Array = np.empty(0, object)


class Rows(ABC):
    """The streams of a fleet: stream i is entry i of every column.

    Parameters
    ----------
    key : Key
        Key of the composition, without a stream number.
    columns : array
        Empty arrays, of the types that the columns have.
    """

    def __init__(self, key: Key, *columns: Array) -> None:
        self.key, self.columns, self.size = key, columns, 0

    @abstractmethod
    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        """Fill in streams before their first value, by number, noise key, or its secret (uint64[n, 4])."""

    @abstractmethod
    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        """Return a call that consumes finite `values`, in order; value i belongs to row `which[i]`."""

    @abstractmethod
    def pack(self) -> tuple[Any, list[Array]]: ...

    @abstractmethod
    def unpack(self, size: int, keys: Callable[[], list[Key]], described: Any, take: Take) -> None:
        """Restore `size` states from :meth:`pack`, of streams with these keys; ValueError if out of range."""

    @property
    def filled(self) -> Columns:
        return tuple(column[: self.size] for column in self.columns)

    def begin(self, ids: Indices | Words | Sequence[Key]) -> None:
        begin, end = self.size, self.size + len(ids)
        if end > len(self.columns[0]):
            longer = max(end, begin + begin // GROWTH)
            self.columns = tuple(_longer(column, begin, longer) for column in self.columns)
        self.start(ids, tuple(column[begin:end] for column in self.columns))
        self.size = end

    def taken(self, which: Indices, key: Key) -> Self:
        """Independent copy of the streams `which`, with its own key and record of draws."""
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


class AdaptiveRows(Rows):
    """Streams of an :class:`fastdp.Adaptive` with a public threshold, which have one compiled pass.

    The columns are records of the kernel, and the numbers by scale of each memory.
    """

    def __init__(self, pipeline: AdaptiveBlocks, machine: Schedule, key: Key) -> None:
        super().__init__(key, np.empty(0, STREAM), np.empty((0, BY_SCALE, 0)))
        # Its chain belongs to no stream of a fleet.
        start = machine.start(key.again())
        self.composition, self.pipeline = machine.composition, pipeline
        self.theta_steps = int(start.rows["theta_steps"][0])
        self._public = pipeline.under(self.theta_steps)[0]
        #: A stream before its first value, without its chain.
        self._first: Records = np.zeros(1, STREAM)
        memory = start.memory
        for name in SINGLES:
            self._first[name] = memory[name]

    @classmethod
    def of(cls, machine: object, key: Key) -> AdaptiveRows | None:
        if not isinstance(machine, Schedule) or machine.composition.task.holdout or machine.composition.warm_up:
            return None
        pipeline = machine.pipeline(key)
        if not isinstance(pipeline, AdaptiveBlocks) or pipeline.perturber.season is not None:
            return None
        rows = cls(pipeline, machine, key)
        return rows if pipeline.distributions[rows.theta_steps] else None

    @property
    def guarantee(self) -> Guarantee:
        # The guarantee of one stream.
        return replace(of_stream(self.composition, grouped=False), simulated=self.key.simulated)

    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        count, (streams, scales) = len(ids), into
        if isinstance(ids, np.ndarray) and ids.ndim > 1:
            chains = chain_keys.named_chains(self.key, ids.view(np.uint64), self.theta_steps)
        elif isinstance(ids, np.ndarray):
            ids = ids.view(np.int64)
            words = RowWords(chain_keys.theta_key(self.key, self.theta_steps), chain_keys.CHAIN_PIECES)
            chains = chain_keys.start_chains(words, ids)
        else:
            keys = [chain_keys.theta_key(key, self.theta_steps) for key in ids]
            words = RowWords(keys, chain_keys.CHAIN_PIECES, np.arange(count))
            chains = chain_keys.start_chains(words, np.array([key.member - 1 for key in ids]))
        # As numbers of 8 bytes: NumPy copies records one by one.
        streams.view(np.int64).reshape(count, -1)[:] = self._first.view(np.int64)
        streams["chain"] = chains.reshape(count, chain_keys.CHAIN_WORDS)
        scales[:] = 0.0

    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        streams, scales = self.columns
        missing = self._reach(which, streams, self.size) - scales.shape[2]
        if missing > 0:
            self.columns = streams, np.pad(scales, ((0, 0), (0, 0), (0, missing)))
        out, threads = np.empty(values.size), min(threads, max(1, values.size // MIN_PER_THREAD))
        return partial(self._publish, which, values, out, threads)

    def _reach(self, which: Indices, streams: Records, size: int) -> int:
        if which.size == 1:
            times = _ONE
        elif which.size * DENSE > size:
            times = np.bincount(which)
            which = np.flatnonzero(times)
            times = times[which]
        else:
            which, times = np.unique(which, return_counts=True)
        return int(adaptive_pass.furthest(which, times, streams)).bit_length()

    def _publish(self, which: Indices, values: Floats, out: Floats, threads: int) -> Published:
        if threads == 1:
            self._consume(which, values, out)
            return None, out
        owners = which % threads

        def work(owner: int) -> None:
            mine = np.flatnonzero(owners == owner)
            outputs = np.empty(mine.size)
            self._consume(which[mine], values[mine], outputs)
            out[mine] = outputs

        concurrently(threads, work, range(threads))
        return None, out

    def _consume(self, which: Indices, values: Floats, out: Floats) -> None:
        pipeline, distribution, (streams, scales) = (
            self.pipeline,
            self.pipeline.distributions[self.theta_steps],
            self.columns,
        )
        assert distribution is not None  # noqa: S101 - `of` has looked
        done = 0
        constants = distribution.constants if self.key.given is None else NO_FLOATS
        public = self._public, pipeline.events, pipeline.shape, pipeline.lengths, constants
        resolved: Indices = np.empty(0, np.int64)
        before = None if self.key.drawn is None else streams.copy()
        while True:
            done = adaptive_pass.publish_rows(which, values, done, *public, resolved, streams, scales, out)
            if done == which.size:
                break
            stream, value = streams[which[done]], values[done : done + 1]
            total = int(stream["open_sum"]) + int(adaptive_pass.in_steps(value, self._public, pipeline.lengths))
            drawn = chain_keys.resolve(distribution, self.key, stream["chain"], int(stream["blocks"]), total)
            resolved = np.array([drawn])
        if before is not None:
            _check_moved(streams, before, np.unique(which))

    def pack(self) -> tuple[Json, list[Array]]:
        streams, scales = self.filled
        return {"scales": scales.shape[2]}, [streams, scales]

    def unpack(self, size: int, keys: Callable[[], list[Key]], described: Json, take: Take) -> None:
        if not 0 <= described["scales"] <= block_lengths.SCALES:
            raise ValueError("a number of scales out of range")
        streams, scales = take(STREAM, (size,)), take(np.float64, (size, BY_SCALE, described["scales"]))
        for row in np.flatnonzero(~self._plausible(streams, scales)):
            raise ValueError(f"stream {row} has a position out of range")
        self.columns, self.size = (streams, scales), size

    def _plausible(self, streams: Records, scales: Floats) -> NDArray[np.bool_]:
        most = self.pipeline.shape["most"][0]
        exponents, last, filled, position = (streams[name] for name in ("exponent", "last", "filled", "position"))
        fits: Flags = np.logical_and.reduce([np.isfinite(streams[name]) for name in SINGLES])
        fits &= (exponents >= 0) & (exponents <= most) & (last >= 0) & (last <= most)
        lengths = np.ldexp(1.0, np.where(fits, exponents, 0).astype(np.int64))
        fits &= (filled >= 0) & (filled < lengths) & (streams["blocks"] >= 0)
        fits &= (position >= 0) & (position < 2.0 ** scales.shape[2])
        fits &= np.isfinite(scales).all(axis=(1, 2))
        return fits


def _check_moved(now: Records, before: Records, which: Indices) -> None:
    now, before = now[which], before[which]
    same = (now["chain"] == before["chain"]).all(axis=1)
    if ((now["blocks"] > before["blocks"]) & same).any():
        raise DrawnTwiceError("the chain key of a stream is the same after its blocks")


#: Bytes beyond which the noise of trees is drawn again rather than kept.
MAX_KEPT = 2**31


class FixedRows(Rows):
    """Streams in blocks of one length: the pass of a publisher, for all rows of a call.

    The columns are rows as numbers, the smoother's and correlated noise's numbers, trees in use and their noise,
    choosers, stream numbers, and keys of those with a key of their own.
    """

    def __init__(self, machine: Schedule, pipeline: FixedBlocks, key: Key) -> None:
        first, width = pipeline.columns(1), pipeline.plan.leaves
        noise = np.empty((0, 1, 0 if pipeline.is_bound else width), np.int64)
        numbers: list[Array] = [first.rows.view(np.int64).reshape(1, -1), first.smoother, first.correlated]
        super().__init__(key, *(column[:0] for column in numbers), NO_ROWS, noise, *(NO_OBJECTS, NO_ROWS, NO_OBJECTS))
        self._machine, self._pipeline = machine, pipeline

    @classmethod
    def of(cls, machine: object, key: Key) -> FixedRows | None:
        pipeline = machine.pipeline_of(key) if isinstance(machine, Schedule) else None
        return cls(machine, pipeline, key) if isinstance(pipeline, FixedBlocks) else None  # type: ignore[arg-type]

    def _state(self, columns: Columns) -> Streams:
        numbers, smoother, correlated, trees, noise, choosers, *_ = columns
        rows = np.ndarray(len(numbers), STREAM_ROW, np.ascontiguousarray(numbers))
        return Streams(rows, choosers, smoother, correlated, trees=trees, noise=noise)

    def begin(self, ids: Indices | Words | Sequence[Key]) -> None:
        noise = self.columns[4]
        if noise.shape[2] and (self.size + len(ids)) * noise[:1].size * noise.itemsize > MAX_KEPT:
            self.columns = *self.columns[:4], np.empty((len(noise), 1, 0), np.int64), *self.columns[5:]
            self.columns[3][:] = -1
        super().begin(ids)

    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        c, count, named = self._machine.composition, len(ids), not isinstance(ids, np.ndarray)
        numbers, smoother, correlated, trees, _, choosers, streams, keys = into
        numbers[:], smoother[:], correlated[:], trees[:], keys[:] = 0, 0.0, 0.0, -1, None
        streams[:] = 0 if named else ids
        _fill((keys,), ids if named else ())
        first = c.threshold.start(c.task)
        _fill((choosers,), (first.copy() for _ in range(count if c.task.holdout else 0)))
        if not c.task.holdout:
            every, theta = np.arange(count), first.choose(self.key)
            state = self._pipeline.open(self._state(into), every, np.full(count, theta), self._keys(into))
            smoother[:], correlated[:] = state.smoother, state.correlated

    def _keys(self, columns: Columns) -> RowKeys:
        *_, streams, keys = columns
        return RowKeys(self.key, streams) if not len(keys) or keys[0] is None else RowKeys(self.key, None, keys)

    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        return partial(self._publish, which, values, min(threads, max(1, values.size // MIN_PER_THREAD)))

    def _publish(self, which: Indices, values: Floats, threads: int) -> Published:
        order = np.argsort(which, kind="stable")
        ordered, out = which[order], np.empty(values.size)
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        counts, rows = np.diff(begins, append=ordered.size), ordered[begins]
        holdout = self._machine.composition.holdout
        shown = np.empty(values.size, np.bool_) if holdout else None
        if shown is not None:
            seen = self._state(self.columns).rows["n_seen"][rows]
            shown[order] = np.arange(ordered.size) + np.repeat(seen - begins, counts) >= holdout
        batch = RowValues(read_only(values[order]), begins, counts, rows, out, begins)
        own = self.columns[-1][rows] != None  # noqa: E711 - entry by entry
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
        *_, streams, keys = self.columns
        row_keys = RowKeys(self.key, None, keys) if named else RowKeys(self.key, streams)
        # Without its noise a tree is drawn for each block.
        again = nullcontext() if self.columns[4].shape[2] or self._pipeline.is_bound else repeating()
        with again:
            state = self._machine.take(self._state(self.columns), batch, row_keys, [])
        if len(streams) == 1:
            # The state of one stream is another one after a call.
            choosers: Array = np.empty(1, object)
            choosers[:] = state.choosers
            noise = self.columns[0], state.smoother, state.correlated, state.trees, state.noise
            self.columns = *noise, choosers, streams, keys

    def taken(self, which: Indices, key: Key) -> Self:
        other = super().taken(which, key)
        keys = other.columns[-1]
        for row in np.flatnonzero(keys != None).tolist():  # noqa: E711 - entry by entry
            keys[row] = keys[row].again()
        return other

    def _one(self, row: int) -> Streams:
        return self._state(tuple(column[row : row + 1] for column in self.columns))

    def pack(self) -> tuple[list[Json], list[Array]]:
        return [self._machine.pack(self._one(row)) for row in range(self.size)], []

    def unpack(self, size: int, keys: Callable[[], list[Key]], described: list[Json], take: Take) -> None:
        stream_keys = keys()
        self.columns = tuple(_longer(column, 0, size) for column in self.columns)
        self.size, (numbers, smoother, correlated, trees, _, choosers, streams, own) = size, self.columns
        trees[:], own[:], streams[:] = -1, None, 0
        for row, (packed, key) in enumerate(zip(described, stream_keys, strict=True)):
            state = self._machine.unpack(packed, self.key)
            numbers[row], smoother[row], correlated[row] = state.rows.view(np.int64), state.smoother, state.correlated
            choosers[row], own[row] = state.choosers[0], key


class MachineRows(Rows):
    """Streams of a machine without a compiled pass over them; the columns are noise keys and states."""

    def __init__(self, machine: Machine[Any], key: Key) -> None:
        super().__init__(key, np.empty(0, object), np.empty(0, object))
        self._machine = machine

    def start(self, ids: Indices | Words | Sequence[Key], into: Columns) -> None:
        keys = [self.key.of_stream(number) for number in ids.tolist()] if isinstance(ids, np.ndarray) else ids
        _fill(into, keys, [self._machine.start(key) for key in keys])

    def prepare(self, which: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        keys, states = self.columns
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

    def taken(self, which: Indices, key: Key) -> Self:
        other = super().taken(which, key)
        keys, states = other.columns
        _fill(other.columns, [stream_key.again() for stream_key in keys], states)
        return other

    def pack(self) -> tuple[list[Json], list[Array]]:
        return [self._machine.pack(self._machine.settled(state)) for state in self.filled[1]], []

    def unpack(self, size: int, keys: Callable[[], list[Key]], described: list[Json], take: Take) -> None:
        stream_keys = keys()
        states = [self._machine.unpack(state, key) for state, key in zip(described, stream_keys, strict=True)]
        self.columns, self.size = (np.empty(size, object), np.empty(size, object)), size
        _fill(self.columns, stream_keys, states)


def _fill(columns: Columns, *entries: Iterable[Any]) -> None:
    for column, values in zip(columns, entries, strict=True):
        for row, value in enumerate(values):
            column[row] = value
