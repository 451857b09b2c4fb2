"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="For simulation only: reproducible noise, which anyone who guesses N can subtract. NOT PRIVATE.",
)
key_file_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A secret key of your own, 32 raw bytes or 64 hexadecimal digits in an owner-only file. "
    "Releases that differ in method, epsilon, any other parameter or --stream get independent noise under one key; "
    "the same parameters on the same values give the same output again. Never use one key with the same parameters "
    "for two inputs (two columns are two inputs: give each its --stream), nor for an input and an altered copy of "
    "it: methods with noise trees (tops, pak) would give equal noise to different values, which reveals their "
    "difference, and every method costs epsilon again. With --ledger a second use is refused.  "
    "[default: a fresh random key]",
)
state_option = click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Records key, options and a digest of the input, so that the same command can be run again after a crash "
    "and writes the same bytes. Another input is refused. Encrypted under the key of --key-file, if there is one; "
    "without, anyone who reads it can subtract the noise.",
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress bar and no summary.")
force_option = click.option("--force", is_flag=True, help="Replace an existing output.")
ledger_key_option = click.option(
    "--ledger-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key that seals the ledger, in the form of --key-file: 32 raw bytes or 64 hexadecimal digits, owner-only.",
)
_part_option = click.option(
    "--part",
    metavar="LABEL",
    help="Label of the part of the stream that IN holds, such as its day: budgets of different parts do not add "
    "up, so parts must be disjoint.  [default: IN may be any part of the stream]",
)
_LEDGER_OPTIONS = (
    click.option(
        "--ledger",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Record the release in this ledger, before the values are read: an error about them costs epsilon too.  "
        "The file must be there, unless --limit is given.",
    ),
    click.option(
        "--stream",
        metavar="NAME",
        help="Name of the stream: streams with different names get independent noise under one key, and in a ledger "
        "budgets are per stream.",
    ),
    _part_option,
    click.option(
        "--limit",
        type=float,
        metavar="E",
        help="Refuse, before anything is released, if the stream would then have cost more than this epsilon. "
        "A limit in the ledger (fastdp ledger limit) holds as well.",
    ),
    click.option("--limit-delta", type=float, metavar="D", help="The same for delta."),
    ledger_key_option,
)


def ledger_options(command: Callable[..., Any], *, parts: bool = True) -> Callable[..., Any]:
    """The options of :func:`fastdp.cli.budget.LedgerOptions`; windows of a table are no ``parts`` of a stream."""
    for option in reversed(_LEDGER_OPTIONS):
        command = option(command) if parts or option is not _part_option else command
    return command


def check_secrets(seed: int | None, key_file: Path | None) -> None:
    """A seed and a key exclude each other."""
    if seed is not None and key_file is not None:
        raise click.UsageError("--seed and --key-file exclude each other: simulation or release.")


def options_of(ctx: click.Context, method: str, users: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The options that a method has; others that were given although it has no use for them are refused.

    Parameters
    ----------
    ctx : click.Context
        Knows what was given.
    method : str
        Value of ``--method``.
    users : mapping of str to tuple of str
        Options that not every method has, and the methods that have them.
    """
    for name, methods in users.items():
        if method not in methods and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} does not apply to --method {method}.")
    return {name: ctx.params[name] for name, methods in users.items() if method in methods}
