"""The states of many streams of any machine, one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_column
from fastdp.data.kinds import Floats, Indices
from fastdp.errors import DataError
from fastdp.noise.key import Key
from fastdp.state.machine import Column, Machine, Transition
from fastdp.streams.adaptive_rows import Published


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
        """How many streams."""
        return len(self._states)

    def begin(self, ids: Indices | Sequence[Key]) -> None:
        """Add streams before their first value: numbers of streams, or the key of each."""
        keys = [self._key.of_stream(each) for each in ids.tolist()] if isinstance(ids, np.ndarray) else list(ids)
        states = [self._machine.start(key) for key in keys]
        self._keys += keys
        self._states += states

    def prepare(self, rows: Indices, values: Floats, threads: int) -> Callable[[], Published]:
        """What consumes finite values, each of the stream in its row, in order; until it is called, nothing has."""
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
            # What earlier ones would finish is settled already, in a copy.
            if transitions[-1].finish is not None:
                transitions[-1].finish()
            emitted = np.concatenate([np.atleast_1d(transition.emit()) for transition in transitions])
            behind = places[places.size - emitted.size :]
            published[behind], out[behind] = True, emitted
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
        """These streams alone, for use instead of this object; ``key`` is its key, with separate checks of draws."""
        other = copy.copy(self)
        other._key = key
        other.keep(rows)
        other._keys = [key.again() for key in other._keys]
        return other

    def keep(self, rows: Indices) -> None:
        """Drop all streams but these, which get the rows 0, 1, 2, ..."""
        self._keys = [self._keys[row] for row in rows.tolist()]
        self._states = [self._states[row] for row in rows.tolist()]

    def pack(self) -> tuple[Any, list[NDArray[Any]]]:
        """The states, as JSON and arrays."""
        packed = [self._machine.pack(self._machine.settled(state)) for state in self._states]
        return packed, []

    def unpack(self, keys: list[Key], described: Any, take: Callable[[Any, tuple[int, ...]], Any]) -> None:
        """The states that were packed."""
        self._keys = keys
        self._states = [self._machine.unpack(each, key) for each, key in zip(described, keys, strict=True)]

    def join(self, others: Sequence[MachineRows]) -> None:
        """Append the streams of other fleets of the same machine and key."""
        self._keys = [key for rows in (self, *others) for key in rows._keys]
        self._states = [state for rows in (self, *others) for state in rows._states]
