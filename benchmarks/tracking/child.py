"""One side of a comparison: a process with one commit's fastdp, which takes its turns when it is asked to."""

from __future__ import annotations

import sys

from benchmarks.asv.bench_quick import TASKS, least


def main() -> None:
    """Lines in: a task and the seconds of a turn.  Lines out: nanoseconds."""
    name, task = "", None
    for line in sys.stdin:
        wanted, _, seconds = line.rstrip("\n").partition("\t")
        if wanted != name or task is None:
            task = None  # its memory, before that of the next
            name, task = wanted, TASKS[wanted]()
            task()
        print(least(task, float(seconds)), flush=True)


if __name__ == "__main__":
    main()
