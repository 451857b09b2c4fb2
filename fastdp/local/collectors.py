"""The server's side: mergeable integer statistics of reports.

A collector holds whole numbers only and adds them up, so collecting on many machines and merging in any order gives
the same as collecting on one.  Reports come from clients that are not trusted: what is malformed or out of range is
counted and left out, and collecting goes on.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np

from fastdp import validation
from fastdp.data.column import exact_sum
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Integers
from fastdp.local.base import MeanMechanism, Mechanism
from fastdp.local.encoding import as_bytes, mechanism_named
from fastdp.local.mechanisms import SquareWave
from fastdp.local.tally import CollectorMachine, Refused, Tally, as_most_reports
from fastdp.noise.key import Key
from fastdp.state.machine import single_caller
from fastdp.state.publisher import Publisher

if TYPE_CHECKING:
    from fastdp.local.distribution import Distribution, EstimateOptions, Method

MAGIC = b"fdpC"
VERSION = 1
#: zlib makes no more of a byte than this.
MAX_INFLATION = 1032
#: Magic, version, bytes of the description.
_HEADER = struct.Struct("<4sBI")
#: In one cell or slot: sums of reports, below 2^22 each, stay below 2^62.
MAX_REPORTS = 2**40


class Collector(Publisher[Tally]):
    """What both kinds of collectors share.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism announced to the clients.
    """

    _MACHINE: ClassVar[Any] = CollectorMachine
    #: Reports are private already.
    _PUBLIC: ClassVar[bool] = True
    slots: int = 1

    def __init__(self, mechanism: Mechanism, **parameters: int) -> None:
        self._begin(CollectorMachine(type(self), mechanism, parameters), Key.choose(None, None))

    def _begin(self, machine: CollectorMachine, key: Key) -> None:
        self.__dict__.update(machine.parameters)
        super()._begin(machine, key)

    @staticmethod
    @abstractmethod
    def _zeros(mechanism: Any, **parameters: int) -> Integers:
        """Totals of nothing."""

    @staticmethod
    @abstractmethod
    def _n_reports(totals: Integers) -> int:
        """Reports collected."""

    @staticmethod
    @abstractmethod
    def _check_totals(mechanism: Any, totals: Integers) -> None:
        """ParameterError unless reports can have made the totals."""

    @staticmethod
    @abstractmethod
    def _adds(mechanism: Any, totals: Integers, reports: Integers, slots: Integers) -> list[Callable[[], object]]:
        """What adds reports that are in range, in place: calls that no interrupt stops, as none is of Python code."""

    @property
    def mechanism(self) -> Any:
        """What the clients were told to use."""
        return self._machine.mechanism

    @property
    def totals(self) -> Integers:
        """What was added up: whole numbers."""
        totals: Integers = self._machine.settled(self._state).totals
        return totals

    @property
    def refused(self) -> Refused:
        """What was left out."""
        return self._state.refused

    @property
    def n_reports(self) -> int:
        """Reports collected."""
        count: int = self._machine.n_reports(self._state)
        return count

    @single_caller
    def add(self, reports: Any, slot: Any = 0) -> int:
        """Collect reports of the announced mechanism.

        Parameters
        ----------
        reports : whole number, or one column of them
            Those out of range are counted in ``refused.reports`` and left out.
        slot : int or int[n]
            Where they belong, in 0..slots - 1: one for all, or one a report.

        Returns
        -------
        int
            How many were collected.
        """
        count: int = self._call(self._machine.read(reports, slot))
        return count

    @single_caller
    def receive(self, data: bytes | bytearray | memoryview, slot: int = 0, *, most_reports: int | None = None) -> int:
        """Collect the messages of a buffer (:func:`fastdp.local.encode`), one after the other.

        A message that is malformed counts once in ``refused.messages``, and with it the rest of the buffer, whose
        messages have no known beginning; one of another mechanism, epsilon or domain counts once and is skipped.

        Parameters
        ----------
        data : bytes
            The buffer.
        slot : int
            Where its reports belong.
        most_reports : int, optional
            A message with more reports is refused too: 1 where every message comes from one user.

        Returns
        -------
        int
            How many reports were collected.
        """
        place = validation.integer("slot", slot, 0, self.slots - 1)
        count: int = self._call(self._machine.read_messages(data, place, as_most_reports(most_reports)))
        return count

    def take(self, state: Tally) -> None:
        """Go on from a state of a collector with the same parameters."""
        self._state = Tally(state.totals.copy(), state.refused)

    def merge(self, *others: Self) -> Self:
        """A collector that has collected what this one and the others have; none of them changes.

        Raises
        ------
        ParameterError
            If another one collects something else.
        """
        whole = type(self)(self.mechanism, **self._machine.parameters)
        refused = Refused()
        for part in (self, *others):
            if type(part) is not type(self) or part._described() != self._described():
                raise ParameterError(f"others holds another {type(part).__name__}: expected collectors like {self!r}")
            whole.totals[...] += part.totals
            refused = refused.plus(part.refused.reports, part.refused.messages)
        self._check_totals(self.mechanism, whole.totals)
        whole._state = Tally(whole.totals, refused)
        return whole

    def to_bytes(self, key: bytes | str | None = None) -> bytes:
        """Everything, for another machine; not secret, as reports are private by themselves: a key only seals it."""
        if key is not None:
            return super().to_bytes(key)
        refused = {"reports": self.refused.reports, "messages": self.refused.messages}
        text = json.dumps({**self._described(), "refused": refused}).encode()
        body = _HEADER.pack(MAGIC, VERSION, len(text)) + text + zlib.compress(self.totals.astype("<i8").tobytes(), 1)
        return body + struct.pack("<I", zlib.crc32(body))

    @classmethod
    def from_bytes(cls, state: bytes, key: bytes | str | None = None, *, moved: bool = False, **own: Any) -> Self:
        """The collector that was written.

        Raises
        ------
        DataError
            If the bytes are cut short, altered, of another version, or of another kind of collector.
        """
        if key is not None:
            return super().from_bytes(state, key, moved=moved, **own)
        data = as_bytes(state).tobytes()
        if len(data) < _HEADER.size + 4 or struct.unpack("<I", data[-4:])[0] != zlib.crc32(data[:-4]):
            raise DataError("collector: cut short or altered (its checksum does not match)")
        magic, version, size = _HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise DataError(f"collector: no {MAGIC!r} of format {VERSION}, which is what this fastdp reads")
        try:
            described = json.loads(data[_HEADER.size : _HEADER.size + size])
            if described.pop("collector") != cls.__name__:
                raise ValueError(f"no {cls.__name__}")
            refused = Refused(**described.pop("refused"))
            if not all(type(number) is int and number >= 0 for number in (refused.reports, refused.messages)):
                raise ValueError("refused is no pair of counts")
            mechanism = mechanism_named(**described.pop("mechanism"))
            # Before anything is allocated: compressed numbers take no less than this.
            if described.get("slots", 1) > 2 * MAX_INFLATION * len(data):
                raise ValueError("more slots than the bytes can hold")
            whole = cls(mechanism, **described)
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(data[_HEADER.size + size : -4], whole.totals.nbytes + 1)
            if len(raw) != whole.totals.nbytes or not unpacker.eof or unpacker.unused_data:
                raise ValueError("totals of another size")
            whole.totals[...] = np.frombuffer(raw, "<i8").reshape(whole.totals.shape)
            cls._check_totals(mechanism, whole.totals)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, MemoryError, zlib.error) as error:
            raise DataError(f"collector: damaged ({error})") from None
        whole._state = Tally(whole.totals, refused)
        return whole

    @classmethod
    def _from_content(cls, content: dict[str, Any], name: str, *, replay: bool, own: Mapping[str, Any]) -> Self:
        return super()._from_content(content, name, replay=replay, own={**own, "kind": cls})

    def _described(self) -> dict[str, Any]:
        m = self.mechanism
        named = {"name": type(m).__name__, "epsilon": m.epsilon, "low": m.low, "high": m.high}
        return {"collector": type(self).__name__, "mechanism": named, **self._machine.parameters}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in self._machine.parameters.items())
        return f"{type(self).__name__}({self.mechanism!r}, {parameters}, n_reports={self.n_reports})"


class HistogramCollector(Collector):
    """Counts square-wave reports in the cells from which the distribution is estimated.

    Parameters
    ----------
    mechanism : SquareWave
        The mechanism announced to the clients.
    bins : int
        Output cells, and bins of the estimate.
    """

    bins: int

    def __init__(self, mechanism: SquareWave, bins: int = 1024) -> None:
        if not isinstance(mechanism, SquareWave):
            raise ParameterError(f"mechanism = {validation.shown(mechanism)}: expected a fastdp.local.SquareWave")
        super().__init__(mechanism, bins=validation.integer("bins", bins, 1, mechanism.STEPS))

    @staticmethod
    def _zeros(mechanism: SquareWave, **parameters: int) -> Integers:
        return np.zeros(parameters["bins"], np.int64)

    @staticmethod
    def _n_reports(totals: Integers) -> int:
        return int(totals.sum())

    @staticmethod
    def _check_totals(mechanism: SquareWave, totals: Integers) -> None:
        if totals.min() < 0 or totals.max() > MAX_REPORTS:
            raise ParameterError(f"totals of a collector: expected counts from 0 to {MAX_REPORTS}")

    @staticmethod
    def _adds(
        mechanism: SquareWave, totals: Integers, reports: Integers, slots: Integers
    ) -> list[Callable[[], object]]:
        # Cell k holds the outputs j with floor(j bins / M) = k, as the estimate's matrix has it.
        cells = reports * totals.size // mechanism.n_outputs
        return [partial(np.add, totals, np.bincount(cells, minlength=totals.size), totals)]

    def estimate(self, method: Method = "em", **options: Unpack[EstimateOptions]) -> Distribution:
        """The distribution of the values behind the reports; as :meth:`SquareWave.estimate`.

        Parameters
        ----------
        method : "em" or "ems"
            Without or with smoothing.
        **options
            ``accelerate``, ``max_iterations``, ``tolerance`` of :func:`fastdp.local.distribution.estimate`.
        """
        found: Distribution = self.mechanism.estimate_counts(self.totals, bins=self.bins, method=method, **options)
        return found


MAX_SLOTS = 2**30


class SumCollector(Collector):
    """Adds up reports of means, slot by slot: sums over ranges of slots with their standard error.

    Parameters
    ----------
    mechanism : StochasticRounding, Piecewise or Hybrid
        The mechanism announced to the clients.
    slots : int
        For example hours, or places: each report is counted in one.
    """

    def __init__(self, mechanism: MeanMechanism, slots: int = 1) -> None:
        if not isinstance(mechanism, MeanMechanism):
            raise ParameterError(
                f"mechanism = {validation.shown(mechanism)}: expected StochasticRounding, Piecewise or Hybrid"
            )
        super().__init__(mechanism, slots=validation.integer("slots", slots, 1, MAX_SLOTS))

    @staticmethod
    def _zeros(mechanism: MeanMechanism, **parameters: int) -> Integers:
        # Of each slot and term: how many reports, and their sum.
        return np.zeros((parameters["slots"], len(mechanism.law.terms()), 2), np.int64)

    @staticmethod
    def _n_reports(totals: Integers) -> int:
        return int(totals[:, :, 0].sum())

    @staticmethod
    def _adds(
        mechanism: MeanMechanism, totals: Integers, reports: Integers, slots: Integers
    ) -> list[Callable[[], object]]:
        adds: list[Callable[[], object]] = []
        for k, term in enumerate(mechanism.law.terms()):
            mine = (reports >= term.first) & (reports < term.last)
            adds.append(partial(np.add.at, totals[:, k, 0], slots[mine], 1))
            adds.append(partial(np.add.at, totals[:, k, 1], slots[mine], reports[mine]))
        return adds

    @staticmethod
    def _check_totals(mechanism: MeanMechanism, totals: Integers) -> None:
        terms, counts, sums = mechanism.law.terms(), totals[:, :, 0], totals[:, :, 1]
        first = np.array([term.first for term in terms])
        last = np.array([term.last - 1 for term in terms])
        # At most 2^40 reports of less than 2^22: products and sums fit int64.
        if counts.min() < 0 or counts.max() > MAX_REPORTS or (sums < first * counts).any():
            raise ParameterError(f"totals of a collector: expected counts from 0 to {MAX_REPORTS}, and sums that fit")
        if (sums > last * counts).any():
            raise ParameterError("totals of a collector: expected sums that fit the counts")

    def sum(self, start: int = 0, stop: int | None = None) -> float:
        """Unbiased estimate of the sum of the clipped values in the slots [start, stop), in units of the input."""
        totals = self._between(start, stop)
        m = self.mechanism
        steps = Fraction(0)
        for term, (count, total) in zip(m.law.terms(), totals, strict=True):
            steps += term.offset * count + term.gain * (total - term.first * count)
        unit = Fraction(m.high - m.low) / m.STEPS
        return float(Fraction(m.low) * _count_of(totals) + unit * steps)

    def std_error(self, start: int = 0, stop: int | None = None) -> float:
        """Standard error of :meth:`sum`, at most: every value may be the one with the largest variance."""
        return math.sqrt(_count_of(self._between(start, stop)) * self.mechanism.worst_variance)

    def mean(self, start: int = 0, stop: int | None = None) -> float:
        """Unbiased estimate of the mean of the clipped values; NaN without reports."""
        count = _count_of(self._between(start, stop))
        return self.sum(start, stop) / count if count else math.nan

    def _between(self, start: int, stop: int | None) -> list[tuple[int, int]]:
        """Number and sum of the reports of each term, exactly."""
        first = validation.integer("start", start, 0, self.slots)
        last = validation.integer("stop", self.slots if stop is None else stop, first, self.slots)
        return [(count, total) for count, total in exact_sum(self.totals[first:last])]


def _count_of(totals: list[tuple[int, int]]) -> int:
    return sum(count for count, _ in totals)
