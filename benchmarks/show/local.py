"""ToPL: error on real streams, the EM, reports a second, and the exact ratios of the reports' laws."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.show import local_accuracy, local_ratios, local_scales, local_speed, reference
from benchmarks.streams import DATA
from benchmarks.timing import BURST, stay_on_one_core

PARTS = ("accuracy", "scales", "em", "reports", "server", "ratios")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="simulations of each kind (default 10)")
    parser.add_argument("--timed", type=int, default=25, help="warm runs of each timed task (default 25)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")
    parser.add_argument("--streams", nargs="+", choices=list(local_accuracy.BOUNDS), metavar="NAME",
                        default=["POS", "DNS", local_accuracy.WIDE_DNS],
                        help=f"of the tables of errors, among {', '.join(local_accuracy.BOUNDS)}")  # fmt: skip
    parser.add_argument("--epsilons", nargs="+", type=float, default=local_accuracy.EPSILONS,
                        help="budgets of the users before the threshold")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    parser.add_argument("--no-peers", action="store_true", help="without careful NumPy, whose EM takes seconds")
    reference.add_option(parser)


def run(options: argparse.Namespace) -> None:
    print(f"Process {stay_on_one_core()}; {options.timed} warm runs of timed tasks, bursts of {BURST} in turn.")
    if "accuracy" in options.only:
        published = local_accuracy.tidy(reference.read(options.reference))
        for name in options.streams:
            local_accuracy.show(name, options.data, options.runs, options.epsilons, published)
    if "scales" in options.only:
        local_scales.show(options.data, options.epsilons, options.runs)
    if "em" in options.only:
        local_speed.estimates(options.timed, peers=not options.no_peers)
        local_speed.growth(options.timed)
    if "reports" in options.only:
        local_speed.reports(options.timed)
        local_speed.one_report()
    if "server" in options.only:
        local_speed.server(options.timed)
    if "ratios" in options.only:
        local_ratios.show()
