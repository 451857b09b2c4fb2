"""Negative controls of tables that couplings must catch.  FOR AUDITS ONLY: each loses more privacy than it claims."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from fastdp import Time
from fastdp.noise.key import Key
from fastdp.tables import choices
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import Quantity
from fastdp_lab.audit.couplings.check import Draw, Generator
from fastdp_lab.audit.couplings.tables import (
    Release,
    Rows,
    TableInstance,
    at,
    batch_release,
    draw,
    draw_online,
    see_release,
)

#: Of the public windows.
START, STOP = 60, 240


def with_release(instance: TableInstance, other: Release) -> TableInstance:
    """The same tables, released otherwise."""
    return replace(instance, release=other, publish=partial(see_release, other))


def patched(instance: TableInstance, target: Any, name: str, other: Any) -> TableInstance:
    """The same tables, with something in place of an attribute."""

    def released(key: Key, rows: Any) -> list[Any]:
        with mock.patch.object(target, name, other):
            return instance.release(key, rows)

    return with_release(instance, released)


def half_sensitivity(generator: Generator) -> TableInstance:
    """Noise for half of what a row moves a sum by."""
    right = Quantity.sensitivity.fget
    half = property(lambda quantity: max(1, right(quantity) // 2))
    return patched(draw(generator, "totals", "none", chooses=False), Quantity, "sensitivity", half)


def high_less_low(generator: Generator) -> TableInstance:
    """Noise for the width of a clip both of whose ends lie above 0."""
    instance = draw(generator, "totals", "given", chooses=False, bound=(-10.0, 10.0), clip=(5.0, 10.0))
    return patched(instance, Quantity, "sensitivity", property(lambda quantity: quantity.high - quantity.low))


def keys_that_count(generator: Generator) -> TableInstance:
    """Public keys of the rows that count, in place of all rows."""
    right = draw(generator, "totals", "public", chooses=False, time=Time("at", "1h", start=at(START), stop=at(STOP)))

    def released(key: Key, rows: Rows) -> list[Any]:
        return right.release(key, [row for row in rows if START <= row.minute < STOP])

    return with_release(right, released)


def delta_and_a_half(generator: Generator) -> TableInstance:
    """Gaussian noise for all of delta, beside private keys that have half of it."""
    instance = draw(
        generator, "totals", "private", unit="row", noise="gaussian", chooses=False, bound=10.0, clip=10.0
    )
    return patched(instance, TablePlan, "noise_delta", property(lambda plan: plan.delta))


def key_delta_and_a_half(generator: Generator) -> TableInstance:
    """Keys pass with one and a half times the probability that delta allows."""
    right = choices.key_threshold
    instance = draw(generator, "counts", "private", unit="row", noise="laplace")
    other = lambda contributions, epsilon, delta: right(contributions, epsilon, 1.5 * delta)  # noqa: E731
    return patched(instance, choices, "key_threshold", other)


def clip_of_the_largest(generator: Generator) -> TableInstance:
    """A known clip, but not above the largest value."""
    right = draw(generator, "totals", "none", chooses=False, bound=10.0, clip=10.0)
    kind, options = right.release.args  # type: ignore[attr-defined]

    def released(key: Key, rows: Rows) -> list[Any]:
        largest = max(0.5, min(10.0, *(row.value for row in rows)))
        return batch_release(kind, {**options, "clip": largest}, key, rows)

    return with_release(right, released)


def persons_of_k(generator: Generator) -> TableInstance:
    """The report on persons has noise for as many reports as a person has rows."""
    right = choices.noisy_counts
    instance = draw(generator, "totals", "none", unit="person", noise="laplace", chooses=False, bound=10.0, clip=4.0)

    def counted(counts: Sequence[int], contributions: int, epsilon: float, key: Key, purpose: str) -> Any:
        return right(counts, contributions, (4.0 if purpose == "persons" else 1.0) * epsilon, key, purpose)

    return patched(instance, choices, "noisy_counts", counted)


def persons_by_batch(generator: Generator) -> TableInstance:
    """A person of one batch is another one in the next."""
    right = draw_online(generator, "counts", "none", unit="person in a period")

    def released(key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
        named = [
            (clock, [row._replace(person=f"{row.person} {number}") for row in rows])
            for number, (clock, rows) in enumerate(batches)
        ]
        return right.release(key, named)

    return with_release(right, released)


def warns_of_rows(generator: Generator) -> TableInstance:
    """A warning where a table has few rows."""
    right = draw(generator, "counts", "none")

    def released(key: Key, rows: Rows) -> list[Any]:
        if len(rows) < 6:
            warnings.warn("few rows", stacklevel=1)
        return right.release(key, rows)

    return with_release(right, released)


def logs_late_rows(generator: Generator) -> TableInstance:
    """A log line where a row comes late."""
    right = draw_online(generator, "totals", "none")

    def released(key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
        for before, (_, rows) in itertools.pairwise(batches):
            if any(row.minute < before[0] - 60 for row in rows):
                logging.getLogger("fastdp").info("late rows")
        return right.release(key, batches)

    return with_release(right, released)


#: Each must fail in some instance.
TABLE_CONTROLS: dict[str, Draw] = {
    "control-table-half-sensitivity": half_sensitivity,
    "control-table-high-less-low": high_less_low,
    "control-table-keys-that-count": keys_that_count,
    "control-table-delta-and-a-half": delta_and_a_half,
    "control-table-key-delta": key_delta_and_a_half,
    "control-table-clip-of-largest": clip_of_the_largest,
    "control-table-persons-of-k": persons_of_k,
    "control-windows-persons-by-batch": persons_by_batch,
    "control-table-warns-of-rows": warns_of_rows,
    "control-windows-logs-late-rows": logs_late_rows,
}
