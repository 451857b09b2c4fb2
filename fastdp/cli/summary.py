"""Tables, durations and progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastdp.data.readers import Source


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


def watched(source: Source, *, quiet: bool) -> Iterator[NDArray[np.float64]]:
    """The source's chunks, with a bar if standard error is a terminal and ``quiet`` is not set."""
    unit = source.unit if source.unit == "B" else f" {source.unit}"
    with _bar(source.name, source.total, unit, quiet=quiet) as bar:
        for chunk in source.chunks:
            yield chunk
            bar.update(chunk.size if source.position is None else source.position() - bar.n)


def counted(total: int, unit: str, name: str, *, quiet: bool) -> Iterator[int]:
    """0 to ``total`` - 1, with a bar as :func:`watched`."""
    with _bar(name, total, f" {unit}", quiet=quiet) as bar:
        for number in range(total):
            yield number
            bar.update()


def _bar(name: str, total: int | None, unit: str, *, quiet: bool) -> tqdm[NoReturn]:
    return tqdm(
        total=total,
        unit=unit,
        unit_scale=True,
        desc=name,
        file=sys.stderr,
        disable=quiet or not sys.stderr.isatty(),
        leave=False,
    )
