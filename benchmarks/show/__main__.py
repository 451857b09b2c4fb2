"""``python -m benchmarks.show TABLE``."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from pathlib import Path

from benchmarks import records
from benchmarks.show import report

TABLES = {
    "speed": "throughput and latency beside NumPy, OpenDP and np.copyto",
    "two_cores": "the same tasks twice at once, in two threads of one process",
    "latency": "one value and a chunk of 4,096, ToPS, Adaptive and PAK",
    "batch": "many short streams in one call, many repetitions of one release",
    "start": "import, first call and memory in fresh processes",
    "accuracy": "ToPS on real streams beside the published code",
    "methods": "every method of ToPS section 5 on POS beside the published code",
    "thresholds": "ways to choose theta under one hierarchy, on every real stream",
    "scale_free": "the threshold without units beside the best theta and NM-E, on every stream",
    "local": "ToPL: error on real streams, EM, reports a second, exact ratios",
    "spatial": "PHDStream: errors and totals beside the published code, exact losses, speed, growth, memory",
    "figures": "ToPS Figures 3, 4, 5, 7 and 8 beside the published code, as pictures",
    "variance": "noise variance of random ranges beside the paper's figure",
    "chisquare": "discrete Laplace draws against the exact law",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one table; each module of this package adds its own options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.show", description=__doc__)
    commands = parser.add_subparsers(dest="table", required=True)
    given = sys.argv[1:] if arguments is None else arguments
    for name, summary in TABLES.items():
        command = commands.add_parser(name, help=summary, description=summary)
        # Only the module that runs is loaded.
        if name in given[:1]:
            importlib.import_module(f"benchmarks.show.{name}").add_options(command)
            command.add_argument("--json", type=Path, metavar="FILE", help="a summary to put the numbers into")
    options = parser.parse_args(given)
    report.heading(given)
    importlib.import_module(f"benchmarks.show.{options.table}").run(options)
    if options.json is not None:
        records.write(options.json, options.table, f"python -m benchmarks.show {shlex.join(given)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
