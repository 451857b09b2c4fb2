"""Packed states that no call leaves: each is refused before a kernel uses it, and changes nothing."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import fastdp
from fastdp.errors import StateError
from fastdp.perturbers import Hierarchy
from fastdp.points import decomposition, domains
from fastdp.points.decomposition import KEPT
from fastdp.state import codec
from fastdp.thresholds import Fixed
from fastdp_kernels.streams.adaptive_pass import SINGLES
from tests.state.adaptive_publishers import make as make_adaptive
from tests.state.adaptive_publishers import stream as paced
from tests.state.saved_objects import CASES, stream

pytest.importorskip("shapely")


@pytest.mark.parametrize(
    ("cut", "size"),
    [([0], 2), ([0], 5), ([1], 3), ([0, 3], 5), ([0, 0], 5), ([0, 2, 1], 7), ([0, -1], 5), ([0, 10**12], 5), ([], 3)],
)
def test_trees_that_no_step_makes_are_refused(cut: list[int], size: int) -> None:
    """Before a kernel follows their children."""
    publisher = CASES["phdstream"].make()
    with pytest.raises(ValueError, match="tree"):
        decomposition.shape(np.array(cut, np.int64), size, publisher._plan)
    first, starts = decomposition.shape(np.array([0, 1, 4], np.int64), 7, publisher._plan)
    assert first.tolist() == [1, 3, -1, -1, 5, -1, -1]
    assert starts.tolist() == [0, 1, 3, 5, 7, 7, 7, 7]
    deep = np.concatenate([[0], 1 + 2 * np.arange(7)])
    with pytest.raises(ValueError, match="deeper"):
        decomposition.shape(deep, 1 + 2 * deep.size, publisher._plan)


def at_cut(name: str, calls: int):
    publisher = CASES[name].make()
    for chunk in CASES[name].calls[:calls]:
        CASES[name].run(publisher, chunk)
    return publisher


def is_refused(publisher, wrong: dict) -> bool:
    """The publisher's own place is one, the wrong one is not, and changes nothing."""
    place = publisher._machine.pack(publisher._state)
    publisher._state = publisher._machine.unpack(place, publisher._key)
    with pytest.raises(ValueError, match=r"out of|no tree|shape|no cell|wait|in place of"):
        publisher._state = publisher._machine.unpack(wrong, publisher._key)
    return bool(publisher._machine.pack(publisher._state) == place)


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [("median", entry, value) for entry in (0, 1, 7, -1) for value in (-1.0, np.nan, np.inf, -np.inf, 0.5, 1e300)]
    + [("stream_publisher", 0, value) for value in (0.0, -1.0, 1.5, 10**6, 1e300, np.nan)]
    + [("stream_publisher", 2, value) for value in (np.nan, np.inf)],
)
def test_memories_of_smoothers_that_no_blocks_leave_are_refused(name: str, entry: int, value: float) -> None:
    """Counts and places are indices in kernels."""
    publisher = at_cut(name, 4)
    memory = publisher._state.smoother[0].copy()
    assert publisher._state.rows["blocks"][0] > 0
    memory[entry] = value
    assert is_refused(publisher, {**publisher._machine.pack(publisher._state), "smoother": codec.pack(memory, "<f8")})


def test_smoothers_of_ones_own_need_not_know_their_memories() -> None:
    class Mine:
        def start(self, first, theta):
            return np.array([-1.0])

        def step(self, state, means):
            return state, np.zeros(means.size)

    publisher = fastdp.StreamPublisher(
        threshold=Fixed(20.0), perturber=Hierarchy(prune=1), smoother=Mine(), epsilon=1.0, bound=64, holdout=0
    )
    publisher.publish(stream(100))
    publisher._state = publisher._machine.unpack(publisher._machine.pack(publisher._state), publisher._key)
    memory = codec.pack(np.array([np.nan]), "<f8")
    assert is_refused(publisher, {**publisher._machine.pack(publisher._state), "smoother": memory})


@pytest.mark.parametrize("name", ["phdstream", "phdstream_polygons", "phdstream_tree"])
@pytest.mark.parametrize("part", ["all", "root", "cut", "family", "child", "counts", "rows"])
def test_kept_trees_without_a_measure_are_refused(name: str, part: str) -> None:
    """A point that strays is counted in a part of its cell that has some of the domain: there is one."""
    publisher = at_cut(name, 2)
    kept, plan = publisher._state.kept.tree, publisher._plan
    measure, released, state = (array.copy() for array in (kept.measure, kept.released, kept.state))
    cut = int(np.flatnonzero(kept.first >= 0)[-1])
    begin = int(kept.first[cut])
    assert cut > 0
    if part == "counts":
        released[-1] = 2**62 + 1
    elif part == "rows":
        if not state.size:
            return
        state[-1, 0] = -1
    else:
        places = {"all": slice(None), "root": 0, "cut": cut, "family": slice(begin, begin + plan.fan_out)}
        measure[places.get(part, begin)] = -1.0 if part == "child" else 0.0
    kept_again(kept, plan)
    wrong = kept._replace(measure=measure, released=released, state=state)
    with pytest.raises(ValueError, match="out of range"):
        kept_again(wrong, plan)


def test_parts_that_lost_their_measure_to_rounding_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The domain itself says so."""
    publisher = at_cut("phdstream_polygons", 2)
    kept, plan = publisher._state.kept.tree, publisher._plan
    begin = int(kept.first[np.flatnonzero(kept.first >= 0)[-1]])
    measure = kept.measure.copy()
    measure[begin : begin + plan.fan_out] = 0.0
    asked = []

    def nothing(plan, codes, depth):
        asked.append((codes.tolist(), depth))
        return np.zeros(codes.size)

    monkeypatch.setattr(decomposition, "measures", nothing)
    kept_again(kept._replace(measure=measure), plan)
    [(codes, depth)] = asked
    found = domains.measures(plan, np.array(codes), depth)
    assert np.array_equal(found, kept.measure[begin : begin + plan.fan_out]), "it is asked about these parts"


@pytest.mark.parametrize("points", [1e30, 1e13])
def test_more_points_than_memory_holds_are_one_error(points: float) -> None:
    publisher = at_cut("phdstream", 2)
    tree = publisher.tree
    tree.counts = np.full_like(tree.counts, points)
    with pytest.raises(StateError, match="synthetic points do not fit in memory"):
        tree.sample(1)


@pytest.mark.parametrize("name", ["adaptive_phdstream", "adaptive_phdstream_paced"])
def test_a_schedule_is_checked_before_the_first_batch(name: str) -> None:
    publisher = at_cut(name, 0)
    state = publisher._state
    for period in (0, 2**40):
        wrong = dataclasses.replace(state, schedule=dataclasses.replace(state.schedule, period=period))
        assert is_refused(publisher, publisher._machine.pack(wrong))


@pytest.mark.parametrize("n", [100, 560, 600, 1111, 6000])
def test_positions_out_of_range_are_refused(n: int) -> None:
    """Kernels use three entries of a memory as indices and lengths."""
    publisher = make_adaptive()
    publisher.publish(paced(n))
    place, row = publisher._machine.pack(publisher._state), publisher._state.rows[0]
    begun, numbers = bool(row.theta_steps), len(SINGLES)
    changes: dict[str, list[object]] = {
        "n_seen": [-1, float(n), "7"], "cycle": [1.0, -1], "blocks": [-1, 3.0],
        "filled": [-1, 2.0, *([2**40] if begun else [])], "open_sum": [1.0],
        "theta_steps": [-1, 1.5, 2**62 if begun else 10],
        "group_sum": [0.5], "smoother": [packed(np.zeros(1))], "correlated": [packed(np.zeros(1))],
        "memory": [packed(each) for each in (np.zeros(3), np.zeros(numbers + 1), np.full(numbers, np.inf))],
    }  # fmt: skip
    if begun:
        position, exponent = row.position, row.exponent
        memory = np.array([row[name] for name in SINGLES])
        changes["scales"] = [packed(np.zeros(1)), packed(np.zeros(6 * 40))]
        if position:
            changes["scales"] += [packed(np.zeros(0)), packed(np.full(len(place["scales"]) // 8, np.nan))]
        changes["memory"] += [packed(np.empty(0))] + [
            packed(memory, SINGLES.index(entry), value)
            for entry, values in {
                "position": [position + 0.5, -1.0, np.nan, np.inf], "decided": [position + 1.0, -1.0, 0.5],
                "exponent": [-1.0, exponent + 0.5, 60.0, 1e18, np.nan], "last": [-1.0, 0.5, 41.0, 1e18, np.nan],
                "level": [np.nan, np.inf],
            }.items()
            for value in values
        ]  # fmt: skip
    else:
        changes["memory"].append(packed(np.zeros(numbers)))
    for name, wrong in changes.items():
        assert all(is_refused(publisher, {**place, name: value}) for value in wrong)


def kept_again(kept, plan):
    """Through the columns of a state file."""
    return KEPT.restore(KEPT.describe(kept), SimpleNamespace(plan=plan)).tree


@pytest.mark.parametrize("name", ["cut", "released", "measure", "state", "split"])
def test_kept_trees_that_no_step_leaves_are_refused(name: str) -> None:
    publisher = at_cut("phdstream_tree", 1)
    kept, plan = publisher._state.kept.tree, publisher._plan
    described, again = KEPT.describe(kept), kept_again(kept, plan)
    assert all(np.array_equal(getattr(again, each), getattr(kept, each)) for each in ("first", *KEPT.names))
    array = np.flatnonzero(kept.first >= 0) if name == "cut" else getattr(kept, name)
    wrongs = [array[:-1], array[:, None]]
    if name == "cut":
        wrongs += [array + 1, array + 10**6, np.maximum(array, 1)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"shape|tree"):
            KEPT.restore({**described, name: codec.describe(wrong)}, SimpleNamespace(plan=plan))


def packed(memory: np.ndarray, place: int | None = None, value: float = 0.0) -> bytes:
    """A memory as a file has it, with another number in a place."""
    changed = memory.copy()
    if place is not None:
        changed[place] = value
    return codec.pack(changed.view(np.float64), "<f8")


@pytest.mark.parametrize(
    ("name", "steps", "row"),
    [
        ("tree_counts", None, -1), ("tree_counts", None, 5), ("tree_counts", None, 2**62), ("block_counts", None, -1),
        ("block_counts", None, 4), ("block_counts", 2**40 + 1, 3), ("block_counts", 2**40, 3),
    ],
)  # fmt: skip
def test_rows_of_counters_that_no_steps_leave_are_refused(name: str, steps: int | None, row: int) -> None:
    """Another number of steps, and another first number in a row of a counter that is at work."""
    publisher = at_cut(name, 3)
    rows = publisher._state.rows.copy()
    rows[1, 0] = row
    wrong = dataclasses.replace(publisher._state, n_seen=steps or publisher._state.n_seen, rows=rows)
    if steps != 2**40:
        assert is_refused(publisher, publisher._machine.pack(wrong))
        return
    # There the words of a counter end.
    publisher._state = publisher._machine.unpack(publisher._machine.pack(wrong), publisher._key)
    with pytest.raises(StateError, match="steps were taken"):
        publisher.step([1, 2, 3])


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {"added": ()}, lambda state: {"removed": ()}, lambda state: {"last_count": 0},
        lambda state: {"last_count": state.n_steps + 1, "added": (), "removed": ()},
        lambda state: {"added": (state.added[0][::-1],)}, lambda state: {"added": (state.added[0] + 2**6,)},
        lambda state: {"removed": (state.removed[0] - 2**6,)},
        lambda state: {"n_steps": 0, "counted": None}, lambda state: {"counted": None},
        *[
            lambda state, change=change: {"schedule": dataclasses.replace(state.schedule, **change)}
            for change in (
                {"period": 3}, {"period": 4}, {"weight": 1.5}, {"products": np.nan}, {"squares": -1.0},
                {"costs": np.zeros(4)}, {"costs": np.full(3, np.inf)},
            )
        ],
        *[
            lambda state, n=name, f=f: {"counted": state.counted._replace(**{n: f(getattr(state.counted, n))})}
            for name, f in (
                ("weight", lambda array: array[:-1]), ("weight", lambda array: -array - 1),
                ("variance", lambda array: array - 1e9), ("rate", lambda array: array + np.nan),
                ("held", lambda array: array[:-1]),
            )
        ],
    ],
)  # fmt: skip
def test_trees_that_no_count_leaves_are_refused(change) -> None:
    publisher = at_cut("adaptive_phdstream_polygons", 4)
    state = publisher._state
    assert len(state.added) == 1
    wrong = dataclasses.replace(state, **change(state))
    assert is_refused(publisher, publisher._machine.pack(wrong))
