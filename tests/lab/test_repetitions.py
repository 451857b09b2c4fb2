"""Repetitions are single releases, workloads uniform over all ranges, metrics as by hand; extras are named."""

from __future__ import annotations

import importlib
import itertools
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import fastdp
from fastdp.cli import main
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.noise.key import Key
from fastdp.perturbers import Flat, Hierarchy
from fastdp.smoothers import Mean, Recent
from fastdp.thresholds import Fixed, NoisyMax, SmoothQuantile
from fastdp.thresholds.renewals import RenewFromHoldout
from fastdp_lab import queries
from fastdp_lab.queries import random_ranges
from fastdp_lab.repetitions import repeat
from tests.noise_values import bound_key

VALUES = np.random.default_rng(8).gamma(2.0, 9.0, 700)

PARTS: dict[str, dict[str, Any]] = {
    "tops": {"threshold": NoisyMax(), "perturber": Hierarchy(4, prune=1), "smoother": Recent(), "holdout": 100},
    "mean": {"threshold": Fixed(25.0), "perturber": Hierarchy(4, prune=2), "smoother": Mean()},
    "every value": {"threshold": NoisyMax(), "perturber": Hierarchy(4, prune=0), "holdout": 100},
    "flat": {"threshold": Fixed(25.0), "perturber": Flat()},
    "nodes": {"threshold": NoisyMax(), "perturber": Hierarchy(2, consistent=False, prune=0), "holdout": 50},
    "quantile": {
        "threshold": SmoothQuantile(),
        "perturber": Hierarchy(4, prune=1),
        "smoother": Mean(),
        "holdout": 99,
    },
}


def make(parts: dict[str, Any], **options: Any) -> fastdp.StreamPublisher:
    return fastdp.StreamPublisher(**{"epsilon": 1.0, "bound": 100.0, "max_range": 256, "seed": 3, **parts, **options})


def assert_same(found: Any, k: int, number: int, parts: dict[str, Any], queries: Any) -> None:
    one = make(parts, seed=None, key=Key.from_seed(3).of_stream(number)).release(VALUES)
    assert one.threshold == found.thresholds[k]
    if found.answers is None:
        assert np.array_equal(one.values, found.releases[k].values)
        assert np.array_equal(one.sum(*queries), found.releases[k].sum(*queries))
    else:
        assert np.array_equal(one.sum(*queries), found.answers[k])


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_repetitions_are_single_releases(parts) -> None:
    queries = random_ranges(600, 20, 256, seed=1)
    kept, asked = repeat(make(parts), VALUES, 7), repeat(make(parts), VALUES, 7, queries=queries, threads=3)
    assert (kept.answers, asked.releases) == (None, None)
    for k in range(7):
        assert_same(kept, k, k, parts, queries)
        assert_same(asked, k, k, parts, queries)
    later = repeat(make(parts), VALUES, 2, queries=queries, first=5)
    assert np.array_equal(later.answers, asked.answers[5:])
    assert len(later) == 2


def test_a_repetition_says_that_it_is_one_of_many_and_simulated() -> None:
    guarantee = repeat(make(PARTS["tops"]), VALUES, 3).releases.guarantee
    assert guarantee.simulated
    assert "would lose 3 epsilon" in guarantee.derivation[-1]


def test_what_is_not_accepted() -> None:
    parts = PARTS["tops"]
    broken = VALUES.copy()
    broken[300] = np.nan
    for publisher, arguments, error, told in (
        (make(parts, seed=None), {}, ParameterError, "^seed = None"),
        (make(parts, renewal=RenewFromHoldout()), {}, ParameterError, "^renewal = RenewFromHoldout"),
        (make(parts, seed=None, key=Key.from_seed(1).of_stream(2)), {}, ParameterError, "^key = .*stream number"),
        (make(parts), {"repetitions": 0}, ParameterError, "^repetitions = 0"),
        (make(parts), {"first": 2**32 - 2, "repetitions": 2}, ParameterError, "^repetitions = 2"),
        (make(parts), {"threads": 0}, ParameterError, "^threads = 0"),
        (make(parts), {"queries": ([0], [601])}, ParameterError, r"^starts\[0\] = 0, stops\[0\] = 601"),
        (make(parts), {"queries": ([0, 1], [1, 2, 3])}, ParameterError, "entries"),
        (make(parts), {"queries": [0]}, ParameterError, r"^queries = <list>: expected \(starts, stops\)"),
        (make(parts), {"queries": 3}, ParameterError, "^queries = 3: expected"),
        (make(parts), {"values": VALUES[:100]}, DataError, "^values has 100 entries"),
        (make(parts), {"values": broken}, DataError, r"^values\[300\]: not a finite"),
    ):
        with pytest.raises(error, match=told):
            repeat(publisher, **{"values": VALUES, "repetitions": 3, **arguments})
    zero = repeat(make(parts, nonfinite="zero", seed=None, key=bound_key(3)), broken, 2).releases.values
    plain = make(parts, seed=None, key=bound_key(3))
    assert np.array_equal(zero, repeat(plain, np.nan_to_num(broken), 2).releases.values)
    used = make(parts)
    used.publish(VALUES)
    with pytest.raises(StateError, match="has seen 700 values"):
        repeat(used, VALUES, 2)


ALPHA = 1e-6  # false alarm of a test; seeds are fixed

DRAWS = 40_000


def all_ranges(n: int, longest: int) -> list[tuple[int, int]]:
    return [(start, stop) for start in range(n) for stop in range(start + 1, min(n, start + longest) + 1)]


def p_value(n: int, longest: int, starts: np.ndarray, stops: np.ndarray) -> float:
    """Chi-square test that all ranges are equally likely; fails at once for a range that is none."""
    number = {pair: k for k, pair in enumerate(all_ranges(n, longest))}
    counts = np.zeros(len(number))
    for pair, count in zip(*np.unique(np.stack([starts, stops], 1), axis=0, return_counts=True), strict=True):
        counts[number[tuple(pair.tolist())]] = count
    return 1.0 if len(number) == 1 else float(stats.chisquare(counts).pvalue)


CASES = [(n, longest) for n in (1, 2, 3, 4, 7, 12) for longest in (1, 2, 3, n - 1, n, n + 1, 100) if longest > 0]


def test_all_ranges_are_equally_likely() -> None:
    for n, longest in sorted(set(CASES)):
        starts, stops = random_ranges(n, DRAWS, longest, seed=1000 * n + longest)
        assert starts.dtype == stops.dtype == np.int64
        assert p_value(n, longest, starts, stops) > ALPHA


def test_the_chi_square_test_has_power() -> None:
    generator = np.random.default_rng(5)
    # Uniform lengths, then uniform places: long ranges too frequent.
    length = generator.integers(1, 8, DRAWS)
    starts = generator.integers(0, 7 - length + 1)
    assert p_value(7, 7, starts, starts + length) < ALPHA
    # Two sorted end points: right for stops > starts only, wrong for a limited length that is clipped.
    starts, stops = random_ranges(7, DRAWS, seed=6)
    assert p_value(7, 3, starts, np.minimum(stops, starts + 3)) < ALPHA
    with pytest.raises(KeyError):
        p_value(7, 3, starts, stops)


def test_bounds() -> None:
    for n, longest in itertools.product(
        (5, 1000, 2**31 + 11, 2**40, 2**53 + 1, 2**62), (None, 1, 2, 1000, 2**20, 2**40, 2**62, 2**80)
    ):
        starts, stops = random_ranges(n, 5000, longest, seed=8)
        lengths = stops - starts
        limit = n if longest is None else min(n, longest)
        assert starts.min() >= 0
        assert stops.max() <= n
        assert lengths.min() >= 1
        assert lengths.max() <= limit
        assert lengths.max() > 0.9 * limit - 1


@pytest.mark.parametrize(
    ("n", "longest"), [(2**40, 2**40), (2**40, 2**39), (2**62, 2**62), (2**40, 2**20), (2**40, 1)]
)
def test_law_on_long_streams(n: int, longest: int) -> None:
    """Ranges too many to count: lengths have density n - j + 1, places are uniform given the length."""
    starts, stops = random_ranges(n, DRAWS, longest, seed=9)
    lengths = stops - starts
    share = longest / n

    def distribution(x: np.ndarray) -> np.ndarray:
        y = np.asarray(x) / n
        return (y - y * y / 2) / (share - share * share / 2)

    if longest > 1:
        assert stats.kstest(lengths, distribution).pvalue > ALPHA
        assert stats.kstest(np.sqrt(lengths / n) * np.sqrt(n), distribution).pvalue < ALPHA
    # The KS test is for continuous distributions; few places left would show as ties.
    room = (n - lengths).astype(float)
    places = (starts / np.where(room > 0, room, 1.0))[room > 2**20]
    assert stats.kstest(places, "uniform").pvalue > ALPHA


TRUTH = [10.0, 20.0, -4.0, 0.5]

ANSWERS = [13.0, 18.0, -4.0, 1.5]  # differences 3, -2, 0, 1

LENGTHS = [1, 2, 4, 5]  # means' differences 3, -1, 0, 0.2


def test_so_does_a_command_that_says_nothing_itself(monkeypatch) -> None:
    @click.command()
    def needy() -> None:
        importlib.import_module("no_such_library")

    monkeypatch.setitem(vars(main), "_added", {"bench": SimpleNamespace(load=lambda: needy)})
    found = CliRunner().invoke(main, ["bench"])
    assert found.exit_code == 1
    told = "Error: fastdp bench needs no_such_library, which is not installed: pip install 'fastdp-streams[lab]'\n"
    assert found.output == told


def test_metrics_by_hand() -> None:
    for build in (list, np.array, lambda v: np.array([v, v])):
        truth, answers = build(TRUTH), build(ANSWERS)
        assert queries.mse(truth, answers) == 14 / 4
        assert queries.mae(truth, answers) == 6 / 4
        assert queries.mmse(truth, answers, LENGTHS) == pytest.approx(10.04 / 4)
        assert queries.mmae(truth, answers, LENGTHS) == pytest.approx(4.2 / 4)
        assert queries.relative_error(truth, answers) == pytest.approx((0.3 + 0.1 + 0.0 + 2.0) / 4)
    assert queries.relative_error([0.0], [3.0], floor=2.0) == 1.5
    assert queries.mae(np.uint8([3]), np.uint8([5])) == 2.0  # no wrap-around
    assert queries.mae(np.array([2**63], np.uint64), np.array([0])) == 2.0**63
