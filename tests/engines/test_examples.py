"""Every example runs, and all engines publish the same values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.scenes import needs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "engines"
PACKAGES = {
    "bytewax": "bytewax",
    "quix": "quixstreams",
    "dask": "distributed",
    "ray": "ray",
    "spark": "pyspark",
    "flink": "pyflink",
}
SAID = "5000 published values of 50 meters, sum "


def expected() -> str:
    program = (
        "from meters import JOB, readings, summarize; rows = readings(); ids, values, times = zip(*rows); "
        "out = JOB.fleet().publish(list(ids), list(values))[1].tolist(); summarize(list(zip(ids, out, times)))"
    )
    return run(["-c", program])


def run(arguments: list[str]) -> str:
    paths = os.pathsep.join([str(FOLDER), str(ROOT), str(ROOT / "kernels"), str(ROOT / "lab")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [each for each in done.stdout.splitlines() if each.startswith(SAID)]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(package)) for name, package in PACKAGES.items()])
def test_the_example_publishes_what_one_fleet_publishes(name: str) -> None:
    assert run([str(FOLDER / f"{name}_meters.py")]) == expected()
