"""The lines of a text, decoded one by one, or whole blocks of them as they are."""

from __future__ import annotations

import codecs
import gzip
import io
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, cast

#: Bytes of a block; a text below half of it is not worth a reader of blocks.
BLOCK = 2**20


class Lines:
    """The lines of a text as they come; its length says how many are there already."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = cast("io.BufferedReader", stream)
        self._lines, self._rest = deque[str](), b""
        self._begun = self._ended = False

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            block = self._whole(BLOCK // 16)
            if not block:
                raise StopIteration
            self.decode(block)
        return self._lines.popleft()

    def put_back(self, lines: list[str]) -> None:
        """Lines that are to come once more."""
        self._lines.extendleft(reversed(lines))

    def block(self) -> bytes:
        """Whole lines as they are, about ``BLOCK`` bytes; nothing where fewer are left, or decoded lines wait."""
        block = b"" if self._lines else self._whole(BLOCK, BLOCK // 2)
        if len(block) >= BLOCK // 2:
            return block
        self.decode(block)
        return b""

    def decode(self, block: bytes) -> None:
        """Give out the lines of a block."""
        # Undecodable bytes in a column that is not requested do no harm; in a requested column they are text.
        text = block.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
        *whole, last = text.split("\n")
        self._lines.extend(f"{line}\n" for line in whole)
        if last:
            self._lines.append(last)

    def _whole(self, size: int, enough: int = 0) -> bytes:
        """Whole lines of what is there, waiting for more only below ``enough`` bytes; nothing at the end."""
        while not self._ended:
            got = self._stream.read1(size)
            self._ended = not got
            self._rest += got
            if got and len(self._rest) < enough:
                continue
            # What ends in \r may go on with \n.
            cut = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r", 0, -1)) + 1
            block, self._rest = (self._rest, b"") if self._ended else (self._rest[:cut], self._rest[cut:])
            if block:
                marked = not self._begun and block.startswith(codecs.BOM_UTF8)
                self._begun = True
                return block[len(codecs.BOM_UTF8) :] if marked else block
        return b""
