"""Terminal output: one-line errors, tables, durations, progress; and checks of paths before a command begins."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from tqdm import tqdm

from fastdp.errors import AccuracyWarning, FastDPError, ParameterError, StateError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn fastdp's and the operating system's errors into click's: one line, exit code 1; and warnings into lines.

    A broken pipe passes: click ends quietly when the reader of standard output closes it.
    """
    try:
        with _plain_warnings():
            yield
    except FastDPError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reason = error.strerror or str(error)
        raise click.ClickException(reason if error.filename is None else f"{error.filename}: {reason}") from error


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show fastdp's warnings without the line of code that raised them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def say(message: Warning | str, category: type[Warning], *origin: Any, **more: Any) -> None:
            if issubclass(category, AccuracyWarning):
                click.echo(f"Warning: {message}", err=True)
            else:
                show(message, category, *origin, **more)

        warnings.showwarning = say
        yield


@contextmanager
def running() -> Iterator[None]:
    """Errors as in :func:`plain_errors`; SIGTERM unwinds like Ctrl-C, so no temporary file is left."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = None
    # Outside the main thread (a program that embeds the command) the program's handlers stay.
    with suppress(ValueError):
        before = signal.signal(signal.SIGTERM, leave)
    try:
        with plain_errors():
            yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def printable(path: str) -> str:
    """`path` as text that UTF-8 can encode, whatever its bytes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def as_table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and texts as aligned lines."""
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in listed)


def seconds(duration: float) -> str:
    """`duration` as text: "0.0021 s", "12.3 s"."""
    return f"{duration:.3g} s" if duration < 100 else f"{duration:,.0f} s"


def rate(count: int, duration: float) -> str:
    """Values per second as text, in thousands, millions or billions."""
    per_second = count / max(duration, 1e-9)
    for unit, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if per_second >= unit:
            return f"{per_second / unit:.3g}{word} values/s"
    return f"{per_second:.3g} values/s"


def progress(name: str, total: int | None, unit: str, *, quiet: bool) -> tqdm[NoReturn]:
    """A progress bar, shown only if standard error is a terminal."""
    shown = not quiet and sys.stderr.isatty()
    return tqdm(total=total, unit=unit, unit_scale=True, desc=name, file=sys.stderr, disable=not shown, leave=False)


#: Options and arguments that are paths; the output last, so that it is the one complained about.
PATHS = {
    "input": "source",
    "domain's file": "map_file",
    "state file": "state",
    "ledger": "ledger",
    "key file": "key_file",
    "ledger key file": "ledger_key_file",
    "output's description": "description",
    "keys file": "keys_file",
    "picture": "picture",
    "output": "output",
}
#: Standard input or output.
STANDARD = "-"


def check_separate(options: Mapping[str, object]) -> None:
    """Raise ParameterError if two paths of a command are one file; ``-`` is not a file."""
    for (other, before), (name, path) in combinations(paths(options), 2):
        if before.resolve() == path.resolve() or (before.exists() and path.exists() and before.samefile(path)):
            raise ParameterError(f"{name} {path}: is the {other}; expected another file")


def paths(options: Mapping[str, object]) -> list[tuple[str, Path]]:
    """Roles and paths of the files that a command reads and writes."""
    given = [(name, options.get(option)) for name, option in PATHS.items()]
    return [(name, Path(str(path))) for name, path in given if path is not None and path != STANDARD]


def check_picture(path: Path, *, overwrite: bool) -> None:
    """Refuse, before epsilon is spent, a plot that cannot be drawn or written."""
    from fastdp.releases import pictures
    from fastdp.state.atomic_files import check_target

    try:
        pictures.check_picture(path)
    except ImportError as error:
        raise StateError(str(error)) from None
    check_target(path, overwrite=overwrite)
