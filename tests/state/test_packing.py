"""Records as JSON and back, to the last bit; trees and codes of state files at their borders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.errors import StateError
from fastdp.spatial import Box
from fastdp.spatial.decomposition import KEPT, check_codes, describe_tree, shape
from fastdp.state import codec
from fastdp.thresholds import NoisyMax
from fastdp.thresholds.base import ThresholdTask


@dataclass(frozen=True)
class Record:
    """All that a record may hold."""

    count: int
    share: float
    name: str | None
    whole: NDArray[np.int64]
    real: NDArray[np.float64]
    pairs: tuple[tuple[int, float], ...] = ()


def test_records_come_back_to_the_last_bit() -> None:
    whole = np.array([[-(2**63), 2**63 - 1], [2**32, -1]])
    real = np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308, np.pi])
    record = Record(2**70, 0.1, None, whole, real, ((1, 0.5), (2, 0.25)))
    again = codec.restore(Record, json.loads(json.dumps(codec.describe(record))))
    assert (again.count, again.share, again.name, again.pairs) == (2**70, 0.1, None, record.pairs)
    assert again.whole.dtype == np.int64
    assert again.real.dtype == np.float64
    assert np.array_equal(again.whole, whole)
    assert again.real.tobytes() == real.tobytes()
    assert codec.restore(Record, {**codec.describe(record), "name": "x"}).name == "x"


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("count", 2.0), ("count", True), ("count", "2"), ("share", 1), ("name", 3), ("pairs", [[1, 2]])],
)
def test_entries_of_another_type_are_refused(field: str, wrong: Any) -> None:
    record = codec.describe(Record(1, 0.5, None, np.zeros(1, np.int64), np.zeros(1)))
    with pytest.raises((ValueError, TypeError)):
        codec.restore(Record, {**record, field: wrong})


@pytest.mark.parametrize("wrong", [2.0, True, "2", None, np.int64(2)])
def test_whole_numbers_are_python_integers(wrong: Any) -> None:
    assert codec.require_int(-(2**80)) == -(2**80)
    with pytest.raises(ValueError, match="whole number"):
        codec.require_int(wrong)


def test_documents_are_the_same_but_for_how_arrays_are_packed() -> None:
    first, second = np.arange(50), np.arange(50)
    text = codec.pack(first, "<i8")
    assert codec.same({"a": [1, {"b": text}]}, {"a": [1, {"b": codec.pack(second, "<i8")}]})
    second[7] = 0
    assert not codec.same({"a": text}, {"a": codec.pack(second, "<i8")})
    assert not codec.same({"b": 1}, {"a": 1})
    assert not codec.same({"a": 1, "b": 1}, {"a": 1})
    assert not codec.same({"a": 1}, {"a": 1, "b": 1})
    assert not codec.same([1, 2], [1])
    assert not codec.same([1], [1, 2])
    assert not codec.same("one", "two")
    assert not codec.same(1, 2)


def test_a_part_of_ones_own_is_not_taken_for_one_of_the_same_name() -> None:
    known = {"Record": Record}
    stranger = type("Record", (), {})()
    with pytest.raises(StateError, match="of your own"):
        codec.describe_part(stranger, known)


def plan_of(max_depth: int) -> Any:
    return AdaptivePHDStream(Box([0.0], [1.0]), 1.0, max_depth=max_depth)._plan


def test_codes_of_a_batch_ascend_within_the_domain() -> None:
    plan = plan_of(4)
    for right in ([], [0], [15], [3, 3, 9]):
        check_codes(np.array(right, np.int64), plan)
    for wrong in ([-1], [16], [4, 3], [0, 15, 14], [[1, 2]]):
        with pytest.raises(ValueError, match="codes"):
            check_codes(np.array(wrong, np.int64), plan)


def test_trees_are_as_deep_as_the_plan_at_most() -> None:
    cut, size = np.array([0, 1, 3, 5]), 9
    first, starts = shape(cut, size, plan_of(4))
    assert first.tolist() == [1, 3, -1, 5, -1, 7, -1, -1, -1]
    assert starts.tolist() == [0, 1, 3, 5, 7, 9]
    with pytest.raises(ValueError, match="deeper"):
        shape(cut, size, plan_of(3))


def test_a_publisher_refuses_a_resident_tree_that_no_step_leaves() -> None:
    """Not only the check does: a place with such a tree is none."""
    publisher = PHDStream(Box([0.0], [1.0]), 1.0, max_depth=4, seed=1)
    publisher.advance(np.linspace(0.0, 1.0, 50)[:, None])
    place = publisher._machine.pack(publisher._state)
    publisher._state = publisher._machine.unpack(place, publisher._key)
    kept = publisher._state.kept.tree
    wrong = kept._replace(released=kept.released + 2**62)
    state = {**place["state"], "kept": describe_tree(wrong, KEPT)}
    with pytest.raises(ValueError, match="out of range"):
        publisher._state = publisher._machine.unpack({**place, "state": state}, publisher._key)


@pytest.mark.parametrize("packed", [[0, -1], [-1, 1]])
def test_counts_and_bins_below_0_are_refused(packed: list[int]) -> None:
    chooser = NoisyMax().start(ThresholdTask(1.0, 100.0, 10, 16, 1.0))
    with pytest.raises(ValueError, match="negative"):
        chooser.unpack(np.array(packed))
