"""Spark: python examples/engines/spark_meters.py; streams of a table, and private totals of the same table."""

import os
import sys

import pandas as pd
from meters import JOB, readings, summarize
from pyspark.sql import SparkSession

from fastdp import Time, totals
from fastdp.engines import spark

os.environ["PYSPARK_PYTHON"] = sys.executable
options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
frame = pd.DataFrame(readings(), columns=["id", "kwh", "time"])
frame["at"] = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(frame["time"], unit="min")
table = session.createDataFrame(frame)

published = spark.release(table, JOB, id="id", order="time", value="kwh")
summarize([(row.id, row.published, row.time) for row in published.collect()])

days = Time("at", "1d", start="2026-01-01", stop="2026-01-05")
daily = totals(spark.table(table), "kwh", days, epsilon=1.0, clip=10.0, key=JOB.key)
print(daily)
session.stop()
