"""Every example runs, and all engines publish the same values."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.engines.scenes import needs

FOLDER = Path(__file__).parents[2] / "examples" / "engines"
PACKAGES = {
    "kafka": "confluent_kafka",
    "dask": "distributed",
    "spark": "pyspark",
    "flink": "pyflink",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(package)) for name, package in PACKAGES.items()])
def test_the_example_publishes_what_one_fleet_publishes(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    if name == "spark":
        # It takes the session of all tests, which goes on.
        monkeypatch.setattr(type(request.getfixturevalue("session")), "stop", lambda _: None)
    meters: Any = runpy.run_path(str(FOLDER / "meters.py"))
    ids, values, times = zip(*meters["readings"](), strict=True)
    out = meters["JOB"].fleet().publish(list(ids), list(values))[1].tolist()
    meters["summarize"](list(zip(ids, out, times, strict=True)))
    wanted, *_ = capfd.readouterr().out.splitlines()
    assert wanted.startswith("5000 published values of 50 meters, sum ")
    runpy.run_path(str(FOLDER / f"{name}_meters.py"), run_name="__main__")
    assert wanted in capfd.readouterr().out.splitlines()
