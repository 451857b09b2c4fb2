"""``fastdp audit``: lower bounds on epsilon for the package's mechanisms, exact losses, and couplings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from fastdp.cli.errors import plain_errors
from fastdp.files.durable import atomic_file

if TYPE_CHECKING:
    from fastdp_lab.audit.couplings.check import Line as CouplingLine
    from fastdp_lab.audit.lines import Line

L = TypeVar("L", "Line", "CouplingLine")

WIDTHS = (30, 15, 6, 11, 10, 11, 7, 0)
COUPLING_WIDTHS = (20, 9, 16, 22, 8, 0)


@click.command()
@click.option(
    "--mechanism", metavar="NAME", default="all", show_default=True, help="One mechanism, or: all, shipped, exact."
)
@click.option(
    "--trials",
    type=click.IntRange(min=100),
    metavar="N",
    help="At most so many runs on each input.  [default: each mechanism's usual number, up to 10,000,000]",
)
@click.option(
    "-o",
    "--output",
    "page",
    type=click.Path(path_type=Path),
    metavar="PAGE",
    help="Write the tables as Markdown.",
)
@click.option("--force", is_flag=True, help="Replace the page if it exists.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="To repeat an audit.  [default: fresh randomness]"
)
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
        audits: list[Line] = [] if couplings else list(_audits(mechanism, trials, seed))
        coupled = list(_couplings(only, seed)) if couplings or mechanism == "all" else []
        if page is not None:
            from fastdp_lab.audit import lines
            from fastdp_lab.audit.couplings import check

            tables = [_markdown(lines.COLUMNS, audits), *([_markdown(check.COLUMNS, coupled)] if coupled else [])]
            with atomic_file(page, overwrite=force) as file:
                file.write("\n".join(["# Audit\n", "How to read it: docs/audit.md of fastdp.\n", *tables]).encode())
    done: list[Line | CouplingLine] = [*audits, *coupled]
    refuted = [f"{line.name} ({line.verdict})" for line in done if line.failed]
    if refuted:
        raise click.ClickException(f"claims refuted: {', '.join(refuted)}")


def _audits(mechanism: str, trials: int | None, seed: int | None) -> Iterator[Line]:
    """Audits, each shown when it is done."""
    from fastdp_lab.audit.lines import COLUMNS, lines

    yield from _shown(COLUMNS, lines(mechanism, trials, seed), WIDTHS)


def _couplings(only: str | None, seed: int | None) -> Iterator[CouplingLine]:
    """Couplings, each shown when it is checked."""
    from fastdp_lab.audit.couplings import coupling_lines
    from fastdp_lab.audit.couplings.check import COLUMNS

    yield from _shown(COLUMNS, coupling_lines(only, seed), COUPLING_WIDTHS)


def _shown(columns: tuple[str, ...], lines: Iterator[L], widths: tuple[int, ...]) -> Iterator[L]:
    for number, line in enumerate(lines):
        if not number:
            click.echo(_aligned(columns, widths))
        click.echo(_aligned(line.cells(), widths))
        yield line


def _aligned(texts: tuple[str, ...], widths: tuple[int, ...]) -> str:
    return "  ".join(
        text.ljust(width) if place in (0, len(widths) - 1) else text.rjust(width)
        for place, (text, width) in enumerate(zip(texts, widths, strict=True))
    ).rstrip()


def _markdown(columns: tuple[str, ...], lines: Sequence[Line | CouplingLine]) -> str:
    rows = columns, ("---",) * len(columns), *(line.cells() for line in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
