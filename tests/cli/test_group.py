from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
from click.testing import CliRunner

import fastdp
from fastdp.cli import COMMANDS, main


def test_version(command):
    assert command("--version").stdout.decode().strip() == f"fastdp, version {fastdp.__version__}"


def test_help_has_an_example():
    said = CliRunner().invoke(main, ["--help"]).output
    assert "fastdp release trips.parquet --column fare" in said
    assert "fastdp demo" in said


def test_the_list_of_commands_says_what_each_command_says():
    context = click.Context(main)
    for name, (_, sentence) in COMMANDS.items():
        assert main.get_command(context, name).help.partition("\n\n")[0] == sentence


def test_seed_is_for_simulation_only():
    said = " ".join(CliRunner().invoke(main, ["release", "--help"]).output.split())
    assert "For simulation only" in said
    assert "NOT PRIVATE" in said


def test_import_is_light():
    root = Path(__file__).parents[2]
    heavy = "('numba', 'numpy', 'matplotlib', 'pyarrow', 'scipy', 'cryptography')"
    code = (
        f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'kernels')!r}]; import fastdp.cli; "
        f"print(*[name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == ""
