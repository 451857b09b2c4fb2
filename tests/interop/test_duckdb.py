"""The SQL function: fresh noise on every row, one release, charged when it is registered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import BudgetError, ParameterError
from fastdp.interop.duckdb import register
from tests import stat
from tests.oracles import distributions

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def connection() -> Iterator[Any]:
    with duckdb.connect() as made:
        made.sql("SET threads = 2")
        yield made


def column(connection: Any, query: str) -> np.ndarray:
    return np.array([row[-1] for row in connection.sql(query).fetchall()])


def test_counts_of_groups(connection: Any) -> None:
    guarantee = register(connection, "private", sensitivity=1, epsilon=0.5, rows=5000)
    assert (guarantee.epsilon, guarantee.arithmetic, guarantee.simulated) == (0.5, "exact", False)
    query = "SELECT k, private(count(*)) FROM (SELECT i % 5000 AS k FROM range(100000) t(i)) GROUP BY k ORDER BY k"
    noise = column(connection, query) - 20
    assert noise.size == 5000
    assert 1.0 < noise.std() < 4.0
    # All rows are used up; the same query again would be a second release.
    with pytest.raises(duckdb.Error, match=r"private was given more than rows = 5000 values: expected one release"):
        connection.sql(query).fetchall()


def test_it_is_volatile_and_has_the_law(connection: Any) -> None:
    size = 200_000
    register(connection, "private", sensitivity=2, epsilon=0.5, rows=size)
    # A constant: every row has noise of its own.
    noise = column(connection, f"SELECT private(41) FROM range({size})") - 41  # noqa: S608
    edges = np.arange(-30.0, 31.0)
    counts = np.histogram(noise, [-np.inf, *edges, np.inf])[0]
    stat.accept(stat.chi_square_p(counts, distributions.laplace_cells(edges, 4.0)))
    stat.reject(stat.chi_square_p(counts, distributions.laplace_cells(edges, 4.4)))
    register(connection, "other", sensitivity=1, epsilon=1e-12, rows=2)
    ((first, second),) = connection.sql("SELECT other(5), other(5)").fetchall()
    assert first != second


def test_explaining_costs_nothing_and_fetching_twice_costs_twice(connection: Any) -> None:
    register(connection, "private", sensitivity=1, epsilon=1.0, rows=5)
    relation = connection.sql("SELECT private(i) FROM range(3) t(i)")
    relation.explain()
    assert len(relation.fetchall()) == 3
    with pytest.raises(duckdb.Error, match="more than rows = 5"):
        relation.fetchall()


def test_the_scale_covers_the_rounding_of_all_rows(connection: Any) -> None:
    size = 50_000
    register(connection, "p", sensitivity=1.0, epsilon=1.0, rows=size, kind="DOUBLE", resolution=2.0**-14)
    noise = column(connection, f"SELECT p(0.0::DOUBLE) FROM range({size})")  # noqa: S608
    expected = 1.0 + (size - 1) * 2.0**-14
    assert np.abs(noise).mean() == pytest.approx(expected, rel=0.05)


def test_it_is_charged_when_it_is_registered(connection: Any, tmp_path: Path) -> None:
    ledger = fastdp.Ledger(tmp_path / "budget", limit_epsilon=1.0)
    options: dict[str, Any] = {"sensitivity": 1, "epsilon": 0.6, "rows": 9, "ledger": ledger, "stream": "trips"}
    register(connection, "trips_1", **options)
    assert ledger.spent("trips").epsilon == 0.6
    # A name that DuckDB has already, with more budget than is left for it or less.
    for epsilon in (0.1, 0.6):
        with pytest.raises(duckdb.Error, match="sum"):
            register(connection, "sum", **{**options, "epsilon": epsilon})
    with pytest.raises(BudgetError):
        register(connection, "trips_2", **options)
    with pytest.raises(duckdb.Error, match="trips_2"):
        connection.sql("SELECT trips_2(1)")
    for wrong in ({"rows": 0}, {"epsilon": 0}, {"kind": "INTEGER"}, {"name": "a b"}, {"stream": None}):
        with pytest.raises(ParameterError, match=f"^{next(iter(wrong))} = "):
            register(**{"connection": connection, "name": "third", **options, **wrong})
    with pytest.raises(ParameterError, match=r"^connection is a str"):
        register("file.db", "third", **options)
    assert ledger.spent("trips").epsilon == 0.6
