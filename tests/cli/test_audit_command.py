"""``fastdp audit``: the table, the page, the exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fastdp.auditing import coupling_page
from fastdp.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments])


def test_a_shipped_mechanism_and_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    result = invoke("--mechanism", "count", "--trials", "5000", "--seed", "1", "-o", str(page))
    assert result.exit_code == 0, result.output
    assert "consistent" in result.output
    text = page.read_text()
    assert "`fastdp audit --mechanism count --trials 5000 --seed 1 -o page.md`" in text
    assert "| count | 1 | 0 | 0." in text
    assert "audit your own code" in text
    assert str(tmp_path) not in text
    again = invoke("--mechanism", "count", "--trials", "500", "-o", str(page))
    assert again.exit_code == 1
    assert "exists already" in again.output
    assert page.read_text() == text


def test_a_broken_twin_is_caught_or_it_is_an_error() -> None:
    caught = invoke("--mechanism", "broken-half-count", "--seed", "1")
    assert caught.exit_code == 0, caught.output
    assert "caught" in caught.output
    missed = invoke("--mechanism", "broken-papers-score", "--trials", "200", "--seed", "1")
    assert missed.exit_code == 1
    assert "not as it should be: broken-papers-score (not caught)" in missed.output


def test_exact_losses() -> None:
    result = invoke("--mechanism", "exact-noisy-max-laplace")
    assert result.exit_code == 0, result.output
    assert "exact" in result.output


def test_unknown_mechanisms_are_listed() -> None:
    result = invoke("--mechanism", "nope")
    assert result.exit_code == 1
    assert "mechanism = 'nope': expected one of all, shipped, broken, exact, or count" in result.output


def test_couplings() -> None:
    result = invoke("--couplings", "--only", "flat", "--seed", "1")
    assert result.exit_code == 0, result.output
    header, line = result.output.splitlines()
    assert " ".join(header.split()) == "case instances outputs compared largest cost / epsilon failures verdict"
    assert line.split()[0] == "flat"
    assert line.split()[-2:] == ["0", "coupled"]
    caught = invoke("--couplings", "--only", "broken-recounted", "--seed", "1")
    assert caught.exit_code == 0, caught.output
    assert caught.output.endswith("caught\n")


def test_a_case_that_is_not_as_it_should_be_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = next(case for case in coupling_page.coupling_cases() if case.name == "broken-recounted")
    monkeypatch.setattr(coupling_page, "coupling_cases", lambda: [replace(broken, broken=False)])
    result = invoke("--couplings", "--seed", "1")
    assert result.exit_code == 1
    assert "not as it should be: broken-recounted (not coupled)" in result.output


def test_options_that_do_not_go_together() -> None:
    assert "--couplings goes with --only and --seed alone" in invoke("--couplings", "--trials", "200").output
    assert "--only names a case of --couplings" in invoke("--only", "flat").output
    assert "only = 'nope': expected one of choices" in invoke("--couplings", "--only", "nope").output
