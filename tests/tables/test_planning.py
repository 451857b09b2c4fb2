"""``fastdp.plan``: errors and shares before any data, against a release and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import fastdp
from fastdp.errors import ParameterError

UNITS = [fastdp.Rows(), fastdp.Rows(5), fastdp.Person("who", rows=4, per="1d")]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("levels", [None, True, False])
def test_errors_are_those_of_a_release(unit: fastdp.Rows, delta: float, levels: bool | None) -> None:
    wanted = {"kwh": ["sum", "mean", "median"], "*": "count"}
    given = {"epsilon": 0.8, "unit": unit, "delta": delta, "levels": levels, "bounds": fastdp.Value(clip=2.0)}
    plan = fastdp.plan(wanted, every="1h", windows=48, keys=3, rows=10, mean=1.0, **given)
    rows = 48 * 3 * 10
    frame = pd.DataFrame(
        {
            "at": np.repeat(pd.date_range("2026-01-01", periods=48, freq="1h"), 30),
            "key": np.tile(np.repeat(range(3), 10), 48),
            "who": range(rows),
            "kwh": 1.0,
        }
    )
    time = fastdp.Time("at", "1h", start="2026-01-01", stop="2026-01-03")
    table = fastdp.aggregate(frame, wanted, time, by="key", keys=[0, 1, 2], seed=1, **given)
    for name in ("kwh_sum", "count"):
        # With persons true numbers have the error of the rows dropped besides.
        real = table[name].released
        assert plan.errors[name].std_error <= float(table[name].std_error(24, 25)[0, 0]) * (1 + 1e-9), real.rows
        if not isinstance(unit, fastdp.Person):
            assert plan.errors[name].std_error == pytest.approx(float(table[name].std_error(24, 25)[0, 0]), rel=0.02)
    assert plan.errors["kwh_sum"].value == pytest.approx(10.0, rel=1e-6)
    assert plan.errors["kwh_median"].in_rows
    assert sum(plan.shares.values()) == pytest.approx(1.0, abs=1e-6)
    assert plan.noise in str(plan)


def test_one_sum_by_hand() -> None:
    plan = fastdp.plan({"kwh": "sum"}, epsilon=0.5, bounds=fastdp.Value(clip=4.0), unit=fastdp.Rows(3))
    epsilon = 0.5 * plan.shares["sums"]
    assert plan.std_error == pytest.approx(math.sqrt(2.0) * 3 * 4.0 / epsilon, rel=1e-6)
    assert plan.half_width == pytest.approx(math.log(20.0) * 3 * 4.0 / epsilon, rel=1e-6)


def test_the_epsilon_of_a_width() -> None:
    wanted = {"statistics": {"*": "count"}, "every": "1d", "windows": 30, "keys": 4}
    plan = fastdp.plan(half_width=12.0, **wanted)
    assert plan.half_width <= 12.0
    assert fastdp.plan(epsilon=plan.epsilon * 0.9, **wanted).half_width > 12.0
    with pytest.raises(ParameterError, match=r"half_width = 1e-09: expected a width"):
        fastdp.plan({"kwh": "sum"}, half_width=1e-9, bounds=1e6)


def test_noise_as_large_as_the_number_is_said() -> None:
    drowned = fastdp.plan({"*": "count"}, epsilon=0.1, every="1h", windows=24, rows=3)
    assert "noise is as large as the number" in str(drowned)
    assert "noise is as large" not in str(fastdp.plan({"*": "count"}, epsilon=1.0, every="1h", windows=24, rows=300))


def test_private_keys_and_chosen_rows_have_their_shares() -> None:
    person = fastdp.Person("who", rows="auto")
    plan = fastdp.plan(
        {"*": "count"}, epsilon=1.0, delta=1e-6, keys=fastdp.PrivateKeys(share=0.3), unit=person, rows=50
    )
    assert plan.shares["keys"] == pytest.approx(0.3)
    assert plan.shares["rows = 'auto'"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "epsilon = None, half_width = None: expected one of"),
        ({"epsilon": 1.0, "half_width": 2.0}, "expected one of the two"),
        ({"epsilon": -1.0}, "epsilon = -1.0: expected"),
        ({"epsilon": 1.0, "windows": 0}, "windows = 0: expected"),
        ({"epsilon": 1.0, "every": "soon"}, "every = 'soon': expected"),
        ({"epsilon": 1.0, "rows": 0.0}, "rows = 0.0: expected"),
        ({"epsilon": 1.0, "confidence": 1.0}, "confidence = 1.0: expected"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        fastdp.plan({"*": "count"}, **given)
    with pytest.raises(ParameterError, match="rows = None: expected the rows"):
        fastdp.plan({"kwh": "mean"}, epsilon=1.0, bounds=1.0)
