"""Audits: lower bounds on epsilon from runs of a mechanism, which may be any callable (``docs/audit.md``).

Audits of this package's own mechanisms are in ``fastdp_lab.audit``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.auditing.run import AuditResult, Publishing, TrialMechanism, audit

__all__ = ["AuditResult", "Publishing", "TrialMechanism", "audit"]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, {"fastdp.auditing.run": tuple(__all__)})
