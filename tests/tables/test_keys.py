"""Private keys: thresholds against exact tails, weights, the choice, its intervals; rows of all others as one key."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import zcdp_delta, zcdp_loss
from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.sampler import laplace_distribution
from fastdp.tables import keys
from fastdp.tables.columns import Keys
from fastdp.tables.functions import check_online, make_plan
from fastdp.tables.keys import KeyRule
from fastdp.tables.statistics import statistics_of
from tests.oracles import bulk, table_choices, tables, words
from tests.tables.forced import Integers, Script, forced
from tests.tables.losses import loss
from tests.tables.rows import SECRET, as_family, below, composition, random_rows


def partitions(k):
    return [way for parts in range(1, k + 1) for way in combinations_with_replacement(range(1, k + 1), parts)]


@pytest.mark.parametrize(("k", "epsilon", "delta"), [(1, 1.0, 1e-6), (1, 0.1, 1e-12), (3, 0.7, 1e-3), (6, 8.0, 1e-5)])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_all_ways_in_which_rows_have_keys_of_their_own_stay_within_delta(noise, k, epsilon, delta):
    """The least threshold, or for Gaussian noise at most two above it (a step more, and a rounding up)."""
    scale = Fraction(k) / Fraction(epsilon) * (1 if noise == "laplace" else 3)
    distribution = laplace_distribution(scale) if noise == "laplace" else gaussian_distribution(scale)
    rule = keys.count_rule(distribution, k, delta)

    def passes(count, least):
        if noise == "laplace":
            return table_choices.laplace_tail(scale, count, least)
        return table_choices.gaussian_tail(float(scale), least - count)

    def together(least):
        ways = [way for way in partitions(k) if sum(way) <= k]
        return max(1 - mpmath.fprod(1 - passes(c, least) for c in way) for way in ways)

    def bound(least):
        return max(k * passes(c, least) / c for c in range(1, k + 1))

    assert together(rule.threshold) <= delta
    assert bound(rule.threshold) <= delta * (1 + 1e-12)
    assert bound(rule.threshold - (1 if noise == "laplace" else 3)) > delta


def test_a_large_k_has_a_threshold_at_once():
    distribution = gaussian_distribution(Fraction(10**6))
    exact = keys.count_rule(distribution, 4096, 1e-6).threshold
    assert exact <= keys.count_rule(distribution, 4097, 1e-6).threshold <= exact * 1.001
    assert keys.count_rule(distribution, 2**40, 1e-6).threshold > 2**40


GAUSSIAN, LAPLACE = gaussian_distribution(Fraction(99)), laplace_distribution(Fraction(7, 2))


def test_weights_have_norm_one_at_most():
    for distribution, power in ((GAUSSIAN, 2), (LAPLACE, 1)):
        table = keys.key_weights(distribution, 300).tolist()
        assert table[:2] == [0, keys.WEIGHT]
        for m, weight in enumerate(table[1:], 1):
            assert m * weight**power <= keys.WEIGHT**power < m * (weight + 1) ** power


def summed(*given):
    *rows, rule, secret = given
    _, codes, weights = keys.weigh(*rows, keys.key_weights(rule.distribution, rule.most), secret)
    return np.bincount(codes, weights, rows[-1].size).astype(np.int64)


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("distribution", [GAUSSIAN, LAPLACE])
def test_weights_of_the_oracle(distribution, most):
    rule = keys.KeyRule(distribution, 1, most)
    generator = np.random.default_rng(most)
    groups, codes = generator.integers(0, 7, 60), generator.integers(0, 9, 60)
    digests, periods = generator.integers(-(2**62), 2**62, (7, 2)), generator.integers(-5, 5, 7)
    named, secret = generator.integers(-(2**62), 2**62, 12), generator.integers(0, 2**63, 2).astype(np.uint64)
    found = summed(groups, codes, digests, periods, named, rule, secret)
    pairs = list(zip(groups.tolist(), codes.tolist(), strict=True))
    rest = digests.tolist(), periods.tolist(), named.tolist()
    assert found.tolist() == table_choices.weighed(
        pairs, *rest, most, secret.tolist(), 2 if distribution is GAUSSIAN else 1
    )
    assert found[9:].tolist() == [0, 0, 0], "keys without rows"
    order = generator.permutation(60)
    assert np.array_equal(found, summed(groups[order], codes[order], digests, periods, named, rule, secret))


def test_a_person_moves_the_weights_by_one_at_most():
    digests, periods = np.array([[1, 2], [3, 4], [5, 6]]), np.zeros(3, np.int64)
    named, secret = np.arange(6) * 77, np.array([5, 9], np.uint64)
    others = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3)]

    def sums(pairs, rule):
        groups, codes = np.array(pairs).T
        return summed(groups, codes, digests, periods, named, rule, secret)

    for (distribution, power), most in itertools.product(((GAUSSIAN, 2), (LAPLACE, 1)), (1, 2, 4)):
        rule = keys.KeyRule(distribution, 1, most)
        before, moved = sums(others, rule), []
        for chosen in range(1, 2**6):
            own = [(2, code) for code in range(6) if chosen >> code & 1]
            change = (sums(others + own + own[:1], rule) - before).tolist()
            assert sum(map(bool, change)) == min(most, len(own)), "distinct keys"
            moved.append(sum(each**power for each in change))
        assert keys.WEIGHT**power * 0.999 < max(moved) <= keys.WEIGHT**power


def passes(rule, weight):
    if hasattr(rule.distribution, "scale"):
        return table_choices.laplace_tail(
            mpmath.mpf(rule.distribution.scale.numerator) / rule.distribution.scale.denominator,
            weight,
            rule.threshold,
        )
    return table_choices.gaussian_tail(float(rule.distribution.sigma), rule.threshold - weight)


def spent_of(epsilon, delta, arm):
    loss = zcdp_loss(epsilon, delta)

    def spent(rule, new):
        if arm == "shared":
            return zcdp_delta((loss**2 - (0.6 * loss) ** 2 * new) / 2, epsilon)
        if hasattr(rule.distribution, "scale"):
            return 0.0
        return table_choices.gaussian_delta(
            math.sqrt(1 - new) * keys.WEIGHT / float(rule.distribution.sigma), epsilon
        )

    if arm == "alone":
        return keys.weight_rule, spent
    return lambda *given: keys.shared_weight_rule(loss, loss * 0.6, *given), spent


@pytest.mark.parametrize("arm", ["alone", "shared"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "most"), [(1.0, 1e-6, 1), (1.0, 1e-6, 2), (1.0, 1e-6, 6), (0.1, 1e-9, 30), (4.0, 1e-4, 9)]
)
def test_new_keys_and_moved_weights_share_delta(arm, epsilon, delta, most):
    rule_of, spent = spent_of(epsilon, delta, arm)
    rule = rule_of(epsilon, delta, most)
    weights = keys.key_weights(rule.distribution, most).tolist()
    assert rule.most == most
    few = arm == "alone" and most <= 2
    assert hasattr(rule.distribution, "scale") is few, (
        "Laplace noise where a person has few keys, unless rho is shared"
    )

    def worst(rule):
        chances = [passes(rule, weight) for weight in weights]
        ways = ((m, t) for m in range(1, most + 1) for t in range(m + 1))
        return max(float(t * chances[m] + spent(rule, t / m)) for m, t in ways)

    assert 0.9 * delta < worst(rule) <= delta
    # A hundredth of a deviation less is too low.
    assert worst(rule._replace(threshold=rule.threshold - keys.WEIGHT // 20)) > delta


def test_new_keys_have_what_is_left_for_shares_between_those_that_are_looked_at():
    assert keys._delta_of_new(lambda new: 0.5 if new < 0.7 else 0.0, 1.0, 100) <= 0.5 / 0.7


@pytest.mark.parametrize("most", [1, 3])
def test_exact_losses_of_small_choices(most):
    epsilon, delta = 1.0, 1e-2
    rule = keys.weight_rule(epsilon, delta, most)
    weights = keys.key_weights(rule.distribution, most).tolist()
    worst = 0.0
    for base in (0, keys.WEIGHT // 2, 3 * keys.WEIGHT // 2, rule.threshold):
        for m in range(1, most + 1):
            for new in range(m + 1):
                old = [base] * (m - new)
                without = [*(float(passes(rule, b)) if b else 0.0 for b in old), *[0.0] * new]
                beside = [float(passes(rule, b + weights[m])) for b in [*old, *[0] * new]]
                for one, other in ((without, beside), (beside, without)):
                    total = 0.0
                    for outcome in range(2**m):
                        p, q = (
                            math.prod(x if outcome >> i & 1 else 1 - x for i, x in enumerate(each))
                            for each in (one, other)
                        )
                        total += max(p - math.exp(epsilon) * q, 0.0)
                    worst = max(worst, total)
    assert 0.8 * delta < worst <= delta


def test_a_delta_that_rounding_eats_is_for_laplace_noise_or_refused():
    assert hasattr(keys.weight_rule(1.0, 1e-40, 30).distribution, "scale")
    assert hasattr(keys.weight_rule(100.0, 1e-6, 30).distribution, "scale")
    with pytest.raises(ParameterError, match="delta = 1e-06"):
        keys.shared_weight_rule(1.0, 0.5, 1.0, 1e-6, 3)


def test_the_choice_has_the_noise_of_cells():
    key = fastdp.Key.from_seed(3)
    rows = [("a",), ("b",), (7,), (None,)]
    digests = np.array([[d % 2**64, d // 2**64] for d in map(bulk.row_digest, rows)], np.uint64)
    sums = np.array([30, 4, 0, 3])
    distribution = laplace_distribution(40)

    def chosen(sums, digests, rule):
        noisy, passed = keys.choose_keys(sums, SimpleNamespace(digests=lambda: digests), rule, key)
        assert np.array_equal(passed, (noisy >= rule.threshold) & (sums > 0))
        return passed.tolist()

    for threshold in (-1000, 5, 30):
        rule = keys.KeyRule(distribution, threshold)
        own = words.within(key.reveal(), "keys")
        expected = []
        for row, total in zip(rows, sums.tolist(), strict=True):
            (noise,) = bulk.cell(own, 0, row, [total], [bulk.laplace(Fraction(40))])
            expected.append(total + noise >= threshold and total > 0)
        assert chosen(sums, digests, rule) == expected
        # Which other keys there are, and their order, has no effect.
        assert chosen(sums[::-1][:3], digests[::-1][:3].copy(), rule) == expected[::-1][:3]
    assert expected[2] is False
    assert chosen(sums, digests, keys.KeyRule(distribution, -1000)) == [True, True, False, True]


@pytest.mark.parametrize("distribution", [laplace_distribution(Fraction(7, 2)), gaussian_distribution(Fraction(9))])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_hold_counts_of_keys_that_passed(distribution, confidence):
    rule = keys.count_rule(distribution, 1, 1e-4)
    numbers = np.arange(rule.threshold, rule.threshold + 1500)
    low, high = keys.selected_interval(numbers, rule, confidence)
    assert (low >= 1).all()
    assert ((low <= numbers) & (numbers <= high)).all()
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    for count in [1, 5, *range(rule.threshold - 8, rule.threshold + 60, 4), rule.threshold + 700]:
        z = (numbers - count).astype(float)
        mass = (
            np.exp(-abs(z) / 3.5)
            if rule.distribution == laplace_distribution(Fraction(7, 2))
            else np.exp(-(z**2) / 162)
        )
        mass /= mass.sum()
        too_high, too_low = float(mass[low > count].sum()), float(mass[high < count].sum())
        assert max(too_high, too_low) <= (1 - confidence) / 2 + 1e-9
        if count > rule.threshold + 50:
            assert 1 - too_high - too_low <= confidence + (1 - confidence) * 0.6, "and not much more"
    # A number at the threshold tells nothing of smaller counts, and one far above it all.
    assert low[0] == 1 if confidence > 0.9 else True
    assert high[0] - numbers[0] < high[-1] - numbers[-1]
    far = distribution.scale if hasattr(distribution, "scale") else distribution.sigma
    assert high[-1] - numbers[-1] == numbers[-1] - low[-1] <= 9 * far


@pytest.mark.parametrize("unit", [fastdp.Rows(), fastdp.Person("who", rows=1)])
def test_intervals_of_a_table_know_that_its_keys_were_chosen_by_its_counts(unit):
    sizes = np.random.default_rng(3).integers(5, 30, 600)
    table = pa.table({"k": np.repeat(np.arange(600), sizes), "who": np.arange(sizes.sum())})
    inside, plain, found = 0, 0, 0
    for seed in range(5):
        t = fastdp.counts(table, by="k", epsilon=1.0, delta=1e-4, seed=seed, unit=unit)
        released = t.released
        true, noisy = sizes[released.keys["k"]], released.cells("count")[0]
        assert released.selection.threshold == noisy.min() or (noisy >= released.selection.threshold).all()
        low, high = (end[0] for end in t.interval(0, 1))
        inside += int(((low <= true) & ~(true > high)).sum())
        half = released.measured[0].noise[0].quantiles(np.ones(1, np.int64), 0.95)[0]
        plain += int((np.abs(noisy - true) <= half).sum())
        found += true.size
    assert found > 1000
    assert inside > 0.95 * found
    assert plain < inside


#: What persons' other numbers leave to counts.
LAPLACE_OF_ROWS = laplace_distribution(1 / Fraction(0.94))


def test_persons_choose_keys_by_counts_where_these_need_fewer_of_them():
    frame = pd.DataFrame({"k": np.repeat(np.arange(60), np.arange(1, 61)), "who": np.arange(1830)})
    given = {"by": "k", "epsilon": 1.0, "delta": 1e-6}
    one, many = (fastdp.counts(frame, **given, unit=fastdp.Person("who", rows=k), seed=1).released for k in (1, 64))
    assert one.selection is not None
    assert many.selection is None
    assert one.cells("count").min() >= one.selection.threshold == keys.count_rule(LAPLACE_OF_ROWS, 1, 1e-6).threshold
    assert one.guarantee.delta == many.guarantee.delta == 1e-6


def test_rare_keys_are_not_released_and_private_ones_cost_their_share() -> None:
    rows = [(datetime(2024, 3, 29, 1), "rare", 1.0, 0)] + [
        (row[0], "often", *row[2:]) for row in random_rows(300, 11)
    ]
    frame = as_family(rows, "pyarrow", Path())
    for epsilon, often in ((3.0, ["often"]), (0.01, [])):
        released = fastdp.counts(frame, by="meter", delta=1e-9, epsilon=epsilon, seed=1).released
        assert (released.keys["meter"], released.guarantee.delta) == (often, 1e-9)


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_equal_keys_are_counted_together(columns: int) -> None:
    import pyarrow as pa

    def counted(*batches: list[float | None]) -> dict[Any, int]:
        keys, codes = Keys(["k"] * columns), []
        for batch in batches:
            codes += keys.codes([pa.array(batch, pa.float64())] * columns).tolist()
        chosen, place = keys.select(np.ones(keys.size, bool))
        return dict(zip(chosen.columns()["k"], np.bincount(place[codes]).tolist(), strict=True))

    nan = float("nan")
    whole = counted([-0.0, 0.0, *[-0.0] * 5, nan, None], [nan, nan, 1.0])
    fewer = counted([0.0, *[-0.0] * 5, nan, None], [nan, nan, 1.0])
    assert list(map(str, whole)) in (["0.0", "1.0", "nan", "None"], ["-0.0", "1.0", "nan", "None"])
    assert list(whole.values()) == [7, 1, 3, 1]
    assert list(fewer.values()) == [6, 1, 3, 1]
    given = Keys(["k"] * columns, [(each,) * columns for each in (0.0, 1.0, nan, None)])
    column = pa.array([-0.0, 0.0, nan, None, 1.0, 2.0], pa.float64())
    assert given.codes([column] * columns).tolist() == [0, 0, 2, 3, 1, -1]
    # The digest of a key is that of its entries, wherever it stands.
    other = Keys(["k"] * columns, [(None,) * columns, (1.0,) * columns])
    assert np.array_equal(other.digests()[[1, 0]], given.digests()[[1, 3]])


# Rows of keys that are not released as one more key.

OTHERS = fastdp.PrivateKeys(others=True)
NO_KEYS = bytes.fromhex("4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945")
EPSILON, DELTA, HOUR = 1.0, 1e-3, 3_600_000_000
#: Of the composition.
OWN = {"epsilon": EPSILON, "delta": DELTA, "by": ["name", "number"], "key_rule": "private", "keys": NO_KEYS}
Rows = list[tuple[datetime, str | None, int | None]]


def rows_of_few_keys() -> Rows:
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
        every=["1d", tables.rules(None), 0, 24 * 3_600_000_000], start=None, **OWN, share=[share, "others"]
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
    parameters = composition(every=None, start=0, share=[0.25, "others"], **OWN)
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


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("options", [{}, {"time": "at", "every": "1d"}, {"unit": fastdp.Person("who", rows=3)}])
def test_intervals_hold_the_others(options: dict[str, Any]) -> None:
    rows, inside, whole, runs = rows_of_few_keys(), 0, 0, 60
    frame = frame_of(rows).append_column("who", pa.array(np.arange(len(rows)) % 400))
    for seed in range(runs):
        given: dict[str, Any] = {"by": ["name", "number"], "keys": OTHERS, "epsilon": 3.0, "delta": DELTA}
        table = fastdp.counts(frame, seed=seed, **given, **options)
        truth = sum(key == (None, None) for _, key, _ in with_others(rows, keys_of(table.released)))
        for revised in (False, True):
            low, high = (end[0, -1] for end in table.interval(0, len(table), revised=revised))
            # Of persons the upper end is missing.
            inside += low <= truth and not truth > high
        low, high = (end[0] for end in table.level(0).interval(0, len(table)))
        whole += low <= len(rows) and not len(rows) > high
    assert inside >= 0.9 * 2 * runs
    assert whole >= 0.9 * runs


def test_missing_entries_are_the_others_in_every_type() -> None:
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
        table = fastdp.counts(frame, by="key", keys=OTHERS, epsilon=1.0, delta=1e-6, seed=4)
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
    assert last == pytest.approx({"v_sum": 9000.0, "v_mean": 9.0, "v_median": 9.0, "count": 1000.0}, rel=0.1)


@pytest.mark.parametrize("row", ["a", "c", "d"])
def test_the_exact_loss_beside_counts_that_choose_keys(row: str) -> None:
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
