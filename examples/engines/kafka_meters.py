"""Kafka, each message counted once: python examples/engines/kafka_meters.py (needs the package confluent-kafka)"""

import json

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from meters import JOB, readings, summarize

from fastdp.engines import Job
from fastdp_lab.kafka import Broker, read


def publish(address: str, job: Job, batch: int = 1000, idle: float = 5.0) -> None:
    """From topic "readings" to "published", until nothing comes for so many seconds; the key is the id.

    Outputs, sealed states and offsets are one transaction.  Topic "states" is to be compacted and kept for ever.
    """
    place = {"bootstrap.servers": address}
    producer = Producer(place | {"transactional.id": job.name})
    producer.init_transactions()  # what a killed program left open ends, and one that still runs is shut out
    states: dict[str, bytes] = dict(read(address, "states", committed=True))
    consumer = Consumer(place | {"group.id": job.name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    partitions = consumer.list_topics("readings").topics["readings"].partitions
    consumer.assign(consumer.committed([TopicPartition("readings", number) for number in partitions]))
    while messages := consumer.consume(batch, idle):
        values: dict[str, list[float]] = {}
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            values.setdefault(message.key().decode(), []).append(json.loads(message.value()))
        producer.begin_transaction()
        for meter, numbers in values.items():
            states[meter], _, out = job.advance(states.get(meter), [meter] * len(numbers), numbers)
            producer.produce("states", states[meter], meter)
            for value in out.tolist():
                producer.produce("published", json.dumps(value), meter)
        reached = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(reached, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()


if __name__ == "__main__":
    broker = Broker()  # in memory; in production yours
    times: dict[str, list[int]] = {}
    for meter, _, time in readings():
        times.setdefault(meter, []).append(time)
    broker.send("readings", [(meter, json.dumps(value).encode()) for meter, value, _ in readings()])
    publish(broker.address, JOB)
    published = [(meter, json.loads(value)) for meter, value in broker.read("published", committed=True)]
    summarize([(meter, value, times[meter].pop(0)) for meter, value in published])
