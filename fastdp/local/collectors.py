"""The server's side: mergeable integer statistics of reports.

A collector holds whole numbers only and adds them up, so collecting on many machines and merging in any order gives
the same as collecting on one.  Reports come from clients that are not trusted: what is malformed or out of range is
counted and left out, and collecting goes on.
"""

from __future__ import annotations

import json
import struct
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays import column as columns
from fastdp.errors import DataError, ParameterError
from fastdp.local.base import Mechanism
from fastdp.local.encoding import as_bytes, mechanism_named, split
from fastdp.local.hybrid import Hybrid
from fastdp.local.log_square_wave import LogSquareWave
from fastdp.local.piecewise import Piecewise
from fastdp.local.square_wave import SquareWave
from fastdp.local.stochastic_rounding import StochasticRounding
from fastdp.state import codec
from fastdp.state.persistence import Position
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Reports, expect

MAGIC = b"fdpC"
VERSION = 1
#: zlib makes no more of a byte than this.
MAX_INFLATION = 1032
#: Magic, version, bytes of the description.
_HEADER = struct.Struct("<4sBI")
#: In one cell or slot: sums of reports, below 2^22 each, stay below 2^62.
MAX_REPORTS = 2**40


@dataclass
class Refused:
    """What a collector has left out.

    Attributes
    ----------
    reports : int
        Reports that no client with the announced mechanism can have made.
    messages : int
        Messages that are malformed, or of another mechanism, epsilon or domain.
    """

    reports: int = 0
    messages: int = 0


def as_most_reports(most_reports: object) -> int | None:
    """How many reports a message may have: ParameterError unless it is a whole number or None."""
    return None if most_reports is None else validation.integer("most_reports", most_reports, 0)


class Collector(Reports):
    """What both kinds of collectors share.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism announced to the clients.
    """

    _PARTS: ClassVar[codec.Parts] = {
        kind.__name__: kind for kind in (SquareWave, LogSquareWave, StochasticRounding, Piecewise, Hybrid)
    }
    _CHANGING = ("totals", "refused")
    #: Names of the public parameters besides the mechanism, for the file.
    PARAMETERS: ClassVar[tuple[str, ...]]
    slots: int = 1

    def __init__(self, mechanism: Mechanism, totals: NDArray[np.int64]) -> None:
        super().__init__()
        self.mechanism = mechanism
        self.totals = totals
        self.refused = Refused()

    @property
    @abstractmethod
    def n_reports(self) -> int:
        """Reports collected."""

    @abstractmethod
    def _check_totals(self) -> None:
        """ParameterError unless reports can have made the totals."""

    @abstractmethod
    def _count(self, reports: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Add reports that are in range."""

    @exclusive
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
        column = columns.as_column([reports] if columns.is_number(reports) else reports, "reports")
        if column.dtype.kind == "b":
            raise DataError("reports holds bool entries: expected whole numbers")
        slots = columns.as_array(slot)
        if slots is None or slots.dtype.kind not in "iu" or slots.shape not in ((), column.shape):
            raise ParameterError(f"slot is a {type(slot).__name__}: expected a whole number, or one for each report")
        return self._consume(lambda whole: whole._add(column, slots), column, slots)

    def _add(self, column: NDArray[Any], slots: NDArray[Any]) -> int:
        wrong = (slots < 0) | (slots >= self.slots)
        if wrong.any():
            place = columns.entry_at("slot", np.atleast_1d(wrong), "out of range")
            raise ParameterError(f"{place}; expected 0 to {self.slots - 1}")
        good = (column >= 0) & (column < self.mechanism.n_outputs)
        if column.dtype.kind == "f":
            # Numbers too long for 64 bits came as floats; so did NaN, which compares as False.
            good &= column == np.floor(column)
        slots = np.broadcast_to(slots, column.shape)[good].astype(np.int64)
        self._count(column[good].astype(np.int64), slots)
        count = int(np.count_nonzero(good))
        self.refused.reports += column.size - count
        return count

    @exclusive
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
        most = as_most_reports(most_reports)
        words = str((place, most)).encode()
        return self._consume(lambda whole: whole._receive(data, place, most), as_bytes(data), words)

    def _receive(self, data: bytes | bytearray | memoryview, slot: int, most_reports: int | None) -> int:
        collected = 0
        for reports in split(data, self.mechanism):
            if reports is None or (most_reports is not None and reports.size > most_reports):
                self.refused.messages += 1
            else:
                collected += self._add(reports, np.asarray(slot))
        return collected

    def merge(self, *others: Self) -> Self:
        """A collector that has collected what this one and the others have; none of them changes.

        Raises
        ------
        ParameterError
            If another one collects something else.
        """
        whole = type(self)(self.mechanism, **self._parameters())  # type: ignore[arg-type]
        for part in (self, *others):
            if type(part) is not type(self) or part._described() != self._described():
                raise ParameterError(f"others holds another {type(part).__name__}: expected collectors like {self!r}")
            whole.totals += part.totals
            whole.refused.reports += part.refused.reports
            whole.refused.messages += part.refused.messages
        whole._check_totals()
        return whole

    def to_bytes(self) -> bytes:
        """Everything, for another machine.  Not secret: reports are private by themselves."""
        refused = {"reports": self.refused.reports, "messages": self.refused.messages}
        text = json.dumps({**self._described(), "refused": refused}).encode()
        body = _HEADER.pack(MAGIC, VERSION, len(text)) + text + zlib.compress(self.totals.astype("<i8").tobytes(), 1)
        return body + struct.pack("<I", zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The collector that was written.

        Raises
        ------
        DataError
            If the bytes are cut short, altered, of another version, or of another kind of collector.
        """
        data = as_bytes(data).tobytes()
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
            whole._check_totals()
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, MemoryError, zlib.error) as error:
            raise DataError(f"collector: damaged ({error})") from None
        whole.refused = refused
        return whole

    # State files.

    @property
    def _consumed(self) -> int:
        return self.n_reports + self.refused.reports + self.refused.messages

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism, **self._parameters()}

    def _position(self) -> Position:
        return {
            "n_seen": self._consumed,
            "totals": codec.describe(self.totals),
            "refused": codec.describe(self.refused),
        }

    def _resume(self, saved: Position) -> None:
        totals = codec.restore(NDArray[np.int64], saved["totals"])
        expect(totals, self.totals)
        self.totals = totals
        self.refused = codec.restore(Refused, saved["refused"])
        self._check_totals()
        if min(self.refused.reports, self.refused.messages) < 0 or saved["n_seen"] != self._consumed:
            raise ValueError("counts out of range")

    def _parameters(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.PARAMETERS}

    def _described(self) -> dict[str, Any]:
        m = self.mechanism
        named = {"name": type(m).__name__, "epsilon": m.epsilon, "low": m.low, "high": m.high}
        return {"collector": type(self).__name__, "mechanism": named, **self._parameters()}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({self.mechanism!r}, {parameters}, n_reports={self.n_reports})"
