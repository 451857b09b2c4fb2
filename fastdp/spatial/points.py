"""Points judged against a domain."""

from __future__ import annotations

import numpy as np

from fastdp.arrays.column import entry_at
from fastdp.arrays.kinds import Floats
from fastdp.errors import DataError
from fastdp.spatial.domain import Domain


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
        With the place of the first point outside and the number of them.
    """
    if outside == "clip":
        clipped: Floats = np.clip(rows, domain.lower, domain.upper)
        return snapped(clipped, domain)
    outsiders = ~domain.contains(rows)
    if outsiders.any():
        raise DataError(
            f"{entry_at(name, outsiders, 'a point outside the domain')}; expected points inside, or outside='clip'"
        )
    return snapped(rows, domain)


def snapped(rows: Floats, domain: Domain) -> Floats:
    """Points on a domain that is thinner than its tolerance, such as a road network; each moves on its own."""
    snap = getattr(domain, "snap", None)
    if snap is None or not rows.size:
        return rows
    places: Floats = snap(rows)
    return places
