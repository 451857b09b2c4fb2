"""``fastdp compile``: fill the cache of compiled kernels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

import fastdp_kernels
from fastdp.cli import TEXTS
from fastdp.cli.terminal import plain_errors
from fastdp.streams import METHODS

SYSTEMS = (*METHODS, "phdstream", "totals", "fleet")
HELP = f"""Compile kernels now, so that no later call has to wait.

SYSTEM is {", ".join(SYSTEMS[:-1])} or {SYSTEMS[-1]}, by default all. Each runs once on generated values.
"""
LEVEL = "Compile for all processors of this level, beside the installed sources."


@click.command("compile", help=HELP, epilog=TEXTS["commands"]["compile"]["epilog"])
@click.argument("systems", nargs=-1, type=click.Choice(SYSTEMS), metavar="[SYSTEM]...")
@click.option("--level", type=click.Choice(["x86-64-v3", "x86-64-v4"]), help=LEVEL)
def compile(systems: tuple[str, ...], level: str | None) -> None:
    """Run each system once, and say what that compiled."""
    if level is not None:
        # Numba reads them when it is imported, which nothing has done yet.
        os.environ |= {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
        fastdp_kernels.ships = True
        from fastdp_kernels._caching import LEVELS, processor_has

        if not processor_has(*LEVELS[level]):
            raise click.ClickException(
                f"--level {level}: this processor is below it. Expected a machine that has it."
            )
    calls = first_calls()

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
                calls[name]()
        except ImportError:
            # Tables alone need an extra.
            click.echo(f"{name:10} left out; it needs: pip install 'fastdp-streams[tables]'")
            continue
        click.echo(f"{name:10} {len(compiled) - before:3} kernels compiled, {time.perf_counter() - begin:.1f} s")
    if "" in folders:
        raise click.ClickException(
            "the compiled kernels could not be kept: no folder for them can be written. Give one: NUMBA_CACHE_DIR."
        )
    for folder in sorted(folders):
        click.echo(f"Kept in {folder}")


def first_calls() -> dict[str, Callable[[], object]]:
    """Calls that compile all kernels of each system."""
    import numpy as np

    import fastdp
    from fastdp.perturbers import Blocks, Hierarchy
    from fastdp.points import Box
    from fastdp.smoothers import Mean, Recent
    from fastdp.thresholds import NoisyMax

    n, bound, secret = 2_000, 50.0, bytes(32)
    values = np.arange(n) % bound

    def ask(released: Any) -> None:
        released.interval(0, 5)
        released.revised.sum(0, 5)

    def adaptive() -> None:
        for season in (None, 16.0):
            fastdp.release(values, 1.0, bound, season=season, seed=1).interval(0, 5)
        ask(fastdp.Adaptive(1.0, bound, threshold=20.0, seed=1).release(values))
        fastdp.Adaptive(1.0, bound, threshold=20.0, perturber=Blocks(season=16), seed=1).publish(values)
        # Counts of events, which nothing bounds, have a pass of their own.
        fastdp.release(np.arange(n) % 5, 1.0, sensitivity=1.0, seed=1).interval(0, 5)

    def tops() -> None:
        method("ToPS")
        make = partial(fastdp.StreamPublisher, perturber=Hierarchy(prune=1), smoother=Recent(), epsilon=1.0)
        make = partial(make, bound=bound, max_range=256, seed=1)
        # Most smoothers take arrays of blocks; whole numbers are read as they are; a hold-out of many values a
        # candidate has histograms of its own.
        make(threshold=20.0, smoother=Mean()).publish(values)
        make(threshold=20.0).release(np.arange(n))
        make(threshold=NoisyMax(step=bound / 8), holdout=n).publish(values)

    def pak() -> None:
        ask(fastdp.PAK(1.0, 1.0 / n**2, bound, n, holdout=n // 4, seed=1).release(values))

    def method(kind: str) -> None:
        ask(getattr(fastdp, kind)(1.0, bound, n // 4, n - n // 4, seed=1).release(values))

    def phdstream() -> None:
        points = [[0.1 * i, 0.1 * i] for i in range(10)] * 20
        for system in (fastdp.PHDStream, fastdp.AdaptivePHDStream):
            publisher = system(Box([0.0, 0.0], [1.0, 1.0]), epsilon=1.0, seed=1)
            publisher.step(points, points[:5])
            publisher.sample()
            publisher.count([[0.1, 0.1]], [[0.5, 0.5]])

    def totals() -> None:
        import narwhals  # noqa: F401 - the command leaves tables out where one of the two is missing
        import pyarrow

        hours = np.arange("2026-01-01", "2026-01-03", dtype="datetime64[h]").astype("datetime64[us]")
        table = pyarrow.table({"at": hours, "value": np.ones(hours.size)})
        private = fastdp.totals(table, "value", "at", "1h", epsilon=1.0, bound=bound, clip=5.0, seed=1)
        private.frame.validate()

    def fleet() -> None:
        clipped, counted = fastdp.Adaptive(1.0, bound, threshold=20.0), fastdp.Adaptive(1.0, sensitivity=1.0)
        for publisher in (clipped, counted):
            fastdp.Fleet(publisher, key=secret).publish(np.arange(100), np.ones(100))
        fastdp.Fleet(clipped, key=secret).publish(["meter 17"], [1.0])

    # The other methods take what ToPS does, and have one way through their kernels.
    found: dict[str, Callable[[], object]] = {name: partial(method, kind) for name, kind in METHODS.items()}
    own = adaptive, tops, pak, phdstream, totals, fleet
    return found | {call.__name__: call for call in own}
