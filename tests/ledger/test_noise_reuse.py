"""A ledger takes the noise of one secret, composition and stream once; a reservation is resumed with the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fastdp
import fastdp_lab
from fastdp import Guarantee
from fastdp.counters import BinaryTree, RunningCounts, SelectiveCounting, event_guarantee
from fastdp.engines import Job
from fastdp.errors import BudgetError, ParameterError, StateError
from fastdp.ledger import Ledger
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.smoothers import Recent
from fastdp.spatial import Box, PrivTree
from fastdp_lab.baselines.w_event import WEvent
from tests.shared import release_many
from tests.tables import flat

SECRET = bytes(range(32))
SQUARE = Box([0, 0], [1, 1])
VALUES = np.random.default_rng(3).gamma(2.0, 10.0, 400)


def tops(**changed: Any) -> fastdp.ToPS:
    return fastdp.ToPS(**{"epsilon": 0.5, "bound": 100.0, "holdout": 100, "max_range": 256, "key": SECRET, **changed})


class First:
    """A selector that always names the first counter."""

    guarantee = event_guarantee(0.0, "none")

    def select(self, values: object, step: int, last: object) -> int:
        return 0


#: Publishers of every kind, by what makes one with a key.
PUBLISHERS: dict[str, Callable[..., Any]] = {
    "Adaptive": lambda **key: fastdp.Adaptive(0.5, 100.0, 1000, 4096, **key),
    "ToPS": lambda **key: fastdp.ToPS(0.5, 100.0, 1000, 4096, **key),
    "PAK": lambda **key: fastdp.PAK(0.5, 1e-6, 100.0, 1000, holdout=100, **key),
    "ToPL": lambda **key: fastdp.ToPL(0.5, 100.0, 1000, 4096, **key),
    "PHDStream": lambda **key: fastdp.PHDStream(SQUARE, 0.5, **key),
    "AdaptivePHDStream": lambda **key: fastdp.AdaptivePHDStream(SQUARE, 0.5, **key),
    "PrivTree": lambda **key: PrivTree(SQUARE, 0.5, **key),
    "WEvent": lambda **key: WEvent("uniform", 0.5, 100.0, 10, **key),
    "RunningCounts": lambda **key: RunningCounts(BinaryTree(), 0.5, **key),
    "SelectiveCounting": lambda **key: SelectiveCounting([BinaryTree()], First(), 0.5, **key),
}


@pytest.mark.parametrize("make", PUBLISHERS.values(), ids=PUBLISHERS)
def test_a_second_entry_with_the_same_noise_is_refused(ledger, lines, make: Callable[..., Any]) -> None:
    account = ledger()
    first = account.spend(make(key=SECRET), stream="meter")
    assert first.fingerprint == make(key=SECRET).noise_fingerprint
    assert first == ledger().entries()[0]
    before = lines()
    assert SECRET.hex() not in str(before)
    for other in (account, ledger()):
        for call in (other.spend, other.reserve):
            for where in ({"stream": "meter"}, {"stream": "another"}, {"stream": "another", "note": "x"}):
                with pytest.raises(BudgetError) as caught:
                    call(make(key=SECRET), **where)
                for words in (
                    f"stream {where['stream']!r}: the same secret and composition were used by entry 1",
                    "on stream 'meter'",
                    "on other values reveals their difference. Nothing was recorded",
                    "another key (key.of_stream(name))",
                    "Ledger.resume(1, publisher)",
                ):
                    assert words in str(caught.value)
    assert lines() == before
    for number, key in enumerate((Key.from_bytes(SECRET).of_stream("meter"), None, Key.random(), bytes(32))):
        assert account.spend(make(key=key), stream=f"m{number}").fingerprint != first.fingerprint


def many(**changed: Any) -> fastdp.Release:
    rows = [VALUES, VALUES[:300]]
    given = {"epsilon": 0.5, "bound": 100.0, "threshold": 20.0, "max_range": 256, "ids": [3, 5], "key": SECRET}
    return release_many(rows, **{**given, **changed})


@pytest.mark.parametrize("kind", ["numbers", "names", "blocks"])
def test_many_streams_are_one_entry_with_the_noise_of_all(ledger, kind: str) -> None:
    more: dict[str, Any] = {"names": {"ids": ["a", "b"]}, "blocks": {"perturber": Blocks()}}.get(kind, {})
    account, parts = ledger(), {"perturber": more.get("perturber", Hierarchy()), "smoother": Recent()}
    if kind == "blocks":
        parts["smoother"] = None
    first = account.spend(many(**more), stream="meters")
    assert first.fingerprint is not None
    assert first.fingerprint.endswith(":*")
    one = fastdp.StreamPublisher(
        threshold=20.0, **parts, epsilon=0.5, bound=100.0, max_range=256, key=Key.from_bytes(SECRET).of_stream("a")
    )
    for again in (many(**more), many(**{**more, "ids": [7, 8]}), one):
        with pytest.raises(BudgetError, match="the same secret and composition were used by entry 1 on stream"):
            account.spend(again, stream="others")
    for other in (many(**more, epsilon=0.25), many(**more, key=bytes(32)), many(**more, key=None)):
        assert account.spend(other, stream="meters").fingerprint != first.fingerprint
    assert many(**more, key=None, seed=1).noise_fingerprint is None


FRAME = pd.DataFrame({"at": pd.date_range("2026-01-01", periods=48, freq="h"), "value": 1.0, "by": ["a", "b"] * 24})
#: How a table comes to its keys.
KEY_RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "given": {"by": "by", "keys": ["a", "b"]},
    "public": {"by": "by", "keys": "public"},
    "private": {"by": "by", "delta": 1e-6},
}


@pytest.mark.parametrize("rule", KEY_RULES)
def test_tables_with_private_keys_and_all_others_have_a_fingerprint(ledger, rule: str) -> None:
    account = ledger()
    for count, (name, more) in enumerate((("totals", {"clip": 2.0}), ("counts", {}), ("means", {"clip": 2.0})), 1):
        said = {"epsilon": 0.5, "key": SECRET, "ledger": account, "stream": "meter", **more, **KEY_RULES[rule]}
        where = ("at", "1d") if name == "counts" else ("value", "at", "1d")
        getattr(flat, name)(FRAME, *where, **said)
        with pytest.raises(BudgetError, match=f"same secret and composition were used by entry {2 * count - 1} on"):
            getattr(flat, name)(FRAME.iloc[:-1], *where, **said)
    assert len({each.fingerprint for each in account.entries()} - {None}) == 3


def public_objects() -> dict[str, Any]:
    """All that a user may hold and that states a guarantee, under one key where it takes one."""
    key = SECRET
    released = tops(key=key[::-1]).release(VALUES)
    return {
        **{name: make(key=key) for name, make in PUBLISHERS.items()},
        "Fleet": fastdp.Fleet(fastdp.Adaptive(0.5, 100.0, threshold=5.0), key=key),
        "Job": Job(fastdp.Adaptive(0.5, 100.0, threshold=5.0), name="job", secret=lambda: key),
        "Windows": flat.windows("1d", 0.5, "2026-01-01", counts=True, key=key),
        "Release": released,
        "Release of many": release_many(VALUES.reshape(2, -1), 0.5, bound=100.0, threshold=20.0, key=key),
        "Table": flat.counts(FRAME, "at", "1d", epsilon=0.5, key=key),
        "SquareWave": fastdp.local.SquareWave(0.5),
        "of one's own": type("Own", (), {"guarantee": Guarantee(0.5)})(),
    }


def test_no_object_with_noise_is_recorded_twice(ledger) -> None:
    """Each is refused the first time, as one that cannot say which noise it has, or the second time."""
    account = ledger()
    for name, each in public_objects().items():
        before = len(account.entries())
        if hasattr(each, "noise_fingerprint"):
            assert account.spend(each, stream=name).fingerprint == each.noise_fingerprint is not None
            with pytest.raises(BudgetError, match="the same secret and composition"):
                account.reserve(each, stream=f"{name} again")
        else:
            with pytest.raises(ParameterError, match=f"a {type(each).__name__} without a noise_fingerprint"):
                account.spend(each, stream=name)
            assert len(account.entries()) == before
    # A simulation needs none, and the guarantee of a release that was made elsewhere may be recorded.
    simulated = type("Own", (), {"guarantee": Guarantee(0.5, simulated=True)})()
    assert account.spend(simulated, stream="own").fingerprint is None
    assert account.spend(public_objects()["Release"].guarantee, stream="own").fingerprint is None


def test_what_was_cancelled_has_used_no_noise(ledger) -> None:
    account = ledger()
    first = account.reserve(tops(), stream="meter")
    with pytest.raises(BudgetError):
        account.reserve(tops(), stream="meter")
    first.cancel()
    second = ledger().reserve(tops(), stream="meter")
    second.commit()
    for each in (account, ledger()):
        with pytest.raises(BudgetError, match="entry 3 on"):
            each.reserve(tops(), stream="meter")


def test_what_draws_no_secret_noise_has_no_fingerprint(ledger, lines) -> None:
    account = ledger()
    plain: list[Any] = [
        *(tops(seed=1, key=None), Guarantee(0.5), fastdp_lab.baselines.Zeros(), fastdp.ToPLServer(0.5, 100.0, 10, 64))
    ]
    for _ in range(2):
        for each in plain:
            assert account.spend(each, stream="meter").fingerprint is None
    assert '"fingerprint": "' not in str(lines())


class TestResume:
    """``Ledger.resume``."""

    def test_a_release_that_was_killed_is_repeated_on_its_own_reservation(self, ledger, lines) -> None:
        reserved = ledger(limit_epsilon=0.5).reserve(tops(), stream="meter").entry
        first = tops().release(VALUES)  # and the process dies here
        before = lines()
        account = ledger(limit_epsilon=0.5)
        publisher = tops()
        reservation = account.resume(reserved.id, publisher)
        assert lines() == before
        with reservation:
            again = publisher.release(VALUES)
        assert np.array_equal(first.values, again.values)
        assert [each.state for each in account.entries()] == ["spent"]
        assert account.spent("meter").epsilon == 0.5

    def test_no_error_gives_it_back(self, ledger) -> None:
        account = ledger()
        account.reserve(tops(), stream="meter")
        with pytest.raises(OSError, match="no room"), account.resume(1, tops()):
            raise OSError("no room")
        assert account.entries()[0].state == "reserved"

    @pytest.mark.parametrize(
        "other", [{"epsilon": 0.25}, {"key": bytes(32)}, {"key": None}, {"seed": 1, "key": None}]
    )
    def test_another_noise_is_refused(self, ledger, lines, other: dict[str, Any]) -> None:
        account = ledger()
        account.reserve(tops(), stream="meter")
        account.reserve(Guarantee(0.5), stream="meter")
        before = lines()
        for number in (1, 2):
            with pytest.raises(
                ParameterError, match=f"its noise is not that of entry {number}; expected the same key"
            ):
                account.resume(number, tops(**other))
        with pytest.raises(ParameterError, match="its noise is not that of entry 2"):
            account.resume(2, Guarantee(0.5))
        assert lines() == before

    def test_what_is_not_reserved_is_refused(self, ledger) -> None:
        account = ledger()
        account.spend(tops(), stream="meter")
        account.reserve(tops(prune=0), stream="meter").cancel()
        account.reserve(tops(fan_out=4), stream="meter").commit()
        for number, state, publisher in (
            *((1, "spent", tops()), (2, "cancelled", tops(prune=0)), (4, "spent", tops(fan_out=4))),
            (9, "not there", tops()),
        ):
            with pytest.raises(StateError, match=f"entry {number} is {state}: expected one that is still reserved"):
                account.resume(number, publisher)
        for wrong in (0, "1", 1.5, True):
            with pytest.raises(ParameterError, match="number = "):
                account.resume(wrong, tops())


def test_release_resumes_by_its_publisher(ledger) -> None:
    """A reservation of ``fastdp.release``: the publisher with the same parameters and the stream's key may resume."""
    account = ledger()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastdp.Adaptive, "release", _die)
        with pytest.raises(KeyboardInterrupt):
            fastdp.release(VALUES, 0.5, 100.0, threshold=50.0, key=SECRET, ledger=account, stream="meter")
    key = Key.from_bytes(SECRET).of_stream("meter")
    publisher = fastdp.Adaptive(0.5, 100.0, 0, VALUES.size, threshold=50.0, key=key)
    with account.resume(1, publisher):
        released = publisher.release(VALUES)
    alone = fastdp.release(VALUES, 0.5, 100.0, threshold=50.0, key=SECRET, stream="meter")
    assert np.array_equal(released.values, alone.values)
    assert [each.state for each in Ledger(account._path).entries()] == ["spent"]


def _die(*_: object) -> None:
    raise KeyboardInterrupt
