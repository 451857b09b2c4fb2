"""Whole processes, from their start to their end, with the kernels of a wheel and an empty cache."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks import CACHE_VARIABLE
from benchmarks.speed.measure import keep, show
from benchmarks.speed.start import RELEASES

WHOLE = {
    "import pandas": "import pandas",
    **{
        name: f"import numpy as np, fastdp\nvalues = np.arange(4096.0) % 50\n{each}"
        for name, each in RELEASES.items()
    },
    "totals with pandas": """
import numpy as np, pandas as pd, fastdp
times = pd.date_range("2026-01-01", periods=480, freq="30min")
frame = pd.DataFrame({"time": times.repeat(60), "kwh": np.random.default_rng(0).gamma(2.0, 0.16, 28_800)})
fastdp.totals(frame, "kwh", "time", "1h", epsilon=1.0, bound=10.0).frame
""",
}


def run(
    python: Annotated[Path, "of an environment with pandas and a wheel's kernels"],
    *,
    runs: Annotated[int, "processes of each kind"] = 9,
) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in WHOLE}
    for name in (*WHOLE,) * (1 + runs):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, CACHE_VARIABLE: folder, "PYTHONPATH": ""}
            before = processor_time()
            subprocess.run(
                [Path(python).absolute(), "-c", WHOLE[name]],
                env=environment,
                cwd=folder,
                check=True,
                capture_output=True,
            )
            seconds[name].append(processor_time() - before)
            if any(Path(folder).rglob("*.nbi")):
                raise RuntimeError(f"{python} compiled for {name}: expected an environment with a wheel's kernels")
    # The first of each reads the files from the disk.
    warm = {f"a whole process ({name})": sample[1:] for name, sample in seconds.items()}
    for name, sample in warm.items():
        keep("wheel", name, sample)
    show("Processor time of a whole process", {k: np.array(v) for k, v in warm.items()}, {})


def processor_time() -> float:
    """Seconds of the processes that have ended."""
    used = os.times()
    return used.children_user + used.children_system
