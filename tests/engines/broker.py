"""A Kafka broker in memory with transactions, for workers that are killed: what no package on PyPI brings.

The mock broker of librdkafka forgets the offsets of transactions and shows aborted messages; Tansu 0.6 in memory
keeps the offsets and shows aborted messages too.
This one takes the requests of librdkafka in one version each; consumers choose their partitions.
Source: the protocol guide of Apache Kafka (messages, record batch v2, KIP-98).
"""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.engines.kafka_log import BATCH, Partition
from tests.engines.kafka_wire import Reader, packed

PARTITIONS, API_VERSIONS = 4, 18
EARLIEST, COMMITTED = -2, 1
OUT_OF_RANGE, UNSUPPORTED, FENCED = 1, 35, 47
#: Seconds that a fetch waits at most, bytes that it brings about.
WAIT, FETCH_BYTES = 0.2, 2**20


@dataclass
class Producer:
    """A producer with a transactional id, and the offsets that its transaction will commit."""

    number: int
    epoch: int
    began: bool = False
    offsets: list[tuple[tuple[str, str, int], tuple[int, Any]]] = field(default_factory=list)


class Broker:
    """All state, under one lock."""

    #: Key of a request: its only version, and who answers it.
    VERSIONS: ClassVar[dict[int, tuple[int, str]]] = {
        0: (3, "produce"),
        1: (4, "fetch"),
        2: (2, "list_offsets"),
        3: (4, "metadata"),
        9: (1, "offset_fetch"),
        10: (1, "find_coordinator"),
        API_VERSIONS: (0, "api_versions"),
        22: (0, "init_producer"),
        24: (0, "add_partitions"),
        25: (0, "add_offsets"),
        26: (0, "end_transaction"),
        28: (0, "transaction_offsets"),
    }

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.address: tuple[str, int] = ("127.0.0.1", 0)
        self.topics: dict[str, list[Partition]] = {}
        #: Committed offsets by group, topic and partition.
        self.offsets: dict[tuple[str, str, int], tuple[int, Any]] = {}
        self.producers: dict[str, Producer] = {}
        self.made = 0

    def answer(self, key: int, version: int, request: Reader) -> bytes:
        known, name = self.VERSIONS[key]
        if version != known:
            assert key == API_VERSIONS, (key, version)
            return self.api_versions(request, UNSUPPORTED)
        with self.lock:
            found: bytes = getattr(self, name)(request)
            self.lock.notify_all()
        return found

    def topic(self, name: str) -> list[Partition]:
        return self.topics.setdefault(name, [Partition() for _ in range(PARTITIONS)])

    def api_versions(self, _: Reader, error: int = 0) -> bytes:
        return packed("h*", error, [packed("hhh", key, 0, each) for key, (each, _) in self.VERSIONS.items()])

    def metadata(self, request: Reader) -> bytes:
        count = request.one("i")
        names = list(self.topics) if count < 0 else [request.one("s") for _ in range(count)]
        topics = []
        for name in names:
            parts = [
                packed("hii**", 0, k, 1, [packed("i", 1)], [packed("i", 1)]) for k in range(len(self.topic(name)))
            ]
            topics.append(packed("hs?*", 0, name, False, parts))
        return packed("i*si*", 0, [packed("isis", 1, *self.address, None)], "fastdp", 1, topics)

    def produce(self, request: Reader) -> bytes:
        name, _, _ = request.read("shi")
        producer, topics = self.producers.get(name), []
        for topic, partitions in request.many("s", "id"):
            done = []
            for number, batch in partitions:
                epoch = BATCH.unpack_from(batch)[10]
                fenced = producer is not None and epoch != producer.epoch
                begin = -1 if fenced else self.topic(topic)[number].append(batch)
                done.append(packed("ihqq", number, FENCED if fenced else 0, begin, -1))
            topics.append(packed("s*", topic, done))
        return packed("*i", topics, 0)

    def fetch(self, request: Reader) -> bytes:
        _, wait, _, _, isolation = request.read("iiiib")
        wanted = request.many("s", "iqi")
        until = time.monotonic() + min(wait / 1000, WAIT)
        while not self.ready(wanted, isolation) and (left := until - time.monotonic()) > 0:
            self.lock.wait(left)
        topics = []
        for topic, partitions in wanted:
            parts = []
            for number, offset, _ in partitions:
                part = self.topic(topic)[number]
                stop = part.stable if isolation == COMMITTED else part.end
                data, reached = b"", offset
                for _, last, batch in part.batches:
                    if offset <= last < stop and len(data) < FETCH_BYTES:
                        data, reached = data + batch, last + 1
                # Of transactions within what is sent, for clients that leave them out.
                aborted = [
                    packed("qq", producer, first)
                    for producer, first, end in part.aborted
                    if isolation == COMMITTED and end >= offset and first < reached
                ]
                error = OUT_OF_RANGE if offset > part.end else 0
                parts.append(packed("ihqq*d", number, error, part.end, part.stable, aborted, data))
            topics.append(packed("s*", topic, parts))
        return packed("i*", 0, topics)

    def ready(self, wanted: list[tuple[Any, ...]], isolation: int) -> bool:
        for topic, partitions in wanted:
            for number, offset, _ in partitions:
                part = self.topic(topic)[number]
                if offset != (part.stable if isolation == COMMITTED else part.end):
                    return True
        return False

    def list_offsets(self, request: Reader) -> bytes:
        _, isolation = request.read("ib")
        topics = []
        for topic, partitions in request.many("s", "iq"):
            parts = []
            for number, moment in partitions:
                part = self.topic(topic)[number]
                last = part.stable if isolation == COMMITTED else part.end
                parts.append(packed("ihqq", number, 0, -1, 0 if moment == EARLIEST else last))
            topics.append(packed("s*", topic, parts))
        return packed("i*", 0, topics)

    # Groups.

    def find_coordinator(self, request: Reader) -> bytes:
        request.read("sb")
        return packed("ihsisi", 0, 0, None, 1, *self.address)

    def offset_fetch(self, request: Reader) -> bytes:
        group, topics = request.one("s"), []
        for topic, partitions in request.many("s", "i"):
            found = [(number, *self.offsets.get((group, topic, number), (-1, None)), 0) for (number,) in partitions]
            topics.append(packed("s*", topic, [packed("iqsh", *each) for each in found]))
        return packed("*", topics)

    # Transactions.

    def init_producer(self, request: Reader) -> bytes:
        name, _ = request.read("si")
        self.made += 1
        if name is None:
            return packed("ihqh", 0, 0, self.made, 0)
        before = self.producers.get(name)
        if before is not None:
            self.finish(before, committed=False)
        number, epoch = (self.made, 0) if before is None else (before.number, before.epoch + 1)
        self.producers[name] = Producer(number, epoch)
        return packed("ihqh", 0, 0, number, epoch)

    def begun(self, name: str, epoch: int) -> Producer | None:
        """The producer, whose transaction has begun; None if it was fenced."""
        producer = self.producers.get(name)
        if producer is None or producer.epoch != epoch:
            return None
        producer.began = True
        return producer

    def add_partitions(self, request: Reader) -> bytes:
        name, _, epoch = request.read("sqh")
        error = FENCED if self.begun(name, epoch) is None else 0
        topics = [
            packed("s*", topic, [packed("ih", number, error) for (number,) in partitions])
            for topic, partitions in request.many("s", "i")
        ]
        return packed("i*", 0, topics)

    def add_offsets(self, request: Reader) -> bytes:
        name, _, epoch, _ = request.read("sqhs")
        return packed("ih", 0, FENCED if self.begun(name, epoch) is None else 0)

    def transaction_offsets(self, request: Reader) -> bytes:
        name, group, _, epoch = request.read("ssqh")
        producer, topics = self.begun(name, epoch), []
        error = FENCED if producer is None else 0
        for topic, partitions in request.many("s", "iqs"):
            for number, offset, metadata in partitions:
                if producer is not None:
                    producer.offsets.append(((group, topic, number), (offset, metadata)))
            topics.append(packed("s*", topic, [packed("ih", number, error) for number, _, _ in partitions]))
        return packed("i*", 0, topics)

    def end_transaction(self, request: Reader) -> bytes:
        name, _, epoch, committed = request.read("sqh?")
        producer = self.begun(name, epoch)
        if producer is None:
            return packed("ih", 0, FENCED)
        self.finish(producer, committed=committed)
        return packed("ih", 0, 0)

    def finish(self, producer: Producer, *, committed: bool) -> None:
        for partitions in self.topics.values():
            for part in partitions:
                part.finish(producer.number, producer.epoch, committed)
        if committed:
            self.offsets |= dict(producer.offsets)
        producer.began, producer.offsets = False, []


class Connection(socketserver.StreamRequestHandler):
    """Of one client; requests in order."""

    def handle(self) -> None:
        # A client that is killed resets its connections.
        with contextlib.suppress(ConnectionError):
            while len(head := self.rfile.read(4)) == 4:
                self.answer(Reader(self.rfile.read(*struct.unpack(">i", head))))

    def answer(self, request: Reader) -> None:
        broker: Broker = self.server.broker  # type: ignore[attr-defined]
        key, version, number = request.read("hhi")
        # Later versions of this request have another header; what it says is not needed.
        if key != API_VERSIONS or version < 3:
            request.one("s")
        answer = struct.pack(">i", number) + broker.answer(key, version, request)
        self.wfile.write(struct.pack(">i", len(answer)) + answer)


class Server(socketserver.ThreadingTCPServer):
    """On a free port of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.broker = Broker()
        self.broker.address = ("127.0.0.1", self.server_address[1])


if __name__ == "__main__":
    server = Server()
    print(f"127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
