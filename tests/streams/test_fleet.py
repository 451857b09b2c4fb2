"""Fleets: every stream is, bit for bit, what a publisher of its own publishes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fastdp
from fastdp.counters import BinaryTree, RunningCounts
from fastdp.errors import BudgetError, DataError, ParameterError, StateError
from fastdp.perturbers import Blocks
from fastdp.state import codec, machine
from fastdp.state.machine import Machine, Transition
from fastdp.state.state_file import Seal
from fastdp.streams.fleet import Fleet
from fastdp.streams.ids import RowIndex
from fastdp_kernels.streams import adaptive_pass
from fastdp_kernels.streams import block_lengths as b
from fastdp_kernels.streams.adaptive_pass import BY_SCALE

SECRET = fastdp.Key.from_seed("fleet")


def adaptive(**others: Any) -> fastdp.StreamPublisher:
    return fastdp.Adaptive(epsilon=2.0, bound=100.0, threshold=20.0, max_range=256, **others)


KINDS: dict[str, Any] = {
    "blocks": adaptive,
    "windows": lambda **own: adaptive(contributions=3, **own),
    "tops": lambda **own: fastdp.ToPS(epsilon=2.0, bound=100.0, holdout=16, max_range=64, prune=1, **own),
    "counts": lambda **own: RunningCounts(BinaryTree(64), 2.0, **own),
}


def values_for(kind: str, count: int, seed: int = 0) -> NDArray[np.float64]:
    values = np.random.default_rng(seed).exponential(8.0, count)
    return np.floor(values) if kind == "counts" else values


@pytest.mark.parametrize("stream", [0, 17, "meter 17"])
@pytest.mark.parametrize("fleet_first", [True, False])
def test_a_ledger_takes_the_noise_of_a_fleet_and_of_its_streams_once(
    stream: Any, fleet_first: bool, tmp_path: Path
) -> None:
    secret = fastdp.Key.from_bytes(bytes(range(32)))
    ledger = fastdp.Ledger(tmp_path / "budget")

    def fleet(key: fastdp.Key = secret) -> Fleet:
        return Fleet(adaptive(), key=key)

    def one() -> Any:
        return adaptive(key=secret.of_stream(stream))

    one().keep(tmp_path / "one")
    first, others = (fleet, [one]) if fleet_first else (one, [])
    ledger.spend(first(), stream="first")
    # The other, its copy from a file or bytes, and a part of the fleet.
    others += [fleet, lambda: fleet().split(2)[1], lambda: Fleet.from_bytes(fleet().to_bytes())]
    others += [lambda: fastdp.Adaptive.load(tmp_path / "one")]
    for other in others:
        with pytest.raises(BudgetError, match="the same secret and composition were used by entry 1"):
            ledger.spend(other(), stream="second")
    assert len(ledger.entries()) == 1
    # Noise of its own: the key itself, another secret, mechanism, or stream of another secret.
    for separate in (
        adaptive(key=secret),
        Fleet(adaptive(nonfinite="zero"), key=secret),
        fleet(secret.of_stream("fleet")),
        fleet(fastdp.Key.from_bytes(bytes(32))),
        adaptive(key=fastdp.Key.from_bytes(bytes([1] * 32)).of_stream(stream)),
    ):
        ledger.spend(separate, stream="second")
    assert Fleet(adaptive(), seed=1).noise_fingerprint is None


STREAMS = st.lists(st.integers(0, 9), min_size=1, max_size=40)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), STREAMS),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("apart"), st.tuples(st.integers(1, 4), STREAMS)),
        st.tuples(st.just("forget"), st.sets(st.integers(0, 9), min_size=1)),
    ),
    max_size=12,
)


@given(ACTIONS, st.sampled_from(["blocks", "windows", "counts"]), st.booleans(), st.integers(0, 2**20))
@settings(deadline=None, max_examples=60)
def test_restarts_and_parts_change_nothing(actions: Any, kind: str, texts: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fleet = Fleet(KINDS[kind](), key=SECRET)
    name = (lambda k: f"s{k}") if texts else int
    lives: dict[Any, int] = {}
    publishers: dict[Any, Any] = {}

    def publish(into: Fleet, ids: list[Any]) -> None:
        values = np.floor(rng.exponential(8.0, len(ids)))
        for each, value, published in zip(ids, values, into.publish(ids, values)[1], strict=True):
            if each not in publishers:
                publishers[each] = one(kind, each, lives.get(each, 0))
            assert following(publishers[each], value) == published

    for action, what in actions:
        if action == "publish":
            publish(fleet, [name(k) for k in what])
        elif action == "restart":
            seal = b"k" * 32 if what else None
            fleet = Fleet.from_bytes(fleet.to_bytes(seal), seal)
        elif action == "apart":
            n, ids = what[0], [name(k) for k in what[1]]
            # Each part goes on as bytes, on a machine of its own.
            parts = [Fleet.from_bytes(part.to_bytes()) for part in fleet.split(n)]
            for owner, part in enumerate(parts):
                publish(part, [each for each, k in zip(ids, Fleet.part_of(ids, n), strict=True) if k == owner])
            fleet = Fleet.merge(parts[::-1])
        elif action == "forget":
            gone = [name(k) for k in what if name(k) in publishers]
            fleet.forget(gone)
            for each in gone:
                del publishers[each]
                lives[each] = lives.get(each, 0) + 1
    assert sorted(map(str, fleet.ids)) == sorted(map(str, publishers))


def test_streams_that_begin_in_a_part_go_on_behind_a_merge() -> None:
    parts, ids = Fleet(adaptive(), key=SECRET).split(2), np.arange(40)
    for k, owner in zip(ids.tolist(), Fleet.part_of(ids, 2), strict=True):
        parts[owner].publish([k], [1.0])
    whole = Fleet.merge(parts)
    for count in (2, 3):
        expected = [adaptive(key=SECRET.of_stream(k)).publish(np.ones(count))[-1] for k in ids.tolist()]
        assert whole.publish(ids, np.ones(40))[1].tolist() == expected


def one(kind: str, stream: Any, life: int) -> Any:
    """The publisher of a stream in one of its lives."""
    fresh = KINDS[kind](key=SECRET.of_stream(stream))
    return fresh._of(fresh._machine, fresh._key.within("life", life)) if life else fresh


def following(publisher: Any, value: float) -> float:
    """Its output for its next value."""
    if isinstance(publisher, RunningCounts):
        return float(publisher.step([int(value)])[0])
    return float(publisher.publish([value])[0])


def test_doubtful_draws_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    values = values_for("blocks", 300)
    expected = adaptive(key=SECRET.of_stream(3)).publish(values)
    fleet = Fleet(adaptive(), key=SECRET)
    advance_rows, calls = adaptive_pass.advance_rows, []

    def doubtful(*given: Any) -> int:
        # Without constants every draw is doubtful.
        calls.append(1)
        return advance_rows(*given[:7], np.empty(0), *given[8:])

    monkeypatch.setattr(adaptive_pass, "advance_rows", doubtful)
    np.testing.assert_array_equal(fleet.publish(np.full(300, 3), values)[1], expected)
    assert len(calls) > 10


def test_parts_refuse_each_others_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(adaptive(), key=SECRET)
    fleet.publish([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    parts, owners = fleet.split(2), Fleet.part_of([1, 2, 3, 4], 2)
    strange = next(k for k, owner in zip([1, 2, 3, 4], owners, strict=True) if owner == 1)
    with pytest.raises(DataError, match=r"ids\[0\]: belongs to part 1 .*expected ids of part 0 of 2"):
        parts[0].publish([strange], [1.0])
    with pytest.raises(StateError, match="was split"):
        fleet.publish([1], [1.0])
    with pytest.raises(StateError, match="merge its parts first"):
        parts[0].split(2)
    with pytest.raises(ParameterError, match="expected all parts of one fleet"):
        Fleet.merge(parts[:1])
    for other in (Fleet(adaptive(), seed=9), Fleet(adaptive(nonfinite="zero"), key=SECRET)):
        with pytest.raises(ParameterError, match="one mechanism and one secret"):
            Fleet.merge([parts[0], other.split(2)[1]])
    with monkeypatch.context() as patch:
        patch.setattr(machine, "getpid", lambda: -1)
        with pytest.raises(StateError, match="forked"):
            Fleet.merge(parts)
    with monkeypatch.context() as patch:
        patch.setattr(parts[1], "_give_up", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Fleet.merge(parts)
    # A merge that stopped has changed nothing.
    assert len(Fleet.merge(parts)) == 4
    parts = Fleet(adaptive(), key=SECRET).split(2)
    parts[0].publish([next(k for k in range(10) if Fleet.part_of([k], 2)[0] == 0)], [1.0])
    parts[1].publish([next(f"{k}" for k in range(10) if Fleet.part_of([f"{k}"], 2)[0] == 1)], [1.0])
    with pytest.raises(ParameterError, match="ids of one kind"):
        Fleet.merge(parts)


@pytest.mark.parametrize(
    ("ids", "values", "message"),
    [
        ([1, 2], [1.0], "ids has 2 entries: expected 1"),
        ([-1], [1.0], r"ids\[0\]: expected whole numbers of at least 0"),
        ([2**32], [1.0], r"ids\[0\]: expected whole numbers"),
        ([0.5], [1.0], "ids holds float64: expected whole numbers, or texts"),
        ([1, 2], [1.0, float("nan")], r"values\[1\]: .*expected finite values"),
        (["a", 1], [1.0, 2.0], "ids"),
        (["a"], [1.0], "ids holds texts: expected whole numbers"),
        ([[1]], [1.0], "expected one row"),
    ],
)
def test_errors_consume_nothing(ids: Any, values: Any, message: str) -> None:
    fleet, twin = Fleet(adaptive(), key=SECRET), Fleet(adaptive(), key=SECRET)
    for each in (fleet, twin):
        each.publish([1, 2], [3.0, 4.0])
    with pytest.raises(DataError, match=message):
        fleet.publish(ids, values)
    assert list(fleet.ids) == [1, 2]
    many = values_for("blocks", 300)
    np.testing.assert_array_equal(fleet.publish(np.full(300, 1), many)[1], twin.publish(np.full(300, 1), many)[1])


def test_an_interrupted_call_leaves_a_fleet_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(adaptive(), key=SECRET)
    fleet.publish([1], [1.0])

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(adaptive_pass, "advance_rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        fleet.publish([1], [1.0])
    monkeypatch.undo()
    with pytest.raises(StateError, match="interrupted"):
        fleet.publish([1], [1.0])


@pytest.mark.parametrize("kind", ["blocks", "counts"])
def test_damaged_bytes_are_refused(kind: str) -> None:
    fleet = Fleet(KINDS[kind](), key=SECRET)
    fleet.publish([1, 2, 1], values_for(kind, 3))
    state = fleet.to_bytes(b"k" * 32)
    for place in range(40, len(state), max(1, len(state) // 50)):
        for damaged in (state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :], state[:place]):
            with pytest.raises(StateError):
                Fleet.from_bytes(damaged, b"k" * 32)
    with pytest.raises(StateError, match="no fleet"):
        Fleet.from_bytes(adaptive(seed=1).to_bytes())


def altered(state: bytes, change: dict[str, Any], more: bytes = b"") -> bytes:
    """The state with other content, and more numbers behind it."""
    seal = Seal()
    content, *parts = seal.open(state, "the state").frames
    header, whole = seal.pack(codec.encode(codec.decode(content) | change))
    numbers = b"".join(parts) + more
    return whole + seal.frame(header, 1, numbers)


@pytest.mark.parametrize("wrong", [{"fleet": 1}, {"part": [0, 0]}, {"part": [1, 2]}, {"binding": 2}, {"rule": 2}, {}])
def test_content_that_no_fleet_has_is_refused(wrong: dict[str, Any]) -> None:
    """And one number more than its streams have."""
    fleet = Fleet(KINDS["tops"](), key=SECRET)
    fleet.publish(["a", "b", "c", "d"], [1.0, 2.0, 3.0, 4.0])
    assert len(Fleet.from_bytes(altered(fleet.to_bytes(), {}))) == 4
    with pytest.raises(StateError):
        Fleet.from_bytes(altered(fleet.to_bytes(), wrong, bytes(8 * (not wrong))))


@pytest.mark.parametrize(("scales", "told"), [(-1, "scales"), (b.SCALES + 1, "scales"), (None, "position")])
def test_states_that_kernels_could_not_follow_are_refused(
    scales: int | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(adaptive(), key=SECRET)
    fleet.publish([1], [1.0])
    rows = fleet._rows
    if scales is None:
        rows._state(rows.columns).rows["exponent"][0] = 50.0
    else:
        described, arrays = rows.pack()
        arrays[3] = np.zeros((1, BY_SCALE, max(0, scales)))
        monkeypatch.setattr(rows, "pack", lambda: (described | {"scales": scales}, arrays))
    with pytest.raises(StateError, match=f"{told} out of range"):
        Fleet.from_bytes(fleet.to_bytes())


def test_the_parameters_of_a_fleet() -> None:
    used = adaptive(seed=1)
    used.publish([1.0])
    with pytest.raises(ParameterError, match="before its first value"):
        Fleet(used)
    wrong: Any = 3
    with pytest.raises(ParameterError, match="expected a publisher"):
        Fleet(wrong)
    with pytest.raises(ParameterError, match="without a stream number"):
        Fleet(adaptive(), key=SECRET.of_stream(3))
    fleet = Fleet(adaptive().machine, key=SECRET)
    assert fleet.guarantee.epsilon == 2.0
    assert "parallel" in fleet.guarantee.derivation[-1]
    assert isinstance(fleet.machine.composition.perturber, Blocks)  # type: ignore[attr-defined]
    fleet.publish([1], [1.0])
    assert fleet.nbytes < 400


#: Ids beyond ASCII: each is a stream of its own, whatever a reader may see.
NAMES = [
    "meter",
    "Zähler",
    "Za\u0308hler",
    "\u212b",
    "\u00c5",
    "\ufb01",
    "fi",
    "счётчик",
    "計器",
    "\U0001f600",
    "\u202egnp",
    "",
    " ",
    "é" * 300,
]
COLUMNS: dict[str, Any] = {
    "list": list,
    "array": np.array,
    "objects": lambda ids: np.array(ids, object),
    "pandas": pd.Series,
    "pandas of Arrow": lambda ids: pd.Series(ids, dtype="string[pyarrow]"),
    "categories": lambda ids: pd.Series(ids, dtype="category"),
    "polars": pl.Series,
    "polars's categories": lambda ids: pl.Series(ids, dtype=pl.Categorical),
    "Arrow": pa.array,
    "views": lambda ids: pa.array(ids, pa.string_view()),
    "coded": lambda ids: pa.array(ids).dictionary_encode(),
    "chunks": lambda ids: pa.chunked_array([ids[:3], ids[3:]]),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_texts_beyond_ascii_are_ids_in_every_column(column: str) -> None:
    """Of one value each; the noise is that of the id's text in UTF-8, as of a publisher of its own."""
    fleet, make = Fleet(adaptive(), key=SECRET), COLUMNS[column]
    values = np.arange(len(NAMES)) % 7 + 1.0
    ids, published = fleet.publish(make(NAMES), values)
    assert list(ids) == NAMES
    assert list(fleet.ids) == NAMES
    wanted = Fleet(adaptive(), key=SECRET).publish(NAMES, values)[1]
    assert published.tolist() == wanted.tolist()
    assert Fleet.part_of(make(NAMES), 5).tolist() == Fleet.part_of(NAMES, 5).tolist()
    # Single ids, in another order: the same streams, in the same parts.
    other = Fleet(adaptive(), key=SECRET)
    alone = {
        name: other.publish(make([name, name])[:1], [value])[1][0]
        for name, value in [*zip(NAMES, values, strict=True)][::-1]
    }
    assert [alone[name] for name in NAMES] == wanted.tolist()
    assert list(Fleet.from_bytes(fleet.to_bytes(b"k" * 32), b"k" * 32).ids) == NAMES


def test_ids_keep_their_kind_and_their_zero_characters() -> None:
    fleet = Fleet(adaptive(), key=SECRET)
    with pytest.raises(DataError, match=r"ids\[1\] is no text"):
        fleet.publish(["a", 1], [1.0, 2.0])
    with pytest.raises(DataError, match=r"ids\[1\]: expected a text that UTF-8 can encode"):
        fleet.publish(["a", "\ud800"], [1.0, 2.0])
    kept = type("Text", (str,), {})("a\0")
    assert fleet.publish([kept, "a"], [1.0, 2.0])[0] == ["a\0", "a"]
    assert len(fleet) == 2
    assert len(fleet.publish(np.array([], np.str_), [])[1]) == 0
    with pytest.raises(DataError, match="expected one row"):
        Fleet.part_of(5, 2)


@pytest.mark.parametrize(("first", "second"), [(4, 5), ("a", "b")])
def test_an_error_of_one_stream_begins_no_other(first: Any, second: Any) -> None:
    fleet = Fleet(KINDS["counts"](), key=SECRET)
    fleet.publish([first], [1.0])
    with pytest.raises(DataError, match=r"whole number.*within the stream of ids\[1\]"):
        fleet.publish([first, second], [1.0, 1.5])
    assert list(fleet.ids) == [first]
    counts = KINDS["counts"](key=SECRET.of_stream(first))
    assert fleet.publish([first], [1.0])[1].tolist() == [counts.step([1])[0] for _ in range(2)][1:]


@dataclass(frozen=True)
class Seen:
    n_seen: int


@dataclass(frozen=True)
class Own(Machine[Seen]):
    """A mechanism of the user's; its errors are no DataError."""

    SPLITS: ClassVar[bool] = True

    def start(self, key: fastdp.Key) -> Seen:
        del key
        return Seen(0)

    def step(self, state: Seen, batch: Any, key: fastdp.Key) -> Transition[Seen]:
        del key
        if (batch.values < 0).any():
            raise OverflowError
        return Transition(Seen(state.n_seen + batch.values.size), lambda: batch.values + state.n_seen)


def test_a_mechanism_of_your_own() -> None:
    fleet = Fleet(Own(), key=SECRET)
    fleet.publish([1, 2, 3], [1.0, 2.0, 3.0])
    with pytest.raises(OverflowError):
        fleet.publish([1, 2], [1.0, -2.0])
    parts = fleet.split(2)
    whole = Fleet.from_bytes(Fleet.merge(parts).to_bytes(), machine=Own)
    assert whole.publish([1, 2, 3], [0.0, 0.0, 0.0])[1].tolist() == [1.0, 1.0, 1.0]


def test_many_ids_of_a_call_are_found_in_any_order() -> None:
    rng = np.random.default_rng(3)
    index, given = RowIndex(), rng.permutation(5000)[:4000].astype(np.int64)
    for begin in range(0, 4000, 800):
        # Runs between ids that are there already.
        index.add(given[begin : begin + 800])
    asked = rng.integers(0, 5000, 3000)
    rows = {int(each): row for row, each in enumerate(given)}
    wanted = [rows.get(int(each), -1) for each in asked]
    assert index.find(asked).tolist() == wanted
    assert index.find(asked[:9]).tolist() == wanted[:9]
    assert index.ids().tolist() == given.tolist()  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="more than once"):
        index.add(given[10:11])


def test_ids_of_a_call_start_in_the_order_of_their_first_rows() -> None:
    """Among many rows of an id the sort may put any of them first."""
    given = np.random.default_rng(4).integers(0, 7, 1000)
    fleet = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0), seed=1)
    fleet.publish(given, np.ones(1000))
    assert fleet.ids.tolist() == list(dict.fromkeys(given.tolist()))  # type: ignore[union-attr]
