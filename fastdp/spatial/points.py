"""Points judged against a domain."""

from __future__ import annotations

import numpy as np

from fastdp import validation
from fastdp.errors import DataError
from fastdp.spatial.domain import Domain, Floats


def inside(rows: Floats, domain: Domain, outside: str, name: str) -> Floats:
    """The points, judged by the rule for those outside the domain.

    Parameters
    ----------
    rows : float64[n, d]
        From :func:`fastdp.spatial.checks.as_points`.
    domain : Domain
        The domain.
    outside : str
        ``"raise"`` refuses points outside the domain; ``"clip"`` moves them to the nearest point of its bounding box.
    name : str
        For messages.

    Raises
    ------
    DataError
        With the number of points outside.
    """
    if outside == "clip":
        clipped: Floats = np.clip(rows, domain.lower, domain.upper)
        return snapped(clipped, domain)
    strangers = int(rows.shape[0] - np.count_nonzero(domain.contains(rows)))
    if strangers:
        i = int(np.flatnonzero(~domain.contains(rows))[0])
        raise DataError(
            f"{name} has {strangers} of {rows.shape[0]} points outside the domain, first {name}[{i}] = "
            f"{validation.shown(rows[i].tolist())}: expected points inside, or outside='clip'"
        )
    return snapped(rows, domain)


def snapped(rows: Floats, domain: Domain) -> Floats:
    """Points on a domain that is thinner than its tolerance, such as a road network; each moves on its own."""
    snap = getattr(domain, "snap", None)
    if snap is None or not rows.size:
        return rows
    places: Floats = snap(rows)
    return places
