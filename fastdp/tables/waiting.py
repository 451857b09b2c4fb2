"""Rows of open windows, which count only when their window closes, as a state that a call extends without copying."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastdp.kinds import Integers
from fastdp.state import codec
from fastdp_kernels.tables import person_rows

#: Rows of closed windows stay as long as they are no more than the others, or than these; so do rows of one cell.
SPARE = 1024
#: Rows in one part of a state file's log.
PART_ROWS = 2**20


@dataclass(frozen=True, eq=False)
class Waiting:
    """Rows of open windows: window, key, and further numbers.

    Rows are appended after existing ones, so states share rows, a call copies none, and a failed call changes
    nothing.  ``rows``, int64[capacity, c + 1], hold in the last column the index of the previous row in the same
    window (-1: none).  Rows from ``size`` on are free; the array's last row holds the number filled, by this state or
    a later one.  ``gone`` counts rows of closed windows, ``ends`` is the last row of each open window or -1,
    ``moved`` counts compactions and ``base`` the rows after the last one.  If ``merges``, rows of one window and key
    are added up then.
    """

    rows: Integers
    ends: Integers
    merges: bool
    size: int = 0
    gone: int = 0
    moved: int = 0
    base: int = 0

    def __repr__(self) -> str:
        return f"Waiting(windows={self.ends.size})"

    @classmethod
    def none(cls, columns: int, *, merges: bool) -> Waiting:
        """A state without rows, which have so many columns, and without open windows."""
        return cls(np.empty((0, columns + 1), np.int64), np.empty(0, np.int64), merges)

    def compact(self, first: int) -> Waiting:
        """The state without rows of closed windows, and with merged ones, if these are many; else `self`.

        ``first`` is the number of the first open window.
        """
        live = self.size - self.gone
        crowded = self.merges and live > 2 * self.base + SPARE
        if self.gone <= max(live, SPARE) and not crowded:
            return self
        rows = self.of_first(self.ends.size)
        rows = _merged(rows) if self.merges else rows
        fresh = Waiting.none(rows.shape[1], merges=self.merges).with_rows(rows, first, self.ends.size)
        return replace(fresh, moved=self.moved + 1, base=fresh.size)

    def with_rows(self, said: Integers, first: int, windows: int = 0) -> Waiting:
        """The state with the rows `said`, int64[m, c], in at least so many open windows from number `first` on."""
        places = said[:, 0] - first
        windows = max(windows, self.ends.size, int(places.max()) + 1 if len(places) else 0)
        ends = self.ends.copy()
        if windows > ends.size:
            ends = np.append(ends, np.full(windows - ends.size, -1, np.int64))
        rows, size = self.rows, self.size + len(said)
        if size >= len(rows) or rows[-1, 0] != self.size:
            # No free rows, or another state has filled them.
            rows = np.empty((2 * size + 2, self.rows.shape[1]), np.int64)
            rows[: self.size] = self.rows[: self.size]
        rows[self.size : size, :-1] = said
        person_rows.link_rows(places, rows, self.size, ends)
        rows[-1, 0] = size
        return Waiting(rows, ends, self.merges, size, self.gone, self.moved, self.base)

    def came(self, before: Waiting) -> Integers:
        """Rows that one call has added to the state `before`."""
        return self.rows[before.size if before.moved == self.moved else self.base : self.size, :-1]

    def of_first(self, windows: int) -> Integers:
        """Rows of the first `windows` open windows: int64[n, c]."""
        return self.rows[person_rows.chained_rows(self.rows, self.ends[:windows]), :-1]

    def without_first(self, windows: int, rows: int) -> Waiting:
        """The state after the first `windows` windows, with `rows` rows, are closed."""
        return replace(self, ends=self.ends[windows:], gone=self.gone + rows)

    def alone(self) -> Waiting:
        """A copy whose rows no other state shares."""
        return replace(self, rows=self.rows[: self.size].copy())


def _merged(rows: Integers) -> Integers:
    """Rows of one window and key added up, modulo 2^64: int64[m, c]."""
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    cells = rows[:, :2]
    starts = np.flatnonzero(np.append(True, (cells[1:] != cells[:-1]).any(axis=1))[: len(rows)])
    return np.column_stack((cells[starts], np.add.reduceat(rows[:, 2:], starts, axis=0))) if len(rows) else rows


def row_parts(rows: Integers, kind: bytes) -> list[bytes]:
    """Rows as parts of a log, each small enough for a state file."""
    return [b"%b:%b" % (kind, codec.pack(rows[i : i + PART_ROWS], "<i8")) for i in range(0, len(rows), PART_ROWS)]
