"""Import, first call and memory, each in a fresh process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import fastdp
from benchmarks import fresh_process, sizes
from benchmarks.streams import item_counts

CHUNK = 65_536


class Start:
    timeout = 300

    def track_import_beyond_numpy(self) -> float:
        fresh_process.import_seconds()
        return min(fresh_process.import_seconds() for _ in range(3))

    track_import_beyond_numpy.unit = "s"  # type: ignore[attr-defined]

    def track_first_name_beyond_numpy(self) -> float:
        fresh_process.first_name_seconds()
        return min(fresh_process.first_name_seconds() for _ in range(3))

    track_first_name_beyond_numpy.unit = "s"  # type: ignore[attr-defined]


class FirstCall:
    params = (("cold", "warm"),)
    param_names = ("kernel_cache",)
    timeout = 300

    def setup(self, state: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        if state == "warm":
            fresh_process.first_call_seconds(Path(self.folder.name))

    def teardown(self, state: str) -> None:
        self.folder.cleanup()

    def track_first_release(self, state: str) -> float:
        return fresh_process.first_call_seconds(Path(self.folder.name))

    track_first_release.unit = "s"  # type: ignore[attr-defined]


class EndlessStream:
    """Peak memory: the same for any length."""

    params = ((2**20, 2**22, 2**24, 2**26),)
    param_names = ("length",)
    timeout = 300

    def setup(self, length: int) -> None:
        self.publisher = fastdp.ToPS(epsilon=sizes.EPSILON, bound=sizes.BOUND, prune=2, seed=1)
        self.chunk = item_counts(CHUNK)
        self.out = np.empty(CHUNK)
        self.publisher.publish(self.chunk, out=self.out)

    def peakmem_publish(self, length: int) -> None:
        for _ in range(length // CHUNK):
            self.publisher.publish(self.chunk, out=self.out)
