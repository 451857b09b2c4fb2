"""A progress bar on standard error, where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastdp.files.readers import Source


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
