"""What ``docs/audit.md`` lists: the wheel's cases, parts of publishers, and negative controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.audit import controls
from benchmarks.audit.parts import (
    LEFT,
    LEFT_LATE,
    POINTS,
    SECOND,
    THETA,
    VALUE,
    BlocksTrials,
    attack,
    binary_tree,
    hierarchy,
    nodes,
    one_tree,
    open_nodes,
    open_sums,
    quantile,
    settling_counter,
    splits,
    turning_point,
    with_split_noise,
)
from fastdp.counters import BinaryTree, Block
from fastdp.noise.key import Key
from fastdp.perturbers import Flat, Hierarchy
from fastdp.spatial import Box
from fastdp.thresholds import PAKQuantile, SmoothQuantile
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit import runs
from fastdp_lab.audit.catalogue import (
    EVENT,
    FAST,
    GROWTH,
    LATER_HOLDOUT,
    MANY,
    MEDIUM,
    PAIR,
    PERIOD,
    REPLAY_AFTER,
    RISEN,
    SLOW,
    TREES,
    adaptive_points,
    audit_cases,
    composed,
    events,
    fixed,
    late_events,
    single_blocks,
    topl,
)
from fastdp_lab.audit.exact import (
    DELTA,
    OUTCOMES,
    RULES,
    WIDE,
    ExactLoss,
    noisy_max_loss,
    pak_noise_loss,
    small_task,
    smooth_noise_loss,
    split_loss,
    split_plan,
)
from fastdp_lab.audit.runs import Case, ManyRuns, one_run, pieces

#: Their inputs show too little of the claim: half the noise is not distinguishable from all of it.
TOO_MILD = ("pak-holdout", "phdstream", "phdstream-whole", "phdstream-settling", "w-event-distribution")
NODES = Hierarchy(2, prune=0, consistent=False)


def parts(epsilon: float) -> list[Case]:
    """Parts of publishers, many runs at once."""
    every_node = nodes(NODES, epsilon, 8)
    return [
        Case("hierarchy", hierarchy(Hierarchy(2, prune=0), epsilon, 8), *VALUE, MEDIUM),
        Case("hierarchy-pruned", hierarchy(Hierarchy(4, prune=1), epsilon, 64), *VALUE, MEDIUM),
        Case("hierarchy-nodes", every_node, *VALUE, MEDIUM, events=(open_nodes,)),
        Case("hierarchy-one-tree", one_tree(every_node), *SECOND, SLOW),
        Case("adaptive-blocks", BlocksTrials(epsilon, THETA).mechanism, *turning_point(THETA, epsilon), MEDIUM),
        Case("binary-tree", binary_tree(epsilon, 4), *VALUE, FAST, events=(open_sums,)),
        Case("counter-block-settling", settling_counter(Block(3, settles=True), epsilon), *LEFT, MEDIUM),
        Case("counter-binary-settling", settling_counter(BinaryTree(6, settles=True), epsilon), *LEFT_LATE, MEDIUM),
        Case("privtree", splits(epsilon, 12), *POINTS, MEDIUM),
    ]


def quantiles() -> list[Case]:
    """The thresholds with a delta."""
    pair = [0, 0, 0, 0, 1024, 1024, 1024, 1024], [0, 0, 0, 1024, 1024, 1024, 1024, 1024]
    smooth, pak = SmoothQuantile(p=0.5, delta=1e-3), PAKQuantile(p=0.5, beta=0.25, delta=1e-3)
    return [
        Case("smooth-quantile", quantile(smooth, WIDE), *pair, FAST),
        Case("pak-quantile", quantile(pak, WIDE), *pair, FAST),
    ]


def own_cases() -> list[Case]:
    """Further cases that an audit must find consistent with their claims."""
    return [*parts(1.0), *quantiles()]


def halved() -> Iterator[Case]:
    """Mechanisms with the noise that twice their claim needs."""
    for case in (*audit_cases(2.0), *parts(2.0)):
        if case.name not in TOO_MILD:
            half = controls.claiming(case.mechanism, case.mechanism.guarantee.epsilon / 2.0)
            trials = FAST if isinstance(half, ManyRuns) else MANY
            yield replace(case, name=f"control-half-{case.name}", mechanism=half, trials=trials)


def negative_controls() -> list[Case]:
    """What an audit must find in violation of its claim."""
    added, removed = attack(12, 1.0)
    half = one_run(events(1.0, sensitivity=0.5), pieces)
    pieces_of_trees: Any = [[stream[:4], stream[4:]] for stream in TREES]
    withheld = composed(1.0, renewal=RenewFromHoldout(1, 4))
    # All of epsilon for what is published, and half of it more for the thresholds that published values choose.
    refined = one_run(composed(1.5, renewal=RenewFromPublished(1 / 3, 1)), pieces)
    in_place = controls.tied_to_position(single_blocks(1.0))
    settling = settling_counter(Block(3, settles=True), 1.0, controls.settle_without_noise)
    twice = one_run(topl(1.0), controls.reported_twice)
    one_less = fixed(Flat(), 1.0, max_range=16)
    recounting = partial(controls.RecountingPHDStream, Box(0, 1), 1.0, max_depth=0, period=1)

    named = [
        Case(
            "hierarchy-three-quarters",
            controls.claiming(nodes(NODES, 4.0 / 3.0, 8), 1.0),
            *VALUE,
            FAST,
            (open_nodes,),
        ),
        Case("theta-missing", hierarchy(Hierarchy(4, prune=1), 1.0, 64, theta_steps=1), *VALUE, FAST),
        Case("trees-share", one_run(controls.shared_noise, pieces), *pieces_of_trees, SLOW),
        Case("refined-free", controls.claiming(refined, 1.0), *PERIOD, MANY),
        Case("withheld-mean", one_run(withheld, controls.withheld_mean), *LATER_HOLDOUT, SLOW),
        Case("replay-in-place", one_run(in_place, runs.replay, factor=2.0), *REPLAY_AFTER, SLOW),
        Case("blocks-peeking", controls.peeking_blocks(1.0), *turning_point(THETA, 1.0), MEDIUM),
        Case(
            "rising-first-noise", one_run(controls.rising_without_noise, runs.risen(len(GROWTH))), *RISEN, SLOW // 4
        ),
        Case("log2-levels", controls.log2_levels(1.0, 4), *VALUE, FAST, (open_sums,)),
        Case("settling-free", settling, *LEFT, MEDIUM),
        Case("events-half", half, [EVENT[0]], [EVENT[1]], SLOW),
        # Noise for one value of a window of two.
        Case("windows-less-one", one_run(one_less, runs.published), *PAIR, MANY),
        Case("selective-one-key", one_run(controls.one_counter_key, runs.chosen_counts), *EVENT, SLOW),
        Case("topl-twice", twice, [0.0], [4.0], SLOW),
        Case(
            "papers-score", splits(1.0, 12, repaired=False), (added, removed), (np.append(added, 0.0), removed), FAST
        ),
        Case("recounted", one_run(recounting, runs.trees), *late_events(10), SLOW, (runs.repeated_counts,)),
        Case(
            "one-event",
            controls.claiming(one_run(adaptive_points(1.0), runs.trees), 1.0),
            *late_events(4, 2),
            SLOW,
            (runs.repeated_counts,),
        ),
        Case("piecewise-leak", controls.leaking_piecewise(1.0), [0.0, 0.3, 0.5], [0.0, 0.3, -0.5], FAST),
        Case("floating-point", controls.floating_point_laplace(1.0), 0.0, 1.0, FAST),
    ]
    return [*halved(), *(replace(case, name=f"control-{case.name}") for case in named)]


def exact_controls(seed: int | str | None) -> dict[str, Callable[[], ExactLoss]]:
    """Losses that are computed exactly and must be above the claim."""
    plan, paper = split_plan(1.0, 12), split_plan(1.0, 12, repaired=False)
    # Half of the Gaussian and of the Cauchy-type noise is enough on any pair, so only Laplace noise is halved.
    law = SmoothQuantile(delta=DELTA).smooth_noise(WIDE)
    halved_plan = with_split_noise(plan, plan.split_distribution.scale / 2)
    few = np.zeros(5), np.zeros(0)
    key = Key.choose(seed, None)
    losses: dict[str, Callable[[], ExactLoss]] = {
        "half-smooth-laplace": partial(smooth_noise_loss, replace(law, a=2.0 * law.a), 1.0, DELTA),
        "pak-without-kappa": partial(pak_noise_loss, "laplace", kappa=1.0),
        **{
            f"half-{name}": partial(noisy_max_loss, rule, small_task(1.0), noise_factor=0.5)
            for name, rule in RULES.items()
        },
        "half-phdstream-step": partial(split_loss, halved_plan, 1.0, few, OUTCOMES, key),
        "papers-score": partial(split_loss, paper, 1.0, attack(12, 1.0), OUTCOMES, key),
    }
    return {f"exact-control-{name}": loss for name, loss in losses.items()}
