"""Lengths of time written as texts: "30min", "1.5h", "1d"."""

from __future__ import annotations

import re
from fractions import Fraction

#: Microseconds of the units that are always as long.
FIXED = {"us": 1, "ms": 1_000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6}
DAY = 24 * FIXED["h"]
_TEXT = re.compile(r"(\d{0,12}(?:\.\d{1,6})?) ?([a-z]+)", re.ASCII)


def split_duration(text: object) -> tuple[Fraction, str]:
    """The number, 1 if it is left out, and the unit; a number of 0 where the text is no length of time."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return (Fraction(found[1] or 1), found[2]) if found else (Fraction(0), "")
