"""Online selective counting: a private selector says at each time which counter counts (PHDStream Algorithm 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from fastdp import validation
from fastdp.counters.counter import Counter, counter_guarantee
from fastdp.counters.running import COUNTERS, CountMachine, CountState, as_increments
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.kinds import Integers
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.codec import expect
from fastdp.state.machine import Machine, Transition, single_caller
from fastdp.state.publisher import Publisher


@dataclass(frozen=True)
class Selected:
    """One release of selective counting.

    Attributes
    ----------
    counter : int
        Index of the counter that was active.
    counts : int64[k]
        Its running sums after this time.
    """

    counter: int
    counts: Integers


class Selector(Protocol):
    """Chooses the active counter, privately."""

    @property
    def guarantee(self) -> Guarantee:
        """What its whole sequence of choices promises, whatever outputs it is shown (``event_guarantee``)."""

    def select(self, values: Integers, step: int, last: Selected | None) -> int:
        """Index of the counter for this time.

        Parameters
        ----------
        values : int64[d]
            The input of this time.  Secret.
        step : int
            Number of this time, from 0; fresh noise for each.
        last : Selected or None
            The release before.
        """


class SelectiveState(NamedTuple):
    """Where selective counting stands.

    Attributes
    ----------
    n_seen : int
        Times so far.
    last : Selected or None
        The release before.
    counts : tuple of CountState
        Of each counter.
    choice : int or None
        The selector's choice where a replay is due: it must not choose again.
    """

    n_seen: int
    last: Selected | None
    counts: tuple[CountState, ...]
    choice: int | None = None


@dataclass(frozen=True)
class SelectiveMachine(Machine[SelectiveState]):
    """Selective counting as a machine.

    Attributes
    ----------
    counters, epsilon, dimension, selector
        As of :class:`SelectiveCounting`.
    """

    PARTS: ClassVar[codec.Parts] = COUNTERS

    counters: tuple[Counter, ...]
    epsilon: float
    dimension: int
    selector: Selector
    rule: ClassVar[int] = 1

    @cached_property
    def machines(self) -> list[CountMachine]:
        """Of each counter."""
        return [CountMachine(counter, self.epsilon, self.dimension) for counter in self.counters]

    def start(self, key: Key) -> SelectiveState:
        """Before the first time."""
        return SelectiveState(0, None, tuple(machine.start(key) for machine in self.machines))

    def read(self, *batch: Any) -> tuple[Integers]:
        """The input of one time."""
        return (as_increments(batch[0], self.dimension),)

    def step(self, state: SelectiveState, batch: Any, key: Key) -> Transition[SelectiveState]:
        """Ask the selector, unless a replay knows its choice, and count there."""
        (increments,) = batch
        choice = state.choice
        if choice is None:
            # Not the array that is counted: a selector might write to it.
            choice = self.selector.select(increments.copy(), state.n_seen, state.last)
        chosen = self._as_choice(choice)
        counts, own = state.counts, key.derive("counter", chosen)
        made = self.machines[chosen].step(counts[chosen], (np.arange(self.dimension), increments), own)
        selected = Selected(chosen, made.emit())
        counts = (*counts[:chosen], made.state, *counts[chosen + 1 :])
        emit: Callable[[], Selected] = lambda: selected  # noqa: E731 - one value, as it is
        return Transition(SelectiveState(state.n_seen + 1, selected, counts), emit, drawn={"choice": chosen})

    def _as_choice(self, choice: Any) -> int:
        """The counter's number; what a selector has seen is secret, so an error does not show its choice."""
        most = len(self.counters) - 1
        if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool) and 0 <= choice <= most:
            return int(choice)
        raise ParameterError(f"selector chose no counter: expected a whole number from 0 to {most} from select()")

    # State files.

    def describe(self) -> dict[str, Any]:
        """Counters and parameters; the selector is given again at loading."""
        counters = codec.describe_part(self.counters, self.PARTS)
        return {"counters": counters, "epsilon": self.epsilon, "dimension": self.dimension}

    @classmethod
    def from_description(cls, description: dict[str, Any], **own: Any) -> Self:
        """The machine that was described, with the selector."""
        counters = tuple(codec.build_part(description["counters"], cls.PARTS))
        return cls(counters, description["epsilon"], description["dimension"], own["selector"])

    def pack(self, state: SelectiveState) -> dict[str, Any]:
        """The state as JSON."""
        described = [state.n_seen, codec.describe(state.last), codec.describe(state.counts)]
        return {"n_seen": state.n_seen, "state": described}

    def unpack(self, packed: dict[str, Any], key: Key) -> SelectiveState:
        """The state that was packed, with the selector's choice where a replay is due."""
        step, last, counts = packed["state"]
        parts = tuple(machine.unpacked(each, key) for machine, each in zip(self.machines, counts, strict=True))
        shown = codec.restore(Selected | None, last)
        if codec.require_int(step) != packed["n_seen"] or (shown is None) != (step == 0):
            raise ValueError("a release out of range")
        if shown is not None:
            expect(shown.counts, parts[range(len(parts))[shown.counter]].released)
        choice = packed.get("choice")
        return SelectiveState(step, shown, parts, None if choice is None else range(len(parts))[choice])


class SelectiveCounting(Publisher[SelectiveState]):
    """Algorithm 4: at each time the input goes to the one counter that the selector names.

    Parameters
    ----------
    counters : sequence of Counter
        Any counters, one for each choice.
    selector : Selector
        A private selector.
    epsilon : float
        epsilon_C: privacy loss of each counter for one event.
    dimension : int
        Numbers that come at each time; each counter counts them all, in as many running sums.
    seed, key
        As for a publisher.  Each counter gets a key of its own.

    Notes
    -----
    Theorem 4.2: epsilon_M + epsilon_C.  The joint law of choices and sums is the product of one factor of the
    selector and one of each counter.  An event changes the selector's factor by at most e^epsilon_M and that of the
    one counter whose input it enters by at most e^epsilon_C (proof: ``docs/privacy.md``, section 8).

    A state file does not hold the selector: :meth:`load` and :meth:`from_bytes` take it as ``selector``.  Nor can a
    copy give it noise of its own, so there
    are none.
    """

    _MACHINE: ClassVar[Any] = SelectiveMachine
    _machine: SelectiveMachine

    def __init__(
        self,
        counters: Sequence[Counter],
        selector: Selector,
        epsilon: float,
        *,
        dimension: int = 1,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        if not isinstance(counters, (list, tuple)) or any(isinstance(each, (str, float)) for each in counters):
            raise ParameterError(f"counters = {validation.shown(counters)}: expected a list of fastdp.counters")
        validation.integer("len(counters)", len(counters), 1)
        for counter in counters:
            validation.part("counter", counter, Counter, "fastdp.counters")
        validation.part("selector", selector, Selector, "fastdp.counters")
        checked = validation.integer("dimension", dimension, 1, 2**30)
        machine = SelectiveMachine(tuple(counters), validation.positive("epsilon", epsilon), checked, selector)
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def counters(self) -> tuple[Counter, ...]:
        """One for each choice."""
        return self._machine.counters

    @property
    def selector(self) -> Selector:
        """The private selector."""
        return self._machine.selector

    @property
    def epsilon(self) -> float:
        """Privacy loss of each counter for one event."""
        return self._machine.epsilon

    @property
    def dimension(self) -> int:
        """Numbers that each counter counts."""
        return self._machine.dimension

    @property
    def n_steps(self) -> int:
        """Times so far."""
        return self._state.n_seen

    @property
    def guarantee(self) -> Guarantee:
        """The selector's epsilon plus one counter's."""
        each = [counter_guarantee(counter, self.epsilon) for counter in self.counters]
        derivation = tuple(line for guarantee in each for line in guarantee.derivation)
        worst = replace(each[0], derivation=derivation, simulated=self._key.simulated)
        return sequential(self.selector.guarantee.of("selector"), worst.of("counters"))

    @single_caller
    def step(self, values: Any) -> Selected:
        """Count the input of one more time.

        Parameters
        ----------
        values : whole number, or int64[dimension]
            The input.

        Returns
        -------
        Selected
            Which counter was active, and its sums.

        Raises
        ------
        DataError
            For values that are no whole numbers or of another dimension.
        ParameterError
            If the selector names a counter that does not exist; nothing is counted then.
        """
        selected: Selected = self._call(self._machine.read(values))
        return selected

    @classmethod
    def _from_content(cls, content: dict[str, Any], name: str, *, replay: bool, own: Mapping[str, Any]) -> Self:
        if own.get("selector") is None:
            raise ParameterError("selector = None: expected the selector, which a state file does not hold")
        return super()._from_content(content, name, replay=replay, own=own)

    def _fresh(self, key: Key) -> Self:
        raise StateError(
            "a SelectiveCounting cannot be copied: its selector would choose with the same noise for other values; "
            "expected a new one"
        )
