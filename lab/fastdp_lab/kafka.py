"""A Kafka broker from a package alone, for tests and examples: the mock cluster inside librdkafka."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

GROUP = "fastdp"
#: What the mock broker does not say of its topics: nothing is dropped.
KEEP = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


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
        """All messages, partition by partition."""
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


def application(address: str, folder: Path, group: str = GROUP, **options: Any) -> Any:
    """A Quix application whose topics are made as the mock broker makes them."""
    from quixstreams import Application
    from quixstreams.models.topics import TopicAdmin, TopicManager
    from quixstreams.models.topics.topic import TopicConfig

    class Admin(TopicAdmin):  # type: ignore[misc]
        """The mock broker knows neither DescribeConfigs nor CreateTopics; asking for a topic makes it."""

        def inspect_topics(self, topic_names: list[str], timeout: float = 30) -> dict[str, Any]:
            made = {name: self.admin_client.list_topics(name, timeout=timeout).topics[name] for name in topic_names}
            return {name: TopicConfig(len(each.partitions), 1, KEEP) for name, each in made.items()}

        def create_topics(self, topics: Any, timeout: float = 30, finalize_timeout: float = 60) -> None:
            self.inspect_topics([topic.name for topic in topics])

    return Application(
        broker_address=address,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=folder,
        loglevel=options.pop("loglevel", "ERROR"),
        topic_manager=TopicManager(topic_admin=Admin(address), consumer_group=group),
        **options,
    )
