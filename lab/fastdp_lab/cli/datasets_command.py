"""``fastdp datasets``: which data there are, on what terms, and how to get them."""

from __future__ import annotations

from pathlib import Path

import click

from fastdp.cli.errors import plain_errors


@click.command()
@click.option("--download", "name", metavar="NAME", help="Fetch one of the public files.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the files are kept.  [default: $FASTDP_DATA, or the user's cache folder]",
)
def datasets(name: str | None, folder: Path | None) -> None:
    """List the data sets that sweeps can run on: synthetic ones, and public ones with terms and sources."""
    with plain_errors():
        from fastdp_lab.datasets import catalogue

        if name is None:
            click.echo(_listed(folder or catalogue.cache_folder()))
            return
        path = catalogue.fetch(name, folder)
        table = catalogue.parse(name, path)
        for column, values in table.items():
            click.echo(
                f"{path}, {column}: {values.size:,} values, mean {values.mean():.6g}, largest {values.max():g}"
            )


def _listed(folder: Path) -> str:
    from fastdp.cli.summary import as_table
    from fastdp_lab.datasets import CATALOGUE, TABLE1

    lines = ["Synthetic (generator = ... in a specification):\n"]
    rows = [("dns_like_day", "a day of DNS queries per interval, bound 2,000")]
    for name, row in TABLE1.items():
        said = f"as ToPS Table 1: {row.length:,} values, bound {row.bound:,}, mean {row.mean:g}"
        rows.append((f'table1, stream = "{name}"', said))
    rows += [
        ("circles", "points on two circles that grow, or move from one to the other"),
        ("pickups", "pickups of a city, in New York's box"),
        ("check_ins", "check-ins in cities of the whole Earth, kept or taken back"),
    ]
    lines.append(as_table(rows))
    lines.append(f"\nPublic, fetched with --download NAME into {folder} (download = NAME in a specification):")
    for name, entry in CATALOGUE.items():
        bound = "none, points in the plane" if entry.bound is None else f"{entry.bound:,.0f}"
        here = "here" if (folder / entry.file).exists() else "not here"
        lines.append(f"\n{name} ({here})")
        lines.append(
            as_table(
                (
                    ("  what", entry.title),
                    ("  bound", bound),
                    ("  size", f"about {entry.megabytes:g} MB"),
                    ("  licence", entry.licence),
                    ("  source", entry.url or "by hand: its terms forbid copies"),
                    ("  described", entry.page),
                )
            )
        )
    return "\n".join(lines)
