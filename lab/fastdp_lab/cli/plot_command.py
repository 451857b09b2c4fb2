"""``fastdp plot``: draw a sweep from its files."""

from __future__ import annotations

from pathlib import Path

import click

from fastdp.cli.terminal import plain_errors

FOLDER = click.Path(path_type=Path)
PICTURES = "The folder of pictures; they replace those of the same name.  [default: DIR/figures]"


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("-o", "--output", type=FOLDER, metavar="OUT", help=PICTURES)
@click.option("--group", default="all", show_default=True, help="Which queries: all, or a length class.")
@click.option("--format", "formats", multiple=True, default=("png", "svg"), show_default=True)
def plot(folder: Path, output: Path | None, group: str, formats: tuple[str, ...]) -> None:
    """Draw the results of "fastdp bench": errors and thresholds against epsilon, streams over time.

    Lines are means over repetitions, bands their 95 % intervals.  A running sweep can be drawn too.
    """
    with plain_errors():
        from fastdp_lab.sweeps import draw

        for path in draw(folder, output or folder / "figures", group=group, formats=formats):
            click.echo(path)
