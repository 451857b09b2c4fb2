"""Answers of a publisher's release, from its values or from all that was released."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fastdp.errors import StateError
from fastdp.kinds import Floats, Indices, Integers
from fastdp.releases.intervals import (
    DrawnNoise,
    ErrorBars,
    SumNoise,
    correlated_variances,
    counter_draws,
    hidden_beyond,
    hidden_of_ends,
    rate_of_blocks,
    tree_variances,
)
from fastdp.releases.revised import RevisedStream
from fastdp_kernels.streams import ranges

#: Values between sums that are kept for answers from values.
PREFIX_BLOCK = 256
#: Thetas within 2^300 have squares, and so have their steps and their noise, that are ordinary floats.
MAX_EXPONENT = 300


@dataclass(frozen=True, eq=False)
class ReleasedNodes:
    """Noisy sums of an inconsistent hierarchy's nodes."""

    #: float64[trees, nodes]. In units of the input, leaves first; NaN for incomplete nodes.
    sums: Floats
    #: `leaves`, `fan_out`, `levels`, `tree_values`: Shape of a tree, and its number of values.
    leaves: int
    fan_out: int
    levels: int
    tree_values: int

    def sum(self, starts: Integers, stops: Integers) -> Floats:
        """Sums from the fewest nodes: float64[q] (ToPS section 3)."""
        out = np.empty(starts.size)
        ranges.sum_nodes(self.sums, self.leaves, self.fan_out, self.levels, self.tree_values, starts, stops, out)
        return out

    def draws(self, starts: Integers, stops: Integers) -> Integers:
        ones = replace(self, sums=np.broadcast_to(np.float64(1.0), self.sums.shape))
        return ones.sum(starts, stops).astype(np.int64)


def prefix_sums(values: Floats, borders: Indices, block: int) -> tuple[Indices, Floats]:
    """Sums up to each multiple of `block`, and each stream's first."""
    at: Indices = np.zeros(borders.size, np.int64)
    np.cumsum(np.diff(borders) // block + 1, out=at[1:])
    sums = np.empty(int(at[-1]))
    ranges.prefix_blocks(values, borders, block, at, sums)
    return at, sums


@dataclass(frozen=True, eq=False)
class PublishedAnswer:
    """Sums and intervals of one stream, from its values or all released sums."""

    #: The values as published.
    published: Floats
    threshold: float
    block: int
    nodes: ReleasedNodes | None
    revision: RevisedStream | None
    noise: SumNoise | None
    online: bool

    @property
    def values(self) -> Floats:
        """Values given all that was released: float64[n]."""
        if self.revision is not None:
            return self.revision.values(self.published.size)
        if self.block == 1:
            return self.published
        return np.diff(self._spread_before(np.arange(self.published.size + 1)))

    def sums_over(self, first: Indices, last: Indices) -> Floats:
        """Sums over [first, last): float64[q]."""
        if self.nodes is not None:
            return self.nodes.sum(first, last)
        if not self.online and self.revision is not None:
            return self.revision.sums_before(last) - self.revision.sums_before(first)
        if not self.online and self.block > 1:
            return self._spread_before(last) - self._spread_before(first)
        return self._plain_sums(first, last)

    def _plain_sums(self, first: Indices, last: Indices) -> Floats:
        at, prefix = self._prefix
        out, whose = np.empty(first.size), np.zeros(first.size, np.int64)
        borders = np.array([0, self.published.size])
        ranges.sum_ranges(self.published, borders, prefix, at, PREFIX_BLOCK, whose, first, last, out)
        return out

    @cached_property
    def _prefix(self) -> tuple[Indices, Floats]:
        return prefix_sums(self.published, np.array([0, self.published.size]), PREFIX_BLOCK)

    def interval(self, first: Indices, last: Indices, confidence: float) -> tuple[Floats, Floats]:
        """Ends, (low, high), for the sums over [first, last)."""
        if shift := self._shift:
            low, high = self._scaled(-shift).interval(first, last, confidence)
            return np.ldexp(low, shift), np.ldexp(high, shift)
        bars, answers = self.error_bars(first, last), self.sums_over(first, last)
        half = bars.half_widths(confidence)
        low, high = bars.centre - half, bars.centre + half
        if not self.online and self.noise is not None and self.noise.bounded:
            low, high = np.maximum(low, 0.0), np.minimum(high, (last - first) * self.threshold)
        if self.noise is not None and self.noise.above:
            # Taken for exponential.
            tail = -math.log1p(-confidence) * self._excess(self.noise, first, last)
            least = self.threshold if self.revision is None else float(self.revision.thetas.min())
            # A value is at most bound / theta times what is left of it.
            most = np.maximum(high, 0.0) * max(1.0, self.noise.bound / least)
            high = np.minimum(high + tail, np.maximum(most, high))
        return np.minimum(low, answers), np.maximum(high, answers)

    def std_error(self, first: Indices, last: Indices) -> Floats:
        """Root mean square errors, without those of clipping."""
        if shift := self._shift:
            errors: Floats = np.ldexp(self._scaled(-shift).std_error(first, last), shift)
            return errors
        bars = self.error_bars(first, last)
        return np.hypot(np.sqrt(bars.variances), self.sums_over(first, last) - bars.centre)

    def _excess(self, noise: SumNoise, first: Indices, last: Indices) -> Floats:
        if self.revision is not None:
            return self.revision.excess(noise, first, last)
        count = self.published.size
        whole = np.zeros(1, np.int64), np.array([count])
        total = self._plain_sums(*whole) if self.nodes is None else self.nodes.sum(*whole)
        theta = self.threshold
        rate = noise.excess(theta, total[0] / max(count, 1), theta)
        excess: Floats = np.multiply(last - first, rate)
        if self.nodes is None:
            edges, levels = self.hidden[0], np.diff(self._blocks_before) / (self.block * theta)
            deviation = math.sqrt(noise.draw(theta).variance) * noise.resolution / theta
            doubt = 2.0 * deviation / self.block
            # Means of so many blocks have little noise.
            together = np.arange(levels.size) // math.ceil(min((10.0 * doubt) ** 2, levels.size) + 1.0)
            means = (np.bincount(together, levels) / np.bincount(together))[together]
            # Where theta's rule lets any number of values lie above theta, those of the hold-out may have too.
            resolved = noise.above + noise.slope * (noise.bound - theta) < 1.0
            known = means, means - min(doubt, 0.1), np.diff(edges)
            share, room = noise.above + noise.slope * theta, noise.bound - theta
            more = hidden_beyond(rate, *known, room, deviation=deviation, share=share, resolved=resolved) - rate
            before = np.concatenate([np.zeros(1), np.cumsum(more * self.block)])
            excess += np.interp(last, edges, before) - np.interp(first, edges, before)
        return excess

    @property
    def _shift(self) -> int:
        exponent = math.frexp(self.threshold)[1]
        return exponent if abs(exponent) > MAX_EXPONENT else 0

    def _scaled(self, shift: int) -> PublishedAnswer:
        factor, noise = math.ldexp(1.0, shift), self.noise
        return replace(
            self,
            published=self.published * factor,
            threshold=self.threshold * factor,
            nodes=self.nodes and replace(self.nodes, sums=self.nodes.sums * factor),
            revision=self.revision and replace(self.revision, threshold=self.revision.threshold * factor),
            noise=noise
            and replace(
                noise,
                resolution=noise.resolution * factor,
                bound=noise.bound * factor,
                slope=noise.slope / factor,
            ),
        )

    def error_bars(self, first: Integers, last: Integers) -> ErrorBars:
        """Noise and prediction errors of each sum, by kind of noise."""
        noise = self.noise
        if noise is None:
            raise StateError(
                "this release does not state its noise, because its threshold was renewed or its perturber is not "
                "fastdp's: expected a release with one threshold, for intervals and standard errors"
            )
        if self.revision is not None:
            return self.revision.error_bars(noise, first, last)
        draw, resolution = noise.draw(self.threshold), noise.resolution
        if self.nodes is not None:
            return ErrorBars(self.nodes.sum(first, last), draw, resolution, self.nodes.draws(first, last))
        if noise.kind == "reports":
            model: Floats = np.multiply(last - first, noise.report_variance * resolution**2)
            return ErrorBars(
                self.sums_over(first, last), DrawnNoise(1.0), 1.0, np.zeros_like(first), 1.0, model, width=1.0
            )
        if noise.kind == "counter":
            return ErrorBars(self.sums_over(first, last), draw, resolution, counter_draws(first, last))
        if noise.kind == "correlated":
            # Each value's noise is rounded by half a step: at most so much in a sum (Cauchy and Schwarz).
            rounded = 1.0 + np.sqrt(np.minimum(last, noise.epoch)) / float(draw.scale)
            weight = np.sqrt(correlated_variances(noise, first, last)) * rounded
            return ErrorBars(self.sums_over(first, last), draw, resolution, (last > first).astype(np.int64), weight)
        edges, rates, beyond = self.hidden
        model, inside, squares = hidden_of_ends(first, last, edges, rates)
        centre = self._spread_before(last) - self._spread_before(first)
        model += (last - np.maximum(first, edges[-1])).clip(0) ** 2.0 * beyond
        if noise.kind == "blocks":
            drawn = draw.variance * resolution**2
            return ErrorBars(centre, draw, resolution, inside, 1.0, model + squares * drawn)
        closed = edges.size - 1
        variances = tree_variances(noise, *(np.minimum(index / self.block, closed) for index in (first, last)))
        # A weighted sum of nodes, bounded by that of fewer draws of one weight.
        draws = np.where(variances > 0.0, np.maximum(np.floor(variances + 1e-9), 1.0), 0.0)
        weight = np.sqrt(variances / np.maximum(draws, 1.0))
        return ErrorBars(centre, draw, resolution, draws.astype(np.int64), weight, model)

    @cached_property
    def hidden(self) -> tuple[Integers, Floats, float]:
        """Block edges, and how far values vary within blocks."""
        prefix = self._blocks_before
        edges: Integers = np.arange(prefix.size, dtype=np.int64) * self.block
        if self.block == 1 or self.noise is None:
            return edges, np.zeros(prefix.size), 0.0
        rate = rate_of_blocks(np.diff(prefix), self.noise, self.threshold, self.block)
        drawn = self.noise.draw(self.threshold).variance * self.noise.resolution**2
        # The prediction is a released mean, or half of theta before there is one.
        beyond = 2.0 * rate / self.block + drawn / self.block**2 if prefix.size > 1 else self.threshold**2 / 4.0
        return edges, np.full(prefix.size, rate), beyond

    @cached_property
    def _blocks_before(self) -> Floats:
        return prefix_sums(self.published, np.array([0, self.published.size]), self.block)[1]

    def _spread_before(self, stops: Integers) -> Floats:
        """Sum up to each stop, by block means."""
        prefix = self._blocks_before
        closed = prefix.size - 1
        j, rest = np.divmod(stops, self.block)
        # The block left open at the end still holds its predictions, which are all equal.
        tail = self.published[closed * self.block] if closed * self.block < self.published.size else 0.0
        means = np.where(j < closed, (prefix[np.minimum(j + 1, closed)] - prefix[j]) / self.block, tail)
        sums: Floats = prefix[j] + rest * means
        return sums
