"""Small publishers that every facade test shares; ``make`` builds a ToPS, ``compose`` a StreamPublisher."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastdp

TOPS = {"epsilon": 1.0, "bound": 50, "holdout": 40, "max_range": 64, "fan_out": 4, "prune": 1, "seed": 7}
PARTS = {"epsilon": 1.0, "bound": 50, "max_range": 64, "seed": 7}


@pytest.fixture(scope="session")
def make() -> Callable[..., fastdp.ToPS]:
    def build(**options: Any) -> fastdp.ToPS:
        return fastdp.ToPS(**(TOPS | options))

    return build


@pytest.fixture(scope="session")
def compose() -> Callable[..., fastdp.StreamPublisher]:
    def build(**options: Any) -> fastdp.StreamPublisher:
        parts = {
            "threshold": fastdp.thresholds.Fixed(50.0),
            "perturber": fastdp.perturbers.Hierarchy(fan_out=4, prune=0),
        }
        return fastdp.StreamPublisher(**(PARTS | parts | options))

    return build


@pytest.fixture(scope="session")
def stream() -> np.ndarray:
    """Whole numbers from 0 to 49, which every real dtype holds exactly; longer than hold-out and trees."""
    numbers = np.random.default_rng(3).integers(0, 50, 211).astype(np.float64)
    numbers.flags.writeable = False
    return numbers


#: Defects that these tests found outside the files they may mend, by node id.  Strict: a defect that is gone fails
#: here until its line is deleted.
KNOWN = {
    r"bad_out_within_the_holdout.*\[(0|10)\]": "a refused `out` has already counted the chunk in the hold-out",
    r"release_names_its_own_argument": "release(values) calls its argument `chunk`",
    r"parts_must_be_parts|smoother_must_be_a_smoother": "parts of a publisher are not checked",
    r"prune=(array|1000000|unprintable)": "prune: an array is compared, a huge number printed",
    r"prune_may_be_a_numpy_integer": "prune refuses NumPy's integers",
    r"small_integers_do_not_wrap": "fan_out stays a NumPy integer and wraps",
    r"seed='.*ud800'": "a seed that UTF-8 cannot encode",
    r"resolution=5e-324": "a message with a number beyond floats",
    r"tiny_epsilon": "extreme epsilon",
    r"extreme_epsilon\[\{(\}|'prune').*-(5e-324|1e-300|1e-15|1e-14|1e\+30|1e\+160|1e\+300)\]": "extreme epsilon",
    r"extreme_epsilon.*resolution.*-(5e-324|1e-15|1e-14|1e\+18|1e\+30|1e\+160|1e\+300)\]": "extreme epsilon",
    r"other_kinds_of_c": "c stays a NumPy integer and wraps",
    r"extreme_bound.*(5e-324|1e-320|1.79.*e\+308)": "extreme bound",
    r"extreme_c\[(5e-324|1e-300|1e-100)\]": "penalties that are cut off tie",
    r"range_sum_refuses\[\[\[1\], \[1, 2\]\]": "ragged indices",
    r"no_ranges_and_one_start": "one start, no stops",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, reason in KNOWN.items():
            if "tests/facade" in item.nodeid and re.search(pattern, item.nodeid):
                item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
