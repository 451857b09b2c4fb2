"""Guarantees as JSON: what is written reads back as the same guarantee, and nothing else is read."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, sequential

NUMBER = st.floats(0.0, math.inf, allow_nan=False)
GUARANTEES = st.builds(
    Guarantee,
    epsilon=NUMBER,
    delta=NUMBER,
    unit=st.text(),
    adjacency=st.text(),
    model=st.text(),
    arithmetic=st.text(),
    numeric_distance=NUMBER,
    simulated=st.booleans(),
    derivation=st.lists(st.text(), max_size=4).map(tuple),
)


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@given(GUARANTEES)
def test_what_is_written_reads_back(guarantee: Guarantee) -> None:
    text = guarantee.to_json()
    assert "\n" not in text
    read = Guarantee.from_dict(json.loads(text, parse_constant=refuse_constant))
    assert read == guarantee
    assert [type(value) for value in dataclasses.astuple(read)] == [float, float, *[str] * 4, float, bool, tuple]


def test_it_has_every_field_under_its_own_name() -> None:
    guarantee = fastdp.Adaptive(0.5, 10.0, seed=1).guarantee
    assert guarantee.to_dict() == {**dataclasses.asdict(guarantee), "derivation": list(guarantee.derivation)}
    assert Guarantee(math.inf).to_dict()["epsilon"] == "inf"
    # NumPy's numbers are written as JSON's.
    assert json.loads(Guarantee(np.float64(0.25)).to_json())["epsilon"] == 0.25
    assert str(Guarantee.from_dict(guarantee.to_dict())) == str(guarantee)


def test_guarantees_that_were_read_compose() -> None:
    first, second = (Guarantee.from_dict(Guarantee(epsilon).to_dict()) for epsilon in (0.25, 0.5))
    assert sequential(first, second).epsilon == 0.75


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epsilon", value) for value in ("1", -1.0, math.nan, None, True, [1.0], "Infinity")),
        *(("delta", -1e-9), ("numeric_distance", "small"), ("unit", 5), ("simulated", "no"), ("simulated", 1)),
        *(("derivation", "one step"), ("derivation", [1])),
    ],
)
def test_another_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"^{name} = .*: expected"):
        Guarantee.from_dict({**Guarantee(1.0).to_dict(), name: value})


@pytest.mark.parametrize(
    "fields", [{}, {"epsilon": 1.0}, {**Guarantee(1.0).to_dict(), "kappa": 1}, [1.0], "{}", None]
)
def test_other_fields_are_refused(fields: Any) -> None:
    with pytest.raises(ParameterError, match=r"^fields = .*: expected a mapping with epsilon, delta, unit"):
        Guarantee.from_dict(fields)
