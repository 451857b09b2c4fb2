"""``fastdp bench``: run suites or a specification of one's own, and write their pages."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fastdp.cli.terminal import as_table, plain_errors, seconds

FOLDER = click.Path(path_type=Path)
DATA = "A folder with files of data sets; real streams there take the place of synthetic ones.  [default: SPEC's]"
MODE = "Kind of workers: threads share the data sets' memory; processes never wait for each other."
SCHEDULER = "Run on a cluster, on all its cores: the address of a Dask scheduler (tcp://HOST:8786)."


@click.command()
@click.argument("specification", type=FOLDER, metavar="[SPEC.toml]", required=False)
@click.option("--suite", metavar="NAME", help="Run a suite of --list instead of a specification.")
@click.option("--list", "listed", is_flag=True, help="Print the suites.")
@click.option("-o", "--output", type=FOLDER, metavar="DIR", help="The folder of results.")
@click.option("--data", type=FOLDER, metavar="DIR", help=DATA)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Parts that run at once here.")
@click.option(
    "--mode", type=click.Choice(["threads", "processes"]), default="processes", show_default=True, help=MODE
)
@click.option("--scheduler", metavar="ADDRESS", help=SCHEDULER)
@click.option("--repetitions", type=click.IntRange(1), help="Overrides the specification's number.")
@click.option("--quick", is_flag=True, help="Fewer repetitions and budgets: the shape.")
@click.option("--archive", is_flag=True, help="Also write DIR.zip: results, pages and their digests.")
@click.option("--dry-run", is_flag=True, help="Check everything, and print the number of cells.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def bench(specification: Path | None, suite: str | None, listed: bool, output: Path | None, **options: Any) -> None:
    """Run mechanisms on streams with budgets and seeds, and write tables and pictures to DIR/index.html.

    After an interrupt the same command goes on.  The results are the same for any number of workers.
    """
    if not listed and (specification is None) == (suite is None):
        raise click.UsageError("expected SPEC.toml, or --suite NAME, or --list")
    if output is None and not options["dry_run"] and not listed:
        raise click.UsageError("Missing option '-o' / '--output' (or --dry-run).")
    with plain_errors():
        from fastdp_lab import suites

        if listed:
            click.echo(as_table(list(suites.names().items())))
            return
        data, quick = options.pop("data"), options.pop("quick")
        if suite is not None:
            chosen = suites.of_name(suite, data=data, quick=quick)
        else:
            assert specification is not None  # noqa: S101
            data = specification.parent if data is None else data
            chosen = [suites.from_file(specification, data=data, quick=quick)]
        _run(chosen, suite, output, data or Path(), **options)


def _run(
    chosen: list[Any],
    together: str | None,
    output: Path | None,
    data: Path,
    *,
    repetitions: int | None,
    dry_run: bool,
    archive: bool,
    scheduler: str | None,
    quiet: bool,
    **how: Any,
) -> None:
    from fastdp_lab.sweeps import check_data, cluster, page, run, timed
    from fastdp_lab.sweeps.specification import count_cells

    if repetitions is not None:
        found = (replace(each.specification, repetitions=repetitions) for each in chosen)
        chosen = [replace(each, specification=own) for each, own in zip(chosen, found, strict=True)]
    if dry_run or output is None:
        for each in chosen:
            check_data(each.specification, data)
        click.echo(as_table([("cells", f"{sum(count_cells(each.specification) for each in chosen):,}")]))
        return
    alone, bar = len(chosen) == 1, not quiet and sys.stderr.isatty()
    for each in chosen:
        folder = output if alone else output / each.name
        with cluster(scheduler) if scheduler else nullcontext() as executor:
            run(each.specification, folder, data=data, executor=executor, progress=bar, **how)
        click.echo(as_table(_summary(folder)))
        page.write_page(folder, each, {} if each.claims else timed(each.specification, data))
        click.echo(folder / page.PAGE)
    if not alone:
        click.echo(page.write_index(output, f"Suite {together}", chosen))
    if archive:
        click.echo(page.write_archive(output))


def _summary(folder: Path) -> list[tuple[str, str]]:
    from fastdp_lab.sweeps import load, read_manifest

    manifest, failed = read_manifest(folder), load(folder)["error"].dropna()
    return [
        ("cells", f"{manifest['cells']:,}"),
        ("failed", f"{len(failed):,}" + (f", the first: {failed.iloc[0]}" if len(failed) else "")),
        ("time", seconds(sum(each["seconds"] or 0.0 for each in manifest["sessions"]))),
        ("results", f"{folder / 'results.parquet'}"),
    ]
