"""What is audited on the page ``docs/audit.md``: mechanisms, adjacent inputs that hurt, numbers of trials."""

from __future__ import annotations

from fastdp.auditing.catalogue.case import Case
from fastdp.auditing.catalogue.points import points
from fastdp.auditing.catalogue.streams import one_by_one, repeated
from fastdp.auditing.catalogue.sums import choices, fast, quantiles
from fastdp.auditing.catalogue.twins import broken_twins


def shipped() -> list[Case]:
    """The mechanisms of the package: an audit must find them consistent with their claims."""
    return [*fast(1.0), *quantiles(), *repeated(1.0), *one_by_one(1.0), *points(1.0)]


def audit_cases() -> list[Case]:
    """Shipped mechanisms first, then the broken twins."""
    return [*shipped(), *broken_twins()]


__all__ = ["Case", "audit_cases", "choices", "shipped"]
