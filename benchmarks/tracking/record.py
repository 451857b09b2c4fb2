"""Measures a commit for the history of a named machine: its own wheel, in the environment of asv.conf.json."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Annotated

from benchmarks import ROOT
from benchmarks.shared import cpu_model

#: One thread each, so that processor time is the time of one core.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
}

#: Above this load numbers are not worth keeping.
MAX_LOAD = 1.0


def asv(*arguments: str) -> int:
    """Run asv in the project's root."""
    return subprocess.call([sys.executable, "-m", "asv", *arguments], cwd=ROOT, env={**os.environ, **ONE_THREAD})


def git(*arguments: str) -> str:
    """Output of git in the project's root."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def machine_name() -> str:
    """Processor and cores: machines of one kind share a history, and host names stay out of the repository."""
    return re.sub(r"[^a-z0-9]+", "-", f"{cpu_model()} {os.cpu_count()}".lower()).strip("-")


def describe_machine(name: str) -> None:
    """Tell asv of the machine (``~/.asv-machine.json``)."""
    # asv is needed by nothing else here.
    from asv.machine import Machine, MachineCollection

    MachineCollection.save(name, {**Machine.get_defaults(), "machine": name, "cpu": cpu_model()})


def run(
    commit: Annotated[str, "what is measured"] = "main",
    *,
    bench: Annotated[str, "regular expression of benchmarks"] = "Quick",
    busy: Annotated[bool, "measure although others are at work"] = False,
    machine: Annotated[str, "its name in the history"] = machine_name(),
) -> int:
    load = os.getloadavg()[0]
    if load > MAX_LOAD and not busy:
        raise SystemExit(
            f"load {load:.2g}: expected at most {MAX_LOAD:g}, since a history keeps its outliers (or --busy)"
        )
    describe_machine(machine)
    return asv("run", f"{git('rev-parse', commit)}^!", "--machine", machine, "--bench", bench, "--show-stderr")
