"""Expressions of polars and SQL functions of DuckDB: fresh noise, one release, charged when made; missing tools."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.data import source
from fastdp.errors import BudgetError, DataError, ParameterError
from fastdp.interop.duckdb import register
from fastdp.interop.polars import add_noise
from tests import stat
from tests.noise_values import bound_key
from tests.oracles import distributions
from tests.shared import run_python

pl = pytest.importorskip("polars", reason="polars is not installed")
#: Polars raises what the expression raises, or wraps it.
REFUSED = (BudgetError, ParameterError, DataError, pl.exceptions.ComputeError)
FRAME = pl.DataFrame({"station": [1, 1, 2, 3], "trips": pl.Series([4, 5, 6, 7], dtype=pl.Int32), "km": [0.5] * 4})


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("engine", ["auto", "streaming"])
def test_an_aggregated_column(lazy: bool, engine: Any) -> None:
    grouped = (FRAME.lazy() if lazy else FRAME).group_by("station", maintain_order=True)
    private = add_noise(pl.col("trips").cast(pl.Int32), 1, 1e-12).alias("private")
    out = grouped.agg(pl.col("trips").sum()).with_columns(private)
    out = out.collect(engine=engine) if lazy else out
    assert out.schema["private"] == pl.Int64
    noise = (out["private"] - out["trips"]).to_numpy()
    assert noise.size == 3
    assert np.unique(noise).size == 3


def test_floats_are_add_noises_and_the_filter_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastdp.interop.polars.Key.choose", lambda *_: bound_key(3))
    private = add_noise("km", 2, 0.5, kind="Float64", resolution=0.25)
    out = FRAME.lazy().with_columns(private).filter(pl.col("station") == 3).collect()["km"].to_list()
    from fastdp.streams.add_noise import VectorNoise

    whole = VectorNoise(2.0, 0.5, 4, False, 0.25).noisy(FRAME["km"].to_numpy(), bound_key(3))
    assert out == whole[3:].tolist()


def test_one_expression_is_one_release() -> None:
    private = add_noise("trips", 1, 1.0)
    lazy = FRAME.lazy().with_columns(private)
    lazy.explain()
    assert lazy.collect_schema()["trips"] == pl.Int64
    lazy.collect()
    for again in (lazy.collect, lambda: FRAME.with_columns(private)):
        with pytest.raises(REFUSED, match="the expression has been evaluated: expected one release"):
            again()
    with pytest.raises(REFUSED, match="has been evaluated"):
        FRAME.group_by("station").agg(add_noise("trips", 1, 1.0))


def test_gaps_and_kinds() -> None:
    gaps = pl.DataFrame({"n": [1, None]})
    with pytest.raises(REFUSED, match="expected integers without gaps"):
        gaps.with_columns(add_noise("n", 1, 1.0))
    with pytest.raises(REFUSED, match="expected integers without gaps"):
        FRAME.with_columns(add_noise("km", 1, 1.0))
    with pytest.raises(REFUSED, match="not a finite number"):
        gaps.with_columns(add_noise("n", 1, 1.0, kind="Float64"))


def test_it_is_charged_when_it_is_made(tmp_path: Path) -> None:
    ledger = fastdp.Ledger(tmp_path / "budget", limit_epsilon=1.0)
    add_noise("trips", 1, 0.6, ledger=ledger, stream="trips")
    assert ledger.spent("trips").epsilon == 0.6
    with pytest.raises(BudgetError):
        add_noise("trips", 1, 0.6, ledger=ledger, stream="trips")
    for wrong in ({"epsilon": 0}, {"sensitivity": -1}, {"kind": "Int32"}, {"resolution": 1.0}, {"stream": None}):
        given = {"column": "trips", "sensitivity": 1, "epsilon": 0.1, "stream": "trips", **wrong}
        with pytest.raises(ParameterError, match=f"^{next(iter(wrong))} = "):
            add_noise(**given, ledger=ledger)
    with pytest.raises(ParameterError, match=r"^column is a int"):
        add_noise(5, 1, 1.0)
    assert ledger.spent("trips").epsilon == 0.6


# DuckDB.

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")


@pytest.fixture
def connection() -> Iterator[Any]:
    with duckdb.connect() as made:
        made.sql("SET threads = 2")
        yield made


def drawn(connection: Any, query: str) -> np.ndarray:
    return np.array([row[-1] for row in connection.sql(query).fetchall()])


def test_counts_of_groups(connection: Any) -> None:
    guarantee = register(connection, "private", sensitivity=1, epsilon=0.5, rows=5000)
    assert (guarantee.epsilon, guarantee.arithmetic, guarantee.simulated) == (0.5, "exact", False)
    query = "SELECT k, private(count(*)) FROM (SELECT i % 5000 AS k FROM range(100000) t(i)) GROUP BY k ORDER BY k"
    noise = drawn(connection, query) - 20
    assert noise.size == 5000
    assert 1.0 < noise.std() < 4.0
    # All rows are used up; the same query again would be a second release.
    with pytest.raises(duckdb.Error, match=r"private was given more than rows = 5000 values: expected one release"):
        connection.sql(query).fetchall()


def test_it_is_volatile_and_has_the_law(connection: Any) -> None:
    size = 200_000
    register(connection, "private", sensitivity=2, epsilon=0.5, rows=size)
    # A constant: every row has noise of its own.
    noise = drawn(connection, f"SELECT private(41) FROM range({size})") - 41  # noqa: S608
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
    noise = drawn(connection, f"SELECT p(0.0::DOUBLE) FROM range({size})")  # noqa: S608
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


# Without a tool the message names what to install.


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("opendp", r"pip install 'fastdp-streams\[opendp\]'"),
        ("polars", "pip install polars"),
        ("pyarrow", r"pip install 'fastdp-streams\[(tables|parquet)\]'"),
    ],
)
def test_a_missing_tool_is_named(missing: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    import fastdp
    from fastdp.interop import duckdb, opendp, polars

    frame = pd.DataFrame({"id": ["a"] * 9, "v": [1.0] * 9})
    for name in (missing, *(name for name in sys.modules if name.startswith(f"{missing}."))):
        monkeypatch.setitem(sys.modules, name, None)
    # No attribute of it is known yet.
    monkeypatch.setattr(source, "narwhals", source._Module("narwhals.stable.v2"))
    calls = {
        "opendp": [lambda: opendp.make_discrete_laplace(None, None, 1.0, 1.0)],
        "polars": [lambda: polars.add_noise("n", 1.0, 1.0)],
        "pyarrow": [
            lambda: duckdb.register(None, "n", sensitivity=1.0, epsilon=1.0, rows=1),
            lambda: fastdp.release_many(frame, 1.0, 5.0, value="v", by="id", threshold=1.0),
        ],
    }[missing]
    for call in calls:
        with pytest.raises((ParameterError, DataError), match=told):
            call()


# The examples of pages run as printed.


def test_the_examples_of_pages_run() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    examples = []
    for page in ("many_streams.md", "interop.md"):
        examples += [part.split("```")[0] for part in (docs / page).read_text().split("```python\n")[1:]]
    for tool in ("opendp", "duckdb", "polars"):
        assert any(f"import {tool}" in each for each in examples)
    missing = [tool for tool in ("opendp", "duckdb", "polars", "pandas") if find_spec(tool) is None]
    runnable = [each for each in examples if not any(f"import {tool}" in each for tool in missing)]
    done = run_python("-W", "error", "-c", "\n".join(runnable))
    assert done.returncode == 0, done.stderr
