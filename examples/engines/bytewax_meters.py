"""Bytewax: python examples/engines/bytewax_meters.py"""

import tempfile

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, TestingSource, run_main
from meters import JOB, readings, summarize

from fastdp.engines import bytewax

published = []
flow = Dataflow("meters")
rows = op.input("readings", flow, TestingSource(readings(), 100))
op.output("out", bytewax.release("publish", rows, JOB), TestingSink(published))

with tempfile.TemporaryDirectory() as folder:
    init_db_dir(folder, 1)
    run_main(flow, recovery_config=RecoveryConfig(folder))
summarize(published)
