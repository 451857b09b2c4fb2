"""Processes that race for the last budget, and one that dies with a reservation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fastdp import Guarantee
from fastdp.ledger import Ledger

RACE = """
import sys
from fastdp import Guarantee, Ledger
from fastdp.errors import BudgetError
path, count = sys.argv[1], int(sys.argv[2])
account = Ledger(path)
print("ready", flush=True)
sys.stdin.readline()
won = 0
for _ in range(count):
    try:
        account.spend(Guarantee(1 / 16), stream="meter")
        won += 1
    except BudgetError:
        pass
print(won, flush=True)
"""
HELD = """
import sys
from fastdp import Guarantee, Ledger
with Ledger(sys.argv[1]).reserve(Guarantee(0.5), stream="meter"):
    print("releasing", flush=True)
    sys.stdin.readline()
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def race(path: Path, racers: int, tries: int) -> list[int]:
    """What each of some processes got, of ``tries`` tries, after a common start."""
    running = [start(RACE, path, tries) for _ in range(racers)]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return [int(one.communicate(timeout=120)[0]) for one in running]


def test_exactly_one_gets_the_last_budget(path: Path) -> None:
    Ledger(path).set_limit(1 / 16)
    assert sorted(race(path, 2, 1)) == [0, 1]
    assert Ledger(path).spent("meter").epsilon == 1 / 16


def test_a_limit_holds_however_many_race_for_it(path: Path) -> None:
    Ledger(path).set_limit(1.0)
    assert sum(race(path, 3, 12)) == 16
    found = Ledger(path).verify()
    assert (found.lines, found.torn) == (2 + 16, 0)
    assert Ledger(path).spent("meter").epsilon == 1.0


def test_a_killed_process_has_spent_what_it_reserved(path: Path) -> None:
    running = start(HELD, path)
    assert running.stdout is not None
    assert running.stdout.readline() == "releasing\n"
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)
    account = Ledger(path, limit_epsilon=0.75)
    assert account.entries()[0].state == "reserved"
    assert account.verify().reserved == [1]
    assert account.remaining("meter").epsilon == 0.25
    account.spend(Guarantee(0.25), stream="meter")
    assert account.spent("meter").epsilon == 0.75


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("made", [False, True])
def test_a_child_forked_during_a_call_holds_no_lock(path: Path, request: pytest.FixtureRequest, made: bool) -> None:
    """It has the locked file open as long as it lives, or the folder of one that is made."""
    if made:
        Ledger(path)
    children = request.getfixturevalue("forked_at_sync")
    for _ in range(2):
        Ledger(path).spend(Guarantee(0.25), stream="meter")
    Ledger(path.with_name("another"))
    assert len(children) == 1
    assert Ledger(path).spent("meter").epsilon == 0.5
