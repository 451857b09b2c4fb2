"""Options that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

Decorator = Callable[[Any], Any]
_TYPES: dict[str, Any] = {
    "": str,
    "int": int,
    "float": float,
    "from0": click.IntRange(min=0),
    "from1": click.IntRange(min=1),
    "path": click.Path(path_type=Path),
    "file": click.Path(path_type=Path, exists=True, dir_okay=False),
}


def declared(text: str, **more: dict[str, Any]) -> tuple[Decorator, ...]:
    """Options as they are listed: each begins a line with its flags, then two spaces and its help.

    Between flags and help stand ``METAVAR:type`` or ``(a|b)``, ``as`` with the argument's name, ``required`` or
    ``multiple``, and ``=`` with the default.  With flags alone it is on or off.

    Parameters
    ----------
    text : str
        The list.
    more : dict
        Further arguments of :func:`click.option`, by the argument's name.
    """
    options = []
    for listed in re.split(r"\n(?=-)", text.strip()):
        head, _, told = re.sub(r"\n +", " ", listed).partition("  ")
        flags, *words = head.split()
        names, rest = flags.split("/"), iter(words)
        given: dict[str, Any] = {"help": re.sub(r" +(?=\[default)", "  ", told)}
        if not words:
            given["is_flag"] = True
        for word in rest:
            if word == "=":
                given |= {"default": given.get("type", str)(next(rest)), "show_default": True}
            elif word == "as":
                names.append(next(rest))
            elif word in ("required", "multiple"):
                given[word] = True
            elif word[0] == "(":
                given["type"] = click.Choice(word[1:-1].split("|"))
            else:
                metavar, _, kind = word.partition(":")
                given |= {"metavar": metavar or None, "type": _TYPES[kind]}
        name = names[-1].lstrip("-").replace("-", "_")
        options.append(click.option(*names, **{**given, **more.get(name, {})}))
    return tuple(options)


def with_options(options: Iterable[Decorator]) -> Decorator:
    """All of them, in their order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(list(options)):
            function = option(function)
        return function

    return decorate


seed_option, key_file_option, state_option, quiet_option, force_option, ledger_key_option = declared("""
--seed N:from0  For simulation only: reproducible noise, which anyone who guesses N can subtract. NOT PRIVATE.
--key-file FILE:path  A secret key of your own, 32 raw bytes or 64 hexadecimal digits in an owner-only file. Releases
    that differ in method, epsilon, any other parameter or --stream get independent noise under one key; the same
    parameters on the same values give the same output again. Never use one key with the same parameters for two
    inputs (two columns are two inputs: give each its --stream), nor for an input and an altered copy of it: methods
    with noise trees (tops, pak) would give equal noise to different values, which reveals their difference, and every
    method costs epsilon again. With --ledger a second use is refused.  [default: a fresh random key]
--state FILE:path  Records key, options and a digest of the input, so that the same command can be run again after a
    crash and writes the same bytes. Another input is refused. Encrypted under the key of --key-file, if there is one;
    without, anyone who reads it can subtract the noise.
--quiet  No progress bar and no summary.
--force  Replace an existing output.
--ledger-key-file FILE:path  Key that seals the ledger, in the form of --key-file: 32 raw bytes or 64 hexadecimal
    digits, owner-only.
""")
_LEDGER = declared("""
--ledger FILE:path  Record the release in this ledger, before the values are read: an error about them costs epsilon
    too.  The file must be there, unless --limit is given.
--stream NAME  Name of the stream: streams with different names get independent noise under one key, and in a ledger
    budgets are per stream.
--part LABEL  Label of the part of the stream that IN holds, such as its day: budgets of different parts do not add
    up, so parts must be disjoint.  [default: IN may be any part of the stream]
--limit E:float  Refuse, before anything is released, if the stream would then have cost more than this epsilon. A
    limit in the ledger (fastdp ledger limit) holds as well.
--limit-delta D:float  The same for delta.
""")
#: The options of :class:`fastdp.cli.budget.LedgerOptions`.
ledger_options = (*_LEDGER, ledger_key_option)
#: Without ``--part``: windows of a table are no parts of a stream.
table_ledger_options = tuple(option for k, option in enumerate(ledger_options) if k != 2)


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
