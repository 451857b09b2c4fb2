"""Repetitions of one release: each what its own publisher releases, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.noise.key import Key
from fastdp.perturbers import Flat, Hierarchy
from fastdp.smoothers import Mean, Recent
from fastdp.streams import release_many
from fastdp.thresholds import Fixed, NoisyMax, SmoothQuantile
from fastdp.thresholds.renewals import RenewFromHoldout
from fastdp_lab.queries.workloads import random_ranges
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
def test_repetitions_are_single_releases(parts, monkeypatch) -> None:
    monkeypatch.setattr(release_many, "BATCH_WORDS", 3000)
    # As if there were work for every thread.
    monkeypatch.setattr(release_many, "BATCH_VALUES", 600)
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
