"""Golden cases of points in space: synthetic points and trees, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.parts import BYTES, OTHERS, SECRETS, USUAL, Golden, public

Make = Callable[..., Any]

_AT = np.arange(400)
PLANE = np.stack([_AT * 61 % 127 / 254.0, _AT * 89 % 113 / 170.0], axis=1)
LINE = PLANE[:, :1]
SPACE = np.column_stack([PLANE, _AT * 37 % 101 / 101.0])
ENDS = [(0, 120), (120, 150), (150, 150), (150, 230), (230, 320), (320, 400)]
BOXES = np.array([[0.0, 0.0], [0.1, 0.2], [0.25, 0.5]]), np.array([[0.5, 0.5], [0.4, 0.3], [1.0, 1.0]])


def batches(points: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Additions and removals of six steps."""
    for t, (begin, end) in enumerate(ENDS):
        yield points[begin:end], points[begin // 4 : begin // 4 + 3 * t]


def tree(found: Any) -> Iterator[Any]:
    """A released tree."""
    yield from (found.lower, found.upper, found.counts, found.depths, found.total)


def followed(publisher: Any, points: np.ndarray) -> Iterator[Any]:
    """Release of a publisher at every step."""
    for added, removed in batches(points):
        yield publisher.step(added, removed)
        yield from tree(publisher.tree)
        if points.shape[1] == 2:
            yield publisher.count(*BOXES)


def advanced(publisher: Any) -> Iterator[Any]:
    """The same without points at every second step."""
    for t, (added, removed) in enumerate(batches(PLANE)):
        publisher.advance(added, removed)
        yield from () if t % 2 else (publisher.sample(),)
    yield from tree(publisher.tree)


def _box(dimension: int) -> Any:
    return public("points.Box")([0.0] * dimension, [1.0] * dimension)


def _make(name: str, *arguments: Any, dimension: int = 2, **options: Any) -> Make:
    given = {"max_depth": 6, "outside": "clip", **options}
    return lambda **secret: public(name)(_box(dimension), 4.0, *arguments, **given, **secret)


counter = {name: public(f"counters.{name}") for name in ("Simple", "Block", "BinaryTree")}
CHIEF = {
    "phdstream": _make("PHDStream"),
    "adaptive phdstream": _make("AdaptivePHDStream", max_period=3),
}
FURTHER = {
    "phdstream block": _make("PHDStream", "block"),
    "phdstream binary": _make("PHDStream", "binary", fan_out=3),
    "phdstream tree of 4": _make("PHDStream", counter["BinaryTree"](4)),
    "phdstream block settles": _make("PHDStream", counter["Block"](2, settles=True)),
    "phdstream sensitivity": _make("PHDStream", sensitivity=2, threshold=3.0),
    "phdstream paper": _make("PHDStream", score="paper"),
    "phdstream retention 0": _make("PHDStream", retention=0),
    "phdstream retention 2": _make("PHDStream", retention=2, max_depth=10),
    "adaptive phdstream period": _make("AdaptivePHDStream", period=2, sensitivity=2),
    "adaptive phdstream plain": _make("AdaptivePHDStream", max_period=2, shrink=False, fan_out=3),
}


def _geographic(domain: str) -> Any:
    import shapely

    if domain == "polygons":
        shapes = [shapely.Point(0.3, 0.3).buffer(0.3, quad_segs=20), shapely.Point(0.7, 0.7).buffer(0.25)]
        return public("points.Polygons")(shapes, geographic=True)
    lines = [shapely.LineString(line) for line in ([(0, 0), (0.4, 0.7), (1, 1)], [(0, 1), (1, 0.1)])]
    return public("points.Network")(lines, tolerance=2.0)


def _fit(folder: Path, secret: dict[str, Any], **options: Any) -> Iterator[Any]:
    found = public("points.PrivTree")(_box(2), 4.0, **options, **secret).fit(PLANE)
    yield from tree(found)
    yield from (found.sample(5), found.count(*BOXES))


def _mapped(folder: Path, name: str, domain: str) -> Iterator[Any]:
    publisher = public(name)(_geographic(domain), 4.0, max_depth=6, outside="clip", **USUAL)
    return followed(publisher, PLANE)


def _kept(folder: Path, make: Make) -> Iterator[Any]:
    """Each step's points are lost once and made again from the kept file."""
    publisher = make(**USUAL)
    kind, path = type(publisher), folder / "kept"
    publisher.keep(path, BYTES)
    for added, removed in batches(PLANE):
        publisher.step(added, removed)
        publisher = kind.load(path, BYTES, replay=True)
        yield publisher.step(added, removed)
        yield from tree(publisher.tree)
        yield publisher.count(*BOXES)


def _cases() -> Iterator[tuple[str, Golden]]:
    for name, make in {**CHIEF, **FURTHER}.items():
        yield name, Golden(lambda folder, make=make: followed(make(**USUAL), PLANE))
    for name, make in CHIEF.items():
        for secret in OTHERS:
            given = SECRETS[secret]
            yield f"{name}, {secret}", Golden(lambda folder, make=make, given=given: followed(make(**given), PLANE))
        yield f"{name}, advanced", Golden(lambda folder, make=make: advanced(make(**USUAL)))
        yield f"replay {name}", Golden(partial(_kept, make=make))
    for kind, dimension, points in (("line", 1, LINE), ("space", 3, SPACE)):
        for name in ("PHDStream", "AdaptivePHDStream"):
            made = _make(name, dimension=dimension)
            yield f"{name} on a {kind}", Golden(lambda folder, m=made, p=points: followed(m(**USUAL), p))
    for secret, given in SECRETS.items():
        yield f"privtree, {secret}", Golden(partial(_fit, secret=given, max_depth=8))
    yield "privtree threshold", Golden(partial(_fit, secret=USUAL, fan_out=3, threshold=5.0, max_depth=5))
    for name in ("PHDStream", "AdaptivePHDStream"):
        for domain in ("polygons", "network"):
            yield f"{name} on {domain}", Golden(partial(_mapped, name=name, domain=domain), portable=False)


CASES = dict(_cases())
