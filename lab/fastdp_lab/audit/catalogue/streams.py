"""Whole streams of values through the publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.perturbers import Blocks, Hierarchy
from fastdp.randomness.key import Key
from fastdp.smoothers import Recent
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.release_many import release_many
from fastdp.systems.stream.adaptive import Adaptive
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.tops import ToPS
from fastdp.systems.topl.publisher import ToPL
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, SquareWave
from fastdp.thresholds.renewals import Renewal, RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit.catalogue.case import MANY, REPEATED, SLOW, Case, ManyRuns, OneRun, one_run
from fastdp_lab.audit.catalogue.inputs import (
    CHOICE,
    EVENT,
    GROWTH,
    LATER_HOLDOUT,
    PAIR,
    PERIOD,
    REPLAY_AFTER,
    REPLAY_PREFIX,
    REVISED,
    RISEN,
    TREES,
    WINDOW,
    open_lag_sums,
    open_tree,
)
from fastdp_lab.baselines.w_event import SCHEMES, Scheme, WEvent

Floats = NDArray[np.float64]
Fresh = Callable[[], Any]

#: Of ``StreamPublisher``, in all cases.
SMALL: dict[str, Any] = {"bound": 4.0, "resolution": 1.0}


# What is seen of a run.


def pieces(fresh: Fresh, data: Sequence[Sequence[float]]) -> Floats:
    """After each piece of the stream theta, and what the piece published."""
    publisher, outputs = fresh(), []
    for piece in data:
        published = publisher.publish(piece)
        outputs += [np.asarray([publisher.threshold], np.float64), published]
    return np.concatenate(outputs)


def revised(fresh: Fresh, data: Sequence[float]) -> Floats:
    """What is published, and the stream as all released sums revise it."""
    release = fresh().release(data)
    return np.concatenate([release.values, release.revised])


def published(fresh: Fresh, data: Sequence[Sequence[float]]) -> Floats:
    """What each piece of the stream published."""
    publisher = fresh()
    return np.concatenate([publisher.publish(piece) for piece in data])


def risen(fresh: Fresh, data: Sequence[float]) -> Floats:
    """What theta rose to, and the released sum of the block with the first value behind the growth."""
    publisher = fresh()
    release = publisher.release(data)
    assert release.revision is not None  # noqa: S101 - Adaptive has one
    block = np.searchsorted(release.revision.edges, len(GROWTH) - publisher.holdout, side="right") - 1
    return np.array([release.threshold, release.revision.totals[block]])


def replay(fresh: Fresh, data: tuple[Sequence[float], Sequence[float]]) -> Floats:
    """What a stream and its altered copy publish under one key."""
    return np.concatenate([fresh().publish(stream) for stream in data])


def collected(fresh: Fresh, data: Sequence[float]) -> Floats:
    """The distribution that the server estimates before the threshold (its mean), theta, and what is published."""
    simulation = fresh()
    published = simulation.publish(data)
    weights = simulation.server.distribution.frequencies
    return np.concatenate([[weights @ np.arange(weights.size), simulation.threshold], published])


# Publishers.


def make_composed(
    key: Key, *, epsilon: float, renewal: Renewal | None = None, contributions: int = 1
) -> StreamPublisher:
    """Few candidates, and two leaves a tree: the noise of theta and of each value is as visible as it can be."""
    return StreamPublisher(
        threshold=NoisyMax(step=1.0, fan_out=2),
        perturber=Hierarchy(2, prune=0),
        epsilon=epsilon,
        holdout=4,
        max_range=2,
        renewal=renewal,
        contributions=contributions,
        key=key,
        **SMALL,
    )


def make_fixed(key: Key, perturber: Any, **options: Any) -> StreamPublisher:
    """A publisher with a known threshold."""
    return StreamPublisher(threshold=Fixed(4.0), perturber=perturber, key=key, **SMALL, **options)


def make_single_blocks(key: Key, *, epsilon: float) -> StreamPublisher:
    """Blocks of one value, published with its noise."""
    return make_fixed(key, Blocks("spike"), epsilon=epsilon, max_range=64)


def make_events(key: Key, *, epsilon: float, sensitivity: float = 1.0) -> Adaptive:
    """Counts without a bound; few steps a count, so that few outputs are possible."""
    return Adaptive(epsilon, sensitivity=sensitivity, max_range=64, resolution=min(1.0, sensitivity), key=key)


def make_rising(key: Key, *, epsilon: float) -> Adaptive:
    """Theta begins at about 8."""
    return Adaptive(epsilon, 64.0, 1024, 1024, resolution=1.0, key=key)


def make_baseline(key: Key, *, epsilon: float, scheme: Scheme) -> WEvent:
    """Windows of two values."""
    return WEvent(scheme, epsilon, 4.0, 2, resolution=1.0, key=key)


def make_topl(key: Key, *, epsilon: float) -> ToPL:
    """One user before the threshold."""
    return ToPL(epsilon, 4.0, 1, 16, threshold=SquareWave(bins=16), key=key)


def make_lagging(key: Key, *, epsilon: float, length: int, lag_sums: bool) -> PAK:
    """PAK with nearly all of epsilon for the hold-out's sums."""
    rule = NoisyMax(step=1.0, fan_out=2)
    options: dict[str, Any] = {"holdout": 4, "share": 0.1, "threshold": rule, "lag_sums": lag_sums, "resolution": 1.0}
    return PAK(epsilon, 0.0, 4.0, length, key=key, **options)


# Cases.


def repeated(epsilon: float) -> list[Case]:
    """Many runs at once by ``repeat``: theta, and what is published."""

    def runs(make: Callable[[Key], StreamPublisher]) -> ManyRuns:
        def draw(data: Sequence[float], trials: int, key: Key) -> Floats:
            # Only a simulation can be repeated.
            done = make(Key(key.reveal(), simulated=True)).repeat(np.asarray(data, np.float64), trials)
            assert done.releases is not None  # noqa: S101 - no queries were given
            return np.column_stack([done.thresholds, done.releases.values.reshape(trials, -1)])

        return ManyRuns(make(Key.from_seed(0)).guarantee, draw)

    tops = runs(lambda key: ToPS(epsilon, 4.0, 4, 16, prune=0, resolution=1.0, key=key))
    composed = runs(partial(make_composed, epsilon=epsilon))
    together = runs(partial(make_composed, epsilon=epsilon, contributions=2))
    levels, tents = (
        runs(partial(make_fixed, perturber=Hierarchy(2, prune=0, basis=basis), epsilon=epsilon, max_range=8))
        for basis in ("boxes", "hats")
    )
    return [
        Case("tops", tops, *TREES, REPEATED),
        Case("tops-holdout", composed, *CHOICE, REPEATED),
        Case("tops-trees", composed, *TREES, REPEATED),
        # Two values of one unit, one of which chooses theta.
        Case("windows", together, *WINDOW, REPEATED),
        Case("tops-levels", levels, [4] + [0] * 7, [0] * 8, REPEATED),
        Case("tops-hats", tents, [4] + [0] * 7, [0] * 8, REPEATED),
    ]


def one_by_one(epsilon: float) -> list[Case]:
    """A new object for each run."""
    pruned = partial(make_fixed, perturber=Hierarchy(2, prune=1), epsilon=epsilon, max_range=4, smoother=Recent())
    single = partial(make_single_blocks, epsilon=epsilon)
    long_blocks = partial(make_fixed, perturber=Blocks(), epsilon=epsilon, max_range=256)
    withheld = one_run(partial(make_composed, epsilon=epsilon, renewal=RenewFromHoldout(1, 4)), pieces)
    refined = one_run(partial(make_composed, epsilon=epsilon, renewal=RenewFromPublished(0.5, 1)), pieces)
    two_rows: tuple[Any, Any] = ([[4, 0, 0, 0], [0] * 4], [[0] * 4, [0] * 4])
    return [
        Case("tops-blocks", one_run(pruned, pieces), [[4], [0], [0], [0]], [[0], [0], [0], [0]], SLOW),
        Case("tops-withheld", withheld, *LATER_HOLDOUT, SLOW),
        Case("tops-withheld-period", withheld, *PERIOD, SLOW),
        Case("tops-refined", refined, *PERIOD, MANY),
        Case("adaptive", one_run(single, pieces), *two_rows, SLOW),
        Case("adaptive-revised", one_run(long_blocks, revised), *REVISED, SLOW),
        Case("adaptive-rising", one_run(partial(make_rising, epsilon=epsilon), risen), *RISEN, SLOW // 4),
        # A value before the first difference is published with one noise, a value after it with two.
        Case("replay-prefix", one_run(single, replay), *REPLAY_PREFIX, SLOW),
        Case("replay-after", one_run(single, replay, factor=2.0), *REPLAY_AFTER, SLOW),
        Case("events", one_run(partial(make_events, epsilon=epsilon), pieces), [EVENT[0]], [EVENT[1]], SLOW),
        *(
            Case(
                f"w-event-{scheme}",
                one_run(partial(make_baseline, epsilon=epsilon, scheme=scheme), published),
                *PAIR,
                SLOW,
            )
            for scheme in SCHEMES
        ),
        Case("release-many", many_rows(epsilon), *two_rows, SLOW),
        *_pak(epsilon),
        *_topl(epsilon),
    ]


def many_rows(epsilon: float) -> OneRun:
    """Two short streams through ``release_many``: what both publish."""

    def make(key: Key) -> Callable[[Any], Any]:
        options: dict[str, Any] = {
            "threshold": Fixed(4.0),
            "perturber": Hierarchy(2, prune=0),
            "smoother": None,
            "resolution": 1.0,
        }
        return lambda rows: release_many(np.asarray(rows, np.float64), epsilon, 4.0, **options, key=key)

    guarantee = make(Key.from_seed(0))([[0.0] * 4] * 2).guarantee
    return OneRun(guarantee, make, lambda fresh, data: fresh()(data).values)


def _pak(epsilon: float) -> list[Case]:
    quantile = PAKQuantile(p=0.5, beta=0.4, delta=1e-3)
    whole = one_run(lambda key: PAK(epsilon, 1e-3, 4.0, 5, holdout=4, threshold=quantile, key=key), pieces)
    tree = one_run(lambda key: PAK(epsilon, 0.0, 4.0, 4, threshold=Fixed(4.0), resolution=1.0, key=key), pieces)
    one_sum, sums = (
        one_run(partial(make_lagging, epsilon=epsilon, length=length, lag_sums=lag_sums), pieces)
        for length, lag_sums in ((5, False), (8, True))
    )
    return [
        Case("pak", whole, [[4, 4, 4, 4], [4]], [[4, 4, 4, 4], [0]], SLOW),
        Case("pak-holdout", whole, [[0, 0, 4, 4], [4]], [[0, 4, 4, 4], [4]], SLOW),
        Case("pak-tree", tree, [[4, 0], [0, 0]], [[0, 0], [0, 0]], SLOW, events=(open_tree,)),
        Case("pak-lag-sum", one_sum, [[4, 4, 4, 4], [4]], [[0, 4, 4, 4], [4]], SLOW),
        Case("pak-lag-sums", sums, [[4, 4, 4, 4], [0] * 4], [[0, 4, 4, 4], [0] * 4], SLOW, events=(open_lag_sums,)),
    ]


def _topl(epsilon: float) -> list[Case]:
    chosen = one_run(partial(make_topl, epsilon=epsilon), collected)
    known = one_run(lambda key: ToPL(epsilon, 4.0, 1, 16, threshold=Fixed(4.0), key=key), pieces)
    return [
        Case("topl", chosen, [4.0, 0.0], [4.0, 4.0], SLOW),
        Case("topl-holdout", chosen, [0.0, 2.0], [4.0, 2.0], SLOW),
        Case("topl-chunks", known, [[4.0], [4.0]], [[0.0], [4.0]], SLOW),
    ]
