"""One row in plain Python types, read without Arrow: the same numbers as those of many rows.

Each function gives None where there is more to it; then the row is read as many rows are.
"""

from __future__ import annotations

import hashlib
import struct
from datetime import datetime, tzinfo
from typing import Any

import numpy as np

from fastdp.units import AWARE_EPOCH, EPOCH, FIRST, LAST, MICROSECOND

#: Length of the text of a UUID, whose letters may be of either case.
_UUID = 36


def only(column: Any) -> Any:
    """The only entry of a list; None for other columns."""
    return column[0] if type(column) is list and len(column) == 1 else None


def instant(times: Any, zone: tzinfo | None) -> int | None:
    """Instant of a datetime with a zone, or of one without where windows have none."""
    if type(times) is np.ndarray and times.dtype.kind == "M" and times.size == 1 and zone is None:
        moment: int = times.astype("M8[us]").view(np.int64).item()
    else:
        entry = only(times)
        if type(entry) is not datetime or (entry.tzinfo is None) != (zone is None):
            return None
        moment = (entry - (EPOCH if zone is None else AWARE_EPOCH)) // MICROSECOND
    return moment if FIRST <= moment <= LAST else None


def number(values: Any) -> float | None:
    """A float, or an array with one."""
    if type(values) is np.ndarray:
        return values.item() if values.dtype == np.float64 and values.shape == (1,) else None
    entry = only(values)
    return entry if type(entry) is float else None


def person(persons: Any) -> tuple[int, int] | None:
    """Digest of a person by a whole number, or by a text that is spelled in one way."""
    entry = only(persons)
    if type(entry) is int and -(2**63) <= entry < 2**63:
        text = str(entry)
    elif type(entry) is str and len(entry) != _UUID and entry.isascii():
        text = entry
    else:
        return None
    digest = hashlib.blake2b(text.encode(), digest_size=16, person=b"fastdp person").digest()
    found: tuple[int, int] = struct.unpack("<2q", digest)
    return found
