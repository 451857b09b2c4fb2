"""``python -m benchmarks faults [--kills N] [--seed S] [--only TEXT]``: exit code 0 if all was as if undisturbed.

``python -m benchmarks faults engines [--kills N] [--only ENGINE]`` kills the engines of ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from benchmarks.faults import disks
from benchmarks.faults.processes import Score, judge
from benchmarks.faults.subjects import SUBJECTS, TWINS, Subject
from benchmarks.shared import heading, table


def main() -> int:
    if sys.argv[1:2] == ["engines"]:
        from benchmarks.faults import engines

        return engines.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills in all, at least (default 200)")
    parser.add_argument("--values", type=int, default=60_000, help="length of each stream (default 60,000)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default 1)")
    parser.add_argument(
        "--only", default="", help="kill those alone whose name holds this text, and leave disks alone"
    )
    options = parser.parse_args()
    heading("faults", sys.argv[1:])
    # Its monitor is a thread that takes a lock; a child forked meanwhile would wait for it for ever.
    tqdm.monitor_interval = 0
    # Its own lock is shared with children, of which one that is killed would keep it.
    tqdm.set_lock(threading.RLock())
    start = time.perf_counter()
    chosen, broken = ([each for each in group if options.only in each.name] for group in (SUBJECTS, TWINS))
    if not chosen:
        parser.error(f"--only {options.only}: no such name")
    warm(chosen, options.values)
    share = -(-options.kills // len(chosen))
    scores = [judge(subject, options.values, share, options.seed + k) for k, subject in enumerate(chosen)]
    twins = [judge(twin, options.values, max(share, 12), options.seed) for twin in broken]
    kills, survived = sum(score.kills for score in scores), sum(score.survived for score in scores)
    columns = [
        "who",
        "kills at random",
        "kills at calls (of places)",
        "survived",
        "bytes compared",
        "different",
        "notes",
    ]
    table(
        f"SIGKILL and restart: {survived} of {kills} kills survived, {sum(s.different for s in scores)} bytes "
        f"different; {time.perf_counter() - start:.0f} s",
        columns,
        [row(subject, score) for subject, score in zip(chosen, scores, strict=True)],
    )
    table(
        "Negative controls, which must be detected",
        columns,
        [row(subject, score) for subject, score in zip(broken, twins, strict=True)],
    )
    faults = [] if options.only else [fault() for fault in disks.FAULTS]
    if faults:
        table("Other faults", ["fault", "who", "said", "before it", "afterwards"], [fault.row() for fault in faults])
    good = survived == kills and all(twin.different for twin in twins) and all(fault.good for fault in faults)
    print("All survived; every twin caught." if good else "FAILED: see above.")
    return 0 if good else 1


def row(subject: Subject, score: Score) -> list[str]:
    notes = "; ".join(sorted(set(score.notes or ())))
    struck = [f"{score.at_random}", f"{score.at_steps} (of {score.events:,})", f"{score.survived} of {score.kills}"]
    return [subject.name, *struck, f"{score.compared:,}", f"{score.different:,}", notes or "-"]


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
    sys.exit(main())
