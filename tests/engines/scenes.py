"""A small job, its rows, what they must give, and which engines are here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.engines import Job

Row = tuple[str, float, int]


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skips where a package of the extra ``engines`` is not installed."""
    missing = [name for name in modules if find_spec(name) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"needs {', '.join(missing)} (pip install 'fastdp-streams[engines]')"
    )


def write_secret(folder: Path) -> str:
    """Where workers find the secret of these tests."""
    path = folder / "secret"
    path.write_bytes(bytes(range(32)))
    return f"file:{path}"


def make_job(folder: Path, **parameters: Any) -> Job:
    given = {"epsilon": 1.0, "bound": 10.0, "threshold": 5.0, "max_range": 256} | parameters
    return Job(fastdp.Adaptive(**given), name="meters", secret=write_secret(folder))


def make_rows(count: int, streams: int = 7, seed: int = 1) -> list[Row]:
    """Id, value, place among all rows."""
    rng = np.random.default_rng(seed)
    ids, values = rng.integers(0, streams, count), rng.uniform(0.0, 10.0, count)
    return [(f"m{k}", value, place) for place, (k, value) in enumerate(zip(ids, values.tolist(), strict=True))]


def expected(job: Job, rows: list[Row]) -> dict[int, float]:
    """What one fleet publishes for the row at each place."""
    ids, values, places = zip(*rows, strict=True)
    published = job.fleet().publish(list(ids), list(values))[1]
    return dict(zip(places, published.tolist(), strict=True))
