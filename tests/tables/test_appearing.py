"""Private keys online: against an oracle, exact losses of small streams, any cut of the rows, restarts, silence."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import mpmath
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.data.column import as_arrow
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.tables.columns import as_texts
from fastdp.tables.online import KeyNoise, OnlineKeys, weights_of
from fastdp.tables.shares import shares_of
from tests.oracles import online_keys, persons
from tests.shared import full_disk

BEGIN = datetime(2024, 1, 1)
SECRET = bytes(range(32))
ROW = fastdp.Rows()
PERSON = fastdp.Person("person", 4, per="2h", per_window=2)
HOURLY = fastdp.Person("person", 2, per="1h")
#: Key, hour, person.
Row = tuple[Any, int, int]


def windows_of(unit: Any = ROW, **options: Any) -> fastdp.Windows:
    given: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3, "by": "key", "key": SECRET, "unit": unit} | options
    statistics = given.pop("statistics", {"*": "count"})
    return fastdp.Windows(statistics, fastdp.Time("at", "1h", start=BEGIN), **given)


def add(windows: fastdp.Windows, rows: list[Row], **more: Any) -> Any:
    if windows.machine.plan.who is not None:
        more["persons"] = [row[2] for row in rows]
    times = np.array([BEGIN + timedelta(hours=row[1], minutes=row[2] % 60) for row in rows], "M8[us]")
    return windows.add(times, keys=[row[0] for row in rows], **more)


def run(windows: fastdp.Windows, rows: list[Row], stops: list[int]) -> list[Any]:
    """Tables of a stream whose clock stops at these hours."""
    found, first = [], 0
    for stop in stops:
        found.append(add(windows, [row for row in rows if first <= row[1] < stop]))
        found.append(windows.advance(BEGIN + timedelta(hours=stop)))
        first = stop
    return found


def cells(found: list[Any]) -> dict[tuple[int, Any], int]:
    """Noisy sums of every released window and key."""
    out = {}
    for table in found:
        released = table.released
        begins = released.begins if released.begins is not None else np.zeros(released.sizes[-1], np.int64)
        for w, edge in enumerate(released.edges[:-1].tolist()):
            for k, key in enumerate(released.keys["key"]):
                if w >= begins[k]:
                    place = edge // 3_600_000_000, key
                    assert place not in out
                    out[place] = int(released.measured[0].steps[0, w, k])
        assert table.arrow.num_rows == sum(int((np.arange(len(table)) >= b).sum()) for b in begins)
    return out


def crowd(seed: int, hours: int = 5, keys: int = 12, rows: int = 300) -> list[Row]:
    """Rows of few frequent keys and some rare ones."""
    rng = np.random.default_rng(seed)
    named = np.minimum(rng.geometric(0.3, rows), keys)
    return list(
        zip(
            [f"k{number}" for number in named],
            rng.integers(0, hours, rows).tolist(),
            rng.integers(0, 40, rows).tolist(),
            strict=True,
        )
    )


def ways_of(unit: Any, plan: Any) -> list[tuple[int, int]]:
    """Keys of their own that a unit may have, and the weight of each, where the chance to pass is greatest."""
    if isinstance(unit, fastdp.Rows):
        return [(unit.k, 1), (1, unit.k)]
    least, power = int(weights_of(plan)[-1]), 2 if plan.noise == "gaussian" else 1
    total = plan.windows_of_unit * online_keys.WEIGHT
    return [(mpmath.mpf(total) ** power / mpmath.mpf(least) ** power, least), (1, total)]


@pytest.mark.parametrize("unit", [ROW, fastdp.Rows(3), PERSON])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_oracle(unit: Any, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same windows of the same keys, with the noise of given keys."""
    monkeypatch.setattr("fastdp.tables.functions.with_noise", lambda plan: shares_of(replace(plan, noise=noise)))
    options: dict[str, Any] = {"epsilon": 60.0} if unit is PERSON else {"epsilon": 12.0}
    windows, rows = windows_of(unit, **options), crowd(3)
    plan, composition = windows.machine.plan, windows._key.reveal()
    found = cells(run(windows, rows, [1, 2, 5]))
    first, scale = plan.start, KeyNoise.of(shares_of(plan)).scale
    sip = persons.sip_key(composition, b"keys")
    weights: list[dict[Any, int]] = []
    for hour in range(5):
        inside = [(person, (key,)) for key, at, person in rows if at == hour]
        if unit is PERSON:
            power = 2 if noise == "gaussian" else 1
            weights.append(dict(online_keys.weights_of(inside, 2, power, sip, first + hour)))
        else:
            each: dict[Any, int] = defaultdict(int)
            for _, key in inside:
                each[key] += 1
            weights.append(each)
    ways, delta = tuple(ways_of(unit, plan)), shares_of(plan).key_delta
    limits = [online_keys.threshold(scale, ways, delta, number) for number in range(1, 6)]
    wanted = online_keys.appear(weights, first, scale, limits, composition)
    assert 2 < len(wanted) < 12
    assert len(set(wanted.values())) > 1
    assert set(found) == {(w, key[0]) for key, begin in wanted.items() for w in range(begin, first + 5)}


def test_thresholds_share_delta() -> None:
    """Parts of all windows add up to delta at most; the least thresholds that a part allows."""
    rule = KeyNoise(3, 1, 1, 1.0, 1e-6)
    limits = rule.thresholds(0, 300)
    assert (np.diff(limits) >= 0).all()
    assert sum(online_keys.part(1.0, number) for number in range(1, 2**12)) < 1
    for number in (1, 2, 3, 4, 63, 64, 300):
        ways = ((3, 1), (1, 3))
        assert limits[number - 1] == online_keys.threshold(rule.scale, ways, 1e-6, number)
    assert np.array_equal(rule.thresholds(60, 70), limits[60:70])


# Exact losses of small streams.


def paths(steps: int, most: int) -> list[tuple[int, ...]]:
    """Running weights of one key, that grow by at most so much in all."""
    return [path for path in itertools.product(range(most + 1), repeat=steps) if list(path) == sorted(path)]


@pytest.mark.parametrize("k", [1, 2])
def test_exact_losses_of_small_streams(k: int) -> None:
    """All streams of three windows and one key, and all ways in which k rows come to them."""
    delta = 0.02
    rule = KeyNoise(k, 1, 1, 0.8, delta)
    limits, scale = rule.thresholds(0, 3).tolist(), rule.scale
    high = limits[-1]
    worst, reached, losses = mpmath.mpf(0), mpmath.mpf(0), []
    others = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 1, 1), (0, 0, high), (1, high - 1, high), (high, high, high)]
    laws = {}

    def law(path: tuple[int, ...]) -> list[Any]:
        if path not in laws:
            laws[path] = online_keys.outcome(path, limits, scale, 120)
        return laws[path]

    for base in others:
        for more in paths(3, k):
            pair = law(base), law(tuple(a + b for a, b in zip(base, more, strict=True)))
            for one, other in (pair, pair[::-1]):
                worst = max(worst, sum(max(p - mpmath.exp(0.8) * q, 0) for p, q in zip(one, other, strict=True)))
                if base[0]:
                    losses += [mpmath.log(p / q) for p, q in zip(one, other, strict=True)]
            if not any(base):
                reached = max(reached, sum(pair[1][:-1]))
    assert worst <= delta
    assert reached > 0.1 * delta
    # A key that others have costs epsilon, and not less.
    assert 0.95 * 0.8 < max(losses) <= 0.8 + 1e-9


def test_keys_of_one_unit_share_delta() -> None:
    """Two rows on two keys of their own, in any windows."""
    rule = KeyNoise(2, 1, 1, 0.8, 0.02)
    limits = rule.thresholds(0, 3).tolist()
    single = [online_keys.outcome(path, limits, rule.scale, 120) for path in paths(3, 1) if any(path)]
    for one, other in itertools.product(single, repeat=2):
        assert 1 - one[-1] * other[-1] <= 0.02


def running(unit: Any, rows: list[Row]) -> dict[Any, tuple[int, ...]]:
    """Running weight of each key in three windows, in which none appears."""
    windows, found = windows_of(unit, delta=1e-99), defaultdict(lambda: [0, 0, 0])
    for hour in range(3):
        add(windows, [row for row in rows if row[1] == hour])
        windows.advance(BEGIN + timedelta(hours=hour + 1))
        keys = windows.state.keys
        assert keys.shown[0].size == 0
        names = keys.table.entries(np.arange(keys.size))[0].to_pylist()
        for name, weight in zip(names, keys.facts[:, 0].tolist(), strict=True):
            found[name][hour] = weight
    return {name: tuple(each) for name, each in found.items()}


@pytest.mark.parametrize(
    ("unit", "noise"), [(fastdp.Rows(2), "laplace"), (PERSON, "laplace"), (PERSON, "gaussian"), (HOURLY, "gaussian")]
)
def test_weights_of_all_neighbours(unit: Any, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that one unit may have on three keys beside others: weights rise, by no more than the noise is for."""
    monkeypatch.setattr("fastdp.tables.functions.with_noise", lambda plan: shares_of(replace(plan, noise=noise)))
    rule = KeyNoise.of(shares_of(windows_of(unit).machine.plan))
    person, last = not isinstance(unit, fastdp.Rows), 1 if unit is PERSON else 0
    crowd = [("a", 0, 1), ("a", 2, 1), ("b", 1, 2), ("b", 1, 3)]
    cells = list(itertools.product("abc", range(last + 1 if person else 3), [0]))
    most = len(cells) if person else unit.k
    before, norms = running(unit, crowd), set()
    ways = itertools.combinations if person else itertools.combinations_with_replacement
    for count in range(1, most + 1):
        for own in ways(cells, count):
            # A person's rows come twice, which changes nothing.
            after = running(unit, [*own, *crowd, *(own if person else ())])
            moved = [np.subtract(path, before.get(key, (0, 0, 0))) for key, path in after.items()]
            assert all((np.diff(each, prepend=0) >= 0).all() for each in moved)
            norms.add(sum(each[-1] ** rule.power for each in moved))
            assert all(each[-1] == 0 or each[-1] >= rule.least for each in moved)
    limit = rule.total**rule.power
    assert (1 - 1e-8) * limit < max(norms) <= limit


# Any cut, restarts, late rows.


@given(st.data())
def test_any_cut_gives_the_same(data: st.DataObject) -> None:
    rows = crowd(data.draw(st.integers(0, 20)))
    stops = sorted({*data.draw(st.lists(st.integers(1, 5), max_size=3)), 5})
    unit = data.draw(st.sampled_from([fastdp.Rows(1), PERSON]))
    whole = cells(run(windows_of(unit, epsilon=30.0), rows, [5]))
    order = data.draw(st.permutations(range(len(rows))))
    assert cells(run(windows_of(unit, epsilon=30.0), [rows[i] for i in order], stops)) == whole


@pytest.mark.parametrize("unit", [ROW, PERSON])
def test_row_by_row_with_lateness(unit: Any) -> None:
    """A clock that the rows move, late rows among them; one row in a call, some, and all."""
    rows = sorted(crowd(5, hours=8), key=lambda row: row[1] + row[2] % 3)
    found = []
    for length in (1, 7, len(rows)):
        windows = windows_of(unit, epsilon=30.0, lateness="90min")
        parts = [add(windows, rows[i : i + length]) for i in range(0, len(rows), length)]
        found.append(
            (cells([*parts, windows.advance(BEGIN + timedelta(hours=9))]), windows.late, windows.state.clock)
        )
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) > 10
    assert found[0][1] > 0


def test_late_rows_are_in_no_state() -> None:
    windows = windows_of()
    windows.advance(BEGIN + timedelta(hours=2))
    for rows in ([("late", 0, 1)], [("late", 0, 1), ("later", 1, 1)], [("late", 0, 1), ("in time", 2, 1)]):
        add(windows, rows)
    assert (windows.late, windows.state.keys.size) == (4, 1)


@pytest.mark.parametrize("unit", [ROW, PERSON])
def test_killed_and_restored(unit: Any, tmp_path: Path) -> None:
    """After every call from the file, with and without a replay; and from bytes."""
    rows = crowd(7)
    wanted = cells(run(windows_of(unit, epsilon=30.0), rows, [1, 2, 3, 5]))
    windows, path, found, first = windows_of(unit, epsilon=30.0), tmp_path / "kept", [], 0
    windows.keep(path, SECRET)
    for stop in (1, 2, 3, 5):
        part = [row for row in rows if first <= row[1] < stop]
        first = stop
        add(windows, part)
        # The answer was lost.
        windows = fastdp.Windows.load(path, SECRET, replay=True)
        with pytest.raises(DataError, match="differs from what the state file recorded"):
            add(windows, [*part[:-1], ("other", *part[-1][1:])])
        add(windows, part)
        windows = fastdp.Windows.load(path, SECRET)
        windows.advance(BEGIN + timedelta(hours=stop))
        windows = fastdp.Windows.load(path, SECRET, replay=True)
        found.append(windows.advance(BEGIN + timedelta(hours=stop)))
        if stop == 2:
            twin = fastdp.Windows.from_bytes(windows.to_bytes(SECRET), SECRET)
            assert cells([add(twin, []), twin.advance(BEGIN + timedelta(hours=2))]) == {}
    assert cells(found) == wanted


def test_a_call_that_failed_leaves_no_key(tmp_path: Path) -> None:
    """Its keys take no numbers, so that a replay finds the state that was recorded."""
    windows, path = windows_of(), tmp_path / "kept"
    windows.keep(path, SECRET)
    add(windows, [("a", 0, 1)])
    with full_disk(), pytest.raises(StateError, match="could not be written"):
        add(windows, [("lost", 0, 1), ("b", 0, 1)])
    assert windows.state.keys.size == 1
    for rows in ([("c", 0, 1)], [("b", 0, 2), ("lost", 0, 2)]):
        add(windows, rows)
        windows = fastdp.Windows.load(path, SECRET, replay=True)
        add(windows, rows)
    keys = windows.state.keys
    assert [column.to_pylist() for column in keys.table.entries(np.arange(keys.size))] == [["a", "c", "b", "lost"]]


def test_copies_learn_keys_apart() -> None:
    import copy

    windows = windows_of()
    add(windows, [("a", 0, 1)])
    twin = copy.copy(windows)
    for each, names in ((windows, ["b", "c"]), (twin, ["d"]), (windows, ["d"]), (twin, ["b", "e"])):
        for name in names:
            add(each, [(name, 0, 1)])
    for each, names in ((windows, "abcd"), (twin, "adbe")):
        keys = each.state.keys
        assert keys.table.entries(np.arange(keys.size))[0].to_pylist() == list(names)


# What a key shows, and what it does not.


def test_a_key_stays_and_its_early_windows_are_unknown() -> None:
    windows = windows_of(epsilon=20.0)
    (found,) = [table for table in run(windows, [("a", 2, i) for i in range(50)] + [("b", 0, 1)], [6]) if len(table)]
    frame = found.arrow.to_pydict()
    assert frame["key"] == ["a"] * 4
    assert [each.hour for each in frame["window"]] == [2, 3, 4, 5]
    assert np.rint(frame["estimate"]).tolist() == [50, 0, 0, 0]
    assert frame["revised"] == frame["estimate"]
    assert np.isnan(found.sum([0, 1, 0], [6, 2, 1])).all()
    assert np.isnan(found.interval(0, 6)[0]).all()
    assert round(found.sum(2, 6).item()) == 50
    assert found.whole_numbers().to_pydict()["count"] == [50, 0, 0, 0]
    assert round(found.level(0).sum(0, 6).item()) == 50
    repr(found)
    # Nothing comes any more, and the key stays.
    later = windows.advance(BEGIN + timedelta(hours=8))
    assert later.arrow.to_pydict()["key"] == ["a", "a"]
    assert later.released.begins is None


def test_a_key_without_rows_never_appears() -> None:
    """Rows beyond a table of closed windows say nothing; noise alone would pass a low threshold often."""
    windows = windows_of(epsilon=0.05, delta=0.9)
    add(windows, [(f"k{i}", 1, i) for i in range(300)])
    assert windows.advance(BEGIN + timedelta(hours=1)).keys["key"] == []
    assert len(windows.advance(BEGIN + timedelta(hours=2)).keys["key"]) > 5


def test_windows_that_close_together_and_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is not tested before its first row, and appears once, however many windows are drawn at a time."""
    rows, found = [(f"k{i}", 1, i) for i in range(300)], []
    for cells_at_a_time in (2**22, 1):
        monkeypatch.setattr("fastdp.tables.online.CELLS", cells_at_a_time)
        windows = windows_of(epsilon=0.05, delta=0.9)
        add(windows, rows)
        windows.advance(BEGIN + timedelta(hours=6))
        begins = windows.state.keys.begins
        found.append(begins.tolist())
        assert begins.min() > windows.machine.plan.start
    assert found[0] == found[1]
    assert len(set(found[0])) > 3


def test_hidden_keys_are_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastdp")
    heard = []
    for names in (["a"], ["secret", "b", "c"]):
        caplog.clear()
        windows = windows_of(epsilon=1.0, delta=1e-6)
        shown = [repr(add(windows, [(name, 0, 1) for name in names])), repr(windows), repr(windows.state)]
        closed = windows.advance(BEGIN + timedelta(hours=2))
        shown += [repr(add(windows, [(7, 3, 1)])), repr(add(windows, [(None, 3, 1)]))]
        shown += [repr(closed), repr(closed.arrow), repr(windows.state.keys)]
        heard.append((caplog.messages, shown))
    assert heard[0] == heard[1]
    assert "secret" not in str(heard)


def test_noise_follows_from_the_key_and_not_from_its_number() -> None:
    rows = crowd(11)
    others = [(f"x{i}", 0, i) for i in range(30)]
    plain, mixed = (windows_of(epsilon=2.0) for _ in range(2))
    one, other = cells(run(plain, rows, [5])), cells(run(mixed, others + rows, [5]))
    assert one == {place: value for place, value in other.items() if place[1].startswith("k")}
    bars = [
        dict(zip(keys.table.entries(np.arange(keys.size))[0].to_pylist(), keys.facts[:, 1].tolist(), strict=True))
        for keys in (plain.state.keys, mixed.state.keys)
    ]
    assert bars[0] == {key: bar for key, bar in bars[1].items() if key in bars[0]}
    assert len(set(bars[0].values())) > 3


def test_keys_of_several_columns_and_types() -> None:
    at = np.array([BEGIN] * 120, "M8[us]")
    windows = windows_of(epsilon=20.0, by=["a", "b"])
    windows.add(at, keys={"a": ["n"] * 120, "b": [1, 2, None] * 40})
    found = windows.advance(BEGIN + timedelta(hours=1))
    assert found.keys == {"a": ["n"] * 3, "b": ["1", "2", None]}
    again = fastdp.Windows.from_bytes(windows.to_bytes())
    assert again.advance(BEGIN + timedelta(hours=2)).keys == found.keys


BIG, ONE = 2**63, UUID(int=2**127 + 10)


@pytest.mark.parametrize(
    ("batches", "keys"),
    [
        ([[None], [1, 2, 3]], ["1", "2", "3", None]),
        ([[1], [None], ["x", "y"], [2.0, 2.5]], ["1", "2", "2.5", "x", "y", None]),
        ([["x"], [7], np.array([BIG], np.uint64), [True]], ["7", str(BIG), "true", "x"]),
        ([["7"], [7], [7.0], [Decimal("7.00")], pa.array(["7"]).dictionary_encode()], ["7"]),
        ([pa.array([np.nan, np.inf, 0.5])], ["0.5", None]),
        (
            [pa.array([ONE.bytes, None], pa.binary(16)), [str(ONE).upper()], pa.array([ONE.bytes], pa.uuid())],
            [str(ONE), None],
        ),
        ([pa.array([True, None]), pa.array([Decimal("1.50"), None])], ["1.5", "true", None]),
        ([pa.array([BEGIN], pa.timestamp(unit)) for unit in ("s", "ns", "us")], ["2024-01-01 00:00:00.000000"]),
        ([[BEGIN.date()], pa.array([BEGIN], pa.timestamp("s", "Asia/Tokyo"))], ["2024-01-01", f"{BEGIN}.000000Z"]),
    ],
)
def test_no_row_decides_the_type_of_keys(batches: list[Any], keys: list[Any]) -> None:
    """Keys are texts, equal ones of all types are one, and nothing fails or gets lost."""
    found = []
    for order in (1, -1):
        windows = windows_of(epsilon=20.0)
        for batch in batches[::order]:
            for i in range(len(batch)):
                given = batch[i : i + 1] * 60 if isinstance(batch, list) else batch.take(np.full(60, i))
                windows.add(np.full(60, BEGIN, "M8[us]"), keys=given)
            windows = fastdp.Windows.from_bytes(windows.to_bytes())
        found.append(cells([windows.advance(BEGIN + timedelta(hours=1))]))
    assert found[0] == found[1]
    assert [key for _, key in found[0]] == keys


def test_a_key_that_appears_late_is_shown_from_there() -> None:
    """And totals of windows that lack its earlier rows have no upper end."""
    windows = windows_of(epsilon=20.0)
    add(windows, [("a", 2, i) for i in range(50)] + [("b", 4, i) for i in range(50)] + [("a", 0, 1)])
    found = windows.advance(BEGIN + timedelta(hours=6))
    assert found.released.begins.tolist() == [2, 4]
    assert found.level(0).sum([0, 2], [2, 3]).ravel().round().tolist() == [0, 50]
    assert not found.released.cells("count")[:2].any()
    assert "nan" not in repr(found)
    assert "estimate   median 0, from 0 to 50" in repr(found)
    assert not np.isnan(found.arrow["high"]).any()
    assert np.isnan(found.level(0).arrow["high"]).all()
    windows.advance(BEGIN + timedelta(hours=7))
    assert not np.isnan(windows.advance(BEGIN + timedelta(hours=8)).level(0).arrow["high"]).any()


def test_the_guarantee() -> None:
    windows = windows_of(PERSON, epsilon=1.0, delta=1e-9)
    guarantee = windows.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.unit) == (1.0, 1e-9, "one person in any period of 2h")
    assert any("all windows cost one choice" in line for line in guarantee.derivation)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "keys: expected the list of keys, or fastdp.PrivateKeys"),
        ({"delta": 0.0, "keys": fastdp.PrivateKeys()}, "delta = 0: expected above 0"),
        ({"keys": "public"}, "keys: expected the list of keys, or fastdp.PrivateKeys"),
        ({"by": None, "keys": fastdp.PrivateKeys()}, "keys: expected None without by="),
        ({"unit": fastdp.Person("p", 3)}, "per = None: expected the period"),
    ],
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        windows_of(**options)


def test_periods_shorter_than_windows_weigh_apart() -> None:
    """A person's rows of one day change no weight of its rows of another day, in one window of a week."""
    week = fastdp.Time("at", "1w", start="2024-01-01")
    unit = fastdp.Person("person", 3, per="1d")
    found = []
    for days in ([(0, "a")], [(0, "a"), (1, "b")], [(0, "a"), (1, "b"), (1, "c"), (1, "a")]):
        windows = fastdp.Windows({"*": "count"}, week, by="key", epsilon=1.0, delta=1e-6, unit=unit, key=SECRET)
        at = np.array([BEGIN + timedelta(days=day) for day, _ in days], "M8[us]")
        windows.add(at, keys=[key for _, key in days], persons=[7] * len(days))
        windows.advance("2024-01-08")
        found.append(windows.state.keys.facts[:, 0].tolist())
    one = online_keys.WEIGHT
    assert found == [[one], [one, one], [one + one // 3, one // 3, one // 3]]


def test_the_state_of_a_key_is_small() -> None:
    windows = windows_of(delta=1e-9)
    n = 20_000
    windows.add(np.full(n, np.datetime64(BEGIN, "us")), keys=[f"key {i:08d}" for i in range(n)])
    windows.advance(BEGIN + timedelta(hours=1))
    assert len(windows.to_bytes()) < 100 * n


def test_a_copy_learns_keys_of_its_own() -> None:
    """A state and its copy share no table: keys that one learns, in another thread even, leave the other as it is."""
    first, _ = OnlineKeys.none(("key",)).learned([pa.array(["a", "b"])])
    copy = first.alone()
    theirs, _ = copy.learned([pa.array(["c"])])
    mine, codes = first.learned([pa.array(["d", "c", "a"])])
    assert codes.tolist() == [2, 3, 0]
    assert (first.table.size, theirs.table.size, mine.table.size) == (4, 3, 4)
    assert theirs.table is not mine.table


ENTRIES = [
    *(True, 1, 7, 1.5, 7.0, np.float64(7), np.int8(3), Decimal("1.50"), 2**60 + 1, -0.0, "a", "7", np.str_("b")),
    *(b"x", UUID(int=5), date(2020, 1, 1), datetime(2020, 1, 1, 5), datetime(2020, 1, 1, tzinfo=UTC), time(1)),
    *(np.datetime64("2020-01-01", "s"), timedelta(days=1), None, float("nan"), pd.NaT, pd.NA),
]


def _texts(entries: list[Any], *, objects: bool) -> list[str | None] | None:
    given = pd.Series(entries, dtype=object) if objects else entries
    try:
        return cast("list[str | None]", as_texts(as_arrow(given, "keys")).to_pylist())
    except DataError:
        return None


@pytest.mark.parametrize("objects", [False, True])
def test_no_entry_changes_the_text_of_another(objects: bool) -> None:
    alone = [_texts([each], objects=objects) for each in ENTRIES]
    for (a, of_a), (b, of_b) in itertools.product(zip(ENTRIES, alone, strict=True), repeat=2):
        both = _texts([a, b], objects=objects)
        assert both is None or of_a is None or of_b is None or both == of_a + of_b, (a, b)
    assert _texts([1, 2.5, None], objects=objects) == ["1", "2.5", None]
    # NaN, of any library, is missing beside texts.
    assert _texts(["a", float("nan"), np.float64("nan"), pd.NA], objects=objects) == ["a", None, None, None]


@pytest.mark.parametrize("more", [b"x", date(2020, 1, 1), 1.5])
def test_persons_of_several_types_are_refused(more: object) -> None:
    frame = pd.DataFrame({"who": [more, *["a"] * 5], "at": pd.date_range("2024-01-01", periods=6)})
    with pytest.raises(DataError, match="column 'who' holds entries of several types: expected one type"):
        fastdp.counts(frame, "at", "1d", epsilon=1.0, unit=fastdp.Person("who", rows=1))
