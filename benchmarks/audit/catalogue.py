"""Rows of ``docs/audit.md``: the wheel's cases, parts of publishers, and negative controls."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.audit import controls
from benchmarks.audit import parts as made
from benchmarks.audit.parts import THETA, VALUE
from fastdp.counters import BinaryTree, Block
from fastdp.noise.key import Key
from fastdp.perturbers import Hierarchy
from fastdp.thresholds import SmoothQuantile
from fastdp_lab.audit import catalogue as package
from fastdp_lab.audit import exact, runs
from fastdp_lab.audit.catalogue import FAST, MANY, MEDIUM, SLOW
from fastdp_lab.audit.runs import Case, ManyRuns, one_run

#: Their inputs show too little of the claim: half the noise is not distinguishable from all of it.
TOO_MILD = ("pak-holdout", "phdstream", "phdstream-whole", "phdstream-settling", "w-event-distribution")
NODES = Hierarchy(2, prune=0, consistent=False)


def parts(epsilon: float) -> list[Case]:
    """Parts of publishers, many runs at once."""
    every_node = made.nodes(NODES, epsilon, 8)
    return [
        Case("hierarchy", made.hierarchy(Hierarchy(2, prune=0), epsilon, 8), *VALUE, MEDIUM),
        Case("hierarchy-pruned", made.hierarchy(Hierarchy(4, prune=1), epsilon, 64), *VALUE, MEDIUM),
        Case("hierarchy-nodes", every_node, *VALUE, MEDIUM, events=(made.open_nodes,)),
        Case("hierarchy-one-tree", made.one_tree(every_node), *made.SECOND, SLOW),
        Case(
            "adaptive-blocks",
            made.BlocksTrials(epsilon, THETA).mechanism,
            *made.turning_point(THETA, epsilon),
            MEDIUM,
        ),
        Case("binary-tree", made.binary_tree(epsilon, 4), *VALUE, FAST, events=(made.open_sums,)),
        Case("counter-block-settling", made.settling_counter(Block(3, settles=True), epsilon), *made.LEFT, MEDIUM),
        Case(
            "counter-binary-settling",
            made.settling_counter(BinaryTree(6, settles=True), epsilon),
            *made.LEFT_LATE,
            MEDIUM,
        ),
    ]


def halved() -> Iterator[Case]:
    """Mechanisms with the noise that twice their claim needs."""
    for case in (*package.audit_cases(2.0), *parts(2.0)):
        if case.name not in TOO_MILD:
            half = controls.claiming(case.mechanism, case.mechanism.guarantee.epsilon / 2.0)
            trials = FAST if isinstance(half, ManyRuns) else MANY
            yield replace(case, name=f"control-half-{case.name}", mechanism=half, trials=trials)


def negative_controls() -> list[Case]:
    """Cases that an audit must find in violation of their claims; further errors are controls of the couplings."""
    in_place = controls.tied_to_position(package.single_blocks(1.0))
    twice = one_run(package.topl(1.0), controls.reported_twice)

    named = [
        Case(
            "hierarchy-three-quarters",
            controls.claiming(made.nodes(NODES, 4.0 / 3.0, 8), 1.0),
            *VALUE,
            FAST,
            (made.open_nodes,),
        ),
        Case("theta-missing", made.hierarchy(Hierarchy(4, prune=1), 1.0, 64, theta_steps=1), *VALUE, FAST),
        Case("replay-in-place", one_run(in_place, runs.replay, factor=2.0), *package.REPLAY_AFTER, SLOW),
        Case("blocks-peeking", controls.peeking_blocks(1.0), *made.turning_point(THETA, 1.0), MEDIUM),
        Case(
            "rising-first-noise",
            one_run(controls.rising_without_noise, runs.risen(len(package.GROWTH))),
            *package.RISEN,
            SLOW // 4,
        ),
        Case("topl-twice", twice, [0.0], [4.0], SLOW),
        Case(
            "one-event",
            controls.claiming(one_run(package.adaptive_points(1.0), runs.trees), 1.0),
            *package.late_events(4, 2),
            SLOW,
            (runs.repeated_counts,),
        ),
        Case("piecewise-leak", controls.leaking_piecewise(1.0), [0.0, 0.3, 0.5], [0.0, 0.3, -0.5], FAST),
        Case("floating-point", controls.floating_point_laplace(1.0), 0.0, 1.0, FAST),
    ]
    return [*halved(), *(replace(case, name=f"control-{case.name}") for case in named)]


def exact_controls(seed: int | str | None) -> dict[str, Callable[[], exact.ExactLoss]]:
    """Losses that are computed exactly and must be above the claim."""
    plan, paper = exact.split_plan(1.0, 12), exact.split_plan(1.0, 12, repaired=False)
    # Half of the Gaussian and of the Cauchy-type noise is enough on any pair, so only Laplace noise is halved.
    distribution = SmoothQuantile(delta=exact.DELTA).smooth_noise(exact.WIDE)
    halved_plan = made.with_split_noise(plan, plan.split_distribution.scale / 2)
    few = np.zeros(5), np.zeros(0)
    key = Key.choose(seed, None)
    losses: dict[str, Callable[[], exact.ExactLoss]] = {
        "half-smooth-laplace": partial(
            exact.smooth_noise_loss, replace(distribution, a=2.0 * distribution.a), 1.0, exact.DELTA
        ),
        "pak-without-kappa": partial(exact.pak_noise_loss, "laplace", kappa=1.0),
        **{
            f"half-{name}": partial(exact.noisy_max_loss, rule, exact.small_task(1.0), noise_factor=0.5)
            for name, rule in exact.RULES.items()
        },
        "half-phdstream-step": partial(exact.split_loss, halved_plan, 1.0, few, exact.OUTCOMES, key),
        "papers-score": partial(exact.split_loss, paper, 1.0, made.attack(12, 1.0), exact.OUTCOMES, key),
    }
    return {f"exact-control-{name}": loss for name, loss in losses.items()}
