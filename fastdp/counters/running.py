"""Many private running sums at once, usable alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_array, as_column, entry_at
from fastdp.counters.base import Counter, Integers, check_rows, counter_guarantee, noise_scale
from fastdp.counters.binary_tree import BinaryTree
from fastdp.counters.block import Block
from fastdp.counters.simple import Simple
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import check_chain, step_key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Stepwise, expect

#: Steps so far, the counters' rows, the sums as released last, and what noise is bound to (hexadecimal; secret).
State = tuple[int, Integers, Integers, str]
#: Larger increments are refused: sums of a million of them still fit an int64.
LARGEST = 2**40
#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40
#: Counters that a state file may name.
PARTS = {kind.__name__: kind for kind in (Simple, Block, BinaryTree)}


def as_increments(values: Any, size: int) -> Integers:
    """Whole numbers of absolute value at most 2^40, int64[size]; DataError otherwise."""
    column = as_column(np.atleast_1d(values) if np.isscalar(values) else values, "values")
    if column.size != size:
        raise DataError(f"values has {column.size} entries: expected {size}")
    odd = ~(np.abs(column.astype(np.float64)) <= LARGEST) | (column != np.floor(column))
    if odd.any():
        place = entry_at("values", odd, "no whole number, or too large")
        raise DataError(f"{place}; expected whole numbers of absolute value at most 2^40")
    increments: Integers = column.astype(np.int64)
    return increments


class RunningCounts(Stepwise):
    """Running sums of integer streams, each released by a counter of its own.

    Parameters
    ----------
    counter : Counter
        How noise is laid: :class:`Simple`, :class:`Block` or :class:`BinaryTree`.
    epsilon : float
        Privacy loss of the whole sequence of releases for one value that changes by one.
    size : int
        How many running sums.
    seed, key
        As for a publisher.

    Notes
    -----
    An event must enter one running sum, once; then all sums together cost epsilon (disjoint values).
    """

    _PARTS = PARTS
    _STATE: ClassVar[Any] = State
    _state: State

    def __init__(
        self,
        counter: Counter,
        epsilon: float,
        size: int = 1,
        *,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        super().__init__()
        validation.part("counter", counter, Counter, "fastdp.counters")
        self.counter = counter
        self.epsilon = validation.positive("epsilon", epsilon)
        self.size = validation.integer("size", size, 1, 2**30)
        self._law = sampler.discrete_laplace_law(noise_scale(counter, Fraction(self.epsilon)))
        self._key = Key.choose(seed, key).bind("RunningCounts", self._arguments)
        self._state = self.start()

    def start(self) -> State:
        """The state before any step."""
        return 0, np.zeros((self.size, self.counter.width), np.int64), np.zeros(self.size, np.int64), ""

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return self._state[0]

    @property
    def released(self) -> Integers:
        """The sums as released last: int64[size], a copy."""
        return self._state[2].copy()

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event, over all releases."""
        return replace(counter_guarantee(self.counter, self.epsilon), simulated=self._key.simulated)

    @exclusive
    def step(self, values: Any, active: NDArray[np.int64] | None = None) -> Integers:
        """Count one more value in each active running sum.

        Parameters
        ----------
        values : whole numbers, one for each active sum
            The increments.
        active : int64[k], distinct, optional
            Which sums; by default all.

        Returns
        -------
        int64[k]
            The active sums, released.

        Raises
        ------
        DataError
            For values that are no whole numbers, or not as many as active sums; nothing is counted then.
        StateError
            After 2^40 steps.
        """
        chosen = self._as_chosen(active)
        increments = as_increments(values, chosen.size)
        self._check_batch(chosen, increments)
        following, out = self.following(self._state, increments, chosen)
        self._commit(following, chosen, increments)
        return out

    def following(self, state: State, increments: Integers, chosen: Integers) -> tuple[State, Integers]:
        """The state after a step of checked numbers, and what the step releases; changes nothing."""
        step, rows, released, chain = state
        if step >= MAX_STEPS:
            raise StateError(f"{step} steps were taken: expected at most 2^40")
        noise: Integers = np.empty(chosen.size, np.int64)
        key, chain = step_key(self._key, chain, step, chosen, increments)
        sampler.fill(noise, self._law, key, StreamId(Purpose.CELL, number=step))
        mine = rows[chosen]
        error = self.counter.step(mine, noise)
        rows, released = rows.copy(), released.copy()
        rows[chosen] = mine
        released[chosen] += increments + error
        out: Integers = released[chosen]
        return (step + 1, rows, released, chain), out

    def _as_chosen(self, active: Any) -> Integers:
        if active is None:
            return np.arange(self.size)
        found = as_array(active)
        chosen = np.empty((0, 0)) if found is None else np.atleast_1d(found)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.unique(chosen).size != chosen.size:
            raise DataError(f"active is a {type(active).__name__}: expected a row of whole numbers, each once")
        wrong = (chosen < 0) | (chosen >= self.size)
        if wrong.any():
            raise DataError(f"{entry_at('active', wrong, 'no sum')}; expected numbers of sums, 0 to {self.size - 1}")
        return chosen.astype(np.int64)

    # State files.

    @property
    def _consumed(self) -> int:
        return self.n_steps

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"counter": self.counter, "epsilon": self.epsilon, "size": self.size}

    def _packed(self, state: State) -> Any:
        return without_chain(super()._packed(state))

    def _unpacked(self, described: Any) -> State:
        state: State = super()._unpacked(with_chain(described))
        return state

    def _check(self, state: State) -> None:
        self.check_state(state)

    def check_state(self, state: State) -> None:
        """ValueError for a state that no steps leave."""
        for array, like in zip(state[1:3], self.start()[1:3], strict=True):
            expect(array, like)
        check_chain(state[3])
        if not 0 <= state[0] <= MAX_STEPS:
            raise ValueError(f"{state[0]} steps out of range")
        check_rows(self.counter, state[1])


def without_chain(described: Any) -> Any:
    """A state as files of the first noise format hold it, if it has no chain."""
    return described if described[3] else described[:3]


def with_chain(described: Any) -> Any:
    """A state as it is described now: those of the first noise format have no chain."""
    return [*described, ""] if len(described) == 3 else described
