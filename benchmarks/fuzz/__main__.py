"""``python -m benchmarks fuzz [TARGET ...] [--seconds 180]``: runs targets one after the other and prints a table."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.fuzz.targets import TARGETS
from benchmarks.shared import heading, table

#: Where files cost no disk, if there is such a place.
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
#: Megabytes: a reader that takes more of a small file is a finding of libFuzzer's own.
MEMORY = 3000
#: Seconds for one input.
TIMEOUT_SECONDS = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=180, help="for each target (default 180)")
    parser.add_argument("--seed", type=int, default=1, help="libFuzzer's (default 1)")
    parser.add_argument("--corpus", type=Path, help="folder that keeps inputs between runs (default: none)")
    parser.add_argument("--findings", type=Path, help="folder for findings (default: a temporary one)")
    options = parser.parse_args()
    for name in options.targets:
        if name not in TARGETS:
            parser.error(f"{name!r} is no target: expected some of {', '.join(TARGETS)}")
    findings = options.findings or Path(tempfile.mkdtemp(prefix="fastdp-findings-"))
    findings.mkdir(parents=True, exist_ok=True)
    corpora = options.corpus or Path(tempfile.mkdtemp(prefix="fastdp-corpus-"))
    heading("fuzz", sys.argv[1:])
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None) as scratch:
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        rows = [run(name, options, findings, corpora / name) for name in options.targets or TARGETS]
    table(
        f"{options.seconds} s a target; findings in {findings}",
        ["target", "executions", "a second", "edges covered", "inputs kept", "peak MB", "findings"],
        rows,
    )
    return 0


def run(name: str, options: argparse.Namespace, findings: Path, corpus: Path) -> list[str]:
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={options.seconds}", f"-seed={options.seed}", f"-rss_limit_mb={MEMORY}"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz.child", name, str(findings), str(corpus), *limits,
         f"-timeout={TIMEOUT_SECONDS}", "-max_len=8192", "-print_final_stats=1",
         f"-artifact_prefix={findings}/{name}-"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
    )  # fmt: skip
    (findings / f"{name}.log").write_text(done.stderr)
    stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", done.stderr))
    edges = re.findall(r"cov: (\d+)", done.stderr)
    found = [json.loads(path.read_text())["where"] for path in sorted(findings.glob(f"{name}-*.json"))]
    if done.returncode:
        found.append(f"ended with {done.returncode}: see {name}.log")
    executions = int(stats.get("number_of_executed_units", 0))
    return [
        name,
        f"{executions:,}",
        stats.get("average_exec_per_sec", "-"),
        edges[-1] if edges else "-",
        f"{len(list(corpus.iterdir())):,}",
        stats.get("peak_rss_mb", "-"),
        "; ".join(found) or "none",
    ]


if __name__ == "__main__":
    sys.exit(main())
