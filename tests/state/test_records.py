"""States as trees of records: what a file holds of a field, and the ranges that its annotation declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np
import pytest

from fastdp.errors import StateError
from fastdp.kinds import Floats, Integers
from fastdp.noise.key import Key
from fastdp.record import Choice, Real, Whole
from fastdp.state import Machine, Publisher, Transition
from fastdp.state.codec import COUNT, DERIVED, LIKE_START, decode, decode_errors, encode


class Inner(NamedTuple):
    """A record of another kind than its parent."""

    mean: Annotated[float | None, Real(least=0.0)] = None
    name: Annotated[str, Choice(("open", "shut"))] = "open"


@dataclass(frozen=True)
class Place:
    """One field of each kind."""

    n_seen: Annotated[int, Whole(0, 100)]
    counts: Annotated[Integers, LIKE_START, COUNT]
    levels: Annotated[Floats, Real(most=9.0)]
    inner: Inner = field(default_factory=Inner)
    parts: tuple[Inner, ...] = ()
    raw: bytes | None = None
    total: Annotated[int, DERIVED] = field(default=-1)


@dataclass(frozen=True)
class Summing(Machine[Place]):
    """Counts its calls."""

    size: int = 2

    def start(self, key: Key) -> Place:
        """Nothing is counted."""
        return Place(0, np.zeros(self.size, np.int64), np.empty(0))

    def step(self, state: Place, batch: tuple[float], key: Key) -> Transition[Place]:
        """One call more."""
        counts, inner = state.counts + 1, Inner(batch[0], "shut")
        after = Place(state.n_seen + 1, counts, np.append(state.levels, batch), inner, (*state.parts, inner), b"\xff")
        return Transition(self.restored(after, key))

    def restored(self, state: Place, key: Key) -> Place:
        """With the sum of the counts."""
        return Place(**{**vars(state), "total": int(state.counts.sum())})


def stepped() -> Publisher[Place]:
    publisher = Publisher(Summing(), seed=1)
    for value in (1.0, 2.5):
        publisher.step(value)
    return publisher


def test_a_state_comes_back_with_the_types_of_its_records() -> None:
    publisher = stepped()
    loaded = Publisher.from_bytes(publisher.to_bytes(), machine=Summing).state
    assert repr(loaded) == repr(publisher.state)
    assert type(loaded.inner) is Inner
    assert loaded.total == 4


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("n_seen",), 101), (("n_seen",), -1), (("n_seen",), 2.0), (("n_seen",), None), (("n_seen",), True),
        (("counts",), {"shape": [1], "data": bytes(8)}), (("counts",), {"shape": [2, 1], "data": bytes(16)}),
        (("counts", "data"), b"\xff" * 16), (("counts", "data"), bytes(15)), (("counts", "shape"), [2.0]),
        (("levels", "data"), np.array([1.0, np.nan]).tobytes()), (("levels", "data"), np.array([1.0, 9.5]).tobytes()),
        (("inner", "mean"), -0.5), (("inner", "mean"), float("inf")), (("inner", "mean"), "1"),
        (("inner", "name"), "ajar"), (("inner",), None), (("inner",), []), (("parts", 1, "mean"), -1.0),
        (("parts", 1), None), (("parts",), None), (("raw",), "text"),
    ],
)  # fmt: skip
def test_a_field_out_of_its_range_is_named_without_its_value(where: tuple[object, ...], value: object) -> None:
    publisher = stepped()
    packed = decode(encode(publisher.machine.pack(publisher.state)))
    inner = packed["state"]
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] = value
    with pytest.raises(StateError, match="x is damaged") as caught, decode_errors("x"):
        publisher.machine.unpack(packed, Key.from_seed(1))
    assert "9.5" not in str(caught.value)


def test_every_field_must_be_there() -> None:
    """With a default too."""
    publisher = stepped()
    packed = publisher.machine.pack(publisher.state)
    assert set(packed["state"]) == {"n_seen", "counts", "levels", "inner", "parts", "raw"}
    for name in packed["state"]:
        wrong = {**packed, "state": {other: value for other, value in packed["state"].items() if other != name}}
        with pytest.raises(KeyError, match=name):
            publisher.machine.unpack(wrong, Key.from_seed(1))
