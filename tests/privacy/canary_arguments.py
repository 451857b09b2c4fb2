"""Every public call, found by ``__all__``, with valid arguments, any of which a wrong input can replace."""

from __future__ import annotations

import inspect
import itertools
import operator
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely

import fastdp
import fastdp_lab
from fastdp import counters, local, points, thresholds
from fastdp.noise.sampler import concentrated
from fastdp.streams import METHODS
from fastdp_lab import baselines
from tests.shared import usual_arguments

BOUND = 1e7
SQUARE = points.Box([0.0, 0.0], [1.0, 1.0])
COMMON = {"epsilon": 1.0, "bound": BOUND, "holdout": 1, "seed": 1}
PUBLISHERS: dict[str, Callable[[], Any]] = {
    **{kind: partial(getattr(fastdp, kind), **COMMON, **usual_arguments(name)) for name, kind in METHODS.items()},
    "ToPS": lambda: fastdp.ToPS(**COMMON, max_range=4, fan_out=4, prune=0),
    "StreamPublisher": lambda: fastdp.StreamPublisher(
        threshold=thresholds.Fixed(BOUND), perturber=fastdp.perturbers.Flat(), max_range=4, **COMMON
    ),
}
LOCAL = {
    name: getattr(local, name)(1.0, 1.0 if name == "LogSquareWave" else 0.0, BOUND)
    for name in ("Hybrid", "Piecewise", "StochasticRounding", "SquareWave", "LogSquareWave")
}
COLLECTORS = {
    "HistogramCollector": lambda: local.HistogramCollector(LOCAL["SquareWave"], 8),
    "SumCollector": lambda: local.SumCollector(LOCAL["Hybrid"], 2),
}
POINT_PUBLISHERS = {
    name: partial(getattr(fastdp, name), SQUARE, 1.0, max_depth=4, seed=1)
    for name in ("PHDStream", "AdaptivePHDStream")
}
POINT_BASELINES = {
    f"baselines.{name}": partial(getattr(baselines, name), SQUARE, 1.0, max_depth=4, seed=1)
    for name in ("OfflineOnStream", "OfflineOnBatch", "FixedTree")
}


class _Telling:
    """A selector that gives the secret input back as its choice."""

    guarantee = counters.event_guarantee(1.0, "none")

    def select(self, values: Any, step: int, last: Any) -> Any:
        return {0: int(values[0]), 1: float(values[0]), 2: values}.get(int(values[1]), str(values))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Called by the package alone, with objects that it made; or by whoever writes a part of their own.
#: The command synthesize is points.replay.
INNER = _words(
    "perturbers.Perturber smoothers.Smoother counters.Counter counters.Selector points.Domain thresholds.Chooser"
    " thresholds.Threshold thresholds.renewals.Renewal auditing.TrialMechanism audit.Case auditing.AuditResult"
    " auditing.Publishing errors.warn sweeps ledger. planning.Optimum"
    " datasets.Entry datasets.PointStream datasets.parse datasets.fetch Ledger.resume points.Box."
    " perturbers.WindowTree errors.as_python errors.argument points.replay"
)
#: The same of methods: of parts, and of what the package made.
INNER_METHODS = _words("perturbers. smoothers. thresholds. counters.Simple counters.Block counters.BinaryTree")
MADE = _words("Release Plan Key points.ReleasedTree points.SyntheticPoints repetitions.Repetitions")
INNER_NAMES = _words(
    "from_description sample check_reports steps_of weight take check_room check_plain bind bound composition within"
    " identity known_rows"
)


def _frame() -> Any:
    at = pd.date_range("2024-01-01", periods=6, freq="4h")
    return pd.DataFrame({"at": at, "kwh": [1.0, 2.0, 3.0] * 2, "key": ["a", "b"] * 3, "who": [1, 2, 3, 4, 5, 6]})


def _table() -> Any:
    return fastdp.counts(_frame(), "at", "4h", epsilon=1.0, seed=1)


def _secret() -> bytes:
    return bytes(range(32))


def _fleet() -> Any:
    return fastdp.Fleet(fastdp.Adaptive(1.0, BOUND, threshold=BOUND, seed=1), seed=1)


def _fleet_of_one() -> Any:
    fleet = _fleet()
    fleet.publish([7], [1.0])
    return fleet


def _stepped(publisher: Any) -> Any:
    publisher.advance([[0.5, 0.5], [0.25, 0.75]])
    return publisher


def _collected() -> Any:
    collector = COLLECTORS["HistogramCollector"]()
    collector.add([1, 2, 3])
    return collector


def _quantile(p: float) -> float:
    return 10.0 + p


HOURS = fastdp.Time("at", "1h", start="2024-01-01")
MAKERS: dict[str, Callable[[], Any]] = {
    **PUBLISHERS,
    **{name: lambda make=make: _stepped(make()) for name, make in {**POINT_PUBLISHERS, **POINT_BASELINES}.items()},
    "baselines.Zeros": lambda: baselines.Zeros(1),
    **{f"local.{name}": make for name, make in COLLECTORS.items()},
    **{f"local.{name}": lambda made=made: made for name, made in LOCAL.items()},
    **{f"AdaptivePHDStream.{name}": lambda: MAKERS["PHDStream"]() for name in ("interval", "std_error")},
    "Fleet": _fleet_of_one,
    "noise.Laplace": lambda: fastdp.noise.Laplace(2.0),
    "noise.Gaussian": lambda: fastdp.noise.Gaussian(2.0),
    "Guarantee": lambda: concentrated(1.0, "noise"),
    "Key": lambda: fastdp.Key.from_seed(1),
    "Release": lambda: fastdp.release([1.0, 2.0] * 50, 1.0, BOUND, threshold=9.0, seed=1),
    "ToPLServer": lambda: fastdp.ToPLServer(1.0, BOUND),
    "Windows": lambda: fastdp.Windows(
        *({"kwh": "sum"}, HOURS),
        epsilon=1.0,
        bounds=BOUND,
        by="key",
        keys=["a"],
        unit=fastdp.Person("who", per="1h"),
        seed=1,
    ),
    "tables.table.Table": _table,
    "tables.table.Table.mean": lambda: fastdp.means(_frame(), "kwh", "at", "4h", epsilon=1.0, bound=BOUND, seed=1),
    "counters.RunningCounts": lambda: counters.RunningCounts(counters.Simple(), 1.0, 2, seed=1),
    "counters.SelectiveCounting": lambda: counters.SelectiveCounting(
        [counters.Simple()], _Telling(), 1.0, dimension=2, seed=1
    ),
    "engines.Job": lambda: fastdp.engines.Job(
        fastdp.Adaptive(1.0, BOUND, threshold=BOUND, seed=1), name="job", secret=_secret
    ),
    "ToPLServer.publish": lambda: fastdp.ToPLServer(1.0, BOUND, threshold=9.0),
    "local.HistogramCollector.estimate": _collected,
    "local.Client": lambda: local.Client(1.0),
    "local.Announcement": lambda: local.Announcement(LOCAL["Hybrid"]),
    "points.Box": lambda: SQUARE,
    "points.Network": lambda: points.Network(shapely.LineString([[0, 0], [1, 1]])),
    "points.Polygons": lambda: points.Polygons(shapely.box(0, 0, 1, 1)),
    "queries.PointIndex": lambda: fastdp_lab.queries.PointIndex([[0.5, 0.5]]),
    "points.PrivTree": lambda: points.PrivTree(SQUARE, 1.0, seed=1, max_depth=4),
    "points.SyntheticPoints": lambda: points.replay(
        POINT_PUBLISHERS["PHDStream"](), pd.DataFrame({"x": [0.5, 0.6], "y": [0.5, 0.2]}), batch=2
    ),
    "points.ReleasedTree": lambda: _stepped(POINT_PUBLISHERS["PHDStream"]()).tree,
}
POINTS, THREE = [[0.5, 0.5]], [1.0, 2.0, 3.0]
ADAPTIVE = fastdp.Adaptive(1.0, BOUND, threshold=BOUND, seed=1)


def _named(names: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


#: Arguments by their names; a call's own ones stand in VALID.
USUAL: dict[str, Any] = {
    **_named("epsilon sensitivity smooth_sensitivity", 1.0),
    **_named("beta beta_out beta_lap beta_lt beta_rt", 0.05),
    **_named("length n m", 64),
    **_named("values chunk truth answers batch times", THREE),
    **_named("streams batches", [THREE]),
    **_named("r q tau theta total threshold", 9.0),
    **_named("scale sigma spread", 2.0),
    **_named("count windows contributions", 3),
    **_named("points added", POINTS),
    **_named("ids reports", [1, 2, 3]),
    **_named("errors released", {"a": THREE}),
    **_named("guarantee", concentrated(1.0, "noise")),
    **_named("seed size holdout", 1),
    **_named("stops bins repetitions", 2),
    **_named("low smooth", 0.1),
    **_named("key state", None),
    "bound": BOUND, "delta": 1e-6, "domain": SQUARE, "frame": _frame(), "time": "at", "value": "kwh", "every": "4h",
    "stream": "meters", "starts": 0, "lengths": [1, 1, 1], "lower": [0.0, 0.0], "upper": [1.0, 1.0], "counts": [1],
    "p": 0.01, "quantile": 10.0, "lambda_": 0.5, "mechanism": LOCAL["Hybrid"], "perturber": fastdp.perturbers.Flat(),
    "counter": counters.Simple(), "title": "t", "max_range": 4, "high": 0.2, "window": 8, "parameters": ADAPTIVE,
    "name": "job", "secret": _secret, "published": 5, "scheme": "absorption", "labels": "a", "part": "sums",
    "half_width": 99.0, "noise": "laplace", "period": 8.0, "publisher": fastdp.ToPS(1.0, 10.0, 1, 4, seed=1),
    "fields": concentrated(1.0, "n").to_dict(), "component": "sums",
}  # fmt: skip
BOXES = {"lower": [[0.0, 0.0]], "upper": [[1.0, 1.0]]}
KEYED = {"by": "key", "keys": ["a"], "unit": fastdp.Person("who", rows=2, per="1d"), "time": "at", "every": "4h"}
BOUNDED = {"bound": BOUND}
AT = np.array(["2024-01-01"] * 3, "M8[s]")
VALID: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Adaptive", "StreamPublisher", "release"), BOUNDED),
    **dict.fromkeys(("means", "totals"), KEYED | BOUNDED),
    "counts": KEYED,
    "release_many": {"streams": _frame(), "value": "kwh", "by": "key", "time": "at", "bound": 9.0},
    **{name: {"size": 3} for name in ("discrete_gaussian", "discrete_laplace", "noise.geometric")},
    **{f"points.{name}": BOXES for name in ("Box.measure", "Network.measure")},
    **{f"noise.{name}.add": {"value": 3} for name in ("Laplace", "Gaussian")},
    **dict.fromkeys(("queries.PointIndex.count", "points.Polygons.measure"), BOXES),
    "Windows": {"statistics": {"kwh": "sum"}, "time": HOURS, "bounds": BOUND},
    "aggregate": KEYED | {"statistics": {"kwh": "sum"}, "bounds": BOUND},
    "PAK": {"holdout": 1},
    **{name: {"batch": 1} for name in ("datasets.load_gowalla", "datasets.load_pickups")},
    "Fleet.forget": {"ids": [7]},
    "ToPLServer.publish": {"reports": [1, 2, 3]},
    "ToPLServer.collect": {"reports": [1, 2, 3]},
    "counters.SelectiveCounting.step": {"values": [0, 0]},
    "counters.SelectiveCounting.stream": {"batches": [[0, 0]]},
    "datasets.extend_by_reflection": {"values": np.arange(9.0)},
    "datasets.hold_out_and_extend": {"values": np.arange(9.0)},
    "Windows.add": {"times": AT, "values": THREE, "keys": ["a"] * 3, "persons": [1, 2, 3]},
    "Windows.advance": {"to": "2024-01-02"},
    "Windows.step": {"batch": (AT, THREE, ["a"] * 3, [1, 2, 3], None)},
    "Windows.stream": {"batches": [(AT, THREE, ["a"] * 3, [1, 2, 3])]},
    **{
        name: {"guarantee": fastdp.Adaptive(1.0, BOUND, seed=1).guarantee}
        for name in ("Ledger.reserve", "Ledger.spend")
    },
    "Guarantee.approximate": {"epsilon": 9.0},
    "Fleet.split": {"n": 1},
    "Fleet.part_of": {"n": 1},
    "audit": {"mechanism": lambda data, generator: [generator.laplace()], "x": [0.0], "trials": 1000}
    | {"x_adjacent": [1.0], "epsilon": 9.0},
    "planning.optimise_pak": {"quantile": _quantile, "n": 10**6, "m": 10**5},
    "planning.exponential_quantile": {"bound": 100.0},
    "counters.SelectiveCounting": {"counters": [counters.Simple()], "selector": _Telling()},
    "counters.RunningCounts.step": {"values": [1, 2]},
    "counters.RunningCounts.stream": {"batches": [[1, 2]]},
    "counters.event_guarantee": {"derivation": "noise"},
    "datasets.cut_events": {"batch": 1},
    "datasets.dns_like_day": {"n": 100},
    "datasets.growing": {"form": "ramp", "factor": 3.0, "begin": 16},
    "datasets.panel": {"course": "still", "steps": 24, "persons": 5, "levels": 1, "total": False},
    "datasets.table1": {"stream": "kosarak", "n": 2000},
    "datasets.concentric_circles": {"n_points": 1000},
    "datasets.made_up_check_ins": {"n_points": 1000},
    "datasets.made_up_pickups": {"n_points": 1000},
    "engines.Job.fleet": {},
    "local.HistogramCollector": {"mechanism": LOCAL["SquareWave"]},
    "local.Client.answer": {"announcement": local.Announcement(LOCAL["Hybrid"]), "value": 3.0},
    "local.Client.step": {"batch": (local.Announcement(LOCAL["Hybrid"]), 3.0)},
    "local.Announcement.from_text": {"text": local.Announcement(LOCAL["Hybrid"]).to_text()},
    "local.decode": {"data": local.encode(LOCAL["Hybrid"], [1, 2])},
    **{name: {"column": "kwh"} for name in ("Person", "Time")},
    "Csv": {"path": "rows.csv"},
    "Value": {"bound": BOUND},
    "Plan": {"confidence": 0.9, "unit": "one row", "every": "1h", "noise": "laplace", "errors": {}, "shares": {}},
    "plan": {"statistics": {"*": "count"}, "epsilon": 1.0, "half_width": None},
    "points.Network": {"lines": shapely.LineString([[0, 0], [1, 1]])},
    "points.Polygons": {"geometry": shapely.box(0, 0, 1, 1)},
    "queries.random_ranges": {"n": 64},
}


NUMBERS = itertools.count()


def look_up(name: str) -> Any:
    """A public part of fastdp or its laboratory."""
    try:
        return operator.attrgetter(name)(fastdp)
    except AttributeError:
        return operator.attrgetter(name)(fastdp_lab)


def all_names() -> Iterator[str]:
    """Functions, classes and their methods, by the first public path."""
    modules = [name for name in fastdp.__all__ if isinstance(getattr(fastdp, name), types.ModuleType)]
    seen: set[int] = set()
    inner = [(path, look_up(path)) for path in (*modules, "thresholds.renewals")]
    for path, module in [("", fastdp), *inner, *((path, getattr(fastdp_lab, path)) for path in fastdp_lab.__all__)]:
        own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            thing = getattr(module, name)
            if name.startswith("_") or not callable(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            shown = f"{path}.{name}" if path else name
            if not inspect.isclass(thing):
                yield shown
            elif not issubclass(thing, BaseException):
                yield shown
                methods = (each for each in dir(thing) if not each.startswith("_") and callable(getattr(thing, each)))
                yield from (f"{shown}.{m}" for m in methods if not (issubclass(thing, tuple) and hasattr(tuple, m)))


def names() -> Iterator[str]:
    """Public calls that a user makes, each function once."""
    extra = [f"tables.table.Table.{name}" for name in ("sum", "mean", "std_error", "interval", "plot", "write")]
    seen = set()
    for name in (*all_names(), *extra):
        owner, _, last = name.rpartition(".")
        thing = look_up(name)
        function = getattr(thing, "__func__", thing)
        method = owner in MAKERS or inspect.isclass(look_up(owner) if owner else None)
        inner = (
            name.startswith(INNER)
            or name in MADE
            or (method and (name.startswith(INNER_METHODS) or last in INNER_NAMES))
        )
        if not inner and function not in seen:
            seen.add(function)
            yield name


class Call:
    """A public call with arguments with which it succeeds."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self.owner, _, self.last = name.rpartition(".")
        self.method = self.owner in MAKERS or self.owner == "Ledger"
        self.parameters = [
            each
            for each in inspect.signature(look_up(name)).parameters.values()
            if each.name != "self" and each.kind != each.VAR_KEYWORD and each.name[0] != "_"
        ]

    def _path(self, suffix: str = "") -> Path:
        return self._folder / f"{next(NUMBERS)}{suffix}"

    def _valid(self, on: Any) -> dict[str, Any]:
        given = {}
        own = VALID.get(self.name, {})
        for each in self.parameters:
            if each.name in own:
                given[each.name] = own[each.name]
            elif each.default is each.empty:
                given[each.name] = self._required(each.name, on)
        return given

    def _required(self, name: str, on: Any) -> Any:
        if name == "path":
            endings = {"plots": ".png", "tables": ".csv", "datasets": ".csv", "points": ".geojson", "Release": ".csv"}
            ending = ".csv" if self.last == "write" else endings.get(self.name.partition(".")[0], "")
            path = self._path(ending)
            if self.last == "load":
                on.keep(path)
            elif self.name.startswith("datasets"):
                path.write_text("x,y,move\n0.5,0.5,1\n" if "circles" in self.name else "t,lat,lon\n1,40.7,-74\n")
            return path
        if name == "secret" and self.name in ("Key", "Key.from_bytes"):
            return _secret()
        if self.last == "from_bytes":
            return on.to_bytes(on.fleet()) if self.owner == "engines.Job" else on.to_bytes()
        if name == "parts":
            return on.split(1)
        if name == "fleet":
            return on.fleet()
        if name in ("others", "collectors"):
            return MAKERS[self.owner]() if name == "others" else on.shard()
        if name == "data":
            return local.encode(
                LOCAL["SquareWave" if "Histogram" in self.owner or "Server" in self.owner else "Hybrid"], [1, 2]
            )
        if name == "ledger":
            return fastdp.Ledger(self._path(), limit_epsilon=99.0)
        return USUAL[name]

    def make(self, argument: str | None = None, bad: Any = None) -> Any:
        on = None
        if self.owner == "Ledger":
            on = fastdp.Ledger(self._path(), limit_epsilon=99.0)
        elif self.method:
            on = MAKERS.get(self.name, MAKERS[self.owner])()
        given = self._valid(on)
        if argument is not None:
            given[argument] = bad
        positional = [given.pop(p.name) for p in self.parameters if p.kind == p.POSITIONAL_ONLY and p.name in given]
        several = next((p.name for p in self.parameters if p.kind == p.VAR_POSITIONAL), None)
        if several is not None:
            positional += [
                given.pop(p.name) for p in self.parameters if p.kind == p.POSITIONAL_OR_KEYWORD and p.name in given
            ]
            found = given.pop(several)
            positional += found if isinstance(found, tuple) and argument is None else [found]
        call = getattr(on, self.last) if self.method else look_up(self.name)
        made = call(*positional, **given)
        return list(made) if inspect.isgenerator(made) else made
