"""What a fresh Python process costs: import, first call, memory of an endless stream.

Each function starts an interpreter of its own and reads one number from its standard output.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.kernel_cache import VARIABLE

IMPORT = """
from time import perf_counter
import numpy
start = perf_counter()
import fastdp
print(perf_counter() - start)
"""

FIRST_NAME = """
from time import perf_counter
import numpy
start = perf_counter()
import fastdp
fastdp.ToPS
print(perf_counter() - start)
"""

FIRST_CALL = """
from time import perf_counter
import numpy as np
import fastdp
values = np.arange(4096.0) % 50
start = perf_counter()
release = fastdp.release(values, epsilon=0.5, bound=100)
release.range_sum([0], [1000])
print(perf_counter() - start)
"""

GROWTH = """
import resource, sys
import numpy as np
import fastdp
publisher = fastdp.ToPS(epsilon=0.05, bound=1657, prune=2, seed=1)
chunk = np.arange(65_536.0) % 50
out = np.empty(chunk.size)
for _ in range(40):
    publisher.publish(chunk, out=out)
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
for _ in range({chunks}):
    publisher.publish(chunk, out=out)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before)
"""

SPATIAL_GROWTH = """
import resource, sys
from benchmarks.show.spatial_speed import Endless
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
endless = Endless()
endless.run(500)
before = peak()
endless.run({steps})
print(peak() - before)
"""

SPATIAL_PEAK = """
import resource, sys, tracemalloc
from benchmarks.show.spatial_speed import whole_run
from fastdp.datasets import concentric_circles
whole_run(concentric_circles(5_000, seed=0), 1.0, "simple", seed=0).sample()
stream = concentric_circles(seed=0)
traced = {traced}
if traced:
    tracemalloc.start()
whole_run(stream, 1.0, "simple", seed=0, sampled=True)
unit = 1 if sys.platform == "darwin" else 1024
print(tracemalloc.get_traced_memory()[1] if traced else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""


def run(script: str, cache: Path | None = None) -> float:
    """The number that a script prints in a fresh interpreter, its kernels cached in ``cache``."""
    environment = dict(os.environ)
    homes = [importlib.util.find_spec(name) for name in ("fastdp", "fastdp_kernels")]
    paths = [str(Path(home.origin).parents[1]) for home in homes if home is not None and home.origin is not None]
    paths.append(str(Path(__file__).resolve().parents[1]))
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if cache is not None:
        environment[VARIABLE] = str(cache)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    return float(done.stdout)


def import_seconds() -> float:
    """``import fastdp`` after ``import numpy``."""
    return run(IMPORT)


def first_name_seconds() -> float:
    """The same and ``fastdp.ToPS`` looked up, which loads the package's modules and numba."""
    return run(FIRST_NAME)


def first_call_seconds(cache: Path) -> float:
    """The first release and query, with the compiler's own import; cold if ``cache`` is empty."""
    return run(FIRST_CALL, cache)


def growth_bytes(chunks: int) -> float:
    """How far peak memory rises over ``chunks`` further chunks of 65,536 values, after two noise trees."""
    return run(GROWTH.format(chunks=chunks))


def spatial_growth_bytes(steps: int) -> float:
    """How far peak memory rises over so many further steps of PHDStream, after 500."""
    return run(SPATIAL_GROWTH.format(steps=steps))


def spatial_peak_bytes(*, traced: bool) -> float:
    """Peak memory of a process that runs circles with deletion, every step sampled; or of what the run alone made."""
    return run(SPATIAL_PEAK.format(traced=traced))
