"""The polars expression: one release of one column, charged when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import BudgetError, DataError, ParameterError
from fastdp.interop.polars import add_noise
from tests.noise_values import bound_key

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
