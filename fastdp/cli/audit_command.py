"""``fastdp audit``: lower bounds on epsilon for every mechanism of the package, couplings, and twins to be caught."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastdp.cli.errors import plain_errors
from fastdp.files.atomic_file import atomic_file

if TYPE_CHECKING:
    from fastdp.auditing.couplings import Line as CouplingLine
    from fastdp.auditing.page import Line

WIDTHS = (42, 15, 6, 11, 10, 11, 7, 0)
COUPLING_WIDTHS = (24, 9, 16, 22, 8, 0)


@click.command()
@click.option(
    "--mechanism",
    metavar="NAME",
    default="all",
    show_default=True,
    help="One mechanism, or: all, shipped, broken, exact.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=100),
    metavar="N",
    help="At most so many runs on each input.  [default: each mechanism's usual number, up to 10,000,000]",
)
@click.option(
    "-o", "--output", "page", type=click.Path(path_type=Path), metavar="PAGE", help="Write a Markdown page as well."
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

    Runs mechanisms on adjacent inputs and bounds epsilon from below.  Mechanisms that are broken on purpose run too,
    with fewer trials first, until they are caught.  The exit code is 1 if a claim is refuted or a broken twin is not.

    Then, or with --couplings alone, all public outputs on adjacent inputs must be equal after a shift of the noise
    that costs at most epsilon.

    To audit a mechanism of your own use fastdp.audit in Python.
    """
    if couplings and (mechanism != "all" or trials is not None or page is not None or force):
        raise click.UsageError("--couplings goes with --only and --seed alone.")
    if only is not None and not couplings:
        raise click.UsageError("--only names a case of --couplings; for one mechanism give --mechanism.")
    with plain_errors():
        if couplings:
            run_couplings(only, seed)
        else:
            run_audit(mechanism, trials, page, force=force, seed=seed)


def run_audit(mechanism: str, trials: int | None, page: Path | None, *, force: bool, seed: int | None) -> None:
    """The audits; parameters as on the command line."""
    from fastdp.auditing.page import COLUMNS, cells, lines, markdown

    done: list[Line] = []
    for line in lines(mechanism, trials, seed):
        if not done:
            click.echo(_aligned(COLUMNS))
        done.append(line)
        click.echo(_aligned(cells(line)))
    coupled: list[CouplingLine] = list(_couplings(None, seed)) if mechanism == "all" else []
    if page is not None:
        options = [
            "" if mechanism == "all" else f" --mechanism {mechanism}",
            "" if trials is None else f" --trials {trials}",
            "" if seed is None else f" --seed {seed}",
        ]
        text = markdown(done, f"fastdp audit{''.join(options)} -o {page.name}", coupled)
        with atomic_file(page, overwrite=force) as file:
            file.write(text.encode())
    _complain([*done, *coupled])


def run_couplings(only: str | None, seed: int | None) -> None:
    """The couplings; parameters as on the command line."""
    _complain(list(_couplings(only, seed)))


def _couplings(only: str | None, seed: int | None) -> Iterator[CouplingLine]:
    """Couplings, each shown as soon as it is checked."""
    from fastdp.auditing.coupling_page import COLUMNS, cells, coupling_lines

    for number, line in enumerate(coupling_lines(only, seed)):
        if not number:
            click.echo(_aligned(COLUMNS, COUPLING_WIDTHS))
        click.echo(_aligned(cells(line), COUPLING_WIDTHS))
        yield line


def _complain(done: Sequence[Line | CouplingLine]) -> None:
    wrong = [f"{line.name} ({line.verdict.lower()})" for line in done if not line.as_it_should]
    if wrong:
        raise click.ClickException(f"not as it should be: {', '.join(wrong)}")


def _aligned(texts: tuple[str, ...], widths: tuple[int, ...] = WIDTHS) -> str:
    return "  ".join(
        text.ljust(width) if place in (0, len(widths) - 1) else text.rjust(width)
        for place, (text, width) in enumerate(zip(texts, widths, strict=True))
    ).rstrip()
