"""``python -m benchmarks fuzz [TARGET ...] [--seconds 180]``."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from benchmarks.fuzz.targets import TARGETS
from benchmarks.shared import call, table

#: Where files cost no disk, if there is such a place.
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
#: Megabytes: a reader that takes more of a small file is a finding of libFuzzer's own.
MEMORY = 3000
#: Seconds for one input.
TIMEOUT_SECONDS = 20


def main(
    targets: Annotated[Sequence[str], f"of {', '.join(TARGETS)} (default: all)"] = (),
    *,
    seconds: Annotated[int, "for each target"] = 180,
    seed: Annotated[int, "libFuzzer's"] = 1,
    corpus: Annotated[Path | None, "folder that keeps inputs between runs (default: none)"] = None,
    findings: Annotated[Path | None, "folder for findings (default: a temporary one)"] = None,
) -> None:
    """Run targets one after the other, and print a table."""
    if unknown := [name for name in targets if name not in TARGETS]:
        raise SystemExit(f"{unknown[0]!r} is no target: expected some of {', '.join(TARGETS)}")
    findings = findings or Path(tempfile.mkdtemp(prefix="fastdp-findings-"))
    findings.mkdir(parents=True, exist_ok=True)
    corpora = corpus or Path(tempfile.mkdtemp(prefix="fastdp-corpus-"))
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", f"-rss_limit_mb={MEMORY}"]
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None) as scratch:
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        rows = [run(name, limits, findings, corpora / name) for name in targets or TARGETS]
    columns = ["target", "executions", "a second", "edges covered", "inputs kept", "peak MB", "findings"]
    table(f"{seconds} s a target; findings in {findings}", columns, rows)


def run(name: str, limits: list[str], findings: Path, corpus: Path) -> list[object]:
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    command = [sys.executable, "-m", "benchmarks.fuzz.child", name, str(findings), str(corpus), *limits]
    command += [f"-timeout={TIMEOUT_SECONDS}", "-max_len=8192", "-print_final_stats=1"]
    command.append(f"-artifact_prefix={findings}/{name}-")
    output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    done = subprocess.run(command, text=True, errors="replace", check=False, **output)
    (findings / f"{name}.log").write_text(done.stderr)
    stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", done.stderr))
    edges = re.findall(r"cov: (\d+)", done.stderr)
    found = [json.loads(path.read_text())["where"] for path in sorted(findings.glob(f"{name}-*.json"))]
    if done.returncode:
        found.append(f"ended with {done.returncode}: see {name}.log")
    numbers = [stats.get("average_exec_per_sec"), edges[-1] if edges else None, len(list(corpus.iterdir()))]
    executions = int(stats.get("number_of_executed_units", 0))
    return [name, executions, *numbers, stats.get("peak_rss_mb"), "; ".join(found) or "none"]


if __name__ == "__main__":
    sys.exit(call("fuzz", main))
