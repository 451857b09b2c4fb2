"""Options that commands share, and checks of paths before anything is read or spent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import click

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
FILE, FLAG = click.Path(path_type=Path), {"is_flag": True}
#: Flags, metavar or type, and help of options that no signature has.
SHARED: dict[str, tuple[tuple[str, ...], Json, str]] = {
    "output": (("-o", "--output"), {"required": True, "metavar": "OUT"}, "A file, or - for CSV on standard output."),
    "picture": (
        ("--plot", "picture"),
        {"type": FILE, "metavar": "FILE"},
        "Draw the release with its intervals; the suffix chooses the format, such as .png. Needs matplotlib: pip "
        "install 'fastdp-streams[plot]'.",
    ),
    "force": (("--force",), FLAG, "Replace existing outputs."),
    "quiet": (("--quiet",), FLAG, "No progress bar and no summary."),
    "seed": (
        ("--seed",),
        {"type": click.IntRange(min=0), "metavar": "N"},
        "For simulation only: reproducible noise, which anyone who guesses N can subtract. NOT PRIVATE.",
    ),
    "key_file": (
        ("--key-file",),
        {"type": FILE, "metavar": "FILE"},
        "A secret key of your own, 32 raw bytes or 64 hexadecimal digits in an owner-only file. Never use one key "
        "with the same options for two inputs: equal noise may reveal their difference; give each its --stream.  "
        "[default: a fresh random key]",
    ),
    "state": (
        ("--state",),
        {"type": FILE, "metavar": "FILE"},
        "Records key, options and a digest of the input: the same command, run again after a crash, writes the same "
        "bytes; another input is refused. Encrypted under the key of --key-file; without one, anyone who reads it "
        "can subtract the noise.",
    ),
    "stream": (
        ("--stream",),
        {"metavar": "NAME"},
        "Name of the stream or table: other names get independent noise under one key, and in a ledger budgets are "
        "per stream.",
    ),
    "part": (
        ("--part",),
        {"metavar": "LABEL"},
        "With --ledger: label of the part of the stream that IN holds, such as its day. Parts must be disjoint: "
        "their budgets do not add up.",
    ),
    "ledger": (
        ("--ledger",),
        {"type": FILE, "metavar": "FILE"},
        "Record the release in this ledger before it is made: an error about the values costs epsilon too. The file "
        "must be there, unless --limit is given.",
    ),
    "limit": (
        ("--limit",),
        {"type": float, "metavar": "E"},
        "Refuse, before anything is released, if the stream would then have cost more than this epsilon. A limit in "
        "the ledger (fastdp ledger limit) holds as well.",
    ),
    "limit_delta": (("--limit-delta",), {"type": float, "metavar": "D"}, "The same for delta."),
    "ledger_key_file": (
        ("--ledger-key-file",),
        {"type": FILE, "metavar": "FILE"},
        "Key that seals the ledger, in the form of --key-file.",
    ),
}
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


def shared(*left_out: str) -> list[click.Parameter]:
    """The shared options but `left_out`."""
    return [
        click.Option(list(names), help=text, **more)
        for name, (names, more, text) in SHARED.items()
        if name not in left_out
    ]


def paths(given: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Roles and paths of a command's files."""
    return [(role, Path(given[name])) for name, role in PATHS.items() if str(given.get(name) or STANDARD) != STANDARD]


def check_apart(listed: list[tuple[str, Path]]) -> None:
    """ParameterError if two paths are one file."""
    for (other, before), (name, path) in combinations(listed, 2):
        if before.resolve() == path.resolve() or (before.exists() and path.exists() and before.samefile(path)):
            raise ParameterError(f"{name} {path}: is the {other}; expected another file")


def check_places(given: Json, description_of: Callable[[Path], Path | None], *, replace: bool = False) -> None:
    """Refuse outputs that cannot be written, and one file for two purposes, before anything is spent."""
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
    """The open ledger of ``--ledger``, see :class:`Paid`; click.UsageError if an option lacks another."""
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
