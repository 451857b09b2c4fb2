"""Measures a commit for the history of a named machine: its own wheel, in the environment of asv.conf.json."""

import os
import re
import subprocess
import sys
from typing import Annotated

from benchmarks import ROOT
from benchmarks.shared import cpu_model
from benchmarks.tracking.compare import ONE_THREAD, git

#: Above this load numbers are not worth keeping.
MAX_LOAD = 1.0


def run(
    commit: Annotated[str, "what is measured"] = "main",
    *,
    busy: Annotated[bool, "measure although others are at work"] = False,
) -> int:
    if (load := os.getloadavg()[0]) > MAX_LOAD and not busy:
        raise SystemExit(
            f"load {load:.2g}: expected at most {MAX_LOAD:g}, since a history keeps its outliers (or --busy)"
        )
    # asv is needed by nothing else here.
    from asv.machine import Machine, MachineCollection

    # By processor and cores: machines of one kind share a history, and host names stay out of the repository.
    name = re.sub(r"[^a-z0-9]+", "-", f"{cpu_model()} {os.cpu_count()}".lower()).strip("-")
    MachineCollection.save(name, {**Machine.get_defaults(), "machine": name, "cpu": cpu_model()})
    command = [sys.executable, "-m", "asv", "run", f"{git('rev-parse', commit)}^!", "--machine", name]
    return subprocess.call(
        [*command, "--bench", "Quick", "--show-stderr"], cwd=ROOT, env={**os.environ, **ONE_THREAD}
    )
