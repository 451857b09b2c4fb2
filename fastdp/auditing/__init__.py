"""Audits: lower bounds on epsilon from runs of a mechanism, and exact ones where its law is finite.

``fastdp.audit`` is for any callable; :func:`audit_cases` lists the mechanisms of this package, ready to be audited.
How to read the results: ``docs/audit.md``.  Negative controls, which an audit must catch, are not in the wheel: they
are in ``benchmarks/audit`` of the repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.auditing import exact
    from fastdp.auditing.catalogue import Case, audit_cases
    from fastdp.auditing.mechanisms import Publishing, TrialMechanism
    from fastdp.auditing.result import AuditResult
    from fastdp.auditing.run import audit

_HOMES = {
    "AuditResult": "fastdp.auditing.result",
    "Case": "fastdp.auditing.catalogue",
    "Publishing": "fastdp.auditing.mechanisms",
    "TrialMechanism": "fastdp.auditing.mechanisms",
    "audit": "fastdp.auditing.run",
    "audit_cases": "fastdp.auditing.catalogue",
}
_MODULES = ("exact",)

__all__ = [
    "AuditResult",
    "Case",
    "Publishing",
    "TrialMechanism",
    "audit",
    "audit_cases",
    "exact",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
