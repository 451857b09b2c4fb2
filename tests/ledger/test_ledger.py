"""The ledger as a program uses it: spend, reserve, limits, publishers, bad arguments."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import fastdp
from fastdp import Guarantee
from fastdp.errors import BudgetError, ParameterError, StateError
from fastdp.ledger import Budget, Reservation
from fastdp.points import Box
from fastdp.streams.array_rule import ArrayRule

VALUES = np.random.default_rng(3).gamma(2.0, 10.0, 400)


def test_ten_tenths_make_one(ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    for _ in range(10):
        account.spend(Guarantee(0.1), stream="meter")
    assert account.remaining("meter") == Budget(0.0, math.inf)
    with pytest.raises(BudgetError) as caught:
        account.spend(Guarantee(0.1), stream="meter")
    said = str(caught.value)
    assert said == (
        "Refused: stream 'meter' has 0.0 of 1.0 epsilon left (limit_epsilon=1.0), this release "
        "needs 0.1. Nothing was recorded"
    )
    assert len(account.entries("meter")) == 10
    # Another stream has a budget of its own, and a simulation needs none.
    account.spend(Guarantee(1.0), stream="other")
    assert account.spend(Guarantee(5.0, simulated=True), stream="meter").state == "spent"
    assert account.spent("meter").epsilon == 1.0
    assert account.streams == ["meter", "other"]
    with pytest.raises(BudgetError, match=r"this release needs 3\.7\d*e-06\. Nothing"):
        ledger(limit_delta=1e-6).spend(Guarantee(1.0, numeric_distance=1e-6), stream="other")


@pytest.mark.parametrize("spent", [1e-17, 0.1 + 2.0**-55])
def test_what_remains_between_two_floats_is_rounded_down_and_can_be_spent(ledger, spent: float) -> None:
    account = ledger(limit_epsilon=1.0)
    account.spend(Guarantee(spent), stream="meter")
    account.spend(Guarantee(1e-18), stream="meter")
    rest = account.remaining("meter").epsilon
    assert Fraction(repr(rest)) < 1 - Fraction(repr(spent))
    account.spend(Guarantee(rest), stream="meter")


def test_parts_and_positions_have_budgets_of_their_own(ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    account.spend(Guarantee(0.75), stream="meter", start=0, stop=100)
    account.spend(Guarantee(1.0), stream="meter", start=100)
    assert account.remaining("meter", stop=100) == Budget(0.25, math.inf)
    assert account.remaining("meter").epsilon == account.remaining("meter", start=99, stop=101).epsilon == 0.0
    with pytest.raises(BudgetError, match=r"has 0\.25 of 1\.0 epsilon left .* needs 0\.5\. Nothing was recorded"):
        account.spend(Guarantee(0.5), stream="meter", start=50, stop=60)
    account.spend(Guarantee(0.25), stream="meter", start=50, stop=60)
    for day in ("monday", "tuesday"):
        account.spend(Guarantee(1.0), stream="days", part=day)
    assert account.spent("days").epsilon == 1.0
    assert account.remaining("days", part="wednesday").epsilon == 1.0
    assert account.entries("days")[0].extent == "part 'monday'"


def test_limits_in_the_file_hold_for_everybody(ledger) -> None:
    ledger().set_limit(1.0, 1e-6)
    ledger().set_limit(3.0, stream="meter", note="decided in November")
    account = ledger(limit_epsilon=2.0)
    # What a stream's own limit does not name, that of all streams says.
    assert account.limit("meter") == Budget(2.0, 1e-6)
    assert account.limit("other") == Budget(1.0, 1e-6)
    with pytest.raises(BudgetError, match=r"has 2\.0 of 2\.0 epsilon left \(limit_epsilon=2\.0\), .* needs 2\.5\."):
        account.spend(Guarantee(2.5), stream="meter")
    with pytest.raises(BudgetError, match=r"has 1e-06 of 1e-06 delta left, this release needs 1e-05\. Nothing"):
        account.spend(Guarantee(0.5, delta=1e-5), stream="other")
    account.spend(Guarantee(0.5, delta=1e-6), stream="other")
    assert account.remaining("other") == Budget(0.5, 0.0)
    # Below what is spent nothing more passes, whatever the part; later limits take the place of earlier ones.
    ledger().set_limit(0.25)
    assert ledger().remaining("other", part="fresh") == Budget(0.0, 0.0)
    with pytest.raises(BudgetError):
        ledger().spend(Guarantee(0.125), stream="other", part="fresh")
    ledger().set_limit(None)
    assert ledger().spend(Guarantee(9.0), stream="other").state == "spent"
    assert ledger().limits() == {None: Budget(math.inf, 1e-6), "meter": Budget(3.0, 1e-6)}


def test_a_limit_keeps_what_is_not_named(ledger) -> None:
    account = ledger()
    account.set_limit(1.0, 1e-6)
    account.set_limit(0.5)
    assert account.limits() == {None: Budget(0.5, 1e-6)}
    account.set_limit(delta=1e-9, stream="meter")
    account.set_limit(0.25)
    assert account.limits()["meter"] == Budget(0.25, 1e-9)
    account.set_limit(None, stream="meter")
    assert account.limits()["meter"] == Budget(math.inf, 1e-9)
    account.set_limit(delta=None)
    assert account.limits() == {None: Budget(0.25, math.inf), "meter": Budget(math.inf, 1e-9)}


UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U0001d159\U000e0100\U000e01ef"


def test_names_that_look_alike_are_one_or_refused(ledger, lines) -> None:
    account = ledger(limit_epsilon=1.0)
    account.set_limit(0.75, stream="cafe\u0301")
    account.spend(Guarantee(0.5), stream="caf\u00e9", part="d\u00e9j\u00e0")
    assert account.streams == ["caf\u00e9"]
    assert account.spent("cafe\u0301").epsilon == 0.5
    assert account.limit("caf\u00e9").epsilon == 0.75
    assert account.remaining("cafe\u0301", part="de\u0301ja\u0300").epsilon == 0.25
    assert len(account.entries("cafe\u0301")) == 1
    before = lines()
    for wrong in ("meter ", " meter", "me\u200bter", "me\nter", "meter\u00a0"):
        for call in (account.spent, account.remaining, account.limit, account.entries):
            with pytest.raises(ParameterError, match=r"stream = .*expected printable characters"):
                call(wrong)
    for character in UNSEEN:
        words = f"expected characters that can be seen, got U\\+{ord(character):04X} at 5"
        for name, said in (("stream", {}), ("part", {"stream": "meter"})):
            with pytest.raises(ParameterError, match=f"{name} = .*{words}"):
                account.spend(Guarantee(0.5), **said, **{name: "meter" + character})
        with pytest.raises(ParameterError, match=f"stream = .*{words}"):
            account.set_limit(1.0, stream="meter" + character + "s")
    assert lines() == before


@dataclasses.dataclass(frozen=True)
class Signed(Guarantee):
    who: str = "me"


class Mine(fastdp.thresholds.Fixed):
    """A part of one's own."""


def test_what_was_recorded_can_be_read(ledger) -> None:
    account = ledger()
    assert type(account.spend(Signed(0.25, derivation=["a step"]), stream="meter").guarantee) is Guarantee
    publisher = fastdp.StreamPublisher(
        threshold=Mine(1.0), perturber=fastdp.perturbers.Flat(), epsilon=1.0, bound=1.0, key=bytes(32)
    )
    said = account.spend(publisher, stream="own").mechanism
    assert "Mine" in said["parameters"]["threshold"]
    account.spend(Guarantee(0.25), stream="meter", mechanism={"a": [{"b": '[[[\\"[['}] * 3})
    made = account.entries()
    assert made == ledger().entries()
    assert made[0].guarantee == Guarantee(0.25, derivation=("a step",))


def test_only_units_that_lie_in_one_part_have_parts(ledger) -> None:
    account = ledger()
    for said, where in (
        ({"unit": "one person, all values", "adjacency": "replace all values of one person"}, {"stop": 100}),
        ({"unit": "one person", "adjacency": "add or remove one person"}, {"part": "monday"}),
        ({"adjacency": "replace one event"}, {"start": 3}),
        ({"unit": "one point", "adjacency": "add or remove one point"}, {"start": 0}),
    ):
        with pytest.raises(ParameterError, match=f"{next(iter(where))} = .*expected None for"):
            account.spend(Guarantee(1.0, **said), stream="meter", **where)
    with pytest.raises(ParameterError, match="part = 'monday'"):
        account.spend(fastdp.PHDStream(Box([0, 0], [1, 1]), 0.5, sensitivity=2), stream="places", part="monday")
    assert account.entries() == []
    account.spend(fastdp.PHDStream(Box([0, 0], [1, 1]), 0.5), stream="places", part="monday")


def test_a_commit_that_fails_gives_nothing_back(ledger) -> None:
    account = ledger()
    made = account.reserve(Guarantee(0.5), stream="meter", start=0, stop=10, cancel_on=(ParameterError,))
    with pytest.raises(ParameterError, match="at most 10"), made:
        made.commit(stop=11)
    assert account.spent("meter").epsilon == 0.5
    assert account.entries()[0].state == "reserved"


def test_what_is_reserved_without_privacy_lets_nothing_past_the_limit_of_delta(ledger) -> None:
    account = ledger()
    account.set_limit(delta=1e-6)
    held = account.reserve(Guarantee(math.inf, delta=5e-7), stream="meter")
    for more in (Guarantee(1.0, numeric_distance=0.1), Guarantee(1.0, delta=6e-7)):
        with pytest.raises(BudgetError, match="of 1e-06 delta left, this release needs"):
            account.spend(more, stream="meter")
    account.spend(Guarantee(1.0, delta=4e-7), stream="meter")
    held.cancel()
    assert account.spent("meter").delta == 4e-7


def test_a_reservation_counts_until_it_is_cancelled(ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    with account.reserve(Guarantee(0.5), stream="meter") as first:
        assert account.spent("meter").epsilon == 0.5
        assert first.entry.state == "reserved"
    assert account.entries()[0].state == first.entry.state == "spent"
    # A block that raises may have released something.
    with pytest.raises(ZeroDivisionError), account.reserve(Guarantee(0.25), stream="meter", cancel_on=(KeyError,)):
        _ = 1 // 0
    assert account.spent("meter").epsilon == 0.75
    with pytest.raises(KeyError), account.reserve(Guarantee(0.25), stream="meter", cancel_on=(LookupError,)):
        raise KeyError
    assert account.spent("meter").epsilon == 0.75
    assert [entry.state for entry in account.entries()] == ["spent", "reserved", "cancelled"]
    assert account.verify().reserved == [2 + 1]
    left = account.reserve(Guarantee(0.25), stream="meter")
    left.cancel()
    for end in (left.cancel, left.commit, first.cancel):
        with pytest.raises(StateError, match="expected a reservation"):
            end()
    assert account.remaining("meter").epsilon == 0.25


def test_a_reservation_ends_in_no_other_copy_of_its_ledger(path: Path, ledger) -> None:
    """The same release, recorded under the same number in the same second: its line's random digits tell."""
    ledger().close()
    before = path.read_bytes()
    account = ledger()
    made = [account.reserve(Guarantee(0.5), stream="meter")]
    account.close()
    path.write_bytes(before)
    made.append(ledger().reserve(Guarantee(0.5), stream="meter"))
    first, second = (one.entry for one in made)
    assert first.nonce != second.nonce
    assert dataclasses.replace(first, time=second.time, nonce=second.nonce) == second
    assert ledger().entries() == [second]
    assert len(second.nonce) == 16
    other = Reservation(ledger(), dataclasses.replace(first, time=second.time))
    with pytest.raises(StateError, match="cancel of entry 1: it is another release"):
        other.cancel()
    made[1].cancel()


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 10), Fraction(3, 10**400), 3**60])
def test_a_number_between_two_floats_counts_as_the_upper_one(ledger, epsilon) -> None:
    account = ledger()
    entry = account.spend(Guarantee(epsilon, delta=min(Fraction(1), Fraction(epsilon))), stream="meter")
    assert type(entry.guarantee.epsilon) is float
    assert entry.guarantee.epsilon >= epsilon > math.nextafter(entry.guarantee.epsilon, 0.0)
    assert entry.guarantee.delta >= min(1, epsilon)
    assert account.spent("meter").epsilon >= epsilon


def test_a_publisher_that_ended_tells_where(ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    first = account.reserve(Guarantee(1.0), stream="meter", start=0)
    with pytest.raises(BudgetError):
        account.reserve(Guarantee(1.0), stream="meter", start=1000)
    for wrong in (0, -1, 2.5):
        with pytest.raises(ParameterError, match="stop"):
            first.commit(stop=wrong)
    assert first.commit(stop=1000).extent == "[0, 1000)"
    second = account.reserve(Guarantee(1.0), stream="meter", start=1000, stop=2000)
    with pytest.raises(ParameterError, match="at most 2000"):
        second.commit(stop=2001)
    second.commit()
    assert account.spent("meter").epsilon == 1.0
    other = account.reserve(Guarantee(1.0), stream="other")
    # A column in the place of a number shows none of its entries.
    for wrong, shown in ((5, "5"), (["Anna", "Ben"], "<list>")):
        with pytest.raises(ParameterError, match=f"stop = {shown}: .*the reservation has no start"):
            other.commit(stop=wrong)


def test_what_is_not_private_is_recorded_as_such(ledger) -> None:
    oracle = fastdp.StreamPublisher(
        threshold=fastdp.thresholds.TruePercentile(0.9), perturber=fastdp.perturbers.Flat(), epsilon=1.0, bound=9.0
    )
    assert ledger().spend(oracle, stream="s").guarantee.epsilon == math.inf
    assert ledger().spent("s").epsilon == math.inf
    with pytest.raises(BudgetError):
        ledger(limit_epsilon=1e300).spend(Guarantee(0.0), stream="s")


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_release_spends_before_it_releases(ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    account = ledger(limit_epsilon=1.0)
    released = fastdp.release(VALUES, 0.5, 100.0, ledger=account, stream="meter")
    assert len(released) == VALUES.size
    assert account.spent("meter").epsilon == released.guarantee.epsilon == 0.5
    with pytest.raises(BudgetError):
        fastdp.release(VALUES, 0.75, 100.0, ledger=account, stream="meter")
    monkeypatch.setattr(ArrayRule, "release", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fastdp.release(VALUES, 0.25, 100.0, ledger=account, stream="meter", part="p")
    assert account.spent("meter").epsilon == 0.75
    assert [entry.state for entry in account.entries()] == ["spent", "reserved"]
    for wrong, words in (
        ({"part": "a"}, "expected None without a ledger"),
        ({"ledger": account}, "expected the name of the stream"),
        ({"ledger": "budget", "stream": "meter"}, "expected an object from fastdp.ledger"),
    ):
        with pytest.raises(ParameterError, match=words):
            fastdp.release(VALUES, 0.5, 100.0, **wrong)


@pytest.mark.parametrize("name", [":memory:", "file:ledger?mode=memory"])
def test_a_path_is_none_of_sqlites_other_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="expected a file's path"):
        fastdp.Ledger(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stream": ""}, "stream = ''"),
        ({"stream": "x" * 201}, "1 to 200 Unicode characters"),
        ({"stream": "\ud800"}, "Unicode"),
        ({"part": ""}, "part = ''"),
        ({"note": "x" * 2001}, "0 to 2000"),
        ({"start": -1}, "start = -1"),
        ({"start": 2**63}, "start = 9223372036854775808"),
        ({"start": 1, "stop": 2**63}, "stop = 9223372036854775808"),
        ({"start": 5, "stop": 5}, "stop = 5: expected a whole number of at least 6"),
        ({"stop": 1.5}, "stop = 1.5"),
        ({"guarantee": 0.5}, "guarantee = 0.5: expected a fastdp.Guarantee"),
        ({"guarantee": Guarantee(1.0, delta=1.5)}, "delta = 1.5"),
        ({"guarantee": Guarantee(1.0, unit="")}, "unit = ''"),
        ({"guarantee": Guarantee(1.0, derivation=("x" * 70_000,))}, "at most 65536 bytes"),
        ({"mechanism": reduce(lambda inner, _: [inner], range(40), 0)}, "32 levels deep"),
        ({"mechanism": "\u00e9" * 2**15}, "at most 65536 bytes"),
        ({"mechanism": reduce(lambda inner, _: [inner], range(100_000), 0)}, "mechanism = "),
        ({"mechanism": "x" * 70_000}, "at most 65536 bytes"),
        ({"guarantee": Guarantee(1.0, adjacency="add or remove one event"), "start": 0}, "moves all later positions"),
        ({"mechanism": {"a": object()}}, "mechanism = "),
    ],
)
def test_bad_arguments_are_named_and_record_nothing(ledger, lines, change: dict, words: str) -> None:
    account, before = ledger(), lines()
    said = {"guarantee": Guarantee(0.5), "stream": "meter", **change}
    for call in (account.spend, account.reserve):
        with pytest.raises(ParameterError) as caught:
            call(said["guarantee"], **{name: value for name, value in said.items() if name != "guarantee"})
        assert words in str(caught.value)
    assert lines() == before


def test_bad_limits_are_named(ledger) -> None:
    for options in ({"limit_epsilon": -1.0}, {"limit_delta": "1"}, {"limit_epsilon": math.nan}, {"create": 1}):
        with pytest.raises(ParameterError, match=next(iter(options))):
            ledger(**options)
    for arguments in ((-1.0,), (1.0, -1e-9), (1.0, True)):
        with pytest.raises(ParameterError, match="expected"):
            ledger().set_limit(*arguments)


def test_a_refusal_says_what_it_would_come_to(ledger) -> None:
    account = ledger(limit_epsilon=3.0)
    account.spend(fastdp.PHDStream(Box(0, 1), 1.5), stream="places")
    with pytest.raises(
        BudgetError,
        match=r"has 1\.5 of 3\.0 .* needs 0\.5 \(in total 3\.5: beside a weaker unit a release counts twice",
    ):
        account.spend(fastdp.ToPS(0.5, 4.0, 4, 16, prune=0), stream="places")
    with pytest.raises(BudgetError, match=r"has 1\.5 of 3\.0 .* needs 4\.0\. Nothing"):
        account.spend(fastdp.PHDStream(Box(0, 1), 4.0), stream="places")
