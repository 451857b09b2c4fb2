"""Packages whose public names load on first use (PEP 562), so that importing one costs next to nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any


def lazy_names(
    package: str, names: Collection[str], homes: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package.

    Packages hide them from type checkers (``if not TYPE_CHECKING``), which would otherwise accept any misspelt name.

    Parameters
    ----------
    package : str
        Its name.
    names : collection of str
        All public names; those without a home are modules of the package itself.
    homes : mapping of str to collection of str
        The names that each module, by its full name, has; some may be none of the public ones.
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
    """A module of such a package, or the error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise missing from None
