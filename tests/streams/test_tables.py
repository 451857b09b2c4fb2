"""ToPL as the benchmarks show it, against the published code on real streams."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from benchmarks.accuracy import local, published
from benchmarks.accuracy.published import TOLERANCE
from benchmarks.accuracy.streams import STREAMS
from benchmarks.shared import DATA

RUNS = 20
#: Medians of ten runs, as in the published table, scatter by 2 in the published code itself.
SCATTER = 3.0
EPSILONS = (0.2, 1.0, 2.0)
#: Its EM is the plain one, and its mixture the correct one of the two that the reference has.
RULES = ("SW-W, paper, plain EM", "SW-W, corrected, plain EM", "SW, corrected")


@cache
def medians(name: str, epsilon: float) -> Any:
    if not STREAMS[name].there(DATA):
        pytest.skip(f"the real stream {name} is not beside the project (../shared/data)")
    rules = {title: rule for title, (_, rule) in local.variants().items() if title in RULES}
    return local.measure(DATA, name, rules, epsilon, local.STREAM_EPSILON, RUNS).groupby(level=0).median()


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", ["POS", "DNS"])
@pytest.mark.parametrize("rule", RULES[:2])
def test_thresholds_and_errors_of_the_published_code(rule: str, name: str, epsilon: float) -> None:
    table = published.read(published.ACCURACY)
    if not table:
        pytest.skip("the reference figures are not beside the project (../shared/reference)")
    theirs, ours = table[local.key_of(name, local.variants()[rule][0], epsilon)], medians(name, epsilon).loc[rule]
    assert theirs.theta / TOLERANCE <= ours["threshold"] <= theirs.theta * TOLERANCE
    assert ours["mse"] <= theirs.mse * SCATTER


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_smoothing_costs_ten_times_the_error(epsilon: float) -> None:
    found = medians("POS", epsilon)["mse"]
    assert found["SW, corrected"] > 10.0 * found["SW-W, corrected, plain EM"]
