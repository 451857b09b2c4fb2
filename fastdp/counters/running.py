"""Many private running sums at once, usable alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastdp import validation
from fastdp.counters.counter import BinaryTree, Block, Counter, Simple, check_rows, counter_guarantee, noise_scale
from fastdp.data.column import as_array, as_column, entry_at
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Integers
from fastdp.noise import sampler
from fastdp.noise.binding import check_chain, step_key
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.state import codec
from fastdp.state.codec import expect
from fastdp.state.machine import Machine, Transition, single_caller
from fastdp.state.publisher import Publisher

#: Larger increments are refused: sums of a million of them still fit an int64.
LARGEST = 2**40
#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40
#: Counters that a state file may name.
COUNTERS: codec.Parts = {kind.__name__: kind for kind in (Simple, Block, BinaryTree)}


def as_increments(values: Any, size: int) -> Integers:
    """Whole numbers of absolute value at most 2^40, int64[size]; DataError otherwise."""
    column = as_column(np.atleast_1d(values) if np.isscalar(values) else values, "values")
    if column.size != size:
        raise DataError(f"values has {column.size} entries: expected {size}")
    odd = ~(np.abs(column.astype(np.float64)) <= LARGEST) | (column != np.floor(column))
    if odd.any():
        place = entry_at("values", odd, "no whole number, or too large")
        raise DataError(f"{place}; expected whole numbers of absolute value at most 2^40")
    return column.astype(np.int64)


class CountState(NamedTuple):
    """Where running sums stand.

    Attributes
    ----------
    n_seen : int
        Steps so far.
    rows : int64[size, width]
        The counters' rows.  Secret.
    released : int64[size]
        The sums as released last.
    chain : str
        What noise is bound to (hexadecimal).  Secret.
    """

    n_seen: int
    rows: Integers
    released: Integers
    chain: str

    def __repr__(self) -> str:
        return f"CountState(n_seen={self.n_seen})"


@dataclass(frozen=True)
class CountMachine(Machine[CountState]):
    """Running sums as a machine.

    Attributes
    ----------
    counter, epsilon, size
        As of :class:`RunningCounts`.
    """

    PARTS: ClassVar[codec.Parts] = COUNTERS

    counter: Counter
    epsilon: float
    size: int = 1
    rule: ClassVar[int] = 1

    @cached_property
    def law(self) -> sampler.LaplaceDistribution:
        """Of each node's noise."""
        return sampler.laplace_distribution(noise_scale(self.counter, Fraction(self.epsilon)))

    def start(self, key: Key) -> CountState:
        """Before any step."""
        rows: Integers = np.zeros((self.size, self.counter.width), np.int64)
        return CountState(0, rows, np.zeros(self.size, np.int64), "")

    def read(self, *batch: Any) -> tuple[Integers, Integers]:
        """The active sums, and their increments."""
        values, *active = batch
        chosen = self._as_chosen(*active or [None])
        return chosen, as_increments(values, chosen.size)

    def step(self, state: CountState, batch: Any, key: Key) -> Transition[CountState]:
        """Count the increments, and release the active sums."""
        chosen, increments = batch
        n_seen, rows, released, chain = state
        if n_seen >= MAX_STEPS:
            raise StateError(f"{n_seen} steps were taken: expected at most 2^40")
        key, chain = step_key(key, chain, n_seen, chosen, increments)
        noise = sampler.draws(chosen.size, self.law, key, StreamId(Purpose.CELL, number=n_seen))
        mine = rows[chosen]
        error = self.counter.step(mine, noise)
        rows, released = rows.copy(), released.copy()
        rows[chosen] = mine
        released[chosen] += increments + error
        return Transition(CountState(n_seen + 1, rows, released, chain), partial(released.__getitem__, chosen))

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

    def unpack(self, packed: dict[str, Any], key: Key) -> CountState:
        """The state that was packed."""
        state = self.unpacked(packed["state"], key)
        if state.n_seen != codec.require_int(packed["n_seen"]):
            raise ValueError("a position out of range")
        return state

    def unpacked(self, described: Any, key: Key) -> CountState:
        """The state that was described, field by field."""
        state = CountState(*codec.restore(tuple[int, Integers, Integers, str], described))
        like = self.start(key)
        expect(state.rows, like.rows)
        expect(state.released, like.released)
        check_chain(state.chain)
        if not 0 <= state.n_seen <= MAX_STEPS:
            raise ValueError(f"{state.n_seen} steps out of range")
        check_rows(self.counter, state.rows)
        return state


class RunningCounts(Publisher[CountState]):
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

    _MACHINE: ClassVar[Any] = CountMachine
    _machine: CountMachine

    def __init__(
        self,
        counter: Counter,
        epsilon: float,
        size: int = 1,
        *,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        validation.part("counter", counter, Counter, "fastdp.counters")
        machine = CountMachine(
            counter, validation.positive("epsilon", epsilon), validation.integer("size", size, 1, 2**30)
        )
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def counter(self) -> Counter:
        """How noise is laid."""
        return self._machine.counter

    @property
    def epsilon(self) -> float:
        """The privacy budget of one sum."""
        return self._machine.epsilon

    @property
    def size(self) -> int:
        """How many running sums."""
        return self._machine.size

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return self._state.n_seen

    @property
    def released(self) -> Integers:
        """The sums as released last: int64[size], a copy."""
        return self._state.released.copy()

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event, over all releases."""
        return replace(counter_guarantee(self.counter, self.epsilon), simulated=self._key.simulated)

    @single_caller
    def step(self, values: Any, active: Integers | None = None) -> Integers:
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
        released: Integers = self._call(self._machine.read(values, active))
        return released
