"""PHDStream: a whole run, and samples of their points."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.accuracy.points import DEPTH
from benchmarks.speed.measure import Group, Task
from fastdp import PHDStream
from fastdp.points import Box
from fastdp_lab.datasets import PointStream, load_circles

#: The authors' circles with deletion, in the folder of real streams.
CIRCLES = "motion_circles_synthetic.csv.gz"
RUNS = 10


def whole_run(stream: PointStream) -> PHDStream:
    """All batches of a stream, the initial set first."""
    system = PHDStream(Box(stream.lower, stream.upper), 1.0, max_depth=DEPTH, seed=0)
    for added, removed in [(stream.initial, None), *stream.batches]:
        system.advance(added, removed)
    return system


def whole_runs(path: Path) -> Group:
    """The authors' circles with deletion, batches of 500."""
    run = partial(whole_run, load_circles(path))
    system, new = run(), []
    tasks: dict[str, Task] = {
        "all tree steps": run,
        "one sampling": system.sample,
        "first sampling, cells included": lambda: new.pop().sample(),
    }
    prepare = {"first sampling, cells included": lambda: new.append(run())}
    return Group(
        "circles with deletion, eps 1, simple, initial 0", tasks, prepare, {"all tree steps": system.n_steps}
    )


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    """Nothing where the file of circles is absent."""
    path = data / CIRCLES
    if not path.is_file():
        print(f"{CIRCLES} is not in the folder given by --data: whole runs are skipped")
        return
    yield partial(whole_runs, path)
