"""Packages whose public names load on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any


def lazy_names(
    package: str, names: Collection[str], homes: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose `names` load on first use.

    `homes`: names by module; names without a home are modules.  Packages hide both from type checkers, which would
    accept misspelt names.
    """
    home_of = {name: home for home, own in homes.items() for name in own}

    def load(name: str) -> Any:
        if name in home_of:
            value = getattr(importlib.import_module(home_of[name]), name)
        elif name in names:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(names)


# Packages that only extras install, imported on use.


def imported(module: str, missing: Exception) -> Any:
    """Import `module`; raise `missing` if not found."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise missing from None
