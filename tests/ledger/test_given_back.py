"""What an error costs: nothing before the data are looked at, and the whole release afterwards."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import fastdp
from fastdp import Guarantee
from fastdp.cli import main
from fastdp.errors import DataError, FastDPError, ParameterError, StateError

VALUES = np.random.default_rng(3).gamma(2.0, 10.0, 400)
BROKEN = np.where(np.arange(400) == 7, math.nan, VALUES)
WORDS = [*VALUES[:399].tolist(), "canary"]
OPTIONS: dict[str, dict[str, Any]] = {
    "adaptive": {"holdout": 100, "max_range": 256},
    "tops": {"holdout": 100, "max_range": 256},
    "pak": {"holdout": 100},
    "topl": {"holdout": 100, "max_range": 256},
}
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


def refused(account: fastdp.Ledger, error: type[Exception], values: Any, method: str, **options: Any) -> None:
    said = {**OPTIONS[method], **options}
    with pytest.raises(error):
        fastdp.release(values, 0.5, 100.0, method, ledger=account, stream="meter", **said)


@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.parametrize(
    "values",
    [BROKEN, BROKEN.tolist(), WORDS, tuple(WORDS), deque(WORDS), np.array(WORDS, dtype=object)],
    ids=["NaN", "NaN in a list", "word", "word in a tuple", "word in a deque", "word in an array"],
)
def test_an_error_about_the_data_leaves_the_budget_spent(ledger, method: str, values: Any) -> None:
    """A caller who could ask for nothing would learn of every value whether it is a number."""
    account = ledger(limit_epsilon=1.0)
    for count in (1, 2):
        refused(account, DataError, values, method)
        assert [each.state for each in account.entries()] == ["reserved"] * count
    assert account.remaining("meter").epsilon == 0.0


@pytest.mark.parametrize(
    ("error", "values", "method", "options"),
    [
        (ParameterError, VALUES, "tops", {"fan_out": 1}),
        (ParameterError, WORDS, "tops", {"share": 1}),
        (ParameterError, BROKEN, "pak", {"share": 2.0}),
        (ParameterError, BROKEN, "topl", {"nonfinite": "no"}),
        (DataError, BROKEN[:100], "adaptive", {}),
        (DataError, WORDS[:100], "tops", {}),
        (DataError, [], "adaptive", {}),
        (DataError, BROKEN[:50], "topl", {}),
        (DataError, BROKEN, "pak", {"length": 399}),
        (StateError, BROKEN, "pak", {"average": "all"}),
        (StateError, BROKEN, "pak", {"lag_sums": True}),
        (DataError, BROKEN.reshape(200, 2), "tops", {}),
        (DataError, np.array(WORDS, dtype=object).reshape(200, 2), "tops", {}),
        (DataError, "canary", "tops", {}),
        (DataError, 1.0, "tops", {}),
        (DataError, np.array(["a"] * 400), "tops", {}),
    ],
)
def test_what_does_not_depend_on_the_data_costs_nothing(
    ledger, error: type[Exception], values: Any, method: str, options: dict[str, Any]
) -> None:
    account = ledger()
    refused(account, error, values, method, **options)
    assert account.entries() == []


@pytest.mark.parametrize("values", [VALUES.tolist(), tuple(VALUES), deque(VALUES), VALUES.astype(object)])
def test_lists_are_released_like_arrays(values: Any) -> None:
    said: dict[str, Any] = {"seed": 1, **OPTIONS["tops"]}
    released = fastdp.release(values, 0.5, 100.0, "tops", **said)
    assert np.array_equal(released.values, fastdp.release(VALUES, 0.5, 100.0, "tops", **said).values)


@pytest.mark.parametrize(
    "kinds",
    [
        (DataError,),
        (OSError, FastDPError),
        (ValueError,),
        (Exception,),
        (BaseException,),
        OSError,
        [OSError],
        (1,),
        (int,),
    ],
)
def test_no_reservation_is_given_back_for_errors_that_the_data_cause(ledger, kinds: Any) -> None:
    account = ledger()
    with pytest.raises(ParameterError, match=r"cancel_on = .*expected a tuple of exception classes"):
        account.reserve(Guarantee(0.5), stream="meter", cancel_on=kinds)
    assert account.entries() == []
    with pytest.raises(OSError, match="busy"), account.reserve(Guarantee(0.5), stream="meter", cancel_on=(OSError,)):
        raise OSError("busy")
    assert account.entries()[0].state == "cancelled"


def frame(**changed: Any) -> pd.DataFrame:
    made = {
        "at": pd.date_range("2026-01-01", periods=40, freq="h"),
        "value": [1.0] * 40,
        "who": [f"p{i}" for i in range(40)],
    }
    return pd.DataFrame({**made, **changed})


#: Tables with a row that is refused, by what it shows.
BROKEN_TABLES = {
    "NaN": frame(value=[1.0] * 39 + [math.nan]),
    "infinite": frame(value=[1.0] * 39 + [math.inf]),
    "no time": frame(at=[*pd.date_range("2026-01-01", periods=39, freq="h"), pd.NaT]),
    "no person": frame(who=[*map(str, range(39)), None]),
}


@pytest.mark.parametrize("name", BROKEN_TABLES)
def test_budget_is_never_given_back_on_an_error_that_depends_on_data(ledger, name: str) -> None:
    """Of tables and of numbers: an error tells something about a row, and is paid for."""
    account = ledger()
    for count, call in enumerate((fastdp.totals, fastdp.means), 1):
        time = fastdp.Time("at", "1d", start="2026-01-01", stop="2026-01-03")
        said = {"epsilon": 0.5, "clip": 2.0, "unit": fastdp.Person("who")}
        with pytest.raises(DataError):
            call(BROKEN_TABLES[name], "value", time, ledger=account, stream="meter", **said)
        assert [each.state for each in account.entries()] == ["reserved"] * count
    for each in (math.nan, math.inf):
        with pytest.raises(DataError):
            fastdp.add_noise([1.0, each], 1.0, 0.5, ledger=account, stream="sums")
    assert [each.state for each in account.entries("sums")] == ["reserved"] * 2
    assert account.spent("sums").epsilon == 1.0


@pytest.mark.parametrize("name", ["NaN", "no time"])
def test_a_command_never_gives_budget_back_on_an_error_that_depends_on_data(
    ledger, path: Path, tmp_path: Path, name: str
) -> None:
    account = ledger()
    account.set_limit(1.0)
    account.close()
    BROKEN_TABLES[name].to_csv(tmp_path / "rows.csv", index=False)
    words = ["--value", "value", "--time", "at", "--every", "1d", "--clip", "2", "--who", "who"]
    words += ["--start", "2026-01-01", "--stop", "2026-01-03", "--epsilon", "0.5", "--stream", "meter"]
    for count in (1, 2):
        arguments = ["totals", str(tmp_path / "rows.csv"), "-o", str(tmp_path / f"out{count}.csv"), *words]
        done = CliRunner().invoke(main, [*arguments, "--ledger", str(path)])
        assert done.exit_code == 1, done.output
        assert [each.state for each in account.entries()] == ["reserved"] * count
    assert account.remaining("meter").epsilon == 0.0
