"""Readings of 50 generated meters, and the job that all examples of engines run."""

import os

import numpy as np

import fastdp
from fastdp.engines import Job

# In production a secret store; os.environ.setdefault is for this example alone.
os.environ.setdefault("FASTDP_SECRET", "00" * 31 + "2a")
JOB = Job(fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0), name="meters", secret="env:FASTDP_SECRET")


def readings(count: int = 5000) -> list[tuple[str, float, int]]:
    """Rows (id, kWh, time) in the order in which they arrive."""
    rng = np.random.default_rng(1)
    ids, values = rng.integers(0, 50, count), rng.gamma(2.0, 1.2, count)
    return [(f"meter-{k}", value, time) for time, (k, value) in enumerate(zip(ids, values.tolist(), strict=True))]


def summarize(rows: list[tuple[str, float, int]]) -> None:
    """The same numbers for every engine."""
    total = sum(value for _, value, _ in sorted(rows, key=lambda row: row[2]))
    print(f"{len(rows)} published values of {len({row[0] for row in rows})} meters, sum {total:.6f}")
    print(JOB.guarantee)
