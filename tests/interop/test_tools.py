"""Missing tools are named, and the examples of pages run."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from tests.shared import run_python

# Without a tool the message names what to install.


@pytest.mark.usefixtures("unknown_narwhals")
@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("opendp", r"pip install 'fastdp-streams\[opendp\]'"),
        ("pyarrow", r"pip install 'fastdp-streams\[(tables|parquet)\]'"),
    ],
)
def test_a_missing_tool_is_named(missing: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    from fastdp.interop import opendp

    frame = pd.DataFrame({"id": ["a"] * 9, "v": [1.0] * 9})
    for name in (missing, *(name for name in sys.modules if name.startswith(f"{missing}."))):
        monkeypatch.setitem(sys.modules, name, None)
    calls = {
        "opendp": lambda: opendp.make_discrete_laplace(None, None, 1.0, 1.0),
        "pyarrow": lambda: fastdp.release_many(frame, 1.0, 5.0, value="v", by="id", threshold=1.0),
    }
    with pytest.raises((ParameterError, DataError), match=told):
        calls[missing]()


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
