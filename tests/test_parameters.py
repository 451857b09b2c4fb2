"""Parameters that fit or do not fit each other, extreme ones, and secrets that stay secret."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp import perturbers
from fastdp.errors import FastDPError, ParameterError, StateError
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax
from fastdp_lab import metrics

FLAT = {"perturber": perturbers.Flat(), "epsilon": 1.0, "bound": 50, "holdout": 0, "seed": 1}
RELEASES: dict[str, Callable[[Any], fastdp.Release]] = {
    "release": lambda rule: fastdp.release(np.arange(40.0), 1.0, 50, seed=1, threshold=rule),
    "release_many": lambda rule: fastdp.release_many(np.ones((3, 40)), 1.0, 50, seed=1, threshold=rule)[1],
    "StreamPublisher": lambda rule: fastdp.StreamPublisher(**FLAT, threshold=rule).release([1.0, 2.0]),
    "Adaptive": lambda rule: fastdp.Adaptive(1.0, 50, 0, threshold=rule, seed=1).release([1.0, 2.0]),
    "PAK": lambda rule: fastdp.PAK(1.0, 1e-6, 50, 2, threshold=rule, seed=1).release([1.0, 2.0]),
    "ToPL": lambda rule: fastdp.ToPL(1.0, 50, threshold=rule, seed=1).release([1.0, 2.0]),
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_number_is_a_known_threshold(name: str) -> None:
    make = RELEASES[name]
    expected = make(Fixed(20.0))
    for number in (20.0, 20, np.int64(20)):
        assert make(number).threshold == expected.threshold == 20.0
        assert np.array_equal(make(number).values, expected.values)


def test_numbers_of_other_types_are_welcome(make, stream) -> None:
    plain = make().publish(stream)
    assert np.array_equal(
        make(epsilon=np.float32(1), bound=np.int16(50), holdout=np.uint8(40)).publish(stream), plain
    )
    assert np.array_equal(make(max_range=np.int64(64), seed=np.int64(7)).publish(stream), plain)
    assert not np.array_equal(make(seed=8).publish(stream), plain)
    assert not np.array_equal(make(seed="7").publish(stream), plain)
    assert np.array_equal(make(seed="7").publish(stream), make(seed="7").publish(stream))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_small_integers_do_not_wrap(make, stream, kind: type[np.integer]) -> None:
    """The proof that int64 holds the grid must not itself be computed in int8."""
    plain, publisher = make(max_range=128), make(fan_out=kind(4), prune=kind(1), max_range=128)
    assert publisher.plan == plain.plan
    assert publisher.resolution == plain.resolution
    assert np.array_equal(publisher.publish(stream), plain.publish(stream))


def attempt(build: Callable[[], Any]) -> tuple[Any, str]:
    """The built object, or the reason why not."""
    try:
        return build(), ""
    except ParameterError as error:
        return None, str(error)


@pytest.mark.parametrize(
    ("max_range", "fan_out", "height"), [(1, 16, 1), (16, 16, 1), (17, 16, 2), (64, 4, 3), (65, 4, 4)]
)
def test_prune_below_the_levels(compose, stream, max_range: int, fan_out: int, height: int) -> None:
    options = {"max_range": max_range, "smoother": Recent()}
    publisher = compose(perturber=Hierarchy(fan_out, prune=height - 1), **options)
    assert (publisher.plan.levels, publisher.plan.block) == (1, fan_out ** (height - 1))
    assert np.isfinite(publisher.publish(stream)).all()
    for prune in (height, height + 1, 1000):
        with pytest.raises(ParameterError, match=rf"^prune = {prune}: expected less than the {height} levels"):
            compose(perturber=Hierarchy(fan_out, prune=prune), **options)


MISFITS: list[tuple[dict[str, Any], str]] = [
    *(({"perturber": Hierarchy(4, prune=s)}, rf"^smoother = None: .*blocks of {4**s} values") for s in (1, 2)),
    ({"threshold": Fixed(50.5)}, r"^theta = 50.5 \(the threshold\): expected at most the bound, 50.0"),
    *(
        ({"threshold": NoisyMax(step=step)}, rf"^step = {re.escape(repr(step))}: .* and the bound, 50.0")
        for step in (50.5, 1e-9, 5e-324, 1e308)
    ),
    *(
        ({"resolution": r}, r"^resolution = .*at most 2\^\d+ fit; expected a coarser resolution")
        for r in (1e-18, 1e-300)
    ),
    ({"resolution": 2.0**-20, "epsilon": 1e-12}, r"coarser resolution.*epsilon = 1e-12"),
    ({"perturber": Hierarchy(prune=0), "max_range": 2**40}, r"^max_range = 1099511627776: a tree of .* takes .* GiB"),
]


@pytest.mark.parametrize(("options", "told"), MISFITS)
def test_parameters_that_do_not_fit_each_other(compose, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        compose(**{"smoother": None, **options})


def test_parameters_that_just_fit(compose, make, stream) -> None:
    assert compose(smoother=None).plan.block == 1
    assert compose(threshold=Fixed(50.0)).threshold == 50.0
    coarse = make(resolution=50)
    assert set(np.unique(coarse.publish(stream) * 8 % 25)) == {0.0}
    assert coarse.threshold == 50.0


@pytest.mark.parametrize(
    "options", [{}, {"prune": "optimal"}, {"resolution": 50.0, "max_range": 1, "prune": 0}], ids=str
)
def test_extreme_epsilon(make, stream, options) -> None:
    """Refused at construction, by name; never in the middle of a stream."""
    for epsilon in (5e-324, 1e-300, 1e-160, 1e-100, 1e-20, 1e-15, 1e-14, 1e18, 1e30, 1e160, 1e300):
        publisher, refusal = attempt(lambda epsilon=epsilon: make(epsilon=epsilon, **options))
        if publisher is None:
            assert re.match(r"epsilon = |resolution = .*epsilon = ", refusal)
            assert "expected" in refusal
        else:
            assert np.isfinite(publisher.publish(stream)).all()
    for epsilon in (5e-324, 1e-300):
        with pytest.raises(ParameterError, match=rf"^epsilon = {epsilon}: .*expected a larger epsilon"):
            make(epsilon=epsilon)


@pytest.mark.parametrize("bound", [1e-9, 1e-3, 1.0, 63.9, 64.0, 2.0**20 + 1, 1e12, 1e100])
@pytest.mark.parametrize("prune", [0, 1])
def test_scale_of_the_data(make, stream, bound: float, prune: int) -> None:
    """Much budget, so that the stream itself must come out, in its own units."""
    values = stream / 49.0 * bound
    publisher = make(bound=bound, epsilon=1e6, prune=prune, holdout=100, c=1e9 * bound)
    publisher.publish(np.resize(values, 100))
    assert 0.9 * bound <= publisher.threshold <= bound * (1 + 1e-9)
    published = publisher.publish(values[:208])
    expected = np.minimum(values[:208], publisher.threshold)
    g = 4**prune
    sums, truth = (x.reshape(-1, g).sum(1) for x in (published, expected))
    assert np.abs(sums - truth).max() < 0.001 * bound


@pytest.mark.parametrize("bound", [5e-324, 1e-320, 1e-308, 1e-300, 1e300, np.finfo(float).max])
@pytest.mark.parametrize("prune", [0, 1])
def test_extreme_bound(make, stream, bound: float, prune: int) -> None:
    """Refused by name at construction, or right."""
    publisher, refusal = attempt(lambda: make(bound=bound, epsilon=1e6, prune=prune))
    if publisher is None:
        assert re.match("bound = .*expected", refusal)
    else:
        published = publisher.publish(np.where(stream > 25, bound, 0.0))
        assert np.isfinite(published).all()
        assert np.abs(published / bound).max() < 1000


def test_extreme_c(make, stream) -> None:
    for c in (5e-324, 1e-300, 1e-100, 1e100, 1e300):
        publisher = make(c=c, epsilon=1e3)
        publisher.publish(stream)
        assert publisher.threshold < 2 if c < 1 else publisher.threshold > 40


# Keys are secret.

SECRET = bytes(range(100, 132))


def test_a_key_is_32_bytes_and_a_copy_of_them() -> None:
    for wrong in (SECRET[:31], SECRET + b"x", "x" * 32, list(SECRET), bytearray(31)):
        for build in (fastdp.Key.from_bytes, lambda v: fastdp.ToPS(1.0, 50, key=v)):
            with pytest.raises(ParameterError, match=r"^key: expected 32 bytes") as caught:
                build(wrong)
            assert not hidden_in(str(caught.value))
            assert "xxxx" not in str(caught.value)
    mutable = bytearray(SECRET)
    key = fastdp.Key.from_bytes(mutable)
    mutable[0] = 0
    assert key == fastdp.Key.from_bytes(SECRET)


def test_seed_or_key(make) -> None:
    with pytest.raises(ParameterError, match=r"^seed = 7: expected either seed .* or key .*, not both") as caught:
        make(key=SECRET)
    assert SECRET.hex() not in str(caught.value)
    assert repr(SECRET) not in str(caught.value)


def hidden_in(text: str) -> bool:
    """True if 20 of the secret's 32 bytes can be read from the text."""
    forms = (repr(SECRET)[2:22], SECRET.hex()[:40], str(list(SECRET))[1:98])
    return any(form in text for form in forms)


def test_repr_does_not_show_secrets(make, stream) -> None:
    assert hidden_in(f"key={SECRET!r}")
    key = fastdp.Key.from_bytes(SECRET)
    publisher = make(seed=None, key=key)
    publisher.publish(stream)
    for thing in (key, publisher, publisher.guarantee, publisher.plan, vars(publisher)):
        for text in (repr(thing), str(thing), f"{thing}"):
            assert not hidden_in(text)
    assert repr(key) == "Key(<secret>)"
    assert repr(fastdp.Key.from_seed(987654321)) == "Key(<from a seed>)"
    assert "987654321" not in repr(make(seed=987654321))
    assert "n_seen=211" in repr(publisher)
    assert "epsilon=1" in repr(publisher)


NO_NUMBERS = ("text", ["a", "b"], [1j, 2], None, [None, 1.0], [[1], [1, 2]], [], [1.0, np.nan], [np.inf, 1.0], {})


@pytest.mark.parametrize("name", ["mse", "mae", "mmse", "mmae", "relative_error"])
def test_metrics_refuse_what_is_no_array_of_numbers(name: str) -> None:
    metric, two = getattr(metrics, name), [1.0, 2.0]
    arguments: dict[str, Any] = {"truth": two, "answers": two} | ({"lengths": [1, 1]} if name[1] == "m" else {})
    for argument, wrong in itertools.product(arguments, NO_NUMBERS):
        with pytest.raises(ParameterError, match=rf"^{argument}.*[:;] expected .*number"):
            metric(**{**arguments, argument: wrong})
    for argument, wrong in itertools.product(list(arguments)[1:], ([1.0, 2.0, 3.0], [[1.0, 2.0]])):
        with pytest.raises(ParameterError, match=rf"^{argument} has shape .*: expected that of truth, \(2,\)"):
            metric(**{**arguments, argument: wrong})
    for wrong, first in (([1, 0], 1), ([-2, 1], 0)) if "lengths" in arguments else ():
        with pytest.raises(ParameterError, match=rf"^lengths\[{first}\]: not above 0 .*expected numbers above 0"):
            metric(two, two, wrong)
    if name == "relative_error":
        with pytest.raises(ParameterError, match=r"^floor = 0.0: expected a number above 0, because some"):
            metric([1.0, 0.0], [1.0, 0.0])


NO_INDICES = (
    0.0,
    [1.0],
    [np.nan],
    np.inf,
    "1",
    ["1"],
    True,
    [True, False],
    None,
    1j,
    [[1, 2]],
    [[1], [1, 2]],
    {},
    2**70,
)


@pytest.mark.parametrize("revised", [False, True])
def test_ranges_of_a_sum_are_checked(make, stream, revised: bool) -> None:
    release = make().release(stream)
    for name, wrong in itertools.product(("starts", "stops"), NO_INDICES):
        with pytest.raises(ParameterError, match=f"^{name} .*expected .*whole numbers"):
            release.sum(**({"starts": 0, "stops": 171} | {name: wrong}), revised=revised)
    for starts, stops, where in (
        (-1, 3, r"starts\[0\] = -1, stops\[0\] = 3"),
        (0, 172, r"starts\[0\] = 0, stops\[0\] = 172"),
        (5, 4, r"starts\[0\] = 5, stops\[0\] = 4"),
        ([0, 3, 9], [2, 2, 1], r"starts\[1\] = 3, stops\[1\] = 2"),
        (0, [3, 400, 2], r"starts\[1\] = 0, stops\[1\] = 400"),
        ([0, 7], 5, r"starts\[1\] = 7, stops\[1\] = 5"),
        (np.uint64(2**64 - 1), 5, r"starts\[0\] = "),
        (-(2**63), 2**63 - 1, r"starts\[0\] = -9223372036854775808"),
    ):
        with pytest.raises(ParameterError, match=rf"^{where}.*: expected 0 <= start <= stop <= 171"):
            release.sum(starts, stops, revised)
    for starts, stops in (([0, 1], [2, 3, 4]), ([0, 1, 2], [3, 4]), ([0, 1], []), ([], [0, 1]), ([0, 1, 2], [])):
        with pytest.raises(
            ParameterError, match=rf"^starts, stops have {len(starts)}, {len(stops)} entries: expected as"
        ):
            release.sum(starts, stops, revised)


def test_errors_are_also_the_usual_ones() -> None:
    """So that callers who know only Python catch them."""
    assert issubclass(ParameterError, ValueError)
    assert issubclass(fastdp.errors.DataError, ValueError)
    assert issubclass(StateError, RuntimeError)
    assert all(issubclass(e, FastDPError) for e in (ParameterError, fastdp.errors.DataError, StateError))


@pytest.mark.parametrize("given", [[1.0], [1.0, 2.0, 3.0]])
def test_as_many_numbers_as_are_asked_for(given: list[float]) -> None:
    from fastdp.record import Numbers, Real

    with pytest.raises(ParameterError, match="expected 2 numbers"):
        Numbers(Real(least=0.0), 2).check("rates", given)
