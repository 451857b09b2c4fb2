"""Lines that only grow in number: each seals itself and the one before.

A line is a JSON object whose last member, ``chain``, is SHA-256 (or HMAC-SHA-256 with a key) of the seal of the line
before and of the line's own bytes up to there; the first line follows 32 zero bytes.  A last line with the right seal
counts, whether or not its line end is there: an editor may have dropped that, and a crash between write and sync
costs budget rather than promises.  A last line that is cut off is another matter: if a crash did it, its writer never
went on; if anything else did, a release may be missing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastdp import validation
from fastdp.errors import StateError
from fastdp.randomness.key import Key

FORMAT = 1
START = bytes(32)
_SEAL = b', "chain": "'
_SEALED = len(_SEAL) + 64 + len(b'"}')

Line = dict[str, Any]
Mac = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Prefix:
    """The beginning of a file, whole lines with their line ends, whose seals were found right.

    Attributes
    ----------
    size : int
        Its bytes.
    digest : bytes
        SHA-256 of them: where it is the same again, so are all lines and seals.
    lines : int
        How many.
    head : bytes
        The last one's seal.
    name : str
        The ledger's, which its first line says and from which its sealing key follows.
    """

    size: int
    digest: bytes
    lines: int
    head: bytes
    name: str


@dataclass
class Found:
    """What a file holds behind the lines that are known; all of it where none are.

    Attributes
    ----------
    known : int
        How many lines were known; 0: none, or they are no longer what they were.
    seals : list of bytes
        The seal of each whole line from there on.
    end : int
        Where the last whole line ends.
    ended : bool
        Whether it has its line end.
    torn : bytes
        What is behind the last whole line: the beginning of another.
    name : str
        The ledger's.
    mac : function
        How it is sealed.
    """

    known: int
    seals: list[bytes]
    end: int
    ended: bool
    torn: bytes
    name: str
    mac: Mac


def sealed(line: Line, before: bytes, mac: Mac) -> tuple[bytes, bytes]:
    """A line's bytes and its seal."""
    body = json.dumps(line, ensure_ascii=False, allow_nan=False).encode()[:-1]
    seal = mac(before + body)
    return body + _SEAL + seal.hex().encode() + b'"}\n', seal


def sealing(key: Key | None, name: str) -> Mac:
    """SHA-256, or HMAC-SHA-256 with a key of the ledger's own."""
    if key is None:
        return lambda message: hashlib.sha256(message).digest()
    secret = key.derive("ledger", name).reveal()
    return lambda message: hmac.digest(secret, message, "sha256")


def read(
    raw: bytes,
    shown: str,
    key: Key | None,
    known: Prefix | None = None,
    take: Callable[[int, Line], None] = lambda number, line: None,
) -> Found:
    """Check the lines of a file, or those behind its known beginning.

    Parameters
    ----------
    raw : bytes
        From the end of the known beginning on.
    shown : str
        The file, for messages.
    key : Key or None
        What seals the lines.
    known : Prefix, optional
        The beginning that was checked before, and has been found unchanged.
    take : function of a number and a line
        Gets each whole line, once checked, but for line 0, which tells the format.

    Raises
    ------
    StateError
        If lines were altered, reordered, cut in the middle or sealed in another way; it says which is wrong.
    """
    rows = raw.split(b"\n")
    last = rows.pop() if known is not None or len(rows) > 1 else b""
    if known is None:
        first, start, before = 0, 0, START
        name = _name(rows[0], shown, key)
    else:
        first, start, before, name = known.lines, known.size, known.head, known.name
    found = Found(first, [], start + len(raw), not raw or raw.endswith(b"\n"), b"", name, sealing(key, name))
    final = first + len(rows)
    for number, row in enumerate([*rows, last] if last else rows, first):
        if number == final:
            row, found.torn = _cut(row, before, found.mac)
            found.end -= len(found.torn)
            if not row:
                found.ended = True
                break
        seal = _seal(row, before, found.mac)
        if seal is None:
            reason = "its lines were altered, reordered or cut out" + ("" if key is None else ", or the key is wrong")
            raise StateError(f"ledger {shown} is damaged at line {number}: {reason} (the seal does not match)")
        line = _parsed(row, shown, number)
        if line.get("id") != number:
            raise StateError(f"ledger {shown} is damaged at line {number}: it says to be line {line.get('id')!r}")
        if number:
            take(number, line)
        found.seals.append(seal)
        before = seal
    return found


def _seal(row: bytes, before: bytes, mac: Mac) -> bytes | None:
    """The seal of a line, if it is the right one."""
    seal = mac(before + row[:-_SEALED])
    return seal if hmac.compare_digest(row[-_SEALED:], _SEAL + seal.hex().encode() + b'"}') else None


def _cut(last: bytes, before: bytes, mac: Mac) -> tuple[bytes, bytes]:
    """What has no line end: a whole line, if it begins with one, and the beginning of another.

    The latter may have a seal too: where a line end is lost, two lines are one.
    """
    at = last.find(_SEAL)
    while at >= 0:
        whole = at + _SEALED
        if _seal(last[:whole], before, mac) is not None:
            return last[:whole], last[whole:]
        at = last.find(_SEAL, at + 1)
    return b"", last


def _name(row: bytes, shown: str, key: Key | None) -> str:
    """The ledger's name, from its first line; StateError if that is none, or says to be sealed in another way."""
    header = _parsed(row, shown, 0)
    if header.get("fastdp_ledger") != FORMAT:
        found = validation.shown(header.get("fastdp_ledger"))
        raise StateError(f"ledger {shown} has format {found}: this fastdp reads format {FORMAT}")
    if header.get("seal") != ("sha256" if key is None else "hmac-sha256"):
        kind = "None: it was made without a key" if key is not None else "the key it was made with"
        raise StateError(f"ledger {shown}: expected key = {kind}")
    return str(header.get("name"))


def _parsed(row: bytes, shown: str, number: int) -> Line:
    try:
        line = json.loads(row.decode())
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        what = "is no fastdp ledger, or was cut short" if number == 0 else f"is damaged at line {number}: no entry"
        raise StateError(f"ledger {shown} {what}")
    return line
