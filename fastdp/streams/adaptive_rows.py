"""States of many streams of one Adaptive as arrays, with one compiled pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_column
from fastdp.errors import DataError
from fastdp.kinds import Array, Flags, Floats, Indices, Json, Records
from fastdp.noise import binding
from fastdp.noise.key import DrawnTwiceError, Key
from fastdp.noise.words import RowWords
from fastdp.perturbers.base import theta_key
from fastdp.state.machine import Column, Machine, Transition
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.release_many import concurrently
from fastdp.streams.stream_machine import Schedule
from fastdp.streams.stream_state import NO_FLOATS
from fastdp_kernels.streams import adaptive_pass, block_lengths
from fastdp_kernels.streams.adaptive_pass import BY_SCALE, SINGLES, STREAM

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


class AdaptiveRows:
    """Rows of a fleet of :class:`fastdp.Adaptive` streams with a public threshold.

    Parameters
    ----------
    machine : Schedule
        Of an :class:`fastdp.Adaptive` without a hold-out.
    key : Key
        Of the composition, without a stream number.
    """

    def __init__(self, machine: Schedule, key: Key) -> None:
        # Its chain belongs to no stream of a fleet.
        start = machine.start(key.again()).progress
        pipeline = machine.pipeline(key)
        assert isinstance(pipeline, AdaptiveBlocks)  # noqa: S101 - `of` has looked
        self._pipeline, self._key, self._steps = pipeline, key, start.theta_steps
        self._public = pipeline.under(start.theta_steps)[0]
        #: A stream before its first value, without its chain.
        self._first: Records = np.zeros(1, STREAM)
        memory: Records = start.smoother
        for name in SINGLES:
            self._first[name] = memory[name]
        self.size = 0
        self._streams: Records = np.empty(0, STREAM)
        self._scales: Floats = np.empty((0, BY_SCALE, 0))

    @classmethod
    def of(cls, machine: object, key: Key) -> AdaptiveRows | None:
        """Rows for `machine`; None if impossible."""
        if not isinstance(machine, Schedule) or machine.composition.task.holdout or machine.composition.warm_up:
            return None
        pipeline = machine.pipeline(key)
        if not isinstance(pipeline, AdaptiveBlocks) or pipeline.perturber.season is not None:
            return None
        theta_steps = machine.start(key.again()).progress.theta_steps
        return cls(machine, key) if pipeline.distributions[theta_steps] else None

    @property
    def nbytes(self) -> int:
        """Memory of the states in bytes."""
        return self._streams.nbytes + self._scales.nbytes

    def begin(self, ids: Indices | Sequence[Key]) -> None:
        """Add streams, by number or noise key, before their first value."""
        count = len(ids)
        if isinstance(ids, np.ndarray):
            words = RowWords(theta_key(self._key, self._steps), binding.CHAIN_PIECES)
            chains = binding.start_chains(words, ids)
        else:
            words = RowWords([theta_key(key, self._steps) for key in ids], binding.CHAIN_PIECES, np.arange(count))
            chains = binding.start_chains(words, np.array([key.member - 1 for key in ids]))
        self._reserve(self.size + count)
        new = self._streams[self.size : self.size + count]
        # As numbers of 8 bytes: NumPy copies records one by one.
        new.view(np.int64).reshape(count, -1)[:] = self._first.view(np.int64)
        new["chain"] = chains.reshape(count, binding.CHAIN_WORDS)
        self._scales[self.size : self.size + count] = 0.0
        self.size += count

    def _reserve(self, size: int) -> None:
        if size > self._streams.size:
            size = max(size, self.size + self.size // GROWTH)
            self._streams, self._scales = (_longer(each, self.size, size) for each in (self._streams, self._scales))

    def _reach(self, rows: Indices) -> None:
        """Add the scales that blocks may reach after a value for each of `rows`."""
        if rows.size == 1:
            times = _ONE
        elif rows.size * DENSE > self.size:
            times = np.bincount(rows)
            rows = np.flatnonzero(times)
            times = times[rows]
        else:
            rows, times = np.unique(rows, return_counts=True)
        furthest = int(adaptive_pass.furthest(rows, times, self._streams))
        missing = furthest.bit_length() - self._scales.shape[2]
        if missing > 0:
            self._scales = np.pad(self._scales, ((0, 0), (0, 0), (0, missing)))

    def prepare(self, rows: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        """A call that consumes finite `values`, in order; value i is of row `rows[i]`."""
        self._reach(rows)
        out = np.empty(values.size)
        return partial(self._publish, rows, values, out, min(threads, max(1, values.size // MIN_PER_THREAD)))

    def _publish(self, rows: Indices, values: Floats, out: Floats, threads: int) -> Published:
        """Run the pass on threads that own some of the rows."""
        if threads == 1:
            self._pass(rows, values, out)
            return None, out
        owners = rows % threads

        def work(owner: int) -> None:
            mine = np.flatnonzero(owners == owner)
            part = np.empty(mine.size)
            self._pass(rows[mine], values[mine], part)
            out[mine] = part

        concurrently(threads, work, range(threads))
        return None, out

    def _pass(self, rows: Indices, values: Floats, out: Floats) -> None:
        """Run the kernel, drawing noise whenever blocks close."""
        pipeline, distribution = self._pipeline, self._pipeline.distributions[self._steps]
        assert distribution is not None  # noqa: S101 - `of` has looked
        spikes, done = pipeline.perturber.closing == "spike", 0
        constants = distribution.constants if self._key.given is None else NO_FLOATS
        public = self._public, spikes, pipeline.events, pipeline.shape, pipeline.lengths, constants
        settled: Indices = np.empty(0, np.int64)
        before = None if self._key.drawn is None else self._streams.copy()
        while True:
            done = adaptive_pass.publish_rows(rows, values, done, *public, settled, self._streams, self._scales, out)
            if done == rows.size:
                if before is not None:
                    self._check_moved(np.unique(rows), before)
                return
            stream, steps = (
                self._streams[rows[done]],
                adaptive_pass.in_steps(values[done : done + 1], self._public, pipeline.lengths),
            )
            index, total = int(stream["blocks"]), int(stream["open_sum"]) + int(steps)
            settled = np.array([binding.resolve(distribution, self._key, stream["chain"], index, total)])

    def _check_moved(self, rows: Indices, before: Records) -> None:
        """DrawnTwiceError if a stream closed blocks under the chain key of `before`."""
        now, before = self._streams[rows], before[rows]
        same = (now["chain"] == before["chain"]).all(axis=1)
        if ((now["blocks"] > before["blocks"]) & same).any():
            raise DrawnTwiceError("the chain key of a stream is the same after its blocks")

    def taken(self, rows: Indices, key: Key) -> AdaptiveRows:
        """Independent copy of `rows`, with its own key and record of draws."""
        other = copy.copy(self)
        other._key = key
        other.keep(rows)
        return other

    def keep(self, rows: Indices) -> None:
        """Keep `rows`, renumbered from 0."""
        self._streams, self._scales = self._streams[rows], self._scales[rows]
        self.size = rows.size

    def pack(self) -> tuple[Json, list[Array]]:
        """The states, as JSON and arrays."""
        return {"scales": self._scales.shape[2]}, [self._streams[: self.size], self._scales[: self.size]]

    def unpack(self, size: int, described: Json, take: Take) -> None:
        """Restore states; ValueError if a kernel could not process them."""
        if not 0 <= described["scales"] <= block_lengths.SCALES:
            raise ValueError("a number of scales out of range")
        self.size = size
        self._streams = take(STREAM, (size,))
        self._scales = take(np.float64, (size, BY_SCALE, described["scales"]))
        for row in np.flatnonzero(~self._plausible()):
            raise ValueError(f"stream {row} has a position out of range")

    def _plausible(self) -> NDArray[np.bool_]:
        """True for rows of finite numbers with indices in range."""
        streams, most = self._streams, self._pipeline.shape["most"][0]
        exponents, last, filled, position = (streams[name] for name in ("exponent", "last", "filled", "position"))
        fits: Flags = np.logical_and.reduce([np.isfinite(streams[name]) for name in SINGLES])
        fits &= (exponents >= 0) & (exponents <= most) & (last >= 0) & (last <= most)
        lengths = np.ldexp(1.0, np.where(fits, exponents, 0).astype(np.int64))
        fits &= (filled >= 0) & (filled < lengths) & (streams["blocks"] >= 0)
        fits &= (position >= 0) & (position < 2.0 ** self._scales.shape[2])
        fits &= np.isfinite(self._scales).all(axis=(1, 2))
        return fits

    def join(self, others: Sequence[AdaptiveRows]) -> None:
        """Append other rows of this machine and key."""
        every = [self, *others]
        most = max(rows._scales.shape[2] for rows in every)
        scales = [np.pad(r._scales[: r.size], ((0, 0), (0, 0), (0, most - r._scales.shape[2]))) for r in every]
        self._streams = np.concatenate([rows._streams[: rows.size] for rows in every])
        self._scales = np.concatenate(scales)
        self.size = self._streams.size


def _longer(array: Array, used: int, size: int) -> Array:
    longer = np.empty((size, *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer


# The states of many streams of any machine, one by one.


class MachineRows:
    """Rows of a fleet whose machine has no compiled pass over streams.

    Parameters
    ----------
    machine : Machine
        Of columns of values, or of one value a batch.
    key : Key
        Of the composition, without a stream number.
    """

    def __init__(self, machine: Machine[Any], key: Key) -> None:
        self._machine, self._key = machine, key
        self._keys: list[Key] = []
        self._states: list[Any] = []

    @property
    def size(self) -> int:
        """Number of streams, each with a state."""
        return len(self._states)

    def begin(self, ids: Indices | Sequence[Key]) -> None:
        keys = [self._key.of_stream(each) for each in ids.tolist()] if isinstance(ids, np.ndarray) else list(ids)
        states = [self._machine.start(key) for key in keys]
        self._keys += keys
        self._states += states

    def prepare(self, rows: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        order = np.argsort(rows, kind="stable")
        borders = np.flatnonzero(np.diff(rows[order])) + 1
        made: list[tuple[int, Indices, list[Transition[Any]]]] = []
        # Steps change nothing.
        for places in np.split(order, borders):
            row = int(rows[places[0]])
            try:
                made.append((row, places, self._steps(row, values[places])))
            except DataError as error:
                raise DataError(f"{error} (within the stream of ids[{places[0]}])") from None
        return partial(self._publish, made, values)

    def _publish(self, made: list[tuple[int, Indices, list[Transition[Any]]]], values: Floats) -> Published:
        published, out = np.zeros(values.size, np.bool_), np.empty(values.size)
        for row, places, transitions in made:
            self._states[row] = transitions[-1].state
            # Earlier ones are finished already, in a copy.
            if transitions[-1].finish is not None:
                transitions[-1].finish()
            emitted = np.concatenate([np.atleast_1d(transition.emit()) for transition in transitions])
            last = places[places.size - emitted.size :]
            published[last], out[last] = True, emitted
        return published, out[published]

    def _steps(self, row: int, values: Floats) -> list[Transition[Any]]:
        machine, key, state = self._machine, self._keys[row], self._states[row]
        if machine.SPLITS:
            return [machine.step(state, Column(as_column(values), "values"), key)]
        transitions: list[Transition[Any]] = []
        for value in values:
            transitions.append(machine.step(state, machine.read([value]), key))
            state = machine.settled(transitions[-1].state)
        return transitions

    def taken(self, rows: Indices, key: Key) -> MachineRows:
        other = copy.copy(self)
        other._key = key
        other.keep(rows)
        other._keys = [key.again() for key in other._keys]
        return other

    def keep(self, rows: Indices) -> None:
        self._keys = [self._keys[row] for row in rows.tolist()]
        self._states = [self._states[row] for row in rows.tolist()]

    def pack(self) -> tuple[list[Json], list[Array]]:
        """The states, as JSON and (no) arrays."""
        packed = [self._machine.pack(self._machine.settled(state)) for state in self._states]
        return packed, []

    def unpack(self, keys: list[Key], described: list[Json], take: Take) -> None:
        self._keys = keys
        self._states = [self._machine.unpack(each, key) for each, key in zip(described, keys, strict=True)]

    def join(self, others: Sequence[MachineRows]) -> None:
        self._keys = [key for rows in (self, *others) for key in rows._keys]
        self._states = [state for rows in (self, *others) for state in rows._states]
