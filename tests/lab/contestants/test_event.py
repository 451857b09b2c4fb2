"""Event level: answers are functions of noisy nodes, each with its share of epsilon, as naive trees show."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from fastdp_lab.contestants import event
from fastdp_lab.contestants.budget import UNITS, draws, parts, steps_of
from fastdp_lab.contestants.event import EVENT

KEY, BOUND, EPSILON = bytes(range(32)), 100, 2.0
VALUES = np.random.default_rng(3).integers(0, BOUND + 1, 70)
PUBLIC = {"bound": BOUND, "sensitivity": float(BOUND), "holdout": 7, "max_range": 64}


def noisy_nodes(fan_out: int, levels: int, share: int) -> tuple[list[np.ndarray], float]:
    """Sum and noise of each node, of all values to come too, by level; and the length of a step."""
    steps, unit = steps_of(VALUES, BOUND, parts(EPSILON) // share)
    found = []
    for level in range(levels):
        width = fan_out**level
        sums = np.pad(steps, (0, 2 * fan_out**levels - steps.size)).reshape(-1, width).sum(1)
        found.append(sums + draws(KEY, sums.size, level))
    return found, unit


def assert_prefixes(released: np.ndarray, expected: list[float], unit: float) -> None:
    np.testing.assert_allclose(np.cumsum(released), np.array(expected) * unit, rtol=1e-9)


def test_the_binary_tree_answers_a_prefix_by_one_node_a_one_of_its_length():
    nodes, unit = noisy_nodes(2, 7, 7)
    prefixes = [
        sum(nodes[level][(t >> level) - 1] for level in range(7) if t >> level & 1) for t in range(1, VALUES.size + 1)
    ]
    assert_prefixes(event.tree(VALUES, EPSILON, KEY, sensitivity=BOUND), prefixes, unit)


def test_honaker_averages_a_node_with_its_children_by_their_variances():
    nodes, unit = noisy_nodes(2, 7, 7)
    variance = 1.0
    for level in range(1, 7):
        children = nodes[level - 1].reshape(-1, 2).sum(1)
        weight = 2 * variance / (1 + 2 * variance)
        nodes[level] = children + np.rint((nodes[level] - children) * weight).astype(np.int64)
        variance = weight
    prefixes = [
        sum(nodes[level][(t >> level) - 1] for level in range(7) if t >> level & 1) for t in range(1, VALUES.size + 1)
    ]
    assert_prefixes(event.honaker(VALUES, EPSILON, KEY, sensitivity=BOUND), prefixes, unit)


def test_signed_digits_add_and_take_away_nodes():
    nodes, unit = noisy_nodes(5, 4, 4)

    def prefix(t: int) -> int:
        total, place = 0, 0
        digits, rest = [], t
        for _ in range(4):
            digit = (rest + 2) % 5 - 2
            digits.append(digit)
            rest = (rest - digit) // 5
        for level in (3, 2, 1, 0):
            place, digit = place * 5, digits[level]
            total += sum(nodes[level][place : place + max(digit, 0)]) - sum(
                nodes[level][place + min(digit, 0) : place]
            )
            place += digit
        assert place == t
        return total

    released = event.tree(VALUES, EPSILON, KEY, sensitivity=BOUND, fan_out=5, signed=True)
    assert_prefixes(released, [prefix(t) for t in range(1, VALUES.size + 1)], unit)


def test_the_smooth_tree_puts_each_value_into_half_as_many_nodes_as_there_are_levels():
    # C(8, 4) = 70 leaves would do for the values, but prefixes need one more.
    leaves = [leaf for leaf in range(2**10) if leaf.bit_count() == 5]
    steps, unit = steps_of(VALUES, BOUND, parts(EPSILON) // 5)
    noise = [draws(KEY, 2 ** (9 - level), level) for level in range(10)]

    def prefix(t: int) -> int:
        total = 0
        for level in range(10):
            if leaves[t] >> level & 1:
                left = (leaves[t] >> level) - 1
                total += noise[level][left >> 1]
                total += sum(int(steps[i]) for i in range(VALUES.size) if leaves[i] >> level == left)
        return total

    assert all(sum(1 for level in range(10) if not leaf >> level & 1) == 5 for leaf in leaves)
    assert_prefixes(
        event.smooth_binary(VALUES, EPSILON, KEY, sensitivity=BOUND), [prefix(t) for t in range(1, 71)], unit
    )


@pytest.mark.parametrize("spread", [0, 3, 100])
def test_pegasus_groups_alike_values_and_releases_their_median(spread):
    values = np.random.default_rng(1).integers(0, spread + 1, 60) + 1
    epsilon = 40.0
    found = event.pegasus(values, epsilon, KEY, sensitivity=1.0)
    noisy = event.laplace(values, epsilon * 0.8, KEY, sensitivity=1.0)
    grouping = parts(epsilon) - int(parts(epsilon) * 0.8)
    steps = steps_of(values, 1.0, (grouping // 2 - 1) // 2)[0]
    thresholds, noise = draws(KEY, 60, 1), draws(KEY, 60, 2, times=2)
    group, closed, expected, threshold = [], True, [], 0
    for t in range(60):
        if closed:
            group, closed, threshold = [t], False, round(5 * UNITS / 4) + thresholds[t]
        else:
            mean = statistics.fmean(steps[[*group, t]].tolist())
            if int(sum(abs(int(steps[i]) - mean) for i in [*group, t])) + noise[t] < threshold:
                group.append(t)
            else:
                group, closed = [t], True
        expected.append(statistics.median(noisy[group].tolist()))
    assert found.tolist() == pytest.approx(expected)


def variance_of_prefixes(release, n: int) -> float:
    # Squared error of prefixes in squares of bound / epsilon, from the noise of 60 keys.
    errors = [np.cumsum(release(np.zeros(n, np.int64), 1.0, bytes([k]) * 32, sensitivity=1.0)) for k in range(60)]
    return float(np.mean(np.square(errors)))


def test_errors_of_prefixes_are_those_of_the_papers_formulas():
    n = 1_000
    ones = np.bitwise_count(np.arange(1, n + 1)).mean()
    assert variance_of_prefixes(event.tree, n) == pytest.approx(2 * 10**2 * ones, rel=0.15)
    # C(12, 6) = 924 leaves are too few.
    assert variance_of_prefixes(event.smooth_binary, n) == pytest.approx(14**3 / 4, rel=0.15)

    def signed(values, epsilon, key, *, sensitivity):
        return event.tree(values, epsilon, key, sensitivity=sensitivity, fan_out=9, signed=True)

    # Over all prefixes of a full tree: h^3 (k^2 - 1) / (2 k) (Andersson et al. 2025).
    assert variance_of_prefixes(signed, (9**3 - 1) // 2) == pytest.approx(27 * 80 / 18, rel=0.15)


@pytest.mark.parametrize("mechanism", EVENT, ids=lambda each: each.name)
def test_without_noise_sums_are_the_sums_of_the_values(mechanism):
    values = np.tile(np.repeat([3, 40], 25), 40)
    released = mechanism.run(values, 5_000.0, KEY, **{**PUBLIC, "holdout": 500, "max_range": 1024})
    assert released[1000:].sum() == pytest.approx(values[1000:].sum(), rel=0.02)
