"""Cost of an error: nothing before the data are looked at, and the whole release afterwards."""

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
from fastdp.errors import DataError, FastDPError, ParameterError

VALUES = np.random.default_rng(3).gamma(2.0, 10.0, 400)
BROKEN = np.where(np.arange(400) == 7, math.nan, VALUES)
WORDS = [*VALUES[:399].tolist(), "canary"]
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


def refused(account: fastdp.Ledger, error: type[Exception], values: Any, **options: Any) -> None:
    with pytest.raises(error):
        fastdp.release(values, 0.5, 100.0, ledger=account, stream="meter", **options)


@pytest.mark.parametrize("threshold", [None, 50.0])
@pytest.mark.parametrize(
    "values",
    [BROKEN, BROKEN.tolist(), WORDS, tuple(WORDS), deque(WORDS), np.array(WORDS, dtype=object)],
    ids=["NaN", "NaN in a list", "word", "word in a tuple", "word in a deque", "word in an array"],
)
def test_an_error_about_the_data_leaves_the_budget_spent(ledger, threshold: float | None, values: Any) -> None:
    """A caller who could ask for nothing would learn of every value whether it is a number."""
    account = ledger(limit_epsilon=1.0)
    for count in (1, 2):
        refused(account, DataError, values, threshold=threshold)
        assert [each.state for each in account.entries()] == ["reserved"] * count
    assert account.remaining("meter").epsilon == 0.0


@pytest.mark.parametrize(
    ("error", "values", "options"),
    [
        (ParameterError, VALUES, {"season": 1.0}), (ParameterError, WORDS, {"focus": 0}),
        (ParameterError, BROKEN, {"threshold": 101.0}), (DataError, [], {}), (DataError, [], {"threshold": 50.0}),
        (DataError, BROKEN.reshape(200, 2), {}), (DataError, np.array(WORDS, dtype=object).reshape(200, 2), {}),
        (DataError, "canary", {}), (DataError, 1.0, {}), (DataError, np.array(["a"] * 400), {}),
    ],
)  # fmt: skip
def test_what_does_not_depend_on_the_data_costs_nothing(
    ledger, error: type[Exception], values: Any, options: dict[str, Any]
) -> None:
    account = ledger()
    refused(account, error, values, **options)
    assert account.entries() == []


@pytest.mark.parametrize("values", [VALUES.tolist(), tuple(VALUES), deque(VALUES), VALUES.astype(object)])
def test_lists_are_released_like_arrays(values: Any) -> None:
    released, expected = (fastdp.release(each, 0.5, 100.0, seed=1) for each in (values, VALUES))
    assert np.array_equal(released.values, expected.values)


@pytest.mark.parametrize(
    "kinds",
    [
        (DataError,), (OSError, FastDPError), (ValueError,), (Exception,), (BaseException,), OSError, [OSError],
        (1,), (int,),
    ],
)  # fmt: skip
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
    words = ["--value", "value", "--time", "at", "--every", "1d", "--clip", "2", "--person", "who"]
    words += ["--start", "2026-01-01", "--stop", "2026-01-03", "--epsilon", "0.5", "--stream", "meter"]
    for count in (1, 2):
        arguments = ["totals", str(tmp_path / "rows.csv"), "-o", str(tmp_path / f"out{count}.csv"), *words]
        done = CliRunner().invoke(main, [*arguments, "--ledger", str(path)])
        assert done.exit_code == 1, done.output
        assert [each.state for each in account.entries()] == ["reserved"] * count
    assert account.remaining("meter").epsilon == 0.0
