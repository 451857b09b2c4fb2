"""Pages that make promises: the tests they name exist, their links lead somewhere, and their Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from fastdp.cli import main
from tests.grid import exhaustive
from tests.shared import run_python

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")], key=str)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        # The gallery's pages are made when the site is built, whose own test follows their links.
        if "://" not in target and not target.startswith("gallery/"):
            assert (page.parent / target).exists(), target


def commands() -> dict[str, set[str]]:
    """Every command and its options."""
    found: dict[str, set[str]] = {}

    def visit(command: click.Command, name: str) -> None:
        own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        found[name] = own | {"--help", "-h"}
        if isinstance(command, click.Group):
            context = click.Context(command)
            for inner in command.list_commands(context):
                visit(command.get_command(context, inner), f"{name} {inner}")

    visit(main, "fastdp")
    return found


def test_commands_of_the_pages_have_the_options_that_they_are_given() -> None:
    known, seen = commands(), 0
    for page in [*PAGES, *ROOT.glob("docs/*/*.md")]:
        text = page.read_text().replace("\\\n", " ")
        for words, rest in re.findall(r"(?<![\w./-])(fastdp(?: [a-z]+(?![\w./-])){1,2})((?: [^\n`|#]*)?)", text):
            name = words if words in known else words.rpartition(" ")[0]
            if name in known and name != "fastdp":
                given = set(re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest))
                assert given <= known[name], f"{page}: {name} {given - known[name]}"
                seen += len(given)
    assert seen > 100


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
    blocks = [part.split("```")[0] for part in (ROOT / "docs" / "ledger.md").read_text().split("```python\n")[1:]]
    # The second one resumes what the first one's ledger holds.
    assert len(blocks) == 2
    done = run_python("-c", "".join(blocks))
    assert done.returncode == 0, done.stderr
    assert "has 0.0 of 1.0 epsilon left" in done.stdout


@pytest.mark.parametrize("name", ["adaptive", "intervals", "w_event"])
def test_the_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="release.plot needs fastdp-streams[plot]").use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in (
        part.split("```")[0] for part in (ROOT / "docs" / f"{name}.md").read_text().split("```python\n")[1:]
    ):
        exec(compile(block, name, "exec", dont_inherit=True), names)  # noqa: S102 - the page's own examples
    assert names


#: What makes an output follow the run, or the partition: the program on the page must notice.
MISTAKES = {
    "as printed": ("", "", 0),
    "no key": ("ids=ids, key=key,", "ids=ids,", 1),
    "ids of the partition": ("ids=ids, key=key,", "key=key,", 1),
    "default hold-out": ('    "holdout": 100,\n', "", 1),
    "default range": ('    "max_range": 1024,\n', "", 1),
}


@pytest.mark.parametrize("mistake", ["as printed", *exhaustive(*list(MISTAKES)[1:])])
def test_the_scale_out_example_runs_and_notices_mistakes(mistake: str, tmp_path: Path) -> None:
    (block,) = [
        part.split("```")[0] for part in (ROOT / "docs" / "scale_out.md").read_text().split("```python\n")[1:]
    ]
    right, wrong, count = MISTAKES[mistake]
    assert not right or block.count(right) == count
    # The promise is made of the same parameters, but needs all of them.
    promised = block.replace(
        "fastdp.StreamPublisher(**RELEASE)", 'fastdp.StreamPublisher(**{"max_range": 9, **RELEASE})'
    )
    script = tmp_path / "scale_out.py"
    script.write_text(promised.replace(right, wrong) if right else block)
    done = run_python(script, TMPDIR=str(tmp_path))
    if right:
        assert done.returncode == 1
        assert re.search("AssertionError: (a retry differs|the output follows the partition)", done.stderr), (
            done.stderr
        )
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout == "60 streams, spent: epsilon = 1.0\n"
