"""The documentation site: its pages' Python runs, its gallery draws, and its reference names every public name."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import warnings
from pathlib import Path
from types import ModuleType

import pytest

import fastdp
import fastdp_lab

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GUIDES = sorted([*DOCS.glob("tutorials/*.md"), *DOCS.glob("howto/*.md")])
#: Each takes a second and more of computing.
LONG = {"many_meters", "auditing", "choosing"}


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    """A folder of its own, pictures without a window, warnings as errors."""
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(ImportError):
        import matplotlib as mpl

        mpl.use("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def blocks(page: Path) -> list[str]:
    return [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.stem in LONG), id=page.stem)
        for page in GUIDES
        if blocks(page)
    ],
)
def test_a_guide_runs_from_top_to_bottom(page, quiet) -> None:
    for needed in ("narwhals", "pandas", "pyarrow", "matplotlib"):
        pytest.importorskip(needed, reason="the guides need fastdp-streams[tables,plot] and pandas")
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, str(page), "exec", dont_inherit=True), names)  # noqa: S102 - the page's own examples
    used = {str(getattr(each, "__name__", "")) for each in names.values()}
    assert any(name.partition(".")[0] == "fastdp" for name in used), "the page shows nothing of fastdp"


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", sorted((ROOT / "examples" / "gallery").glob("plot_*.py")), ids=lambda path: path.stem
)
def test_an_example_of_the_gallery_draws(script, quiet) -> None:
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


def test_links_of_the_guides_lead_to_files() -> None:
    pages = [page for page in DOCS.glob("*/**/*.md") if "_build" not in page.parts]
    assert len(pages) > 40
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            made = "gallery/" in target  # by the site's build, from examples/gallery
            if made and "images" in target:
                script = re.fullmatch(r".*/sphx_glr_(plot_\w+)_\d{3}\.png", target)
                assert script, f"{page}: {target}"
                assert (ROOT / "examples" / "gallery" / f"{script[1]}.py").exists(), f"{page}: {target}"
            elif "://" not in target and not made:
                assert (page.parent / target).exists(), f"{page}: {target}"


def listed() -> dict[str, list[str]]:
    """Module to the names that its page of the reference lists."""
    out: dict[str, list[str]] = {}
    for page in (DOCS / "reference" / "api").glob("*.md"):
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", page.read_text(), re.S):
            module = re.search(r"currentmodule:: (\S+)", block)
            assert module, page
            names = re.findall(r"^   ([A-Za-z]\S*)$", block, re.M) + re.findall(r"autodata:: (\S+)", block)
            out.setdefault(module[1], []).extend(names)
    return out


def test_the_reference_lists_every_public_name_once() -> None:
    documented = listed()
    found: list[int] = []
    for module, names in documented.items():
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
    for name, room in list(public.items()):
        if inspect.ismodule(room):
            public |= {f"{name}.{inner}": getattr(room, inner) for inner in getattr(room, "__all__", ())}
    missing = [
        name
        for name, value in public.items()
        if not inspect.ismodule(value) and (inspect.isclass(value) or callable(value)) and id(value) not in found
    ]
    aliases = {"fastdp.smoothers.SmootherState"}  # a type of NumPy's
    assert set(missing) <= aliases, missing
