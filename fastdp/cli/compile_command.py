"""``fastdp compile``: fill the cache of compiled kernels, for an image or a first call without waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

import fastdp_kernels
from fastdp.cli.errors import plain_errors

LENGTH = 2_000
BOUND = 50.0
SECRET = bytes(32)

EPILOG = """
\b
Examples
  fastdp compile
  fastdp compile adaptive totals
  fastdp compile --cache-dir /opt/fastdp-cache    (in a Dockerfile, before ENV NUMBA_CACHE_DIR=/opt/fastdp-cache)

A cache belongs to one kind of processor, one version of fastdp and one of Numba. For an image that runs on several
kinds, set NUMBA_CPU_NAME=generic while compiling and while running.
"""


def _stream(system: Literal["adaptive", "tops", "pak", "topl"]) -> Callable[[], object]:
    def run() -> object:
        import numpy as np

        import fastdp

        values = np.arange(LENGTH) % BOUND
        release = fastdp.release(values, 1.0, BOUND, system, seed=1)
        release.interval(0, 5)
        return release.range_sum(0, 5, retrospective=True)

    return run


def _adaptive() -> None:
    import numpy as np

    import fastdp

    _stream("adaptive")()
    fastdp.Adaptive(1.0, BOUND, threshold=20.0, season=16, seed=1).publish(np.arange(LENGTH) % BOUND)
    # Counts of events, which nothing bounds, have a pass of their own.
    release = fastdp.release(np.arange(LENGTH) % 5, 1.0, sensitivity=1.0, seed=1)
    release.interval(0, 5)
    release.range_sum(0, 5, retrospective=True)


def _tops() -> None:
    import numpy as np

    import fastdp
    from fastdp.perturbers import Hierarchy
    from fastdp.smoothers import Recent
    from fastdp.thresholds import NoisyMax

    _stream("tops")()
    # Into the caller's memory it writes by other kernels.
    parts: dict[str, Any] = {"threshold": 20.0, "perturber": Hierarchy(prune=1), "smoother": Recent()}
    publisher = fastdp.StreamPublisher(**parts, epsilon=1.0, bound=BOUND, max_range=256, seed=1)
    publisher.publish(np.arange(LENGTH) % BOUND, out=np.empty(LENGTH))
    # Whole numbers are read as they are.
    fastdp.StreamPublisher(**parts, epsilon=1.0, bound=BOUND, max_range=256, seed=1).release(np.arange(LENGTH))
    # A hold-out of many values a candidate has histograms of its own.
    parts["threshold"] = NoisyMax(step=BOUND / 8)
    coarse = fastdp.StreamPublisher(**parts, epsilon=1.0, bound=BOUND, max_range=256, holdout=LENGTH, seed=1)
    coarse.publish(np.arange(LENGTH) % BOUND)


def _phdstream() -> None:
    import fastdp
    from fastdp.spatial import Box

    points = [[0.1 * i, 0.1 * i] for i in range(10)] * 20
    for system in (fastdp.PHDStream, fastdp.AdaptivePHDStream):
        publisher = system(Box([0.0, 0.0], [1.0, 1.0]), epsilon=1.0, seed=1)
        publisher.step(points, points[:5])
        publisher.sample()
        publisher.count([[0.1, 0.1]], [[0.5, 0.5]])


def _totals() -> None:
    import numpy as np
    import pyarrow

    import fastdp

    hours = np.arange("2026-01-01", "2026-01-03", dtype="datetime64[h]").astype("datetime64[us]")
    table = pyarrow.table({"at": hours, "value": np.ones(hours.size)})
    private = fastdp.totals(table, "value", "at", "1h", epsilon=1.0, bound=BOUND, clip=5.0, seed=1)
    private.frame.validate()


def _fleet() -> None:
    import numpy as np

    import fastdp

    fleet = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=BOUND, threshold=20.0), key=SECRET)
    fleet.publish(np.arange(100), np.ones(100))
    counted = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, sensitivity=1.0), key=SECRET)
    counted.publish(np.arange(100), np.ones(100))


SYSTEMS: dict[str, Callable[[], object]] = {
    "adaptive": _adaptive,
    "tops": _tops,
    "pak": _stream("pak"),
    "topl": _stream("topl"),
    "phdstream": _phdstream,
    "totals": _totals,
    "fleet": _fleet,
}


@click.command("compile", epilog=EPILOG)
@click.argument("systems", nargs=-1, type=click.Choice(tuple(SYSTEMS)), metavar="[SYSTEM]...")
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where compiled kernels are kept, as the variable NUMBA_CACHE_DIR says it. Set the variable to DIR wherever "
    "fastdp is to find them.  [default: beside the installed sources, else the user's cache]",
)
def compile_kernels(systems: tuple[str, ...], cache_dir: Path | None) -> None:
    """Compile the kernels of SYSTEMs (all by default) now, so that no later call has to wait.

    SYSTEM is adaptive, tops, pak, topl, phdstream, totals or fleet. Each runs once on generated values.
    """
    if cache_dir is not None:
        # Numba reads it when it is imported, which nothing has done yet.
        os.environ["NUMBA_CACHE_DIR"] = str(cache_dir.absolute())
    compiled: list[str] = []
    folders: set[str] = set()

    def note(name: str, folder: str) -> None:
        compiled.append(name)
        folders.add(folder)

    fastdp_kernels.on_compile = note
    for name in systems or SYSTEMS:
        begin, before = time.perf_counter(), len(compiled)
        try:
            with plain_errors():
                SYSTEMS[name]()
        except ImportError as error:
            click.echo(f"{name:10} left out: {error.name} is not installed")
            continue
        click.echo(f"{name:10} {len(compiled) - before:3} kernels compiled, {time.perf_counter() - begin:.1f} s")
    if "" in folders:
        raise click.ClickException(
            "the compiled kernels could not be kept: no folder for them can be written. Give one: --cache-dir DIR."
        )
    for folder in sorted(folders):
        click.echo(f"Kept in {folder}")
