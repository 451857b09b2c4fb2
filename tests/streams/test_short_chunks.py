"""One pass for chunks of any size and type of number."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_kernels.streams import adaptive_pass, fixed_pass

HOLDOUT, SIZE, LONG = 300, 1500, 1024
OPTIONS: dict[str, Any] = {"epsilon": 1.0, "holdout": HOLDOUT, "max_range": 256, "seed": 3}


def tops(prune: int, **more: Any) -> fastdp.ToPS:
    return fastdp.ToPS(bound=200.0, prune=prune, fan_out=4, **OPTIONS, **more)


def renewed(renewal: Any, max_range: int) -> fastdp.StreamPublisher:
    options = {**OPTIONS, "max_range": max_range, "bound": 200.0, "renewal": renewal}
    return fastdp.StreamPublisher(perturber=Hierarchy(prune=1), smoother=Recent(), **options)


PUBLISHERS = {
    **{f"tops {s}": partial(tops, s) for s in range(3)},
    "mean": partial(tops, 1, smoother="mean"),
    "adaptive": lambda **more: fastdp.Adaptive(bound=200.0, **OPTIONS, **more),
    "events": lambda **more: fastdp.Adaptive(sensitivity=1.0, **{**OPTIONS, "holdout": 0}, **more),
    "fixed": lambda **more: fastdp.Adaptive(bound=200.0, threshold=9.0, **{**OPTIONS, "holdout": 0}, **more),
}
LONG_ONES = {
    "tops 0": PUBLISHERS["tops 0"],
    "tops of 16": lambda: fastdp.ToPS(bound=200.0, prune=1, **OPTIONS),
    "median": partial(tops, 1, smoother="median"),
    "adaptive": PUBLISHERS["adaptive"],
    "renewed from what is published": lambda: renewed(RenewFromPublished(share=0.25, trees=2), LONG),
    "renewed": lambda: renewed(RenewFromHoldout(trees=6, holdout=100), 256),
}
SOME = ["tops 0", "tops 2", "adaptive"]


def stream(size: int = SIZE) -> np.ndarray:
    return np.floor(np.random.default_rng(5).gamma(2.0, 8.0, size))


def whole(name: str) -> np.ndarray:
    """Integers, at once."""
    return PUBLISHERS[name]().publish(stream().astype(np.int64))


@pytest.mark.parametrize("name", PUBLISHERS)
@pytest.mark.parametrize("size", [1, 7, 700])
def test_short_chunks_give_what_long_ones_do(name: str, size: int) -> None:
    publisher, values = PUBLISHERS[name](), stream()
    kept = [publisher.publish(part) for part in np.split(values, range(size, SIZE, size))]
    assert np.array_equal(np.concatenate(kept), whole(name))
    assert np.array_equal(values, stream())


@pytest.mark.parametrize("kind", LONG_ONES)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32"])
def test_long_chunks_of_other_types_are_published_as_floats_are(kind: str, dtype: str) -> None:
    values = np.minimum(stream(HOLDOUT + 3 * LONG + 5), 200.0).astype(dtype)
    given = values.copy()
    ours, floats = LONG_ONES[kind](), LONG_ONES[kind]()
    parts = np.split(values.astype(np.float64), range(100, values.size, 100))
    expected = np.concatenate([floats.publish(part) for part in parts])
    assert ours.publish(values).tobytes() == expected.tobytes()
    assert ours._state.rows.tobytes() == floats._state.rows.tobytes()
    assert (values == given).all()


@pytest.mark.parametrize("name", SOME)
def test_any_memory_of_floats(name: str) -> None:
    """Read-only, with gaps, of a subclass: copied, and never written to."""
    publisher, values = PUBLISHERS[name](), stream()
    # Other tests of this process may have called a kernel as nobody else does.
    before = {kernel: set(kernel.signatures) for kernel in (fixed_pass.publish_rows, adaptive_pass.advance_rows)}
    parts = [publisher.publish(values[:HOLDOUT])]
    for i, part in enumerate(np.split(values[HOLDOUT:], range(5, SIZE - HOLDOUT, 5))):
        part.setflags(write=False)
        parts.append(publisher.publish([part, np.repeat(part, 2)[::2], part.view(np.memmap)][i % 3]))
    assert np.array_equal(np.concatenate(parts), whole(name))
    # Each further layout would be compiled for seconds.
    for kernel, most in ((fixed_pass.publish_rows, 2), (adaptive_pass.advance_rows, 1)):
        new = set(kernel.signatures) - before[kernel]
        assert all(values.layout == "C" for values, *_ in new)
        assert len({values for values, *_ in new}) <= most


@pytest.mark.parametrize("place", [HOLDOUT, HOLDOUT + 16, HOLDOUT + LONG, HOLDOUT + 3 * LONG + 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_refused_long_chunk_changes_nothing(place: int, dtype: str) -> None:
    values = stream(HOLDOUT + 3 * LONG + 5).astype(dtype)
    publisher, right = LONG_ONES["tops of 16"](), values.copy()
    values[place] = np.nan
    with pytest.raises(DataError, match=rf"chunk\[{place}\]: not a finite number"):
        publisher.publish(values)
    assert publisher.n_seen == 0
    assert publisher.publish(right).tobytes() == LONG_ONES["tops of 16"]().publish(right).tobytes()


def test_a_threshold_that_rose_limits_short_chunks() -> None:
    """Values count up to the present threshold, not the first one."""
    rng = np.random.default_rng(1)
    growth = np.rint(np.concatenate([rng.gamma(2.0, 5.0, HOLDOUT), rng.gamma(2.0, 150.0, 12_000)]))
    expected, publisher = (fastdp.Adaptive(bound=6400.0, **{**OPTIONS, "max_range": 4096}) for _ in range(2))
    whole_output = expected.publish(growth.astype(np.int64))
    parts = [publisher.publish(part) for part in np.split(growth, range(50, growth.size, 50))]
    assert publisher.threshold > 200.0
    assert np.array_equal(np.concatenate(parts), whole_output)
