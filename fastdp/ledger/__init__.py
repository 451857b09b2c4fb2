"""What was released on which stream under which guarantee, and how much of a budget is left: :class:`Ledger`."""

from __future__ import annotations

from fastdp.ledger.composition import Budget, compose
from fastdp.ledger.entry import Entry
from fastdp.ledger.ledger import Ledger, Reservation

__all__ = ["Budget", "Entry", "Ledger", "Reservation", "compose"]
