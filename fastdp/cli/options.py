"""Options of commands: types, defaults and help follow from the classes that a command calls.

A listed option that is a parameter of such a class, or one of :data:`SHARED`, needs only its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
from click.core import ParameterSource

import fastdp
from fastdp.kinds import Json
from fastdp.record import Choice, meanings, parameters

F = TypeVar("F", bound=Callable[..., object])
#: The class or function of each method of a command; "" stands for the only one.
Methods = Mapping[str, Callable[..., Any]]
_TYPES: Json = {
    "": str,
    "str": str,
    "int": int,
    "float": float,
    "from0": click.IntRange(min=0),
    "from1": click.IntRange(min=1),
    "path": click.Path(path_type=Path),
    "file": click.Path(path_type=Path, exists=True, dir_okay=False),
}
_SAME = re.compile(r"As for :\w+:`(?:fastdp\.)?(\w+)`")

#: Options of several commands.
SHARED = """
--seed N:from0  For simulation only: reproducible noise, which anyone who guesses N can subtract. NOT PRIVATE.
--key-file FILE:path  A secret key of your own, 32 raw bytes or 64 hexadecimal digits in an owner-only file. Under one
    key releases that differ in method, a parameter or --stream get independent noise, and equal ones equal noise.
    Never use one key with the same parameters for two inputs (give two columns each its --stream), nor for an input
    and an altered copy of it: equal noise may reveal their difference (tops, pak), and costs epsilon again. With
    --ledger a second use is refused.  [default: a fresh random key]
--state FILE:path  Records key, options and a digest of the input, so that the same command can be run again after a
    crash and writes the same bytes. Another input is refused. Encrypted under the key of --key-file, if there is one;
    without, anyone who reads it can subtract the noise.
--quiet  No progress bar and no summary.
--force  Replace an existing output.
--ledger FILE:path  Record the release in this ledger, before the values are read: an error about them costs epsilon
    too.  The file must be there, unless --limit is given.
--stream NAME  Name of the stream: streams with different names get independent noise under one key, and in a ledger
    budgets are per stream.
--part LABEL  Label of the part of the stream that IN holds, such as its day: budgets of different parts do not add
    up, so parts must be disjoint.  [default: IN may be any part of the stream]
--limit E:float  Refuse, before anything is released, if the stream would then have cost more than this epsilon. A
    limit in the ledger (fastdp ledger limit) holds as well.
--limit-delta D:float  The same for delta.
--ledger-key-file FILE:path  Key that seals the ledger, in the form of --key-file: 32 raw bytes or 64 hexadecimal
    digits, owner-only.
"""


class _Decorator(Protocol):
    def __call__(self, function: F, /) -> F: ...


def with_options(
    listed: str, methods: Methods | None = None, records: tuple[Callable[..., Any], ...] = (), **more: Json
) -> _Decorator:
    """A decorator that adds the listed options; a line has flags, two spaces and help.

    Between come ``METAVAR:type`` or ``(a|b)``, ``as`` with the argument's name, ``required`` or ``multiple``, ``=``
    with the default; only help makes a switch.  Flags alone: declared as fields of ``records``, else parameters of
    ``methods``.  ``more``: arguments of :func:`click.option`.
    """
    entries = list(_parse_options(listed))
    shared = {name: given for _, name, given in _parse_options(SHARED)} if listed is not SHARED else {}
    names = {name for _, name, _ in entries}

    def decorate(function: F) -> F:
        for flags, name, own in reversed(entries):
            declared, owners = ({}, "") if name in shared else _declared(name, methods or {}, records, names)
            given = {**shared.get(name, {}), **declared, **own, **more.get(name, {})}
            if not given.keys() - {"help"}:
                given["is_flag"] = True
            told, *default = re.split(r" +(?=\[default)", given["help"])
            given["help"] = "  ".join([told, *([owners] if owners else []), *default])
            function = click.option(*flags, name, **given)(function)
        return function

    return decorate


def _parse_options(listed: str) -> Iterator[tuple[list[str], str, Json]]:
    """Parse a text for :func:`with_options`: flags, name, and :func:`click.option` arguments of each option."""
    for entry in re.split(r"\n(?=-)", listed.strip()):
        head, _, told = re.sub(r"\n +", " ", entry).partition("  ")
        flags, *words = head.split()
        if not told and all(word.startswith("--") for word in words):
            yield from (([flag], _name(flag), {}) for flag in (flags, *words))
            continue
        name, rest = flags.split("/")[-1], iter(words)
        given: Json = {"help": told} if told else {}
        for word in rest:
            if word == "=":
                given |= {"default": given.get("type", str)(next(rest)), "show_default": True}
            elif word == "as":
                name = next(rest)
            elif word in ("required", "multiple"):
                given[word] = True
            elif word[0] == "(":
                given["type"] = click.Choice(word[1:-1].split("|"))
            else:
                metavar, _, kind = word.partition(":")
                given |= {"metavar": metavar or None, "type": _TYPES[kind]}
        # A flag and its opposite stay one word, which click tells apart.
        yield [flags] if "/--no-" in flags else flags.split("/"), _name(name), given


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


@cache
def _parameters(method: Callable[..., object]) -> Mapping[str, Parameter]:
    return signature(method).parameters


def _declared(
    name: str, methods: Methods, records: tuple[Callable[..., Any], ...], names: set[str]
) -> tuple[Json, str]:
    """Arguments of :func:`click.option` from a declaration, and a text of its methods."""
    record = next((each for each in records if name in _parameters(each)), None)
    sources = dict(methods) if record is None else {"": record}
    owners = {each: found for each, m in sources.items() if (found := _parameters(m).get(name)) is not None}
    if not owners:
        return {}, ""
    text = next(filter(None, (_meaning(sources[each], name) for each in owners)), "")
    text = re.sub(r"^\w: ", "", re.sub(r":\w+:`(?:[\w.]+\.)?(\w+)`", r"\1", text))
    # Parameters that are options too are called as such.
    text = re.sub(r"``(?:\w+\.)?(\w+)``", lambda m: f"--{m[1].replace('_', '-')}" if m[1] in names else m[1], text)
    first, *others = owners.values()
    kind = next((kind for kind in ("int", "float") if str(first.annotation).startswith(kind)), "str")
    given: Json = {"type": _TYPES[kind], "help": (text[:1].upper() + text[1:]).replace("``", "")}
    if isinstance(record, type) and isinstance(choice := parameters(record).get(name), Choice):
        given["type"] = click.Choice(choice.accepted)
    everywhere = len(owners) == len(sources)
    if all(each.default == first.default for each in others):
        if first.default is Parameter.empty:
            given["required"] = everywhere
        elif first.default is not None:
            given |= {"default": first.default, "show_default": True}
    return given, "" if everywhere else f"({', '.join(owners)})"


def _meaning(public: Callable[..., object], name: str) -> str:
    """Help of parameter `name`, also by reference to another class."""
    text = meanings(public).get(name, "")
    same = _SAME.match(text)
    return _meaning(getattr(fastdp, same[1]), name) if same else text


def options_of(ctx: click.Context, methods: Methods) -> Json:
    """Options that are parameters of the chosen method; click.UsageError for others."""
    method, given = ctx.params["method"], {}
    for name in parameters_of(ctx, methods):
        if name in _parameters(methods[method]):
            given[name] = ctx.params[name]
        elif ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} does not apply to --method {method}.")
    return {name: value for name, value in given.items() if value is not None}


def parameters_of(ctx: click.Context, methods: Methods) -> list[str]:
    """Sorted options that are parameters of any method, except secrets."""
    known = {name for method in methods.values() for name in _parameters(method)} - {"seed", "key"}
    return sorted(known & ctx.params.keys())


def fields_of(made: Callable[..., object], options: Mapping[str, Any]) -> Json:
    """The `options` that are parameters of `made`."""
    return {name: options[name] for name in _parameters(made) if name in options}
