"""Long chunks into new memory: the same values from any type of number, and errors that name the right place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError
from fastdp.streams.parameters import composed
from fastdp.streams.stream_machine import LONG
from fastdp.thresholds import renewals

OPTIONS = {"epsilon": 0.5, "bound": 200, "holdout": 300, "max_range": 256, "seed": 9}
KINDS = {
    "blocks of 16": lambda: fastdp.ToPS(**OPTIONS, prune=1),
    "no blocks": lambda: fastdp.ToPS(**OPTIONS, prune=0),
    "median": lambda: fastdp.ToPS(**OPTIONS, prune=1, smoother="median"),
    "renewed from what is published": lambda: renewed(renewals.RenewFromPublished(share=0.25, trees=2), LONG),
    "renewed": lambda: renewed(renewals.RenewFromHoldout(trees=6, holdout=100), OPTIONS["max_range"]),
}


def renewed(renewal: Any, max_range: int) -> fastdp.StreamPublisher:
    """ToPS whose threshold is renewed."""
    options = {**OPTIONS, "max_range": max_range}
    fan_out = options.pop("fan_out", 16)
    tree = fastdp.perturbers.Hierarchy(fan_out, prune=1)
    return fastdp.StreamPublisher(perturber=tree, smoother=fastdp.smoothers.Recent(), renewal=renewal, **options)


def counts() -> np.ndarray:
    return np.floor(np.random.default_rng(1).gamma(2.0, 8.0, 300 + 3 * LONG + 5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32"])
def test_other_types_are_published_as_floats_are(kind: str, dtype: str) -> None:
    values = counts().astype(dtype)
    given = values.copy()
    ours, floats = KINDS[kind](), KINDS[kind]()
    expected = np.empty(values.size - 300)
    # Small chunks into memory at hand: kernels that work array by array.
    for begin in range(0, values.size, 100):
        part = values[begin : begin + 100].astype(np.float64)
        floats.publish(part, out=expected[max(begin - 300, 0) : max(begin - 200, 0)])
    assert ours.publish(values).tobytes() == expected.tobytes()
    assert str(ours._progress) == str(floats._progress)
    assert (values == given).all()


@pytest.mark.parametrize("place", [300, 316, 300 + LONG, 300 + 3 * LONG + 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_refused_chunk_names_the_place_in_the_callers_array(place: int, dtype: str) -> None:
    values = counts().astype(dtype)
    values[place] = np.nan
    publisher = KINDS["blocks of 16"]()
    with pytest.raises(DataError, match=rf"chunk\[{place}\]: not a finite number"):
        publisher.publish(values)
    assert publisher.n_seen == 0
    values[place] = 3.0
    assert publisher.publish(values).tobytes() == KINDS["blocks of 16"]().publish(values).tobytes()


def test_publishers_alike_share_a_composition() -> None:
    """Of numbers that are equal but of another type there are two: they give different noise."""
    first, second = KINDS["median"](), KINDS["median"]()
    assert first.composition is second.composition
    assert first.publish(counts()).tobytes() == second.publish(counts()).tobytes()
    fields = [getattr(first.composition, name) for name in first.composition.__match_args__]
    assert composed(*fields) is composed(*fields)
    whole = composed(*fields[:4], 200, *fields[5:])
    assert composed(*fields[:4], 200.0, *fields[5:]) is not whole
    assert repr(whole) == repr(composed(*fields[:4], 200.0, *fields[5:]))
    forty, strange = fastdp.thresholds.Fixed(40.0), fastdp.thresholds.Fixed(40.0)
    object.__setattr__(strange, "theta", 40)
    rest = (*fields[1:5], 0, *fields[6:])
    assert forty == strange
    assert composed(forty, *rest) is not composed(strange, *rest)


def test_parts_of_ones_own_are_asked_each_time() -> None:
    class Own(fastdp.smoothers.Recent):
        pass

    fields = [getattr(KINDS["no blocks"]().composition, name) for name in ("threshold", "perturber")]
    rest = (0.5, 200.0, 300, 256, None, "raise")
    own = Own()
    assert composed(*fields, own, *rest) is not composed(*fields, own, *rest)
