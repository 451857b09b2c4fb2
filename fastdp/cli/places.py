"""Options that commands share, and checks of paths before anything is read or spent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from fastdp.cli import TEXTS
from fastdp.cli.state import Paid
from fastdp.errors import ParameterError, StateError
from fastdp.kinds import Json
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import in_words
from fastdp.noise.key import read_ledger_key
from fastdp.releases import pictures
from fastdp.state.atomic_files import check_target, is_left_over

#: Standard input or output.
STANDARD = "-"
#: Longest note in a ledger that a command writes.
NOTE = 1000
#: Types of options in ``help.toml``.
KINDS = {"file": click.Path(path_type=Path), "real": float, "whole": click.IntRange(min=0)}
#: Options of every command that makes a release.
SHARED = ["output", "picture", "force", "quiet", "seed", "key_file", "state", "stream", "part"]
SHARED += ["ledger", "limit", "limit_delta", "ledger_key_file"]
#: Their flags, by the names in errors.
FLAGS = {
    "values": "IN",
    "frame": "IN",
    "source": "IN",
    "path": "--output",
    "picture.path": "--plot",
    "overwrite": "--force",
    "theta": "--threshold",
    "limit_epsilon": "--limit",
}
#: Paths in the order in which they are compared: the later one is complained about.
PATHS = {
    "source": "input",
    "domain": "domain's file",
    "state": "state file",
    "ledger": "ledger",
    "key_file": "key file",
    "ledger_key_file": "ledger key file",
    "description": "output's description",
    "picture": "picture",
    "output": "output",
}


def option(name: str, **more: Any) -> click.Option:
    """An option of ``help.toml``."""
    told: Json = {**TEXTS["options"][name], **more}
    told["type"] = KINDS.get(told.get("type", ""), told.get("type"))
    return click.Option(told.pop("flags"), **{**told, "help": told["help"].replace("\n", " ").strip()})


def shared(*left_out: str) -> list[click.Parameter]:
    """The shared options but `left_out`."""
    return [option(name) for name in SHARED if name not in left_out]


def paths(given: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Roles and paths of a command's files."""
    return [(role, Path(given[name])) for name, role in PATHS.items() if str(given.get(name) or STANDARD) != STANDARD]


def check_apart(listed: list[tuple[str, Path]]) -> None:
    """ParameterError if two paths are one file."""
    for (other, before), (name, path) in combinations(listed, 2):
        if before.resolve() == path.resolve() or (before.exists() and path.exists() and before.samefile(path)):
            raise ParameterError(f"{name} {path}: is the {other}; expected another file")


def check_places(given: Json, description_of: Callable[[Path], Path | None], *, replace: bool = False) -> None:
    """Refuse outputs that cannot be written, and one file for two purposes."""
    written = []
    if given["output"] != STANDARD:
        target = Path(given["output"])
        description = description_of(target)
        written = [target] if description is None else [target, description]
        given = {**given, "description": description}
    check_apart(paths(given))
    for path in written:
        left_over = path != written[0] and is_left_over(written[0], path)
        check_target(path, overwrite=given["force"] or replace or left_over)
    if (picture := given["picture"]) is not None:
        try:
            pictures.check_picture(picture)
        except ImportError as error:
            raise StateError(str(error)) from None
        except ParameterError as error:
            error.parameter = "picture.path"
            raise
        check_target(picture, overwrite=given["force"] or replace)


@contextmanager
def account(given: Json, begin: Callable[[], None] | None) -> Iterator[Paid | None]:
    """The open ledger of ``--ledger`` (:class:`Paid`), or None."""
    if given["ledger"] is None:
        for name in ("part", "limit", "limit_delta", "ledger_key_file"):
            if given.get(name) is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --ledger.")
        yield None
        return
    if given["stream"] is None:
        raise click.UsageError("--ledger needs --stream, the name of the stream whose budget is spent.")
    path, new = Path(given["ledger"]), given["limit"] is not None
    if not new and not path.exists():
        # A new one would have no limit at all, and the name may be a slip.
        raise ParameterError(
            f"--ledger {path}: no such file; expected a ledger (fastdp ledger limit makes one), or --limit"
        )
    limits = {"limit_epsilon": given["limit"], "limit_delta": given["limit_delta"]}
    with closing(Ledger(path, **limits, key=read_ledger_key(given["ledger_key_file"]), create=new)) as ledger:
        source = os.fsencode(given["source"]).decode("utf-8", "backslashreplace")
        yield Paid(ledger, f"input {source}"[:NOTE], begin)


def spent(given: Json, simulated: bool) -> list[tuple[str, str]]:
    """Line of a summary about the ledger."""
    if given["ledger"] is None:
        return []
    with closing(Ledger(given["ledger"], key=read_ledger_key(given["ledger_key_file"]), create=False)) as ledger:
        cost = in_words(ledger.spent(given["stream"]))
    free = " (a simulation costs nothing)" if simulated else ""
    return [("ledger", f"{given['ledger']}: stream {given['stream']!r} has cost {cost}{free}")]
