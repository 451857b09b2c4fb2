"""How often ``asv continuous`` reports a change between two equal commits."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from asv._stats import is_different
from asv.results import iter_results_for_machine_and_hash
from numpy.typing import NDArray

from benchmarks import ROOT
from benchmarks.shared import table
from benchmarks.tracking.record import asv, describe_machine, git, machine_name

FACTORS = (1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
#: Name of a benchmark and its parameters, larger median over smaller, and whether asv's test tells the samples apart.
Found = tuple[str, float, bool]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=5, help="comparisons of the two commits (default 5)")
    parser.add_argument("--bench", default="Quick", help="regular expression of benchmarks (default Quick)")
    parser.add_argument("--in-turn", action="store_true", help="one commit after the other, not their rounds in turn")


def run(options: argparse.Namespace) -> None:
    name = machine_name()
    describe_machine(name)
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as folder:
        config, commits = twin(Path(folder))
        order = "--no-interleave-rounds" if options.in_turn else "--interleave-rounds"
        for _ in range(options.pairs):
            common = ("--config", str(config), "--machine", name, "--bench", options.bench)
            asv("continuous", *common, order, "--record-samples", "--factor", "1.1", *commits)
            found += compared(Path(folder) / "results", name, commits)
            shutil.rmtree(Path(folder) / "results")
    if not found:
        raise SystemExit("asv measured nothing: expected benchmarks that match --bench, and see its messages above")
    show(found)


def twin(folder: Path) -> tuple[Path, tuple[str, str]]:
    """A copy of the repository whose last commit changes nothing: asv's configuration, and both hashes."""
    repository = folder / "repository"
    git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(repository))
    place = ("-C", str(repository))
    git(*place, "checkout", "--quiet", "-B", "main")
    author = ("-c", "user.name=alarms", "-c", "user.email=alarms@localhost")
    git(*place, *author, "commit", "--quiet", "--allow-empty", "-m", "the same again")
    settings = json.loads((ROOT / "asv.conf.json").read_text())
    settings |= {
        "repo": str(repository),
        "benchmark_dir": str(ROOT / settings["benchmark_dir"]),
        "env_dir": str(ROOT / ".asv" / "alarms"),
        "results_dir": str(folder / "results"),
    }
    config = folder / "asv.conf.json"
    config.write_text(json.dumps(settings))
    return config, (git(*place, "rev-parse", "HEAD~"), git(*place, "rev-parse", "HEAD"))


def compared(results: Path, machine: str, commits: tuple[str, str]) -> list[Found]:
    """Every benchmark of both commits."""
    before, after = (next(iter_results_for_machine_and_hash(str(results), machine, each)) for each in commits)
    found = []
    for name in sorted(before.get_all_result_keys() & after.get_all_result_keys()):
        columns = []
        for one in (before, after):
            of = one.get_result_params(name)
            columns.append(
                (one.get_result_value(name, of), one.get_result_stats(name, of), one.get_result_samples(name, of))
            )
        for k, (first, second) in enumerate(zip(columns[0][0], columns[1][0], strict=True)):
            if first and second:
                told = is_different(columns[0][2][k], columns[1][2][k], columns[0][1][k], columns[1][1][k])
                found.append((f"{name} {k}", max(first, second) / min(first, second), bool(told)))
    return found


def share(chosen: NDArray[np.bool_]) -> str:
    return f"{chosen.sum()} ({chosen.mean():.1%})"


def show(found: list[Found]) -> None:
    ratios, told = np.array([each[1] for each in found]), np.array([each[2] for each in found])
    table(
        f"False alarms among {len(found)} comparisons of equal commits",
        ["factor", "further apart", "and told apart by asv's test (reported)"],
        [
            [
                f"{factor:g}",
                *(f"{part.sum()} ({part.mean():.1%})" for part in (ratios > factor, (ratios > factor) & told)),
            ]
            for factor in FACTORS
        ],
    )
    worst = sorted(found, key=lambda each: -each[1])[:5]
    print("furthest apart: " + "; ".join(f"{name} {ratio:.3f}" for name, ratio, _ in worst))
