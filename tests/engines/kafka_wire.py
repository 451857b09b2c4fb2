"""Kafka's messages: numbers, texts, bytes and arrays of versions without tagged fields."""

from __future__ import annotations

import struct
from typing import Any


class Reader:
    """Of a request; ``read("is")`` gives an int32 and a text."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def one(self, kind: str) -> Any:
        if kind in "?bhiq":
            (found,) = struct.unpack_from(f">{kind}", self._data, self._at)
            self._at += struct.calcsize(kind)
            return found
        size = self.one("h" if kind == "s" else "i")
        if size < 0:
            return None
        self._at += size
        found = self._data[self._at - size : self._at]
        return found.decode() if kind == "s" else found

    def read(self, kinds: str) -> tuple[Any, ...]:
        return tuple(self.one(kind) for kind in kinds)

    def many(self, kinds: str, inner: str = "") -> list[tuple[Any, ...]]:
        """An array; each entry ends with an array of its own if ``inner`` is given."""
        count = self.one("i")
        return [(*self.read(kinds), *((self.many(inner),) if inner else ())) for _ in range(count)]


def packed(kinds: str, *values: Any) -> bytes:
    """As :class:`Reader` reads; ``*`` is an array of entries that are packed already."""
    out = b""
    for kind, value in zip(kinds, values, strict=True):
        if kind in "?bhiq":
            out += struct.pack(f">{kind}", value)
        elif kind == "*":
            out += struct.pack(">i", len(value)) + b"".join(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += struct.pack(">h" if kind == "s" else ">i", -1 if data is None else len(data)) + (data or b"")
    return out
