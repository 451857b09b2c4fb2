"""The calendar's columns, numbers and residual from their description: loops, datetimes and fractions."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from fractions import Fraction

#: Expected shares, as ``fastdp/tables/calendar_basis.py`` states them.
DAY, WEEKEND, ITS_DAY, WEEKDAY, SLOW, YEAR, CURVE = 0.04, 0.006, 0.002, 0.0005, 0.006, 0.02, 0.2


def functions(starts: list[datetime], hours: float, curve: list[float] | None = None):
    """Pairs of an expected share and values in each window, before any order."""
    count, days = len(starts), len(starts) * hours / 24.0
    clock = [(t.hour * 3600 + t.minute * 60 + t.second) / 86400.0 for t in starts]
    since = [(t - datetime(1970, 1, 1)) / timedelta(1) / 365.2425 for t in starts]
    off = [(1.0 if t.weekday() >= 5 else 0.0) - 2.0 / 7.0 for t in starts]
    found = []

    def waves(share, phase, most, factor):
        for h in range(1, most + 1):
            for wave in (math.cos, math.sin):
                found.append(
                    (share / h**2, [f * wave(2 * math.pi * h * p) for f, p in zip(factor, phase, strict=True)])
                )

    ones, most = [1.0] * count, min(12, int(12.0 / hours))
    if hours < 23:
        waves(DAY, clock, most, ones)
    if hours < 25 and days >= 14:
        found.append((WEEKEND, off))
        found += [(WEEKDAY, [1.0 if t.weekday() == day else 0.0 for t in starts]) for day in range(1, 7)]
        if hours < 23:
            waves(ITS_DAY, clock, min(most, 6), off)
    if days >= 730:
        waves(YEAR, since, min(4, int(0.5 * 365.2425 * 24 / hours)), ones)
    for h in range(1, min(24, count - 1) + 1):
        found.append((SLOW / h**2, [math.cos(math.pi * h * (i + 0.5) / count) for i in range(count)]))
    if curve is not None:
        found.append((CURVE, [curve[i % len(curve)] for i in range(count)]))
    return found


def columns(starts, hours, curve=None):
    """Integer columns: the mean, then functions by falling share, of each what is left of those before it."""
    count = len(starts)
    kept = [[count**-0.5] * count]
    for _, values in sorted(functions(starts, hours, curve), key=lambda each: -each[0]):
        length = math.sqrt(math.fsum(v * v for v in values)) or 1.0
        rest = [v / length for v in values]
        for _ in range(3):
            for column in kept:
                part = math.fsum(a * b for a, b in zip(column, rest, strict=True))
                rest = [a - part * b for a, b in zip(rest, column, strict=True)]
        length = math.sqrt(math.fsum(v * v for v in rest))
        if length > 1e-3:
            kept.append([v / length for v in rest])
    return [[round(65536 * v) for v in column] for column in kept]


def largest_row_sum(found):
    """Gershgorin's bound of the eigenvalues of Q' Q."""
    return max(sum(abs(sum(a * b for a, b in zip(one, other, strict=True))) for other in found) for one in found)


def l1_bound(found, square, keys):
    """Least integer whose square is at least K G m d."""
    wanted, most = square * largest_row_sum(found) * len(found) * keys, 0
    while most * most < wanted:
        most = max(most + 1, math.isqrt(wanted))
    return most


def residual(found, sums):
    """Integer below the root of X' (I - Q Q' / G) X, summed over keys: ``sums`` by key and window."""
    square = Fraction(0)
    for values in sums:
        inside = [sum(a * b for a, b in zip(column, values, strict=True)) for column in found]
        square += sum(v * v for v in values) - Fraction(sum(v * v for v in inside), largest_row_sum(found))
    return math.isqrt(math.floor(square))
