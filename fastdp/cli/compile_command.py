"""``fastdp compile``: fill the cache of compiled kernels, for an image or a first call without waiting."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

import fastdp_kernels
from fastdp.cli.errors import plain_errors
from fastdp.streams import METHODS

SYSTEMS = (*METHODS, "phdstream", "totals", "fleet")

EPILOG = """
\b
Examples
  fastdp compile
  fastdp compile adaptive totals
  fastdp compile --cache-dir /opt/fastdp-cache    (in a Dockerfile, before ENV NUMBA_CACHE_DIR=/opt/fastdp-cache)

A cache belongs to one kind of processor, one version of fastdp and one of Numba. For an image that runs on several
kinds, set NUMBA_CPU_NAME=generic while compiling and while running.
"""


@click.command("compile", epilog=EPILOG)
@click.argument("systems", nargs=-1, type=click.Choice(SYSTEMS), metavar="[SYSTEM]...")
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
    from fastdp.cli import first_calls

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
                first_calls.CALLS[name]()
        except ImportError:
            # Tables alone need an extra.
            click.echo(f"{name:10} left out; it needs: pip install 'fastdp-streams[tables]'")
            continue
        click.echo(f"{name:10} {len(compiled) - before:3} kernels compiled, {time.perf_counter() - begin:.1f} s")
    if "" in folders:
        raise click.ClickException(
            "the compiled kernels could not be kept: no folder for them can be written. Give one: --cache-dir DIR."
        )
    for folder in sorted(folders):
        click.echo(f"Kept in {folder}")
