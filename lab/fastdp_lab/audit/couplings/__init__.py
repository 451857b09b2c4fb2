"""Couplings of all publishers: proofs that are checked instance by instance (``check.py``)."""

from fastdp_lab.audit.couplings.point_cases import POINTS
from fastdp_lab.audit.couplings.stream_cases import STREAMS
from fastdp_lab.audit.couplings.tables import TABLES

#: Publishers of values, those of points, and tables.
COUPLINGS = {**STREAMS, **POINTS, **TABLES}
