"""Choice between noise in windows and in a calendar's numbers, where persons have rows in most windows.

Noise in each window errs by sqrt(2) T clips over epsilon, in m numbers of a calendar by sqrt(2) m and by the part
that it cannot express (:mod:`fastdp.tables.calendar_basis`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.tables.calendar_basis import Basis, best_size, calendar_basis
from fastdp.tables.shares import Shares, moved_by_calendar, shares_of

#: A calendar is taken unasked where it is expected to err so many times less.
BETTER = 3.0
#: Columns of so many windows take some 100 MB; more windows get noise each.
MOST_WINDOWS = 2**17
#: Expected value of a row, as a share of the bound.
LIKELY = 0.2
#: Sums are expected to be so many times the noise of one number, where nothing is known of them.
USUAL = 100.0


class Paths(NamedTuple):
    """Expected errors of a window, in bounds of a row, and the calendar."""

    windows: float
    calendar: float
    basis: Basis


def paths_of(shares: Shares, rows: float | None = None) -> Paths:
    """Both paths of a settled plan; ``rows``: expected in a cell."""
    plan = shares.plan
    assert plan.calendar is not None  # noqa: S101 - a plan that a calendar fits
    edges = plan.calendar.edges(plan.start or 0, plan.stop or 0)
    curve = plan.unit.basis if isinstance(plan.unit.basis, tuple) else None
    every = shares_of(replace(plan, basis=None)) if plan.basis is not None else shares
    full = calendar_basis(edges, plan.calendar.time_zone, curve)
    quantity = shares.quantities[0]

    def error(found: Shares) -> float:
        moved = found.moved(quantity, True)
        deviation = math.sqrt(moved) if found.gaussian else math.sqrt(2.0) * moved
        return deviation / found.loss_of(quantity, found.cells)

    def noise(size: int) -> float:
        basis = full.first(size)
        moved = moved_by_calendar(plan, basis, gaussian=whole.gaussian)
        return basis.window * error(replace(whole, moves={True: moved}))

    whole = shares_of(replace(plan, basis=full))
    level = (1.0 if quantity.name == "count" else LIKELY) * max(0.0, rows) if rows is not None else USUAL * noise(1)
    size, least = best_size(full, noise, level)
    return Paths(error(every), least, full.first(size))


def with_path(shares: Shares, rows: float | None = None, most: int = 0) -> Shares:
    """Shares of a settled plan by a calendar, if asked for or expected to err less.

    ``rows``: expected in a cell; ``most``: in all.
    """
    plan = shares.plan
    if plan.misfit is not None or not plan.cells:
        return shares
    windows = (plan.stop or 0) - (plan.start or 0)
    if windows > MOST_WINDOWS:
        if plan.asks_calendar:
            raise plan.refused_basis(f"at most {MOST_WINDOWS:,} windows, not {windows:,}")
        return shares
    spanned = windows if plan.periods is None else min(windows, plan.windows_of_unit)
    if not plan.asks_calendar and 2 * plan.contributions < spanned:
        return shares
    try:
        found = paths_of(shares, rows)
        by_calendar = shares_of(replace(plan, basis=found.basis, most_counted=most))
        by_calendar.check_sums()
    except ParameterError:
        if plan.asks_calendar:
            raise
        return shares
    taken = plan.asks_calendar or BETTER * found.calendar < found.windows
    return by_calendar if taken else shares
