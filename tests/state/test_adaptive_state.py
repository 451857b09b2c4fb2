"""State files, replays, copies and interrupts of publishers whose blocks follow the stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastdp.state import codec
from fastdp.streams.methods import Adaptive
from fastdp_kernels.streams import block_lengths as b
from tests.state.adaptive_publishers import CLOSINGS, make, stream


def test_a_release_is_kept_too(tmp_path: Path) -> None:
    publisher = make()
    publisher.keep(tmp_path / "kept")
    release = publisher.release(stream())
    assert np.array_equal(Adaptive.load(tmp_path / "kept", replay=True).publish(stream()), release.values)
    assert np.array_equal(release.values, make().publish(stream()))


#: Numbers of a memory.
NUMBERS = b.MEMORY.itemsize // 8


def packed(memory: np.ndarray) -> str:
    return codec.pack(memory.view(np.float64), "<f8")


def tampered(memory: np.ndarray, place: str, value: float) -> str:
    changed = memory.copy()
    changed[place] = value
    return packed(changed)


@pytest.mark.parametrize("n", [100, 560, 600, 1111, 6000])
@pytest.mark.parametrize("closing", CLOSINGS)
def test_positions_out_of_range_are_refused(n: int, closing: str) -> None:
    publisher = make(closing=closing)
    publisher.publish(stream(n))
    good, memory = publisher._machine.pack(publisher._state), publisher._progress.smoother
    assert publisher._machine.pack(publisher._machine.unpack(good, publisher._key)) == good
    changes: dict[str, list[object]] = {
        "n_seen": [-1, float(n), "7"], "cycle": [1.0, -1], "held": [-1, 0.0], "blocks": [-1, 3.0],
        "filled": [-1, 2.0, *([2**40] if memory.size else [])], "open_sum": [1.0],
        "theta_steps": [-1, 1.5, 2**62 if memory.size else 10], "prediction": ["x", 3],
        "smoother": [packed(np.zeros(3)), packed(np.zeros(NUMBERS + 1)), packed(np.full(NUMBERS, np.inf))],
    }  # fmt: skip
    if memory.size:
        position_, exponent = memory["position"][0], memory["exponent"][0]
        changes["smoother"] += [packed(np.empty(0))] + [
            tampered(memory, place, value)
            for place, values in {
                "position": [position_ + 0.5, -1.0, np.nan, np.inf], "decided": [position_ + 1.0, -1.0, 0.5],
                "exponent": [-1.0, exponent + 0.5, 1e18, np.nan], "last": [-1.0, 0.5, 41.0, 1e18, np.nan],
                "energies": [np.nan], "level": [np.nan],
            }.items()
            for value in values
        ]  # fmt: skip
    else:
        changes["smoother"].append(packed(np.zeros(NUMBERS)))
    for name, wrong in changes.items():
        for value in wrong:
            with pytest.raises(ValueError, match=r"out of range|in place of"):
                publisher._machine.unpack({**good, name: value}, publisher._key)
