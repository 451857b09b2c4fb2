"""Jobs of windows without an engine: any shards, batches and restarts give what one machine gives."""

from __future__ import annotations

import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.engines import Job
from fastdp.engines.windows import Columns, Shard, clock, columns_of, merge, owned, owners
from fastdp.errors import BudgetError, DataError, ParameterError, StateError
from tests.engines import scenes
from tests.engines.windows import (
    END,
    MINUTE,
    PRIVATE,
    START,
    WINDOWS,
    Row,
    assert_released,
    expected,
    in_order,
    make_job,
    make_rows,
    make_windows,
)
from tests.oracles import online_keys


def taken(rows: Columns, places: Any) -> Columns:
    return {name: [column[i] for i in places] for name, column in rows.items()}


#: State of each stage and place.
Merged = dict[tuple[int, int], bytes | None]


def due(job: Job, shards: int, merged: Merged, given: Any, stage: int = 0) -> Iterator[Row]:
    """Rows that a share completes, through all stages; states are taken by stage and place."""
    place = stage, given["place"]
    merged[place], found = merge(job, shards, merged.get(place), given["share"])
    for each in found:
        yield from due(job, shards, merged, each, stage + 1) if "share" in each else [each]


def run(job: Job, batches: list[tuple[list[Row], Any]], shards: int, again: int = 0) -> list[Row]:
    """Batches of rows, each with the clock behind it; every state is read back, and `again` is consumed twice."""
    states: list[bytes | None] = [None] * shards
    merged: Merged = {}
    out = []
    for number, (rows, to) in enumerate(batches):
        columns = columns_of(job, rows)
        whose = owners(job, columns, shards)
        for _ in range(2 if number == again else 1):
            after = []
            for k in range(shards):
                shard = Shard(job, (k, shards), states[k])
                shard.add(taken(columns, np.flatnonzero(whose == k)))
                out += [row for share in shard.advance(to) for row in due(job, shards, merged, share)]
                after.append(shard.to_bytes())
            # A batch that comes again meets the states before it.
        states = list(after)
    return out


def cut(rows: list[Row], count: int, rng: Any) -> list[tuple[list[Row], Any]]:
    """Random batches in random order within what the clock admits: a row comes before its window's end."""
    moments = [START + timedelta(seconds=int(s)) for s in np.sort(rng.choice(479, count - 1, replace=False) + 1)]
    found: list[tuple[list[Row], Any]] = [([], to) for to in [*moments, END]]
    for row in rows:
        # From the batch that is there at its time, or an earlier one.
        last = next(i for i, (_, to) in enumerate(found) if to > row["at"])
        found[int(rng.integers(0, last + 1))][0].append(row)
    for some, _ in found:
        rng.shuffle(some)
    return found


@pytest.mark.parametrize("persons", [True, False])
@pytest.mark.parametrize(
    ("private", "shards", "batches"), [(False, 1, 9), (False, 4, 3), (False, 7, 20), (True, 1, 4), (True, 5, 9)]
)
def test_any_shards_and_batches_give_what_one_machine_gives(
    tmp_path: Path, private: bool, persons: bool, shards: int, batches: int
) -> None:
    job, rows = make_job(tmp_path, persons, **PRIVATE if private else {}), make_rows()
    found = run(job, cut(rows, batches, np.random.default_rng(shards)), shards, again=batches // 2)
    # A repeated batch gives its windows again, with the same numbers.
    assert_released(found, job, rows)


def test_private_windows_in_any_order_and_twice(tmp_path: Path) -> None:
    """A part of the keys releases its windows in turn, whatever comes when, and a second share changes nothing."""
    job, rows, rng = make_job(tmp_path, **PRIVATE), make_rows(), np.random.default_rng(4)
    columns, shares, parts, out = columns_of(job, rows), defaultdict(list), defaultdict(list), list[Row]()
    whose = owners(job, columns, 3)
    for k in range(3):
        shard = Shard(job, (k, 3))
        shard.add(taken(columns, np.flatnonzero(whose == k)))
        for each in shard.advance(END):
            shares[each["place"]].append(each["share"])
    for given in shares.values():
        for each in merge(job, 3, None, *given)[1]:
            parts[each["place"]].append(each["share"])
    assert {len(given) for given in parts.values()} == {WINDOWS}
    for part, given in parts.items():
        order = rng.permutation([*range(WINDOWS)] * 2)
        state, found = None, list[Row]()
        for some in order[:, None] if part % 2 else [order]:
            state, more = merge(job, 3, state, *(given[i] for i in some))
            found += more
        out += found
    assert in_order(out) == expected(job, rows)
    with pytest.raises(StateError, match="shares of several parts of the keys: expected those of part 0"):
        merge(job, 3, None, parts[0][0], parts[1][0])


def running(job: Job, rows: list[Row], shards: int = 3) -> dict[str, Any]:
    """Running weights of keys in two windows, added up over shards."""
    machine: Any = job.machine
    key, columns, found = job.key.bind(machine.plan), columns_of(job, rows), defaultdict[str, Any](int)
    whose = owners(job, columns, shards)
    for k in set(whose.tolist()):
        own = taken(columns, np.flatnonzero(whose == k))
        batch = machine.read(own["at"], None, {"shop.town": own["shop.town"]}, own.get("who"), None)
        state, *_ = machine.collect(machine.start(key), batch, key)
        _, keys, sums = machine.collect(state, machine.read(None, None, None, None, START + 2 * MINUTE), key)
        for name, weights in zip(keys.columns()["shop.town"], sums[0].T, strict=True):
            found[str(name)] = found[str(name)] + np.cumsum(weights)
    return found


@pytest.mark.parametrize("persons", [True, False])
def test_losses_of_all_neighbours_over_shards(tmp_path: Path, persons: bool) -> None:
    """All that a unit may add to two keys in two windows: joint outcomes by enumeration, and weights of persons."""
    unit = fastdp.Person("who", rows=4, per="2min", per_window=2) if persons else fastdp.Rows(2)
    options: Row = {"statistics": {"*": "count"}, "bounds": None, "unit": unit, "epsilon": 2.0, "delta": 0.05}
    job = make_job(tmp_path, keys=fastdp.PrivateKeys(), **options)
    machine: Any = job.machine
    rule, places = machine.appearing, list(itertools.product("ab", range(2)))
    limits = rule.thresholds(0, 2).tolist()
    choose = itertools.combinations if persons else itertools.combinations_with_replacement
    most, apart, worst, norms = len(places) if persons else 2, set[int](), [0.0], set[int]()

    def rows_of_unit(cells: Any, who: int) -> list[Row]:
        moments = [START + window * MINUTE + timedelta(seconds=who * 7 + i) for i, (_, window) in enumerate(cells)]
        return [{"at": at, "shop.town": key, "who": who} for at, (key, _) in zip(moments, cells, strict=True)]

    def law(paths: dict[str, Any]) -> list[Any]:
        each = [online_keys.outcome(paths.get(key, np.zeros(2)), limits, rule.scale, 40) for key in "ab"]
        return [math.prod(pair) for pair in itertools.product(*each)]

    for others in (
        [],
        [("a", 0)],
        [("a", 0)] * (limits[0] - 1) + [("b", 1)] if not persons else [("b", 1), ("b", 0)],
    ):
        crowd = [row for who, cell in enumerate(others, 1) for row in rows_of_unit([cell], who)]
        before = running(job, crowd) if crowd else {}
        alone = law(before)
        for cells in itertools.chain(*(choose(places, count) for count in range(1, most + 1))):
            own = rows_of_unit(cells, 0)
            apart.add(len(set(owners(job, columns_of(job, own), 3).tolist())))
            after = running(job, own + crowd)
            moved = [after[key] - before.get(key, 0) for key in after]
            assert all((np.diff(each, prepend=0) >= 0).all() for each in moved)
            norms.add(sum(int(each[-1]) ** rule.power for each in moved))
            for one, other in () if persons else itertools.permutations((alone, law(after))):
                worst.append(sum(max(p - math.exp(rule.loss) * q, 0) for p, q in zip(one, other, strict=True)))
    assert (1 - 1e-8) * rule.total**rule.power < max(norms) <= rule.total**rule.power
    assert apart == ({1} if persons else {1, 2})
    assert persons or 0.01 * rule.delta < max(worst) <= rule.delta


def test_sums_are_true_where_noise_is_small(tmp_path: Path) -> None:
    """Equal rows count each, windows without rows are released, other keys are not."""
    job, rows = make_job(tmp_path, False, epsilon=2.0**20), make_rows()
    found = run(job, cut(rows, 5, np.random.default_rng(0)), 3, again=2)
    once = {(row["window"], row["shop.town"]): row for row in found}
    assert len(once) == 8 * 3
    for (window, town), row in once.items():
        mine = [each for each in rows if each["shop.town"] == town and window <= each["at"] < window + MINUTE]
        assert round(row["count"]) == len(mine)
        assert row["kwh_sum"] == pytest.approx(sum(min(each["kwh"], 10.0) for each in mine), abs=0.01)


def test_late_rows_change_nothing(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows()
    middle = START + 4 * MINUTE
    late = [row for row in rows if row["at"] < START + 2 * MINUTE][::3]
    timely = [row for row in rows if row not in late]
    before, after = ([row for row in timely if (row["at"] < middle) is early] for early in (True, False))
    assert in_order(run(job, [(before, middle), (after + late, END)], 3, again=-1)) == expected(job, timely)


def test_a_watermark_without_a_time_moves_no_clock(tmp_path: Path) -> None:
    """Flink begins with the least whole number, and engines end with the greatest."""
    job = make_job(tmp_path)
    assert clock(job, round(START.timestamp() * 1000)) == START
    assert [clock(job, watermark) for watermark in (-(2**63), -(2**53), 2**53, 2**63 - 1)] == [None] * 4


def other(job: Job, **changes: Any) -> Job:
    return Job(make_windows(**changes), name=job.name, secret=job.secret)


def test_other_parameters_and_shards_are_refused(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows()
    shard = Shard(job, (0, 1))
    shard.add(columns_of(job, rows))
    state, (placed, *_) = shard.to_bytes(), shard.advance(END)
    share = placed["share"]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": 0.5}, r"epsilon = 1\.0 in the state, 0\.5 asked for"),
        ({"keys": ["a"]}, "keys = .* in the state, .* asked for"),
        ({"bounds": 9.0}, "bounds = .* in the state"),
        ({"unit": fastdp.Person("who", rows=3, per="1min")}, r"unit\.rows = 2 in the state, 3 asked for"),
    ]
    for change, said in changes:
        with pytest.raises(StateError, match=said):
            Shard(other(job, **change), (0, 1), state)
        with pytest.raises(StateError, match=said):
            merge(other(job, **change), 1, None, share)
    for call in (lambda: Shard(job, (0, 2), state), lambda: merge(job, 2, None, share)):
        with pytest.raises(StateError, match="shards = 1 in the state, 2 asked for"):
            call()
    with pytest.raises(StateError, match="wrong key"):
        Shard(Job(job.machine, name="others", secret=job.secret), (0, 1), state)
    with pytest.raises(StateError, match="shard 1: expected that of 0"):
        Shard(job, (0, 2), Shard(job, (1, 2)).to_bytes())
    with pytest.raises(StateError, match="authentication failed"):
        Shard(job, (0, 1), state[:-1] + bytes([state[-1] ^ 1]))


def test_a_state_and_a_share_show_nothing(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows()
    shard = Shard(job, (0, 1))
    shard.add(columns_of(job, rows))
    for data in (shard.to_bytes(), *(placed["share"] for placed in shard.advance(END))):
        for secret in (bytes(range(32)), job.key.reveal(), b"who", b"person"):
            assert secret not in data
            assert secret.hex().encode() not in data


def test_the_clock_is_never_the_latest_row(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="lateness = '1min': expected None in a job"):
        make_job(tmp_path, lateness="1min")
    with pytest.raises(ParameterError, match="expected counts, sums, means and variances of single windows in a job"):
        make_job(tmp_path, statistics={"kwh": "median"})
    assert "is public knowledge" in make_job(tmp_path).guarantee.derivation[-1]


def test_jobs_of_streams_and_of_windows_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"expected Job\(fastdp\.Windows"):
        Shard(scenes.make_job(tmp_path), (0, 1))
    with pytest.raises(ParameterError, match="expected a job of streams"):
        make_job(tmp_path).advance(None, ["a"], [1.0])


def test_a_deleted_checkpoint_is_refused_by_the_ledger(tmp_path: Path) -> None:
    """A program registers its job where it finds no checkpoint: a second time, if that was deleted."""
    job = make_job(tmp_path)
    ledger = fastdp.Ledger(tmp_path / "budget", limit_epsilon=5.0)
    job.register(ledger, stream="meters")
    with pytest.raises(BudgetError, match="same secret and composition"):
        make_job(tmp_path).register(ledger, stream="meters")
    assert ledger.spent("meters").epsilon == 1.0


IDS: dict[str, list[Any]] = {
    "numbers of 64 bits": [2**63 - 1, -(2**63), 2**53 + 1, 2**53],
    "UUIDs": [uuid.UUID(int=k) for k in (1, 2, 3, 2**127)],
    "texts": ["ä", "a\u0308", "", "a.b"],
}


@pytest.mark.parametrize("kind", list(IDS))
def test_ids_as_users_have_them(tmp_path: Path, kind: str) -> None:
    """One person is in one shard, whatever the type; two spellings of a text are one person."""
    job = make_job(tmp_path)
    rows = [{**row, "who": IDS[kind][k % 4 if row["kwh"] < 3.0 else 0]} for k, row in enumerate(make_rows(200))]
    assert in_order(run(job, cut(rows, 4, np.random.default_rng(3)), 5, again=-1)) == expected(job, rows)


def test_rows_that_are_not_accepted_are_refused_before_they_count(tmp_path: Path) -> None:
    job, rows = make_job(tmp_path), make_rows(20)
    with pytest.raises(DataError, match=r"rows\[3\] has no 'who': expected at, shop.town, kwh, who in every row"):
        columns_of(job, [*rows[:3], {name: value for name, value in rows[3].items() if name != "who"}])
    with pytest.raises(DataError, match=r"persons\[2\] is missing"):
        owners(job, {**columns_of(job, rows), "who": ["a", "b", None, *["c"] * (len(rows) - 3)]}, 4)
    shard = Shard(job, (0, 1))
    before = shard.next_end
    for name, value in (("kwh", float("nan")), ("at", None)):
        with pytest.raises(DataError):
            shard.add(columns_of(job, [*rows, {**rows[0], name: value}]))
    assert shard.next_end == before
    shard.add(columns_of(job, rows))
    assert len(shard.advance(END)) == 8


def test_a_timer_in_milliseconds_fires_when_a_window_has_ended(tmp_path: Path) -> None:
    time = fastdp.Time("at", "1500us", start="1970-01-01")
    windows = fastdp.Windows({"*": "count"}, time, epsilon=1.0)
    assert Shard(Job(windows, name="fast", secret=scenes.write_secret(tmp_path)), (0, 1)).next_end == 2


def test_no_timer_fires_behind_the_last_window(tmp_path: Path) -> None:
    time = fastdp.Time("at", "1h", start="2024-05-01", stop="2024-05-01T02:00")
    job = Job(fastdp.Windows({"*": "count"}, time, epsilon=1.0), name="two", secret=scenes.write_secret(tmp_path))
    shard = Shard(job, (0, 1))
    assert len(shard.advance("2024-05-02")) == 2
    # That of the input.
    assert shard.next_end == 2**53


def test_a_partly_known_share_is_refused(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    shares = [Shard(job, (k, 4)).advance(START + MINUTE)[0]["share"] for k in range(4)]
    first, _ = merge(job, 4, shares[0], shares[1])
    second, _ = merge(job, 4, shares[1], shares[2])
    with pytest.raises(StateError, match=r"a share of shards \[1, 2\]: expected none of \[1\], or all again"):
        merge(job, 4, first, second)
    # One that is there whole changes nothing.
    whole, _ = merge(job, 4, first, shares[2])
    again, _ = merge(job, 4, whole, second)
    assert in_order(merge(job, 4, again, shares[3])[1]) == in_order(merge(job, 4, whole, shares[3])[1]) != []


BAD: list[dict[str, Any]] = [
    {"who": None},
    {"who": [1]},
    {"who": {}},
    {"kwh": float("nan")},
    {"kwh": None},
    {"kwh": "much"},
    {"kwh": [1.0]},
    {"at": None},
    {"at": "never"},
    {"at": 10**30},
    {"shop.town": ["a"]},
]


@pytest.mark.parametrize("kind", ["batch", "one by one"])
def test_one_row_stops_no_job(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A row that is not accepted is dropped; rows of several types are all taken."""
    job, rows = make_job(tmp_path), make_rows(200)
    mixed = [{**row, "who": [7, 7.0, "7", "ann", 0.5, 2**53 + 1][k % 6]} for k, row in enumerate(rows)]
    lacking = {name: entry for name, entry in rows[9].items() if name != "who"}
    given = [*mixed[:50], lacking, *({**mixed[9], **change} for change in BAD), *mixed[50:]]
    shards = [Shard(job, (k, 3)) for k in range(3)]
    batches = [given] if kind == "batch" else [[row] for row in given]
    for batch in batches:
        whose = owned(job, batch, 3)
        for k, shard in enumerate(shards):
            shard.take([batch[i] for i, owner in whose.items() if owner == k])
    merged: Merged = {}
    out = [row for shard in shards for share in shard.advance(END) for row in due(job, 3, merged, share)]
    # Whatever its type, a person is one: as texts on one machine.
    texts = {7: "7", 0.5: "0.5", 2**53 + 1: str(2**53 + 1)}
    assert in_order(out) == expected(job, [{**row, "who": texts.get(row["who"], row["who"])} for row in mixed])
    assert len(caplog.messages) == len(BAD) + 1
    assert all("much" not in said and "never" not in said for said in caplog.messages)


def test_the_shard_of_a_row_is_its_own(tmp_path: Path) -> None:
    """Arrow would make a date of a time behind a date, and the person would have rows in two shards."""
    job, row = make_job(tmp_path), make_rows()[0]
    rows = [{**row, "who": who} for who in (START.date(), START.replace(tzinfo=None), START.date())]
    assert list(dict(sorted(owned(job, rows, 997).items())).values()) == [owned(job, [row], 997)[0] for row in rows]
