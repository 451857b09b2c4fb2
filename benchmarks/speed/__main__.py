"""``python -m benchmarks speed PART``: a part prints its tables; ``--json FILE`` keeps its numbers in a section."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from benchmarks.shared import DATA, Data, add_options, heading
from benchmarks.speed import measure

#: Groups of tasks: the module has ``groups(data)``, ``RUNS``, and ``more(data)`` if there are other tables.
TIMED = {
    "streams": "draws, consistency, thresholds, online pass, whole releases, beside NumPy, OpenDP and np.copyto",
    "latency": "one call of publish with one value and with 4,096: ToPS, Adaptive, PAK",
    "batch": "many short streams in one call, many repetitions of one release",
    "local": "ToPL: the EM, reports and messages a second",
    "spatial": "PHDStream: whole runs, memory",
    "tables": "totals of 10^7 rows from Parquet beside polars; of many text keys beside pandas and DuckDB",
    "files": "publishers made, integers, state files, the ledger, a CSV file; beside syncs, SQLite, parsers",
}
#: The others have ``run``, whose parameters are the options.
OTHERS = {
    "two_cores": "the same tasks twice at once, in two threads of one process",
    "start": "import, first release and memory in fresh processes",
    "fleets": "a fleet against the number of its streams, beside a dictionary of publishers",
    "growth": "a value's cost in streams of 10^5 to 10^9 values, the ledger's by its entries",
    "steps": "PHDStream: a step against points present and events in a batch",
    "engines": "Spark: totals of 10^8 rows beside its own group-by, streams beside its own shuffle and sort",
    "load": "1,000 publishers in one process: rates and memory",
    "summary": "tables of README.md and docs/speed.md from results/speed.json; prints all with targets and peers",
}


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    commands = parser.add_subparsers(dest="part", required=True)
    for name, summary in {**TIMED, **OTHERS}.items():
        part = commands.add_parser(name, help=summary, description=summary)
        # Only the module that runs is imported.
        if name in given[:1]:
            module = importlib.import_module(f"benchmarks.speed.{name}")
            run: Callable[..., Any] = timed(module) if name in TIMED else module.run
            add_options(part, run)
            part.add_argument("--json", type=Path, metavar="FILE", help="the file to put the numbers into")
    options = vars(parser.parse_args(given))
    name, path = options.pop("part"), options.pop("json")
    if name == "summary":
        return int(run(**options))
    command = heading("speed", given)
    run(**options)
    if path is not None:
        measure.write(path, name, command)
    return 0


def timed(module: Any) -> Callable[..., None]:
    """A function that times the groups of a module."""

    def run(
        *,
        runs: Annotated[int, "warm runs"] = module.RUNS,
        only: Annotated[str, "groups whose name has this text"] = "",
        data: Data = DATA,
    ) -> None:
        print(f"Process {measure.stay_on_one_core()}; {runs} warm runs, bursts of {measure.BURST} in turn.")
        for make in module.groups(data):
            group = make()
            if only in group.name:
                measure.measure(group, runs)
        if hasattr(module, "more") and not only:
            module.more(data)

    return run


if __name__ == "__main__":
    sys.exit(main())
