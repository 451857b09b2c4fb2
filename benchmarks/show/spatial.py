"""PHDStream: errors, totals, errors by the number of batches, exact losses, speed and memory."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.show import spatial_accuracy, spatial_batches, spatial_losses, spatial_runs, spatial_speed
from benchmarks.streams import DATA
from benchmarks.timing import stay_on_one_core

PARTS = ("accuracy", "totals", "batches", "losses", "speed", "growth")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=20, help="releases of each kind, at least 2 (default 20)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real streams (default ../shared/data)")
    names = list(spatial_runs.SCENES)
    parser.add_argument("--streams", nargs="+", choices=names, metavar="NAME", default=names, help=", ".join(names))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which tables")
    parser.add_argument("--reference", type=Path, default=spatial_runs.PUBLISHED, help="the published code's figures")


def run(options: argparse.Namespace) -> None:
    if {"accuracy", "totals"} & set(options.only):
        published = spatial_runs.read_published(options.reference)
        spatial_accuracy.show(options.data, options.streams, options.runs, published, options.only)
    if "batches" in options.only:
        spatial_batches.show(options.data, options.streams, options.runs)
    if "losses" in options.only:
        spatial_losses.show(options.data, options.streams, options.runs)
    if {"speed", "growth"} & set(options.only):
        print(f"Process {stay_on_one_core()}.")
    if "speed" in options.only:
        spatial_speed.whole_runs(options.data, options.runs)
        spatial_speed.memory()
    if "growth" in options.only:
        spatial_speed.growth(5)
