"""Numbers of one column of a file, or of a live pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from fastdp.data.files import Csv
from fastdp.data.readers import open_values
from fastdp.kinds import Floats


def read_numbers(source: Any, column: str | None = None) -> Any:
    """All numbers of a column of a path, "-" or :class:`fastdp.Csv`; any other object unchanged."""
    if not isinstance(source, (str, os.PathLike, Csv)):
        return source
    path = source.path if isinstance(source, Csv) else os.fspath(source)
    with open_values(str(path), column, 2**18) as opened:
        return np.concatenate([np.empty(0), *opened.chunks])


def live_numbers(stream: BinaryIO, column: str | None = None, csv: Csv | None = None) -> Iterator[Floats]:
    """Numbers of lines as they arrive; a missing one is NaN."""
    with open_values("-", column, 2**16, live=True) as opened:
        yield from opened.chunks
