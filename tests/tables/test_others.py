"""Rows of keys that are not released as one more key: sums and noise by the oracle, intervals, exact losses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.tables.arguments import check_online, make_plan, statistics_of
from fastdp.tables.keys import KeyRule
from tests.oracles import table_choices, tables
from tests.tables.forced import Integers, Script, forced
from tests.tables.losses import loss
from tests.tables.rows import SECRET, below, composition

OTHERS = fastdp.PrivateKeys(others=True)
NO_KEYS = bytes.fromhex("4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945")
EPSILON, DELTA, HOUR = 1.0, 1e-3, 3_600_000_000
#: Of the composition.
OWN = {"epsilon": EPSILON, "delta": DELTA, "by": ["name", "number"], "key_rule": "private", "keys": NO_KEYS}
Rows = list[tuple[datetime, str | None, int | None]]


def rows_of_few_keys() -> Rows:
    """Three days; six keys of 30 to 60 rows, forty of one or two, and keys with a missing entry."""
    generator, found = np.random.default_rng(1), Rows()
    listed: list[tuple[str | None, int | None]] = [("a", 1), ("a", 2), ("b", 1), ("c", 3), ("c", 4), ("d", 1)]
    listed = [key for key in listed for _ in range(generator.integers(30, 60))]
    listed += [("e", i) for i in range(40) for _ in range(1 + i % 2)] + [("a", None)] * 70 + [(None, None)] * 80
    for place in generator.permutation(len(listed)):
        at = datetime(2024, 1, 1) + timedelta(minutes=int(generator.integers(0, 3 * 24 * 60)))
        found.append((at, *listed[place]))
    return found


def frame_of(rows: Rows) -> pa.Table:
    times, names, numbers = (list(column) for column in zip(*rows, strict=True))
    return pa.table(
        {"at": pa.array(times, pa.timestamp("us")), "name": names, "number": pa.array(numbers, pa.int64())}
    )


def with_others(rows: Rows, released: Sequence[tuple]) -> list[tuple]:
    """(time, key, 1) with the key of the others for those that are not released or have a missing entry."""
    return [
        (at, key if key in released and None not in key else (None, None), 1.0)
        for at, key in ((row[0], row[1:]) for row in rows)
    ]


def keys_of(found: Any) -> list[tuple]:
    return list(zip(*found.keys.values(), strict=True))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_windows_have_the_others_sums_and_noise_of_the_oracle(share: float) -> None:
    rows, private = rows_of_few_keys(), fastdp.PrivateKeys(share, others=True)
    given: dict[str, Any] = {"by": ["name", "number"], "keys": private, "epsilon": EPSILON, "delta": DELTA}
    found = fastdp.counts(frame_of(rows), "at", "1d", key=SECRET, **given).released
    keys = keys_of(found)
    assert keys == [*sorted(keys[:-1]), (None, None)]
    assert 3 <= len(keys) <= 7
    first = tables.window(tables.instant(datetime(2024, 1, 1), None), "1d", None)
    exact = tables.exact_sums(with_others(rows, keys), "1d", None, keys, first, first + 3, lambda _: 1)
    assert sum(map(sum, exact)) == len(rows)
    parameters = composition(
        every=["1d", tables.rules(None), 0, 24 * HOUR],
        start=None,
        **OWN,
        share=[share, "others"],
    )
    own = tables.words.bound(SECRET, "TablePlan", 2, parameters)
    loss_of = below(1 - Fraction(share))
    labels = [("count", 0, 1, 0, 1.0, 1.0, loss_of)]
    (wanted,) = tables.noisy([exact], own, labels, first, keys, [1 / Fraction(loss_of)])
    assert found.cells("count").tolist() == wanted


def test_counts_that_choose_keys_have_the_others_number_of_the_oracle() -> None:
    rows = rows_of_few_keys()
    given: dict[str, Any] = {"by": ["name", "number"], "keys": OTHERS, "epsilon": EPSILON, "delta": DELTA}
    table = fastdp.counts(frame_of(rows), key=SECRET, **given)
    keys, cells = keys_of(table.released), table.released.cells("count")[0].tolist()
    assert 3 <= len(keys) <= 7
    parameters = composition(
        every=None,
        start=0,
        share=[0.25, "others"],
        **OWN,
    )
    own = tables.words.bound(SECRET, "TablePlan", 2, parameters)
    share = below(Fraction(EPSILON) / 20)
    rest = sum(key == (None, None) for _, key, _ in with_others(rows, keys))
    within = tables.words.within(tables.words.within(own, "others"), 1, share)
    assert cells[-1] == rest + table_choices.bound_noise(within, [rest], [1 / Fraction(share)])[0]
    # The counts of keys have the rest of epsilon.
    noise = table.released.measured[0].noise[0]
    assert float(noise.scale) == pytest.approx(1 / 0.95)
    assert table.std_error(0, 1)[0, -1] == pytest.approx(float(table.released.others.variance) ** 0.5)
    parts = [part for part in table.guarantee.derivation if part.startswith("others (epsilon = 0.05)")]
    assert len(parts) == 1


@pytest.mark.parametrize("options", [{}, {"time": "at", "every": "1d"}, {"unit": fastdp.Person("who", rows=3)}])
def test_intervals_hold_the_others(options: dict[str, Any]) -> None:
    """And all keys together have all rows; of persons two rows in three are kept, for which numbers are scaled up."""
    rows, inside, whole, runs = rows_of_few_keys(), 0, 0, 60
    frame = frame_of(rows).append_column("who", pa.array(np.arange(len(rows)) % 400))
    for seed in range(runs):
        given: dict[str, Any] = {"by": ["name", "number"], "keys": OTHERS, "epsilon": 3.0, "delta": DELTA}
        table = fastdp.counts(frame, seed=seed, **given, **options)
        truth = sum(key == (None, None) for _, key, _ in with_others(rows, keys_of(table.released)))
        for revised in (False, True):
            low, high = (end[0, -1] for end in table.interval(0, len(table), revised=revised))
            inside += low <= truth <= high
        low, high = (end[0] for end in table.level(0).interval(0, len(table)))
        whole += low <= len(rows) <= high
    assert inside >= 0.9 * 2 * runs
    assert whole >= 0.9 * runs


def test_missing_entries_are_the_others_in_every_type() -> None:
    """A released key has no missing entry, however many rows have one."""
    for column in (
        pa.array([7] * 500 + [None] * 900 + [8] * 3),
        pa.array([0.5] * 500 + [None] * 900 + [8.5] * 3),
        pa.array(["x"] * 500 + [None] * 900 + ["y"] * 3),
        pa.array(["x"] * 500 + [None] * 900 + ["y"] * 3).dictionary_encode(),
    ):
        table = fastdp.counts(pa.table({"key": column}), by="key", keys=OTHERS, epsilon=2.0, delta=1e-6, seed=1)
        assert table.keys["key"] == [column[0].as_py(), None]
        assert table.estimate(0, 1)[0] == pytest.approx([500.0, 903.0], abs=100.0)
        assert table.arrow["key"].null_count == 1
        plain = fastdp.counts(pa.table({"key": column}), by="key", epsilon=2.0, delta=1e-6, seed=1)
        assert plain.keys["key"] == [column[0].as_py(), None]


def test_others_alone_where_no_key_is_released() -> None:
    for size in (0, 3):
        frame = pd.DataFrame({"key": [f"k{i}" for i in range(size)]}, dtype=object)
        table = fastdp.counts(frame, by="key", keys=OTHERS, epsilon=1.0, delta=1e-6, seed=3)
        assert table.keys["key"] == [None]
        assert table.frame["key"].isna().tolist() == [True]
        low, high = (end[0, 0] for end in table.interval(0, 1))
        assert low <= size <= high


def test_sums_means_and_quantiles_of_the_others() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"k": generator.choice(3, 3000) * 10, "v": generator.uniform(0.0, 4.0, 3000)})
    rare = pd.DataFrame({"k": np.arange(1000, 2000), "v": 9.0})
    wanted = {"v": ["sum", "mean", "median"], "*": "count"}
    given: dict[str, Any] = {"by": "k", "epsilon": 5.0, "delta": 1e-6, "bounds": fastdp.Value(clip=10.0), "seed": 2}
    table = fastdp.aggregate(pd.concat([frame, rare]), wanted, keys=OTHERS, **given)
    last = {name: table[name].estimate(0, 1)[0, -1] for name in table.names}
    assert table.keys["k"] == [0, 10, 20, None]
    assert last == pytest.approx({"v_sum": 9000.0, "v_mean": 9.0, "v_median": 9.0, "count": 1000.0}, rel=0.05)


@pytest.mark.parametrize("row", ["a", "c", "d"])
def test_the_exact_loss_beside_counts_that_choose_keys(row: str) -> None:
    """A row of a released key, of another one, and of a key of its own."""
    names = ["a"] * 4 + ["b"] * 3 + ["c"] * 90
    seen = []
    for listed in (names, [*names, row]):
        with forced(Script(keys=(("a",), ("b",)))) as hidden:
            given: dict[str, Any] = {"by": "key", "keys": OTHERS, "epsilon": 0.7, "delta": 1e-3, "seed": 1}
            table = fastdp.counts(pa.table({"key": listed}), **given)
        # The counts of cells are drawn, and replaced by those that chose the keys.
        assert isinstance(hidden[-1], Integers)
        seen.append((hidden[:-1], table.released.cells("count").tolist()))
    (here, shown), (there, other) = seen
    assert shown == other
    assert len(here) == 2
    found = loss(here, there)
    assert found.epsilon <= Fraction(0.7)
    assert found.alone <= 1e-3
    if row == "c":
        assert found.epsilon > Fraction(0.69), "both its key's count and the others'"


def test_the_others_name_their_noise_and_are_no_part_of_windows() -> None:
    frame = pa.table({"key": ["a"] * 900})
    given: dict[str, Any] = {"by": "key", "epsilon": 1.0, "delta": 1e-6, "seed": 1}
    plain, more = (fastdp.counts(frame, keys=keys, **given) for keys in (fastdp.PrivateKeys(), OTHERS))
    assert isinstance(plain.released.selection, KeyRule)
    assert plain.released.others is None
    assert more.released.selection.distribution.scale > plain.released.selection.distribution.scale
    given = {"epsilon": 1.0, "by": "key", "keys": OTHERS, "delta": 1e-6}
    plan = make_plan(statistics_of({"*": "count"}), fastdp.Time("at", "1h", start="2024-01-01"), **given)
    with pytest.raises(ParameterError, match="others = True: expected False"):
        check_online(plan)
    with pytest.raises(ParameterError, match="others"):
        fastdp.PrivateKeys(others="yes")  # type: ignore[arg-type]
