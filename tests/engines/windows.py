"""Rows of persons, the windows that release them, and what one machine releases of them without an engine."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from fastdp.engines import Job
from fastdp.engines.windows import columns_of, rows_of
from tests.engines.scenes import write_secret

START = datetime(2024, 5, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
#: Windows of a minute in which rows fall, and when the last one has ended.
WINDOWS = 8
END = START + WINDOWS * MINUTE
Row = dict[str, Any]
#: Some keys of the rows appear at once, some later, some never.
PRIVATE: Row = {"keys": fastdp.PrivateKeys(), "epsilon": 2.0, "delta": 1e-3}


@dataclass(frozen=True)
class Log:
    """Writes all that is ever visible to a file, from any process."""

    path: Path

    def __call__(self, row: Any) -> Any:
        data = pickle.dumps(row)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, len(data).to_bytes(8, "big") + data)
        os.close(descriptor)
        return row


def logged(path: Path) -> list[Any]:
    """Rows of a :class:`Log`."""
    found, data = [], path.read_bytes() if path.exists() else b""
    while data:
        end = 8 + int.from_bytes(data[:8], "big")
        found.append(pickle.loads(data[8:end]))  # noqa: S301
        data = data[end:]
    return found


def make_windows(persons: bool = True, **changes: Any) -> fastdp.Windows:
    unit = fastdp.Person("who", rows=2, per="1min") if persons else fastdp.Rows(1)
    given: dict[str, Any] = {"epsilon": 1.0, "by": "shop.town", "keys": ["a", "b", "c"], "unit": unit, "bounds": 10.0}
    given |= {"statistics": {"kwh": "sum", "*": "count"}} | changes
    time = fastdp.Time("at", "1min", start="2024-05-01", zone="UTC")
    return fastdp.Windows(given.pop("statistics"), time, **given)


def make_job(folder: Path, persons: bool = True, **changes: Any) -> Job:
    return Job(make_windows(persons, **changes), name="meters", secret=write_secret(folder))


def make_rows(count: int = 400, seed: int = 1) -> list[Row]:
    """In time order; persons with many rows, equal rows, a key that is not released, an empty window."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.integers(0, 60 * WINDOWS, count))
    seconds = seconds[(seconds < 180) | (seconds >= 240)]
    whose = rng.zipf(1.5, seconds.size) % 50
    rows = [
        {"at": START + timedelta(seconds=s), "shop.town": town, "kwh": kwh, "who": f"person {who}"}
        for s, town, kwh, who in zip(
            seconds.tolist(),
            rng.choice(list("abcd"), seconds.size).tolist(),
            rng.exponential(3.0, seconds.size).tolist(),
            whose.tolist(),
            strict=True,
        )
    ]
    return sorted([*rows, *rows[10:14]], key=lambda row: row["at"])


def expected(job: Job, rows: list[Row], to: datetime = END) -> list[Row]:
    """One machine's release, sorted by window and key."""
    plan = job.machine.plan  # type: ignore[attr-defined]
    whole = fastdp.Windows._of(job.machine, job.key.bind(plan))
    given = columns_of(job, rows)
    values = {each.name: given[each.name] for each in plan.columns} or None
    persons = given[plan.who] if plan.who else None
    whole.add(given["at"], values, {name: given[name] for name in plan.by} or None, persons)
    # Window by window, as a job releases them.
    found: list[Row] = []
    moment = START
    while moment < to:
        moment += MINUTE
        found += rows_of(whole.advance(moment))
    return in_order(found)


def in_order(rows: list[Row]) -> list[Row]:
    """Released rows by window and key; an end that is missing, NaN, is None, which equals itself."""
    plain = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: (row["window"], row["shop.town"]))


def assert_released(found: list[Row], job: Job, rows: list[Row]) -> None:
    """All windows, each with one noise however often it came."""
    found = in_order(found)
    once = {(row["window"], row["shop.town"]): row for row in found}
    assert all(once[row["window"], row["shop.town"]] == row for row in found), "an output with two noises"
    assert list(once.values()) == expected(job, rows)
