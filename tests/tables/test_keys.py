"""Private keys: thresholds against exact tails, weights of persons, the choice, and intervals that know of it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from itertools import combinations_with_replacement
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import zcdp_delta, zcdp_loss
from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.sampler import laplace_distribution
from fastdp.tables import keys
from tests.oracles import bulk, table_choices, words


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


# Weights.


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
    """All sets of keys of one person beside two others, and rows of its keys repeated: squares of changes."""
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
    """Probability that a key of this weight passes."""
    if hasattr(rule.distribution, "scale"):
        return table_choices.laplace_tail(
            mpmath.mpf(rule.distribution.scale.numerator) / rule.distribution.scale.denominator,
            weight,
            rule.threshold,
        )
    return table_choices.gaussian_tail(float(rule.distribution.sigma), rule.threshold - weight)


def spent_of(epsilon, delta, arm):
    """Rule, and delta that the others' weights leave, by the share of new keys."""
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
    """Any t of a person's m keys are new: they pass, or the others' noise fails, with at most delta."""
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


@pytest.mark.parametrize("most", [1, 3])
def test_exact_losses_of_small_choices(most, monkeypatch):
    """Probabilities of all sets of keys, with and without a person, for weights of few steps."""
    monkeypatch.setattr(keys, "WEIGHT", 2**7)
    epsilon, delta = 1.0, 1e-2
    rule = keys.weight_rule(epsilon, delta, most)
    weights = keys.key_weights(rule.distribution, most).tolist()
    worst = 0.0
    for base in (0, 60, 200, rule.threshold):
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


# The choice.


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
    """Coverage by the noise's distribution given that it passed, summed exactly, on either side."""
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


def test_intervals_of_a_table_know_that_its_keys_were_chosen_by_its_counts():
    """95 % of released keys, of which many lie about the threshold; without the selection fewer."""
    import pyarrow as pa

    sizes = np.random.default_rng(3).integers(5, 30, 600)
    table = pa.table({"k": np.repeat(np.arange(600), sizes)})
    inside, plain, found = 0, 0, 0
    for seed in range(5):
        t = fastdp.counts(table, by="k", epsilon=1.0, delta=1e-4, seed=seed)
        released = t.released
        true, noisy = sizes[released.keys["k"]], released.cells("count")[0]
        assert released.selection.threshold == noisy.min() or (noisy >= released.selection.threshold).all()
        low, high = (end[0] for end in t.interval(0, 1))
        inside += int(((low <= true) & (true <= high)).sum())
        half = released.measured[0].noise[0].quantiles(np.ones(1, np.int64), 0.95)[0]
        plain += int((np.abs(noisy - true) <= half).sum())
        found += true.size
    assert found > 1000
    assert inside > 0.95 * found
    assert plain < inside
