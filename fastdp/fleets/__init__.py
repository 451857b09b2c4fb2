"""Many keyed streams in one object, whose state is arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.fleets.fleet import Fleet

_HOMES = {"Fleet": "fastdp.fleets.fleet"}

__all__ = ["Fleet"]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
