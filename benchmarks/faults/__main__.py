"""``python -m benchmarks faults [--kills N] [--seed S] [--only TEXT]``: exit code 0 if all was as if undisturbed.

``python -m benchmarks faults engines [--kills N] [--only ENGINE]`` kills the engines of ``docs/engines.md``.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tqdm import tqdm

from benchmarks.faults import disks
from benchmarks.faults.processes import Score, judge
from benchmarks.faults.subjects import SUBJECTS, TWINS, Subject
from benchmarks.shared import call, table


def main(
    *,
    kills: Annotated[int, "kills in all, at least"] = 200,
    values: Annotated[int, "length of each stream"] = 60_000,
    seed: Annotated[int, "of the moments"] = 1,
    only: Annotated[str, "kill those alone whose name holds this text, and leave disks alone"] = "",
) -> int:
    """Kill and restart; exit code 0 if all was as if undisturbed."""
    # Its monitor is a thread that takes a lock; a child forked meanwhile would wait for it for ever.
    tqdm.monitor_interval = 0
    # Its own lock is shared with children, of which one that is killed would keep it.
    tqdm.set_lock(threading.RLock())
    chosen, broken = ([each for each in group if only in each.name] for group in (SUBJECTS, TWINS))
    if not chosen:
        raise SystemExit(f"--only {only}: no such name")
    warm(chosen, values)
    share = -(-kills // len(chosen))
    scores = [judge(subject, values, share, seed + k) for k, subject in enumerate(chosen)]
    twins = [judge(twin, values, max(share, 12), seed) for twin in broken]
    struck, survived = sum(score.kills for score in scores), sum(score.survived for score in scores)
    columns = ["who", "kills at random", "kills at calls (of places)", "survived", "bytes compared", "different"]
    title = f"SIGKILL and restart: {survived} of {struck} kills survived, "
    title += f"{sum(s.different for s in scores)} bytes different"
    controls = "Negative controls, which must be detected"
    for name, subjects, found in ((title, chosen, scores), (controls, broken, twins)):
        table(name, [*columns, "notes"], [row(*pair) for pair in zip(subjects, found, strict=True)])
    faults = [] if only else [fault() for fault in disks.FAULTS]
    if faults:
        table("Other faults", ["fault", "who", "said", "before it", "afterwards"], [fault.row() for fault in faults])
    good = survived == struck and all(twin.different for twin in twins) and all(fault.good for fault in faults)
    print("All survived; every twin caught." if good else "FAILED: see above.")
    return 0 if good else 1


def row(subject: Subject, score: Score) -> list[object]:
    notes = "; ".join(sorted(set(score.notes or ())))
    struck = [score.at_random, f"{score.at_steps} (of {score.events:,})", f"{score.survived} of {score.kills}"]
    return [subject.name, *struck, score.compared, score.different, notes or None]


def warm(subjects: Sequence[Subject], n: int) -> None:
    """Kernels and modules in this process, which all children inherit."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        # Not those who write to standard output, which is this process's own; nor Parquet, whose threads would not
        # survive a fork.
        for number, subject in enumerate(s for s in subjects if ".parquet" not in s.name and " -o - " not in s.name):
            place = Path(folder) / str(number)
            place.mkdir()
            subject.prepare(place, n)
            subject.run(place)
        os.chdir(here)


if __name__ == "__main__":
    if sys.argv[1:2] == ["engines"]:
        from benchmarks.faults import engines

        sys.exit(call("faults engines", engines.main, sys.argv[2:]))
    sys.exit(call("faults", main))
