"""Wheel and sdist hold the packages alone, metadata are for users; what imports what; planted mistakes fit."""

from __future__ import annotations

import ast
import importlib
import os
import platform
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fastdp
from benchmarks.mutation.matching import plant
from benchmarks.mutation.table import TABLES, mutations
from fastdp_kernels._caching import LEVELS, processor_has
from tests.shared import run_python

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: What only developers need.
TOOLS = {
    "pytest",
    "pytest-benchmark",
    "hypothesis",
    "ruff",
    "mypy",
    "import-linter",
    "sphinx",
    "asv",
    "build",
    "twine",
}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", each)[0] for each in requirements}


def test_all_that_is_installed_is_pinned() -> None:
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = [each for name, each in project["optional-dependencies"].items() if name != "flink"]
    lists = [project["dependencies"], *extras, PROJECT["build-system"]["requires"]]
    lists += [[each for each in group if isinstance(each, str)] for name, group in groups.items() if name != "fuzz"]
    plain = [each for listed in lists for each in listed if "sys_platform == 'win32'" not in each]
    assert names(plain) - pinned == {"fastdp-streams"}
    command = re.search(r"<!-- test command -->\n```sh\n(.*)\n```", (ROOT / "README.md").read_text())
    assert command
    assert command[1].count("-c constraints.txt") == command[1].count("pip install") == 2


def test_extras_are_for_users() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert not {name for each in extras.values() for name in names(each)} & TOOLS
    assert not {"test", "lint", "docs", "dev"} & set(extras)
    assert TOOLS - {"asv"} <= {
        name for group in ("test", "lint", "docs", "package") for name in names(PROJECT["dependency-groups"][group])
    }


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {fastdp.__version__}\n" in text
    named = re.findall(r"^repository-code: (\S+)$", text, re.M)
    source = PROJECT["project"].get("urls", {}).get("Source")
    assert named == ([] if source is None else [source])


def build_hook() -> dict[str, Any]:
    pytest.importorskip("hatchling", reason="needs the dependency group package")
    return runpy.run_path(str(ROOT / "hatch_build.py"))


@pytest.mark.skipif(
    (sys.platform, platform.machine(), platform.libc_ver()[0]) != ("linux", "x86_64", "glibc"),
    reason="levels are of Linux on x86-64 with glibc",
)
def test_a_failed_level_leaves_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two compilations fails, in a checkout of which that is all."""
    folder = tmp_path / "kernels" / "fastdp_kernels" / "_compiled"
    (tmp_path / "fastdp").mkdir()
    # A package, not a namespace, which one that is installed would hide.
    (tmp_path / "fastdp" / "__init__.py").touch()
    (tmp_path / "fastdp" / "__main__.py").write_text(
        f"import os, sys; os.makedirs({str(folder)!r}, exist_ok=True); sys.exit(sys.argv[-1] == 'x86-64-v4')"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTDP_LEVELS", "x86-64-v3 x86-64-v4")
    hook = build_hook()["KernelsHook"](str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel")
    with pytest.raises(subprocess.CalledProcessError):
        hook.initialize("standard", {"artifacts": []})
    assert folder.parent.exists()
    assert not folder.exists()


@pytest.mark.parametrize("here", [("darwin", "x86_64", ""), ("linux", "aarch64", "glibc"), ("linux", "x86_64", "")])
def test_levels_are_of_linux_alone(here: tuple[str, str, str]) -> None:
    with pytest.raises(RuntimeError, match="expected Linux on x86-64 with glibc"):
        build_hook()["check_system"](*here)


V4 = "avx avx2 bmi1 bmi2 f16c fma abm movbe avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("here", "flags", "level"),
    [
        (("linux", "x86_64", "glibc"), V4, ["x86-64-v4"]), (("linux", "x86_64", "glibc"), V4[:40], ["x86-64-v3"]),
        (("linux", "x86_64", "glibc"), "sse2 avx", []), (("linux", "x86_64", ""), V4, []),
        (("linux", "aarch64", "glibc"), V4, []), (("darwin", "arm64", ""), "", []),
    ],
)  # fmt: skip
def test_a_wheel_has_the_kernels_of_its_builder(here: tuple[str, ...], flags: str, level: list[str]) -> None:
    """Without FASTDP_LEVELS, where there are levels."""
    assert build_hook()["own_levels"](here, f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n") == level


def test_an_installation_without_numba_needs_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that cannot compile is no error; a level that is asked for is one."""
    told: list[str] = []
    (tmp_path / "fastdp").mkdir()
    (tmp_path / "fastdp" / "__init__.py").touch()
    (tmp_path / "fastdp" / "__main__.py").write_text("raise ImportError('numba')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FASTDP_LEVELS", raising=False)
    app = SimpleNamespace(display_warning=told.append)
    hook, data = build_hook(), {"artifacts": []}
    made = hook["KernelsHook"](str(tmp_path), {}, None, None, str(tmp_path / "dist"), "wheel", app)
    made.initialize("standard", data)
    assert data == {"artifacts": []}
    has_levels = (sys.platform, platform.machine(), platform.libc_ver()[0]) == ("linux", "x86_64", "glibc")
    assert bool(told) == (has_levels and any(processor_has(*level) for level in LEVELS.values()))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    for needed in ("build", "hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(needed, reason="needs the dependency group package")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        env={**os.environ, "FASTDP_LEVELS": ""},
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_three_packages(built: Path) -> None:
    (file,) = built.glob("fastdp_streams-*.whl")
    with zipfile.ZipFile(file) as wheel:
        inside = wheel.namelist()
        (described,) = [name for name in inside if name.endswith("/METADATA")]
        metadata: Message = message_from_string(wheel.read(described).decode())
    assert {name.split("/")[0] for name in inside} == {
        "fastdp",
        "fastdp_kernels",
        "fastdp_lab",
        described.split("/")[0],
    }
    assert {Path(name).suffix for name in inside if not name.startswith("fastdp_streams")} == {
        ".py",
        ".toml",
        ".typed",
    }
    for home, package in ((ROOT, "fastdp"), (ROOT / "kernels", "fastdp_kernels"), (ROOT / "lab", "fastdp_lab")):
        sources = [path for path in (home / package).rglob("*") if path.suffix in (".py", ".toml", ".typed")]
        assert {str(path.relative_to(home)) for path in sources} <= set(inside)
    assert file.stat().st_size < 2_000_000
    assert (metadata["Name"], metadata["Version"]) == ("fastdp-streams", fastdp.__version__)
    readme = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]*)\)", readme)
    assert all(link.startswith("https://") for link in links), "broken in the package index"
    named = re.findall(r"\[`([\w/.]+)`\]", readme)
    assert links or len(named) > 15
    assert all((ROOT / name).exists() for name in named)


@pytest.mark.slow
def test_the_sdist_holds_what_is_in_the_repository(built: Path) -> None:
    (file,) = built.glob("fastdp_streams-*.tar.gz")
    with tarfile.open(file) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    tops = {name.split("/")[0] for name in inside}
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    assert {name for name in inside if name not in known.stdout.split("\n")} <= {"PKG-INFO"}
    assert {"fastdp", "kernels", "lab", "tests", "docs", "LICENSE", "README.md", "CHANGELOG.md"} <= tops
    assert ".ci" not in tops


# Imports: a light facade, three files that name the compiler, no global randomness in kernels.

KERNELS = ROOT / "kernels" / "fastdp_kernels"
#: The laboratory may use all of these: error classes, and the noise table of couplings.
OPEN = {"fastdp.errors", "fastdp.noise.given_noise"}


def run(program: str, *flags: str) -> str:
    return run_python(*flags, "-c", program, check=True).stdout


def test_importing_fastdp_loads_nothing_heavy() -> None:
    heavy = "numba scipy cryptography matplotlib pandas polars pyarrow click tqdm numpy"
    program = f"import sys, fastdp; print([name for name in {heavy.split()!r} if name in sys.modules])"
    assert run(program).strip() == "[]"
    assert run(f"import fastdp.cli; {program}").strip() in ("[]", "['click']")
    for name in fastdp.__all__:
        assert getattr(fastdp, name) is not None
    assert set(fastdp.__all__) <= set(dir(fastdp))
    assert (ROOT / "fastdp" / "py.typed").exists()
    assert (KERNELS / "py.typed").exists()


FAMILIES = {
    "streams": ("streams", "thresholds", "perturbers", "smoothers"),
    "tables": ("tables", "thresholds"),
    "points": ("points", "counters"),
    "local": ("local", "thresholds"),
    "ledger": ("ledger",),
}
DOORS = {
    "fastdp.ToPS(1.0, 10.0, threshold=5.0, seed=1).publish([1.0])": "streams",
    "fastdp.PAK, fastdp.release, fastdp.release_many, fastdp.add_noise": "streams",
    "fastdp.totals, fastdp.Windows, fastdp.plan": "tables",
    "fastdp.PHDStream, fastdp.AdaptivePHDStream": "points",
    "fastdp.ToPL, fastdp.local.Client": "local",
    "fastdp.Ledger": "ledger",
}


@pytest.mark.parametrize("door", DOORS)
def test_a_family_loads_no_other(door: str) -> None:
    mine = FAMILIES[DOORS[door]]
    others = [name for names in FAMILIES.values() for name in names if name not in mine]
    loaded = run(f"import sys, fastdp; {door}; print(*(name for name in sys.modules if name.startswith('fastdp.')))")
    folders = {name.split(".")[1] for name in loaded.split()}
    assert mine[0] in folders
    assert not folders & {*others}


def test_streams_import_no_package_of_an_extra() -> None:
    program = """
import sys, numpy as np, fastdp
fastdp.release(np.ones(2000), epsilon=1, bound=10).sum([0], [10])
publisher = fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0)
publisher.publish(np.ones(10))
fastdp.Adaptive.from_bytes(publisher.to_bytes(b"k" * 32), b"k" * 32)
fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0)).publish([1, 2], [1.0, 2.0])
fastdp.release_many(np.ones((3, 50)), 1.0, bound=10.0, threshold=5.0)
extras = "matplotlib pandas polars pyarrow narwhals dask pooch shapely geopandas duckdb opendp"
print([name for name in extras.split() if name in sys.modules])
"""
    assert run(program).strip() == "[]"


def test_readme_python_runs() -> None:
    text = (ROOT / "README.md").read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        run(block, "-W", "error")


def test_four_files_name_the_compiler() -> None:
    for source in KERNELS.rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").partition(".")[0])
        assert source.name in ("_caching.py", "_ciphers.py", "_jit.py", "_lanes.py") or not names & {
            "numba",
            "llvmlite",
        }
        assert not names & {"random", "secrets", "fastdp"}
        code = source.read_text()
        assert "np.random" not in code
        assert "fastmath=" not in code


def test_a_kernel_is_compiled_anew_when_any_kernel_file_changed() -> None:
    from fastdp_kernels import _caching
    from fastdp_kernels.noise import double_double, guarded_log
    from fastdp_kernels.streams import hierarchy_nodes, online_pass, ranges, threshold_choice

    for dispatcher in (
        hierarchy_nodes.make_consistent,
        double_double.draw_double_double,
        guarded_log.draw_double,
        threshold_choice.choose_rows,
        online_pass.sum_blocks,
        ranges.sum_ranges,
    ):
        assert dispatcher._cache._own._cache_file._source_stamp == _caching._STAMP


def test_the_laboratory_uses_public_names() -> None:
    """But for those of ``lab_imports.toml``, each with its reason; a row that is no longer needed must go."""
    found: dict[str, set[str]] = {}
    for source in (ROOT / "lab" / "fastdp_lab").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith(("fastdp.", "fastdp_kernels")) for alias in node.names), source
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.partition(".")[0] in ("fastdp", "fastdp_kernels") and module not in OPEN:
                public = getattr(importlib.import_module(module), "__all__", ())
                names = {alias.name for alias in node.names} - {*public}
                if names:
                    found.setdefault(module, set()).update(names)
    listed = tomllib.loads((Path(__file__).parent / "lab_imports.toml").read_text())
    assert all(row["reason"] for row in listed.values())
    rows = {(module, name) for module, row in listed.items() for name in row["names"]}
    used = {(module, name) for module, names in found.items() for name in names}
    assert not used - rows, f"not public, so the laboratory may not import them: {sorted(used - rows)}"
    assert not rows - used, f"no longer imported; remove them from lab_imports.toml: {sorted(rows - used)}"


# Planted mistakes stay plantable: a table that its source has outgrown would say nothing of the tests any more.


def test_each_mistake_has_its_place_its_tests_and_a_name() -> None:
    found = list(mutations())
    assert {mutation.area for mutation in found} == {table.stem for table in TABLES.glob("*.toml")}
    assert [f"{each.label}: {problem}" for each in found if (problem := each.problem(ROOT))] == []
    labels = [mutation.label for mutation in found]
    assert len(labels) == len(set(labels))


SOURCE = """
LIMIT = 3

class Counter:
    def step(self, values, key):
        total = 0
        for value in values:
            total += value  # exact
        return draw(total, key=key), f"{total} of {LIMIT}"

    def other(self, values, key):
        return draw(values, key=key)
"""
RENAMED = """
LIMIT = 3

class Counter:
    def step(self, batch, secret):
        if batch:
            partial = 0
            for each in batch:
                # The value.
                partial += each
            return draw(
                partial,
                key=secret,
            ), f"{partial} of {LIMIT}"

    def other(self, values, key):
        return draw(values, key=0)
"""


@pytest.mark.parametrize(
    ("old", "new", "planted", "renamed"),
    [
        ("            total += value\n", "            total -= value\n", "total -= value", "partial -= each\n   "),
        ("draw(total, key=key)", "draw(key, key=value)", "draw(key, key=value)", "draw(secret, key=value)"),
        ('f"{total} of', 'f"{total + 1} of', 'f"{total + 1} of', 'f"{partial + 1} of'),
        ("        total = 0", "        n = 0\n        total = n", "\n        total = n", "\n            partial = n"),
        ("for value in values:\n", "for key in values:\n", "for key in values:\n", "for key in batch:\n"),
    ],
)
def test_a_mistake_is_planted_under_other_local_names(old: str, new: str, planted: str, renamed: str) -> None:
    for source, text in ((SOURCE, planted), (RENAMED, renamed)):
        found = plant(source, old, new)
        assert text in found
        compile(found, "planted", "exec")


def test_a_place_is_never_guessed() -> None:
    old, new = "draw(numbers, key=secret)", "draw(0, key=secret)"
    with pytest.raises(ValueError, match="0 times, and 2 times"):
        plant(SOURCE, old, new)
    assert plant(SOURCE, old, new, within="Counter.other").endswith("return draw(0, key=key)\n")
    with pytest.raises(ValueError, match="0 functions or classes are called third"):
        plant(SOURCE, old, new, within="Counter.third")
    # LIMIT is a global; ``total`` and ``value`` are two variables; an attribute is none.

    assert "total += secret" in plant(SOURCE, "n += x", "n += secret")
    assert "total += key" in plant(SOURCE, "n += x", "n += secret", beside="draw(n, key=secret)")
    for text in ("draw(LIMIT, key=key)", "total += total", "self.total"):
        with pytest.raises(ValueError, match="0 times, and 0 times"):
            plant(SOURCE, text, "")
