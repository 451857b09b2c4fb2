"""What was released on which stream under which guarantee, and how much of a budget is left.

The account is a file that only grows: see :class:`Ledger` and ``docs/ledger.md``.
"""

from __future__ import annotations

from fastdp.ledger.accounting import compose
from fastdp.ledger.entry import Entry
from fastdp.ledger.ledger import Ledger, Reservation
from fastdp.ledger.tally import Budget

__all__ = ["Budget", "Entry", "Ledger", "Reservation", "compose"]
