"""Spark's process of Python workers, which are forked from it: it imports once what each of them needs."""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.compute  # noqa: F401
from pyspark import daemon

import fastdp.engines.spark
import fastdp.streams.fleet
import fastdp.tables.windows  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
