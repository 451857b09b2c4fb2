"""What every counter offers, and counters at work: many running sums, of which any few are active at a time."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol, runtime_checkable

from fastdp.arrays.kinds import Integers
from fastdp.guarantee import Guarantee


class Counter(Protocol):
    """A private running sum (PHDStream Definition 4.1), as the error that it adds: released = true sum + error.

    A counter never sees the values.  What it remembers of one running sum is a row of ``width`` integers, so that the
    state of a million running sums is one array.
    """

    @property
    def width(self) -> int:
        """Integers of state for each running sum; all 0 at first, the first one above 0 while noise is open."""

    @property
    def draws(self) -> int:
        """In how many noisy sums a value enters at most: noise of scale draws / epsilon gives epsilon in all."""

    @property
    def settles(self) -> bool:
        """Whether a running sum that is left, for a while or for good, takes back its open noise."""

    def step(self, state: Integers, noise: Integers) -> Integers:
        """One more value for each of n running sums.

        Parameters
        ----------
        state : int64[n, width]
            Changed in place.
        noise : int64[n]
            Fresh independent noise of scale draws / epsilon.

        Returns
        -------
        int64[n]
            By how much the error of each released sum changes.
        """

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """Take back the open noise of running sums that are left: only called if :attr:`settles`.

        Parameters and result as :meth:`step`; the state is 0 afterwards, as before the first value.
        """


@runtime_checkable
class CheckedCounter(Protocol):
    """A counter that checks which rows it may have, before rows of a state file are used."""

    def check(self, state: Integers) -> None:
        """ValueError unless each row, int64[n, width], is one that steps can leave."""


def check_rows(counter: Counter, state: Integers) -> None:
    """ValueError for rows that the counter says it cannot have; counters of one's own need not say."""
    if isinstance(counter, CheckedCounter):
        counter.check(state)


def noise_scale(counter: Counter, epsilon: Fraction) -> Fraction:
    """Scale of a counter's noise for sums of integers: draws / epsilon."""
    return counter.draws / epsilon


def event_guarantee(epsilon: float, *derivation: str) -> Guarantee:
    """A pure, exact guarantee for one event of a stream of additions and removals (PHDStream section 2.1)."""
    return Guarantee(
        epsilon=epsilon,
        unit="one event (one addition or one removal)",
        adjacency="add or remove one event",
        arithmetic="exact",
        derivation=derivation,
    )


def counter_guarantee(counter: Counter, epsilon: float) -> Guarantee:
    """What the whole sequence of released sums promises: epsilon for one value that changes by one."""
    sums = "one noisy sum" if counter.draws == 1 else f"at most {counter.draws} noisy sums"
    scale = "1 / epsilon" if counter.draws == 1 else f"{counter.draws} / epsilon"
    return event_guarantee(epsilon, f"{type(counter).__name__}: an event enters {sums}, noise of scale {scale}")
