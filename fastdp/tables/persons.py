"""At most so many rows of a person: which rows count, first come, whatever other persons do.

Rows of one person in one period are looked at together and with no others.  So adding or removing all of them leaves
every other row as it was, and changes at most k rows that count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
#: Columns of the counts: the two halves of a person's digest, period, window, rows that counted, rows that did not.
WIDTH = 6
#: In the column of windows: a line is about the whole period.
ALL = np.iinfo(np.int64).min


def no_counts() -> Integers:
    """Before any row."""
    return np.empty((0, WIDTH), np.int64)


def bound_rows(
    counts: Integers, persons: Integers, periods: Integers, windows: Integers, most: int, per_window: int | None
) -> tuple[Flags, Integers]:
    """Which rows count, and the counts behind them.

    Parameters
    ----------
    counts : int64[g, WIDTH]
        Of the rows before, in no order; not changed.
    persons : int64[n, 2]
        Digests.
    periods, windows : int64[n]
        Numbers of each row's period and window.
    most : int
        Rows of a person in a period.
    per_window : int or None
        Rows of a person in a window, of those in one period.

    Returns
    -------
    bool[n], int64[g', WIDTH]
        Rows beyond ``per_window`` do not count and use up nothing of ``most``; once ``most`` is reached no further
        row counts, so both bounds can be taken one after the other.
    """
    kept = np.ones(len(persons), np.bool_)
    lines = []
    if per_window is not None:
        groups = np.column_stack([persons, periods, windows])
        kept, found = _within(counts[counts[:, 3] != ALL], groups, kept, per_window)
        lines.append(found)
    groups = np.column_stack([persons, periods, np.full(len(persons), ALL)])
    kept, found = _within(counts[counts[:, 3] == ALL], groups, kept, most)
    lines.append(found)
    return kept, np.concatenate(lines)


def _within(counts: Integers, groups: Integers, candidates: Flags, most: int) -> tuple[Flags, Integers]:
    """Candidates that are among the first ``most`` of their group, and the counts with these rows."""
    known = len(counts)
    together = np.concatenate([counts[:, :4], groups])
    order = np.lexsort(together.T[::-1])
    ordered = together[order]
    begins = np.ones(len(ordered), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.empty(len(ordered), np.int64)
    group[order] = np.cumsum(begins) - 1
    size = int(begins.sum())
    carried, dropped = np.zeros(size, np.int64), np.zeros(size, np.int64)
    # Each group has at most one line so far.
    carried[group[:known]], dropped[group[:known]] = counts[:, 4], counts[:, 5]
    own = group[known:]
    rank = np.empty(len(own), np.int64)
    wanted = np.flatnonzero(candidates)
    # Stable: rows of one group in the order in which they came.
    sequence = wanted[np.argsort(own[wanted], kind="stable")]
    sizes = np.bincount(own[wanted], minlength=size)
    rank[sequence] = np.arange(sequence.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = candidates.copy()
    kept[wanted] = rank[wanted] + carried[own[wanted]] < most
    taken = np.bincount(own[kept], minlength=size)
    carried += taken
    dropped += np.bincount(own, minlength=size) - taken
    return kept, np.column_stack([ordered[begins], carried, dropped])


def ended(counts: Integers, first_period: int) -> Integers:
    """The counts without periods that no row can lie in any more."""
    return counts[counts[:, 2] >= first_period]


def whole_and_cut(counts: Integers) -> tuple[int, int]:
    """Persons (in each period) all of whose rows count, and those with rows that do not."""
    periods = counts[counts[:, 3] == ALL]
    cut = int(np.count_nonzero(periods[:, 5]))
    return len(periods) - cut, cut
