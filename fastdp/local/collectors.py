"""Collectors add up reports as integers on the server (ToPS section 4, Appendix E).

Senders are not trusted.
"""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, Unpack

import numpy as np

from fastdp import validation
from fastdp.data import column as columns
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Integers, NumberColumn
from fastdp.local.encoding import as_bytes, read_messages
from fastdp.local.mechanisms import (
    Hybrid,
    LogSquareWave,
    MeanMechanism,
    Mechanism,
    Piecewise,
    SquareWave,
    StochasticRounding,
)
from fastdp.noise.key import Key
from fastdp.record import Kind, Whole, parameter, record
from fastdp.state import codec
from fastdp.state.codec import COUNT, DERIVED, LIKE_START
from fastdp.state.driver import Publisher
from fastdp.state.machine import Machine, Transition, single_caller
from fastdp.validation import refusal

if TYPE_CHECKING:
    from fastdp.local.distribution import Distribution, EstimateOptions, Method

#: Mechanisms that a state file may name.
MECHANISMS: codec.Parts = {
    kind.__name__: kind for kind in (SquareWave, LogSquareWave, StochasticRounding, Piecewise, Hybrid)
}
#: Most reports in one cell or slot: sums of reports, below 2^22 each, stay below 2^62.
MAX_REPORTS = 2**40
MAX_SLOTS = 2**30

M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True)
class Refused:
    """Numbers of refused reports, out of range, and messages, malformed or for another mechanism."""

    reports: Annotated[int, COUNT] = 0
    messages: Annotated[int, COUNT] = 0

    @property
    def counts(self) -> tuple[int, int]:
        return self.reports, self.messages

    def plus(self, reports: int, messages: int) -> Refused:
        return Refused(self.reports + reports, self.messages + messages)


NONE_REFUSED = Refused()


def as_fingerprint_inputs(raw: Sequence[object]) -> tuple[Array | bytes, ...]:
    """Convert raw input to bytes or floats."""
    return tuple(
        bytes(entry) if isinstance(entry, (bytes, bytearray, memoryview)) else np.asarray(entry, np.float64)
        for entry in raw
    )


def as_most_reports(most_reports: object) -> int | None:
    """Check the limit of reports per message."""
    return None if most_reports is None else validation.integer("most_reports", most_reports, 0)


class Counted(NamedTuple):
    """A batch: reports with slots, refused counts, input of the fingerprint."""

    reports: list[tuple[Integers, Integers]]
    refused_reports: int
    refused_messages: int
    raw: tuple[object, ...]


@dataclass(frozen=True)
class Tally:
    """Totals, refused counts, and pending reports, which :meth:`CollectorMachine.finish` adds."""

    totals: Annotated[Integers, LIKE_START]
    refused: Refused = NONE_REFUSED
    pending: Annotated[list[tuple[Integers, Integers]], DERIVED] = field(default_factory=list)


@dataclass(frozen=True)
class CollectorMachine(Machine[Tally], Generic[M]):
    """Transition function of :class:`Collector`."""

    PARTS: ClassVar[codec.Parts] = MECHANISMS
    mechanism: M

    @property
    def slots(self) -> int:
        return 1

    @abstractmethod
    def zeros(self) -> Integers: ...

    @abstractmethod
    def count(self, totals: Integers) -> int: ...

    @abstractmethod
    def check_totals(self, totals: Integers) -> None: ...

    @abstractmethod
    def adds(self, totals: Integers, reports: Integers, slots: Integers) -> list[Callable[[], object]]:
        """Calls of compiled code that add reports in place."""

    def start(self, key: Key) -> Tally:
        return Tally(self.zeros())

    def read(self, *batch: object) -> Counted:
        """Check reports, and one slot for all or for each."""
        reports, slot = batch
        column = columns.as_column([reports] if columns.is_number(reports) else reports, "reports")
        if column.dtype.kind == "b":
            raise DataError("reports holds bool entries: expected whole numbers")
        slots = columns.as_array(slot)
        if slots is None or slots.dtype.kind not in "iu" or slots.shape not in ((), column.shape):
            raise ParameterError(f"slot is a {type(slot).__name__}: expected a whole number, or one for each report")
        wrong = (slots < 0) | (slots >= self.slots)
        if wrong.any():
            entry = columns.entry_at("slot", np.atleast_1d(wrong), "out of range")
            raise ParameterError(f"{entry}; expected 0 to {self.slots - 1}")
        good = self._good(column, slots)
        return Counted([good], column.size - good[0].size, 0, (column, slots))

    def read_messages(self, data: bytes | bytearray | memoryview, slot: int, most_reports: int | None) -> Counted:
        reports, refused = read_messages(data, self.mechanism, most_reports)
        good = self._good(reports, np.asarray(slot))
        raw = as_bytes(data), str((slot, most_reports)).encode()
        return Counted([good], reports.size - good[0].size, refused, raw)

    def _good(self, column: Array, slots: Array) -> tuple[Integers, Integers]:
        good = (column >= 0) & (column < self.mechanism.n_outputs)
        if column.dtype.kind == "f":
            # Numbers too long for 64 bits came as floats; so did NaN, which compares as False.
            good &= column == np.floor(column)
        return column[good].astype(np.int64), np.broadcast_to(slots, column.shape)[good].astype(np.int64)

    def parts(self, batch: Counted) -> tuple[Array | bytes, ...]:
        return as_fingerprint_inputs(batch.raw)

    def step(self, state: Tally, batch: Counted, key: Key) -> Transition[Tally]:
        count = sum([reports.size for reports, _ in batch.reports])
        refused = state.refused.plus(batch.refused_reports, batch.refused_messages)
        after = Tally(state.totals, refused, [*state.pending, *batch.reports])
        return Transition(after, lambda: count, partial(self.finish, after))

    def finish(self, state: Tally) -> None:
        adds = [add for waiting in state.pending for add in self.adds(state.totals, *waiting)]
        # One call of the interpreter, so that no interrupt can occur between the additions.
        list(map(operator.call, [*adds, state.pending.clear]))

    def settled(self, state: Tally) -> Tally:
        if not state.pending:
            return state
        complete = Tally(state.totals.copy(), state.refused, state.pending.copy())
        self.finish(complete)
        return complete

    def merged(self, *states: Tally) -> Tally:
        totals, refused = self.zeros(), NONE_REFUSED
        for state in states:
            totals += self.settled(state).totals
            refused = refused.plus(*state.refused.counts)
        self.check_totals(totals)
        return Tally(totals, refused)

    def n_reports(self, state: Tally) -> int:
        return self.count(state.totals) + sum([reports.size for reports, _ in state.pending])

    def consumed(self, state: Tally) -> int:
        return self.n_reports(state) + state.refused.reports + state.refused.messages

    def rekeyed(self, state: Tally, key: Key) -> Tally:
        complete = self.settled(state)
        return Tally(complete.totals.copy(), complete.refused)

    def restored(self, state: Tally, key: Key) -> Tally:
        self.check_totals(state.totals)
        return state


K = TypeVar("K", bound=CollectorMachine[Any])


class Collector(Publisher[Tally], Generic[K]):
    """Collects reports."""

    #: Reports are private already.
    _PUBLIC: ClassVar[bool] = True
    _machine: K

    @property
    def mechanism(self) -> Mechanism:
        """The announced mechanism."""
        announced: Mechanism = self._machine.mechanism
        return announced

    @property
    def totals(self) -> Integers:
        """Counts, int64[bins], or numbers and sums, int64[slots, terms, 2]."""
        return self._machine.settled(self._state).totals

    @property
    def refused(self) -> Refused:
        """Numbers of refused reports and messages."""
        return self._state.refused

    @property
    def n_reports(self) -> int:
        """Number of reports in range."""
        return self._machine.n_reports(self._state)

    @property
    def fingerprint(self) -> bytes:
        """Mechanism, totals and refused counts as bytes."""
        return repr((self._machine, self.refused)).encode() + self.totals.tobytes()

    @single_caller
    def add(self, reports: int | NumberColumn, slot: int | NumberColumn = 0) -> int:
        """Collect reports; return the number in range.

        Parameters
        ----------
        reports : int, or one column of them
            Reports out of range are counted in ``refused.reports``.
        slot : int or int[n]
            In 0..slots - 1: one for all, or one per report.
        """
        count: int = self._call(self._machine.read(reports, slot))
        return count

    @single_caller
    def receive(self, data: bytes | bytearray | memoryview, slot: int = 0, *, most_reports: int | None = None) -> int:
        """Collect a buffer of messages (:func:`fastdp.local.encode`); return the number of reports in range.

        ``refused.messages`` counts messages of another mechanism, epsilon or domain, messages of more than
        `most_reports`, and a malformed one, which ends the buffer.
        """
        checked = validation.integer("slot", slot, 0, self._machine.slots - 1)
        count: int = self._call(self._machine.read_messages(data, checked, as_most_reports(most_reports)))
        return count

    def merge(self, *others: Self) -> Self:
        """Return a collector of all reports; ParameterError for another kind."""
        for other in others:
            if type(other) is not type(self) or other._machine != self._machine:
                raise ParameterError(
                    f"others holds another {type(other).__name__}: expected collectors like {self!r}"
                )
        merged = self._of(self._machine, Key.choose(None, None))
        merged._state = self._machine.merged(self._state, *(other._state for other in others))
        return merged

    def __repr__(self) -> str:
        machine = repr(self._machine).partition("(")[2][:-1]
        return f"{type(self).__name__}({machine}, n_reports={self.n_reports})"


@record
class HistogramMachine(CollectorMachine[SquareWave]):
    """Counts square-wave reports by cell."""

    rule: ClassVar[int] = 1

    mechanism: SquareWave = parameter(Kind())
    bins: int = parameter(Whole(1, SquareWave.STEPS), default=1024)

    def _check(self) -> None:
        if not isinstance(self.mechanism, SquareWave):
            raise refusal("mechanism", self.mechanism, "a fastdp.local.SquareWave")

    def zeros(self) -> Integers:
        return np.zeros(self.bins, np.int64)

    def count(self, totals: Integers) -> int:
        return int(totals.sum())

    def check_totals(self, totals: Integers) -> None:
        if totals.min() < 0 or totals.max() > MAX_REPORTS:
            raise ParameterError(f"totals of a collector: expected counts from 0 to {MAX_REPORTS}")

    def adds(self, totals: Integers, reports: Integers, slots: Integers) -> list[Callable[[], object]]:
        # Cell k holds the outputs j with floor(j bins / M) = k, as the estimate's matrix has it.
        cells = reports * totals.size // self.mechanism.n_outputs
        return [partial(np.add, totals, np.bincount(cells, minlength=totals.size), totals)]


class HistogramCollector(Collector[HistogramMachine]):
    """Counts square-wave reports by cell, to estimate the distribution of values.

    Parameters
    ----------
    mechanism : SquareWave
        Announced to the clients.
    bins : int
        Output cells, and bins of the estimate.

    Examples
    --------
    >>> from fastdp.local import HistogramCollector, SquareWave
    >>> mechanism = SquareWave(1.0, 0.0, 44.0)
    >>> collector = HistogramCollector(mechanism, bins=64)
    >>> collector.add(mechanism.perturb([12.5, 3.0, 40.0]))
    3
    """

    _MACHINE = HistogramMachine

    @validation.spelled
    def __init__(self, mechanism: SquareWave, bins: int = 1024) -> None:
        self._begin(HistogramMachine(mechanism, bins), Key.choose(None, None))

    @property
    def bins(self) -> int:
        """Output cells."""
        return self._machine.bins

    def estimate(
        self, method: Method = "em", bins: int | None = None, **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """Estimate the distribution, by default in :attr:`bins` bins, as :meth:`SquareWave.estimate_counts`."""
        wanted = self.bins if bins is None else bins
        return self._machine.mechanism.estimate_counts(self.totals, wanted, method, **options)


@record
class SumMachine(CollectorMachine[MeanMechanism]):
    """Adds up reports by slot and term."""

    rule: ClassVar[int] = 1

    mechanism: MeanMechanism = parameter(Kind())
    slots: int = parameter(Whole(1, MAX_SLOTS), default=1)

    def _check(self) -> None:
        if not isinstance(self.mechanism, MeanMechanism):
            raise refusal("mechanism", self.mechanism, "StochasticRounding, Piecewise or Hybrid")

    def zeros(self) -> Integers:
        return np.zeros((self.slots, len(self.mechanism.distribution.terms()), 2), np.int64)

    def count(self, totals: Integers) -> int:
        return int(totals[:, :, 0].sum())

    def adds(self, totals: Integers, reports: Integers, slots: Integers) -> list[Callable[[], object]]:
        adds: list[Callable[[], object]] = []
        for k, term in enumerate(self.mechanism.distribution.terms()):
            mine = (reports >= term.first) & (reports < term.last)
            adds.append(partial(np.add.at, totals[:, k, 0], slots[mine], 1))
            adds.append(partial(np.add.at, totals[:, k, 1], slots[mine], reports[mine]))
        return adds

    def check_totals(self, totals: Integers) -> None:
        terms, counts, sums = self.mechanism.distribution.terms(), totals[:, :, 0], totals[:, :, 1]
        first = np.array([term.first for term in terms])
        last = np.array([term.last - 1 for term in terms])
        # At most 2^40 reports of less than 2^22: products and sums fit int64.
        if counts.min() < 0 or counts.max() > MAX_REPORTS or (sums < first * counts).any():
            raise ParameterError(f"totals of a collector: expected counts from 0 to {MAX_REPORTS}, and sums that fit")
        if (sums > last * counts).any():
            raise ParameterError("totals of a collector: expected sums that fit the counts")


class SumCollector(Collector[SumMachine]):
    """Adds up reports of means by slot, for sums over ranges of slots.

    Parameters
    ----------
    mechanism : StochasticRounding, Piecewise or Hybrid
        Announced to the clients.
    slots : int
        Number of slots, such as hours or regions.

    Examples
    --------
    >>> from fastdp.local import Hybrid, SumCollector
    >>> mechanism = Hybrid(1.0, 0.0, 44.0)
    >>> here, there = SumCollector(mechanism), SumCollector(mechanism)
    >>> here.add(mechanism.perturb([12.5, 3.0]))
    2
    >>> there.add(mechanism.perturb(40.0))
    1
    >>> here.merge(there).n_reports
    3
    """

    _MACHINE = SumMachine

    @validation.spelled
    def __init__(self, mechanism: MeanMechanism, slots: int = 1) -> None:
        self._begin(SumMachine(mechanism, slots), Key.choose(None, None))

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self._machine.slots

    def sum(self, start: int = 0, stop: int | None = None) -> float:
        """Unbiased estimate of the clipped values' sum in slots [start, stop)."""
        totals, mechanism, steps = self._between(start, stop), self._machine.mechanism, Fraction(0)
        for term, (count, total) in zip(mechanism.distribution.terms(), totals, strict=True):
            steps += term.offset * count + term.gain * (total - term.first * count)
        unit = Fraction(mechanism.high - mechanism.low) / mechanism.STEPS
        return float(Fraction(mechanism.low) * _count_of(totals) + unit * steps)

    def std_error(self, start: int = 0, stop: int | None = None) -> float:
        """Upper bound of the standard error of :meth:`sum`."""
        return math.sqrt(_count_of(self._between(start, stop)) * self._machine.mechanism.worst_variance)

    def mean(self, start: int = 0, stop: int | None = None) -> float:
        """Unbiased estimate of the clipped values' mean; NaN without reports."""
        count = _count_of(self._between(start, stop))
        return self.sum(start, stop) / count if count else math.nan

    def _between(self, start: int, stop: int | None) -> list[tuple[int, int]]:
        first = validation.integer("start", start, 0, self.slots)
        last = validation.integer("stop", self.slots if stop is None else stop, first, self.slots)
        return [(count, total) for count, total in columns.exact_sum(self.totals[first:last])]


def _count_of(totals: list[tuple[int, int]]) -> int:
    return sum(count for count, _ in totals)
