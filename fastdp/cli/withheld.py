"""Standard output of a release that was killed: nothing leaves again before its values have come again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastdp.cli.resumption import Resumption

Floats = NDArray[np.float64]
Write = Callable[[Floats], None]

#: Published values read back at a time.
BATCH = 2**17


class WithheldRows:
    """Output that leaves as it comes, but not before the values behind it are known to be the same as before.

    Parameters
    ----------
    resumption : Resumption
        Knows how far they must be.
    write : function of float64[n]
        Where the output leaves.
    """

    def __init__(self, resumption: Resumption, write: Write) -> None:
        self._resumption, self._write = resumption, write
        # Without a name, so that it vanishes with the process.
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed by leaving the block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.close()

    def write(self, values: Floats) -> None:
        """Publish what follows from the values followed so far."""
        if not self._resumption.verified:
            self._spool.write(np.ascontiguousarray(values).data)
            return
        # Write-ahead: the mark is on disk before anything behind it leaves.
        self._resumption.record()
        self._empty()
        self._write(values)

    def _empty(self) -> None:
        if not self._spool.tell():
            return
        self._spool.seek(0)
        while raw := self._spool.read(8 * BATCH):
            self._write(np.frombuffer(raw, np.float64))
        self._spool.seek(0)
        self._spool.truncate()
