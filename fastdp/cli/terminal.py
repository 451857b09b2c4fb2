"""Terminal output: errors, tables, durations, progress; and checks of paths."""

from __future__ import annotations

import errno
import os
import re
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

#: Options of Python's arguments, where the names differ.
OTHERS = {
    "column": ("x", "y", "moment", "event"),
    "format": ("time_format", "kind"),
    "frame": ("keys_file", "source"),
    "high": ("bound",),
    "k": ("rows",),
    "keys": ("listed",),
    "lower": ("--box X0 Y0",),
    "mean": ("expected_mean",),
    "path": ("output", "picture"),
    "rows": ("expected_rows",),
    "share": ("key_share",),
    "statistics": ("stat",),
    "theta": ("threshold",),
    "time": ("moment",),
    "unit": ("time_unit",),
    "upper": ("--box X1 Y1",),
    "value": ("bound",),
}
#: "name = value", "name = (low, high)", "name, entry 0", "name='value'", "name=5.0", or "name=" at the end of a
#: word; no part of a longer name.
_ARGUMENT = re.compile(
    r"(?<![\w.-])(?<!/ )(\w+)(?: = ('[^']*'|<\w+>|\([^()]*\)|[^\s:,;()]+)|(?=, entry \d)"
    r"|=(?:'(\w+)'|(\d+(?:\.\d+)?)(?=[\s,)])|(?=[\s,)]|$)))"
)
#: Calls around an argument: "time=fastdp.Time(..., missing='drop')", "Fixed(theta=2.0)".
_CALL = re.compile(r"(?:\w+=)?(?:fastdp\.)?\b(?:Time|Value|Fixed)\((?:\.\.\., )?(?:theta=)?([^()]*)\)")


def in_options(message: str) -> str:
    """A message of Python's functions with options for arguments: ``--nonfinite zero``, ``--max-range 0``."""
    context = click.get_current_context(silent=True)
    if context is None:
        return message
    flags = {each.name: max(each.opts, key=len) for each in context.command.params if each.name}

    def option(found: re.Match[str]) -> str:
        shown = found[2] or ""
        named = [name for name in (found[1], *OTHERS.get(found[1], ())) if name in flags or name[0] == "-"]
        # Of several the one that was given this value.
        values = {name: context.params.get(name) for name in named}
        given = [name for name, value in values.items() if shown in map(repr, (value, str(value)))]
        flag = next((flags.get(name, name) for name in given or named), "")
        if not flag.startswith("-"):
            return f"IN {shown}" if flag == "source" else found[0]
        value = found[3] or found[4] or ("" if shown == "None" or shown.startswith("<") else shown)
        return f"{flag} {value}".rstrip()

    message = _ARGUMENT.sub(option, _CALL.sub(r"\1", message))
    # "a smaller max_range" becomes "a smaller --max-range".
    return re.sub(r"(?<![\w-])[a-z]+_[a-z_]+\b", lambda found: flags.get(found[0], found[0]), message)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors into click's, in one line with exit code 1, and warnings into lines; a broken pipe passes."""
    show = warnings.showwarning

    def say(message: Warning | str, category: type[Warning], *origin: Any, **more: Any) -> None:
        if issubclass(category, AccuracyWarning):
            click.echo(f"Warning: {in_options(str(message))}", err=True)
        else:
            show(message, category, *origin, **more)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = say
            yield
    except FastDPError as error:
        raise click.ClickException(in_options(str(error))) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        reason = error.strerror or str(error)
        raise click.ClickException(reason if error.filename is None else f"{error.filename}: {reason}") from error


@contextmanager
def running() -> Iterator[None]:
    """:func:`plain_errors`; SIGTERM unwinds like Ctrl-C, so no temporary file is left."""

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


def rate(count: int, duration: float) -> str:
    """Values per second as text."""
    return f"{count / max(duration, 1e-9):,.0f} values/s"


def progress(name: str, total: int | None, unit: str, *, quiet: bool) -> tqdm[NoReturn]:
    """A progress bar on a terminal."""
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
    """ParameterError if two paths are one file; ``-`` is none."""
    for (other, before), (name, path) in combinations(paths(options), 2):
        if before.resolve() == path.resolve() or (before.exists() and path.exists() and before.samefile(path)):
            raise ParameterError(f"{name} {path}: is the {other}; expected another file")


def paths(options: Mapping[str, object]) -> list[tuple[str, Path]]:
    """Roles and paths of a command's files."""
    given = [(name, options.get(option)) for name, option in PATHS.items()]
    return [(name, Path(str(path))) for name, path in given if path is not None and path != STANDARD]


def check_picture(path: Path, *, overwrite: bool) -> None:
    """Refuse an impossible plot before spending."""
    from fastdp.releases import pictures
    from fastdp.state.atomic_files import check_target

    try:
        pictures.check_picture(path)
    except ImportError as error:
        raise StateError(str(error)) from None
    check_target(path, overwrite=overwrite)
