"""``python -m benchmarks speed PART``: a part prints its tables; ``--json FILE`` keeps its numbers in a section."""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from benchmarks.shared import DATA, Data, add_options, heading, parts
from benchmarks.speed import measure


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    commands = parser.add_subparsers(dest="part", required=True)
    # Modules of tasks have ``groups(data)``, ``RUNS``, and ``more(data)`` if there are other tables.
    for name, summary in (parts("speed", "groups") | parts("speed")).items():
        part = commands.add_parser(name, help=summary, description=summary)
        # Only the module that runs is imported.
        if name in given[:1]:
            module = importlib.import_module(f"benchmarks.speed.{name}")
            run: Callable[..., Any] = module.run if hasattr(module, "run") else timed(module)
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
