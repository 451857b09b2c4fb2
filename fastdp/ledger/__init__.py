"""A ledger records releases of streams and the budget left."""

from __future__ import annotations

from fastdp.ledger.entry import Entry
from fastdp.ledger.ledger import Ledger, Reservation
from fastdp.ledger.odometer import Budget

__all__ = ["Budget", "Entry", "Ledger", "Reservation"]
