"""Time of a fresh process before the first answer, and the memory of an endless stream."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks import CACHE_VARIABLE, ROOT
from benchmarks.shared import table
from benchmarks.speed.measure import keep, show

CHUNKS = (16, 1024)


def run(*, runs: Annotated[int, "fresh processes of each kind"] = 3) -> None:
    seconds: dict[str, list[float]] = {}
    for name, script in (
        ("import fastdp, beyond numpy", IMPORT),
        ("import fastdp and look up fastdp.ToPS (loads numba), beyond numpy", FIRST_NAME),
    ):
        number(script)  # The first one writes bytecode.
        seconds[name] = [number(script) for _ in range(runs)]
    for method in (*RELEASES,) * runs:
        with tempfile.TemporaryDirectory() as folder:
            # The first process fills the folder for the second.
            for cache in ("empty", "warm"):
                name = f"first release ({method}) and query, {cache} kernel cache"
                measured = number(FIRST_RELEASE.format(release=RELEASES[method]), Path(folder))
                seconds.setdefault(name, []).append(measured)
    for name, sample in seconds.items():
        keep("start", name, sample)
    show("Fresh process (first calls include the import of numba)", {k: np.array(v) for k, v in seconds.items()}, {})
    rises = [number(RISE.format(chunks=chunks)) / 2**20 for chunks in CHUNKS]
    keep("start", "memory after 67 million values more", rises[-1:], unit="MiB")
    table(
        "Endless stream, prune = 2, chunks of 65,536: rise of peak memory after 2.6 million values",
        ["further values", "MiB"],
        [[chunks * 65_536, rise] for chunks, rise in zip(CHUNKS, rises, strict=True)],
    )


_TIMED = """
from time import perf_counter
import numpy as np
{before}
start = perf_counter()
{work}
print(perf_counter() - start)
"""
IMPORT = _TIMED.format(before="", work="import fastdp")
#: Looking a name up loads the package's modules and numba.
FIRST_NAME = _TIMED.format(before="", work="import fastdp\nfastdp.ToPS")
#: Releases of a finished array by each method: the default, and the paper's.
RELEASES = {
    "adaptive": "fastdp.release(values, epsilon=0.5, bound=100)",
    "tops": "fastdp.ToPS(epsilon=0.5, bound=100, expected_length=4096).release(values)",
}
FIRST_RELEASE = _TIMED.format(
    before="import fastdp\nvalues = np.arange(4096.0) % 50", work="{release}.sum([0], [1000])"
)
_PEAK = """
import resource, sys
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
"""
#: How far peak memory rises over further chunks of 65,536 values, after two noise trees.
RISE = (
    _PEAK
    + """
import numpy as np
import fastdp
publisher = fastdp.ToPS(epsilon=0.05, bound=1657, prune=2, seed=1)
chunk = np.arange(65_536.0) % 50
for _ in range(40):
    publisher.publish(chunk)
before = peak()
for _ in range({chunks}):
    publisher.publish(chunk)
print(peak() - before)
"""
)


def number(script: str, cache: Path | None = None) -> float:
    """Output of a script in a fresh interpreter, its kernels cached in ``cache``."""
    environment = dict(os.environ)
    homes = [importlib.util.find_spec(name) for name in ("fastdp", "fastdp_kernels")]
    paths = [str(Path(home.origin).parents[1]) for home in homes if home is not None and home.origin is not None]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, str(ROOT)]))
    if cache is not None:
        environment[CACHE_VARIABLE] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return float(done.stdout)
