"""Made-up streams have the quantiles of ToPS Table 1, and their order the course it is named for."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp.errors import DataError, ParameterError
from fastdp_lab.datasets import TABLE1, extend_by_reflection, hold_out_and_extend, table1

N = 200_000


@pytest.mark.parametrize("order", ["iid", "diurnal", "bursty", "drifting"])
@pytest.mark.parametrize("stream", list(TABLE1))
def test_quantiles_and_mean_of_table_1(stream, order) -> None:
    row = TABLE1[stream]
    values = table1(stream, n=N, order=order)
    assert values.dtype == np.int64
    np.testing.assert_array_equal(np.quantile(values, (0.85, 0.95, 0.995, 1.0)), row.quantiles)
    assert values.mean() == pytest.approx(row.mean, rel=0.01)
    assert values.min() >= row.least
    assert values.max() <= row.bound


def _correlation(values, lag: int) -> float:
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return float(np.corrcoef(ranks[:-lag], ranks[lag:])[0, 1])


def test_orders_have_their_course_over_time() -> None:
    streams = {order: table1("dns", n=N, order=order) for order in ("iid", "diurnal", "bursty", "drifting")}
    day = N // 14
    assert abs(_correlation(streams["iid"], 1)) < 0.01
    assert _correlation(streams["diurnal"], day) > 0.2
    assert _correlation(streams["diurnal"], day // 2) < -0.2
    assert _correlation(streams["bursty"], 1) > 0.1
    assert abs(_correlation(streams["bursty"], 20_000)) < 0.03
    tenths = streams["drifting"].reshape(10, -1).mean(axis=1)
    assert np.all(np.diff(tenths) > 0.0)
    assert tenths[-1] > 1.5 * tenths[0]
    sorted_once = np.sort(streams["iid"])
    assert all(np.array_equal(np.sort(each), sorted_once) for each in streams.values())


def test_reproducible_and_checked() -> None:
    assert table1("pos").size == 515_597
    assert np.array_equal(table1("pos", 1000, seed=1), table1("pos", 1000, seed=1))
    assert not np.array_equal(table1("pos", 1000, seed=1), table1("pos", 1000, seed=2))
    assert table1("pos", 1).tolist() == [165]
    for arguments, said in (
        (("dsn",), "stream = 'dsn'"),
        (("dns", 0), "n = 0"),
        (("dns", 5, "daily"), "order = 'daily'"),
    ):
        with pytest.raises(ParameterError, match=said):
            table1(*arguments)


def test_reflection() -> None:
    values = np.array([1.0, 2.0, 3.0])
    assert extend_by_reflection(values, 8).tolist() == [1, 2, 3, 3, 2, 1, 1, 2]
    assert extend_by_reflection(values, 2).tolist() == [1, 2]
    assert hold_out_and_extend(values, 1, 5).tolist() == [1, 2, 3, 3, 2, 2]
    with pytest.raises(DataError, match="values is empty"):
        extend_by_reflection(values[:0], 3)
