"""Values beyond theta that an interval allows for where released levels grow; slow: lists, one formula a line."""

from __future__ import annotations

import math
from collections.abc import Sequence

PARTS, TAIL, CERTAIN = 64, 2.0, 2.0


def allowed_beyond(
    rates: Sequence[float],
    levels: Sequence[float],
    sure: Sequence[float],
    lengths: Sequence[int],
    room: Sequence[float],
    *,
    deviation: float,
    share: float,
    resolved: bool = True,
) -> list[float]:
    """Mean beyond theta of each block (``docs/streams_proofs.md``, "Model, beyond")."""
    size, position, parts = sum(lengths), 0, []
    for length in lengths:
        parts.append(PARTS * position // max(size, 1))
        position += length
    means = {}
    for part in set(parts):
        own = [(lengths[j], levels[j]) for j in range(len(lengths)) if parts[j] == part]
        means[part] = sum(n * level for n, level in own) / sum(n for n, _ in own)
    of_first = [n for n, part in zip(lengths, parts, strict=True) if part == 0]
    noise = deviation * math.sqrt(len(of_first)) / max(sum(of_first), 1)
    found = []
    for j, rate in enumerate(rates):
        risen = max(means[parts[j]] / max(means[0], CERTAIN * noise, 1e-300), 1.0)
        exponential = min(share, 1.0) ** (1.0 / risen - 1.0)
        grown = rate * max(risen**TAIL, exponential)
        if sure[j] > max(0.5, 2.0 * means[0] if resolved else 0.0):
            grown = math.inf
        found.append(max(rate, min(grown, levels[j] * room[j])))
    return found
