"""``--state``: the same command writes the same bytes, however often it was killed; another input gets nothing."""

from __future__ import annotations

import random
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fastdp
from fastdp.ledger import Ledger
from tests.shared import python, run_python

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
RELEASE = "release in.npy --epsilon 0.5 --bound 200 --state S --quiet"
TOTALS = "totals readings.parquet --value kwh --time at --every 6h --epsilon 1 --bound 10 --state S --quiet"
COUNTS = "counts readings.parquet --time at --every 6h --epsilon 1 --state S --quiet"
POINTS = "synthesize events.csv --epsilon 2 --box 0 0 10 5 --batch 200 --state S --quiet"
#: Command, its output, and its input.
LINES = {
    "release": (RELEASE, "out.csv", "in.npy"),
    "tops": (f"{RELEASE} --method tops --holdout 400", "out.npy", "in.npy"),
    "totals": (TOTALS, "out.parquet", "readings.parquet"),
    "counts": (COUNTS, "o.csv", "readings.parquet"),
    "synthesize": (POINTS, "points.csv", "events.csv"),
}  # fmt: skip


def alter(path: Path) -> None:
    """Another input of the same form."""
    if path.suffix == ".npy":
        values = np.load(path)
        values[-1] += 1.0
        np.save(path, values)
    elif path.suffix == ".csv":
        path.write_text(path.read_text().rpartition("2024")[0])
    else:
        arrow = pytest.importorskip("pyarrow.parquet")
        arrow.write_table(arrow.read_table(path).slice(1), path)


@pytest.mark.parametrize("key", ["", " --key-file key", " --seed 3"])
@pytest.mark.parametrize("name", LINES)
def test_the_same_command_writes_the_same_bytes(
    name: str, key: str, run: Callable[..., Result], refused: Callable[..., str]
) -> None:
    line, out, source = LINES[name]
    line += key
    run(f"{line} -o {out}")
    assert stat.S_IMODE(Path("S").stat().st_mode) == 0o600
    first = Path(out).read_bytes()
    # Its own output is replaced, without --force.
    run(f"{line} -o {out}")
    assert Path(out).read_bytes() == first
    run(f"{line} -o other{Path(out).suffix}")
    assert Path(f"other{Path(out).suffix}").read_bytes() == first
    if out.endswith(".csv"):
        assert run(f"{line} -o -").stdout_bytes == first
    Path("foreign.csv").touch()
    assert "exists already" in refused(f"{line} -o foreign.csv")
    alter(Path(source))
    said = refused(f"{line} -o new{Path(out).suffix}")
    assert "another one under the same noise would reveal the difference" in said
    other = re.sub(r"--epsilon \S+", "--epsilon 0.3", f"{line} -o {out}")
    assert " with --epsilon " in refused(other)


def test_standard_input_is_an_input_too(run: Callable[..., Result], refused: Callable[..., str]) -> None:
    text, line = Path("in.txt").read_text(), RELEASE.replace("in.npy", "-")
    first = run(f"{line} -o -", stdin=text).stdout
    assert run(f"{line} -o -", stdin=text).stdout == first
    assert "expected the same input again" in refused(f"{line} -o -", stdin=text[:-3] + "9\n")


def test_what_is_refused(run: Callable[..., Result], refused: Callable[..., str]) -> None:
    run(f"{RELEASE} --key-file key -o out.csv")
    assert "state file 'S'" in refused(f"{RELEASE} -o out.csv")
    Path("T").write_bytes(Path("S").read_bytes())
    assert "is a copy of" in refused(f"{RELEASE} --key-file key -o out.csv".replace("S ", "T ", 1))
    Path("T").unlink()
    for raw in (b"", b"text", Path("S").read_bytes()[:-9]):
        Path("T").write_bytes(raw)
        assert "state file 'T'" in refused(f"{RELEASE} --key-file key -o out.csv".replace("S ", "T ", 1))
    fastdp.Adaptive(1.0, 9.0).keep("U")
    assert "'U' is damaged, or of another program" in refused(RELEASE.replace(" S", " U") + " -o out.csv")
    run(RELEASE.replace(" S", " V") + " -o v.csv")
    assert "of fastdp release: expected the same command" in refused(TOTALS.replace(" S", " V") + " -o t.csv")
    assert "another key or seed" in refused(RELEASE.replace(" S", " V") + " -o v.csv --seed 3")
    assert "is the state file" in refused(f"{RELEASE} -o S")


def test_options_may_change_before_an_input_is_recorded(
    run: Callable[..., Result], refused: Callable[..., str]
) -> None:
    Ledger("budget").set_limit(0.4)
    line = f"{RELEASE} --ledger budget --stream a -o out.csv"
    assert "has 0.4 of 0.4 epsilon left" in run(line, code=1).output
    run(line.replace("0.5", "0.3"))


@pytest.mark.parametrize("name", LINES)
def test_a_ledger_is_charged_once(name: str, run: Callable[..., Result], refused: Callable[..., str]) -> None:
    line, out, source = LINES[name]
    line += " --ledger budget --stream a"
    run(f"{line} -o {out} --limit 2")
    first = Path(out).read_bytes()
    run(f"{line} -o {out}")
    assert Path(out).read_bytes() == first
    (entry,) = Ledger("budget").entries()
    assert (entry.state, entry.note) == ("spent", f"input {source}")
    # Without the state file it is another release.
    Path("S").unlink()
    run(f"{line} -o {out} --force --limit 9")
    assert len(Ledger("budget").entries()) == 2


KILLED = """
import os, signal, sys
from fastdp.cli import main
from fastdp.state import state_file
count, calls = int(sys.argv[1]), 0
sync = os.fsync
def syncing(descriptor):
    global calls
    calls += 1
    if calls == count:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = syncing
main(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["release", "totals", "synthesize"])
def test_a_kill_at_any_write_changes_nothing(name: str, run: Callable[..., Result]) -> None:
    """Killed at each write to the disk in turn, and run again: the same bytes, charged once."""
    line, out, _ = LINES[name]
    line += f" --key-file key --ledger budget --stream a -o {out}"
    Ledger("budget").set_limit(2.0)
    run(line)
    first, kills = Path(out).read_bytes(), 0
    for count in range(1, 40):
        for path in ("S", "budget", f"{out}.json"):
            Path(path).unlink(missing_ok=True)
        Ledger("budget").set_limit(2.0)
        Path(out).unlink()
        killed = run_python("-c", KILLED, count, *line.split())
        kills += killed.returncode == -signal.SIGKILL
        run(line)
        assert Path(out).read_bytes() == first
        assert len(Ledger("budget").entries()) == 1
        assert not list(Path().rglob("*.tmp"))
        if killed.returncode == 0:
            break
    assert kills > 3


FOLLOW = "release - -o - --follow --threshold 50 --epsilon 1 --bound 100 --state F --quiet"


@pytest.mark.parametrize("method", ["adaptive", "tops", "topl"])
def test_follow_goes_on(method: str, run: Callable[..., Result], refused: Callable[..., str]) -> None:
    line = f"{FOLLOW} --key-file key --method {method}"
    own = {"adaptive": fastdp.Adaptive, "tops": fastdp.ToPS, "topl": fastdp.ToPL}[method]
    given = {"holdout": 0} if method == "topl" else {}
    values = np.arange(40.0)
    expected = own(1.0, 100.0, threshold=50.0, key=bytes(range(32)), **given).publish(values).tolist()
    line += " --holdout 0" if given else ""
    said = ""
    for begin, end in ((0, 7), (7, 8), (8, 40)):
        said += run(line, stdin="".join(f"{value}\n" for value in values[begin:end])).stdout
    assert said == "value\n" + "".join(f"{value!r}\n" for value in expected)
    assert "F: 40 values are recorded" in run(line.replace(" --quiet", ""), stdin="").stderr
    assert "with other options" in refused(f"{line} --nonfinite zero", stdin="1\n")
    assert "another key or name" in refused(f"{line} --stream b", stdin="1\n")


def test_follow_settles_its_entry(run: Callable[..., Result]) -> None:
    """A stream that was cut off counts as spent, is not charged again, and is settled at its end."""
    Ledger("budget").set_limit(1.0)
    line = f"{FOLLOW} --key-file key --ledger budget --stream a"
    with subprocess.Popen(
        **python("-m", "fastdp", *line.split()), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"value\n"
        process.kill()
        process.stdin.close()
    states = [[entry.state for entry in Ledger("budget").entries()]]
    for _ in range(2):
        run(line, stdin="2\n")
        states.append([entry.state for entry in Ledger("budget").entries()])
    assert states == [["reserved"], ["spent"], ["spent"]]


@pytest.mark.slow
def test_follow_goes_on_after_kills(folder: Path) -> None:
    """30 kills at random moments: each answer is that of an undisturbed run for its line, and none is given twice."""
    values = np.arange(3000.0) % 50
    key = bytes(range(32))
    expected = fastdp.Adaptive(1.0, 100.0, threshold=50.0, key=key).publish(values)
    command, rng, answered, taken = f"{FOLLOW} --key-file key".split(), random.Random(3), 0, 0
    for _ in range(30):
        process = subprocess.Popen(**python("-m", "fastdp", *command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        given = 0
        try:
            for _ in range(rng.randint(1, 40)):
                process.stdin.write(f"{values[taken + given]}\n".encode())
                process.stdin.flush()
                given += 1
                line = process.stdout.readline()
                if line == b"value\n":
                    line = process.stdout.readline()
                assert float(line) == expected[taken + given - 1]
                answered += 1
            process.stdin.write(f"{values[taken + given]}\n".encode())
            process.stdin.flush()
            time.sleep(rng.random() * 0.01)
        finally:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()
        # The last line may have been taken or not; the state knows.
        taken = fastdp.Adaptive.load("F", fastdp.Key.from_bytes(key).derive("release state").reveal()).n_seen
    assert answered > 200
