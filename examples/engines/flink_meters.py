"""Flink: python examples/engines/flink_meters.py (in an environment with apache-flink)"""

import sys

from meters import JOB, readings, summarize
from pyflink.datastream import StreamExecutionEnvironment

from fastdp.engines import flink

environment = StreamExecutionEnvironment.get_execution_environment()
environment.set_parallelism(2)
environment.set_python_executable(sys.executable)
rows = environment.from_collection(readings())
summarize(list(flink.release(rows, JOB).execute_and_collect()))
