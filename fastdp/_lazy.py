"""Packages whose public names load on first use (PEP 562)."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Collection
from typing import Any, cast

#: Imports for type checkers in a package's source: module, and names in one line or in parentheses.
_IMPORTS = re.compile(r"^    from ([\w.]+) import (?:\(([^)]+)\)|(.+))$", re.MULTILINE)


def lazy_names(package: str, names: Collection[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `package`: `names` load on first use, from where type checkers find them.

    A package hides the result from type checkers (``if not TYPE_CHECKING``), which would accept misspelt names.
    """
    source = cast("Any", sys.modules[package].__loader__).get_source(package)
    if source is None:
        raise ImportError(f"{package} has no source: expected its .py files, which list its names")
    home_of = {
        name.strip().partition(" ")[0]: home
        for home, several, one in _IMPORTS.findall(source)
        for name in (several or one).split(",")
        if home != package
    }

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
