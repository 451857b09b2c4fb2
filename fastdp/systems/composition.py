"""The public side of a publisher: its parts and parameters, checked once, and the guarantee they give."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fastdp import perturbers, smoothers, thresholds, validation
from fastdp.errors import ParameterError, StateError
from fastdp.grid import Grid, make_grid
from fastdp.perturbers import HierarchyPlan, Perturber
from fastdp.privacy import Guarantee, parallel
from fastdp.smoothers import Smoother
from fastdp.thresholds import Threshold, ThresholdTask

USUAL_HOLDOUT = 65_536

#: Parts that a state file may name; loading a file never runs anything that the file brings along.
_KNOWN_PARTS: dict[str, Any] = {
    name: getattr(module, name)
    for module in (thresholds, perturbers, smoothers)
    for name in module.__all__
    if dataclasses.is_dataclass(getattr(module, name))
}


@dataclass(frozen=True)
class Composition:
    """Threshold, perturber and smoother with the parameters they work under; fields as StreamPublisher's.

    Raises
    ------
    ParameterError
        If a parameter is not accepted, or the parts do not fit together.
    """

    threshold: Threshold
    perturber: Perturber
    smoother: Smoother | None
    epsilon: float
    bound: float
    holdout: int | None
    max_range: int
    resolution: float | None
    nonfinite: str

    def __post_init__(self) -> None:
        """Check everything, so that nothing can fail once data flow."""
        checked: dict[str, Any] = {
            "epsilon": validation.positive("epsilon", self.epsilon),
            "bound": validation.positive("bound", self.bound),
            "max_range": validation.integer("max_range", self.max_range, 1, 2**40),
            "nonfinite": validation.choice("nonfinite", self.nonfinite, ("raise", "zero")),
        }
        validation.part("threshold", self.threshold, "start", "fastdp.thresholds")
        validation.part("perturber", self.perturber, "plan", "fastdp.perturbers")
        if self.smoother is not None:
            validation.part("smoother", self.smoother, "step", "fastdp.smoothers")
        least, usual = (1, USUAL_HOLDOUT) if self.threshold.uses_holdout else (0, 0)
        holdout = usual if self.holdout is None else self.holdout
        checked["holdout"] = validation.integer("holdout", holdout, least, 2**50)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.smoother is None and self.plan.block > 1:
            raise ParameterError(
                f"smoother = None: expected a smoother, because the perturber releases blocks of {self.plan.block} "
                "values (or prune=0)"
            )
        if self.smoother is not None and self.perturber.released_nodes:
            raise ParameterError(
                f"smoother = {self.smoother!r}: expected None, because an inconsistent hierarchy answers ranges from "
                "its nodes, and predictions would not enter"
            )
        object.__setattr__(self, "resolution", self.grid.resolution)

    @cached_property
    def plan(self) -> HierarchyPlan:
        """Public shape of the hierarchy."""
        return self.perturber.plan(self.epsilon, self.max_range)

    @cached_property
    def grid(self) -> Grid:
        """The integers that values are rounded to."""
        return make_grid(
            self.bound, self.resolution, self.epsilon, self.max_range, self.plan.levels, self.plan.fan_out
        )

    @property
    def task(self) -> ThresholdTask:
        """What the threshold is told."""
        assert self.holdout is not None  # noqa: S101 - settled on construction
        return ThresholdTask(self.epsilon, self.bound, self.holdout, self.max_range, self.grid.resolution)

    def guarantee(self, *, simulated: bool) -> Guarantee:
        """Threshold and perturber see disjoint values: parallel composition (ToPS section 2.4)."""
        chosen = self.threshold.guarantee(self.task)
        published = self.perturber.guarantee(self.plan, self.epsilon).of("perturber")
        whole = published if chosen is None else parallel(chosen.of("threshold"), published)
        return replace(whole, simulated=simulated or whole.simulated)

    def describe(self) -> dict[str, Any]:
        """Parts by name, and parameters, for a state file."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for role in ("threshold", "perturber", "smoother"):
            fields[role] = _describe_part(fields[role])
        return fields

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Composition:
        """The composition that was described."""
        fields = dict(description)
        for role in ("threshold", "perturber", "smoother"):
            fields[role] = _build_part(fields[role])
        return cls(**fields)


def _describe_part(part: Any) -> dict[str, Any] | None:
    if part is None:
        return None
    name = type(part).__name__
    if _KNOWN_PARTS.get(name) is not type(part):
        raise StateError(f"a {name} of your own cannot be saved: expected one of {', '.join(sorted(_KNOWN_PARTS))}")
    return {"name": name, **dataclasses.asdict(part)}


def _build_part(description: dict[str, Any] | None) -> Any:
    if description is None:
        return None
    parameters = dict(description)
    return _KNOWN_PARTS[parameters.pop("name")](**parameters)
