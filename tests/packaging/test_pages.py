"""Pages and docstrings that make promises: links lead somewhere, Python runs, options, tests and names exist."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import fastdp
import fastdp_lab
from benchmarks.accuracy import tables
from fastdp.cli import main
from tests.grid import exhaustive
from tests.shared import run_python

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)])
GUIDES = sorted([*DOCS.glob("tutorials/*.md"), *DOCS.glob("howto/*.md")])
#: Each takes a second and more of computing.
LONG = {"many_meters", "auditing"}
PROOFS = ("privacy", "noise", "streams_proofs", "tables_proofs", "points", "local")
#: Pages beside the guides whose Python runs from top to bottom, and what they print.
RUNS = {
    "../README": "Totals of 240 windows",
    "interop": "epsilon = 0.5 for one contribution to the values",
    "ledger": "has 0.0 of 1.0 epsilon left",
    "many_streams": "",
    "state": "",
    "streams": "",
    "tables": "",
}


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(ImportError):
        import matplotlib as mpl

        mpl.use("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Of the few rows of a page.
        warnings.filterwarnings("ignore", ".*is as large as the number")
        yield


def blocks(page: Path) -> list[str]:
    return [code for code, _ in printing(page)]


def printing(page: Path) -> list[tuple[str, str | None]]:
    """Blocks of Python, each with the text block below it, which shows what it prints."""
    found = re.findall(r"^ *```(\w+)\n(.*?)^ *```", page.read_text(), re.M | re.S)
    below = [*found, ("", "")][1:]
    return [
        (code, text if kind == "text" else None)
        for (name, code), (kind, text) in zip(found, below, strict=True)
        if name == "python"
    ]


def test_links_lead_to_files() -> None:
    assert len(PAGES) > 40
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            made = "gallery/" in target  # by the site's build, from examples/gallery
            if made and "images" in target:
                script = re.fullmatch(r".*/sphx_glr_(plot_\w+)_\d{3}\.png", target)
                assert script, f"{page}: {target}"
                assert (ROOT / "examples" / "gallery" / f"{script[1]}.py").exists(), f"{page}: {target}"
            elif "://" not in target and not made:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    names = re.findall(r"`([\w./*-]+(?:/|\.py|\.toml|\.md))`", text)
    assert len(names) > 60
    packages = [ROOT / "fastdp", ROOT / "kernels" / "fastdp_kernels", ROOT / "lab" / "fastdp_lab", ROOT / "tests"]
    for name in names:
        # Names without a folder stand beside one that has it.
        roots = [ROOT, *packages] if "/" in name else []
        found = [path for root in roots for path in root.glob(name.rstrip("/"))]
        found += [] if "/" in name else [path for root in packages for path in root.rglob(name)]
        assert found or (ROOT / name).exists(), name


def test_code_is_at_most_75_columns_wide() -> None:
    """So many fit beside both sidebars of the site, where printed lines wrap. README's test command is one line."""
    lines = []
    for page in PAGES:
        codes = re.findall(r"^```(?:python|py|sh|toml|dockerfile)\n(.*?)^```", page.read_text(), re.M | re.S)
        lines += [f"{page}: {line}" for code in codes for line in code.split("\n") if len(line) > 75]
    for name in packages():
        source = inspect.getsource(importlib.import_module(name))
        shown = re.findall(r"^ *((?:>>>|\.\.\.) .*)", source, re.M)
        lines += [f"{name}: {line}" for line in shown if len(line) > 75]
    assert [line for line in lines if "--build-constraint" not in line] == []


def shows(text: str, printed: str) -> bool:
    """True if a page's text is what was printed, numbers, ranges of them and widths of columns aside.

    A line of three dots stands for any lines.
    """
    parts = re.split(r"^ *\.\.\.$", text, flags=re.M)
    expected = ".*".join(re.escape(without_numbers(part)) for part in parts)
    return re.fullmatch(expected, without_numbers(printed)) is not None


def without_numbers(text: str) -> str:
    words = " ".join(re.sub(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", "0", text).split())
    return words.replace("median 0, from 0 to 0", "0")


def run_page(page: Path) -> tuple[dict[str, object], str]:
    """Names that the page's Python leaves, and what it prints, which is what the page shows, numbers aside."""
    for needed in ("narwhals", "pandas", "pyarrow", "matplotlib"):
        pytest.importorskip(needed, reason="the guides need fastdp-streams[tables,plot] and pandas")
    names: dict[str, object] = {"__name__": page.stem}
    whole = ""
    for block, shown in printing(page):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, str(page), "exec", dont_inherit=True), names)  # noqa: S102 - the page's own examples
        whole += printed.getvalue()
        # Under keys of the system words may differ, such as "an unknown share".
        fresh = os.environ.get("FASTDP_FRESH_SEEDS") == "1"
        assert shown is None or fresh or shows(shown, printed.getvalue()), printed.getvalue()
    return names, whole


def test_every_printed_text_is_below_python_that_runs() -> None:
    run = {*GUIDES, *(DOCS / f"{name}.md" for name in RUNS)}
    run = {page.resolve() for page in run}
    texts = {page: page.read_text().count("```text\n") for page in PAGES}
    compared = {page: sum(shown is not None for _, shown in printing(page)) for page in PAGES if page in run}
    assert sum(compared.values()) > 25
    assert {page: count for page, count in texts.items() if count} == {page: n for page, n in compared.items() if n}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.stem in LONG), id=page.stem)
        for page in GUIDES
        if blocks(page)
    ],
)
@pytest.mark.usefixtures("quiet")
def test_a_guide_runs_from_top_to_bottom(page: Path) -> None:
    used = {str(getattr(each, "__name__", "")) for each in run_page(page)[0].values()}
    assert any(name.partition(".")[0] == "fastdp" for name in used), "the page shows nothing of fastdp"


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("quiet")
def test_the_python_of_a_page_runs(name: str) -> None:
    for needed in ("duckdb", "opendp") if name == "interop" else ():
        pytest.importorskip(needed, reason="the page's examples need it")
    names, printed = run_page(DOCS / f"{name}.md")
    assert len(names) > 1
    assert RUNS[name] in printed


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted((ROOT / "examples" / "gallery").glob("plot_*.py")), ids=lambda p: p.stem)
@pytest.mark.usefixtures("quiet")
def test_an_example_of_the_gallery_draws(script: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the gallery needs fastdp-streams[plot]")
    pytest.importorskip("pandas", reason="the gallery needs pandas")
    names: dict[str, object] = {"__name__": "__main__"}
    drawn = 0
    # As on the site and in a notebook, a figure is shown where its cell ends: a later cell cannot draw into it.
    for cell in script.read_text().split("\n# %%\n"):
        pyplot.close("all")
        exec(compile(cell, str(script), "exec", dont_inherit=True), names)  # noqa: S102 - the gallery's own scripts
        for figure in map(pyplot.figure, pyplot.get_fignums()):
            figure.canvas.draw()
            assert all(axes.has_data() for axes in figure.axes), "an empty panel"
            drawn += 1
    assert drawn
    pyplot.close("all")


def commands() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def collect(command: click.Command, name: str) -> None:
        own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        found[name] = own | {"--help", "-h"}
        if isinstance(command, click.Group):
            context = click.Context(command)
            for inner in command.list_commands(context):
                collect(command.get_command(context, inner), f"{name} {inner}")

    collect(main, "fastdp")
    return found


def test_commands_of_the_pages_have_the_options_that_they_are_given() -> None:
    known, seen = commands(), 0
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for words, rest in re.findall(r"(?<![\w./-])(fastdp(?: [a-z]+(?![\w./-])){1,2})((?: [^\n`|#]*)?)", text):
            name = words if words in known else words.rpartition(" ")[0]
            if name in known and name != "fastdp":
                given = set(re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest))
                assert given <= known[name], f"{page}: {name} {given - known[name]}"
                seen += len(given)
    assert seen > 40


def test_the_tests_that_proofs_lean_on_exist() -> None:
    text = "".join((DOCS / f"{name}.md").read_text() for name in PROOFS)
    files = re.findall(r"tests/[\w/]+\.py|\btest_\w+\.py", text)
    names = set(re.findall(r"\btest_\w+\b(?!\.py)", text))
    assert len(files) > 40
    known = {path.name for path in ROOT.glob("tests/**/*.py")}
    assert {Path(file).name for file in files} <= known
    assert all((ROOT / file).exists() for file in files if "/" in file)
    defined = set(re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in ROOT.glob("tests/**/*.py")), re.M))
    assert names <= defined, names - defined


#: What makes an output follow the run, or the partition: the example must notice.
MISTAKES = {
    "as printed": ("", "", 0),
    "no key": ("**RELEASE, key=key)", "**RELEASE)", 1),
    "ids of the partition": (", ids=ids)\n", ")\n", 1),
}


@pytest.mark.parametrize("mistake", ["as printed", *exhaustive(*list(MISTAKES)[1:])])
def test_the_example_of_many_tasks_runs_and_notices_mistakes(mistake: str, tmp_path: Path) -> None:
    block = (ROOT / "examples" / "many_tasks.py").read_text()
    right, wrong, count = MISTAKES[mistake]
    assert not right or block.count(right) == count
    script = tmp_path / "many_tasks.py"
    script.write_text(block.replace(right, wrong) if right else block)
    done = run_python(script, TMPDIR=str(tmp_path))
    if right:
        assert done.returncode == 1
        assert re.search("^(a retry differs|the output follows the partition)$", done.stderr, re.M)
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout == "60 streams, spent: epsilon = 1.0\n"


def listed() -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for page in (DOCS / "reference" / "api").glob("*.md"):
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", page.read_text(), re.S):
            module = re.search(r"currentmodule:: (\S+)", block)
            assert module, page
            names = re.findall(r"^   ([A-Za-z]\S*)$", block, re.M) + re.findall(r"autodata:: (\S+)", block)
            out.setdefault(module[1], []).extend(names)
    return out


def test_the_reference_lists_every_public_name_once() -> None:
    found: list[int] = []
    for module, names in listed().items():
        for name in names:
            value = importlib.import_module(module)
            for part in name.split("."):
                if isinstance(value, ModuleType) and not hasattr(value, part):
                    value = importlib.import_module(f"{value.__name__}.{part}")
                else:
                    value = getattr(value, part)
            found.append(id(value))
    assert len(found) == len(set(found)), "listed twice"
    packages = (fastdp, fastdp_lab)
    public = {f"{p.__name__}.{n}": getattr(p, n) for p in packages for n in p.__all__ if n != "__version__"}
    for name, module in list(public.items()):
        if inspect.ismodule(module):
            public |= {f"{name}.{inner}": getattr(module, inner) for inner in getattr(module, "__all__", ())}
    missing = {n for n, v in public.items() if not inspect.ismodule(v) and callable(v) and id(v) not in found}
    assert missing <= {"fastdp.smoothers.SmootherState"}, missing  # a type of NumPy's


def test_results_of_tables_reach_the_targets() -> None:
    results = json.loads(tables.RESULTS.read_text())
    assert min(row["covered"] for row in results["sums"]) >= 0.9
    assert min(min(row["covered"], row["all covered"]) for row in results["persons"]) >= 0.9


# Docstrings: a public class's method has one, or one of a base or of another class of its folder.

NEEDS = {"pipeline_dp": "pipeline_dp", "pd": "pandas", "dp": "opendp", "pl": "polars", "shapely": "shapely"}


def test_every_name_at_the_top_level_has_an_example() -> None:
    named = {name: getattr(fastdp, name) for name in fastdp.__all__}
    lacking = [
        name
        for name, value in named.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and ">>>" not in (value.__doc__ or "")
    ]
    assert not lacking, lacking


def methods(kind: type) -> list[str]:
    kinds = (classmethod, staticmethod, property)
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    ]


def packages() -> list[str]:
    found = (m.name for m in pkgutil.walk_packages(fastdp.__path__, "fastdp.") if "__main__" not in m.name)
    return ["fastdp", *found]


def test_every_public_method_is_documented() -> None:
    owners: dict[str, list[type]] = {}
    public = set()
    for name in packages():
        module = importlib.import_module(name)
        public |= {getattr(module, each) for each in getattr(module, "__all__", ()) if name != "fastdp.cli"}
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == name:
                owners.setdefault(name.rpartition(".")[0], []).append(kind)
    seen = 0
    for folder, kinds in owners.items():
        documented = {name for kind in kinds for name in methods(kind) if inspect.getdoc(vars(kind)[name])}
        for kind in public.intersection(kinds):
            lacking = [n for n in methods(kind) if n not in documented and not inspect.getdoc(getattr(kind, n))]
            assert not lacking, f"{folder}.{kind.__name__}: {lacking}"
            seen += 1
    assert seen > 40


def test_no_docstring_begins_with_a_relative_clause() -> None:
    found = []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for folder in ("fastdp", "kernels", "lab", "tests", "benchmarks", "examples"):
        for path in (Path(__file__).parents[2] / folder).rglob("*.py"):
            nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))
            texts = (ast.get_docstring(node) or "" for node in nodes)
            found += [f"{path}: {text}" for text in texts if re.match(r"(What|Where|Which|Whether)\b", text)]
    assert not found, found


def modules() -> list[str]:
    return sorted(name for name in packages() if ">>>" in inspect.getsource(importlib.import_module(name)))


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str, tmp_path, monkeypatch) -> None:
    source = inspect.getsource(module := importlib.import_module(name))
    for alias, package in NEEDS.items():
        if f">>> import {package}" in source or f"as {alias}" in source:
            pytest.importorskip(package, reason=f"the example needs {package}")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
