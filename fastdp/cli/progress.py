"""A progress bar on standard error, where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastdp.cli.readers import Source


def watched(source: Source, *, quiet: bool) -> Iterator[NDArray[np.float64]]:
    """The source's chunks, with a bar if standard error is a terminal and ``quiet`` is not set."""
    bar = tqdm(
        total=source.total,
        unit=source.unit if source.unit == "B" else f" {source.unit}",
        unit_scale=True,
        desc=source.name,
        file=sys.stderr,
        disable=quiet or not sys.stderr.isatty(),
        leave=False,
    )
    with bar:
        for chunk in source.chunks:
            yield chunk
            bar.update(chunk.size if source.position is None else source.position() - bar.n)
