"""The exact privacy loss of every tree step over whole runs, and of a batch made to break the paper's score."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.accuracy.spatial_runs import DEPTH, EPSILONS, PAPER, SCENES
from benchmarks.shared import Floats, table
from fastdp import PHDStream
from fastdp.spatial import Box
from fastdp_lab.datasets import SpatialStream
from fastdp_lab.planning.tree_loss import noted_steps, tree_step_loss

SCORES = ("repaired", "paper")
ATTACKS = 200
ATTACK_DEPTH = 18


def step_loss(system: PHDStream, added: Floats, removed: Floats | None) -> float:
    """Consume one batch; the worst log-likelihood ratio of its decisions, over what is claimed for them."""
    with noted_steps() as steps:
        system.advance(added, removed)
    return tree_step_loss(system._plan, steps[system.n_steps - 1]).worst / (system.epsilon / 2)


def run_losses(stream: SpatialStream, epsilon: float, score: str, seed: int, retention: int) -> Floats:
    """Of every step of a whole run, the initial set's included."""
    system = PHDStream(
        Box(stream.lower, stream.upper),
        epsilon,
        **{"max_depth": DEPTH, "score": score, "seed": seed, "retention": retention, **PAPER},
    )
    batches = [(stream.initial, None), *stream.batches]
    return np.array([step_loss(system, added, removed) for added, removed in batches])


def attack_loss(epsilon: float, score: str, seed: int) -> float:
    """Additions in one deep cell, removals in its siblings: printed scores lie at the threshold along the path."""
    system = PHDStream(Box(0, 1), epsilon, max_depth=ATTACK_DEPTH, score=score, seed=seed, **PAPER)
    penalty = system._plan.bias / system._plan.unit
    # The cell at depth i is to hold a little more than i penalties.
    wanted = [round((i + 0.15) * penalty) for i in range(ATTACK_DEPTH)]
    siblings = [0.75 * 2.0**-i for i in range(ATTACK_DEPTH - 1)]
    removed = np.repeat(siblings, np.diff(wanted))
    return step_loss(system, np.zeros((wanted[-1], 1)), removed[:, None])


def show(data: Path, scenes: list[str], runs: int) -> None:
    """Whole runs, then the adversary; in units of the claimed eps / 2."""
    rows = []
    for name in scenes:
        scene = SCENES[name](data)
        for epsilon in EPSILONS:
            for score, retention in (("repaired", 16), ("repaired", 2**40), ("paper", 16), ("paper", 2**40)):
                worst = []
                above = steps = 0
                for seed in range(runs):
                    losses = run_losses(scene.stream, epsilon, score, seed, retention)
                    worst.append(float(losses.max()))
                    above += int(np.count_nonzero(losses > 1.0))
                    steps += losses.size
                rows.append([
                    scene.name, f"{epsilon:g}", score, "nothing" if retention > DEPTH else "as usual",
                    f"{min(worst):.2f}", f"{np.median(worst):.2f}", f"{max(worst):.2f}",
                    f"{sum(loss > 1.0 for loss in worst)} of {runs}", f"{above:,} of {steps:,}",
                ])  # fmt: skip
    table(
        f"Exact loss of all split decisions of a step, in units of the claimed eps / 2, the worst of a run; depth "
        f"{DEPTH}, Simple, {runs} seeds",
        ["stream", "eps", "score", "forgotten", "least run", "median run", "largest run", "runs above the claim",
         "steps above the claim"],
        rows,
    )  # fmt: skip
    rows = []
    for epsilon in EPSILONS:
        for score in SCORES:
            losses = np.array([attack_loss(epsilon, score, seed) for seed in range(ATTACKS)])
            shares = [f"{np.mean(losses > limit):.1%}" for limit in (1.0, 2.0)]
            rows.append([f"{epsilon:g}", score, f"{np.median(losses):.2f}", f"{losses.max():.2f}", *shares])
    table(
        f"One batch of an adversary (additions in one deep cell, removals beside its path), depth {ATTACK_DEPTH}, "
        f"{ATTACKS} seeds, same units",
        ["eps", "score", "median", "largest", "above 1", "above 2"],
        rows,
    )  # fmt: skip
