"""Parameters of mechanisms: tables become the parts that publishers are composed of."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fastdp import counters, perturbers, smoothers, thresholds, validation
from fastdp.thresholds import renewals
from fastdp_lab.sweeps.reading import check_keys, placed

Parameters = Mapping[str, Any]
_ROLES: dict[str, Any] = {
    "threshold": thresholds,
    "perturber": perturbers,
    "smoother": smoothers,
    "renewal": renewals,
    "counter": counters,
}
#: Parameters that the cell gives.
_OF_THE_CELL = {"self", "epsilon", "bound", "holdout", "max_range", "length", "domain", "seed", "key", "sensitivity"}


def build_parts(parameters: Parameters) -> dict[str, Any]:
    """The parameters with every part's table replaced by the part."""
    return {
        name: _build_part(name, value) if name in _ROLES and isinstance(value, Mapping) else value
        for name, value in parameters.items()
    }


def _build_part(role: str, table: Parameters) -> Any:
    fields, module = dict(table), _ROLES[role]
    known = [name for name in module.__all__ if dataclasses.is_dataclass(getattr(module, name))]
    kind = getattr(module, validation.choice(f"{role}.part", fields.pop("part", None), known))
    parts = inspect.signature(kind).parameters
    required = [name for name, each in parts.items() if each.default is each.empty]
    check_keys(fields, role, tuple(kind.__dataclass_fields__), required)
    with placed(role):
        return kind(**fields)


def parameter_names(system: Callable[..., Any], *further: str) -> tuple[str, ...]:
    """A publisher's parameters without those that the cell gives."""
    return (*(name for name in inspect.signature(system).parameters if name not in _OF_THE_CELL), *further)
