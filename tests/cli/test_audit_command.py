"""``fastdp audit``: the table, the page, the exit code."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

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
