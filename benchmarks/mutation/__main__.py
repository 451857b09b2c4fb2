"""``python -m benchmarks mutation``: plant each mutation in a copy of the checkout, run its tests, print the score.

Exits with 1 if a mutation's text does not stand in its file once, or if fewer than 95 % of them are killed.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, NamedTuple

from benchmarks.mutation.table import Mutation, mutations
from benchmarks.shared import call, table

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".*_cache", "__pycache__", ".hypothesis", ".benchmarks", "*.egg-info")
#: Share of the mutations that tests must see.
TARGET = 0.95
#: Seconds for the tests of one mutation; more is an endless loop, which a test sees too.
TIMEOUT_SECONDS = 600
#: Marked tests count: ``.ci/run`` runs them too.
FULL_RUN = ("-m", "", "--hypothesis-profile=thorough")
#: Of pytest: all passed; some failed.
PASSED, FAILED = 0, 1


class Outcome(NamedTuple):
    """Result of the tests on one mutation."""

    mutation: Mutation
    verdict: str
    by: str


def main(
    *,
    only: Annotated[Sequence[str], "with one of these texts in area or label"] = ("",),
    list: Annotated[bool, "list them and stop"] = False,
    jobs: Annotated[int, "mutations tried at once"] = 1,
    output: Annotated[Path | None, "file for the verdict on each of them"] = None,
) -> int:
    """Plant each mutation in a copy of the checkout, run its tests, print the score."""
    chosen = [m for m in mutations() if any(text in f"{m.area} {m.label}" for text in only)]
    stale = [f"{m.label}: {problem}" for m in chosen if (problem := m.problem(ROOT))]
    for line in stale:
        print(line, file=sys.stderr)
    if list:
        print("\n".join(m.label for m in chosen))
    if stale or list or not chosen:
        return int(bool(stale) or not chosen)
    with tempfile.TemporaryDirectory(prefix="fastdp-mutation-") as scratch:
        outcomes = run(chosen, Path(scratch), jobs)
    report(outcomes)
    if output:
        lines = (f"{o.verdict}\t{o.mutation.area}\t{o.mutation.label}\t{o.by}\n" for o in outcomes)
        output.write_text("".join(lines))
    return int(any(o.verdict == "broken" for o in outcomes) or score(outcomes) < TARGET)


def run(chosen: list[Mutation], scratch: Path, jobs: int) -> list[Outcome]:
    """The outcome of each, in order; each worker has a copy of the checkout to itself."""
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copy = scratch / f"copy{number}"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        copies.put(copy)

    def attempt(mutation: Mutation, left_out: Sequence[str] = ()) -> Outcome:
        copy = copies.get()
        outcome = judge(mutation, copy, left_out)
        copies.put(copy)
        print(f"{outcome.verdict:8} {mutation.label}  {outcome.by}", flush=True)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(attempt, chosen))
    # A test that fails without any mutation says nothing about one.
    unfit: list[str] = []
    while killers := {o.by.partition("[")[0] for o in outcomes if o.by.startswith("tests/")}:
        more = [test for test in failures(pytest(sorted(killers), *[scratch / "copy0"] * 2)[1]) if test not in unfit]
        if not any(o.by in more for o in outcomes):
            break
        print(f"left out, as they fail without any mutation: {', '.join(more)}", flush=True)
        unfit += more
        outcomes = [attempt(o.mutation, unfit) if o.by in unfit else o for o in outcomes]
    return outcomes


def judge(mutation: Mutation, copy: Path, left_out: Sequence[str]) -> Outcome:
    """Plant, test, restore."""
    kernel = mutation.file.startswith("kernels/")
    deselected = [f"--deselect={test}" for test in left_out]
    with planted(mutation, copy), tempfile.TemporaryDirectory(dir=copy.parent) as cache:
        code, output = pytest(["-x", *deselected, *mutation.tests], copy, Path(cache) if kernel else copy)
    if code == PASSED:
        return Outcome(mutation, "survived", mutation.survives)
    if code == FAILED:
        return Outcome(mutation, "killed", failures(output)[0])
    # A signal, or an interrupt that a test throws and a mutation lets through; anything else is wrong in the table.
    if code is None or code < 0 or "KeyboardInterrupt" in output:
        return Outcome(mutation, "killed", "time limit" if code is None else f"exit code {code}")
    return Outcome(mutation, "broken", f"exit code {code}: {' '.join(output.split()[-20:])}")


def failures(output: str) -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)


@contextmanager
def planted(mutation: Mutation, copy: Path) -> Iterator[None]:
    path = copy / mutation.file
    before, compiled = path.read_text(), Path(cache_from_source(str(path)))
    try:
        path.write_text(mutation.plant(before))
        # Of the same second and size it would pass for that of the other text.
        compiled.unlink(missing_ok=True)
        yield
    finally:
        path.write_text(before)
        compiled.unlink(missing_ok=True)


def pytest(arguments: Sequence[str], copy: Path, cache: Path) -> tuple[int | None, str]:
    """Exit code (None: out of time) and output."""
    path = os.pathsep.join(map(str, (copy, copy / "kernels", copy / "lab")))
    own = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache / ".numba_cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *FULL_RUN, *arguments],
        cwd=copy, env={**os.environ, **own}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        # Children of the tests too.
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    return process.returncode, output


def score(outcomes: list[Outcome]) -> float:
    return sum(o.verdict == "killed" for o in outcomes) / len(outcomes)


def report(outcomes: list[Outcome]) -> None:
    """The score by area, and the survivors."""
    areas = {o.mutation.area: [p for p in outcomes if p.mutation.area == o.mutation.area] for o in outcomes}
    groups = {**areas, "all": outcomes}
    rows = [[area, len(mine), round(score(mine) * len(mine)), f"{score(mine):.1%}"] for area, mine in groups.items()]
    table("mutations", ["area", "planted", "killed", "%"], rows)
    others = [[o.mutation.label, o.verdict, o.by] for o in outcomes if o.verdict != "killed"]
    table("not killed", ["mutation", "", "reason"], others)


if __name__ == "__main__":
    sys.exit(call("mutation", main))
