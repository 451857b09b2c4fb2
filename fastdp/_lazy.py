"""Packages whose public names load on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any


def lazy_names(
    package: str, names: Collection[str], homes: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of package `package`, whose `names` load on first use.

    `homes`: names by full name of their module; names without a home are modules.  A package hides the result from
    type checkers (``if not TYPE_CHECKING``), which would otherwise accept misspelt names.
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
    """The module `module`; raises `missing`, with how to install it, if not found."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise missing from None
