from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from click.testing import CliRunner

import fastdp
import fastdp.cli
import fastdp_kernels
from fastdp.cli.compile_command import SYSTEMS, first_calls
from fastdp.streams import METHODS
from fastdp_kernels.local import local_reports
from fastdp_kernels.noise import binary_counter
from fastdp_kernels.points import cell_codes
from fastdp_kernels.streams import adaptive_pass, online_pass, threshold_choice
from fastdp_kernels.tables import window_sums


@pytest.mark.slow
def test_what_is_compiled_is_found_afterwards(tmp_path):
    command = [
        sys.executable,
        "-c",
        "from fastdp.cli import main; main()",
        "compile",
        "--cache-dir",
        str(tmp_path),
        "pak",
    ]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert f"Kept in {tmp_path}" in first
    assert list(tmp_path.rglob("*.nbc"))
    assert second.split()[:4] == ["pak", "0", "kernels", "compiled,"]


#: Kernels that each system cannot do without, and that no other kernel calls; of another method, its release is seen.
NEEDED = {
    "adaptive": (adaptive_pass, "sum_bound"),
    "tops": (online_pass, "publish"),
    "pak": (binary_counter, "count_on"),
    "topl": (local_reports, "draw_window"),
    "phdstream": (cell_codes, "encode_points"),
    "totals": (window_sums, "add_values"),
    "fleet": (adaptive_pass, "publish_rows"),
}


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_calls_its_kernels(system, monkeypatch):
    module, name = NEEDED.get(system) or (getattr(fastdp, METHODS[system]), "release")
    kernel, calls = getattr(module, name), []

    def called(*arguments):
        calls.append(system)
        return kernel(*arguments)

    monkeypatch.setattr(module, name, called)
    first_calls()[system]()
    assert calls


def test_tables_are_left_out_where_one_of_their_libraries_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    done = CliRunner().invoke(fastdp.cli.main, ["compile", "totals"])
    assert (done.exit_code, done.output.split(maxsplit=1)[1]) == (
        0,
        "left out; it needs: pip install 'fastdp-streams[tables]'\n",
    )


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_both_kinds_of_values_and_of_holdouts_are_compiled(monkeypatch):
    met = set()

    def watch(module, name, kind):
        kernel = getattr(module, name)

        def called(*arguments):
            met.add((name, kind(arguments)))
            return kernel(*arguments)

        monkeypatch.setattr(module, name, called)

    watch(adaptive_pass, "sum_bound", lambda arguments: arguments[3] is None)
    watch(threshold_choice, "bin_values", len)
    watch(threshold_choice, "bin_pieces", len)
    calls = first_calls()
    assert tuple(calls) == SYSTEMS
    calls["adaptive"]()
    calls["tops"]()
    assert met == {("sum_bound", True), ("sum_bound", False), ("bin_values", 3), ("bin_pieces", 5)}


def test_compiling_is_said_once(monkeypatch, capsys):
    monkeypatch.setattr(fastdp_kernels, "on_compile", fastdp.cli._say_once)
    fastdp_kernels.on_compile("online_pass", "/cache")
    assert "once on this machine" in capsys.readouterr().err
    assert fastdp_kernels.on_compile is None


def test_only_a_terminal_is_told(monkeypatch):
    monkeypatch.setattr(fastdp_kernels, "on_compile", None)
    code = (
        "import sys; from fastdp.cli import main; import fastdp_kernels\n"
        "main(['ledger', '--help'], standalone_mode=False); print(fastdp_kernels.on_compile is not None)"
    )
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert piped.stdout.split()[-1] == "False"
    leader, follower = pty.openpty()
    try:
        on_terminal = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=follower, check=True
        )
    finally:
        os.close(follower)
        os.close(leader)
    assert on_terminal.stdout.split()[-1] == b"True"
