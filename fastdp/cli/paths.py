"""Input, output and the files of secrets and budgets are different places."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from fastdp.data.durable import check_target
from fastdp.errors import ParameterError, StateError

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
    from fastdp.releases import bands

    try:
        bands.check_picture(path)
    except ImportError as error:
        raise StateError(str(error)) from None
    check_target(path, overwrite=overwrite)
