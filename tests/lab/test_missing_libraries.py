"""A command of the laboratory without the libraries of its extra says which one is missing, and how to install it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import SimpleNamespace

import click
from click.testing import CliRunner

from fastdp.cli import main

SCRIPT = """
import sys
sys.modules.update(dict.fromkeys(("dask", "distributed", "matplotlib", "msgspec", "pooch", "pyarrow")))
from fastdp.cli import main
main({arguments!r})
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process in which those libraries cannot be imported."""
    script = SCRIPT.format(arguments=[str(each) for each in arguments])
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_the_extra_is_named_in_one_line(monkeypatch) -> None:
    monkeypatch.delenv("FASTDP_DATA", raising=False)
    found = run("datasets")
    assert found.returncode == 1, found
    assert len(found.stderr.splitlines()) == 1, found.stderr
    assert "pooch, which is not installed: pip install 'fastdp-streams[lab]'" in found.stderr


def test_so_does_a_command_that_says_nothing_itself(monkeypatch) -> None:
    @click.command()
    def needy() -> None:
        importlib.import_module("no_such_library")

    monkeypatch.setitem(vars(main), "_added", {"sweep": SimpleNamespace(load=lambda: needy)})
    found = CliRunner().invoke(main, ["sweep"])
    assert found.exit_code == 1
    told = "Error: fastdp sweep needs no_such_library, which is not installed: pip install 'fastdp-streams[lab]'\n"
    assert found.output == told


def test_help_needs_no_library() -> None:
    found = run("--help")
    assert found.returncode == 0, found.stderr
    assert "datasets" in found.stdout
