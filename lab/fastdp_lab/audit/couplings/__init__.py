"""Couplings of all publishers: proofs that are checked instance by instance (``check.py``)."""

from fastdp_lab.audit.couplings.points import POINTS
from fastdp_lab.audit.couplings.streams import STREAMS
from fastdp_lab.audit.couplings.tables import TABLES

#: Publishers of values, those of points, and tables.
COUPLINGS = {**STREAMS, **POINTS, **TABLES}
