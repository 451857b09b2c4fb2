"""Audits of fastdp's own mechanisms: a catalogue for :func:`fastdp.audit`, exact losses, and couplings.

How to read the results: ``docs/audit.md``.  Negative controls, which an audit must catch, are in ``benchmarks/audit``
of the repository.
"""

from fastdp_lab.audit.catalogue import audit_cases
from fastdp_lab.audit.runs import Case

__all__ = ["Case", "audit_cases"]
