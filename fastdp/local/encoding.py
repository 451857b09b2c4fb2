"""Reports on the wire: a compact integer format with version and parameters.

A message is one header (which mechanism, its epsilon and domain, bytes of a report, how many reports), the reports in
as few bytes each as the largest needs, and a checksum.  Messages may follow each other in one buffer.  All numbers
are little-endian.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays import column
from fastdp.errors import DataError, FastDPError, ParameterError

if TYPE_CHECKING:
    from fastdp.local.base import Mechanism

MAGIC = b"fdpL"
VERSION = 1
#: Magic, version, mechanism, bytes of a report, epsilon, low, high, number of reports.
_HEADER = struct.Struct("<4sBBBdddI")
_CHECKSUM = struct.Struct("<I")
#: Never renumber: devices in the field send these.
KINDS = {1: "SquareWave", 2: "StochasticRounding", 3: "Piecewise", 4: "Hybrid", 5: "LogSquareWave"}
MAX_REPORTS = 2**24


@dataclass(frozen=True)
class Message:
    """Reports as they came, by the mechanism that the header names.

    Attributes
    ----------
    mechanism : Mechanism or None
        With the epsilon and the domain of the header; None if another one was expected.
    reports : int32[n]
        Not checked against the mechanism's range: collectors do that, and count what they refuse.
    size : int
        Bytes that the message took.
    """

    mechanism: Mechanism | None
    reports: NDArray[np.int32]
    size: int


def mechanism_named(name: str, epsilon: Any, low: Any, high: Any) -> Mechanism:
    """One of the mechanisms of :mod:`fastdp.local`, by its class name."""
    if name not in KINDS.values():
        raise ParameterError(f"mechanism = {name!r}: expected one of {', '.join(KINDS.values())}")
    mechanism: Mechanism = getattr(importlib.import_module("fastdp.local"), name)(epsilon, low, high)
    return mechanism


def _width(mechanism: Mechanism) -> int:
    """Bytes of one report."""
    return (mechanism.n_outputs - 1).bit_length() + 7 >> 3


def encode(mechanism: Mechanism, reports: Any) -> bytes:
    """A message.

    Parameters
    ----------
    mechanism : Mechanism
        The one that made the reports.
    reports : int or int[n]
        From its ``perturb``.

    Returns
    -------
    bytes
        39 bytes and 1 to 3 a report.

    Raises
    ------
    DataError
        If a report is not one of the mechanism's.
    """
    checked = mechanism.check_reports([reports] if column.is_number(reports) else reports)
    if checked.size > MAX_REPORTS:
        raise DataError(f"reports has {checked.size} entries: expected at most {MAX_REPORTS}")
    payload = checked.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : _width(mechanism)].tobytes()
    body = _header(mechanism, checked.size) + payload
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _header(mechanism: Mechanism, count: int) -> bytes:
    m = mechanism
    kind = next(number for number, name in KINDS.items() if name == type(m).__name__)
    return _HEADER.pack(MAGIC, VERSION, kind, _width(m), m.epsilon, m.low, m.high, count)


def as_bytes(data: Any) -> memoryview:
    """The bytes of a buffer; DataError if it is none."""
    try:
        return memoryview(data).cast("B")
    except (TypeError, ValueError):
        raise DataError(
            f"data is a {type(data).__name__}: expected bytes, as fastdp.local.encode or to_bytes returns them"
        ) from None


def decode(data: bytes | bytearray | memoryview, expected: Mechanism | None = None) -> Message:
    """The first message of a buffer.

    Parameters
    ----------
    data : bytes
        The buffer; what follows the message is not looked at.
    expected : Mechanism, optional
        The mechanism announced to clients.  A message of another one has ``mechanism`` None then, and costs little.

    Raises
    ------
    DataError
        If it is cut short, altered, of another version, or names a mechanism or parameters that do not exist.
    """
    view = as_bytes(data)
    if len(view) < _HEADER.size:
        raise DataError(f"message of {len(view)} bytes: expected at least {_HEADER.size + _CHECKSUM.size}")
    magic, version, kind, width, epsilon, low, high, count = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise DataError(f"message begins with other bytes than {MAGIC!r}: expected one that encode() made")
    if version != VERSION:
        raise DataError(f"message has format {version}: this fastdp reads format {VERSION}")
    if kind not in KINDS or not 1 <= width <= 4 or count > MAX_REPORTS:
        raise DataError(
            f"message names mechanism {kind} and {count} reports of {width} bytes: expected another header"
        )
    end = _HEADER.size + count * width
    if len(view) < end + _CHECKSUM.size:
        raise DataError(f"message of {len(view)} bytes: expected {end + _CHECKSUM.size} for {count} reports")
    if _CHECKSUM.unpack_from(view, end)[0] != zlib.crc32(view[:end]):
        raise DataError("message does not match its checksum: it was altered on its way")
    mechanism: Mechanism | None
    if expected is not None:
        same = view[: _HEADER.size] == _header(expected, count)
        mechanism = expected if same else None
    else:
        try:
            mechanism = mechanism_named(KINDS[kind], epsilon, low, high)
        except FastDPError as error:
            raise DataError(f"message with parameters that are not accepted: {error}") from None
        if _width(mechanism) != width:
            raise DataError(f"message has reports of {width} bytes: expected {_width(mechanism)} for its mechanism")
    reports: NDArray[np.int32] = np.empty(0, np.int32)
    if mechanism is not None:
        padded = np.zeros((count, 4), np.uint8)
        padded[:, :width] = np.frombuffer(view, np.uint8, count * width, _HEADER.size).reshape(count, width)
        reports = padded.view("<i4").reshape(-1).astype(np.int32, copy=False)
    return Message(mechanism, reports, end + _CHECKSUM.size)


def split(data: bytes | bytearray | memoryview, expected: Mechanism) -> Iterator[NDArray[np.int32] | None]:
    """The reports of each message in a buffer, or None for one that answers something else or is malformed.

    What follows a malformed message has no known beginning: None ends the buffer then.
    """
    view = as_bytes(data)
    while len(view):
        try:
            message = decode(view, expected)
        except DataError:
            yield None
            return
        yield None if message.mechanism is None else message.reports
        view = view[message.size :]
