"""The examples of docs/interop.md and docs/many_streams.md run as printed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.shared import run_python

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    return [part.split("```")[0] for part in (ROOT / "docs" / page).read_text().split("```python\n")[1:]]


INTEROP = blocks("interop.md")


def test_the_page_has_an_example_for_each_tool() -> None:
    assert [tool for tool in ("opendp", "duckdb", "polars") if any(f"import {tool}" in each for each in INTEROP)] == [
        *("opendp", "duckdb", "polars")
    ]


def test_the_examples_run() -> None:
    examples = blocks("many_streams.md") + INTEROP
    missing = [tool for tool in ("opendp", "duckdb", "polars", "pandas") if find_spec(tool) is None]
    runnable = [each for each in examples if not any(f"import {tool}" in each for tool in missing)]
    done = run_python("-W", "error", "-c", "\n".join(runnable))
    assert done.returncode == 0, done.stderr
