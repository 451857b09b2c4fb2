"""Golden cases besides the publishers: noise, data sets, workloads, queries, metrics, an audit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.parts import SECRETS, Golden, public, values
from tests.golden.points import BOXES, PLANE


def _noise(folder: Path, distribution: str, **secret: Any) -> Iterator[Any]:
    draw = public(f"noise.{distribution}")
    for scale in (0.01, 1.0, Fraction(7, 3), 1000.0, 2.0**40):
        yield draw(scale, 200, **secret)
    yield draw(3.0, 200, stream=5, **secret)


def _points(folder: Path, made: str, **options: Any) -> Iterator[Any]:
    stream = public(f"datasets.{made}")(300, seed=5, **options)
    yield from (stream.points, stream.cancels, stream.times, stream.cuts, stream.lower, stream.upper)
    for added, removed in stream.batches:
        yield from (added, removed)


def _queries(folder: Path) -> Iterator[Any]:
    yield from public("queries.random_ranges")(500, 100, 64, seed=3)
    for placement in ("inside", "clipped"):
        boxes = public("queries.random_boxes")([0.0, 0.0], [1.0, 1.0], 50, 0.001, 0.01, placement=placement, seed=3)
        yield from (boxes.lower, boxes.upper)
    for boxes in public("queries.paper_queries")([0.0, 0.0], [1.0, 1.0], seed=3).values():
        yield from (boxes.lower, boxes.upper)


def _answers(folder: Path) -> Iterator[Any]:
    yield public("queries.PointIndex")(PLANE).count(*BOXES)
    yield public("datasets.extend_by_reflection")(values(50), 170)
    yield public("datasets.hold_out_and_extend")(values(50), 20, 100)


def _metrics(folder: Path) -> Iterator[Any]:
    truth, answers, lengths = values(50), values(50, 9), np.arange(1, 51)
    for name in ("mse", "mae"):
        yield public(f"queries.{name}")(truth, answers)
    for name in ("mmse", "mmae"):
        yield public(f"queries.{name}")(truth, answers, lengths)
    yield public("queries.relative_error")(truth, answers, 1.0)
    yield public("queries.relative_error")(truth, answers, 1.0)


def _audit(folder: Path) -> Iterator[Any]:
    distribution = public("noise.geometric")
    mechanism = lambda data, seed: data + int(distribution(2.0, 1, seed=seed)[0])  # noqa: E731
    result = public("audit")(mechanism, 0, 1, trials=600, epsilon=0.5, seed=1, progress=False)
    yield from (result.epsilon_lower, result.hits, result.hits_adjacent, result.counted)


def _publishing(folder: Path) -> Iterator[Any]:
    make = lambda seed: public("counters.RunningCounts")(public("counters.Simple")(), 1.0, seed=seed)  # noqa: E731
    mechanism = public("auditing.Publishing")(make, "step")
    result = public("audit")(mechanism, [0], [1], trials=300, seed="audit", progress=False)
    yield from (result.epsilon_lower, result.hits, result.hits_adjacent, result.counted)


def _cases() -> Iterator[tuple[str, Golden]]:
    for distribution, secret in product(("discrete_laplace", "geometric"), SECRETS):
        yield f"noise {distribution}, {secret}", Golden(partial(_noise, distribution=distribution, **SECRETS[secret]))
    table1 = public("datasets.table1")
    for name, order in product(("dns", "fare", "kosarak", "pos"), ("iid", "diurnal", "bursty", "drifting")):
        drawn = lambda folder, n=name, o=order: [table1(n, 8000, o, seed=3)]  # noqa: E731
        yield f"table1 {name}, {order}", Golden(drawn, portable=False)
    yield "dns_like_day", Golden(lambda folder: [public("datasets.dns_like_day")(400, seed=3)], portable=False)
    for made, options in (
        ("concentric_circles", {"batch": 60}),
        ("made_up_pickups", {"days": 3}),
        ("made_up_check_ins", {"days": 4, "deletion": True, "lifetime": 90000.0}),
    ):
        yield f"points {made}", Golden(partial(_points, made=made, **options), portable=False)
    yield "queries of workloads", Golden(_queries, portable=False)
    yield "answers of indices", Golden(_answers)
    yield "metrics", Golden(_metrics, portable=False)
    yield "audit of geometric noise", Golden(_audit, portable=False)
    yield "audit of a publisher", Golden(_publishing, portable=False)


CASES = dict(_cases())
