"""The view of a person at a terminal: errors and warnings in one line, tables of facts, progress; and exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import click
from tqdm import tqdm

from fastdp.errors import AccuracyWarning, FastDPError

#: Options by the names that errors have as ``parameter``.
Flags = Mapping[str, str]


def in_options(error: FastDPError, flags: Flags) -> str:
    """The message, with the option in place of the parameter's name: "--bound -1: expected a number above 0"."""
    text, name = str(error), error.parameter or ""
    inner = name.rpartition(".")[2]
    begin = next((each for each in (name, inner) if each and text.startswith(each)), None)
    flag = flags.get(name.partition("[")[0]) or flags.get(inner)
    if begin is None or flag is None:
        return text
    rest = text.removeprefix(begin).removeprefix(" = None")
    return flag + (" " + rest.removeprefix(" = ") if rest.startswith(" = ") else rest)


@contextmanager
def plain_errors(flags: Flags | None = None) -> Iterator[None]:
    """Turn errors into click's, in one line with exit code 1, and warnings into lines; a broken pipe passes."""
    show = warnings.showwarning

    def say(message: Warning | str, category: type[Warning], *origin: Any, **more: Any) -> None:
        if issubclass(category, AccuracyWarning):
            click.echo(f"Warning: {message}", err=True)
        else:
            show(message, category, *origin, **more)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = say
            yield
    except FastDPError as error:
        raise click.ClickException(in_options(error, flags or _own_flags())) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reason = error.strerror or str(error)
        raise click.ClickException(reason if error.filename is None else f"{error.filename}: {reason}") from error


def _own_flags() -> Flags:
    """Options of the running command by their names."""
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


def printable(path: str) -> str:
    """`path` as text that UTF-8 can encode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def as_table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and texts as aligned lines."""
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in listed)


def seconds(duration: float) -> str:
    """`duration` as text: "0.0021 s", "12.3 s"."""
    return f"{duration:.3g} s" if duration < 100 else f"{duration:,.0f} s"


def progress(name: str, total: int | None, unit: str, *, quiet: bool) -> tqdm[NoReturn]:
    """A progress bar on a terminal."""
    shown = not quiet and sys.stderr.isatty()
    return tqdm(total=total, unit=unit, desc=name, file=sys.stderr, disable=not shown, leave=False)
