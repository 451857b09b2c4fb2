"""Pages that make promises: the tests they name exist, their links lead somewhere, and their Python runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")], key=str)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_tests_that_proofs_lean_on_exist() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text()
    files = re.findall(r"tests/[\w/]+\.py|\btest_\w+\.py", text)
    names = set(re.findall(r"\btest_\w+\b(?!\.py)", text))
    assert len(files) > 10
    known = {path.name for path in ROOT.glob("tests/**/*.py")}
    assert {Path(file).name for file in files} <= known
    assert all((ROOT / file).exists() for file in files if "/" in file)
    defined = set(re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in ROOT.glob("tests/**/*.py")), re.M))
    assert names <= defined, names - defined


def test_the_ledgers_example_runs() -> None:
    (block,) = [part.split("```")[0] for part in (ROOT / "docs" / "ledger.md").read_text().split("```python\n")[1:]]
    done = subprocess.run(
        [sys.executable, "-c", block],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "spent are epsilon = 1.0" in done.stdout
