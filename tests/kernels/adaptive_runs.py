"""Runs of the adaptive kernels and of their oracle on the same integer sums and noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastdp.perturbers import Blocks
from fastdp_kernels.streams import adaptive_pass, revision
from fastdp_kernels.streams import block_lengths as b
from tests.oracles import adaptive

THETA_STEPS = 1000


@dataclass
class Pass:
    """Results of the kernels."""

    blocks: np.ndarray
    memory: np.ndarray
    counters: np.ndarray
    published: np.ndarray


def public(*, epsilon: float = 0.5, max_range: int = 2**14, limit: int = 0, **options: Any) -> adaptive.Public:
    top = max_range.bit_length() - 1
    usual = {
        "noise": 2.0 / epsilon**2,
        "max_range": max_range,
        "prior_white": 0.02,
        "prior_drift": 0.02 / max_range,
        "least": 0,
        "most": max(top - 2, 0),
        "first": 0,
        "limit": limit,
        "constants": b,
    }
    made = adaptive.Public(**{**usual, **options})
    if "first" in options:
        return made
    first = adaptive.choose_exponent(made.prior_white, made.prior_drift, 0, made)
    return replace(made, first=min(first, max(top - 6, 0)))


def shape_of(p: adaptive.Public) -> np.ndarray:
    shape = np.zeros(1, b.SHAPE)
    for name in ("noise", "prior_white", "prior_drift", "least", "most", "first", "limit"):
        shape[name] = getattr(p, name)
    lengths = adaptive.query_lengths(p)
    shape["queries"][0, : len(lengths)] = lengths
    shape["focused"][0] = p.focus is not None and p.events is None
    b.fill_shares(shape)
    return shape


def start(p: adaptive.Public, exponent: int, level: float = 0.5, variance: float = 0.25) -> np.ndarray:
    memory = np.zeros(1, b.MEMORY)
    b.start_memory(level, variance, exponent, p.rises, shape_of(p), memory)
    return memory


def public_of(per_unit: float, top: float, theta_steps: float, theta: float = 1.0) -> np.ndarray:
    return np.array([(per_unit, top, theta_steps, theta, abs(top))], adaptive_pass.PUBLIC)


def no_counts() -> np.ndarray:
    return np.zeros(1, adaptive_pass.ADAPTIVE_ROW)


def sum_adaptive(
    values: np.ndarray,
    per_unit: float,
    top: float,
    theta_steps: float,
    shape: np.ndarray,
    lengths: np.ndarray | None,
    *,
    noise: np.ndarray,
    counters: np.ndarray,
    memory: np.ndarray,
    blocks: np.ndarray,
) -> int:
    """``adaptive_pass.sum_bound`` of values and public parameters, all of whose noise is given."""
    public, unbound = public_of(per_unit, top, theta_steps)[0], (np.empty(0, np.uint64), np.empty(0))
    state = counters[0], memory[0], blocks, None, None
    return adaptive_pass.sum_bound(values, public, top, shape[0], lengths, noise, *unbound, *state)


def advance(
    values: np.ndarray,
    per_unit: float,
    top: float,
    theta_steps: float,
    theta: float,
    row: np.ndarray,
    out: np.ndarray,
) -> int:
    """``adaptive_pass.advance_rows`` of one row, whose noise is all doubtful."""
    shape = Blocks().shape(1.0, 2**16, 0, events=top < 0.0)
    one, zero, none = np.array([values.size]), np.zeros(1, np.int64), np.empty(0, np.int64)
    public = public_of(per_unit, top, theta_steps, theta), shape, b.lengths_of_events(shape), np.empty(0)
    state = row, np.zeros((1, adaptive_pass.BY_SCALE, 20)), None, np.empty(2, adaptive_pass.BLOCK)
    buffers = none, np.empty(1, np.int64), out, zero
    return adaptive_pass.advance_rows(values, zero, one, zero, *public, *state, *buffers)


def run_kernel(
    p: adaptive.Public,
    steps: np.ndarray,
    noise: np.ndarray,
    exponent: int,
    *,
    level: float = 0.5,
    variance: float = 0.25,
    memory: np.ndarray | None = None,
) -> Pass:
    memory = start(p, exponent, level, variance) if memory is None else memory.copy()
    counters, blocks = no_counts(), np.full(noise.size + 1, np.nan, adaptive_pass.BLOCK)
    public = steps.astype(np.float64), 1.0, float(THETA_STEPS), float(THETA_STEPS), shape_of(p), None
    consumed = sum_adaptive(*public, noise=noise, counters=counters, memory=memory, blocks=blocks)
    assert consumed == steps.size, "more noise was needed"
    closed = blocks[: counters["closed"][0] + 1]
    published = np.empty(steps.size)
    adaptive_pass.emit_adaptive(closed, 0, 1.0, False, published)
    return Pass(closed, memory, counters, published)


def run_oracle(
    p: adaptive.Public,
    steps: np.ndarray,
    noise: np.ndarray,
    exponent: int,
    *,
    level: float = 0.5,
    variance: float = 0.25,
) -> adaptive.Learner:
    drawn = iter(noise.tolist())
    learner = adaptive.Learner(p, level, variance, exponent)
    return adaptive.release(steps, lambda _: int(next(drawn)), THETA_STEPS, learner)


def revise(p: adaptive.Public, before: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and levels of the closed blocks."""
    means, levels, *others = np.empty((6, len(blocks) - 1))
    exponents, totals = blocks["exponent"][:-1].copy(), blocks["released"][:-1].copy()
    sums = totals, np.zeros(totals.size), np.empty(0)
    revision.revise_blocks(before.copy(), shape_of(p), None, exponents, *sums, means, levels, *others)
    return means, levels


def sums_before(blocks: np.ndarray, means: np.ndarray, levels: np.ndarray, stops: np.ndarray) -> np.ndarray:
    lengths = 2 ** blocks["exponent"][:-1].astype(np.int64)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    shift = int(blocks["exponent"][:-1].min())
    table, out = np.empty(edges[-1] >> shift, np.int64), np.empty(stops.size)
    revision.index_blocks(edges, shift, table)
    sums = np.concatenate([[0.0], np.cumsum(means * lengths)])
    revision.sum_revised(edges, means, levels, sums, shift, table, stops, out)
    return out
