"""``fastdp audit``: the table, the page, the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.audit.catalogue import negative_controls
from benchmarks.audit.couplings import CONTROLS
from fastdp.cli import main
from fastdp_lab.audit import lines


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments])


def test_a_shipped_mechanism_and_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    result = invoke("--mechanism", "count", "--trials", "5000", "--seed", "1", "-o", str(page))
    assert result.exit_code == 0, result.output
    assert "consistent" in result.output
    text = page.read_text()
    assert "| count | 1 | 0 | 0." in text
    assert "docs/audit.md" in text
    again = invoke("--mechanism", "count", "--trials", "500", "-o", str(page))
    assert again.exit_code == 1
    assert "exists already" in again.output
    assert page.read_text() == text


def test_unknown_mechanisms_are_listed() -> None:
    result = invoke("--mechanism", "nope")
    assert result.exit_code == 1
    assert "--mechanism 'nope': expected one of 'all', 'shipped', 'exact', 'count'" in result.output


def test_couplings() -> None:
    result = invoke("--couplings", "--only", "flat", "--seed", "1")
    assert result.exit_code == 0, result.output
    header, line = result.output.splitlines()
    assert " ".join(header.split()) == "mechanism instances outputs compared largest cost / claim failures verdict"
    assert line.split()[0] == "flat"
    assert line.split()[-2:] == ["0", "coupled"]


def test_a_refuted_claim_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "COUPLINGS", {"control-recounted": CONTROLS["control-recounted"]})
    result = invoke("--couplings", "--seed", "1")
    assert result.exit_code == 1
    assert "claims refuted: control-recounted (NOT COUPLED (" in result.output
    monkeypatch.setattr(
        lines, "audit_cases", lambda: [c for c in negative_controls() if c.name == "control-half-count"]
    )
    result = invoke("--mechanism", "control-half-count", "--trials", "5000", "--seed", "1")
    assert result.exit_code == 1
    assert "claims refuted: control-half-count (CLAIM VIOLATED)" in result.output


def test_options_that_do_not_go_together() -> None:
    assert "--couplings goes with --only and --seed alone" in invoke("--couplings", "--trials", "200").output
    assert "--only names a case of --couplings" in invoke("--only", "flat").output
    assert (
        "--only 'nope': expected one of 'all', 'couplings', 'adaptive'"
        in invoke("--couplings", "--only", "nope").output
    )
