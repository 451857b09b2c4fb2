"""Packages that only extras install, imported on use."""

from __future__ import annotations

import importlib
from typing import Any


def imported(module: str, missing: Exception) -> Any:
    """A module of such a package, or the error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise missing from None
