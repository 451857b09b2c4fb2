"""The mechanisms that a sweep of values can compare, by name; others can be registered.

A system turns the parameters of a ``[[mechanisms]]`` table into runs on a stream.  ``prepare`` computes once what
repetitions share: the histogram of a hold-out, or its sorted copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp import perturbers, validation
from fastdp.errors import ParameterError
from fastdp.randomness.key import Key
from fastdp.releases.release import Release
from fastdp.releases.revised import RevisedStream
from fastdp.smoothers import Smoother
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.stream.adaptive import Adaptive
from fastdp.systems.stream.parameters import StreamParameters, vars_of
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.tops import ToPS
from fastdp.systems.topl.publisher import ToPL
from fastdp.thresholds import Fixed, ThresholdTask
from fastdp.thresholds.base import held_out
from fastdp_lab.baselines.w_event import Scheme, WEvent
from fastdp_lab.baselines.zeros import Zeros
from fastdp_lab.sweeps.parts import Parameters, build_parts, parameter_names

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


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
class RunResult:
    """What is measured of one run.

    Attributes
    ----------
    answer : callable
        Private answers to sums over [starts, stops), int64[q] each, indices into the published part.
    theta : float
        The threshold: values were clipped to [0, theta].  NaN if it changed during the run, or there is none.
    block : int
        Values under one noisy sum.
    smoother : Smoother or None
        Predicts values within a block.
    exact : callable or None
        In place of block and smoother: given the clipped stream's prefix sums before positions (a function of
        int64[k]), the sums before positions of the same mechanism without noise.
    splits : bool
        Whether noise and smoothing can be separated.
    """

    answer: Callable[[Indices, Indices], Floats]
    theta: float
    block: int = 1
    smoother: Smoother | None = None
    exact: Callable[[Callable[[Indices], Floats], Indices], Floats] | None = None
    splits: bool = True


Run = Callable[[Key], RunResult]


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


class _Composed:
    """ToPS, and any composition of threshold, perturber and smoother.

    ``threshold_epsilon`` and ``publish_epsilon`` set separate budgets for the two phases (ToPS section 5.4).
    Without them a run is bit for bit what the publisher releases under the same key.  A threshold that is not
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
        """Parts and parameters, the threshold's task, and the perturber's budget."""
        arguments = build_parts(parameters)
        given = {name: arguments.pop(name, None) for name in ("threshold_epsilon", "publish_epsilon")}
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
        each = composition.unit_epsilon
        first, second = (each if value is None else validation.positive(name, value) for name, value in given.items())
        if composition.contributions > 1 and (first, second) != (each, each):
            raise ParameterError(
                f"contributions = {composition.contributions}: expected no threshold_epsilon or publish_epsilon "
                "besides it"
            )
        if composition.renewal is not None and (first, second) != (each, each):
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
            return self._renewed(composition, values)
        chooser = composition.threshold.start(task)
        chooser.observe(values[: setting.holdout])
        body, packed = values[setting.holdout :], chooser.pack()
        budgets = task.epsilon, epsilon
        usual = budgets == (composition.unit_epsilon, composition.unit_epsilon)

        def run(key: Key) -> RunResult:
            own = composition.noise_key(key)
            if not usual:
                own = own.within("budgets", *map(repr, budgets))
            theta = chooser.choose(held_out(own, packed))
            second = StreamPublisher(
                # Runs whose threshold is Fixed share their composition.
                threshold=Fixed(theta) if usual and theta <= composition.grid.bound else _Chosen(theta),
                perturber=composition.perturber,
                smoother=composition.smoother,
                epsilon=epsilon,
                bound=setting.bound,
                max_range=setting.max_range,
                # The same grid as the publisher's, unless it must serve another budget.
                resolution=composition.resolution
                if epsilon == composition.unit_epsilon
                else parameters.get("resolution"),
                nonfinite=composition.nonfinite,
                key=own,
            )
            release = second.release(body)
            # Blocks that follow the stream would have other borders without noise.
            splits = not isinstance(composition.perturber, perturbers.Blocks)
            return RunResult(release.range_sum, release.threshold, release.block, composition.smoother, splits=splits)

        return run

    def _renewed(self, composition: StreamParameters, values: Floats) -> Run:
        """Thresholds that change have no single theta."""
        # A budget of its own belongs to whole streams.
        fields = {name: value for name, value in vars_of(composition).items() if name != "budget"}

        def run(key: Key) -> RunResult:
            return RunResult(StreamPublisher(**fields, key=key).release(values).range_sum, math.nan)

        return run


class _Chosen(Fixed):
    """A threshold that was chosen before; it may exceed the bound, up to the grid's ceiling."""

    def start(self, task: ThresholdTask) -> Any:
        return super().start(replace(task, bound=max(task.bound, self.theta)))


Build = Callable[..., tuple[Any, Callable[[Any], RunResult]]]


class _Whole:
    """A system that releases the whole stream at once, hold-out included."""

    def __init__(self, build: Build, accepted: tuple[str, ...]) -> None:
        self._build = build
        self.accepted = accepted

    def check(self, parameters: Parameters, setting: Setting) -> None:
        self._build(setting, Key.from_seed(0), **build_parts(parameters))

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        arguments = build_parts(parameters)

        def run(key: Key) -> RunResult:
            publisher, result = self._build(setting, key, **arguments)
            return result(publisher.release(values))

        return run


def _published(release: Release) -> RunResult:
    return RunResult(release.range_sum, release.threshold)


def _topl(setting: Setting, key: Key, **arguments: Any) -> tuple[ToPL, Callable[[Release], RunResult]]:
    return ToPL(setting.epsilon, setting.bound, setting.holdout, setting.max_range, key=key, **arguments), _published


def _pak(setting: Setting, key: Key, **arguments: Any) -> tuple[PAK, Callable[[Release], RunResult]]:
    length = setting.holdout + setting.published
    delta = arguments.pop("delta", 1.0 / max(2, length) ** 2)
    return PAK(
        setting.epsilon, delta, setting.bound, length, holdout=setting.holdout, key=key, **arguments
    ), _published


def _adaptive(setting: Setting, key: Key, **arguments: Any) -> tuple[Adaptive, Callable[[Any], RunResult]]:
    """Answers are those of the revised stream.

    It is a function of the blocks' sums, so exact sums give its noiseless counterpart, with the same blocks.
    """

    def result(release: Any) -> RunResult:
        answer = partial(release.range_sum, revised=True)
        if release.revision is None or release.revision.threshold != release.threshold:
            # Without noise theta would rise elsewhere.
            return RunResult(answer, release.threshold, splits=False)
        return RunResult(answer, release.threshold, exact=partial(_noiseless, release.revision))

    publisher = Adaptive(setting.epsilon, setting.bound, setting.holdout, setting.max_range, key=key, **arguments)
    return publisher, result


def _noiseless(revision: RevisedStream, before: Callable[[Indices], Floats], stops: Indices) -> Floats:
    totals = np.diff(before(revision.edges)) / revision.threshold
    return replace(revision, totals=totals).sums_before(stops)


def _w_event(scheme: Scheme) -> Build:
    """A baseline for w-event privacy: the bound is its theta, and no value is held out."""

    def build(
        setting: Setting, key: Key, *, contributions: Any = 1, **arguments: Any
    ) -> tuple[WEvent, Callable[[Release], RunResult]]:
        publisher = WEvent(scheme, setting.epsilon, setting.bound, contributions, key=key, **arguments)

        def result(release: Release) -> RunResult:
            behind = release.values[setting.holdout :]
            answer = Release(behind, setting.holdout, setting.bound, release.guarantee).range_sum
            # Which values are released depends on the noise of earlier ones.
            return RunResult(answer, setting.bound, splits=False)

        return publisher, result

    return build


class _Zeros:
    """Publishes zeros; ``threshold`` says where a clipped truth is clipped (ToPS section 5.3), which is 0 without."""

    accepted: tuple[str, ...] = ("threshold",)
    _clipping = _Composed(StreamPublisher)

    def check(self, parameters: Parameters, setting: Setting) -> None:
        """Build the threshold."""
        if parameters:
            self._clipping.check({**parameters, "perturber": {"part": "Flat"}}, setting)

    def prepare(self, parameters: Parameters, setting: Setting, values: Floats) -> Run:
        release = Zeros(setting.holdout).release(values)
        if not parameters:
            return lambda key: RunResult(release.range_sum, 0.0)
        clip = self._clipping.prepare({**parameters, "perturber": {"part": "Flat"}}, setting, values)
        return lambda key: RunResult(release.range_sum, clip(key).theta, splits=False)


#: Systems by their name in a specification; add others here.
SYSTEMS: dict[str, System] = {
    "adaptive": _Whole(_adaptive, parameter_names(Adaptive)),
    "tops": _Composed(ToPS),
    "publisher": _Composed(StreamPublisher),
    "topl": _Whole(_topl, parameter_names(ToPL)),
    "pak": _Whole(_pak, tuple(name for name in parameter_names(PAK) if name not in ("average", "lag_sums"))),
    "uniform": _Whole(_w_event("uniform"), ("contributions", "resolution")),
    "sample": _Whole(_w_event("sample"), ("contributions", "resolution")),
    "budget-distribution": _Whole(_w_event("distribution"), ("contributions", "resolution")),
    "budget-absorption": _Whole(_w_event("absorption"), ("contributions", "resolution")),
    "base": _Zeros(),
}
