"""Recipes of others' machines: actions, conda, containers, and every install line of a page agree with pyproject."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fastdp
from tests.shared import run_python

yaml = pytest.importorskip("yaml", reason="PyYAML comes with dask")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS, GROUPS = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if ":: 3." in name]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_actions_are_pinned_and_may_only_read() -> None:
    assert set(WORKFLOWS) == {"ci", "release"}
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] <= 90
            assert {job.get("needs")} <= {None, *workflow["jobs"]}
        for step in steps(workflow):
            assert ("uses" in step) != ("run" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
            assert "checkout" not in step.get("uses", "") or step["with"] == {"persist-credentials": False}


def test_actions_run_each_python_on_each_system() -> None:
    matrix = WORKFLOWS["ci"]["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}
    assert any(name.endswith("-arm") for name in matrix["system"])
    oldest = {
        step["with"]["python-version"]
        for flow in WORKFLOWS.values()
        for step in steps(flow)
        if "with" in step and "python-version" in step["with"]
    }
    assert oldest == {PYTHONS[0], "${{ matrix.python }}"}


def test_only_the_job_that_publishes_has_a_token_and_it_attests() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert [name for flow in WORKFLOWS.values() for name, job in flow["jobs"].items() if "permissions" in job] == [
        "publish"
    ]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"]["url"].endswith("/" + PROJECT["project"]["name"])
    (upload,) = (step for step in jobs["publish"]["steps"] if "pypi-publish" in step["uses"])
    assert upload["with"] == {"attestations": True}


def test_the_conda_recipe_has_the_project_s_requirements() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    project = PROJECT["project"]
    assert recipe["context"]["version"] == fastdp.__version__
    assert recipe["package"]["name"] == project["name"]
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (project["description"], project["license"])
    needed = {each.replace(" ", "") for each in recipe["requirements"]["run"]}
    assert needed == {"python" + project["requires-python"], *project["dependencies"]}
    built = {each.replace(" ", "") for each in recipe["requirements"]["host"]}
    assert built == {f"python{PYTHONS[0]}.*", "pip", *PROJECT["build-system"]["requires"]}
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in project["scripts"].items()
    ]
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert recipe["tests"][0]["python"]["imports"] == [Path(name).name for name in packages]


def test_the_container_file_is_one_that_builds() -> None:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    words = [line.split() for line in lines]
    assert {each[0] for each in words} <= {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENV", "ARG", "ENTRYPOINT"}
    images = [each[1] for each in words if each[0] == "FROM"]
    assert {re.fullmatch(r"python:([\d.]+)-slim", image)[1] for image in images} <= set(PYTHONS)  # type: ignore[index]
    assert words[-1] == ["ENTRYPOINT", '["fastdp"]']
    users = [number for number, each in enumerate(words) if each[0] == "USER"]
    assert int(words[users[-1]][1]) > 0, "a number, which is not root's"
    assert lines.index("RUN fastdp compile") < users[-1], "kernels of root's, for every user"
    kept = {line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] not in ".!"}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert not kept & {name.partition("/")[0] for name in (*wheel, "README.md", "LICENSE", "hatch_build.py")}


def install_lines() -> list[tuple[str, str]]:
    """Page, or source file, and line of each ``pip install``."""
    files = [*ROOT.glob("*.md"), *ROOT.glob(".ci/*"), *ROOT.glob(".github/workflows/*"), ROOT / "Dockerfile"]
    for folder in ("docs", "examples", "benchmarks", "fastdp", "lab"):
        files += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".rst", ".py")]
    found = []
    for path in files:
        if "_build" not in path.parts:
            text = re.sub(r"\\\n\s*|`\n", " ", path.read_text())
            found += [(str(path.relative_to(ROOT)), line) for line in re.findall(r"pip[\w./ -]*? install .*", text)]
    return found


def named(lines: list[tuple[str, str]]) -> tuple[set[str], set[str]]:
    extras, groups = set(), set()
    for _, line in lines:
        for each in re.findall(r"(?:fastdp-streams|(?<!\w)\.|\.whl\)?\"?)\[([\w,]+)\]", line):
            extras |= set(each.split(","))
        groups |= set(re.findall(r"--group ([\w-]+)", line))
    return extras, groups


def test_every_install_line_names_extras_and_groups_that_exist() -> None:
    lines = install_lines()
    extras, groups = named(lines)
    assert {"tables", "plot", "engines", "all", "lab", "opendp"} <= extras <= set(EXTRAS)
    assert {"test", "dev", "bench", "package"} <= groups <= set(GROUPS)
    for _, line in lines:
        for option in re.findall(r"(?:-c|--build-constraint) ([\w.]+)", line):
            assert (ROOT / option).exists()
    for extra in EXTRAS.values():
        for inner in re.findall(r"fastdp-streams\[([\w,]+)\]", " ".join(extra)):
            assert set(inner.split(",")) <= set(EXTRAS)


@pytest.mark.slow
@pytest.mark.parametrize("editable", [False, True])
def test_the_extras_of_install_lines_install(editable: bool, tmp_path: Path) -> None:
    """Without the network: the wheel with all extras that a page names, but none of their packages."""
    for needed in ("hatch_fancy_pypi_readme", *["editables"][: int(editable)]):
        pytest.importorskip(needed, reason="needs the dependency group package")
    extras, _ = named(install_lines())
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--prefix", str(tmp_path), "--ignore-installed"]
    target = [*["-e"][: int(editable)], f"{ROOT}[{','.join(sorted(extras))}]"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *target],
        env={**os.environ, "FASTDP_LEVELS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stdout + done.stderr
    (script,) = tmp_path.rglob("fastdp*") if sys.platform == "win32" else tmp_path.glob("bin/fastdp")
    assert run_python(script, "--version", check=True).stdout.split()[-1] == fastdp.__version__
