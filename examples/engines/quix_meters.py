"""Quix Streams, on the mock broker inside librdkafka: python examples/engines/quix_meters.py"""

import json
import tempfile
from pathlib import Path

from meters import JOB, readings, summarize

from fastdp.engines import quix
from fastdp_lab.kafka import Broker, application  # in production: quixstreams.Application(broker_address=...)

broker = Broker()
rows = readings()
times: dict[str, list[int]] = {}
for meter, value, time in rows:
    times.setdefault(meter, []).append(time)
    broker.producer.produce("readings", key=meter, value=json.dumps(value).encode())
broker.producer.flush()

with tempfile.TemporaryDirectory() as folder:
    app = application(broker.address, Path(folder), processing_guarantee="exactly-once", commit_interval=1.0)
    taken = app.topic("readings", key_deserializer="str", value_deserializer="json")
    given = app.topic("published", key_serializer="str", value_serializer="json")
    quix.release(app.dataframe(taken), JOB).to_topic(given)
    app.run(count=len(rows), timeout=30)

published = [(meter, json.loads(value)) for meter, value in broker.read("published", committed=True)]
summarize([(meter, value, times[meter].pop(0)) for meter, value in published])
