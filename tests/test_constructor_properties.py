"""Any arguments whatever: a part that works, or one ParameterError of one line; never another exception."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local, perturbers, smoothers, thresholds
from fastdp.errors import DataError, ParameterError
from fastdp.spatial import Box
from fastdp.thresholds import renewals

reals = st.one_of(
    st.floats(),
    st.floats(1e-3, 1e3),
    st.sampled_from([5e-324, 2.0**-1022, 2.0**-33, 1.0, 2.0**53, 2.0**62, 1.7e308, np.float32(0.5), np.float16(6e4)]),
)
wholes = st.one_of(
    st.integers(-2, 70),
    st.integers(),
    st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, np.int8(5), np.uint64(2**63)]),
)
strangers = st.sampled_from(
    [None, True, "", "optimal", "recent", "laplace", "\ud800", b"1", 1j, [], {}, np.ones(1), object()]
)
anything = st.one_of(reals, wholes, strangers)

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ToPS": (fastdp.ToPS, {"epsilon": 0.5, "bound": 100.0, "holdout": 8, "max_range": 64, "seed": 1}),
    "PAK": (fastdp.PAK, {"epsilon": 0.5, "delta": 1e-6, "bound": 100.0, "length": 64, "holdout": 8, "seed": 1}),
    "ToPL": (fastdp.ToPL, {"epsilon": 0.5, "bound": 100.0, "holdout": 8, "max_range": 64, "seed": 1}),
    "PHDStream": (fastdp.PHDStream, {"domain": Box([0, 0], [1, 1]), "epsilon": 0.5, "seed": 1}),
    "Box": (Box, {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}),
}
for module in (counters, thresholds, perturbers, renewals, smoothers):
    for name in ("Block", "BinaryTree", "Fixed", "NoisyMax", "PAKQuantile", "SmoothQuantile", "SquareWave",
                 "TruePercentile", "Hierarchy", "RenewFromPublished", "RenewFromHoldout",
                 "Exponential", "MovingAverage"):  # fmt: skip
        if hasattr(module, name):
            needed = {"Fixed": {"theta": 3.0}, "TruePercentile": {"p": 0.9}}.get(name, {})
            KINDS[f"{module.__name__.rpartition('.')[2]}.{name}"] = (getattr(module, name), needed)
for name in ("SquareWave", "StochasticRounding", "Piecewise", "Hybrid"):
    KINDS[f"local.{name}"] = (getattr(local, name), {"epsilon": 1.0})


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_constructor_makes_a_part_or_says_why_not(kind: str, data: st.DataObject) -> None:
    make, usual = KINDS[kind]
    names = [name for name in inspect.signature(make).parameters if name != "key"]
    chosen = data.draw(st.dictionaries(st.sampled_from(names), anything, min_size=1, max_size=3))
    made, said = None, ""
    try:
        made = make(**{**usual, **chosen})
    except ParameterError as error:
        said = str(error)
    assert "\n" not in said
    assert said or repr(made)
    if made is not None and kind in ("ToPS", "PAK", "ToPL") and getattr(made, "holdout", 0) <= 64:
        publish_something(made)


def publish_something(publisher: Any) -> None:
    stream = np.arange(60.0) % 7
    try:
        published = publisher.publish(stream)
    except DataError:
        # An option may refuse values as they are.
        return
    assert np.isfinite(published).all()
    assert publisher.guarantee.epsilon > 0
