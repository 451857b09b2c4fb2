"""Audits: lower bounds on epsilon from runs of a mechanism, and exact ones where its law is finite.

``fastdp.audit`` is for any callable; :func:`audit_cases` lists the mechanisms of this package, ready to be audited,
and broken twins of them that an audit must catch.  How to read the results: ``docs/audit.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.auditing import broken, exact, mechanisms
    from fastdp.auditing.catalogue import Case, audit_cases
    from fastdp.auditing.result import AuditResult
    from fastdp.auditing.run import audit
    from fastdp.auditing.trials import Publishing, TrialMechanism

_HOMES = {
    "AuditResult": "fastdp.auditing.result",
    "Case": "fastdp.auditing.catalogue",
    "Publishing": "fastdp.auditing.trials",
    "TrialMechanism": "fastdp.auditing.trials",
    "audit": "fastdp.auditing.run",
    "audit_cases": "fastdp.auditing.catalogue",
}
_MODULES = ("broken", "exact", "mechanisms")

__all__ = [
    "AuditResult",
    "Case",
    "Publishing",
    "TrialMechanism",
    "audit",
    "audit_cases",
    "broken",
    "exact",
    "mechanisms",
]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
