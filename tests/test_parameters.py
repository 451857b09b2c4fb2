"""Parameters: types, ranges, secrets; and what every constructor does."""

from __future__ import annotations

import inspect
import itertools
import os
import re
from collections.abc import Callable
from datetime import UTC
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local, perturbers, smoothers, thresholds
from fastdp.data.calendar import _changes
from fastdp.errors import DataError, FastDPError, ParameterError, StateError
from fastdp.local import Announcement, HistogramCollector, Piecewise, SquareWave, SumCollector, decode
from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.sampler import laplace_distribution
from fastdp.noise.words import Purpose, StreamId, _layout
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.hierarchy import consistency_weights
from fastdp.points import Box
from fastdp.smoothers import Recent
from fastdp.thresholds import Fixed, NoisyMax, ThresholdTask, renewals
from fastdp.thresholds.noisy_max import _penalties
from fastdp.thresholds.scale_free import _candidates
from fastdp_lab import sweeps

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


@pytest.mark.parametrize("options", [{}, {"prune": None}, {"resolution": 50.0, "max_range": 1, "prune": 0}], ids=str)
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
    release = release.revised if revised else release
    for name, wrong in itertools.product(("starts", "stops"), NO_INDICES):
        with pytest.raises(ParameterError, match=f"^{name}.*expected .*whole numbers"):
            release.sum(**({"starts": 0, "stops": 171} | {name: wrong}))
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
            release.sum(starts, stops)
    for starts, stops in (([0, 1], [2, 3, 4]), ([0, 1, 2], [3, 4]), ([0, 1], []), ([], [0, 1]), ([0, 1, 2], [])):
        with pytest.raises(
            ParameterError, match=rf"^starts, stops have {len(starts)}, {len(stops)} entries: expected as"
        ):
            release.sum(starts, stops)


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


reals = st.one_of(
    st.floats(),
    st.floats(1e-3, 1e3),
    st.sampled_from([5e-324, 2.0**-1022, 2.0**-33, 1.0, 2.0**53, 2.0**62, 1.7e308, np.float32(0.5), np.float16(6e4)]),
)
wholes = st.one_of(
    st.integers(-2, 70),
    st.integers(),
    st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, np.int8(5), np.uint64(2**63)]),
)
strangers = st.sampled_from(
    [None, True, "", "optimal", "recent", "laplace", "\ud800", b"1", 1j, [], {}, np.ones(1), object()]
)
anything = st.one_of(reals, wholes, strangers)

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ToPS": (fastdp.ToPS, {"epsilon": 0.5, "bound": 100.0, "holdout": 8, "max_range": 64, "seed": 1}),
    "PAK": (fastdp.PAK, {"epsilon": 0.5, "delta": 1e-6, "bound": 100.0, "length": 64, "holdout": 8, "seed": 1}),
    "ToPL": (fastdp.ToPL, {"epsilon": 0.5, "bound": 100.0, "holdout": 8, "max_range": 64, "seed": 1}),
    "PHDStream": (fastdp.PHDStream, {"domain": Box([0, 0], [1, 1]), "epsilon": 0.5, "seed": 1}),
    "Box": (Box, {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}),
}
for module in (counters, thresholds, perturbers, renewals, smoothers):
    for name in ("Block", "BinaryTree", "Fixed", "NoisyMax", "PAKQuantile", "SmoothQuantile", "SquareWave",
                 "TruePercentile", "Hierarchy", "RenewFromPublished", "RenewFromHoldout",
                 "Exponential", "MovingAverage"):  # fmt: skip
        if hasattr(module, name):
            needed = {"Fixed": {"theta": 3.0}, "TruePercentile": {"p": 0.9}}.get(name, {})
            KINDS[f"{module.__name__.rpartition('.')[2]}.{name}"] = (getattr(module, name), needed)
for name in ("SquareWave", "StochasticRounding", "Piecewise", "Hybrid"):
    KINDS[f"local.{name}"] = (getattr(local, name), {"epsilon": 1.0})


@pytest.mark.filterwarnings("ignore:holdout = :fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_constructor_makes_a_part_or_says_why_not(kind: str, data: st.DataObject) -> None:
    make, usual = KINDS[kind]
    names = [name for name in inspect.signature(make).parameters if name != "key"]
    chosen = data.draw(st.dictionaries(st.sampled_from(names), anything, min_size=1, max_size=3))
    made, said = None, ""
    try:
        made = make(**{**usual, **chosen})
    except ParameterError as error:
        said = str(error)
    assert "\n" not in said
    assert said or repr(made)
    if made is not None and kind in ("ToPS", "PAK", "ToPL") and getattr(made, "holdout", 0) <= 64:
        publish_something(made)


def publish_something(publisher: Any) -> None:
    stream = np.arange(60.0) % 7
    try:
        published = publisher.publish(stream)
    except DataError:
        # An option may refuse values as they are.
        return
    assert np.isfinite(published).all()
    assert publisher.guarantee.epsilon > 0


MECHANISM = Piecewise(1.0, 0.0, 64.0)
BOX = Box([0, 0], [1, 1])
#: One part of each kind, and what takes such a part.
PARTS: dict[str, Any] = {
    "threshold": thresholds.Fixed(3.0),
    "perturber": perturbers.Hierarchy(),
    "smoother": smoothers.Recent(),
    "renewal": renewals.RenewFromHoldout(),
    "counter": counters.Simple(),
    "domain": BOX,
    "mechanism": MECHANISM,
}


def composed(**parts: Any) -> Any:
    usual = {"threshold": thresholds.NoisyMax(), "perturber": perturbers.Hierarchy(), "smoother": smoothers.Recent()}
    return fastdp.StreamPublisher(epsilon=1.0, bound=100, holdout=1000, max_range=4096, **{**usual, **parts})


TAKERS: dict[str, list[Any]] = {
    **{name: [lambda part, name=name: composed(**{name: part})] for name in ("perturber", "smoother", "renewal")},
    "threshold": [
        lambda part: composed(threshold=part),
        lambda part: fastdp.PAK(epsilon=1.0, delta=0.5, bound=100, length=99, holdout=9, threshold=part),
    ],
    "counter": [lambda part: fastdp.PHDStream(BOX, 1.0, part), lambda part: counters.RunningCounts(part, 1.0)],
    "domain": [lambda part: fastdp.PHDStream(part, 1.0)],
    "mechanism": [Announcement],
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_part_of_another_kind_says_what_it_lacks(taker: str) -> None:
    for take, other in itertools.product(TAKERS[taker], PARTS):
        if taker == other:
            take(PARTS[other])
            continue
        with pytest.raises(
            ParameterError, match=rf"^{taker} = .*: expected an object from fastdp\.[\w.]+ \(it lacks \w"
        ):
            take(PARTS[other])
        with pytest.raises(ParameterError, match=rf"^{taker} = .*\(it is a class\)$"):
            take(type(PARTS[taker]))
    half = type("Half", (), {"step": lambda self, state, means: (state, means)})()
    with pytest.raises(ParameterError, match=r"expected an object from fastdp.smoothers \(it lacks start\)$"):
        composed(smoother=half)


@pytest.mark.parametrize("path", ["a\0b", b"a\0b", "\ud800", "", b"", 5, None, ["a"]], ids=repr)
def test_paths_that_no_file_can_have(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keep = fastdp.ToPS(epsilon=1.0, bound=100).keep
    for take in (fastdp.Ledger, keep, sweeps.read_specification, sweeps.load):
        with pytest.raises(ParameterError, match=r"(path|folder) = .*: expected the path of a file or folder"):
            take(path)
    assert not list(tmp_path.iterdir())
    encoded = os.fsencode(tmp_path / "budget")
    assert repr(fastdp.Ledger(encoded)) == repr(fastdp.Ledger(tmp_path / "budget"))


@pytest.mark.parametrize(
    "data", ["x", 5, None, [1], memoryview(np.zeros(6))[::2]], ids=lambda data: type(data).__name__
)
def test_messages_that_are_no_bytes(data: Any, tmp_path: Path) -> None:
    collector = HistogramCollector(SquareWave(1.0, 0.0, 64.0))
    server = fastdp.ToPLServer(epsilon=1.0, bound=100, holdout=10, max_range=64)
    kept = SumCollector(MECHANISM)
    kept.keep(tmp_path / "kept")
    for take in (collector.receive, kept.receive, server.receive, decode):
        with pytest.raises(DataError, match=f"^data is a {type(data).__name__}: expected bytes"):
            take(data)
    assert collector.refused.messages == kept.refused.messages == 0


RAGGED = [[[0.0, 0.0], [1.0]], [0.0, [0.0, 1.0]]]


@pytest.mark.parametrize("ragged", RAGGED)
def test_ragged_boxes(ragged: Any) -> None:
    publisher = fastdp.PHDStream(BOX, 1.0, seed=1)
    publisher.advance(np.random.default_rng(1).random((50, 2)))
    whole = [[1.0, 1.0], [1.0, 1.0]]
    for count in (publisher.count, publisher.tree.count):
        for lower, upper in ((ragged, whole), (whole, ragged)):
            with pytest.raises(FastDPError, match=r"(lower|upper).*expected"):
                count(lower, upper)


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "{a=" * 5000 + "1" + "}" * 5000])
def test_tables_nested_5000_deep(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"^{path}: .*too deep"):
        sweeps.read_specification(path)


@pytest.mark.parametrize("place", [("datasets", "name"), ("mechanisms", "name")])
def test_lone_surrogates_in_a_specification(place: tuple[str, str]) -> None:
    """No column of results can hold them."""
    tables: dict[str, Any] = {
        "epsilons": [1.0],
        "datasets": [{"name": "a", "generator": "table1", "stream": "pos", "n": 1500}],
        "mechanisms": [{"name": "b", "system": "tops"}],
    }
    tables[place[0]][0][place[1]] = "\ud800"
    with pytest.raises(ParameterError, match=r"\[0\]\.\w+ = '.ud800': expected a text of Unicode characters"):
        sweeps.from_table(tables)


TASK = ThresholdTask(0.5, 64.0, 500, 4096, 2.0**-10)
CACHED: dict[str, Callable[[], Any]] = {
    "consistency": lambda: [consistency_weights(Hierarchy(prune=0).plan(0.5, 4096))],
    "penalties": lambda: [_penalties(NoisyMax(), TASK, 1.0, 64)],
    "candidates": lambda: _candidates(2**20),
    "changes of a clock": lambda: _changes(0, 3, UTC),
    "a distribution": lambda: [laplace_distribution(Fraction(7, 2)).constants],
    "counters of rows": lambda: _layout(((StreamId(Purpose.TREE), 3),)),
    "a Gaussian distribution": lambda: [
        getattr(gaussian_distribution(Fraction(9)), each) for each in ("table", "inverses", "constants")
    ],
}


@pytest.mark.parametrize("name", CACHED)
def test_cached_arrays_are_read_only(name: str) -> None:
    first, second = CACHED[name](), CACHED[name]()
    for array, same in zip(first, second, strict=True):
        assert array is same
        with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE"):
            array.reshape(-1)[:1] = np.zeros(1, array.dtype)


def public_callables() -> list[Any]:
    """Functions and constructors that users call with keywords, once each."""
    homes = (fastdp, counters, local, perturbers, smoothers, thresholds)
    every = [getattr(home, name) for home in homes for name in home.__all__]
    ours = [made for made in every if inspect.isfunction(made) or inspect.isclass(made)]
    # Of what one keyword makes, and of results, users write no keywords.
    results = {fastdp.Guarantee, fastdp.Key, fastdp.Plan, fastdp.Release}
    return [made for made in dict.fromkeys(ours) if len(options_of(made)) > 1 and made not in results]


def options_of(made: Any) -> list[str]:
    """Names that are given as keywords; none of what users do not make, or what takes any name."""
    if inspect.isabstract(made) or getattr(made, "_is_protocol", False) or hasattr(made, "_fields"):
        return []
    given = inspect.signature(made).parameters.values()
    return (
        [] if any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in given) else [one.name for one in given]
    )


@pytest.mark.parametrize("made", public_callables(), ids=lambda made: made.__name__)
def test_a_misspelt_keyword_names_the_one_that_was_meant(made: Any) -> None:
    meant = max(options_of(made), key=len)
    with pytest.raises(TypeError, match=f"has no parameter '{meant}s': did you mean '{meant}'"):
        made(**{f"{meant}s": 1})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzzz'|missing"):
        made(zzzz=1)
