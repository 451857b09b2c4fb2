"""A mechanism as one record, so that any package can enter the benchmark suites of ``fastdp bench``.

A package registers its mechanisms by an entry point, which names one :class:`Mechanism` or several in a sequence:

.. code-block:: toml

    [project.entry-points."fastdp.mechanisms"]
    mine = "my_package:MECHANISMS"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError, warn
from fastdp.kinds import Array, Floats

#: Units of privacy: what may be replaced, or as said, without a change of the answer's distribution beyond epsilon.
UNITS = {
    "event": "any one value",
    "w-event": "any w consecutive values",
    "series": "every value of the series",
    "local": "the values of one person in any w consecutive steps, before they leave the person",
    "points": "any one point, added or removed",
}
#: The group of entry points.
GROUP = "fastdp.mechanisms"


@dataclass(frozen=True)
class Answer:
    """Released values with intervals for their range sums.

    Attributes
    ----------
    values : float64[n]
        As a mechanism without intervals returns them.
    interval : callable
        From starts and stops, int64[q] each, indices of values, to the low and the high ends of intervals for the
        true sums over [start, stop) that hold with probability 95 %, float64[q] each.
    """

    values: Floats
    interval: Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Mechanism:
    """A mechanism that enters a benchmark suite.

    Attributes
    ----------
    name : str
        As tables show it, different from all others.
    unit : "event", "w-event", "series", "local" or "points"
        What epsilon protects (:data:`UNITS`).
    release : callable
        ``release(values, epsilon, key, **public)``: one number a value, float64[n]; or an :class:`Answer`.

        * ``values``: int64[n] in [0, bound], in the order of time.  For "local" int64[steps, persons], and the answer
          is the estimated mean of each step, float64[steps].  For "points" float64[n, 2] in the unit square, and the
          answer is points that stand for them, float64[k, 2].
        * ``key``: 32 bytes that all randomness follows from: equal arguments give equal answers.
        * ``public``: those of the public facts below, and of ``parameters``, that its signature names.

        Public facts: ``bound`` (int); ``sensitivity`` (float: the most by which the unit changes one value, at most
        ``bound``); ``w`` (int: values that the unit may change, 1 for events); ``holdout`` (int: the first values,
        of which no query asks, so that thresholds can be learned there; their answers are ignored); ``max_range``
        (int: length of the longest query); for points ``times`` (int64[n]: ascending numbers of batches) and no
        others.
    source : str
        Paper, with equations; what was read in another way.
    parameters : mapping
        Keywords for ``release``, as tables show them.
    breaks : str, optional
        Why the mechanism does not keep what it claims; None if it does.
    """

    name: str
    unit: str
    release: Callable[..., Any]
    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    breaks: str | None = None

    def __post_init__(self) -> None:
        """Check the declarations."""
        validation.choice("unit", self.unit, tuple(UNITS))
        if not callable(self.release):
            raise ParameterError(f"release = {validation.shown(self.release)}: expected a function")
        for key in ("name", "source"):
            if not isinstance(getattr(self, key), str) or not getattr(self, key):
                raise ParameterError(f"{key} = {validation.shown(getattr(self, key))}: expected a text, not empty")
        kinds = inspect.signature(self.release).parameters
        if not self._takes_all and (unknown := set(self.parameters) - set(kinds)):
            raise ParameterError(f"parameters = {validation.shown(dict(self.parameters))}: release has no {unknown}")

    @cached_property
    def _takes_all(self) -> bool:
        return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(self.release).parameters.values())

    def run(self, values: Array, epsilon: float, key: bytes, **public: Any) -> Any:
        """Release, and check the answer's shape; an array, or an :class:`Answer`.

        Parameters
        ----------
        values, epsilon, key, **public
            As ``release`` takes them; facts that its signature does not name are left out.
        """
        named = inspect.signature(self.release).parameters
        given = {name: each for name, each in public.items() if self._takes_all or name in named}
        found = self.release(values, epsilon, key, **{**given, **self.parameters})
        array = np.asarray(found.values if isinstance(found, Answer) else found)
        shape: tuple[Any, ...] = ("k", 2) if self.unit == "points" else (len(values),)
        right = array.ndim == len(shape) and (self.unit == "points" or array.shape == shape)
        if array.dtype != np.float64 or not right or not np.isfinite(array).all():
            told = ", ".join(map(str, shape))
            wrong = "with NaN or infinity" if right and array.dtype == np.float64 else ""
            raise ParameterError(
                f"{self.name} released {array.dtype}{list(array.shape)} {wrong}".rstrip()
                + f": expected finite float64[{told}]"
            )
        return found


def registered(unit: str | None = None) -> dict[str, Mechanism]:
    """Every mechanism, of one unit or all, by name: the laboratory's own, then those of other packages.

    An entry point that does not load, or a name that is taken, is left out with a warning.  Entry points are looked
    for once in a process.
    """
    return {name: each for name, each in _every().items() if unit in (None, each.unit)}


@cache
def _every() -> dict[str, Mechanism]:
    from fastdp_lab.sweeps.systems import SPATIAL_SYSTEMS, SYSTEMS

    found: dict[str, Mechanism] = {}
    for place, mechanisms in _groups():
        for each in mechanisms:
            if not isinstance(each, Mechanism) or each.name in {*found, *SYSTEMS, *SPATIAL_SYSTEMS}:
                told = "a name that is taken" if isinstance(each, Mechanism) else "no Mechanism"
                warn(f"{place}: {validation.shown(getattr(each, 'name', each))} is {told}; left out", RuntimeWarning)
            else:
                found[each.name] = each
    return found


def _groups() -> Iterable[tuple[str, Iterable[Any]]]:
    from fastdp_lab.contestants import MECHANISMS

    yield "fastdp_lab", MECHANISMS
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            loaded = point.load()
            mechanisms = [loaded] if isinstance(loaded, Mechanism) else list(loaded)
        except Exception as error:  # the package of a stranger
            warn(f"{point.value}: {type(error).__name__}: {error}; left out", RuntimeWarning)
            continue
        yield point.value, mechanisms
