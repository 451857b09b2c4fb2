"""``fastdp datasets``: which data there are, on what terms, and how to get them."""

from __future__ import annotations

from pathlib import Path

import click

from fastdp.cli.terminal import as_table, plain_errors

FOLDER = click.Path(path_type=Path)
KEPT = "Where the files are kept.  [default: $FASTDP_DATA, or the user's cache folder]"


@click.command()
@click.option("--download", "name", metavar="NAME", help="Fetch one of the public files.")
@click.option("-o", "--output", "folder", type=FOLDER, metavar="DIR", help=KEPT)
def datasets(name: str | None, folder: Path | None) -> None:
    """List the data sets that sweeps can run on: synthetic ones, and public ones with terms and sources."""
    with plain_errors():
        from fastdp_lab.datasets import catalogue

        if name is None:
            click.echo(_listed(folder or catalogue.cache_folder()))
            return
        path = catalogue.fetch(name, folder)
        for column, values in catalogue.parse(name, path).items():
            click.echo(
                f"{path}, {column}: {values.size:,} values, mean {values.mean():.6g}, largest {values.max():g}"
            )


def _listed(folder: Path) -> str:
    from fastdp_lab.datasets.catalogue import CATALOGUE, LISTED, TABLE1

    day, *points = LISTED["generator"].items()
    rows = [
        (f'table1, stream = "{name}"', f"as ToPS Table 1: {r.length:,} values, bound {r.bound:,}, mean {r.mean:g}")
        for name, r in TABLE1.items()
    ]
    lines = ["Synthetic (generator = ... in a specification):\n", as_table([day, *rows, *points])]
    lines.append(f"\nPublic, fetched with --download NAME into {folder} (download = NAME in a specification):")
    for name, entry in CATALOGUE.items():
        facts = {
            "what": entry.title,
            "bound": "none, points in the plane" if entry.bound is None else f"{entry.bound:,.0f}",
            "size": f"about {entry.megabytes:g} MB",
            "licence": entry.licence,
            "source": entry.url or "by hand: its terms forbid copies",
            "described": entry.page,
        }
        lines.append(f"\n{name} ({'here' if (folder / entry.file).exists() else 'not here'})")
        lines.append(as_table((f"  {key}", fact) for key, fact in facts.items()))
    return "\n".join(lines)
