"""StreamParameters of releases on one stream, in exact fractions.

Source: ToPS section 2.4 (sequential, parallel); Rogers et al. 2016, "Privacy odometers and filters" (basic
composition is a valid filter for budgets that are chosen adaptively); proofs in ``docs/privacy.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from fastdp.guarantee import Guarantee, round_up
from fastdp.ledger.entry import Entry
from fastdp.ledger.tally import Budget, Loss, Tally, common_kind


def compose(entries: Sequence[Entry], stream: str = "") -> Guarantee:
    """What all these releases of one stream promise together.

    Parameters
    ----------
    entries : sequence of Entry
        Those that count are composed; simulations and cancelled ones are left out.
    stream : str
        For messages.

    Returns
    -------
    Guarantee
        Epsilon and delta are exact sums, rounded up; the distances of sampled noise from its law, each times
        1 + e^epsilon, are in delta and no longer apart.  The model is ``"local"`` only if all are: a central release
        of the same values is seen by the curator.

    Raises
    ------
    ParameterError
        If units or adjacencies do not fit together.
    """
    counted = [entry for entry in entries if entry.counts]
    loss = rounded(Tally(counted).total(stream))
    unit, adjacency = common_kind((entry.kind for entry in counted), stream)
    each = [entry.guarantee for entry in counted]
    lines = [f"entry {entry.id}, {entry.extent}: {entry.guarantee}" for entry in counted]
    if any((g.unit, g.adjacency) != (unit, adjacency) for g in each):
        lines.append("a replaced value is one element less and one more: those for one element count 2 epsilon")
    if any(g.numeric_distance for g in each):
        lines.append("delta counts (1 + e^epsilon) times the distance of the sampled noise from its law")
    if len(counted) > 1:
        lines.append("the most that meets in one element: disjoint parts in parallel, everything else in sequence")
    return Guarantee(
        epsilon=loss.epsilon,
        delta=loss.delta,
        unit=unit,
        adjacency=adjacency,
        model="local" if each and all(g.model == "local" for g in each) else "central",
        arithmetic="exact" if all(g.arithmetic == "exact" for g in each) else "real",
        derivation=tuple(lines),
    )


def rounded(loss: Loss) -> Budget:
    """An exact amount in floats that do not understate it."""
    return Budget(_up(loss.epsilon), min(1.0, _up(loss.delta)))


def left(limit: Budget, spent: Loss, met: Loss) -> Budget:
    """What a further release may cost: rounded down, 0 where the limit is passed already.

    Parameters
    ----------
    limit : Budget
        The limit.
    spent, met : Loss
        What the stream's worst element has cost so far, and the worst of those that the release would look at.
    """
    if not spent.within(limit):
        return Budget(0.0, 0.0)
    return Budget(_rest(limit.epsilon, met.epsilon), _rest(limit.delta, met.delta))


def _rest(limit: float, met: Fraction | float) -> float:
    if math.isinf(limit):
        return limit
    if met >= limit:
        return 0.0
    return -round_up(Fraction(met) - Fraction(limit))


def _up(amount: Fraction | float) -> float:
    try:
        return amount if isinstance(amount, float) else round_up(amount)
    except OverflowError:
        return math.inf
