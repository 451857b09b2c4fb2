"""Every public call that takes data, as a function of the wrong input; and the public names that take none."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from fastdp import counters, local, plots, spatial, thresholds
from fastdp.streams import METHODS
from fastdp_lab import baselines, boxes, datasets, metrics, planning
from fastdp_lab.repetitions import repeat
from tests.privacy import canary
from tests.privacy.canary import CANARY, LONG, TEXT, WHOLE
from tests.shared import USUAL, usual_arguments

BOUND = 1e7
SQUARE = spatial.Box([0.0, 0.0], [1.0, 1.0])
COMMON = {"epsilon": 1.0, "bound": BOUND, "holdout": 1, "seed": 1}
FINITE = ("NaN", "infinity", "missing", "masked", "float32", "longdouble", "beyond float64")


@dataclass(frozen=True)
class Calls:
    """One public name, the wrong inputs, and what calls it with one.

    ``takes`` names the inputs (by how their names begin) that this call accepts, so they are no failures of it.
    """

    name: str
    inputs: Callable[[], dict[str, Any]]
    call: Callable[[Any], Any]
    takes: tuple[str, ...] = field(default=())

    def cases(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        for name, bad in self.inputs().items():
            if name not in self.takes:
                yield f"{self.name}: {name}", lambda bad=bad: self.call(bad)


def on(make: Callable[[], Any], method: str, before: Iterable[Any] = ()) -> Callable[[Any], Any]:
    """Calls a method of a fresh object; what the object says of itself afterwards is looked at too."""

    def call(bad: Any) -> None:
        thing = make()
        for good in before:
            getattr(thing, method)(good)
        try:
            getattr(thing, method)(bad)
        finally:
            print(repr(thing), thing)

    return call


def _filled(contents: dict[str, bytes | str]) -> dict[str, bytes | str]:
    """Without the empty file, which is a stream without a point where files have no heading."""
    return {name: content for name, content in contents.items() if content}


def _files(contents: dict[str, bytes | str], suffix: str) -> Callable[[], dict[str, Any]]:
    def inputs() -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(prefix="canary"))
        paths = {}
        for number, (name, content) in enumerate(contents.items()):
            path = folder / f"{number}{suffix}"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            paths[name] = path
        return paths

    return inputs


# Values.

PUBLISHERS: dict[str, Callable[[], Any]] = {
    **{kind: partial(getattr(fastdp, kind), **COMMON, **usual_arguments(name)) for name, kind in METHODS.items()},
    "ToPS": lambda: fastdp.ToPS(**COMMON, max_range=4, fan_out=4, prune=0),
    "StreamPublisher": lambda: fastdp.StreamPublisher(
        threshold=thresholds.Fixed(BOUND), perturber=fastdp.perturbers.Flat(), max_range=4, **COMMON
    ),
    "baselines.WEvent": lambda: baselines.WEvent("absorption", 1.0, BOUND, 3, seed=1),
}
LOCAL = {
    "Hybrid": local.Hybrid(1.0, 0.0, BOUND),
    "Piecewise": local.Piecewise(1.0, 0.0, BOUND),
    "StochasticRounding": local.StochasticRounding(1.0, 0.0, BOUND),
    "SquareWave": local.SquareWave(1.0, 0.0, BOUND),
    "LogSquareWave": local.LogSquareWave(1.0, 1.0, BOUND),
}
COLLECTORS = {
    "HistogramCollector": lambda: local.HistogramCollector(local.SquareWave(1.0, 0.0, BOUND), 8),
    "SumCollector": lambda: local.SumCollector(local.Hybrid(1.0, 0.0, BOUND), 2),
}
SPATIAL = {
    "PHDStream": lambda: fastdp.PHDStream(SQUARE, 1.0, max_depth=4, seed=1),
    "AdaptivePHDStream": lambda: fastdp.AdaptivePHDStream(SQUARE, 1.0, max_depth=4, seed=1),
    "baselines.OfflineOnStream": lambda: baselines.OfflineOnStream(SQUARE, 1.0, max_depth=4, seed=1),
    "baselines.OfflineOnBatch": lambda: baselines.OfflineOnBatch(SQUARE, 1.0, max_depth=4, seed=1),
    "baselines.FixedTree": lambda: baselines.FixedTree(SQUARE, 1.0, max_depth=4, seed=1),
}
RULES = {
    "NoisyMax": thresholds.NoisyMax(),
    "ScaleFree": thresholds.ScaleFree(),
    "PAKQuantile": thresholds.PAKQuantile(delta=1e-6),
    "SmoothQuantile": thresholds.SmoothQuantile(noise="cauchy"),
    "SquareWave": thresholds.SquareWave(),
    "TruePercentile": thresholds.TruePercentile(0.9),
}


def _singles() -> dict[str, Any]:
    quoting = canary.Quoting()
    return {
        "text": TEXT,
        "long text": LONG,
        "list": [CANARY],
        "array": np.array([CANARY]),
        "complex": CANARY + 1j,
    } | {
        "decimal": canary.Decimal(str(CANARY)),
        "beyond float64": WHOLE * 10**400,
        "bytes": TEXT.encode(),
        "foreign": quoting,
        "mapping": {TEXT: CANARY},
    }


def _messages() -> dict[str, Any]:
    hybrid = LOCAL["Hybrid"]
    made = local.encode(hybrid, [1, 2])
    return {
        "raw text": TEXT.encode() * 8,
        "short": TEXT.encode(),
        "long": LONG.encode(),
        "altered": made[:-9] + TEXT.encode() + made[-9:],
        "cut short": made[:-1],
    }


def _reports() -> dict[str, Any]:
    n = 10**9
    return {name: bad for name, bad in canary.columns().items() if not name.startswith(FINITE)} | {
        "out of range": [1, WHOLE * n],
        "negative": [1, -WHOLE],
        "floats": [1.0, CANARY],
        "NaN beside it": canary.not_finite(np.nan),
        "beyond int64": [WHOLE * 10**400],
    }


def _swapped() -> dict[str, Any]:
    """A column in a parameter's place; a text is a parameter there."""
    kept = ("NaN beside it", "texts", "long text", "objects", "foreign in a list", "pandas texts", "Arrow texts")
    return {name: bad for name, bad in canary.columns().items() if name in kept}


def _task() -> thresholds.ThresholdTask:
    return thresholds.ThresholdTask(1.0, BOUND, 8, 64, 1.0)


def value_calls() -> list[Calls]:
    columns = canary.columns
    calls = []
    for name, make in {**PUBLISHERS, "baselines.Zeros": lambda: baselines.Zeros(1)}.items():
        takes = _finite() if name == "baselines.Zeros" else ()
        calls.append(Calls(f"{name}.publish", columns, on(make, "publish"), takes))
        if name != "baselines.Zeros":
            calls.append(Calls(f"{name}.publish", columns, on(make, "publish", [[1.0, 2.0, 3.0]])))
            calls.append(
                Calls(
                    f"{name}.stream",
                    columns,
                    lambda bad, make=make: list(make().stream([1.0, [2.0], bad])),
                    ("scalar array",),
                )
            )
        calls.append(Calls(f"{name}.release", columns, on(make, "release"), takes))
        if isinstance(make(), fastdp.StreamPublisher):
            repeated = lambda bad, make=make: repeat(make(), bad, 2, progress=True)  # noqa: E731
            calls.append(Calls("repetitions.repeat", columns, repeated))
            many = lambda bad, make=make: make().release_many([[1.0] * 9, bad])  # noqa: E731
            calls.append(Calls(f"{name}.release_many", columns, many))
    for method, name in METHODS.items():
        kind, more = getattr(fastdp, name), USUAL.get(method, {})
        calls.append(Calls(name, _swapped, lambda bad, k=kind, m=more: k(epsilon=bad, bound=BOUND, **m)))
        calls.append(Calls(name, _swapped, lambda bad, k=kind, m=more: k(epsilon=1.0, bound=BOUND, holdout=bad, **m)))
    calls += [
        Calls("release", columns, lambda bad: fastdp.release(bad, 1.0, BOUND, seed=1)),
        Calls("release", _swapped, lambda bad: fastdp.release([1.0, 2.0, 3.0], bad, BOUND)),
        Calls("release", _swapped, lambda bad: fastdp.release([1.0, 2.0, 3.0], 1.0, bad)),
        Calls("release", _swapped, lambda bad: fastdp.release([1.0, 2.0, 3.0], 1.0, BOUND, value=bad)),
        Calls(
            "release_many", columns, lambda bad: fastdp.release_many([[1.0, 2.0, 3.0], bad], 1.0, BOUND, holdout=1)
        ),
        Calls("release_many", columns, lambda bad: fastdp.release_many(bad, 1.0, BOUND, offsets=[0, 4], holdout=1)),
        Calls(
            "release_many",
            columns,
            lambda bad: fastdp.release_many(bad, 1.0, BOUND, holdout=2),
            ("Arrow fixed lists",),
        ),
        Calls("release_many", _swapped, lambda bad: fastdp.release_many([[1.0, 2.0, 3.0]], bad, BOUND)),
        Calls("add_noise", columns, lambda bad: fastdp.add_noise(bad, 1.0, 1.0), TAKEN_BY_ADD_NOISE),
        Calls("add_noise", _swapped, lambda bad: fastdp.add_noise([1.0], bad, 1.0)),
        Calls("add_noise", _swapped, lambda bad: fastdp.add_noise([1.0], 1.0, bad)),
        Calls("add_noise", _swapped, lambda bad: fastdp.add_noise([1.0], 1.0, 1.0, resolution=bad)),
        Calls("audit", columns, lambda bad: fastdp.audit(lambda x, g: x, bad, bad, trials=1000), TAKEN_BY_AUDIT),
    ]
    for name, rule in RULES.items():
        observe = lambda bad, rule=rule: rule.start(_task()).observe(bad)  # noqa: E731
        calls.append(Calls(f"thresholds.{name}.start", columns, observe, _finite()))
    return calls


#: Arrays of finite numbers to whoever audits.
TAKEN_BY_AUDIT = (
    *("masked", "nested", "nested deeper", "matrix", "scalar array", "bytearray"),
    *("pandas frame", "polars frame", "Arrow table"),
)


#: Numbers of any shape.
TAKEN_BY_ADD_NOISE = (
    *("nested", "nested deeper", "matrix", "scalar array"),
    *("pandas frame", "polars frame", "Arrow table"),
)


def _finite() -> tuple[str, ...]:
    return tuple(name for name in canary.columns() if name.startswith(FINITE))


def local_calls() -> list[Calls]:
    columns, calls = canary.columns, []
    for name, mechanism in LOCAL.items():
        for method in ("perturb", "steps_of", "variance"):
            if hasattr(mechanism, method):
                calls.append(Calls(f"local.{name}.{method}", columns, getattr(mechanism, method)))
        for method in ("estimate", "check_reports", "estimate_counts"):
            if hasattr(mechanism, method):
                takes = ("bytearray", "out of range") if method == "estimate_counts" else ()
                calls.append(Calls(f"local.{name}.{method}", _reports, getattr(mechanism, method), takes))
    hybrid = LOCAL["Hybrid"]
    announced = local.Announcement(hybrid)
    client = lambda: local.Client(1.0)  # noqa: E731
    calls += [
        Calls("local.Client.answer", _singles, lambda bad: client().answer(announced, bad)),
        Calls("local.Client.answer", lambda: _singles() | {"number": CANARY}, lambda bad: client().answer(bad, 3.0)),
        Calls("local.Announcement.from_text", _singles, local.Announcement.from_text),
        Calls("local.encode", _reports, lambda bad: local.encode(hybrid, bad)),
        Calls("local.decode", _messages, local.decode),
    ]
    for name, make in COLLECTORS.items():
        calls += [
            Calls(f"local.{name}.add", _reports, on(make, "add"), (*OUT_OF_RANGE,)),
            Calls(f"local.{name}.add", _reports, lambda bad, make=make: make().add([1, 2], bad)),
            Calls(f"local.{name}.receive", _singles, on(make, "receive"), ("array", "bytes")),
            Calls(f"local.{name}.merge", _singles, on(make, "merge")),
            Calls(f"local.{name}.from_bytes", _messages, type(make()).from_bytes),
        ]
    server = lambda: fastdp.ToPLServer(1.0, BOUND, 4, 4)  # noqa: E731
    calls += [
        Calls("ToPLServer.collect", _reports, on(server, "collect"), (*OUT_OF_RANGE,)),
        Calls("ToPLServer.publish", _reports, on(server, "publish")),
        Calls("ToPLServer.receive", _singles, on(server, "receive"), ("array", "bytes")),
        Calls("ToPLServer.merge", _singles, on(server, "merge")),
    ]
    return calls


#: What reports of clients may be: counted as refused, no error.
OUT_OF_RANGE = ("out of range", "negative", "floats", "NaN beside it", "beyond int64")

# Counts, points, files.


class _Telling:
    """A selector that gives the secret input back as its choice."""

    guarantee = counters.event_guarantee(1.0, "none")

    def select(self, values: Any, step: int, last: Any) -> Any:
        return {0: int(values[0]), 1: float(values[0]), 2: values, 3: str(values)}[int(values[1])]


def count_calls() -> list[Calls]:
    running = lambda: counters.RunningCounts(counters.Simple(), 1.0, 2, seed=1)  # noqa: E731
    choosing = lambda: counters.SelectiveCounting([counters.Simple()], _Telling(), 1.0, dimension=2, seed=1)  # noqa: E731
    told = lambda: {f"a choice of kind {k}": [WHOLE, k] for k in range(4)}  # noqa: E731
    actives = lambda: {**canary.increments(), "out of range": [0, WHOLE], "twice": [WHOLE, WHOLE]}  # noqa: E731
    return [
        Calls("counters.RunningCounts.step", canary.increments, on(running, "step")),
        Calls("counters.RunningCounts.step", actives, lambda bad: running().step([1, 1], bad)),
        Calls("counters.SelectiveCounting.step", canary.increments, on(choosing, "step")),
        Calls("counters.SelectiveCounting.step", told, on(choosing, "step")),
    ]


def point_calls() -> list[Calls]:
    points, calls = canary.points, []
    for name, make in SPATIAL.items():
        calls += [
            Calls(f"{name}.step", points, on(make, "step")),
            Calls(f"{name}.advance", points, on(make, "advance", [[[0.5, 0.5]]])),
            Calls(f"{name}.advance", points, lambda bad, make=make: make().advance(None, bad)),
            Calls(name, _swapped, lambda bad, make=make: type(make())(SQUARE, bad)),
        ]
    outside = tuple(name for name in points() if "outside" in name)
    tree = spatial.PrivTree(SQUARE, 1.0, seed=1, max_depth=4).fit([[0.5, 0.5]])
    network, polygons = _maps()
    many = lambda bad: {"truth": [bad]}  # noqa: E731
    return [
        *calls,
        Calls("spatial.PrivTree.fit", points, lambda bad: spatial.PrivTree(SQUARE, 1.0, seed=1).fit(bad)),
        Calls(
            "spatial.ReleasedTree.count", points, lambda bad: tree.count(bad, [[0.5, 0.5]]), ("outside, negative",)
        ),
        Calls("boxes.PointIndex", points, boxes.PointIndex, (*outside, "three coordinates", "one coordinate")),
        Calls("spatial.CellIndex", canary.columns, lambda bad: spatial.CellIndex([[0.0]] * 9, [[1.0]] * 9, bad)),
        Calls("spatial.Network.contains", points, lambda bad: network.contains(bad), outside),
        Calls("spatial.Network.snap", points, lambda bad: network.snap(bad), outside),
        Calls("spatial.Polygons.contains", points, lambda bad: polygons.contains(bad), outside),
        Calls("boxes.relative_error", canary.columns, lambda bad: boxes.relative_error(bad, [1.0, 2.0], 9.0)),
        Calls("spatial.write_points", points, lambda bad: spatial.write_points("x.geojson", bad), outside),
        Calls("plots.points_and_cells", points, lambda bad: plots.points_and_cells(many(bad)), outside),
        Calls("datasets.cut_events", points, lambda bad: datasets.cut_events("e", [0, 0], [1, 1], bad, batch=1)),
        Calls(
            "datasets.cut_events", _moments, lambda bad: datasets.cut_events("e", [0], [1], [[0.5]] * 2, times=bad)
        ),
        Calls(
            "datasets.cut_events", _moments, lambda bad: datasets.cut_events("e", [0], [1], [[0.5]] * 2, cancels=bad)
        ),
    ]


def _maps() -> tuple[spatial.Network, spatial.Polygons]:
    import shapely

    return spatial.Network(shapely.LineString([[0, 0], [1, 1]])), spatial.Polygons(shapely.box(0, 0, 1, 1))


def _moments() -> dict[str, Any]:
    return {**canary.columns(), "descending": [CANARY, 1.0], "cancels": [-1, WHOLE]}


#: Analysis takes what lies under a mask, and bytes as numbers.
MASKED = ("masked", "bytearray")


def array_calls() -> list[Calls]:
    columns, calls = canary.columns, []
    for name in ("mse", "mae", "mmse", "mmae", "relative_error"):
        metric, more = getattr(metrics, name), ([1, 1],) if name in ("mmse", "mmae") else ()
        calls.append(Calls(f"metrics.{name}", columns, lambda bad, f=metric, m=more: f(bad, [1.0, 2.0], *m)))
        calls.append(Calls(f"metrics.{name}", columns, lambda bad, f=metric, m=more: f([1.0, 2.0], bad, *m)))
    for name in ("mmse", "mmae"):
        metric = getattr(metrics, name)
        calls.append(
            Calls(
                f"metrics.{name}", _lengths, lambda bad, f=metric: f([1.0, 2.0], [1.0, 2.0], bad), ("scalar array",)
            )
        )
    falling = lambda: {"negative": [-CANARY, 1.0], **columns()}  # noqa: E731
    two = {"a": [1.0, 2.0]}
    return [
        *calls,
        Calls("planning.check_light_tail", falling, planning.check_light_tail, MASKED),
        Calls("planning.search_p_max", falling, planning.search_p_max),
        Calls("planning.sample_quantile", falling, planning.sample_quantile, MASKED),
        Calls(
            "plots.bin_means", columns, lambda bad: plots.bin_means(bad, 2), (*_finite(), "scalar array", "bytearray")
        ),
        Calls("plots.truth_and_releases", columns, lambda bad: plots.truth_and_releases(bad, two, "x.none")),
        Calls("plots.truth_and_releases", columns, lambda bad: plots.truth_and_releases([1.0], {"a": bad}, "x.none")),
        Calls("plots.errors_over_time", columns, lambda bad: plots.errors_over_time(bad, two, "x.none")),
        Calls(
            "plots.errors_over_time",
            columns,
            lambda bad: plots.errors_over_time([1.0], {"a": bad}, "x.none"),
        ),
        Calls("plots.counters_compared", columns, lambda bad: plots.counters_compared(bad, two, "x.n")),
        Calls(
            "datasets.extend_by_reflection",
            _singles,
            lambda bad: datasets.extend_by_reflection(bad, 3),
            ("array", "list"),
        ),
        Calls("datasets.hold_out_and_extend", _singles, lambda bad: datasets.hold_out_and_extend(bad, 1, 3)),
        Calls("Key", _secrets, fastdp.Key.from_bytes),
        Calls("Key", _secrets, lambda bad: fastdp.Adaptive(1.0, BOUND, key=bad)),
    ]


def _lengths() -> dict[str, Any]:
    return {**canary.columns(), "negative": [-CANARY, 1.0]}


def _secrets() -> dict[str, Any]:
    return {"short": TEXT.encode(), "text": TEXT, "array": np.array([CANARY]), "long": LONG.encode()}


def _tables() -> dict[str, Any]:
    """Frames whose columns are no times, values, keys or persons."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    at = pd.to_datetime(["2024-01-01", "2024-01-02"])
    good = pd.DataFrame({"at": at, "kwh": [1.0, CANARY], "key": ["a", TEXT], "who": [1, WHOLE]})
    changed = {
        "values": {"kwh": [TEXT, TEXT]},
        "objects": {"kwh": canary.objects(CANARY, TEXT)},
        "not finite": {"kwh": [np.nan, CANARY]},
        "decimals": {"kwh": [canary.Decimal(str(CANARY)), None]},
        "times": {"at": [TEXT, TEXT]},
        "numbers as times": {"at": [CANARY, 1.0]},
        "mixed times": {"at": canary.objects(at[0], TEXT)},
        "a missing time": {"at": [None, at[0]]},
        "keys": {"key": [CANARY, 1.0]},
        "a missing person": {"who": [TEXT, None]},
    }
    frames = {name: good.assign(**columns) for name, columns in changed.items()}
    return {
        **frames,
        "values, polars": pl.from_pandas(frames["values"]),
        "times, lazy": pl.from_pandas(frames["times"]).lazy(),
        "a missing person, Arrow": pa.Table.from_pandas(frames["a missing person"]),
        "keys, reader": pa.Table.from_pandas(frames["keys"]).to_reader(),
        "far times": pa.table({"at": pa.array([WHOLE * 10**9] * 2, pa.timestamp("s")), "kwh": [1.0, 2.0]}),
    }


def table_calls() -> list[Calls]:
    options: dict[str, Any] = {"epsilon": 1.0, "by": "key", "keys": ["a"], "unit": fastdp.Person("who", rows=9)}
    calls = []
    for name in ("totals", "means"):
        call = getattr(fastdp, name)
        own = options | {"bound": BOUND}
        calls += [
            Calls(name, _tables, lambda bad, f=call, o=own: f(bad, "kwh", "at", "1h", **o)),
            Calls(name, canary.columns, lambda bad, f=call, o=own: f(bad, "kwh", "at", "1h", **o), PATHS),
            Calls(name, _swapped, lambda bad, f=call: f(None, "kwh", "at", "1h", epsilon=bad, bound=BOUND)),
            Calls(name, _swapped, lambda bad, f=call: f(None, "kwh", "at", "1h", epsilon=1.0, bound=bad)),
        ]
    counting = lambda bad: fastdp.counts(bad, "at", "1h", **options)  # noqa: E731
    persons: dict[str, Any] = {"by": "key", "keys": ["a"], "unit": fastdp.Person("who", per="1h")}
    windows = lambda: fastdp.Windows("1h", 1.0, "2024-01-01", bound=BOUND, seed=1, **persons)  # noqa: E731
    at = np.array(["2024-01-01"] * 2, "M8[s]")
    return [
        *calls,
        Calls("counts", _tables, counting, ("values", "values, polars", "objects", "not finite", "decimals")),
        Calls("counts", canary.columns, counting, PATHS),
        Calls("Windows.add", canary.columns, lambda bad: windows().add(bad, [1.0], ["a"], [1]), MOMENTS),
        Calls("Windows.add", canary.columns, lambda bad: windows().add(at, bad, ["a"] * 2, [1, 2])),
        Calls("Windows.add", canary.columns, lambda bad: windows().add(at, [1.0] * 3, bad, [1] * 3)),
        Calls("Windows.add", canary.columns, lambda bad: windows().add(at, [1.0] * 2, ["a"] * 3, bad)),
        Calls("Windows", _swapped, lambda bad: fastdp.Windows("1h", bad, "2024-01-01", bound=BOUND)),
        Calls("Windows", _swapped, lambda bad: fastdp.Windows("1h", 1.0, "2024-01-01", bound=bad)),
    ]


def fleet_calls() -> list[Calls]:
    """Streams by id, in a fleet and in an engine's job."""
    parameters = fastdp.Adaptive(1.0, BOUND, threshold=BOUND, seed=1)
    job = fastdp.engines.Job(parameters, name="job", secret=lambda: bytes(range(32)))
    fleet = lambda: fastdp.Fleet(parameters, seed=1)  # noqa: E731
    three = [1.0, 2.0, 3.0]
    return [
        Calls("Fleet.publish", canary.columns, lambda bad: fleet().publish([1, 2, 3], bad)),
        Calls("Fleet.publish", canary.columns, lambda bad: fleet().publish(bad, three), ("text column",)),
        Calls("Fleet.forget", canary.columns, lambda bad: fleet().forget(bad)),
        Calls("engines.Job.advance", canary.columns, lambda bad: job.advance(None, [1, 2, 3], bad)),
        Calls("engines.Job.advance", canary.columns, lambda bad: job.advance(None, bad, three), ("text column",)),
    ]


#: In the place of a table a text is a path, which is shown.
PATHS = ("text", "long text alone")
#: Times that they are.
MOMENTS = ("moments", "pandas moments")


def file_calls() -> list[Calls]:
    """Loaders of ``fastdp_lab.datasets`` on files that they refuse."""
    day = "2014-04-01T00:11:00"
    rows = {
        "no number": f"t,lat,lon\n1,40.7,-74\n2,{TEXT},-74\n",
        "NaN beside it": f"t,lat,lon\n1,nan,{CANARY}\n",
        "no time": f"t,lat,lon\n{day},40.7,-74\n{TEXT},40.7,-74\n",
        "no time at first": f"t,lat,lon\n{TEXT},40.7,-74\n",
        "no American time": f"t,lat,lon\n4/1/2014 0:11:00,40.7,-74\n{CANARY}/1,40.7,-74\n",
        "short row": f"t,lat,lon\n{CANARY},40.7\n",
        "no heading": f"{CANARY},{TEXT},{CANARY}\n1,2,3\n",
        "no UTF-8": b"t,lat,lon\n\xff" + TEXT.encode() + b",1,2\n",
        "a long cell": f"t,lat,lon\n{TEXT * 20_000},1,2\n",
        "empty": "",
    }
    moves = {
        "no number": f"x,y,move\n0.5,{TEXT},1\n",
        "outside": f"x,y,move\n0.5,{CANARY},1\n",
        "wrong move": f"x,y,move\n0.5,0.5,{CANARY}\n",
        "removal of nothing": f"x,y,move\n{CANARY},0.5,-1\n",
        "no heading": f"{CANARY},{TEXT},1\n",
    }
    tabs = {
        "no number": f"1\t{day}\t40.7\t{TEXT}\t5\n",
        "no time": f"1\t{TEXT}\t40.7\t-74\t5\n",
        "short row": f"{CANARY}\t{TEXT}\n",
        "no UTF-8": b"\xff" + TEXT.encode() + b"\t1\n",
    }
    items = {"no number": f"1 2 {TEXT}\n", "no UTF-8": b"1 \xff" + TEXT.encode() + b"\n", "negative": f"1 -{WHOLE}\n"}
    packed = {"no gzip": TEXT * 9, "cut short": _gzipped(TEXT * 9)[:-9], "altered": _gzipped(TEXT * 99)[:30] + b"7"}
    return [
        Calls("datasets.load_pickups", _files(rows, ".csv"), lambda path: datasets.load_pickups(path, batch=1)),
        Calls("datasets.load_pickups", _files(packed, ".csv.gz"), lambda path: datasets.load_pickups(path, batch=1)),
        Calls(
            "datasets.load_pickups",
            _files({"unsorted": f"t,lat,lon\n{CANARY},40.7,-74\n1,40.7,-74\n"}, ".csv"),
            lambda path: datasets.load_pickups(path, batch=1, unsorted="raise"),
        ),
        Calls(
            "datasets.load_gowalla", _files(_filled(rows), ".csv"), lambda path: datasets.load_gowalla(path, batch=1)
        ),
        Calls(
            "datasets.load_gowalla", _files(_filled(tabs), ".txt"), lambda path: datasets.load_gowalla(path, batch=1)
        ),
        Calls("datasets.load_circles", _files(moves, ".csv"), datasets.load_circles),
        Calls("datasets.parse", _files(items, ".dat"), lambda path: datasets.parse("kosarak", path)),
        Calls("datasets.parse", _files(packed, ".gz"), lambda path: datasets.parse("kosarak", path)),
        Calls("datasets.parse", _files(tabs, ".txt"), lambda path: datasets.parse("gowalla", path)),
        Calls("datasets.parse", _trips, lambda path: datasets.parse("taxi", path)),
    ]


def _gzipped(text: str) -> bytes:
    import gzip

    return gzip.compress(text.encode(), mtime=0)


def _trips() -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(tempfile.mkdtemp(prefix="canary"))
    tables = {
        "no times": pa.table({"trip_distance": [CANARY]}),
        "texts as times": pa.table({"tpep_pickup_datetime": [TEXT], "trip_distance": [1.0], "fare_amount": [1.0]}),
        "texts as fares": pa.table(
            {"tpep_pickup_datetime": pa.array([1], pa.timestamp("us")), "trip_distance": [1.0], "fare_amount": [TEXT]}
        ),
    }
    paths = {name: folder / f"{number}.parquet" for number, name in enumerate(tables)}
    for name, table in tables.items():
        pq.write_table(table, paths[name])
    (folder / "text.parquet").write_text(TEXT * 9)
    return {**paths, "no Parquet": folder / "text.parquet"}


def all_calls() -> list[Calls]:
    return [
        *value_calls(),
        *local_calls(),
        *count_calls(),
        *point_calls(),
        *array_calls(),
        *table_calls(),
        *fleet_calls(),
        *file_calls(),
    ]
