"""Cases of a parametrised test that only the exhaustive run takes."""

from __future__ import annotations

from typing import Any

import pytest


def exhaustive(*cases: Any) -> list[Any]:
    """The cases, with the marker ``exhaustive``; a tuple is one case of several arguments."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*value, marks=pytest.mark.exhaustive) for value in values]
