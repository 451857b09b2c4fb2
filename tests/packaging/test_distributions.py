"""Wheel and sdist hold the packages and nothing stray, and the metadata are for users."""

from __future__ import annotations

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
from typing import Any

import pytest

import fastdp

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
    """README's test command gives the same versions tomorrow: fuzzers, Flink and Beam are not part of ``.ci/run``."""
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = [each for name, each in project["optional-dependencies"].items() if name not in ("flink", "beam")]
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


def kernels_hook(root: Path) -> Any:
    """The hook of a wheel's build in a checkout."""
    pytest.importorskip("hatchling", reason="needs the dependency group package")
    hook: Any = runpy.run_path(str(ROOT / "hatch_build.py"))["KernelsHook"]
    return hook(str(root), {}, None, None, str(root / "dist"), "wheel")


def test_a_failed_level_leaves_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels" / "fastdp_kernels" / "_compiled"

    def compiles(command: list[str], **options: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if command[-1] == "x86-64-v4":
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setenv("FASTDP_LEVELS", "x86-64-v3 x86-64-v4")
    monkeypatch.setattr(subprocess, "run", compiles)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    with pytest.raises(subprocess.CalledProcessError):
        kernels_hook(tmp_path).initialize("standard", {"artifacts": []})
    assert folder.parent.exists()
    assert not folder.exists()


@pytest.mark.parametrize("here", [("darwin", "x86_64", ""), ("linux", "aarch64", "glibc"), ("linux", "x86_64", "")])
def test_levels_are_of_linux_alone(
    here: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTDP_LEVELS", "x86-64-v3")
    monkeypatch.setattr(sys, "platform", here[0])
    monkeypatch.setattr(platform, "machine", lambda: here[1])
    monkeypatch.setattr(platform, "libc_ver", lambda: (here[2], ""))
    with pytest.raises(RuntimeError, match="expected Linux on x86-64 with glibc"):
        kernels_hook(tmp_path).initialize("standard", {"artifacts": []})


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    for needed in ("build", "hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(needed, reason="needs the dependency group package")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
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
    assert links or len(named) > 30
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
