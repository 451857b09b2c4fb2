"""A Kafka broker from a package alone, for tests and examples: the mock cluster inside librdkafka."""

from __future__ import annotations

import logging
import os


class Broker:
    """A mock broker that lives as long as this object; topics exist from their first mention, with four partitions.

    ``address`` is its host and port, ``producer`` a producer of it.
    """

    def __init__(self) -> None:
        from confluent_kafka import Producer

        silent = logging.getLogger("mock")
        silent.setLevel(logging.CRITICAL)
        self.producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1}, logger=silent)
        (node,) = self.producer.list_topics(timeout=60).brokers.values()
        self.address = f"{node.host}:{node.port}"

    def send(self, topic: str, rows: list[tuple[str, bytes]]) -> None:
        """Send messages, keys and values, and wait until they are there."""
        send(self.address, topic, rows)

    def read(self, topic: str, *, committed: bool = False) -> list[tuple[str, bytes]]:
        """Read all messages, partition by partition."""
        return read(self.address, topic, committed=committed)


def send(address: str, topic: str, rows: list[tuple[str, bytes]]) -> None:
    """:meth:`Broker.send` for the broker at `address`."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    for key, value in rows:
        producer.produce(topic, key=key, value=value)
        producer.poll(0)
    if producer.flush(120):
        raise TimeoutError("messages did not arrive within two minutes")


def read(address: str, topic: str, *, committed: bool = False) -> list[tuple[str, bytes]]:
    """:meth:`Broker.read` for the broker at `address`."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader{os.getpid()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    found: list[tuple[str, bytes]] = []
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(60)
        if message is None:
            break
        if message.error():
            ended += 1
        else:
            found.append((message.key().decode(), message.value()))
    consumer.close()
    return found
