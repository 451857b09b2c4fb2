"""Every argument of every public call, found by signature, given a column: the other arguments are valid."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import shapely

import fastdp
import fastdp_lab
from fastdp import counters, local, spatial
from fastdp.noise.draws import concentrated
from tests.privacy import public_names
from tests.privacy.canary import CANARY, TEXT, Quoting
from tests.privacy.canary_calls import BOUND, COLLECTORS, LOCAL, PUBLISHERS, SPATIAL, SQUARE, _maps, _Telling

#: Called by the package alone, with objects that it made; or by whoever writes a part of their own.
INNER = (
    *("perturbers.Perturber", "smoothers.Smoother", "counters.Counter", "counters.Selector", "spatial.Domain"),
    *("thresholds.Chooser", "thresholds.Threshold", "thresholds.renewals.Renewal", "auditing.TrialMechanism"),
    *("audit.Case", "auditing.AuditResult", "auditing.Publishing", "errors.warn", "sweeps"),
    *("ledger.", "planning.LightTail", "planning.Optimum", "planning.TailSearch", "datasets.Entry"),
    *(
        "datasets.SpatialStream",
        "datasets.parse",
        "datasets.fetch",
        "Ledger.resume",
        "spatial.Box.",
        "perturbers.WindowTree",
    ),
)
#: The same of methods: of parts, and of what the package made.
INNER_METHODS = (
    "perturbers.",
    "smoothers.",
    "thresholds.",
    "counters.Simple",
    "counters.Block",
    "counters.BinaryTree",
)
MADE = ("Release", "Plan", "Key", "spatial.ReleasedTree", "repetitions.Repetitions")
INNER_NAMES = (
    *("from_description", "sample", "check_reports", "steps_of", "weight", "take", "check_room", "check_plain"),
    *("bind", "bound", "composition", "within", "identity"),
)


def columns() -> dict[str, Any]:
    """What a user has in hand in place of a name or a number: texts and numbers of persons."""
    texts, numbers = [TEXT, f"{TEXT} too", TEXT], [CANARY, 1.0, CANARY]
    return {
        "list of texts": texts,
        "list of two": texts[:2],
        "list of one number": numbers[:1],
        "list of numbers": numbers,
        "tuple of texts": tuple(texts),
        "pandas texts": pd.Series(texts),
        "pandas numbers": pd.Series(numbers),
        "polars texts": pl.Series(texts),
        "polars numbers": pl.Series(numbers),
        "array of texts": np.array(texts),
        "array of numbers": np.array(numbers),
        "polars lazy": pl.LazyFrame({"kwh": numbers, "who": texts}),
        "Arrow table": pa.table({"kwh": numbers, "who": texts}),
        "data frame": pd.DataFrame({"at": numbers, "who": texts}),
        "mapping": {TEXT: CANARY, "a": texts},
        "set": {*texts},
        "foreign": Quoting(),
    }


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


MAKERS: dict[str, Callable[[], Any]] = {
    **PUBLISHERS,
    **{name: lambda make=make: _stepped(make()) for name, make in SPATIAL.items()},
    "baselines.Zeros": lambda: fastdp_lab.baselines.Zeros(1),
    **{f"local.{name}": make for name, make in COLLECTORS.items()},
    **{f"local.{name}": lambda made=made: made for name, made in LOCAL.items()},
    **{f"AdaptivePHDStream.{name}": lambda: MAKERS["PHDStream"]() for name in ("interval", "std_error")},
    "Fleet": _fleet_of_one,
    "Guarantee": lambda: concentrated(1.0, "noise"),
    "Key": lambda: fastdp.Key.from_seed(1),
    "Plan": lambda: fastdp.plan(epsilon=1.0, bound=10.0, every="1h", rows_per_window=100.0, mean=1.0),
    "Release": lambda: fastdp.release([1.0, 2.0] * 50, 1.0, BOUND, threshold=9.0, seed=1),
    "ToPLServer": lambda: fastdp.ToPLServer(1.0, BOUND),
    "Windows": lambda: fastdp.Windows(
        *("1h", 1.0, "2024-01-01"), bound=BOUND, by="key", keys=["a"], unit=fastdp.Person("who", per="1h"), seed=1
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
    "spatial.Box": lambda: SQUARE,
    "spatial.CellIndex": lambda: spatial.CellIndex([[0.0, 0.0]], [[1.0, 1.0]], [3.0]),
    "spatial.Network": lambda: _maps()[0],
    "spatial.Polygons": lambda: _maps()[1],
    "boxes.PointIndex": lambda: fastdp_lab.boxes.PointIndex([[0.5, 0.5]]),
    "spatial.PrivTree": lambda: spatial.PrivTree(SQUARE, 1.0, seed=1, max_depth=4),
    "spatial.ReleasedTree": lambda: _stepped(SPATIAL["PHDStream"]()).tree,
}
POINTS, THREE = [[0.5, 0.5]], [1.0, 2.0, 3.0]
#: Arguments by their names; a call's own ones stand in VALID.
USUAL: dict[str, Any] = {
    "epsilon": 1.0,
    "bound": BOUND,
    "delta": 1e-6,
    "length": 64,
    "domain": SQUARE,
    "values": THREE,
    "chunk": THREE,
    "frame": _frame(),
    "time": "at",
    "value": "kwh",
    "every": "4h",
    "stream": "meters",
    "streams": [THREE],
    "starts": 0,
    "stops": 2,
    "truth": THREE,
    "answers": THREE,
    "lengths": [1, 1, 1],
    "points": POINTS,
    "lower": [0.0, 0.0],
    "upper": [1.0, 1.0],
    "counts": [1],
    "added": POINTS,
    "ids": [1, 2, 3],
    "n": 64,
    "m": 64,
    "p": 0.01,
    "beta": 0.05,
    "quantile": 10.0,
    "r": 9.0,
    "beta_out": 0.05,
    "beta_lap": 0.05,
    "beta_lt": 0.05,
    "beta_rt": 0.05,
    "tau": 9.0,
    "lambda_": 0.5,
    "spread": 2.0,
    "q": 9.0,
    "smooth": 0.1,
    "smooth_sensitivity": 1.0,
    "mechanism": LOCAL["Hybrid"],
    "reports": [1, 2, 3],
    "seed": 1,
    "key": None,
    "scale": 2.0,
    "sigma": 2.0,
    "perturber": fastdp.perturbers.Flat(),
    "threshold": 9.0,
    "counter": counters.Simple(),
    "title": "t",
    "max_range": 4,
    "count": 3,
    "low": 0.1,
    "high": 0.2,
    "total": 9.0,
    "window": 8,
    "bins": 2,
    "size": 1,
    "parameters": fastdp.Adaptive(1.0, BOUND, threshold=BOUND, seed=1),
    "name": "job",
    "secret": _secret,
    "sensitivity": 1.0,
    "holdout": 1,
    "published": 5,
    "scheme": "absorption",
    "contributions": 3,
    "theta": 9.0,
    "state": None,
    "labels": "a",
    "part": "sums",
    "guarantee": concentrated(1.0, "noise"),
    "windows": 3,
    "half_width": 99.0,
    "noise": "laplace",
    "period": 8.0,
    "publisher": fastdp.ToPS(1.0, 10.0, 1, 4, seed=1),
    "repetitions": 2,
    "fields": concentrated(1.0, "n").to_dict(),
    "batch": THREE,
    "batches": [THREE],
    "times": THREE,
    "errors": {"a": THREE},
    "released": {"a": THREE},
}
BOXES = {"lower": [[0.0, 0.0]], "upper": [[1.0, 1.0]]}
KEYED = {"by": "key", "keys": ["a"], "unit": fastdp.Person("who", rows=2, per="1d"), "every": "4h"}
BOUNDED = {"bound": BOUND}
AT = np.array(["2024-01-01"] * 3, "M8[s]")
VALID: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Adaptive", "StreamPublisher", "release"), BOUNDED),
    **dict.fromkeys(("means", "totals"), KEYED | BOUNDED),
    "counts": KEYED,
    "release_many": {"streams": _frame(), "value": "kwh", "by": "key", "time": "at", "threshold": 9.0},
    **{name: {"size": 3} for name in ("discrete_gaussian", "discrete_laplace", "noise.geometric")},
    **{name: {"m": 32} for name in ("planning.light_tail_error", "planning.worst_case_error")},
    **{f"spatial.{name}": BOXES for name in ("Box.measure", "CellIndex", "CellIndex.count", "Network.measure")},
    **dict.fromkeys(("boxes.PointIndex.count", "spatial.Polygons.measure", "spatial.write_cells"), BOXES),
    "Windows": {"start": "2024-01-01", "bound": BOUND},
    "PAK": {"holdout": 1},
    **{name: {"batch": 1} for name in ("datasets.load_gowalla", "datasets.load_pickups")},
    "Fleet.forget": {"ids": [7]},
    "ToPLServer.publish": {"reports": [1, 2, 3]},
    "ToPLServer.collect": {"reports": [1, 2, 3]},
    "planning.spacing_smooth_sensitivity": {"q": 0.9},
    "planning.search_p_max": {"values": np.arange(1e5)},
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
    "planning.recommended_lag": {"quantile": _quantile},
    "planning.optimise_pak": {"quantile": _quantile, "n": 10**6},
    "planning.exponential_quantile": {"bound": 100.0},
    "counters.SelectiveCounting": {"counters": [counters.Simple()], "selector": _Telling()},
    "counters.RunningCounts.step": {"values": [1, 2]},
    "counters.RunningCounts.stream": {"batches": [[1, 2]]},
    "counters.event_guarantee": {"derivation": "noise"},
    "datasets.cut_events": {"batch": 1},
    "datasets.dns_like_day": {"n": 100},
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
    "plots.counters_compared": {"counts": {"a": THREE}},
    "plots.points_and_cells": {"rows": {"a": [POINTS]}},
    "plan": {"bound": 10.0, "epsilon": 1.0},
    **{name: {"column": "kwh"} for name in ("Person", "Time", "Value")},
    "Plan": {"bound": 10.0},
    "spatial.Network": {"lines": shapely.LineString([[0, 0], [1, 1]])},
    "spatial.Polygons": {"geometry": shapely.box(0, 0, 1, 1)},
    "workloads.random_ranges": {"n": 64},
}


NUMBERS = itertools.count()


def names() -> Iterator[str]:
    """Public calls that a user makes, each function once."""
    extra = [f"tables.table.Table.{name}" for name in ("sum", "mean", "std_error", "interval", "plot", "write")]
    seen = set()
    for name in (*public_names.all_names(), *extra):
        owner, _, last = name.rpartition(".")
        thing = public_names.found(name)
        function = getattr(thing, "__func__", thing)
        method = owner in MAKERS or inspect.isclass(public_names.found(owner) if owner else None)
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
            for each in inspect.signature(public_names.found(name)).parameters.values()
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
            endings = {"plots": ".png", "tables": ".csv", "datasets": ".csv", "spatial": ".geojson"}
            path = self._path(endings.get(self.name.partition(".")[0], ""))
            if self.last == "load":
                on.save(path)
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
        call = getattr(on, self.last) if self.method else public_names.found(self.name)
        found = call(*positional, **given)
        return list(found) if inspect.isgenerator(found) else found
