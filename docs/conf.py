"""The documentation site: ``python -m sphinx -W -b html docs docs/_build/html`` from the repository's root."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "lab")]
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), str(ROOT / "kernels"), str(ROOT / "lab"), os.environ.get("PYTHONPATH", "")]
)

from docutils import nodes  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.util import logging  # noqa: E402
from sphinx.writers.html5 import HTML5Translator  # noqa: E402

import fastdp  # noqa: E402

_project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: The public address, once there is one.
_source = _project.get("urls", {}).get("Source")

project = "fastdp"
author = _project["authors"][0]["name"]
project_copyright = author
version = release = fastdp.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = [
    "_build",
    "sg_execution_times.rst",
    "**/sg_execution_times.rst",
    "**/*.ipynb",
    "gallery/*.py",
    "**/*.codeobj.json",
]
templates_path = ["_templates"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = False
html_math_renderer = "mathml"  # read by browsers themselves: no script, no fonts from the network
bibtex_bibfiles = ["reference/references.bib"]
bibtex_default_style = "plain"

autosummary_generate = True
# Pages whose names differ in case alone would be one file on some disks.
autosummary_filename_map = {f"fastdp.{name}": f"fastdp.{name}-function" for name in ("release", "plan")}
autodoc_typehints = "none"  # numpydoc's sections say the types in words
autodoc_default_options = {"members": True, "inherited-members": True, "show-inheritance": True}
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_context = {"default_mode": "auto"}
html_theme = "pydata_sphinx_theme"
html_title = f"fastdp {version}"
html_static_path = ["_static"]
html_css_files = ["fastdp.css"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")  # read from the current folder
#: Words that a page is to be found by, beside its own.
_subjects = json.loads(re.search(r"SUBJECTS = ({.*?})", Path(html_search_scorer).read_text(), re.DOTALL)[1])
html_show_sourcelink = False
html_theme_options = {
    "icon_links": [{"name": "Source", "url": _source, "icon": "fa-solid fa-code"}] if _source else [],
    "navbar_align": "left",
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "first_notebook_cell": "# Needs fastdp-streams[tables,plot] and pandas: docs/install.md",
    "capture_repr": (),
    "abort_on_example_error": True,
    "default_thumb_file": str(DOCS / "hourly.png"),
}


def link_to_repository(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links that leave docs/ lead to the repository's page, or name the file: it is not part of the site."""
    folder = (DOCS / docname).parent

    def absolute(link: re.Match[str]) -> str:
        text, path, fragment = link.groups()
        target = (folder / path).resolve()
        if target.is_relative_to(DOCS) or not target.exists():
            return link[0]
        name = target.relative_to(ROOT)
        return f"[{text}]({_source}/blob/main/{name}{fragment})" if _source else f"{text} (`{name}`)"

    source[0] = re.sub(r"\[([^\]]*)\]\((\.\./[^)#\s]+)([^)\s]*)\)", absolute, source[0])


def as_mathml(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """A formula as MathML; one that the converter does not know is a warning, which ends the build."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    drawn = convert(node.astext(), display=display)
    if "\\" in drawn:
        logging.getLogger(__name__).warning("a formula has an unknown command: %s", node.astext(), location=node)
    self.body.append(drawn)
    raise nodes.SkipNode


def add_subjects(app: Sphinx, docname: str, source: list[str]) -> None:
    """Words of the scorer as keywords of a page, which the search's index includes."""
    if docname in _subjects:
        words = ", ".join(_subjects[docname].split())
        source[0] = f"---\nmyst:\n  html_meta:\n    keywords: {words}\n---\n{source[0]}"


def publish_history(app: Sphinx, exception: Exception | None) -> None:
    """The pages of asv's history, in ``speed-history/``, where asv and the repository are at hand."""
    if exception is not None or app.builder.name != "html":
        return
    said = "asv is not installed"
    if importlib.util.find_spec("asv") is not None:
        publish = [sys.executable, "-m", "asv", "publish", "--no-pull", "--html-dir"]
        folder = str(app.outdir / "speed-history")
        run = subprocess.run([*publish, folder], cwd=ROOT, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return
        said = run.stdout.strip().rpartition("\n")[2]
    logging.getLogger(__name__).info("speed-history is not part of this site: %s", said)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", link_to_repository)
    app.connect("source-read", add_subjects)
    app.add_html_math_renderer("mathml", (as_mathml, None), (as_mathml, None))
    app.connect("build-finished", publish_history)
