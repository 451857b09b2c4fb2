"""Windows of a table, naively: a dictionary of exact sums, datetime and zoneinfo, noise drawn from words by hand.

Sources: ``docs/tables_proofs.md``; ``docs/noise.md``, sections 1 and 2.
"""

from __future__ import annotations

import hashlib
import re
import struct
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cache, partial
from zoneinfo import ZoneInfo

from tests.oracles import bulk, persons, words

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS = {"s": 1, "min": 60, "h": 3600}


def instant(clock, zone):
    """Microseconds of a clock time, or of an aware one; UTC where there is a zone."""
    if clock.tzinfo is None:
        clock = clock.replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    return (clock - EPOCH) // timedelta(microseconds=1)


@cache
def rules(zone, begin=None):
    """Digest of a zone's clock from the day of an instant on, 1800 by default, to 2100.

    Day by day; where the clock was changed the minute and the second are looked for one by one.
    """
    if zone is None:
        return None
    micro, plain = timedelta(microseconds=1), datetime(1970, 1, 1)
    clock = datetime(1800, 1, 1) if begin is None else plain + timedelta(begin // (86_400 * 10**6))

    def offset(shown):
        return shown.replace(tzinfo=ZoneInfo(zone)).utcoffset()

    changes, offsets = [], [offset(clock)]
    while clock < datetime(2100, 1, 1):
        behind = clock + timedelta(1)
        if offset(behind) != offsets[-1]:
            while offset(clock + timedelta(minutes=1)) == offsets[-1]:
                clock += timedelta(minutes=1)
            while offset(clock) == offsets[-1]:
                clock += timedelta(seconds=1)
            changes.append(clock)
            offsets.append(offset(clock))
        clock = behind
    if not any(offsets):
        return None
    numbers = [(each - plain) // micro for each in changes] + [each // micro for each in offsets]
    return hashlib.sha256(struct.pack(f"<{len(numbers)}q", *numbers)).digest()


def window(moment, every, zone):
    """Number of the window that holds an instant."""
    count, unit = re.fullmatch(r"(\d+)(\w+)", every).groups()
    if unit in SECONDS:
        origin = instant(datetime(1970, 1, 1), zone)
        return (moment - origin) // (int(count) * SECONDS[unit] * 10**6)
    shown = (EPOCH + timedelta(microseconds=moment)).astimezone(ZoneInfo(zone) if zone else UTC).date()
    if unit in ("d", "w"):
        first, days = (date(1970, 1, 1), 1) if unit == "d" else (date(1970, 1, 5), 7)
        return (shown - first).days // (days * int(count))
    months = (shown.year - 1970) * 12 + shown.month - 1
    return months // (int(count) * (12 if unit == "y" else 1))


def bounded(rows, every, zone, contributions, period, per_window, composition, valued):
    """The rows (time, key, value, person) that count: those of least hash; ``composition`` is its secret.

    A value is a number or, of several columns, a tuple of them.
    """
    sip_key, named = persons.sip_key(composition), []
    for at, key, value, person in rows:
        moment = instant(at, zone)
        group = person, window(moment, period, zone) if period else 0
        values = value if isinstance(value, tuple) else (value,)
        said = persons.digest(str(person)), moment, persons.word(key), values if valued else ()
        named.append((group, window(moment, every, zone), said, partial(persons.row_hash, sip_key, *said)))
    kept = persons.kept(named, contributions, per_window)
    return [row[:3] for place, row in enumerate(rows) if place in kept]


def exact_sums(rows, every, zone, keys, first, last, step_of):
    """Sums of ``step_of(value)`` by window and key: a list of lists."""
    sums = {(w, key): 0 for w in range(first, last) for key in keys}
    for at, key, value in rows:
        cell = window(instant(at, zone), every, zone), key
        if cell in sums:
            sums[cell] += step_of(value)
    return [[sums[w, key] for key in keys] for w in range(first, last)]


def steps(value, resolution, low, high):
    """A value in whole steps: clipped, rounded half to even."""
    return round(min(max(Fraction(value) / Fraction(resolution), low), high))


def noisy(sums, secret, labels, first, keys, scales, level=None, span=()):
    """Sums of each statistic with noise bound to those of a node, modulo 2^64: a list of matrices, as ``sums`` is.

    ``level`` is the number of key columns and whether sums are of each window, by default the cells; ``span`` the
    windows of sums over all of them.
    """
    level = (len(keys[0]), True) if level is None else level
    own = words.within(secret, "sums", *level, *span, *[label for each in labels for label in each])
    draws = [bulk.laplace(scale) for scale in scales]
    found = [[list(row) for row in each] for each in sums]
    for w in range(len(sums[0])):
        for k, key in enumerate(keys):
            exact = [each[w][k] for each in sums]
            for i, noise in enumerate(bulk.cell(own, first + w, key, exact, draws)):
                found[i][w][k] = (exact[i] + noise + 2**63) % 2**64 - 2**63
    return found
