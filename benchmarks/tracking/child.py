"""One side of a comparison: a process with one commit's fastdp, which takes its turns when it is asked to."""

import sys
from time import process_time, process_time_ns

from benchmarks.asv.bench_quick import TASKS, Task

#: Processor seconds of one measurement, so that the clock's own call does not count.
MEASURED = 5e-4


def least(task: Task, seconds: float) -> float:
    """Nanoseconds of a call: the least of the measurements that fit into so many processor seconds."""
    begin = process_time()
    task()
    calls = max(1, round(MEASURED / max(process_time() - begin, 1e-7)))
    found = []
    while not found or process_time() - begin < seconds:
        start = process_time_ns()
        for _ in range(calls):
            task()
        found.append((process_time_ns() - start) / calls)
    return min(found)


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
