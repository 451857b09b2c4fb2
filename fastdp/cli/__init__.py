"""The ``fastdp`` command line, whose commands load when they are called."""

from __future__ import annotations

import os
import sys
import tomllib
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import click

import fastdp_kernels
from fastdp._version import __version__

__all__ = ["main"]

#: Texts of the commands, and options that follow from no signature.
TEXTS = tomllib.loads((Path(__file__).parent / "help.toml").read_text("utf-8"))
#: Module and first sentence of each command.
COMMANDS = {name: (told["module"], told["about"]) for name, told in TEXTS["commands"].items()}


class _Group(click.Group):
    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group="fastdp.commands")}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *self._added})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command: click.Command | None = None
        if cmd_name in COMMANDS:
            command = getattr(import_module(f"fastdp.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        elif cmd_name in self._added:
            command = self._added[cmd_name].load()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        added = {name: self.get_command(ctx, name) for name in self._added if name not in COMMANDS}
        told = {name: sentence for name, (_, sentence) in COMMANDS.items()}
        told |= {name: command.get_short_help_str(80) for name, command in added.items() if command is not None}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(told.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; exit codes: Ctrl-C 130, a closed pipe 141."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Otherwise Python flushes standard output at its end, and complains.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            raise SystemExit(130) from None
        except ModuleNotFoundError as error:
            if error.name is None or ctx.invoked_subcommand not in self._added:
                raise
            told = f"fastdp {ctx.invoked_subcommand} needs {error.name}, which is not installed"
            raise click.ClickException(f"{told}: pip install 'fastdp-streams[lab]'") from None


def _configure(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    if path is not None:
        try:
            ctx.default_map = _by_name(main, ctx, tomllib.loads(path.read_text("utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            told = "nested too deeply" if isinstance(error, RecursionError) else error
            raise click.BadParameter(f"{path}: {told}", ctx, param) from None


def _by_name(command: click.Command, ctx: click.Context, table: dict[str, Any]) -> dict[str, Any]:
    options = {flag.lstrip("-"): each for each in command.params for flag in each.opts}
    found: dict[str, Any] = {}
    for name, value in table.items():
        inner = command.get_command(ctx, name) if isinstance(command, click.Group) else None
        if inner is not None and isinstance(value, dict):
            found[name] = _by_name(inner, ctx, value)
        elif isinstance(command, click.Group) or name not in options:
            kind = "a table named as a command" if isinstance(command, click.Group) else "an option without --"
            raise ValueError(f"{name}: expected {kind}, as --help lists them")
        else:
            found[str(options[name].name)] = _as_typed(options[name], name, value)
    return found


def _as_typed(option: click.Parameter, name: str, value: Any) -> Any:
    flag = isinstance(option, click.Option) and option.is_flag
    if flag != isinstance(value, bool) or isinstance(value, dict):
        raise ValueError(f"{name}: expected {'true or false' if flag else 'a number, a text or a list of them'}")
    if flag or option.nargs != 1:
        return value
    if isinstance(option, click.Option) and option.multiple:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, list) and any(isinstance(each, (list, dict)) for each in value):
        raise ValueError(f"{name}: expected a number, a text or a list of them")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=TEXTS["epilog"],
)
@click.version_option(__version__, prog_name="fastdp")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    callback=_configure,
    expose_value=False,
    help="A TOML file of options: a table for each command, such as [release] with epsilon = 0.1.",
)
def main() -> None:
    """Publish data streams under differential privacy.

    A stream of numbers becomes a private stream whose sums over ranges are close to the true ones. A table with times
    and keys becomes private totals, counts or means with error bars. Points that come and go become synthetic points
    that follow them.
    """
    if sys.stderr.isatty():
        fastdp_kernels.on_compile = _say_once


def _say_once(name: str, folder: str) -> None:
    fastdp_kernels.on_compile = None
    kept = "once on this machine" if folder else "in every process, for want of a folder that can be written"
    click.echo(f"fastdp compiles its kernels, {kept}; some seconds (fastdp compile does it beforehand).", err=True)
