"""docs/tables.md: its Python runs, and its tables are those of the results."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from benchmarks.accuracy import tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tables.md").read_text()


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    for needed in ("narwhals", "pandas", "pyarrow"):
        pytest.importorskip(needed, reason="needs fastdp-streams[tables] and pandas")
    monkeypatch.chdir(tmp_path)
    blocks = [part.split("```")[0] for part in PAGE.split("```python\n")[1:]]
    assert len(blocks) == 5
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            exec(compile(block, "docs/tables.md", "exec"), names)  # noqa: S102 - the page's own examples
    assert (tmp_path / "private.parquet").exists()
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_the_tables_are_those_of_the_results():
    assert tables.filled(PAGE, tables.pages(json.loads(tables.RESULTS.read_text()))) == PAGE


def test_the_results_reach_the_targets():
    """As the page and the design state them; the benchmark makes the results."""
    results = json.loads(tables.RESULTS.read_text())
    assert max(row["ratio"] for row in results["revised"]) <= 1.05
    assert max(row["ratio"] for row in results["revised"] if row["noise"] > row["spread"]) <= 0.5
    assert min(row["covered"] for row in results["revised"]) >= 0.94
    one = next(row for row in results["reference"] if row["epsilon"] == 1.0 and not row["chosen"])
    assert abs(one["estimate"] / one["textbook"] - 1.0) <= 0.03
    assert one["revised"] <= 6.7
