"""``fastdp sweep``: run a specification, or estimate its cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastdp.cli.errors import plain_errors

if TYPE_CHECKING:
    from fastdp_lab.sweeps import Specification


@click.command()
@click.argument("specification", type=click.Path(path_type=Path), metavar="SPEC.toml")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="The folder of results.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of the data sets' files.  [default: the specification's folder]",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Parts that run at once.  [default: 1; with --scheduler the cluster's cores]",
)
@click.option(
    "--mode",
    type=click.Choice(["threads", "processes"]),
    default="processes",
    show_default=True,
    help="Kind of workers: threads share the data sets' memory; processes, of which this is one, never wait for each "
    "other.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run on a cluster: the address of a Dask scheduler (tcp://HOST:8786), or of a Ray head (ray:HOST:6379).",
)
@click.option("--repetitions", type=click.IntRange(1), help="Overrides the specification's number.")
@click.option("--dry-run", is_flag=True, help="Check, time a sample, and print cells, time and size.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def sweep(
    specification: Path,
    output: Path | None,
    data: Path | None,
    workers: int | None,
    mode: str,
    scheduler: str | None,
    repetitions: int | None,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Run every cell of (data set, mechanism, epsilon, repetition) in SPEC.toml.

    After an interrupt the same command continues the sweep.  The results are the same for any number of workers.
    "fastdp plot DIR" draws them.
    """
    if output is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output' (or --dry-run).")
    with plain_errors():
        from dataclasses import replace

        from fastdp_lab.sweeps import read_specification, run

        found = read_specification(specification)
        if repetitions is not None:
            found = replace(found, repetitions=repetitions)
        folder = specification.parent if data is None else data
        if dry_run or output is None:
            _say_estimate(found, folder, workers or 1)
            return
        with _executor(scheduler) as (executor, cores):
            run(
                found,
                output,
                data=folder,
                workers=workers or cores,
                mode=mode,
                executor=executor,
                progress=not quiet and sys.stderr.isatty(),
            )
        click.echo(_summary(output))


def _say_estimate(specification: Specification, folder: Path, workers: int) -> None:
    from fastdp.cli.summary import as_table, seconds
    from fastdp_lab.sweeps import estimate

    found = estimate(specification, folder)
    rows = (
        ("cells", f"{found.cells:,}"),
        ("rows", f"{found.rows:,}"),
        ("parts", f"{found.parts:,}"),
        ("time", f"{seconds(found.seconds)} of one worker, {seconds(found.seconds / found.cells)} a cell"),
        (f"with {workers}", f"{seconds(found.seconds / workers)} at best"),
        ("size", f"at most {found.table_bytes / 1e6:,.1f} MB, and {found.most_bytes / 1e6:,.1f} MB on the way"),
    )
    click.echo(as_table(rows))


@contextmanager
def _executor(scheduler: str | None) -> Iterator[tuple[Executor | None, int | Callable[[], int]]]:
    if scheduler is None:
        yield None, 1
        return
    from fastdp_lab.sweeps.cluster import cluster_executor

    with cluster_executor(scheduler) as found:
        yield found


def _summary(folder: Path) -> str:
    from fastdp.cli.summary import as_table, seconds
    from fastdp_lab.sweeps import load, read_manifest

    manifest, table = read_manifest(folder), load(folder)
    failed = [error for error in table["error"] if isinstance(error, str)]
    spent = sum(each["seconds"] or 0.0 for each in manifest["sessions"])
    rows = [
        ("cells", f"{manifest['cells']:,}"),
        ("failed", f"{len(failed):,}" + (f", the first: {failed[0]}" if failed else "")),
        ("time", seconds(spent)),
        ("results", f"{folder / 'results.parquet'}"),
    ]
    return as_table(rows)
