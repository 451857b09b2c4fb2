"""A table of events replayed in batches equals the publisher's own steps."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.ledger import Ledger
from fastdp.points import Box, replay

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
RNG = np.random.default_rng(2)
POINTS, APPEAR = RNG.random((600, 2)) * (10.0, 5.0), np.ones(600, bool)
POINTS[400::3], APPEAR[400::3] = POINTS[:67], False
#: One event every four minutes: 90 in six hours.
TIMES = np.datetime64("2024-01-01", "s") + np.arange(600) * np.timedelta64(240, "s")
FRAME = pa.table({"time": TIMES, "lon": POINTS[:, 0], "lat": POINTS[:, 1], "event": np.where(APPEAR, 1, -1)})


def publisher(**more: Any) -> fastdp.PHDStream:
    return fastdp.PHDStream(Box([0, 0], [10, 5]), **{"epsilon": 2.0, "seed": 4, **more})


@pytest.mark.parametrize(
    ("cuts", "borders"),
    [
        ({"batch": 250}, [0, 250, 500, 600]),
        ({"batch": "6h"}, [*range(0, 600, 90), 600]),
        ({"batch": 200, "initial": 0.5}, [0, 300, 500, 600]),
    ],
)
def test_batches_are_steps(cuts: dict[str, Any], borders: list[int], tmp_path: Path) -> None:
    alone = publisher()
    steps = [
        alone.step(POINTS[begin:end][APPEAR[begin:end]], POINTS[begin:end][~APPEAR[begin:end]])
        for begin, end in pairwise(borders)
    ]
    made = replay(publisher(), FRAME, **cuts)
    assert all(map(np.array_equal, made.batches, steps))
    assert len(made.batches) == len(steps)
    assert (made.guarantee, made.total) == (alone.guarantee, alone.total)
    made.write(tmp_path / "out.csv")
    rows = np.loadtxt(tmp_path / "out.csv", delimiter=",", skiprows=1)
    assert np.array_equal(rows[:, 1:], np.concatenate(steps))
    assert np.array_equal(np.bincount(rows[:, 0].astype(int)), [len(step) for step in steps])
    assert json.loads((tmp_path / "out.csv.json").read_text())["guarantee"] == made.guarantee.to_dict()


def test_rows_are_brought_into_order() -> None:
    order = RNG.permutation(600)
    made = replay(publisher(), FRAME.take(order), batch="6h", sort=True)
    assert all(map(np.array_equal, made.batches, replay(publisher(), FRAME, batch="6h").batches))
    with pytest.raises(DataError, match=r"row [\d,]+ is earlier than the one before it; .* or sort=True"):
        replay(publisher(), FRAME.take(order), batch="6h")


def test_what_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    charged = {"ledger": ledger, "stream": "a"}
    for given in ({"batch": 0}, {"batch": 9.5}, {"batch": "90"}, {"batch": "1mo"}, {"batch": 9, "x": "nope"}):
        with pytest.raises(ParameterError):
            replay(publisher(), FRAME, **given, **charged)
    assert ledger.entries() == []
    # These depend on the events.
    with pytest.raises(DataError, match="holds no points"):
        replay(publisher(), FRAME.slice(0, 0), batch=9, **charged)
    small = fastdp.PHDStream(Box([0, 0], [1, 1]), 2.0)
    with pytest.raises(DataError, match=r"of 600 points are outside the domain; .* or outside='clip'"):
        replay(small, FRAME, batch=9, **charged)
    assert [entry.state for entry in ledger.entries()] == ["reserved"] * 2
