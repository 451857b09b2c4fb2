"""PAK's state files beyond the table of all objects: every cut, damaged positions, parts, sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fastdp
from fastdp.errors import StateError
from fastdp.state import driver
from fastdp.state.sealed_file import StateFile

LENGTH, HOLDOUT = 1500, 600


def stream() -> np.ndarray:
    return np.random.default_rng(102).gamma(2.0, 8.0, LENGTH)


def make(**options) -> fastdp.PAK:
    settings = {"epsilon": 1.0, "delta": 1e-6, "bound": 200, "length": LENGTH, "holdout": HOLDOUT, "seed": 8}
    return fastdp.PAK(**{**settings, **options})


def test_damage_within_an_authentic_file_is_one_error(tmp_path: Path) -> None:
    values = stream()
    publisher = make(average=5)
    publisher.publish(values[:300])
    publisher.save(tmp_path / "early")
    publisher.publish(values[300:800])
    publisher.save(tmp_path / "late")
    contents = {name: driver.read_file(StateFile(tmp_path / name))[0] for name in ("early", "late")}
    damages = [
        ("early", ("now", "n_seen"), 299), ("early", ("now", "lag"), "?"),
        ("early", ("now", "counter"), contents["late"]["now"]["counter"]), ("late", ("now", "counter"), None),
        ("late", ("now", "n_seen"), 801), ("late", ("now", "counter", "seen"), 10**6),
        ("late", ("now", "counter", "above"), [0]), ("late", ("now", "counter", "total"), 2**70),
        ("late", ("now", "counter", "theta_steps"), 10**15), ("late", ("now", "counter", "theta_steps"), 0),
        ("late", ("now", "recent"), "?"), ("late", ("composition", "average"), 2),
        ("late", ("composition", "epsilon"), "many"), ("late", ("composition", "threshold", "name"), "os"),
        ("late", ("secret",), "zz"),
    ]  # fmt: skip
    for number, (name, place, value) in enumerate(damages):
        broken = json.loads(json.dumps(contents[name]))
        inner = broken
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = value
        path = tmp_path / f"broken{number}"
        StateFile(path).write(json.dumps(broken).encode(), None)
        with pytest.raises(StateError, match="damaged"):
            fastdp.PAK.load(path)


def test_a_long_lag_is_written_once_it_is_known_only(tmp_path: Path) -> None:
    """Once the threshold stands, the file forgets the hold-out."""
    publisher = make()
    publisher.keep(tmp_path / "kept")
    publisher.publish(stream()[:599])
    early = (tmp_path / "kept").stat().st_size
    publisher.publish(stream()[599:700])
    publisher.publish(stream()[700:800])
    assert (tmp_path / "kept").stat().st_size < early / 2
