"""Distinct entries up to each window, naively: sets and sorted lists (``docs/tables_proofs.md``, "Reach")."""

from __future__ import annotations

from collections import defaultdict


def counted(rows, most=None, rank=lambda entry, key: 0):
    """Cells (entry, window, key) in which entries are new: their first window in each of their first keys.

    Rows are (entry, window, key).  Of an entry's keys the first `most` in order of windows count (None: all), within
    a window those of least `rank`.
    """
    firsts = defaultdict(dict)
    for entry, window, key in rows:
        firsts[entry][key] = min(window, firsts[entry].get(key, window))
    return {
        (entry, window, key)
        for entry, keys in firsts.items()
        for window, _, key in sorted((window, rank(entry, key), key) for key, window in keys.items())[:most]
    }


def reach(rows, windows, keys, most=None, rank=lambda entry, key: 0):
    """Distinct entries up to the end of each window: of all rows, [W], and in each key, [W][K]."""
    rows = [row for row in rows if 0 <= row[1] < windows and row[2] in keys]
    cells = counted(rows, most, rank)
    whole = [len({entry for entry, at, _ in rows if at <= window}) for window in range(windows)]
    by_key = [
        [len({entry for entry, at, of in cells if at <= window and of == key}) for key in keys]
        for window in range(windows)
    ]
    return whole, by_key
