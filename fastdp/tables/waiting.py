"""Rows of persons in open windows: which of them count is known only once their window closes.

Rows are appended, and a call leaves those before it as they are.  So a state shares its rows with later states,
a call copies none of them, and one that fails has changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastdp.kinds import Integers
from fastdp_kernels.tables import person_rows

#: Columns of what a row says: two halves of the person's digest, instant, key, bits of the value.
COLUMNS = 5
#: Rows of closed windows stay as long as they are no more than the others, or than these.
SPARE = 1024


@dataclass(frozen=True, eq=False)
class Waiting:
    """The rows of open windows.

    Attributes
    ----------
    rows : int64[capacity, COLUMNS + 1]
        What rows say, and the row before in the same window (-1: none).  Rows after ``size`` are free; the
        last one says how many are filled, by this state or by a later one.
    size : int
        How many rows there are.
    gone : int
        How many of them lie in windows that are closed.
    ends : int64[open windows]
        The last row of each, or -1.
    moved : int
        How many times rows of closed windows were left out.
    """

    rows: Integers
    size: int
    gone: int
    ends: Integers
    moved: int = 0

    def __repr__(self) -> str:
        return f"Waiting(windows={self.ends.size})"

    @classmethod
    def none(cls) -> Waiting:
        """Before any row."""
        return cls(np.empty((0, COLUMNS + 1), np.int64), 0, 0, np.empty(0, np.int64))

    def widened(self, windows: int) -> Waiting:
        """With at least so many open windows, in arrays of its own where they change."""
        ends: Integers = np.full(max(windows, self.ends.size), -1, np.int64)
        ends[: self.ends.size] = self.ends
        return replace(self, ends=ends)

    def compact(self) -> Waiting:
        """Without the rows of closed windows, where they are many; else as it is."""
        live = self.size - self.gone
        if self.gone <= max(live, SPARE):
            return self
        fresh = Waiting.none().widened(self.ends.size)
        for window in np.flatnonzero(self.ends >= 0).tolist():
            rows = self.rows[person_rows.chained_rows(self.rows, self.ends[window : window + 1])]
            fresh = fresh.with_rows(rows[:, :COLUMNS], np.full(len(rows), window))
        return replace(fresh, moved=self.moved + 1)

    def with_rows(self, said: Integers, windows: Integers) -> Waiting:
        """With these rows after the others: int64[m, COLUMNS], and places of their open windows.

        ``ends`` is changed: :meth:`widened` comes first.
        """
        rows, size = self.rows, self.size + len(said)
        if size >= len(rows) or rows[-1, 0] != self.size:
            # No room, or another state has filled it.
            rows = np.empty((2 * size + 2, COLUMNS + 1), np.int64)
            rows[: self.size] = self.rows[: self.size]
        rows[self.size : size, :COLUMNS] = said
        person_rows.link_rows(windows, rows, self.size, self.ends)
        rows[-1, 0] = size
        return replace(self, rows=rows, size=size)

    def of_first(self, windows: int) -> Integers:
        """What the rows of the first windows say: int64[n, COLUMNS]."""
        return self.rows[person_rows.chained_rows(self.rows, self.ends[:windows]), :COLUMNS]

    def without_first(self, windows: int, rows: int) -> Waiting:
        """Once the first windows are closed, which have so many rows."""
        return replace(self, ends=self.ends[windows:], gone=self.gone + rows)

    def alone(self) -> Waiting:
        """With rows that no other state shares."""
        return replace(self, rows=self.rows[: self.size].copy())
