"""Import and first call, each in a fresh process."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.speed import fresh


class Import:
    params = (("fastdp", "fastdp.ToPS"),)
    param_names = ("name",)
    timeout = 300

    def track_beyond_numpy(self, name: str) -> float:
        script = fresh.IMPORT if name == "fastdp" else fresh.FIRST_NAME
        return min([fresh.number(script) for _ in range(4)][1:])

    track_beyond_numpy.unit = "s"  # type: ignore[attr-defined]


class FirstCall:
    params = (("cold", "warm"),)
    param_names = ("kernel_cache",)
    timeout = 300

    def setup(self, state: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        if state == "warm":
            self.track_first_release(state)

    def teardown(self, state: str) -> None:
        self.folder.cleanup()

    def track_first_release(self, state: str) -> float:
        return fresh.number(fresh.FIRST_RELEASE.format(method="adaptive"), Path(self.folder.name))

    track_first_release.unit = "s"  # type: ignore[attr-defined]
