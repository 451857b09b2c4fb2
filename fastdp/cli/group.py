"""``fastdp``: the command that holds the others."""

from __future__ import annotations

import sys
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

import click

import fastdp_kernels
from fastdp._version import __version__
from fastdp.cli.compile_command import compile_kernels
from fastdp.cli.demo_command import demo
from fastdp.cli.ledger_command import ledger
from fastdp.cli.release_command import release
from fastdp.cli.synthesize_command import synthesize
from fastdp.cli.tables_command import counts, means, totals

EPILOG = """
\b
Example: the column "fare" of a file, no fare above 500, privacy loss 0.1 a trip
  fastdp release trips.parquet --column fare -o private.csv --epsilon 0.1 --bound 500

\b
Example: hourly totals of a table, with intervals and a picture
  fastdp totals meters.parquet --time time --every 1h --value kwh --epsilon 1 --bound 10 -o out.parquet --plot out.png

\b
Example: synthetic pickups for every six hours, in a public box of longitudes and latitudes
  fastdp synthesize pickups.csv.gz -o private --epsilon 1 --box -74.3 40.45 -73.65 40.95 --every 6h

\b
See it at work on synthetic data, no file needed:
  fastdp demo

"fastdp COMMAND --help" explains a command.
"""


class _Group(click.Group):
    """The commands of this package, and those that others add as entry points: the laboratory's."""

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group="fastdp.commands")}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in order."""
        return sorted({*self.commands, *self._added})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; fastdp's come first, so that an entry point cannot replace one."""
        if cmd_name in self.commands or cmd_name not in self._added:
            return super().get_command(ctx, cmd_name)
        command: click.Command = self._added[cmd_name].load()
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; one of the laboratory's whose libraries are missing names the extra."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or ctx.invoked_subcommand not in self._added:
                raise
            told = f"fastdp {ctx.invoked_subcommand} needs {error.name}, which is not installed"
            raise click.ClickException(f"{told}: pip install 'fastdp-streams[lab]'") from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="fastdp")
def main() -> None:
    """Publish data streams under differential privacy.

    fastdp reads a stream of numbers and writes a private stream: sums over ranges of it are close to the
    true sums, yet it reveals next to nothing about any single value. A table with times and keys
    becomes private totals, counts or means of windows, with error bars. Points in a plane that come and go become
    synthetic points that follow them.
    """
    if sys.stderr.isatty():
        fastdp_kernels.on_compile = _say_once


def _say_once(name: str, folder: str) -> None:
    """A line on the terminal before the first kernel is compiled."""
    fastdp_kernels.on_compile = None
    kept = "once on this machine" if folder else "in every process, for want of a folder that can be written"
    click.echo(f"fastdp compiles its kernels, {kept}; some seconds (fastdp compile does it beforehand).", err=True)


for command in (
    release,
    totals,
    counts,
    means,
    synthesize,
    demo,
    ledger,
    compile_kernels,
):
    main.add_command(command)
