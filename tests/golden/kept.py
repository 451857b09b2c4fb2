"""Golden cases of saved objects, over the table of ``tests/state/saved_objects.py``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.golden.parts import Golden
from tests.state import saved_objects
from tests.state.saved_objects import KEY, golden_cut


def _load(case: Any, path: Path, **options: Any) -> Any:
    return type(case.make()).load(path, KEY, **options, **case.options)


def _replayed(folder: Path, case: Any) -> Iterator[Any]:
    """Kept; in the middle the outputs of a call are lost, and made again."""
    publisher, path, cut = case.make(), folder / "kept", golden_cut(case)
    publisher.keep(path, KEY)
    for chunk in case.calls[:cut]:
        yield case.run(publisher, chunk)
    again = _load(case, path, replay=True)
    for chunk in case.calls[cut - 1 :]:
        yield case.run(again, chunk)


def _saved(_: Path, case: Any) -> Iterator[Any]:
    """Made of bytes before every call."""
    publisher = case.make()
    for chunk in case.calls:
        publisher = type(publisher).from_bytes(publisher.to_bytes(KEY), KEY, **case.options)
        yield case.run(publisher, chunk)


def _copied(folder: Path, case: Any) -> Iterator[Any]:
    """Two copies and the original."""
    publisher, cut = case.make(), golden_cut(case)
    for chunk in case.calls[:cut]:
        case.run(publisher, chunk)
    for each in (copy.copy(publisher), copy.deepcopy(publisher), publisher):
        for chunk in case.calls[cut:]:
            yield case.run(each, chunk)


def _cases() -> Iterator[tuple[str, Golden]]:
    for name, case in saved_objects.CASES.items():
        portable = case.portable and not name.startswith("topl")
        yield f"replay of {name}", Golden(partial(_replayed, case=case), portable)
        yield f"saved {name}", Golden(partial(_saved, case=case), portable)
        if case.copies:
            yield f"copies of {name}", Golden(partial(_copied, case=case), portable)


CASES = dict(_cases())
