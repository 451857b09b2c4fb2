"""Fingerprints of consumed values in a kept file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError
from fastdp.noise.key import Key
from fastdp.perturbers import Flat
from fastdp.state.driver import Replay, as_one
from fastdp.thresholds import Fixed

PARTS = [np.arange(5.0), np.arange(3.0), np.full(4, 2.0)]


def make() -> fastdp.StreamPublisher:
    options: dict[str, Any] = {"epsilon": 1.0, "bound": 8, "holdout": 0, "max_range": 16, "seed": 1}
    return fastdp.StreamPublisher(threshold=Fixed(4.0), perturber=Flat(), **options)


def digests(path: Path, parts: list[np.ndarray]) -> list[str]:
    publisher = make()
    publisher.keep(path)
    found = [publisher.digest]
    for part in parts:
        publisher.publish(part)
        found.append(publisher.digest)
    return found


def test_the_digest_rolls_on_with_every_call(tmp_path: Path) -> None:
    found = digests(tmp_path / "one", PARTS)
    assert found[0] == ""
    assert len(set(found)) == 4
    assert digests(tmp_path / "two", PARTS) == found
    other = digests(tmp_path / "three", [PARTS[0] + 1.0, *PARTS[1:]])
    assert not set(found[1:]) & set(other), "equal calls behind different ones are not the same"
    expected = ""
    for part, digest in zip(PARTS, found[1:], strict=True):
        keyed = {"key": make()._key.reveal(), "person": b"fastdp replay 1"}
        expected = hashlib.blake2b(bytes.fromhex(expected) + part.tobytes(), **keyed).hexdigest()
        assert digest == expected


def test_a_replay_needs_all_of_the_recorded_values() -> None:
    key = Key.from_seed(1)
    recorded = Replay.of(PARTS[0], key)
    recorded.check(PARTS[0], key)
    recorded.check(np.concatenate([PARTS[0], [9.0]]), key)
    for size in (0, 4):
        with pytest.raises(DataError, match="at least the 5 values"):
            recorded.check(PARTS[0][:size], key)
    for wrong in (PARTS[0] + 1.0, PARTS[0][::-1].copy()):
        with pytest.raises(DataError, match="differs"):
            recorded.check(wrong, key)
    with pytest.raises(DataError, match="differs"):
        recorded.check(PARTS[0], Key.from_seed(2))
    with pytest.raises(DataError, match="differs"):
        recorded.check(PARTS[0], key, recorded.digest)


def test_parts_of_a_batch_do_not_run_together() -> None:
    batches = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (b"ab", b"c", b"")]
    assert len({as_one(*batch).tobytes() for batch in batches}) == len(batches)
    arrays = [(PARTS[0][:2], PARTS[0][2:]), (PARTS[0][:3], PARTS[0][3:])]
    assert as_one(*arrays[0]).tobytes() != as_one(*arrays[1]).tobytes()
