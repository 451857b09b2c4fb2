"""``fastdp sweep``: run a specification, or estimate its cost."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fastdp.cli.terminal import as_table, plain_errors, seconds

FOLDER = click.Path(path_type=Path)
DATA = "The folder of the data sets' files.  [default: the specification's folder]"
MODE = "Kind of workers: threads share the data sets' memory; processes never wait for each other."
SCHEDULER = "Run on a cluster, on all its cores: the address of a Dask scheduler (tcp://HOST:8786)."


@click.command()
@click.argument("specification", type=FOLDER, metavar="SPEC.toml")
@click.option("-o", "--output", type=FOLDER, metavar="DIR", help="The folder of results.")
@click.option("--data", type=FOLDER, metavar="DIR", help=DATA)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Parts that run at once here.")
@click.option(
    "--mode", type=click.Choice(["threads", "processes"]), default="processes", show_default=True, help=MODE
)
@click.option("--scheduler", metavar="ADDRESS", help=SCHEDULER)
@click.option("--repetitions", type=click.IntRange(1), help="Overrides the specification's number.")
@click.option("--dry-run", is_flag=True, help="Check everything, and print the number of cells.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def sweep(
    specification: Path, output: Path | None, data: Path | None, repetitions: int | None, dry_run: bool, **how: Any
) -> None:
    """Run every cell of (data set, mechanism, epsilon, repetition) in SPEC.toml.

    After an interrupt the same command continues the sweep.  The results are the same for any number of workers.
    "fastdp plot DIR" draws them.
    """
    if output is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--output' (or --dry-run).")
    with plain_errors():
        from fastdp_lab.sweeps import check_data, cluster, read_specification, run
        from fastdp_lab.sweeps.specification import count_cells

        found, folder = read_specification(specification), specification.parent if data is None else data
        if repetitions is not None:
            found = replace(found, repetitions=repetitions)
        if dry_run or output is None:
            check_data(found, folder)
            click.echo(as_table([("cells", f"{count_cells(found):,}")]))
            return
        scheduler, bar = how.pop("scheduler"), not how.pop("quiet") and sys.stderr.isatty()
        with cluster(scheduler) if scheduler else nullcontext() as executor:
            run(found, output, data=folder, executor=executor, progress=bar, **how)
        click.echo(as_table(_summary(output)))


def _summary(folder: Path) -> list[tuple[str, str]]:
    from fastdp_lab.sweeps import load, read_manifest

    manifest, failed = read_manifest(folder), load(folder)["error"].dropna()
    return [
        ("cells", f"{manifest['cells']:,}"),
        ("failed", f"{len(failed):,}" + (f", the first: {failed.iloc[0]}" if len(failed) else "")),
        ("time", seconds(sum(each["seconds"] or 0.0 for each in manifest["sessions"]))),
        ("results", f"{folder / 'results.parquet'}"),
    ]
