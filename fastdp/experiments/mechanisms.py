"""The mechanisms that a sweep can compare, by name; more can be registered.

A system turns the parameters of a ``[[mechanisms]]`` table into a run on a scene.  What repetitions share (the
histogram of a hold-out, or its sorted copy) is made once by ``prepare`` and used by every run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp import counters, perturbers, smoothers, thresholds, validation
from fastdp.errors import ParameterError
from fastdp.experiments.tables import placed
from fastdp.randomness.key import Key
from fastdp.releases.revised import RevisedStream
from fastdp.smoothers import Smoother
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.stream.adaptive import Adaptive
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.tops import ToPS
from fastdp.systems.topl.publisher import ToPL
from fastdp.systems.zeros import Zeros
from fastdp.thresholds import Fixed, ThresholdTask, renewals
from fastdp.thresholds.base import held_out

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """The public facts that a mechanism works under.

    Attributes
    ----------
    bound : float
        Of the data set.
    holdout, published : int
        Lengths of the two parts of the stream.
    max_range : int
        The longest query.
    epsilon : float
        The cell's.
    """

    bound: float
    holdout: int
    published: int
    max_range: int
    epsilon: float


@dataclass(frozen=True)
class Outcome:
    """What a run gives to be measured.

    Attributes
    ----------
    answer : callable
        Private answers to sums over [starts, stops), int64[q] each, indices into the published part.
    theta : float
        The threshold: values were clipped to [0, theta].  NaN if it changed on the way, or there is none.
    block : int
        Values under one noisy sum.
    smoother : Smoother or None
        What predicts values within a block.
    exact : callable or None
        In place of block and smoother: given the clipped stream's prefix sums before positions (a function of
        int64[k]), what the same mechanism sums up before positions if no noise is added.
    splits : bool
        Whether noise and smoothing can be told apart.
    """

    answer: Callable[[Indices, Indices], Floats]
    theta: float
    block: int = 1
    smoother: Smoother | None = None
    exact: Callable[[Callable[[Indices], Floats], Indices], Floats] | None = None
    splits: bool = True


Run = Callable[[Key], Outcome]


class System(Protocol):
    """A kind of mechanism."""

    @property
    def accepted(self) -> tuple[str, ...]:
        """The parameters that a table may have."""
        ...

    def check(self, parameters: Parameters, setting: Setting) -> None:
        """Raise ParameterError, beginning with the parameter's name, for what cannot run; looks at no data."""
        ...

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        """Do what repetitions share.

        Parameters
        ----------
        parameters : mapping
            Of one mechanism, lists already expanded; parts are tables with their name at ``part``.
        setting : Setting
            What it works under.
        values : float64[holdout + published], read-only
            The whole stream.
        """
        ...


_ROLES: dict[str, Any] = {
    "threshold": thresholds,
    "perturber": perturbers,
    "smoother": smoothers,
    "renewal": renewals,
    "counter": counters,
}


def build_parts(parameters: Parameters) -> dict[str, Any]:
    """The parameters with every part's table replaced by the part."""
    return {
        name: _build_part(name, value) if name in _ROLES and isinstance(value, Mapping) else value
        for name, value in parameters.items()
    }


def _build_part(role: str, table: Parameters) -> Any:
    fields = dict(table)
    module = _ROLES[role]
    known = [
        name
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and hasattr(getattr(module, name), "__dataclass_fields__")
    ]
    kind = getattr(module, validation.choice(f"{role}.part", fields.pop("part", None), known))
    for name, value in fields.items():
        if name not in kind.__dataclass_fields__:
            listed = ", ".join(kind.__dataclass_fields__) or "no parameters"
            raise ParameterError(
                f"{role}.{name} = {validation.shown(value, public=True)}: unknown key; expected {listed}"
            )
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is parameter.empty and name not in fields:
            raise ParameterError(f"{role}.{name} is missing: expected a value for it")
    with placed(role):
        return kind(**fields)


def parameter_names(system: Any, *further: str) -> tuple[str, ...]:
    """A publisher's parameters without those that the cell gives."""
    given = {"self", "epsilon", "bound", "holdout", "max_range", "length", "domain", "seed", "key"}
    return (*(name for name in inspect.signature(system).parameters if name not in given), *further)


class _Composed:
    """ToPS, and any composition of threshold, perturber and smoother.

    ``threshold_epsilon`` and ``publish_epsilon`` give the two phases budgets of their own (ToPS section 5.4).
    Without these, a run is bit for bit what the publisher releases under the same key.  A threshold that is not
    clipped (``clip = false``) may exceed the bound, as in the published code: noise grows with it, values stay
    within the bound.
    """

    def __init__(self, publisher: Callable[..., StreamPublisher]) -> None:
        self._publisher = publisher
        self.accepted = parameter_names(publisher, "threshold_epsilon", "publish_epsilon")

    def check(self, parameters: Parameters, setting: Setting) -> None:
        """Build the publisher, and what its two phases need."""
        composition, task, epsilon = self._build(parameters, setting)
        composition.threshold.start(task)
        composition.perturber.plan(epsilon, setting.max_range)

    def _build(self, parameters: Parameters, setting: Setting) -> tuple[StreamParameters, ThresholdTask, float]:
        """Parts and parameters, what the threshold is told, and the perturber's budget."""
        arguments = build_parts(parameters)
        first, second = (
            validation.positive(name, arguments.pop(name, setting.epsilon))
            for name in ("threshold_epsilon", "publish_epsilon")
        )
        for name in ("threshold", "perturber"):
            if self._publisher is StreamPublisher and name not in arguments:
                raise ParameterError(f"{name} is missing: expected a table with its part")
        composition = self._publisher(
            epsilon=setting.epsilon,
            bound=setting.bound,
            holdout=setting.holdout,
            max_range=setting.max_range,
            seed=0,
            **arguments,
        ).composition
        if composition.renewal is not None and (first, second) != (setting.epsilon, setting.epsilon):
            raise ParameterError(
                f"renewal = {composition.renewal!r}: expected no threshold_epsilon or publish_epsilon besides it"
            )
        part, r = composition.perturber, setting.max_range
        constant = part.noise_constant(part.plan(second, r), r)
        task = replace(composition.task, epsilon=first, publish_epsilon=second, noise_constant=constant)
        return composition, task, second

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        """Show the hold-out to the threshold, once for all runs."""
        composition, task, epsilon = self._build(parameters, setting)
        if composition.renewal is not None:
            return _renewing(composition, values)
        chooser = composition.threshold.start(task)
        chooser.observe(values[: setting.holdout])
        body, packed = values[setting.holdout :], chooser.pack()
        budgets = task.epsilon, epsilon

        def run(key: Key) -> Outcome:
            own = composition.noise_key(key)
            if budgets != (setting.epsilon, setting.epsilon):
                own = own.within("budgets", *map(repr, budgets))
            second = StreamPublisher(
                threshold=_Chosen(chooser.choose(held_out(own, packed))),
                perturber=composition.perturber,
                smoother=composition.smoother,
                epsilon=epsilon,
                bound=setting.bound,
                max_range=setting.max_range,
                # The same grid as the publisher's, unless it must serve another budget.
                resolution=composition.resolution if epsilon == setting.epsilon else parameters.get("resolution"),
                nonfinite=composition.nonfinite,
                key=own,
            )
            release = second.release(body)
            # What blocks that follow the stream would have been without noise, nobody can tell.
            splits = not isinstance(composition.perturber, perturbers.Blocks)
            return Outcome(release.range_sum, release.threshold, release.block, composition.smoother, splits=splits)

        return run


class _Chosen(Fixed):
    """A threshold that was chosen before, above the bound too: the grid takes it up to its ceiling."""

    def start(self, task: ThresholdTask) -> Any:
        return super().start(replace(task, bound=max(task.bound, self.theta)))


def _renewing(composition: StreamParameters, values: Floats) -> Run:
    """Thresholds that change belong to no one theta."""
    arguments = {name: getattr(composition, name) for name in StreamParameters.__dataclass_fields__}

    def run(key: Key) -> Outcome:
        return Outcome(StreamPublisher(**arguments, key=key).release(values).range_sum, float("nan"))

    return run


class _Adaptive:
    """Adaptive; answers are those of the revised stream, or with ``retrospective = false`` sums of published values.

    A revised stream is a function of the blocks' sums, so exact sums give its noiseless twin, with the same blocks.
    Published values are not: predictions depend on what was released before, noise included.
    """

    accepted = (*parameter_names(Adaptive), "retrospective")

    def check(self, parameters: Parameters, setting: Setting) -> None:
        self._build(parameters, setting, Key.from_seed(0))

    def _build(self, parameters: Parameters, setting: Setting, key: Key) -> tuple[Adaptive, bool]:
        arguments = build_parts(parameters)
        looks_back = validation.flag("retrospective", arguments.pop("retrospective", True))
        publisher = Adaptive(setting.epsilon, setting.bound, setting.holdout, setting.max_range, key=key, **arguments)
        return publisher, looks_back

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        def run(key: Key) -> Outcome:
            publisher, looks_back = self._build(parameters, setting, key)
            release = publisher.release(values)
            answer = partial(release.range_sum, retrospective=looks_back)
            revision = release.revision
            if revision is None or not looks_back:
                return Outcome(answer, release.threshold, splits=False)
            return Outcome(answer, release.threshold, exact=partial(_noiseless, revision))

        return run


def _noiseless(revision: RevisedStream, before: Callable[[Indices], Floats], stops: Indices) -> Floats:
    totals = np.diff(before(revision.edges)) / revision.threshold
    return replace(revision, totals=totals).sums_before(stops)


class _Whole:
    """A system that releases the whole stream at once, hold-out and all."""

    def __init__(self, build: Callable[..., ToPL | PAK], accepted: tuple[str, ...]) -> None:
        self._build = build
        self.accepted = accepted

    def check(self, parameters: Parameters, setting: Setting) -> None:
        self._build(setting, Key.from_seed(0), **build_parts(parameters))

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        arguments = build_parts(parameters)

        def run(key: Key) -> Outcome:
            release = self._build(setting, key, **arguments).release(values)
            return Outcome(release.range_sum, release.threshold)

        return run


def _topl(setting: Setting, key: Key, **arguments: Any) -> ToPL:
    return ToPL(setting.epsilon, setting.bound, setting.holdout, setting.max_range, key=key, **arguments)


def _pak(setting: Setting, key: Key, **arguments: Any) -> PAK:
    length = setting.holdout + setting.published
    delta = arguments.pop("delta", 1.0 / max(2, length) ** 2)
    return PAK(setting.epsilon, delta, setting.bound, length, holdout=setting.holdout, key=key, **arguments)


class _Zeros:
    """Publishes zeros."""

    accepted: tuple[str, ...] = ()

    def check(self, parameters: Parameters, setting: Setting) -> None:
        """Nothing can be wrong."""

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        release = Zeros(setting.holdout).release(values)
        return lambda key: Outcome(release.range_sum, 0.0)


#: Systems by the name that a specification calls them; add to it what else a sweep is to run.
SYSTEMS: dict[str, System] = {
    "adaptive": _Adaptive(),
    "tops": _Composed(ToPS),
    "publisher": _Composed(StreamPublisher),
    "topl": _Whole(_topl, parameter_names(ToPL)),
    "pak": _Whole(_pak, tuple(name for name in parameter_names(PAK) if name not in ("average", "lag_sums"))),
    "base": _Zeros(),
}

__all__ = ["SYSTEMS", "Outcome", "Run", "Setting", "System", "build_parts", "parameter_names"]
