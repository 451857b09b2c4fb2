"""Format of reports on the wire (docs/local.md)."""

from __future__ import annotations

import importlib
import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from fastdp.data import column
from fastdp.errors import DataError, FastDPError
from fastdp.kinds import NumberColumn
from fastdp.validation import refusal, spelled

if TYPE_CHECKING:
    from fastdp.local.mechanisms import Mechanism

MAGIC = b"fdpL"
VERSION = 1
#: Magic, version, mechanism, bytes of a report, epsilon, low, high, number of reports.
_HEADER = struct.Struct("<4sBBBdddI")
_CHECKSUM = struct.Struct("<I")
_COUNT = struct.Struct("<I")
#: Result of zlib.crc32 for any bytes followed by their checksum.
_RESIDUE = 0x2144DF1C
_NONE: NDArray[np.uint8] = np.empty((0, 0), np.uint8)
#: Never renumber: devices in the field send these.
KINDS = {1: "SquareWave", 2: "StochasticRounding", 3: "Piecewise", 4: "Hybrid", 5: "LogSquareWave"}
MAX_REPORTS = 2**24
#: Messages that are checked at once, at most: they stay in the cache.
MAX_AT_ONCE = 4096


@dataclass(frozen=True)
class Message:
    """A message of ``size`` bytes with unchecked reports; ``mechanism`` is None if another was expected."""

    mechanism: Mechanism | None
    reports: NDArray[np.int32]
    size: int


def mechanism_named(name: str, epsilon: float, low: float, high: float) -> Mechanism:
    """Mechanism by class name; else ParameterError."""
    if name not in KINDS.values():
        raise refusal("mechanism", name, f"one of {', '.join(KINDS.values())}")
    mechanism: Mechanism = getattr(importlib.import_module("fastdp.local"), name)(epsilon, low, high)
    return mechanism


def _check(name: str, mechanism: object) -> None:
    if type(mechanism).__name__ not in KINDS.values():
        raise refusal(name, mechanism, "a mechanism of fastdp.local")


def _width(mechanism: Mechanism) -> int:
    return (mechanism.n_outputs - 1).bit_length() + 7 >> 3


@spelled
def encode(mechanism: Mechanism, reports: int | NumberColumn) -> bytes:
    """Encode reports as a message of 39 bytes plus 1 to 3 a report; DataError if one is out of range.

    Examples
    --------
    >>> from fastdp.local import Hybrid, encode
    >>> len(encode(Hybrid(1.0), [0, 7]))
    45
    """
    _check("mechanism", mechanism)
    width = _width(mechanism)
    if type(reports) is int and 0 <= reports < mechanism.n_outputs:
        # A device's one report.
        count, payload = 1, reports.to_bytes(width, "little")
    else:
        checked = mechanism.check_reports([reports] if column.is_number(reports) else reports)
        count, payload = checked.size, checked.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width].tobytes()
    if count > MAX_REPORTS:
        raise DataError(f"reports has {count} entries: expected at most {MAX_REPORTS}")
    body = _beginning(mechanism) + _COUNT.pack(count) + payload
    return body + _CHECKSUM.pack(zlib.crc32(body))


@lru_cache(maxsize=256)
def _beginning(mechanism: Mechanism) -> bytes:
    m = mechanism
    kind = next(number for number, name in KINDS.items() if name == type(m).__name__)
    return _HEADER.pack(MAGIC, VERSION, kind, _width(m), m.epsilon, m.low, m.high, 0)[: -_COUNT.size]


def as_bytes(data: object) -> memoryview:
    """Bytes of a buffer; else DataError."""
    try:
        return memoryview(cast("bytes", data)).cast("B")
    except (TypeError, ValueError):
        raise DataError(
            f"data is a {type(data).__name__}: expected bytes, as fastdp.local.encode or to_bytes returns them"
        ) from None


@spelled
def decode(data: bytes | bytearray | memoryview, expected: Mechanism | None = None) -> Message:
    """Decode the first message of a buffer.

    A message of another mechanism than `expected` has ``mechanism`` None.

    Raises
    ------
    DataError
        If it is truncated, altered, of another version, or has an unknown mechanism or parameters.

    Examples
    --------
    >>> from fastdp.local import Hybrid, decode, encode
    >>> message = decode(encode(Hybrid(1.0), [0, 7]))
    >>> message.reports.tolist(), message.size
    ([0, 7], 45)
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
        _check("expected", expected)
        same = view[: _HEADER.size - _COUNT.size] == _beginning(expected)
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
        reports = _reports_of(np.frombuffer(view, np.uint8, count * width, _HEADER.size), width)
    return Message(mechanism, reports, end + _CHECKSUM.size)


def _reports_of(payload: NDArray[np.uint8], width: int) -> NDArray[np.int32]:
    padded = np.zeros((payload.size // width, 4), np.uint8)
    padded[:, :width] = payload.reshape(-1, width)
    return padded.view("<i4").reshape(-1).astype(np.int32, copy=False)


def read_messages(
    data: bytes | bytearray | memoryview, expected: Mechanism, most_reports: int | None = None
) -> tuple[NDArray[np.int32], int]:
    """Reports of a buffer's messages, and the number of refused messages.

    Messages of another mechanism or of more than `most_reports` are skipped; a malformed one ends the buffer.
    """
    view = as_bytes(data)
    accepted: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
    refused, at_once, size = 0, 1, 0
    while len(view):
        try:
            first = decode(view, expected)
        except DataError:
            refused += 1
            break
        header, view = view[: _HEADER.size], view[first.size :]
        if first.mechanism is None:
            refused += 1
            continue
        # A message that differs, or is longer, must not make the server check the rest again and again.
        if first.size != size:
            at_once, size = 1, first.size
        alike = _alike(view, header, size, at_once)
        view = view[alike.size :]
        at_once = min(8 * at_once, MAX_AT_ONCE) if len(alike) == at_once else 1
        if most_reports is not None and first.reports.size > most_reports:
            refused += 1 + len(alike)
            continue
        accepted.append(first.reports)
        if alike.size:
            accepted.append(_reports_of(alike[:, _HEADER.size : -_CHECKSUM.size].reshape(-1), _width(expected)))
    return np.concatenate(accepted), refused


def _alike(view: memoryview, header: memoryview, size: int, most: int) -> NDArray[np.uint8]:
    """First messages with this header, size and a valid checksum, at most `most`: uint8[n, size]."""
    rows = min(most, len(view) // size)
    if not rows:
        return _NONE
    messages = np.frombuffer(view, np.uint8, rows * size).reshape(rows, size)
    sums = list(starmap(zlib.crc32, struct.iter_unpack(f"{size}s", view[: rows * size])))
    good = (np.array(sums) == _RESIDUE) & (messages[:, : _HEADER.size] == np.frombuffer(header, np.uint8)).all(axis=1)
    return messages if good.all() else messages[: int(np.argmin(good))]
