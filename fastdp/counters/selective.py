"""Online selective counting: a private selector says at each time which counter counts (PHDStream Algorithm 4)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.counters.base import Counter
from fastdp.counters.running import PARTS, RunningCounts, State, as_increments, with_chain, without_chain
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.randomness.canonical import identity, part_name
from fastdp.randomness.key import Key
from fastdp.state.persistence import Position
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Stepwise, expect

Integers = NDArray[np.int64]


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


class SelectiveCounting(Stepwise):
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

    A state file does not hold the selector: :meth:`load` takes it.  Nor can a copy give it noise of its own, so there
    are none.
    """

    _PARTS = PARTS
    _STATE: ClassVar[Any] = tuple[int, Selected | None, tuple[State, ...]]
    _state: tuple[int, Selected | None, tuple[State, ...]]

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
        super().__init__()
        validation.integer("len(counters)", len(counters), 1)
        validation.part("selector", selector, Selector, "fastdp.counters")
        self.counters = tuple(counters)
        self.selector = selector
        self.dimension = validation.integer("dimension", dimension, 1, 2**30)
        self.epsilon = validation.positive("epsilon", epsilon)
        described = {**self._arguments, "selector": _described(selector)}
        own = self._key = Key.choose(seed, key).bind("SelectiveCounting", described)
        self._counts = [
            RunningCounts(counter, self.epsilon, self.dimension, key=own.derive("counter", number))
            for number, counter in enumerate(counters)
        ]
        self._state = (0, None, tuple(c.start() for c in self._counts))
        # The selector's choice where a replay is due: it must not choose again.
        self._choice: int | None = None

    @property
    def n_steps(self) -> int:
        """Times so far."""
        return self._state[0]

    @property
    def guarantee(self) -> Guarantee:
        """The selector's epsilon plus one counter's."""
        own = self._counts[0].guarantee
        worst = replace(own, derivation=tuple(line for c in self._counts for line in c.guarantee.derivation))
        return sequential(self.selector.guarantee.of("selector"), worst.of("counters"))

    @exclusive
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
        increments = as_increments(values, self.dimension)
        self._check_batch(increments)
        step, last, states = self._state
        # An interrupt may have left it behind its replay.
        choice = None if self._replay is None else self._choice
        if choice is None:
            # Not the array that is counted: a selector might write to it.
            choice = self.selector.select(increments.copy(), step, last)
        chosen = self._as_choice(choice)
        state, sums = self._counts[chosen].following(states[chosen], increments, np.arange(self.dimension))
        selected = Selected(chosen, sums)
        following = (step + 1, selected, (*states[:chosen], state, *states[chosen + 1 :]))
        self._commit(following, increments, choice=chosen)
        self._choice = None
        return selected

    def _as_choice(self, choice: Any) -> int:
        """The counter's number; what a selector has seen is secret, so an error does not show its choice."""
        most = len(self._counts) - 1
        if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool) and 0 <= choice <= most:
            return int(choice)
        raise ParameterError(f"selector chose no counter: expected a whole number from 0 to {most} from select()")

    # State files.

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        key: bytes | str | None = None,
        *,
        replay: bool = False,
        moved: bool = False,
        selector: Selector | None = None,
    ) -> Self:
        """A publisher that continues exactly where a saved one stood.

        Parameters
        ----------
        path, key, replay, moved
            As for :meth:`fastdp.StreamPublisher.load`.
        selector : Selector
            The one that the publisher was made with: continuing is up to it, a replay does not ask it again.

        Raises
        ------
        ParameterError
            Without a selector.
        StateError
            If the file is missing, cut short, altered, a copy, of another version or class, or the key is wrong.
        """
        if selector is None:
            raise ParameterError("selector = None: expected the selector, which a state file does not hold")
        return cls._load(path, key, replay, moved, selector=selector)

    @property
    def _consumed(self) -> int:
        return self.n_steps

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"counters": self.counters, "epsilon": self.epsilon, "dimension": self.dimension}

    def _fresh(self, key: Key) -> Self:
        raise StateError(
            "a SelectiveCounting cannot be copied: its selector would choose with the same noise for other values; "
            "expected a new one"
        )

    def _packed(self, state: tuple[int, Selected | None, tuple[State, ...]]) -> Any:
        step, last, states = super()._packed(state)
        return [step, last, list(map(without_chain, states))]

    def _unpacked(self, described: Any) -> tuple[int, Selected | None, tuple[State, ...]]:
        step, last, states = described
        state: tuple[int, Selected | None, tuple[State, ...]] = super()._unpacked(
            [step, last, list(map(with_chain, states))]
        )
        return state

    def _check(self, state: tuple[int, Selected | None, tuple[State, ...]]) -> None:
        step, last, states = state
        for counts, part in zip(self._counts, states, strict=True):
            counts.check_state(part)
        if (last is None) != (step == 0) or step != sum(part[0] for part in states):
            raise ValueError("a release out of range")
        if last is not None:
            expect(last.counts, states[range(len(states))[last.counter]][2])

    def _resume(self, saved: Position) -> None:
        super()._resume(saved)
        choice = saved.get("choice")
        self._choice = None if choice is None else range(len(self._counts))[choice]


def _described(selector: Selector) -> Any:
    """What joins the counters' key: the selector's parameters, or its class where they cannot be read."""
    try:
        return identity(selector)
    except TypeError:
        return part_name(selector)
