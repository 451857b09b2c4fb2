"""The promises of speed, row by row: what must be reached, what is aimed at, and where the measured numbers are.

A task is named as in the summary: ``section/group: task`` (``benchmarks.records``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.show.spatial_speed import whole_run_group

#: "time": seconds a call; "item": seconds an item; "rate": items a second; "share": of the limit's throughput;
#: "memory": MiB.
Measure = Literal["time", "item", "rate", "share", "memory"]
COPY = "speed/whole release: np.copyto of the published part"
KEY_STREAM = "speed/sampler: AES-256 key stream alone (words)"
FLOATS = "careful NumPy, float noise"
ONE_CORE = "one core by nature"
CIRCLES = whole_run_group(1.0, "simple", 0.0)


@dataclass(frozen=True)
class Row:
    """One promise.

    ``own`` names tasks of which the slowest counts; ``must`` and ``aim`` are in the measure's unit (None: nothing
    was promised); ``limit`` and ``peers`` are timed beside; ``quoted`` are seconds that came with the task, from
    another machine.  ``parallel`` names the same work with a second core, ``{task}, two at once`` of the section
    ``two_cores`` by default; "" where it has none.  ``readme``: whether README's table has the row.
    """

    work: str
    own: tuple[str, ...]
    must: float | None = None
    aim: float | None = None
    measure: Measure = "time"
    limit: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)
    quoted: Mapping[str, float] = field(default_factory=dict)
    parallel: str | None = None
    readme: bool = True


def _online(prune: int) -> Row:
    block = 16**prune
    peers = {"careful NumPy": "speed/online pass: careful NumPy, prune = 2, noise ready"} if prune == 2 else {}
    return Row(
        f"online pass of ToPS, blocks of {block:,} values (s = {prune}), noise ready, of np.copyto's throughput",
        (f"speed/online pass: prune = {prune}, noise ready",),
        0.5,
        0.8,
        "share",
        "speed/online pass: np.copyto",
        peers,
    )


def _release(work: str, task: str, goals: tuple[float, float], quoted: tuple[float, float], peer: str = "") -> Row:
    group = task.partition(":")[0]
    return Row(
        work,
        (f"speed/{task}",),
        *goals,
        limit=f"speed/{group}: np.copyto of the published part",
        peers={FLOATS: f"speed/{group}: careful NumPy {peer}, float noise (unsafe)"} if peer else {},
        quoted=dict(zip(("authors' code", "NumPy"), quoted, strict=True)),
    )


def _latency(name: str) -> list[Row]:
    return [
        Row(
            f"{name}: one call of publish with {label}",
            (f"latency/latency: {name}, {task}",),
            limit=f"latency/latency: {name}, {task}, np.copyto",
            parallel="",
            readme=name != "ToPS, prune = 0",
        )
        for label, task in (("one value", "1 value"), ("4,096 values", "4,096 values"))
    ]


def _many(kind: str) -> Row:
    group = f"batch/many streams, {kind}"
    return Row(
        f"many streams of 1,000 values in one call ({kind}), a value",
        (f"{group}: many",),
        measure="item",
        peers={"one long stream": f"{group}: long", "a publisher each": f"{group}: loop"},
        parallel=f"{group}: threads",
        readme=kind == "prune 1",
    )


def _repetitions(prune: int) -> Row:
    group = f"batch/repetitions, 1,114,112 values, prune {prune}"
    return Row(
        f"repetitions of one ToPS release with 200 queries (s = {prune}), a repetition",
        (f"{group}: repeat",),
        measure="item",
        peers={"a plain loop": f"{group}: loop"},
        parallel=f"{group}: repeat, 2 threads",
        readme=False,
    )


def _first_release(method: str, cache: str, must: float, aim: float) -> Row:
    return Row(
        f"first release ({method}) in a fresh process, {cache} kernel cache",
        (f"start/start: first release ({method}) and query, {cache} kernel cache",),
        must,
        aim,
        parallel="",
    )


#: The rows of the design's table, in its order.
PROMISED: tuple[Row, ...] = (
    *map(_online, (1, 2, 3)),
    _release(
        "whole ToPS release, 2^20 published and 65,536 held out, eps 0.05",
        "whole release: fastdp ToPS (prune optimal: 2)",
        (3e-3, 1.5e-3),
        (0.22, 9e-3),
        "ToPS, prune = 2",
    ),
    _release(
        "whole H_16^c release (s = 0, noise on every value)",
        "whole release: fastdp H_16^c (s = 0)",
        (25e-3, 12e-3),
        (2.5, 43e-3),
        "H_16^c (s = 0)",
    ),
    _release(
        "whole NM-E + H_2 release (binary tree, noise on every node)",
        "other releases: NM-E + H_2",
        (50e-3, 25e-3),
        (4.2, 80e-3),
    ),
    _release(
        "whole PAK release, running sums", "other releases: PAK: S-PAK, running sums", (50e-3, 25e-3), (5.4, 82e-3)
    ),
    Row(
        "fan-out-16 consistency in exact integers, 2^20 leaves",
        ("speed/consistency: fastdp, integers",),
        4e-3,
        2e-3,
        limit="speed/consistency: np.copyto of the nodes",
        peers={
            "OpenDP, floats": "speed/consistency: OpenDP b-ary tree, floats",
            "careful NumPy, floats": "speed/consistency: careful NumPy, floats",
        },
        quoted={"authors' code": 0.37},
    ),
    Row(
        "smooth sensitivity of 65,536 sorted values, any input (worst that we could construct)",
        ("speed/smooth sensitivity: worst",),
        3e-3,
        1e-3,
        peers={"the papers' scan": "speed/smooth sensitivity: worst, the papers' scan"},
    ),
    Row(
        "smooth sensitivity of 65,536 sorted values, BMS-POS",
        ("speed/smooth sensitivity: POS",),
        3e-3,
        1e-3,
        peers={"the papers' scan": "speed/smooth sensitivity: POS, the papers' scan"},
        quoted={"authors' code": 1.2, "NumPy": 1.6e-3},
    ),
    Row(
        "noisy max, B = 41,270, exact noise, histogram included",
        ("speed/noisy max: fastdp exact, histogram of 65,536 values included",),
        2e-3,
        0.5e-3,
        peers={FLOATS: "speed/noisy max: careful NumPy, float noise (unsafe), histogram included"},
        quoted={"authors' code": 2.7e-3},
    ),
    Row(
        "square wave EM, d = 1,024, eps 1: plain",
        ("local/square wave EM, eps 1: EM, plain",),
        20e-3,
        5e-3,
        peers={"careful NumPy": "local/square wave EM, eps 1: careful NumPy"},
        quoted={"authors' code": 4.1, "NumPy": 0.6},
    ),
    Row(
        "the same, accelerated (SQUAREM)",
        ("local/square wave EM, eps 1: EM, accelerated",),
        20e-3,
        5e-3,
        peers={"careful NumPy": "local/square wave EM, eps 1: careful NumPy"},
        quoted={"authors' code": 4.1, "NumPy": 0.6},
    ),
    Row(
        "one plain step of it, 1,024 bins",
        ("local/square wave EM, plain steps: 1,024 bins",),
        10e-6,
        None,
        "item",
        quoted={"authors' code": 2.1e-3},
        parallel="two_cores/square wave EM, eps 1: EM, plain, two at once",
    ),
    Row(
        "hybrid mechanism of the local model, 2^20 reports",
        ("local/reports: Hybrid: perturb",),
        20e-3,
        8e-3,
        limit="local/reports: np.copyto of the values",
        peers={FLOATS: "local/reports: careful NumPy hybrid, float noise (unsafe)"},
        quoted={"authors' code": 0.5, "NumPy": 0.1},
    ),
    Row(
        "200 range queries, prefix sums included",
        ("speed/whole release: fastdp 200 range queries, prefix sums included",),
        3e-3,
        1e-3,
        limit=COPY,
        peers={"careful NumPy": "speed/whole release: careful NumPy 200 range queries, prefix sums included"},
        quoted={"authors' code": 7.3, "NumPy": 14e-3},
    ),
    Row(
        "exact discrete Laplace, key stream included: the slowest of scales 1 to 2^36",
        tuple(f"speed/sampler: fastdp exact, scale {scale}" for scale in ("1", "10", "10^3", "2^22", "2^34", "2^36")),
        70e6,
        200e6,
        "rate",
        KEY_STREAM,
        {
            "NumPy floats (unsafe)": "speed/sampler: NumPy Generator.laplace, float (unsafe)",
            "OpenDP, scale 2^34": "speed/sampler: OpenDP exact, scale 2^34",
        },
    ),
    Row(
        "PHDStream, circles with deletion, eps 1: tree, 151 steps",
        (f"spatial/{CIRCLES}: all tree steps",),
        0.2,
        0.05,
        quoted={"authors' code": 91.0, "NumPy": 5.4},
        parallel=f"two_cores/{CIRCLES}: fastdp, all tree steps, two at once",
    ),
    Row(
        "PHDStream: one sampling of some 25,000 points",
        (f"spatial/{CIRCLES}: one sampling",),
        2e-3,
        0.5e-3,
        quoted={"authors' code": 1.2, "NumPy": 2e-3},
        parallel=f"two_cores/{CIRCLES}: fastdp, one sampling, two at once",
    ),
    _first_release("adaptive", "warm", 3.0, 1.0),
    _first_release("adaptive", "empty", 20.0, 8.0),
    _first_release("tops", "warm", 3.0, 1.0),
    _first_release("tops", "empty", 20.0, 8.0),
    Row("`import fastdp`, beyond NumPy", ("start/start: import fastdp, beyond numpy",), 0.3, 0.1, parallel=""),
    Row(
        "the same and its first name, which loads Numba",
        ("start/start: import fastdp and look up fastdp.ToPS (loads numba), beyond numpy",),
        parallel="",
    ),
    Row(
        "memory of an endless stream: rise over 67 million values",
        ("start/start: memory after 67 million values more",),
        10.0,
        None,
        "memory",
        parallel="",
    ),
)

#: What else is measured: Adaptive, latency, the batch mode.
BESIDES: tuple[Row, ...] = (
    Row(
        "whole Adaptive release, 2^20 published and 65,536 held out, eps 0.05",
        ("speed/other releases: Adaptive",),
        limit="speed/other releases: np.copyto of the published part",
        peers={"ToPS": "speed/whole release: fastdp ToPS (prune optimal: 2)"},
    ),
    *_latency("ToPS, prune = 0"),
    *_latency("ToPS, prune = 2"),
    *_latency("Adaptive"),
    *_latency("PAK"),
    *map(_many, ("prune 0", "prune 1", "prune 2")),
    *map(_repetitions, (0, 2)),
)
