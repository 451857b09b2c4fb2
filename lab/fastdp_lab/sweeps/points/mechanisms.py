"""The mechanisms that a sweep of points can compare, by name; others can be registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fastdp import validation
from fastdp.randomness.key import Key
from fastdp.spatial import Domain
from fastdp.systems.phdstream.adaptive import AdaptivePHDStream
from fastdp.systems.phdstream.publisher import NAMED_COUNTERS, PHDStream
from fastdp_lab.baselines import FixedTree, OfflineOnBatch, OfflineOnStream
from fastdp_lab.sweeps.parts import build_parts, parameter_names


@dataclass(frozen=True)
class SpatialSetting:
    """The public facts that a mechanism works under.

    Attributes
    ----------
    domain : Domain
        Where points may be.
    epsilon : float
        The cell's.
    """

    domain: Domain
    epsilon: float


class SpatialPublisher(Protocol):
    """What a mechanism builds: it consumes batches and estimates counts, as :class:`fastdp.PHDStream` does."""

    @property
    def tree(self) -> Any:
        """The cells and counts released last: ``n_leaves``, ``count(lower, upper)``."""
        ...

    @property
    def total(self) -> float:
        """Estimated number of points now."""
        ...

    def advance(self, added: Any, removed: Any = None) -> None:
        """Consume one batch."""
        ...

    def sample(self) -> Any:
        """Synthetic points, float64[N, d]."""
        ...


@dataclass(frozen=True)
class SpatialSystem:
    """A kind of mechanism.

    Attributes
    ----------
    make : callable
        Takes domain, epsilon, ``key`` and the parameters of a ``[[mechanisms]]`` table.
    accepted : tuple of str
        The parameters that a table may have.
    merges : bool
        Whether the output depends only on the points that are present, so that the batches between two queries can
        be sent as one: much faster.
    """

    make: Callable[..., SpatialPublisher]
    accepted: tuple[str, ...]
    merges: bool = False

    def check(self, parameters: Mapping[str, Any], setting: SpatialSetting) -> None:
        """Raise ParameterError, beginning with the parameter's name, for what cannot run; looks at no data."""
        self.build(parameters, setting, Key.from_seed(0))

    def build(self, parameters: Mapping[str, Any], setting: SpatialSetting, key: Key) -> SpatialPublisher:
        """A publisher at its beginning; counters are names, or tables with theirs at ``part``."""
        arguments = build_parts(parameters)
        if isinstance(arguments.get("counter"), str):
            arguments["counter"] = NAMED_COUNTERS[
                validation.choice("counter", arguments["counter"], tuple(NAMED_COUNTERS))
            ]
        return self.make(setting.domain, setting.epsilon, key=key, **arguments)


_OFFLINE = parameter_names(OfflineOnStream)
#: Systems by their name in a specification; add others here.
SPATIAL_SYSTEMS: dict[str, SpatialSystem] = {
    "phdstream": SpatialSystem(PHDStream, parameter_names(PHDStream, "sensitivity")),
    "adaptive_phdstream": SpatialSystem(AdaptivePHDStream, parameter_names(AdaptivePHDStream, "sensitivity")),
    "offline_on_stream": SpatialSystem(OfflineOnStream, _OFFLINE, merges=True),
    "offline_on_batch": SpatialSystem(OfflineOnBatch, _OFFLINE),
    "fixed_tree": SpatialSystem(FixedTree, (*_OFFLINE, "counter")),
}
