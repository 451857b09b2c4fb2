"""Cells of a text as numbers: values, and moments as seconds since 1970."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime


def number(cell: str) -> float | None:
    """The number in a cell, or None; underscores, which Python accepts, are no part of a number in a file."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


class Times:
    """Seconds since 1970 from cells in one notation; moments without a zone count as UTC, so days are the clock's."""

    EXPECTED = (
        "expected seconds, or moments such as 2014-04-01T00:11:00 or 4/1/2014 0:11:00, in one notation in all rows"
    )

    def __init__(self) -> None:
        self._notations: tuple[Callable[[str], float | None], ...] = (number, _iso, _american)

    @property
    def may_be_numbers(self) -> bool:
        """Whether no cell has been a moment."""
        return self._notations[0] is number

    def are_numbers(self) -> None:
        """Whether or not there was a cell: those that follow are numbers."""
        self._notations = (number,)

    def seconds(self, cell: str) -> float:
        """As a call; ValueError if the cell is no time."""
        found = self(cell)
        if found is None:
            raise ValueError
        return found

    def __call__(self, cell: str) -> float | None:
        """The first cell that is a time settles the notation."""
        for notation in self._notations:
            seconds = notation(cell)
            if seconds is not None:
                self._notations = (notation,)
                return seconds
        return None


def _iso(cell: str) -> float | None:
    try:
        return _seconds(datetime.fromisoformat(cell))
    except ValueError:
        return None


def _american(cell: str) -> float | None:
    try:
        return _seconds(datetime.strptime(cell, "%m/%d/%Y %H:%M:%S"))
    except ValueError:
        return None


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
