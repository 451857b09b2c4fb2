"""Every expected failure becomes one line on standard error and exit code 1; a polite kill leaves nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

import click

from fastdp.errors import AccuracyWarning, FastDPError, ParameterError, StateError
from fastdp.state.durable import check_target


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn fastdp's own errors and those of the operating system into click errors, its warnings into lines.

    A broken pipe passes: click ends quietly when the reader of standard output goes away.
    """
    try:
        with plain_warnings():
            yield
    except FastDPError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise click.ClickException(describe(error)) from error


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Say fastdp's own warnings without the line of code that they come from."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def say(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, AccuracyWarning):
                click.echo(f"Warning: {message}", err=True)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = say
        yield


def describe(error: OSError) -> str:
    """The operating system's complaint with the file's name, without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def legible(path: str) -> str:
    """A path's name as a text that UTF-8 can encode; its bytes may be any."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextmanager
def terminated_cleanly() -> Iterator[None]:
    """A polite kill unwinds like Ctrl-C, so that no temporary file stays behind."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:
        # Not the main thread (a program that embeds the command): its handlers are its own.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# Input, output and the files of secrets and budgets are different places.

#: Options and arguments that name a place, by what it is; the output last, so that it is the one complained about.
PLACES = {
    "input": "source",
    "domain's file": "domain",
    "state file": "state",
    "ledger": "ledger",
    "key file": "key_file",
    "ledger key file": "ledger_key_file",
    "output's description": "description",
    "keys file": "keys_file",
    "picture": "picture",
    "output": "output",
}
STANDARD = "-"


def check_separate(options: Mapping[str, Any]) -> None:
    """Refuse a command two of whose places are one.

    Parameters
    ----------
    options : mapping
        Values of the command's options by name; an input or output ``-`` is no place.

    Raises
    ------
    ParameterError
    """
    for (other, before), (what, path) in combinations(places(options), 2):
        if before.resolve() == path.resolve() or (before.exists() and path.exists() and before.samefile(path)):
            raise ParameterError(f"{what} {path}: is the {other}; expected another file")


def places(options: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """What a command reads and writes, and where."""
    given = [(what, options[name]) for what, name in PLACES.items() if name in options]
    return [(what, Path(path)) for what, path in given if path is not None and path != STANDARD]


def check_picture(path: Path, *, overwrite: bool) -> None:
    """Refuse, before anything is paid for, a picture that could not be drawn or written."""
    from fastdp.releases import intervals

    try:
        intervals.check_picture(path)
    except ImportError as error:
        raise StateError(str(error)) from None
    check_target(path, overwrite=overwrite)
