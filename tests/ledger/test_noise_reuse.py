"""The noise of one secret, composition and stream is taken once, or it could be attacked; what errors give back."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import fastdp
import fastdp_lab
from fastdp import Guarantee
from fastdp.counters import BinaryTree, RunningCounts, SelectiveCounting, event_guarantee
from fastdp.engines import Job
from fastdp.errors import BudgetError, DataError, FastDPError, ParameterError, StateError
from fastdp.ledger import Ledger
from fastdp.noise import sampler
from fastdp.noise.given_noise import Name, given
from fastdp.noise.key import Key
from fastdp.noise.sampler import LaplaceDistribution
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.points import Box, PrivTree
from fastdp.smoothers import Recent
from fastdp.streams.array_rule import ArrayRule, array_rule
from fastdp_lab.baselines.w_event import WEvent
from tests.shared import finished, release_many
from tests.stat import accept, reject

SECRET = bytes(range(32))
SQUARE = Box([0, 0], [1, 1])
VALUES = np.random.default_rng(3).gamma(2.0, 10.0, 400)
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


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
    account, publisher = ledger(), make(key=SECRET)
    first = account.spend(publisher, stream="meter")
    assert first.fingerprint == make(key=SECRET).noise_fingerprint
    assert (first.guarantee, first) == (publisher.guarantee, ledger().entries()[0])
    assert first.mechanism["class"] == type(publisher).__name__
    assert not {"seed", "key"} & set(first.mechanism["parameters"])
    before = lines()
    assert SECRET.hex() not in str(before)
    for other in (account, ledger()):
        for call in (other.spend, other.reserve):
            for where in ({"stream": "meter"}, {"stream": "another", "note": "x"}):
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
DAYS = fastdp.Time("at", "1d")
#: How a table comes to its keys.
KEY_RULES: dict[str, dict[str, Any]] = {
    "none": {}, "given": {"by": "by", "keys": ["a", "b"]}, "public": {"by": "by", "keys": "public"},
    "private": {"by": "by", "delta": 1e-6},
}  # fmt: skip


@pytest.mark.parametrize("rule", KEY_RULES)
def test_tables_with_private_keys_and_all_others_have_a_fingerprint(ledger, rule: str) -> None:
    account = ledger()
    for count, asked in enumerate(({"value": "sum"}, {"*": "count"}, {"value": "mean"}), 1):
        said = {"epsilon": 0.5, "key": SECRET, "ledger": account, "stream": "meter", **KEY_RULES[rule]}
        said["bounds"] = None if "*" in asked else fastdp.Value(clip=2.0)
        fastdp.aggregate(FRAME, asked, DAYS, **said)
        with pytest.raises(BudgetError, match=f"same secret and composition were used by entry {2 * count - 1} on"):
            fastdp.aggregate(FRAME.iloc[:-1], asked, DAYS, **said)
    assert len({each.fingerprint for each in account.entries()} - {None}) == 3


def public_objects() -> dict[str, Any]:
    key = SECRET
    released = tops(key=key[::-1]).release(VALUES)
    return {
        **{name: make(key=key) for name, make in PUBLISHERS.items()},
        "Fleet": fastdp.Fleet(fastdp.Adaptive(0.5, 100.0, threshold=5.0), key=key),
        "Job": Job(fastdp.Adaptive(0.5, 100.0, threshold=5.0), name="job", secret=lambda: key),
        "Windows": fastdp.Windows(
            {"*": "count"}, fastdp.Time("times", "1d", start="2026-01-01"), epsilon=0.5, key=key
        ),
        "Release": released,
        "Release of many": release_many(VALUES.reshape(2, -1), 0.5, bound=100.0, threshold=20.0, key=key),
        "Table": fastdp.counts(FRAME, DAYS, epsilon=0.5, key=key),
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


# Ledger.resume.


class TestResume:
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
    account = ledger()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrayRule, "release", _die)
        with pytest.raises(KeyboardInterrupt):
            fastdp.release(VALUES, 0.5, 100.0, key=SECRET, ledger=account, stream="meter")
    publisher = array_rule(VALUES.size, 0.5, 100.0, key=Key.from_bytes(SECRET).of_stream("meter"))
    with account.resume(1, publisher):
        released = publisher.release(VALUES)
    alone = fastdp.release(VALUES, 0.5, 100.0, key=SECRET, stream="meter")
    assert np.array_equal(released.values, alone.values)
    assert [each.state for each in Ledger(account._path).entries()] == ["spent"]


def _die(*_: object) -> None:
    raise KeyboardInterrupt


# The attack: noise of one word has twice the scale in the second release, so 2 out1 - out2 would be the data.

BOUND, THETA, HOLDOUT = 256.0, 128.0, 20_000
LONG = np.random.default_rng(11).gamma(2.0, 8.0, 2**17).round(1)
EPSILONS = (0.1, 0.05)
Floats = NDArray[np.float64]
Noises = tuple[Floats, Floats]


def _streams(method: str, **options: Any) -> tuple[Floats, Noises]:
    made = [finished(method, LONG.size, e, BOUND, key=SECRET, **options).release(LONG) for e in EPSILONS]
    return _attack(LONG[made[0].offset :], [one.values for one in made], [one.threshold for one in made])


def _blocks() -> tuple[Floats, Noises]:
    """Sums of blocks, whose borders may differ: 2 S1 - S2 against 2 T1 - T2 of the truth."""
    made = [
        fastdp.Adaptive(epsilon, BOUND, 0, LONG.size, key=SECRET, threshold=THETA).release(LONG).revision
        for epsilon in (4096.0, 2048.0)
    ]
    before = np.append(0.0, np.cumsum(np.minimum(LONG, THETA)))
    count = min(one.totals.size for one in made)
    totals = [one.totals[:count] * THETA for one in made]
    truths = [before[one.edges[1 : count + 1]] - before[one.edges[:count]] for one in made]
    noise = totals[0] - truths[0], totals[1] - truths[1]
    return 2.0 * noise[0] - noise[1], noise


def _attack(truth: Floats, outs: list[Floats], thetas: list[float]) -> tuple[Floats, Noises]:
    """How far the attack is off for each value that both thresholds let through, and the noises of all values."""
    ratio = (thetas[1] / EPSILONS[1]) / (thetas[0] / EPSILONS[0])
    guess = (ratio * outs[0] - outs[1]) / (ratio - 1.0)
    noise = outs[0] - np.minimum(truth, thetas[0]), outs[1] - np.minimum(truth, thetas[1])
    return (guess - truth)[truth <= min(thetas)], noise


ATTACKS: Mapping[str, Callable[[], tuple[Floats, Noises]]] = {
    "tops": lambda: _streams("tops", prune=0, holdout=HOLDOUT),
    "pak": lambda: _streams("pak", holdout=HOLDOUT, delta=1e-9),
    "adaptive": _blocks,
}


def recovered(errors: Floats) -> float:
    """Share of the values that the attack finds, to a millionth of the bound."""
    return float(np.mean(np.abs(errors) < 1e-6 * BOUND))


def correlation_p(noise: Noises) -> float:
    """Two-sided, of the correlation among those of all circular shifts, which keep what correlates along time."""
    first, second = (one - one.mean() for one in noise)
    spectrum = np.fft.rfft(first) * np.conj(np.fft.rfft(second))
    at_shifts = np.fft.irfft(spectrum, first.size)
    return float(2.0 * stats.norm.sf(abs(at_shifts[0]) / at_shifts[1:].std()))


@pytest.mark.parametrize("method", ATTACKS)
def test_two_epsilons_under_one_secret_have_independent_noises(method: str) -> None:
    errors, noise = ATTACKS[method]()
    # By chance a guess may hit.
    assert recovered(errors) < 0.01
    assert noise[0].size > 100_000
    accept(correlation_p(noise))
    # A twentieth of one noise in the other would be seen.
    shared = 0.05 * noise[1].std() / noise[0].std() * noise[0]
    reject(correlation_p((noise[0], noise[1] + shared)))


@pytest.mark.slow
@pytest.mark.parametrize("method", ATTACKS)
def test_the_attack_recovers_all_values_where_noise_follows_from_the_secret_alone(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before noise was bound to the composition: the attack above can succeed."""

    def table(
        name: Name, distribution: LaplaceDistribution, start: int, out: np.ndarray, sums: np.ndarray | None
    ) -> None:
        # Not by its labels, of which theta is one.
        sampler.fill(out, distribution, Key.from_seed(repr(name[1:])), StreamId(Purpose.TREE), start)

    def unbound(self: Key, *_: object) -> Key:
        return given(table)

    for name in ("bind", "bound"):
        monkeypatch.setattr(Key, name, unbound)
    errors, noise = ATTACKS[method]()
    assert recovered(errors) == 1.0
    reject(correlation_p(noise))


def test_reports_of_the_local_model_are_independent_too() -> None:
    _, noise = _streams("topl", holdout=HOLDOUT)
    accept(correlation_p(noise))


# Cost of an error: nothing before the data are looked at, and the whole release afterwards.

BROKEN = np.where(np.arange(400) == 7, math.nan, VALUES)
WORDS = [*VALUES[:399].tolist(), "canary"]


def refused(account: fastdp.Ledger, error: type[Exception], values: Any, **options: Any) -> None:
    with pytest.raises(error):
        fastdp.release(values, 0.5, 100.0, ledger=account, stream="meter", **options)


@pytest.mark.parametrize("threshold", [None, 50.0])
@pytest.mark.parametrize(
    "values",
    [BROKEN, BROKEN.tolist(), WORDS, deque(WORDS), np.array(WORDS, dtype=object)],
    ids=["NaN", "NaN in a list", "word", "word in a deque", "word in an array"],
)
def test_an_error_about_the_data_leaves_the_budget_spent(ledger, threshold: float | None, values: Any) -> None:
    """A caller who could ask for nothing would learn of every value whether it is a number."""
    account = ledger(limit_epsilon=1.0)
    for count in (1, 2):
        refused(account, DataError, values, threshold=threshold)
        assert [each.state for each in account.entries()] == ["reserved"] * count
    assert account.remaining("meter").epsilon == 0.0


@pytest.mark.parametrize(
    ("error", "values", "options"),
    [
        (ParameterError, VALUES, {"season": 1.0}), (ParameterError, WORDS, {"season": 0}),
        (ParameterError, BROKEN, {"threshold": 101.0}), (DataError, [], {}), (DataError, [], {"threshold": 50.0}),
        (DataError, BROKEN.reshape(200, 2), {}), (DataError, np.array(WORDS, dtype=object).reshape(200, 2), {}),
        (ParameterError, "canary", {}), (DataError, 1.0, {}), (DataError, np.array(["a"] * 400), {}),
    ],
)  # fmt: skip
def test_what_does_not_depend_on_the_data_costs_nothing(
    ledger, error: type[Exception], values: Any, options: dict[str, Any]
) -> None:
    account = ledger()
    refused(account, error, values, **options)
    assert account.entries() == []


@pytest.mark.parametrize(
    "kinds",
    [
        (DataError,), (OSError, FastDPError), (ValueError,), (Exception,), (BaseException,), OSError, [OSError],
        (1,), (int,),
    ],
)  # fmt: skip
def test_no_reservation_is_given_back_for_errors_that_the_data_cause(ledger, kinds: Any) -> None:
    account = ledger()
    with pytest.raises(ParameterError, match=r"cancel_on = .*expected a tuple of exception classes"):
        account.reserve(Guarantee(0.5), stream="meter", cancel_on=kinds)
    assert account.entries() == []
    with pytest.raises(OSError, match="busy"), account.reserve(Guarantee(0.5), stream="meter", cancel_on=(OSError,)):
        raise OSError("busy")
    assert account.entries()[0].state == "cancelled"


#: Of a table of 40 rows, changes by which a row is refused.
BROKEN_TABLES = {
    "NaN": {"value": [1.0] * 39 + [math.nan]},
    "infinite": {"value": [1.0] * 39 + [math.inf]},
    "no time": {"at": [*pd.date_range("2026-01-01", periods=39, freq="h"), pd.NaT]},
    "no person": {"who": [*map(str, range(39)), None]},
}


@pytest.mark.parametrize("name", BROKEN_TABLES)
def test_budget_is_never_given_back_on_an_error_that_depends_on_data(ledger, name: str) -> None:
    """Of tables and of numbers: an error tells something about a row, and is paid for."""
    account = ledger()
    plain = {"at": pd.date_range("2026-01-01", periods=40, freq="h"), "value": 1.0, "who": range(40)}
    for count, call in enumerate((fastdp.totals, fastdp.means), 1):
        time = fastdp.Time("at", "1d", start="2026-01-01", stop="2026-01-03")
        said = {"epsilon": 0.5, "clip": 2.0, "unit": fastdp.Person("who")}
        with pytest.raises(DataError):
            call(pd.DataFrame(plain | BROKEN_TABLES[name]), "value", time, ledger=account, stream="meter", **said)
        assert [each.state for each in account.entries()] == ["reserved"] * count
    for each in (math.nan, math.inf):
        with pytest.raises(DataError):
            fastdp.add_noise([1.0, each], 1.0, 0.5, ledger=account, stream="sums")
    assert [each.state for each in account.entries("sums")] == ["reserved"] * 2
    assert account.spent("sums").epsilon == 1.0


@pytest.mark.parametrize("options", [{"bound": 10.0}, {"sensitivity": 1.0}], ids=str)
def test_finished_streams_of_any_length_are_those_of_their_secret(tmp_path, options: dict[str, float]) -> None:
    ledger = Ledger(tmp_path / "ledger", limit_epsilon=9.0)
    streams, key = {"a": np.ones(50), "b": np.ones(60)}, Key.from_bytes(SECRET)
    many = fastdp.release_many(streams, 1.0, key=key, **options)
    ledger.spend(many, stream="all")
    for name, values in streams.items():
        alone = fastdp.release(values, 1.0, key=key.of_stream(name), **options)
        assert np.array_equal(alone.values, many[name].values)
        with pytest.raises(BudgetError):
            ledger.spend(alone, stream="other")
