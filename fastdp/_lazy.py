"""Packages whose public names load on first use (PEP 562), so that importing one costs next to nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str], names: Collection[str] = ()) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Packages hide it from type checkers (``if not TYPE_CHECKING``), which would otherwise accept any misspelt name.

    Parameters
    ----------
    package : str
        Its name.
    homes : mapping of str to str
        The module, by its full name, that each public name is in.
    names : collection of str
        All public names; those without a home are modules of the package itself.
    """

    def load(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
        elif name in names:
            value = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return load
