"""A ledger's releases for the accountants of ``dp_accounting``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fastdp._lazy import imported
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.ledger import Entry
from fastdp.ledger.odometer import common_kind, multiple

#: Above it a probability of randomized response is no float.
_MOST = 700.0
#: Relative margin above the rounding of a parameter.
_MARGIN = 2.0**-40


def dp_event(entries: Iterable[Entry]) -> Any:
    """A ``dp_accounting.DpEvent`` that costs no less than these entries of one stream together.

    For accountants with ``NeighboringRelation.REPLACE_ONE``: a pure epsilon is binary randomized response, a rho
    zCDP; other releases with a delta are unsupported, and disjoint parts add up.

    Parameters
    ----------
    entries : iterable of Entry
        :meth:`fastdp.Ledger.entries` of a stream; simulations and cancelled ones are left out.

    Returns
    -------
    dp_accounting.ComposedDpEvent
        One event an entry.

    Raises
    ------
    ParameterError
        If units do not compose, or the package is not installed.
    """
    told = "dp_event needs dp_accounting, which is not installed; install it with: pip install dp-accounting"
    events = imported("dp_accounting", ParameterError(told))
    counted = [entry for entry in entries if entry.counts]
    common = common_kind((entry.kind for entry in counted), counted[0].stream if counted else "")
    made = [_event(events, entry.guarantee, multiple(entry.kind, common) or 1) for entry in counted]
    # Not SelfComposedDpEvent: dp-accounting 0.6 counts randomized response in it once.
    return events.ComposedDpEvent(made)


def _event(events: Any, said: Guarantee, changes: int) -> Any:
    epsilon = said.epsilon * changes
    if not epsilon < _MOST:
        return events.NonPrivateDpEvent()
    if math.isfinite(said.rho) and not said.numeric_distance:
        return events.ZCDpEvent(said.rho * changes**2 * (1.0 + _MARGIN))
    if said.delta or said.numeric_distance:
        return events.UnsupportedDpEvent()
    # The true answer has probability 1 - p / 2, the other p / 2: their ratio is e^epsilon.
    return events.RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(epsilon)) * (1.0 - _MARGIN), 2)
