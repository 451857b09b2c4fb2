"""Identity of a mechanism in its noise key: class, rule, parameters, parts; what is drawn under it."""

from __future__ import annotations

import inspect
import itertools
import struct
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local, noise, perturbers, points, smoothers, thresholds
from fastdp import record as sharing
from fastdp.counters import BinaryTree, Block, RunningCounts, SelectiveCounting, Simple
from fastdp.errors import ParameterError
from fastdp.noise import canonical, public_draws
from fastdp.noise import key as keys
from fastdp.noise.canonical import encode, identity
from fastdp.noise.key import Binding, Key
from fastdp.noise.words import Purpose
from fastdp.perturbers import Blocks, Flat, Hierarchy, Toeplitz
from fastdp.points import Box, PrivTree
from fastdp.streams.add_noise import VectorNoise
from fastdp.streams.array_rule import ArrayRule
from fastdp.streams.methods import Adaptive
from fastdp.tables.functions import make_plan, make_shares
from fastdp.tables.statistics import Count, Mean, Sum
from fastdp.thresholds import (
    Fixed,
    NoisyMax,
    PAKQuantile,
    ScaleFree,
    SmoothQuantile,
    SquareWave,
    TruePercentile,
    renewals,
)
from tests.noise_values import bound_key
from tests.state.saved_objects import Alternating

SECRET = bytes(range(32))
SQUARE = Box([0.0, 0.0], [1.0, 1.0])


class Turns(Alternating):
    """A selector of another class."""


class Mechanism(NamedTuple):
    """A mechanism with usual arguments, and other values of each; a mapping is several that go together."""

    make: Callable[..., Any]
    usual: dict[str, Any]
    others: dict[str, list[Any]]


COMPOSED: dict[str, Any] = {"epsilon": 1.0, "bound": 64.0, "holdout": 50, "max_range": 64, "resolution": 2.0**-10}
OTHERS: dict[str, list[Any]] = {
    "epsilon": [2.0, 1.0 + 2.0**-52], "bound": [65.0], "holdout": [51], "max_range": [65], "resolution": [2.0**-9],
    "nonfinite": ["zero"], "contributions": [2],
}  # fmt: skip
#: Parameters that no key knows by themselves, and why.
PACE = dict.fromkeys(("expected_length", "every"), "chooses the default hold-out and max_range, which join")
SECRETS = dict.fromkeys(("seed", "key"), "is the secret")
UNKNOWN: dict[str, dict[str, str]] = {
    "ToPS": PACE,
    "StreamPublisher": {"sensitivity": "takes the place of the bound"},
    "Adaptive": PACE | {"sensitivity": "takes the place of the bound"},
    "whole stream": {"size": "one family for streams of all lengths; it joins the key of each (tests/ledger)"},
    "Windows": {"lateness": "says which rows still count: noise is bound to their sums"},
}
POINTS: dict[str, Any] = {"domain": SQUARE, "epsilon": 1.0, "max_depth": 5}
POINT_OTHERS: dict[str, list[Any]] = {
    "domain": [Box([0.0, 0.0], [1.0, 2.0]), Box([0.0], [1.0])],
    "epsilon": [2.0],
    "max_depth": [6],
    "fan_out": [3],
    "outside": ["clip"],
}
RENEWALS = [
    renewals.RenewFromHoldout(),
    renewals.RenewFromHoldout(2),
    renewals.RenewFromHoldout(1, 60),
    renewals.RenewFromPublished(0.1),
]
#: A delta, and keys that need it.
PRIVATE: dict[str, Any] = {"delta": 1e-6, "keys": None}
TIME = fastdp.Time("at", "1h", start="2024-01-01")
SUM, COUNT, HEAVY = Sum("kwh"), Count(), fastdp.Value(10.0, weight=2.0)
MANY = fastdp.Person("who", rows=48, per="1d", per_window=1)
PERSON, ONLINE = fastdp.Person("who", rows=3, per="6h"), fastdp.Person("who", rows=12, per="6h", per_window=2)
BLOCKS = [
    *(Blocks(focus=8), Blocks(focus=(8, 16)), Blocks(rising=False)),
    *(Blocks(season=8), Blocks(season=8.5)),
]
CHANGES = {"every": "2h", "start": "2024-01-02", "origin": "2024-01-01T01:00", "zone": "Europe/Berlin"}
TIMES = [replace(TIME, **{name: value}) for name, value in CHANGES.items()]

MECHANISMS: dict[str, Mechanism] = {
    "StreamPublisher": Mechanism(
        fastdp.StreamPublisher,
        {**COMPOSED, "threshold": NoisyMax(), "perturber": Hierarchy(4, prune=0), "smoother": smoothers.Recent()},
        {
            **OTHERS, "threshold": [NoisyMax(c=59.0), ScaleFree(), SmoothQuantile(delta=0.1)],
            "perturber": [Hierarchy(2, prune=0), Hierarchy(4, prune=1), Hierarchy(3, prune=0)], "delta": [],
            "smoother": [None, smoothers.Mean(), smoothers.Median(), smoothers.Exponential()], "renewal": RENEWALS,
        },
    ),
    "ToPS": Mechanism(
        fastdp.ToPS,
        {**COMPOSED, "prune": 1, "fan_out": 4},
        {
            **OTHERS, "prune": [0, 2], "fan_out": [2], "smoother": ["mean"],
            "threshold": [NoisyMax(c=59.0, fan_out=4), NoisyMax(noise="exponential", fan_out=4), 9.0],
        },
    ),
    "Adaptive": Mechanism(
        Adaptive,
        {**COMPOSED, "threshold": NoisyMax()},
        {
            **OTHERS, "perturber": BLOCKS, "threshold": [Fixed(9.0), NoisyMax(noise="exponential")],
            "delta": [1e-6, 1e-9],
        },
    ),
    "PAK": Mechanism(
        fastdp.PAK,
        {
            "epsilon": 1.0, "delta": 1e-3, "bound": 64.0, "length": 200, "holdout": 50, "resolution": 0.5,
            "threshold": PAKQuantile(delta=1e-3, clip=False),
        },
        {
            "epsilon": [2.0], "delta": [2e-3], "bound": [65.0], "length": [201], "holdout": [51], "share": [0.5],
            "tail_factor": [1.5], "threshold": [NoisyMax(), PAKQuantile(p=0.5, delta=1e-3, clip=False)],
            "lag_sums": [True], "clip": [False], "average": [3, 4, "all"], "resolution": [0.25],
        },
    ),
    "ToPL": Mechanism(
        fastdp.ToPL,
        {"epsilon": 1.0, "bound": 64.0, "holdout": 50, "max_range": 64},
        {
            "epsilon": [2.0], "bound": [65.0], "holdout": [51], "max_range": [65],
            "threshold": [Fixed(9.0), "linear", SquareWave(method="sw")], "threshold_epsilon": [2.0],
            "publish_epsilon": [2.0], "nonfinite": ["zero"],
        },
    ),
    "RunningCounts": Mechanism(
        RunningCounts,
        {"counter": Block(8), "epsilon": 1.0},
        {"counter": [Simple(), Block(9), Block(8, settles=True), BinaryTree(8)], "epsilon": [2.0], "size": [2]},
    ),
    "SelectiveCounting": Mechanism(
        SelectiveCounting,
        {"counters": [Simple(), Block(8)], "selector": Alternating(), "epsilon": 1.0},
        {
            "counters": [[Block(8), Simple()], [Simple()], [Simple(), Block(9)]], "selector": [Turns()],
            "epsilon": [2.0], "dimension": [2],
        },
    ),
    "PHDStream": Mechanism(
        fastdp.PHDStream,
        POINTS,
        {
            **POINT_OTHERS, "counter": ["block", Block(9), "binary"], "sensitivity": [2], "threshold": [1.0],
            "score": ["paper"], "retention": [0], "total_share": [0.0, 0.1],
        },
    ),
    "AdaptivePHDStream": Mechanism(
        fastdp.AdaptivePHDStream,
        POINTS,
        {
            **POINT_OTHERS, "sensitivity": [2], "period": [2, 3], "max_period": [5], "shrink": [False],
            "total_share": [0.0, 0.1],
        },
    ),
    "PrivTree": Mechanism(PrivTree, POINTS, {**POINT_OTHERS, "threshold": [1.0]}),
    "whole stream": Mechanism(
        ArrayRule,
        {"size": 500, "epsilon": 1.0, "bound": 64.0, "threshold": NoisyMax()},
        {
            "epsilon": [2.0], "bound": [65.0], "season": [24.0],
            "threshold": [None, Fixed(9.0), NoisyMax(noise="exponential")], "contributions": [2],
            "delta": [1e-6, 1e-9], "nonfinite": ["zero"],
        },
    ),
    "totals": Mechanism(
        make_plan,
        {"statistics": [SUM], "time": TIME, "epsilon": 1.0, "bounds": 10.0, "by": "at"}
        | {"keys": ["a"], "unit": PERSON},
        {
            "time": [*TIMES, replace(TIME, start=None)],
            "statistics": [
                [Mean("kwh")], [SUM, COUNT], {"statistics": [COUNT], "bounds": None},
                {"statistics": [SUM, Sum("euro")], "bounds": {"kwh": 10.0, "euro": 10.0}},
                {"statistics": [SUM, Sum("euro")], "bounds": {"kwh": HEAVY, "euro": 10.0}},
                {"statistics": [SUM, Mean("euro")], "bounds": {"kwh": 10.0, "euro": 10.0}},
            ],
            "unit": [
                *(replace(PERSON, **change) for change in ({"rows": 2}, {"per": "3h"}, {"per_window": 1})),
                replace(PERSON, keys=1),
                replace(PERSON, per_window=1, basis="calendar"),
                fastdp.Rows(3, per="6h"),
            ],
            "epsilon": [2.0],
            "bounds": [
                *(11.0, (-1.0, 10.0), fastdp.Value(clip=2.0), fastdp.Value(clip=3.0)),
                *(fastdp.Value(10.0, resolution=0.5), fastdp.Value(10.0, nonfinite="zero")),
            ],
            "by": ["other"],
            "keys": [["a", "b"], "public", {"delta": 1e-6, "keys": fastdp.PrivateKeys(share=0.3)}],
            # Gaussian noise too, where rows are many.
            "delta": [PRIVATE, {**PRIVATE, "delta": 1e-7}, {"delta": 1e-6, "unit": MANY}],
            "levels": [True],
        },
    ),
    "Windows": Mechanism(
        fastdp.Windows,
        {"statistics": {"kwh": "sum"}, "time": TIME, "epsilon": 1.0, "bounds": 10.0, "unit": ONLINE},
        {
            "statistics": [{"statistics": {"kwh": "mean"}}, {"statistics": {"kwh": "sum", "*": "count"}}],
            "time": TIMES,
            "epsilon": [2.0],
            "bounds": [11.0, fastdp.Value(10.0, resolution=0.5), fastdp.Value(10.0, nonfinite="zero")],
            "delta": [{"delta": 1e-6, "unit": fastdp.Person("who", rows=48, per="1d", per_window=2)}],
            "by": [],
            "keys": [],
            "unit": [replace(ONLINE, **change) for change in ({"rows": 13}, {"per": "3h"}, {"per_window": 1})],
        },
    ),
    "add_noise": Mechanism(
        VectorNoise,
        {"sensitivity": 1.0, "epsilon": 1.0, "size": 3, "integers": False, "wanted": 0.5},
        {"sensitivity": [2.0], "epsilon": [2.0], "size": [4], "integers": [], "wanted": [None, 0.25]},
    ),
    "draws": Mechanism(
        public_draws._Draws,
        {"name": "discrete_laplace", "numerator": 5, "denominator": 2},
        {"name": ["geometric", "discrete_gaussian"], "numerator": [7], "denominator": [3]},
    ),
}  # fmt: skip
mechanisms = pytest.mark.parametrize("name", MECHANISMS)


def key_of(name: str, secret: Key | bytes = SECRET, /, **changed: Any) -> Key:
    mechanism = MECHANISMS[name]
    given = {**mechanism.usual, **changed}
    if "key" not in inspect.signature(mechanism.make).parameters:
        return Key.choose(None, secret).bind(mechanism.make(**given))
    return mechanism.make(**given, key=Key.choose(None, secret))._key


@mechanisms
def test_every_parameter_is_in_the_key(name: str) -> None:
    mechanism = MECHANISMS[name]
    keys = [key_of(name)]
    for parameter, others in mechanism.others.items():
        together = (other if isinstance(other, dict) else {parameter: other} for other in others)
        keys += [key_of(name, **changes) for changes in together]
    assert len({key.reveal() for key in keys}) == len(keys)
    assert all(key.binding is Binding.COMPOSITION for key in keys)
    assert key_of(name).reveal() == keys[0].reveal()
    assert SECRET not in {key.reveal() for key in keys}


@mechanisms
def test_no_parameter_is_left_out(name: str) -> None:
    make = MECHANISMS[name].make
    named = inspect.signature({make_plan: make_shares}.get(make, make)).parameters
    assert set(named) - set(MECHANISMS[name].others) == {*(SECRETS.keys() & named.keys()), *UNKNOWN.get(name, {})}


@pytest.mark.parametrize("name", ["totals", "Windows"])
def test_no_field_of_a_unit_is_left_out(name: str) -> None:
    """Each field of the unit changes in some row above, but for those of which no noise depends.

    Whose rows count is read by name, ``most`` moves ends of intervals alone, and windows that close have no calendar
    and no keys of a person.
    """
    usual = MECHANISMS[name].usual["unit"]
    same_kind = [other for other in MECHANISMS[name].others["unit"] if type(other) is type(usual)]
    differs = {field for other in same_kind for field, value in vars(other).items() if value != getattr(usual, field)}
    assert differs == set(vars(usual)) - {"column", "most"} - ({"basis", "keys"} if name == "Windows" else set())


PARTS = [
    *(Hierarchy(prune=0), Toeplitz(), Flat(), Blocks(), smoothers.Mean(), smoothers.Recent(), smoothers.Median()),
    *(smoothers.MovingAverage(), smoothers.Exponential(), NoisyMax(), ScaleFree(), SmoothQuantile(), PAKQuantile()),
    *(
        SquareWave(), Fixed(3.0), TruePercentile(0.5), renewals.RenewFromHoldout(), renewals.RenewFromPublished(),
        Simple(), Block(),
    ),
    *(BinaryTree(), Box([0.0], [1.0])),
    *(local.SquareWave(1.0, 0.5, 2.0), local.LogSquareWave(1.0, 1.0, 8.0), local.Piecewise(1.0), local.Hybrid(1.0)),
    local.StochasticRounding(1.0),
]  # fmt: skip
#: Another value for a field, by its name or its value.
CHANGED = {
    "prune": 3, "delta": 0.25, "step": 0.5, "report_epsilon": 0.5, "publish_epsilon": 0.5,
    "method": "sw", "scale": "logarithmic", "bins": 77, "holdout": 77,
    "focus": (8, 16), "season": 8.0, "lengths": "all", "length": 65, "window": 65,
}  # fmt: skip
NOISES = {"laplace": "exponential", "exponential": "laplace"}


def changed(part: Any, name: str) -> Any:
    value = getattr(part, name)
    if name == "noise":
        of_sums = isinstance(part, (Flat, Hierarchy, PAKQuantile))
        other: Any = "gaussian" if of_sums else "cauchy" if isinstance(part, SmoothQuantile) else NOISES[value]
    elif name in CHANGED:
        other = CHANGED[name]
    elif isinstance(value, tuple):
        other = tuple(each * (1.0 - 2.0**-20) for each in value)
    else:
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 0.9
    return replace(part, **{name: other})


def test_parts_have_all_their_parameters_in_the_key() -> None:
    variants = [part for part in PARTS if not isinstance(part, Box)]
    variants += [changed(part, f.name) for part in variants for f in fields(part) if f.init]
    variants += [Box([0.0], [1.0]), Box([0.0], [2.0]), Box([-1.0], [1.0]), Box([0.0, 0.0], [1.0, 1.0])]
    encoded = {encode(identity(part)) for part in variants}
    assert len(encoded) == len(variants) > 60


def known_classes() -> Iterator[type]:
    """Public classes of mechanisms and parts."""
    for module in (fastdp, counters, local, perturbers, smoothers, points, thresholds, renewals):
        for name in module.__all__:
            found = getattr(module, name)
            if isinstance(found, type) and not getattr(found, "_is_protocol", False):
                yield found


#: Public classes without noise of their own, and why no key knows them.
WITHOUT_NOISE = {
    "draws nothing": ("Announcement", "HistogramCollector", "SumCollector", "ToPLServer", "Client"),
    "a key, a promise, an account, or an answer": ("Key", "Guarantee", "Ledger", "Plan", "Release"),
    "a release, or an index of one": ("ReleasedTree", "SyntheticPoints", "WindowTree"),
    "a file, whose rows are read": ("Csv",),
    "parameters of tables, whose plan is a mechanism": ("Person", "PrivateKeys", "Rows", "Time", "Value"),
    "many streams of another mechanism": ("Fleet",),
    "needs shapely (tests/points)": ("Polygons", "Network"),
}


def test_every_public_mechanism_and_part_is_here() -> None:
    tested = {mechanism.make for mechanism in MECHANISMS.values()} | {type(part) for part in PARTS}
    named = {name for names in WITHOUT_NOISE.values() for name in names}
    left = {kind.__name__ for kind in known_classes() if kind not in tested} - {"Selected"}
    assert left == named


def classes_in(name: str, monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The classes whose rules are in a mechanism's key."""
    found: list[type] = []

    def rule_of(part: Any) -> int:
        found.append(type(part))
        return 1

    with monkeypatch.context() as patch:
        for module in (canonical, keys):
            patch.setattr(module, "rule_of", rule_of)
        fresh_key(name)
    return found


def fresh_key(name: str) -> Key:
    """Without the encoding that publishers alike share."""
    sharing._shared.cache_clear()
    return key_of(name)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_raised_rule_is_in_the_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the mechanism, and of each of its parts."""
    usual, kinds = fresh_key(name), classes_in(name, monkeypatch)
    assert kinds
    for kind in kinds:
        with monkeypatch.context() as patch:
            patch.setattr(kind, "rule", 7, raising=False)
            assert fresh_key(name) != usual
    sharing._shared.cache_clear()
    assert key_of(name) == usual


def test_each_class_has_a_rule_and_an_identity_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that one class has from another is raised with it, and a name twice would be one part."""
    kinds = {type(part) for part in PARTS} | {kind for name in MECHANISMS for kind in classes_in(name, monkeypatch)}
    own = [kind for kind in kinds if kind.__module__.startswith(("fastdp.", "fastdp_lab."))]
    assert len(own) >= 40
    assert all("rule" in vars(kind) for kind in own)
    # Two are a SquareWave: of the threshold, and of the reports that it is chosen from.
    known = {(kind.__name__, *getattr(kind, "__match_args__", ())) for kind in own}
    assert len(known) == len(own)


def test_reports_belong_to_the_rule_of_their_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    def report() -> Any:
        return local.Hybrid(1.0, 0.0, 1.0).perturb([0.5] * 300, key=SECRET, start=0)

    before = report()
    assert (report() == before).all()
    monkeypatch.setattr(local.Hybrid, "rule", 2)
    assert (report() != before).mean() > 0.2


class Scaled(Flat):
    """No dataclass of its own: its constructor sets what no field names."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        object.__setattr__(self, "factor", factor)

    def node_noise(self, plan: Any, theta_steps: int, epsilon: float, key: Key, tree: int) -> Any:
        return self.factor * super().node_noise(plan, theta_steps, epsilon, key, tree)


def test_a_subclass_with_a_parameter_of_its_own_has_noise_of_its_own() -> None:
    values = np.arange(20.0) % 7
    once, twice = (
        fastdp.StreamPublisher(
            epsilon=1.0, bound=64.0, threshold=Fixed(8.0), perturber=Scaled(factor), smoother=None, key=SECRET
        ).publish(values)
        for factor in (1, 2)
    )
    assert np.abs(2.0 * once - twice - values).max() > 1.0


@dataclass(frozen=True)
class Derived:
    """Its parameter is no field, and its only field no parameter."""

    factor: InitVar[int]
    squared: int = field(init=False)

    def __post_init__(self, factor: int) -> None:
        object.__setattr__(self, "squared", factor**2)


class Slots:
    __slots__ = ("factor",)


class Beside(Slots):
    def __init__(self, factor: int) -> None:
        self.factor = factor


class One(NamedTuple):
    factor: int = 1


class Other(NamedTuple):
    factor: int = 1


def test_attributes_in_slots_and_classes_of_named_tuples_are_in_the_key() -> None:
    nested = [{"part": Hierarchy(prune=0), "list": [Fraction(1, 3), each]} for each in (Flat(), Blocks())]
    parts = [Beside(1), Beside(2), One(), One(2), Other(), [1], Derived(1), Derived(2), *nested]
    assert len({encode(identity(part)) for part in parts}) == len(parts)
    for array in (np.array([1, "a"], object), np.zeros(2, [("a", "i4"), ("b", "f4")])):
        with pytest.raises(TypeError, match="no encoding"):
            identity(array)


VALUES = np.arange(300.0) * 7.0 % 41.0


def test_events_and_paces_are_in_the_key() -> None:
    options: list[dict[str, Any]] = [
        *({"sensitivity": 1.0}, {"sensitivity": 2.0}, {"sensitivity": 1.0, "contributions": 2}),
        *({"bound": 1.0, "expected_length": 10**5}, {"bound": 1.0, "expected_length": 10**6}),
        *({"bound": 1.0, "threshold": 1.0, **more} for more in ({}, {"delta": 1e-6}, {"delta": 1e-9})),
        *({"bound": 1.0, "threshold": 1.0, "perturber": Blocks(focus=focus)} for focus in ("longest", 100)),
    ]
    flat = {"threshold": Fixed(3.0), "perturber": Flat(noise="gaussian"), "epsilon": 1.0, "bound": 8.0, "key": SECRET}
    made: list[Any] = [fastdp.StreamPublisher(**flat, delta=delta) for delta in (1e-6, 1e-9)]
    made += [Adaptive(1.0, **each, key=SECRET) for each in options]
    assert len({publisher._key.reveal() for publisher in made}) == len(made)


def test_mechanisms_streams_and_secrets_have_keys_of_their_own() -> None:
    secret = Key.from_bytes(SECRET)
    secrets = [secret, Key.from_bytes(bytes(32)), *(secret.of_stream(s) for s in ("a", "b", 0, 1, 2**32 - 2))]
    keys = [key_of(name, each) for name in MECHANISMS for each in secrets]
    assert len(set(keys)) == len(keys)


def test_a_part_without_readable_parameters_needs_a_seed() -> None:
    class Opaque(Flat):
        """Its parameter is where nothing finds it."""

        def __init__(self, hidden: object) -> None:
            object.__setattr__(self, "hidden", hidden)

        def identity(self) -> dict[str, Any]:
            return {"hidden": self.hidden}

    def make(**secret: Any) -> fastdp.StreamPublisher:
        return fastdp.StreamPublisher(threshold=Fixed(3.0), perturber=Opaque(object()), epsilon=1, bound=8, **secret)

    with pytest.raises(ParameterError, match=r"^perturber is a Opaque whose parameters cannot be read"):
        make(key=SECRET)
    for secret in ({"seed": 1}, {}):
        assert make(**secret).publish(np.ones(3)).size == 3


# What is drawn.


def words(publisher: Any) -> set[tuple]:
    """Every stream of words that was drawn from, as the check of words has recorded it."""
    return set(publisher._key.drawn._runs)


def released(secret: Key | bytes, values: np.ndarray, **options: Any) -> tuple[fastdp.StreamPublisher, np.ndarray]:
    usual = {"epsilon": 1.0, "bound": 64.0, "max_range": 64, "resolution": 2.0**-10, "holdout": 0}
    publisher = fastdp.StreamPublisher(**{**usual, "threshold": Fixed(20.0), **options}, key=secret)
    return publisher, publisher.publish(values)


@pytest.mark.parametrize("perturber", [Flat(), Hierarchy(4, prune=0), Hierarchy(2, False, 0), Blocks()], ids=str)
def test_no_word_is_shared_under_two_thetas_or_two_compositions(perturber: Any) -> None:
    runs = [released(bound_key(1), VALUES, perturber=perturber, threshold=Fixed(theta)) for theta in (20.0, 21.0)]
    runs += [released(SECRET, VALUES, perturber=perturber, epsilon=epsilon) for epsilon in (1.0, 2.0)]
    runs += [released(SECRET, VALUES, perturber=perturber, nonfinite="zero")]
    for (one, first), (two, second) in itertools.combinations(runs, 2):
        assert words(one)
        assert not words(one) & words(two)
        assert not np.array_equal(first, second)


@pytest.mark.parametrize("threshold", [NoisyMax(), ScaleFree(), SmoothQuantile(delta=0.1), SquareWave()], ids=str)
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_no_word_is_shared_by_two_hold_outs(threshold: Any) -> None:
    """Nor by renewals of the threshold on the same values."""
    drawn = []
    for first in (3.0, 30.0):
        held = VALUES[:50].copy()
        held[0] = first
        publisher, _ = released(bound_key(1), held, perturber=Flat(), threshold=threshold, holdout=50)
        drawn.append({where for where in words(publisher) if not isinstance(where[-1], bytes)})
    purposes = [{where[-1] >> 56 for where in places} for places in drawn]
    assert purposes[0] == purposes[1]
    same = {where for where in drawn[0] & drawn[1] if where[-1] >> 56 != Purpose.CHAIN}
    assert not same


def test_release_takes_the_name_of_the_stream() -> None:
    names = (None, "a", "b")
    outs = [
        fastdp.release(VALUES, 1.0, 64.0, threshold=30.0, key=SECRET, stream=name).values for name in (*names, "a")
    ]
    assert np.array_equal(outs[1], outs[3])
    for one, two in itertools.combinations(outs[:3], 2):
        assert not np.array_equal(one, two)


def test_draws_belong_to_their_law_and_number() -> None:
    scales = (2.5, 2.0, Fraction(5, 2) + Fraction(1, 2**60), 5.0)
    draws = [
        draw(scale, 200, key=SECRET, stream=stream)
        for draw, scale, stream in itertools.product((noise.discrete_laplace, noise.geometric), scales, (0, 1))
    ]
    for one, two in itertools.combinations(draws, 2):
        # Under one word draws of nearly one scale would be the same, and of twice the scale about twice.
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.4
    assert np.array_equal(
        noise.discrete_laplace(2.5, 9, key=SECRET), noise.discrete_laplace(Fraction(5, 2), 9, key=SECRET)
    )


# The encoding.

plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)
)
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
)


def decode(raw: bytes) -> tuple[Any, bytes]:
    """A value and the bytes behind it."""
    tag, raw = raw[:1], raw[1:]
    if tag in (b"t", b"f"):
        return tag == b"t", raw
    size = int.from_bytes(raw[:8], "big")
    content, rest = raw[8 : 8 + size], raw[8 + size :]
    assert len(content) == size
    if tag in (b"l", b"m"):
        entries = []
        while content:
            entry, content = decode(content)
            entries.append(entry)
        if tag == b"l":
            return entries, rest
        assert entries[::2] == sorted(set(entries[::2]))
        return dict(zip(entries[::2], entries[1::2], strict=True)), rest
    kinds = {
        b"n": lambda c: None,
        b"i": int,
        b"d": lambda c: struct.unpack(">d", c)[0],
        b"s": lambda c: c.decode("utf-8", "surrogatepass"),
        b"b": bytes,
    }
    return kinds[tag](content), rest


def typed(value: Any) -> Any:
    """Tells 1, 1.0 and True apart, not 0.0 and -0.0."""
    if isinstance(value, (list, tuple)):
        return "list", [typed(entry) for entry in value]
    if isinstance(value, dict):
        return "dict", sorted((name, typed(entry)) for name, entry in value.items())
    return type(value).__name__, value


@given(nested)
def test_the_encoding_can_be_read_back(value: Any) -> None:
    """So that it is injective."""
    found, rest = decode(encode(value))
    assert rest == b""
    assert typed(found) == typed(value)


def test_rules_of_classes_of_ones_own() -> None:
    class Parent(Flat):
        rule = 1

    class Own(Parent):
        """With another distribution than it had."""

    first = identity(Own())
    Own.rule = 2
    assert (first.rule, identity(Own()).rule) == (1, 2)
    Parent.rule = 2
    assert identity(Own()).rule == 3
    canonical.check_rule(Own, 3)
    with pytest.raises(ValueError, match="expected 3"):
        canonical.check_rule(Own, 2)
