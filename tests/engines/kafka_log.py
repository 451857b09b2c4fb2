"""A partition of a Kafka topic: record batches, and which transactions of it are open or aborted.

Source: the protocol guide of Apache Kafka, record batch v2 and control batches (KIP-98).
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field

#: Base offset, length, leader's epoch, magic, CRC, attributes, last offset's delta, times, producer, epoch, sequence.
BATCH = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@dataclass
class Partition:
    """Batches with their first and last offsets; transactions that are open, and those that were aborted."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def stable(self) -> int:
        """Behind it there is a transaction that has not ended."""
        return min(self.open.values(), default=self.end)

    def append(self, batch: bytes) -> int:
        *_, attributes, delta, _, _, producer, _, _, _ = BATCH.unpack_from(batch)
        begin = self.end
        if attributes & TRANSACTIONAL and not attributes & CONTROL:
            self.open.setdefault(producer, begin)
        self.end += delta + 1
        self.batches.append((begin, self.end - 1, struct.pack(">q", begin) + batch[8:]))
        return begin

    def finish(self, producer: int, epoch: int, committed: bool) -> None:
        """End a producer's transaction here by a control batch."""
        if producer not in self.open:
            return
        record = b"\x20\x00\x00\x00\x08" + struct.pack(">hh", 0, committed) + b"\x0c" + bytes(6) + b"\x00"
        now = int(1000 * time.time())
        behind = struct.pack(">hiqqqhii", TRANSACTIONAL | CONTROL, 0, now, now, producer, epoch, -1, 1) + record
        head = struct.pack(">qiibI", 0, len(behind) + 9, 0, 2, crc32c(behind))
        first = self.open.pop(producer)
        if not committed:
            self.aborted.append((producer, first, self.end))
        self.append(head + behind)
