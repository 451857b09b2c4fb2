"""Broken twins, which an audit must catch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastdp.auditing import broken
from fastdp.auditing.blocks import turning_point
from fastdp.auditing.catalogue.case import FAST, MANY, MEDIUM, SLOW, Case
from fastdp.auditing.catalogue.points import adaptive, points
from fastdp.auditing.catalogue.streams import composed, one_by_one, repeated, single_blocks, topl
from fastdp.auditing.catalogue.sums import fast
from fastdp.auditing.inputs import (
    EVENT,
    LATER_HOLDOUT,
    LEFT,
    PERIOD,
    REPLAY_AFTER,
    THETA,
    TREES_IN_PIECES,
    VALUE,
    attack,
    late_events,
    open_nodes,
    open_sums,
    repeated_counts,
)
from fastdp.auditing.mechanisms import NodesTrials, SelectiveTrials, SpatialTrials, StreamTrials
from fastdp.counters import Block
from fastdp.perturbers import Hierarchy
from fastdp.spatial import Box
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished

#: Whose halves the trials above do not tell from the whole: they lose too little of their claim on those inputs.
TOO_MILD = ("pak-holdout", "phdstream", "phdstream-settling")


def halved() -> list[Case]:
    """Mechanisms with the noise that twice their claim needs."""
    whole = [
        replace(
            case,
            mechanism=broken.MisclaimedRuns(case.mechanism, case.mechanism.guarantee.epsilon / 2.0),
            trials=MANY,
        )
        for case in (*one_by_one(2.0), *points(2.0))
        if case.name not in TOO_MILD
    ]
    many = [
        replace(case, mechanism=broken.Misclaimed(case.mechanism, 1.0), trials=FAST)
        for case in (*fast(2.0), *repeated(2.0))
    ]
    return [replace(case, name=f"broken-half-{case.name}", broken=True) for case in (*many, *whole)]


def broken_twins() -> list[Case]:
    """Broken on purpose: an audit must find each of them in violation of its claim."""
    added, removed = attack(12, 1.0)
    three_quarters = NodesTrials(Hierarchy(2, prune=0, consistent=False), 4.0 / 3.0, 8, THETA)
    recounting = broken.RecountingPHDStream(Box(0, 1), 1.0, max_depth=0, period=1, seed=0)
    one_event = broken.MisclaimedRuns(adaptive(1.0), 1.0)
    return [
        *halved(),
        Case(
            "broken-hierarchy-three-quarters",
            broken.Misclaimed(three_quarters, 1.0),
            *VALUE,
            FAST,
            True,
            (open_nodes,),
        ),
        Case("broken-theta-missing", broken.theta_missing(1.0, Hierarchy(4, prune=1), 64), *VALUE, FAST, True),
        Case(
            "broken-trees-share",
            StreamTrials(broken.shared_noise),
            *TREES_IN_PIECES,
            SLOW,
            True,
        ),
        Case(
            "broken-refined-free",
            broken.free_refinement(composed(1.0, RenewFromPublished(0.5, 1))),
            *PERIOD,
            MANY,
            True,
        ),
        Case(
            "broken-withheld-mean",
            broken.telling_mean(composed(1.0, RenewFromHoldout(1, 4))),
            *LATER_HOLDOUT,
            SLOW,
            True,
        ),
        Case("broken-replay-first-format", broken.tied_to_position(single_blocks(1.0)), *REPLAY_AFTER, SLOW, True),
        Case("broken-blocks-peeking", broken.PeekingBlocks(1.0, THETA), *turning_point(THETA, 1.0), MEDIUM, True),
        Case("broken-log2-levels", broken.log2_levels(1.0, 4, THETA), *VALUE, FAST, True, events=(open_sums,)),
        Case("broken-settling-free", broken.FreeSettling(Block(3, settles=True), 1.0), *LEFT, MEDIUM, True),
        Case("broken-selective-one-key", SelectiveTrials(1.0, broken.OneKeyCounting), *EVENT, SLOW, True),
        Case("broken-topl-twice", broken.TwiceReporting(topl(1.0)._fresh), [0.0], [4.0], SLOW, True),
        Case(
            "broken-papers-score",
            broken.papers_score(1.0, 12),
            (added, removed),
            (np.append(added, 0.0), removed),
            FAST,
            True,
        ),
        Case(
            "broken-recounted",
            SpatialTrials(recounting._fresh),
            *late_events(10),
            SLOW,
            True,
            events=(repeated_counts,),
        ),
        Case("broken-one-event", one_event, *late_events(4, 2), SLOW, True, (repeated_counts,)),
        Case("broken-piecewise-leak", broken.LeakingPiecewise(1.0), [0.0, 0.3, 0.5], [0.0, 0.3, -0.5], FAST, True),
        Case("broken-floating-point", broken.FloatingPointLaplace(1.0), 0.0, 1.0, FAST, True),
    ]
