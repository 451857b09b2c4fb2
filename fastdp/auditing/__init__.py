"""Lower bounds on epsilon from runs of any callable (``docs/audit.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.auditing.run import AuditResult, Publishing, TrialMechanism, audit

__all__ = ["AuditResult", "Publishing", "TrialMechanism", "audit"]


_HOMES = {
    "fastdp.auditing.run": ("AuditResult", "Publishing", "TrialMechanism", "audit"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
