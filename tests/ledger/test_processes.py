"""Processes that race for the last budget, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from fastdp import Guarantee
from fastdp.ledger import Ledger
from tests.shared import python

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
    pipe = subprocess.PIPE
    return subprocess.Popen(**python("-c", program, *arguments), stdin=pipe, stdout=pipe, text=True)


def race(path: Path, racers: int, tries: int) -> list[int]:
    """Outcomes of each of some processes, of ``tries`` tries, after a common start."""
    running = [start(RACE, path, tries) for _ in range(racers)]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return [int(one.communicate(timeout=300)[0]) for one in running]


def test_a_limit_holds_however_many_race_for_it(path: Path) -> None:
    Ledger(path).set_limit(1.0)
    assert sum(race(path, 3, 12)) == 16
    found = Ledger(path).verify()
    assert found.lines == 2 + 16
    assert Ledger(path).spent("meter").epsilon == 1.0


def test_a_killed_process_has_spent_what_it_reserved(path: Path) -> None:
    running = start(HELD, path)
    assert running.stdout is not None
    assert running.stdout.readline() == "releasing\n"
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=300)
    account = Ledger(path, limit_epsilon=0.75)
    assert account.entries()[0].state == "reserved"
    assert account.verify().reserved == [1]
    assert account.remaining("meter").epsilon == 0.25
    account.spend(Guarantee(0.25), stream="meter")
    assert account.spent("meter").epsilon == 0.75


def spend_once(path: Path, fatal: int) -> tuple[bool, int]:
    """Record a release in a child that is killed at a step of SQLite; whether it told of it, and how many steps."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            if steps == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        try:
            account = Ledger(path)
            account._store._db.set_progress_handler(step, 1)
            account.spend(Guarantee(1 / 64), stream="meter", start=0, stop=9)
            os.write(writing, str(steps).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return bool(told), int(told or 0)


def test_a_process_killed_at_any_step_leaves_each_release_that_it_told_of(path: Path) -> None:
    """Readable, whole, and none of them lost; what was not told may be recorded."""
    Ledger(path).set_limit(9.0)
    recorded, steps = 1, spend_once(path, 0)[1]
    assert steps > 100
    for number in range(60):
        # The last ones are behind the last step.
        told, _ = spend_once(path, 1 + number * steps // 58)
        account = Ledger(path)
        assert account.verify().lines == 2 + len(account.entries())
        assert recorded + told <= len(account.entries()) <= recorded + 1
        recorded = len(account.entries())
    assert 1 < recorded < 60
    assert account.spent("meter").epsilon == recorded / 64
