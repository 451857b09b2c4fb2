"""The audited mechanisms of the package: adjacent inputs chosen to show a large loss, and numbers of trials."""

from __future__ import annotations

from fastdp_lab.audit.catalogue.case import Case
from fastdp_lab.audit.catalogue.points import points
from fastdp_lab.audit.catalogue.streams import one_by_one, repeated
from fastdp_lab.audit.catalogue.sums import sums
from fastdp_lab.audit.catalogue.tables import tables


def audit_cases() -> list[Case]:
    """The mechanisms of the package: an audit must find them consistent with their claims."""
    return [*sums(1.0), *repeated(1.0), *one_by_one(1.0), *points(1.0), *tables(1.0)]


__all__ = ["Case", "audit_cases"]
