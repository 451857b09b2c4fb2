"""Online mechanisms as machines, their publisher and its state files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdp._lazy import lazy_names

if TYPE_CHECKING:
    from fastdp.state.driver import Publisher
    from fastdp.state.machine import Machine, Transition

__all__ = ["Machine", "Publisher", "Transition"]


_HOMES = {
    "fastdp.state.driver": ("Publisher",),
    "fastdp.state.machine": ("Machine", "Transition"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, __all__, _HOMES)
