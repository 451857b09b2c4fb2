"""Errors and warnings in one line, tables of facts, progress, and exit codes."""

from __future__ import annotations

import errno
import re
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import click
from tqdm import tqdm

from fastdp.errors import AccuracyWarning, FastDPError, as_python, spelling

#: Options by the names that errors have as ``parameter``.
Flags = Mapping[str, str]


#: A parameter with its value in a message, as all of the library writes it; and the one with which a message begins.
_GIVEN = re.compile(r"(?<![\w.'])([a-z_]+)(?:\[\w+\])? = (None\b)?")
_FIRST = re.compile(r"([a-z_]+(?:, [a-z_]+)*)(?:\[\w+\])?(: | has )?")


def in_options(error: FastDPError | AccuracyWarning, flags: Flags) -> str:
    """The message with options for parameters: "--bound -1: expected a number above 0"."""
    name = (error.parameter if isinstance(error, FastDPError) else None) or ""
    own = name.rpartition(".")[2]
    named = {**flags, own: flags[name]} if name in flags else flags

    def shown(found: re.Match[str]) -> str:
        flag = named.get(found[1])
        return found[0] if flag is None else flag + ("" if found[2] else " ")

    text = _GIVEN.sub(shown, str(error))
    first = _FIRST.match(text)
    if first and (first[2] or first[1] == own):
        text = ", ".join(named.get(each, each) for each in first[1].split(", ")) + text[first.end(1) :]
    return re.sub(r"\b(expected|or) None\b", r"\1 none", text)


def as_typed(flags: Flags, of: str, given: Mapping[str, object]) -> str:
    """Parameters as options: ``--bound 10``, ``--force``, ``--types column=string``."""
    named = {name: flags.get(f"{of.partition('(')[0]}.{name}") or flags.get(name, "") for name in given}
    if "" in named.values():
        return f"in Python {as_python(of, given)}"
    return ", ".join(_with_value(named[name], value) for name, value in given.items())


def _with_value(flag: str, value: object) -> str:
    if value is ... or value is True:
        return flag
    if value is False:
        return f"--no-{flag[2:]}"
    if isinstance(value, Mapping):
        return ", ".join(_with_value(flag, f"{name}={each}") for name, each in value.items())
    return f"{flag} {value:g}" if type(value) is float else f"{flag} {value}"


@contextmanager
def plain_errors(flags: Flags | None = None) -> Iterator[None]:
    """Turn errors into click's, with exit code 1, and warnings into lines."""
    show, named = warnings.showwarning, {**_own_flags(), **(flags or {})}

    def say(message: Warning | str, category: type[Warning], *origin: Any, **more: Any) -> None:
        if issubclass(category, AccuracyWarning):
            click.echo(f"Warning: {in_options(AccuracyWarning(message), named)}", err=True)
        else:
            show(message, category, *origin, **more)

    token = spelling.set(partial(as_typed, named))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = say
            yield
    except FastDPError as error:
        raise click.ClickException(in_options(error, named)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reason = error.strerror or str(error)
        raise click.ClickException(reason if error.filename is None else f"{error.filename}: {reason}") from error
    finally:
        spelling.reset(token)


def _own_flags() -> Flags:
    context = click.get_current_context(silent=True)
    options = [] if context is None else [one for one in context.command.params if isinstance(one, click.Option)]
    return {option.name or "": max(option.opts, key=len) for option in options}


@contextmanager
def running(flags: Flags | None = None) -> Iterator[None]:
    """:func:`plain_errors`; SIGTERM unwinds like Ctrl-C, so no temporary file is left."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = None
    # Outside the main thread (a program that embeds the command) the program's handlers stay.
    with suppress(ValueError):
        before = signal.signal(signal.SIGTERM, leave)
    try:
        with plain_errors(flags):
            yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def as_table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and texts as aligned lines."""
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in listed)


def seconds(duration: float) -> str:
    """`duration` as text: "0.0021 s", "12.3 s"."""
    return f"{duration:.3g} s" if duration < 100 else f"{duration:,.0f} s"


def progress(given: Mapping[str, Any], steps: int) -> tqdm[NoReturn]:
    """A progress bar on a terminal, unless ``--quiet``."""
    shown = not given["quiet"] and sys.stderr.isatty()
    name = str(given["source"])
    return tqdm(total=steps, unit=" steps", desc=name, file=sys.stderr, disable=not shown, leave=False)
