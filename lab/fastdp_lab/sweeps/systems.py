"""The mechanisms that sweeps compare, by name; others can be added to ``SYSTEMS`` and ``SPATIAL_SYSTEMS``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

import fastdp
from fastdp import PAK, Adaptive, AdaptivePHDStream, Key, PHDStream, Release, StreamPublisher, ToPS, validation
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Indices, Json
from fastdp.noise import discrete_laplace
from fastdp.points import Domain
from fastdp.points.phdstream import NAMED_COUNTERS
from fastdp.streams import METHODS
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds.base import held_out
from fastdp_lab.baselines import FixedTree, OfflineOnBatch, OfflineOnStream, Zeros
from fastdp_lab.mechanism import Answer, Mechanism, registered
from fastdp_lab.sweeps.study import Make, System, Table, build_parts, parameter_names


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
    sensitivity : float or None
        The most by which the unit of privacy changes one value; None is the bound.
    w : int
        Steps of a window.
    persons : int
        Values of one step, for mechanisms of the local model.
    whole : bool
        Whether values are whole numbers; True where nothing but the bound limits a change.
    """

    bound: float
    holdout: int
    published: int
    max_range: int
    epsilon: float
    sensitivity: float | None = None
    w: int = 1
    persons: int = 1
    whole: bool = True


@dataclass(frozen=True)
class RunResult:
    """The outcome of one run, to be measured.

    Attributes
    ----------
    answer : callable
        Private answers to sums over [starts, stops), int64[q] each, indices into the published part.
    theta : float
        The threshold: values were clipped to [0, theta].  NaN if there is none.
    interval : callable or None
        Low and high ends of intervals with probability 95 % for the same sums.
    """

    answer: Callable[[Indices, Indices], Floats]
    theta: float
    interval: Callable[[Indices, Indices], tuple[Floats, Floats]] | None = None


Run = Callable[[Key], RunResult]
Prepare = Callable[[Floats], Run]


def _composed(publisher: Make, setting: Setting, **parameters: Any) -> Prepare:
    """ToPS, and any composition of threshold, perturber and smoother.

    ``threshold_epsilon`` and ``publish_epsilon`` set separate budgets for the two phases (ToPS section 5.4).
    Without them a run is bit for bit what the publisher releases under the same key.  A threshold that is not
    clipped (``clip = false``) may exceed the bound, as in the published code: noise grows with it, values stay
    within the bound.
    """
    arguments = build_parts(parameters)
    given = {name: arguments.pop(name, None) for name in ("threshold_epsilon", "publish_epsilon")}
    for name in ("threshold", "perturber"):
        if publisher is StreamPublisher and name not in arguments:
            raise ParameterError(f"{name} is missing: expected a table with its part")
    public: Json = {"epsilon": setting.epsilon, "bound": setting.bound, "max_range": setting.max_range}
    composition = publisher(**public, holdout=setting.holdout, seed=0, **arguments).composition
    each, r = setting.epsilon, setting.max_range
    first, second = (each if value is None else validation.positive(name, value) for name, value in given.items())
    usual = (first, second) == (each, each)
    perturber = composition.perturber
    constant = perturber.noise_constant(perturber.plan(second, r), r)
    task = replace(composition.task, epsilon=first, publish_epsilon=second, noise_constant=constant)
    composition.threshold.start(task)
    # The same grid as the publisher's, unless it must serve another budget.
    resolution = composition.resolution if second == each else parameters.get("resolution")

    def prepare(values: Floats) -> Run:
        chooser = composition.threshold.start(task)
        chooser.observe(values[: setting.holdout])
        body, packed = values[setting.holdout :], chooser.pack()

        def run(key: Key) -> RunResult:
            own = composition.noise_key(key)
            if not usual:
                own = own.within("budgets", repr(first), repr(second))
            theta = chooser.choose(held_out(own, packed))
            release = StreamPublisher(
                # Runs whose threshold is Fixed share their composition.
                threshold=Fixed(theta) if usual and theta <= composition.grid.bound else _Chosen(theta),
                perturber=perturber,
                smoother=composition.smoother,
                **{**public, "epsilon": second},
                resolution=resolution,
                nonfinite=composition.nonfinite,
                key=own,
            ).release(body)
            return RunResult(release.sum, release.threshold, release.interval if usual else None)

        return run

    return prepare


class _Chosen(Fixed):
    """A threshold that was chosen before; it may exceed the bound, up to the grid's ceiling."""

    def start(self, task: Any) -> Any:
        return super().start(replace(task, bound=max(task.bound, self.theta)))


def _published(setting: Setting, release: Release) -> RunResult:
    return RunResult(release.sum, release.threshold, release.interval)


def _whole(make: Make, result: Callable[[Setting, Any], RunResult], setting: Setting, **parameters: Any) -> Prepare:
    """A system that releases the whole stream at once, hold-out included."""
    publisher = partial(make, setting, **build_parts(parameters))
    publisher(key=Key.from_seed(0))
    return lambda values: lambda key: result(setting, publisher(key=key).release(values))


def _ranged(kind: Make, setting: Setting, **arguments: Any) -> Any:
    return kind(setting.epsilon, setting.bound, setting.holdout, setting.max_range, **arguments)


def _pak(setting: Setting, **arguments: Any) -> PAK:
    length = setting.holdout + setting.published
    delta = arguments.pop("delta", 1.0 / max(2, length) ** 2)
    return PAK(setting.epsilon, delta, setting.bound, length, holdout=setting.holdout, **arguments)


def _revised(setting: Setting, release: Any) -> RunResult:
    """Answers of Adaptive's revised stream."""
    return RunResult(release.revised.sum, release.threshold, release.revised.interval)


def _zeros(setting: Setting, **parameters: Any) -> Prepare:
    """Zeros; ``threshold`` says where a clipped truth is clipped (ToPS section 5.3), which is 0 without."""
    clipping = _composed(StreamPublisher, setting, **parameters, perturber={"part": "Flat"}) if parameters else None

    def prepare(values: Floats) -> Run:
        answer = Zeros(setting.holdout).release(values).sum
        if clipping is None:
            return lambda key: RunResult(answer, 0.0)
        clip = clipping(values)
        return lambda key: RunResult(answer, clip(key).theta)

    return prepare


def _counted(setting: Setting, **parameters: Any) -> Prepare:
    """Running sums of whole numbers with the noise of a counter, one value an activation."""
    counter: Any = build_parts({"counter": {"part": "Simple"}, **parameters})["counter"]
    scale = counter.draws * (setting.sensitivity or setting.bound) / setting.epsilon

    def prepare(values: Floats) -> Run:
        whole = np.rint(values[setting.holdout :])

        def run(key: Key) -> RunResult:
            state = np.zeros((1, counter.width), np.int64)
            noise = discrete_laplace(scale, whole.size, key=key.reveal())
            errors = [int(counter.step(state, noise[k : k + 1])[0]) for k in range(whole.size)]
            before = np.concatenate([[0.0], np.cumsum(whole + errors)])
            return RunResult(lambda starts, stops: before[stops] - before[starts], math.nan)

        return run

    return prepare


def _equation_6(setting: Setting, threshold: Table) -> Prepare:
    """Answers that are wrong by what Eq. 6 of ToPS says of a fixed theta, NOT PRIVATE: its minus, times c r / 3 m."""
    theta, rule = build_parts({"threshold": threshold})["threshold"].theta, NoisyMax()
    depth = math.log(setting.max_range, rule.fan_out)
    noise = theta / setting.epsilon * math.sqrt(2.0 * (rule.fan_out - 1) * depth**3)

    def prepare(values: Floats) -> Run:
        error = noise + rule.c * setting.max_range / 3.0 * np.mean(values[: setting.holdout] > theta)
        before = np.concatenate([[0.0], np.cumsum(values[setting.holdout :])])
        return lambda key: RunResult(lambda starts, stops: before[stops] - before[starts] + error, theta)

    return prepare


def _registered(mechanism: Mechanism, setting: Setting, **parameters: Any) -> Prepare:
    """A mechanism of an entry point, whose answer has a number for each value or step."""
    given, moved = replace(mechanism, parameters={**mechanism.parameters, **parameters}), setting.sensitivity
    if not setting.bound.is_integer() or not (moved is None or (moved.is_integer() and setting.whole)):
        raise ParameterError(
            f"bound = {setting.bound:g} or values: expected whole numbers for {mechanism.name}, because rounding "
            "would move a value by more than the sensitivity; take values in a unit that makes bound, sensitivity "
            "and values whole"
        )
    public: Json = {"bound": int(setting.bound), "sensitivity": moved or setting.bound}
    public |= {"holdout": setting.holdout, "max_range": setting.max_range}

    def prepare(values: Floats) -> Run:
        whole = np.rint(values.clip(0.0, setting.bound)).astype(np.int64)
        if mechanism.unit == "local":
            whole = whole.reshape(-1, setting.persons)
        w = len(whole) if mechanism.unit == "series" else setting.w

        def run(key: Key) -> RunResult:
            found, shift = given.run(whole, setting.epsilon, key.reveal(), **public, w=w), setting.holdout
            released = found.values if isinstance(found, Answer) else found
            before = np.concatenate([[0.0], np.cumsum(released[shift:])])
            interval = found.interval if isinstance(found, Answer) else None
            return RunResult(
                lambda starts, stops: before[stops] - before[starts],
                math.nan,
                interval=interval and (lambda starts, stops: interval(starts + shift, stops + shift)),
            )

        return run

    return prepare


class _Collected:
    """The points of all batches so far, which a registered mechanism releases once."""

    def __init__(self, mechanism: Mechanism, domain: Domain, epsilon: float, key: Key) -> None:
        self._mechanism, self._domain, self._epsilon, self._key = mechanism, domain, epsilon, key
        self._batches: list[Floats] = []
        self.total, self.tree = math.nan, SimpleNamespace(n_leaves=math.nan)

    def advance(self, added: Floats, removed: Floats) -> None:
        """Keep a batch."""
        if len(removed):
            raise ParameterError(f"{self._mechanism.name}: expected a stream of points without deletion")
        self._batches.append(added)

    def sample(self) -> Floats:
        """The released points, in the domain's coordinates."""
        if not math.isnan(self.total):
            raise ParameterError(f"times: expected one time, because {self._mechanism.name} releases once")
        low, side = self._domain.lower, self._domain.upper - self._domain.lower
        times = np.repeat(np.arange(len(self._batches)), [len(each) for each in self._batches])
        unit = (np.concatenate(self._batches) - low) / side
        found: Floats = self._mechanism.run(unit, self._epsilon, self._key.reveal(), times=times)
        self.total = float(len(found))
        return low + found.clip(0.0, 1.0) * side


def _sampled(mechanism: Mechanism, domain: Domain, epsilon: float, **parameters: Any) -> Callable[[Key], Any]:
    given = replace(mechanism, parameters={**mechanism.parameters, **parameters})
    return partial(_Collected, given, domain, epsilon)


def with_registered(systems: Mapping[str, System], make: Make, units: tuple[str, ...]) -> dict[str, System]:
    """These systems, and the mechanisms of entry points of some units."""
    found = (each for unit in units for each in registered(unit).values())
    added = {each.name: System(partial(make, each), tuple(each.parameters)) for each in found}
    return {**systems, **added}


def value_systems() -> dict[str, System]:
    """All systems of streams of values."""
    return with_registered(SYSTEMS, _registered, ("event", "w-event", "series", "local"))


def point_systems() -> dict[str, System]:
    """All systems of streams of points."""
    return with_registered(SPATIAL_SYSTEMS, _sampled, ("points",))


def _system(make: Make, accepted: tuple[str, ...], result: Any = _published) -> System:
    return System(partial(_whole, make, result), accepted)


def _ranged_system(kind: Callable[..., Any], result: Any = _published) -> System:
    return _system(partial(_ranged, kind), parameter_names(kind), result)


def _composition(publisher: Callable[..., StreamPublisher]) -> System:
    accepted = parameter_names(publisher, "threshold_epsilon", "publish_epsilon")
    return System(partial(_composed, publisher), accepted)


#: Systems of values by their name in a specification; add others here.
SYSTEMS: dict[str, System] = {
    **{name: _ranged_system(getattr(fastdp, public)) for name, public in METHODS.items()},
    "adaptive": _ranged_system(Adaptive, _revised),
    "tops": _composition(ToPS),
    "publisher": _composition(StreamPublisher),
    "pak": _system(_pak, tuple(name for name in parameter_names(PAK) if name not in ("average", "lag_sums"))),
    "base": System(_zeros, ("threshold",)),
    "counter": System(_counted, ("counter",)),
    "equation 6": System(_equation_6, ("threshold",)),
}


#: Systems that are fastdp's own methods, not baselines of papers.
OURS = {*SYSTEMS} - {"base", "counter", "equation 6"} | {"phdstream", "adaptive_phdstream"}
OURS |= {"ToPS", "PAK", "Adaptive", "release", "calendar", "ToPL", "PHDStream"}


def _points(make: Make, domain: Domain, epsilon: float, **parameters: Any) -> Callable[[Key], Any]:
    """A publisher of points at its beginning, by the key; counters are names, or tables with theirs at ``part``."""
    arguments = build_parts(parameters)
    if isinstance(arguments.get("counter"), str):
        name = validation.choice("counter", arguments["counter"], tuple(NAMED_COUNTERS))
        arguments["counter"] = NAMED_COUNTERS[name]

    def run(key: Key) -> Any:
        return make(domain, epsilon, key=key, **arguments)

    run(Key.from_seed(0))
    return run


_OFFLINE = parameter_names(OfflineOnStream)
#: Systems of points by their name in a specification; add others here.
SPATIAL_SYSTEMS: dict[str, System] = {
    "phdstream": System(partial(_points, PHDStream), parameter_names(PHDStream, "sensitivity")),
    "adaptive_phdstream": System(
        partial(_points, AdaptivePHDStream), parameter_names(AdaptivePHDStream, "sensitivity")
    ),
    "offline_on_stream": System(partial(_points, OfflineOnStream), _OFFLINE, merges=True),
    "offline_on_batch": System(partial(_points, OfflineOnBatch), _OFFLINE),
    "fixed_tree": System(partial(_points, FixedTree), (*_OFFLINE, "counter")),
}
