"""Many private running sums at once, and selective counting (PHDStream 2024, Algorithm 4, Theorem 4.2).

PHDStream itself calls counters directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np

from fastdp import validation
from fastdp.counters.counter import BinaryTree, Block, Counter, Simple, check_rows, counter_guarantee, noise_scale
from fastdp.data.column import as_array, as_column, entry_at
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.kinds import Indices, Integers, Json, Values
from fastdp.noise import sampler
from fastdp.noise.chain_keys import StepChain, step_key
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.record import Checked, Keyed, PartOf, Real, Whole, constructor, parameter, record, values_of
from fastdp.state import codec
from fastdp.state.codec import COUNT, LIKE_START, expect
from fastdp.state.driver import Publisher
from fastdp.state.machine import Machine, Transition, single_caller
from fastdp.validation import refusal

#: Larger increments are refused: sums of a million of them still fit an int64.
LARGEST = 2**40
#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40
#: Most running sums.
MAX_SIZE = 2**30
#: Counters that a state file may name.
COUNTERS: codec.Parts = {kind.__name__: kind for kind in (Simple, Block, BinaryTree)}


def as_increments(values: Values, size: int) -> Integers:
    """`values` as int64[size]; DataError unless whole and up to 2^40 in size."""
    column = as_column(np.atleast_1d(values) if np.isscalar(values) else values, "values")
    if column.size != size:
        raise DataError(f"values has {column.size} entries: expected {size}")
    odd = ~(np.abs(column.astype(np.float64)) <= LARGEST) | (column != np.floor(column))
    if odd.any():
        entry = entry_at("values", odd, "no whole number, or too large")
        raise DataError(f"{entry}; expected whole numbers of absolute value at most 2^40")
    return column.astype(np.int64)


# Running sums.


@dataclass(frozen=True)
class CountState:
    """State of running sums after ``n_seen`` steps, with the last released sums."""

    n_seen: Annotated[int, Whole(0, MAX_STEPS)]
    #: int64[size, width]. State of the counters.  Secret.
    rows: Annotated[Integers, LIKE_START] = field(repr=False)
    released: Annotated[Integers, LIKE_START] = field(repr=False)
    #: Hash of the input, to which noise is bound.  Secret.
    chain: StepChain = field(repr=False)


@record
class CountMachine(Machine[CountState], Keyed):
    """Transition function of :class:`RunningCounts`."""

    PARTS: ClassVar[codec.Parts] = COUNTERS

    counter: Counter = parameter(PartOf(Counter, "fastdp.counters"))
    epsilon: float = parameter(Real(above=0.0))
    size: int = parameter(Whole(1, MAX_SIZE), default=1)
    rule: ClassVar[int] = 1

    @cached_property
    def distribution(self) -> sampler.LaplaceDistribution:
        return sampler.laplace_distribution(noise_scale(self.counter, Fraction(self.epsilon)))

    def start(self, key: Key) -> CountState:
        rows: Integers = np.zeros((self.size, self.counter.width), np.int64)
        return CountState(0, rows, np.zeros(self.size, np.int64), "")

    def read(self, *batch: Any) -> tuple[Indices, Integers]:
        values, *active = batch
        chosen = self._as_chosen(*active or [None])
        return chosen, as_increments(values, chosen.size)

    def step(self, state: CountState, batch: tuple[Indices, Integers], key: Key) -> Transition[CountState]:
        chosen, increments = batch
        n_seen, rows, released, chain = state.n_seen, state.rows, state.released, state.chain
        if n_seen >= MAX_STEPS:
            raise StateError(f"{n_seen} steps were taken: expected at most 2^40")
        key, chain = step_key(key, chain, n_seen, chosen, increments)
        noise = sampler.draws(chosen.size, self.distribution, key, StreamId(Purpose.CELL, number=n_seen))
        mine = rows[chosen]
        error = self.counter.step(mine, noise)
        rows, released = rows.copy(), released.copy()
        rows[chosen] = mine
        released[chosen] += increments + error
        return Transition(CountState(n_seen + 1, rows, released, chain), partial(released.__getitem__, chosen))

    def _as_chosen(self, active: Values | None) -> Indices:
        if active is None:
            return np.arange(self.size)
        numbers = as_array(active)
        chosen = np.empty((0, 0)) if numbers is None else np.atleast_1d(numbers)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or np.unique(chosen).size != chosen.size:
            raise DataError(f"active is a {type(active).__name__}: expected a row of whole numbers, each once")
        wrong = (chosen < 0) | (chosen >= self.size)
        if wrong.any():
            raise DataError(f"{entry_at('active', wrong, 'no sum')}; expected numbers of sums, 0 to {self.size - 1}")
        return chosen.astype(np.int64)

    def restored(self, state: CountState, key: Key) -> CountState:
        check_rows(self.counter, state.rows)
        return state


class RunningCounts(Publisher[CountState]):
    """Releases running sums of integer streams, each with its own counter.

    Parameters
    ----------
    counter : Counter
        :class:`Simple`, :class:`Block` or :class:`BinaryTree`.
    epsilon : float
        Privacy loss of all releases for a change by one.
    size : int
        Number of running sums.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    An event must enter one sum, once.

    Examples
    --------
    >>> import fastdp
    >>> counter = fastdp.counters.BinaryTree(1024)
    >>> sums = fastdp.counters.RunningCounts(counter, epsilon=1.0, size=2)
    >>> sums.step([120, 0]).shape  # two running sums, with noise
    (2,)
    >>> sums.guarantee.epsilon, sums.n_steps
    (1.0, 1)
    """

    _MACHINE: ClassVar[type] = CountMachine
    counter: Counter
    epsilon: float
    size: int

    @constructor(CountMachine)
    def __init__(self, machine: CountMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def n_steps(self) -> int:
        """Number of steps so far."""
        return self._state.n_seen

    @property
    def released(self) -> Integers:
        """Sums of the last release: int64[size], a copy."""
        return self._state.released.copy()

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee for one event, over all releases."""
        return replace(counter_guarantee(self.counter, self.epsilon), simulated=self._key.simulated)

    @single_caller
    def step(self, values: Values, active: Values | None = None) -> Integers:
        """Count one more value in each active sum, and release these: int64[k].

        Parameters
        ----------
        values : integers, one for each active sum
            The increments.
        active : int64[k], distinct, optional
            The active sums; by default all.

        Raises
        ------
        DataError, StateError
            For values that are not integers, or too many or few, which are not counted; after 2^40 steps.
        """
        released: Integers = self._call(self._machine.read(values, active))
        return released


# Online selective counting (PHDStream Algorithm 4).


@dataclass(frozen=True)
class Selected:
    """The active counter, and its released sums ``counts``."""

    counter: int
    counts: Integers


class Selector(Protocol):
    """Private choice of the active counter."""

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all choices (``event_guarantee``)."""

    def select(self, values: Integers, step: int, last: Selected | None) -> int:
        """Index of the counter for this time.

        Parameters
        ----------
        values : int64[d]
            The input, secret.
        step : int
            Number of this time, from 0, each with fresh noise.
        last : Selected or None
            The release before.
        """


@dataclass(frozen=True)
class SelectiveState:
    """State of all counters; ``choice`` is recorded for replays."""

    n_seen: Annotated[int, COUNT]
    last: Selected | None
    counts: tuple[CountState, ...] = field(repr=False)
    choice: int | None = None


def _as_counters(name: str, counters: object) -> tuple[Counter, ...]:
    if not isinstance(counters, (list, tuple)) or any(isinstance(counter, (str, float)) for counter in counters):
        raise refusal(name, counters, "a list of fastdp.counters")
    validation.integer(f"len({name})", len(counters), 1)
    for counter in counters:
        validation.part("counter", counter, Counter, "fastdp.counters")
    return tuple(counters)


@record
class SelectiveMachine(Machine[SelectiveState], Keyed):
    """Transition function of :class:`SelectiveCounting`."""

    PARTS: ClassVar[codec.Parts] = COUNTERS

    counters: Sequence[Counter] = parameter(Checked(_as_counters))
    selector: Selector = parameter(PartOf(Selector, "fastdp.counters"))
    epsilon: float = parameter(Real(above=0.0))
    _: KW_ONLY
    dimension: int = parameter(Whole(1, MAX_SIZE), default=1)
    rule: ClassVar[int] = 1

    @cached_property
    def machines(self) -> list[CountMachine]:
        return [CountMachine(counter, self.epsilon, self.dimension) for counter in self.counters]

    def start(self, key: Key) -> SelectiveState:
        return SelectiveState(0, None, tuple(machine.start(key) for machine in self.machines))

    def read(self, *batch: Any) -> tuple[Integers]:
        return (as_increments(batch[0], self.dimension),)

    def step(self, state: SelectiveState, batch: tuple[Integers], key: Key) -> Transition[SelectiveState]:
        (increments,) = batch
        choice: object = state.choice
        if choice is None:
            # Not the array that is counted: a selector might write to it.
            choice = self.selector.select(increments.copy(), state.n_seen, state.last)
        most = len(self.counters) - 1
        if not (isinstance(choice, (int, np.integer)) and not isinstance(choice, bool) and 0 <= choice <= most):
            # Its choice may show its input, which is secret.
            raise ParameterError(f"selector chose no counter: expected a whole number from 0 to {most} from select()")
        chosen, counts = int(choice), state.counts
        counter_key = key.derive("counter", chosen)
        made = self.machines[chosen].step(counts[chosen], (np.arange(self.dimension), increments), counter_key)
        selected = Selected(chosen, made.emit())
        counts = (*counts[:chosen], made.state, *counts[chosen + 1 :])
        following = SelectiveState(state.n_seen + 1, selected, counts)
        return Transition(following, lambda: selected, drawn={"choice": chosen})

    def describe(self) -> Json:
        fields = values_of(self, "counters", "epsilon", "dimension")
        return {name: codec.describe_part(value, self.PARTS) for name, value in fields.items()}

    def restored(self, state: SelectiveState, key: Key) -> SelectiveState:
        counters, last = range(len(self.counters)), state.last
        for machine, count in zip(self.machines, state.counts, strict=True):
            machine.restored(count, key)
        chosen = [one for one in (state.choice, last and last.counter) if one is not None]
        if (last is None) != (state.n_seen == 0) or any(one not in counters for one in chosen):
            raise ValueError("a release out of range")
        if last is not None:
            expect(last.counts, state.counts[last.counter].released)
        return state


class SelectiveCounting(Publisher[SelectiveState]):
    """Sends each input to the one counter that a selector names (Algorithm 4).

    Parameters
    ----------
    counters : sequence of Counter
        One for each choice.
    selector : Selector
        A private selector.
    epsilon : float
        epsilon_C: privacy loss of each counter for one event.
    dimension : int
        Numbers that arrive at each time: running sums of a counter.
    seed, key
        As for :func:`fastdp.release`; each counter gets its own key.

    Notes
    -----
    Privacy: epsilon_M + epsilon_C, the selector's and one counter's (Theorem 4.2).

    :meth:`load` and :meth:`from_bytes` take the selector as ``selector``; copies, which would reuse its noise, are
    refused.
    """

    _MACHINE: ClassVar[type] = SelectiveMachine
    counters: tuple[Counter, ...]
    selector: Selector
    epsilon: float
    dimension: int

    @constructor(SelectiveMachine)
    def __init__(self, machine: SelectiveMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def n_steps(self) -> int:
        """Number of times so far."""
        return self._state.n_seen

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the selector and one counter (sequential)."""
        guarantees = [counter_guarantee(counter, self.epsilon) for counter in self.counters]
        derivation = tuple(line for guarantee in guarantees for line in guarantee.derivation)
        worst = replace(guarantees[0], derivation=derivation, simulated=self._key.simulated)
        return sequential(self.selector.guarantee.of("selector"), worst.of("counters"))

    @single_caller
    def step(self, values: Values) -> Selected:
        """Count the input (integer, or int64[dimension]) of one more time; return the active counter and its sums.

        Raises
        ------
        DataError, ParameterError
            For values that are not integers, or of another dimension; if the selector names no counter.
        """
        selected: Selected = self._call(self._machine.read(values))
        return selected

    @classmethod
    def _from_content(cls, content: Json, name: str, *, replay: bool, own: Mapping[str, object]) -> Self:
        if own.get("selector") is None:
            raise ParameterError("selector = None: expected the selector, which a state file does not hold")
        return super()._from_content(content, name, replay=replay, own=own)

    def _fresh(self, key: Key) -> Self:
        raise StateError(
            "a SelectiveCounting cannot be copied: its selector would choose with the same noise for other values; "
            "expected a new one"
        )
