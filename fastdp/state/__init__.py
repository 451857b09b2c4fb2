"""Where state is written: machines, the publisher that drives them, and the journal of a kept file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.state.machine import Machine, Transition
    from fastdp.state.publisher import Publisher

_HOMES = {
    "Machine": "fastdp.state.machine",
    "Publisher": "fastdp.state.publisher",
    "Transition": "fastdp.state.machine",
}

__all__ = ["Machine", "Publisher", "Transition"]


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
