"""``fastdp audit``: lower bounds on epsilon for the package's mechanisms, exact losses, and couplings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastdp.cli.terminal import plain_errors

if TYPE_CHECKING:
    from fastdp_lab.audit.lines import Jobs, Line


MECHANISM = "One mechanism, or: all, shipped, exact."
TRIALS = "At most so many runs on each input.  [default: each mechanism's usual number, up to 10,000,000]"
SEED = "To repeat an audit.  [default: fresh randomness]"
PAGE = click.Path(path_type=Path)


@click.command()
@click.option("--mechanism", metavar="NAME", default="all", show_default=True, help=MECHANISM)
@click.option("--trials", type=click.IntRange(min=100), metavar="N", help=TRIALS)
@click.option("-o", "--output", "page", type=PAGE, metavar="PAGE", help="Write the tables as Markdown.")
@click.option("--force", is_flag=True, help="Replace the page if it exists.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help=SEED)
@click.option("--couplings", is_flag=True, help="Couplings alone: proofs, instance by instance.")
@click.option("--only", metavar="NAME", help="With --couplings: one case.  [default: all]")
def audit(
    mechanism: str,
    trials: int | None,
    page: Path | None,
    force: bool,
    seed: int | None,
    couplings: bool,
    only: str | None,
) -> None:
    """Try to refute the guarantees of this package.

    Runs mechanisms on adjacent inputs and bounds epsilon from below.  Then, or with --couplings alone, compares all
    public outputs on adjacent inputs after a shift of the noise that costs at most epsilon.  The exit code is 1 if a
    claim is refuted.

    To audit a mechanism of your own use fastdp.audit in Python.  How to read the results: docs/audit.md.
    """
    if couplings and (mechanism != "all" or trials is not None or page is not None or force):
        raise click.UsageError("--couplings goes with --only and --seed alone.")
    if only is not None and not couplings:
        raise click.UsageError("--only names a case of --couplings; for one mechanism give --mechanism.")
    with plain_errors():
        from fastdp.state.atomic_files import atomic_file
        from fastdp_lab.audit.lines import shipped
        from fastdp_lab.audit.runs import TABLES_INSTALLED

        if not TABLES_INSTALLED:
            click.echo("Tables are left out; they need: pip install 'fastdp-streams[tables]'", err=True)

        jobs = shipped(trials, seed)
        proofs = {"couplings": jobs.pop("couplings")}
        tables = [] if couplings else [list(_shown(jobs, "mechanism", mechanism))]
        if couplings or mechanism == "all":
            tables.append(list(_shown(proofs, "only", only or "all")))
        if page is not None:
            with atomic_file(page, overwrite=force) as file:
                parts = ["# Audit\n", "How to read it: docs/audit.md of fastdp.\n", *map(_markdown, tables)]
                file.write("\n".join(parts).encode())
    refuted = [f"{line.name} ({line.verdict})" for table in tables for line in table if line.failed]
    if refuted:
        raise click.ClickException(f"claims refuted: {', '.join(refuted)}")


def _shown(jobs: Jobs, option: str, name: str) -> Iterator[Line]:
    """Lines, each shown when it is done."""
    from fastdp_lab.audit.lines import lines

    for number, line in enumerate(lines(jobs, option, name)):
        for cells in (line.columns, line.cells) if not number else (line.cells,):
            last = len(cells) - 1
            widths = (30, *(max(10, len(column)) for column in line.columns[1:-1]), 0)
            texts = (
                text.ljust(width) if place in (0, last) else text.rjust(width)
                for place, (text, width) in enumerate(zip(cells, widths, strict=True))
            )
            click.echo("  ".join(texts).rstrip())
        yield line


def _markdown(table: list[Line]) -> str:
    rows = table[0].columns, ("---",) * len(table[0].columns), *(line.cells for line in table)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
