"""What a release says at its end: public facts only.

Nothing here may be computed from the values other than by the publisher; lengths are public.
"""

from __future__ import annotations

from collections.abc import Iterable


def as_table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, one a line, aligned."""
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in listed)


def seconds(duration: float) -> str:
    """A duration of readable length: 0.0021 s, 12.3 s."""
    return f"{duration:.3g} s" if duration < 100 else f"{duration:,.0f} s"


def rate(count: int, duration: float) -> str:
    """Values per second, with a word for the size."""
    per_second = count / max(duration, 1e-9)
    for unit, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if per_second >= unit:
            return f"{per_second / unit:.3g}{word} values/s"
    return f"{per_second:.3g} values/s"
