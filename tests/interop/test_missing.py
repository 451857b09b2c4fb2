"""Without a tool the message names what to install."""

from __future__ import annotations

import sys

import pytest

from fastdp.data import source
from fastdp.errors import DataError, ParameterError


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
