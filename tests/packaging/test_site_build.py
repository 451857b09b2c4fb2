"""The site builds without a warning, its links lead somewhere, its search finds a word's page, its notebooks run."""

from __future__ import annotations

import html.parser
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


class Page(html.parser.HTMLParser):
    """The places of a page that can be linked to, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        self.targets += [found[name] for name in ("href", "src") if found.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for needed in ("sphinx_gallery", "pydata_sphinx_theme", "numpydoc", "myst_parser", "sphinxcontrib.bibtex"):
        pytest.importorskip(needed, reason="needs the dependency group docs")
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", built / "doctrees", "docs", built],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "FASTDP_DEBUG"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built


def own_pages(site: Path) -> list[Path]:
    """All but those of asv's history, which are asv's: they load its scripts, and link to views that those make."""
    return [path for path in site.rglob("*.html") if "speed-history" not in path.parts]


def test_no_internal_link_is_broken(site: Path) -> None:
    pages = {path.resolve(): Page(path.read_text()) for path in own_pages(site) if "_static" not in path.parts}
    assert len(pages) > 200
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            if not file.exists() or (fragment and file in pages and fragment not in pages[file].anchors):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert not broken, broken


def test_a_page_loads_nothing_from_the_network(site: Path) -> None:
    for path in own_pages(site):
        text = path.read_text()
        assert 'src="http' not in text, path
        assert '<link rel="stylesheet" href="http' not in text, path


def test_search_finds_words_of_a_page_and_those_of_the_scorer(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    found = json.loads(index[index.index("{") : index.rindex("}") + 1])
    for word, page in (("checkpoint", "tutorials/service"), ("gdpr", "reference/reviewer"), ("offlin", "install")):
        pages = found["terms"][word]
        assert page in [found["docnames"][number] for number in (pages if isinstance(pages, list) else [pages])]
    scorer = (ROOT / "docs" / "_static" / "scorer.js").read_text()
    assert set(re.findall(r'^  "([\w/]+)": "', scorer, re.M)) <= set(found["docnames"])


def test_the_notebooks_that_the_tutorials_name_run(site: Path, tmp_path: Path, monkeypatch) -> None:
    """Their cells run in order, in this process: no Jupyter kernel, which needs ports, takes part."""
    import matplotlib as mpl
    from matplotlib import pyplot

    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    page = site / "tutorials" / "index.html"
    named = [target for target in Page(page.read_text()).targets if target.endswith(".ipynb")]
    assert len(named) == 3
    for target in named:
        pyplot.close("all")
        cells = json.loads((page.parent / target).read_text())["cells"]
        names: dict[str, object] = {"__name__": "__main__"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for cell in cells:
                if cell["cell_type"] == "code":
                    exec(compile("".join(cell["source"]), target, "exec", dont_inherit=True), names)  # noqa: S102
        assert pyplot.get_fignums(), f"{target} draws nothing"
    pyplot.close("all")
