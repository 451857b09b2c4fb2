"""PAK: running sums of a stream whose bound is too high or unknown (NDSS 2019, Mechanism 1).

Readings and errata: ``docs/pak.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import DataError, ParameterError
from fastdp.grid import make_grid
from fastdp.inputs import as_column, as_floats
from fastdp.privacy import Guarantee, parallel, sequential
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.systems.alone import Alone
from fastdp.thresholds import Fixed, PAKQuantile, Threshold, ThresholdTask
from fastdp_kernels import binary_counter, online_pass

Floats = NDArray[np.float64]
LEAST_EPSILON = 2.0**-60


class PAK(Alone):
    """Publishes the running sum of a stream of known length.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss for one value; delta is used by the threshold alone.
    bound : float
        B: public upper bound of a value, in units of the input.
    length : int
        n: values of the whole stream, the hold-out included.
    holdout : int
        m, the time lag: the first values choose the threshold tau; their sum is published at once.
    share : float
        epsilon_1 / epsilon, the threshold's share of the hold-out's budget (section VI-B: 0.8 to 0.9).
    tail_factor : float
        r >= 1: values are clipped to r tau, which a light tail makes worthwhile (Prop. 1; section VI-B: 1 to 2).
    threshold : Threshold, optional
        By default ``PAKQuantile(delta=delta)``.  ``Fixed(bound)`` gives the plain binary tree, the paper's rival.
    lag_sums : bool
        Publish the running sums of the first m values too, through a tree of their own, once tau is known
        (section III-C, last remark), instead of their sum alone.
    resolution, seed, key
        As for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    Privacy: on the first m values epsilon_1 for tau and epsilon_2 for their sum (sequential), on the others epsilon
    through a binary tree (disjoint: parallel).  A value enters floor(log2 N) + 1 nodes of a tree of N values, so that
    is the number of levels that share the budget; with the printed log2 N the claim fails for N a power of two.  The
    sums are exact integers; tau's noise is stated for real arithmetic, and the guarantee says so.  After an interrupt
    compare ``n_seen``: a chunk that was consumed must not be sent again.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        bound: float,
        length: int,
        *,
        holdout: int = 65_536,
        share: float = 0.85,
        tail_factor: float = 1.0,
        threshold: Threshold | None = None,
        lag_sums: bool = False,
        resolution: float | None = None,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        super().__init__()
        self.epsilon = validation.positive("epsilon", epsilon)
        self.delta = validation.real("delta", delta)
        if not 0.0 <= self.delta < 1.0:
            raise ParameterError(f"delta = {delta!r}: expected a number in [0, 1)")
        self.bound = validation.positive("bound", bound)
        self.length = validation.integer("length", length, 1, 2**40)
        self.share = validation.positive("share", share)
        self.tail_factor = validation.positive("tail_factor", tail_factor)
        if self.share >= 1.0:
            raise ParameterError(f"share = {share!r}: expected a number below 1, the rest is for the sum")
        if self.tail_factor < 1.0:
            raise ParameterError(f"tail_factor = {tail_factor!r}: expected at least 1")
        if threshold is None and self.delta == 0.0:
            raise ParameterError(
                f"delta = {delta!r}: expected a number above 0 for PAKQuantile, or another threshold, such as "
                "SmoothQuantile(noise='cauchy')"
            )
        rule = PAKQuantile(delta=self.delta) if threshold is None else threshold
        validation.part("threshold", rule, "start", "fastdp.thresholds")
        self.holdout = validation.integer("holdout", holdout if rule.uses_holdout else 0, 0, self.length - 1)
        if rule.uses_holdout and self.holdout == 0:
            raise ParameterError(f"holdout = {holdout!r}: expected at least 1 and less than the length, {length}")
        self.lag_sums = bool(lag_sums)
        self._rule = rule
        for_threshold = self.epsilon * self.share
        self._epsilon_lag = _remainder(self.epsilon, for_threshold)
        if min(for_threshold, self._epsilon_lag) < LEAST_EPSILON:
            raise ParameterError(f"share = {share!r}: expected both parts of epsilon = {epsilon!r} above 2^-60")
        levels = max(self.length - self.holdout, self.holdout).bit_length()
        least = self._epsilon_lag if self.holdout else self.epsilon
        self._grid = make_grid(self.bound, resolution, least, self.length, levels, 2)
        # The thinnest noise of all must be one that can be drawn, now and not at the end of the hold-out.
        sampler.discrete_laplace_law(Fraction(1) / Fraction(self.epsilon))
        self._key = Key.choose(seed, key)
        self._task = ThresholdTask(
            for_threshold, self.bound, max(self.holdout, 1), self.length, self._grid.resolution
        )
        chosen = rule.guarantee(self._task)
        if chosen is not None and chosen.delta > self.delta:
            raise ParameterError(f"delta = {delta!r}: expected at least {chosen.delta!r}, which the threshold uses")
        self._chooser = rule.start(self._task)
        self._state = _State(lag=np.empty(self.holdout))
        if self.holdout == 0:
            self._state = _State(lag=np.empty(0), tree=self._open(np.empty(0))[0])

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._state.n_seen

    @property
    def threshold(self) -> float | None:
        """Values are clipped to this, r tau and at most the bound; None until the hold-out is complete."""
        tree = self._state.tree
        return None if tree is None else tree.theta_steps * self._grid.resolution

    @property
    def running_sum(self) -> float | None:
        """The running sum published last, in units of the input; None before any."""
        return self._state.running

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for the whole stream, derived from the parts."""
        levels = (self.length - self.holdout).bit_length()
        whole = Guarantee(
            epsilon=self.epsilon,
            arithmetic="exact",
            derivation=(f"binary tree over the other values: each enters at most {levels} nodes, epsilon in all",),
        )
        chosen = self._rule.guarantee(self._task)
        if self.holdout and chosen is not None:
            total = Guarantee(
                epsilon=self._epsilon_lag,
                arithmetic="exact",
                derivation=("sum of the first values, noise of scale r tau / epsilon_2: epsilon_2",),
            )
            whole = parallel(sequential(chosen.of("threshold"), total), whole)
        return replace(whole, simulated=self._key.simulated or whole.simulated)

    def publish(self, chunk: Any) -> Floats:
        """Consume the next values; publish running sums.

        Parameters
        ----------
        chunk : array-like
            Any number of values.

        Returns
        -------
        float64[k]
            The running sum of the stream after each value behind the hold-out, in units of the input.  The value that
            completes the hold-out publishes the sum of the first m values, or all their running sums with
            ``lag_sums``.

        Raises
        ------
        DataError
            For values that are no finite real numbers, or more than ``length`` of them; nothing is consumed then.
        """
        with self._alone():
            values = as_floats(as_column(chunk))
            state = self._state
            if state.n_seen + values.size > self.length:
                raise DataError(
                    f"chunk has {values.size} values: expected at most {self.length - state.n_seen}, "
                    f"the stream has {self.length}"
                )
            if not np.isfinite(values).all():
                first = int(np.flatnonzero(~np.isfinite(values))[0])
                raise DataError(f"chunk[{first}] = {values[first]}: expected finite values")
            held = min(values.size, max(0, self.holdout - state.n_seen))
            # Written again, not added to, if an interrupt makes the user repeat the chunk.
            state.lag[state.n_seen : state.n_seen + held] = values[:held]
            n_seen, tree, lag = state.n_seen + values.size, state.tree, state.lag
            parts = []
            if tree is None and n_seen >= self.holdout:
                tree, sums = self._open(lag)
                parts.append(sums)
                lag = np.empty(0)
            if tree is not None and values.size > held:
                tree, sums = tree.count(self._steps(values[held:], tree.theta_steps))
                parts.append(sums)
            steps = np.concatenate(parts) if parts else np.empty(0, np.int64)
            out = np.multiply(steps, self._grid.resolution, dtype=np.float64)
            running = float(out[-1]) if out.size else state.running
            # One assignment: an interrupt leaves the chunk consumed or not, never half of it.
            self._state = _State(lag, n_seen, tree, running)
            return out

    def _open(self, lag: Floats) -> tuple[_Tree, NDArray[np.int64]]:
        """Choose tau, release the hold-out's sum (or sums), and plant the tree; changes nothing."""
        chooser = self._chooser.copy()
        chooser.observe(lag)
        tau = chooser.choose(self._key)
        wide = tau if isinstance(self._rule, Fixed) else tau * self.tail_factor
        # Not min(): a threshold that is no number counts as the bound too.
        theta_steps = self._grid.snap(wide if wide <= self.bound else self.bound)
        out: NDArray[np.int64] = np.empty(0, np.int64)
        base = 0
        if self.holdout:
            steps, rest = self._steps(lag, theta_steps), self._epsilon_lag
            if self.lag_sums:
                _, out = _Tree.plant(self._key, 1, self.holdout, theta_steps, rest, 0).count(steps)
            else:
                out = np.empty(1, np.int64)
                law = sampler.discrete_laplace_law(Fraction(theta_steps) / Fraction(rest))
                sampler.fill(out, law, self._key, StreamId(Purpose.LAG))
                out += steps.sum()
            base = int(out[-1])
        tree = _Tree.plant(self._key, 0, self.length - self.holdout, theta_steps, self.epsilon, base)
        return tree, out

    def _steps(self, values: Floats, theta_steps: int) -> NDArray[np.int64]:
        steps: NDArray[np.int64] = np.empty(values.size, np.int64)
        online_pass.round_values(values, 1.0 / self._grid.resolution, float(theta_steps), steps)
        return steps


@dataclass(frozen=True)
class _State:
    """Where the publisher stands; replaced as a whole.

    Attributes
    ----------
    lag : float64[m]
        The hold-out as far as it has come; dropped once the threshold is chosen.
    """

    lag: Floats
    n_seen: int = 0
    tree: _Tree | None = None
    running: float | None = None


def _remainder(whole: float, part: float) -> float:
    """The largest float that, added to ``part``, does not exceed ``whole``."""
    rest = whole - part
    return rest if Fraction(rest) + Fraction(part) <= Fraction(whole) else math.nextafter(rest, 0.0)


@dataclass(frozen=True)
class _Tree:
    """A binary counter over a known number of values, continuing from a base sum; a value, never changed.

    Attributes
    ----------
    number : int
        Which counter of the stream.
    levels : int
        floor(log2 N) + 1: the most nodes that one of N values enters.
    above : int64[levels + 1]
        Noise of the open nodes, summed from each height up.
    """

    key: Key
    number: int
    levels: int
    theta_steps: int
    law: sampler.Law
    seen: int
    total: int
    above: NDArray[np.int64]

    @classmethod
    def plant(cls, key: Key, number: int, length: int, theta_steps: int, epsilon: float, base: int) -> _Tree:
        """A counter before its first value."""
        levels = length.bit_length()
        law = sampler.discrete_laplace_law(Fraction(theta_steps * levels) / Fraction(epsilon))
        return cls(key, number, levels, theta_steps, law, 0, base, np.zeros(levels + 1, np.int64))

    def count(self, steps: NDArray[np.int64]) -> tuple[_Tree, NDArray[np.int64]]:
        """The counter after these values, and the noisy running sum after each."""
        after = self.seen + steps.size
        firsts = [self.seen >> height for height in range(self.levels)]
        counts = [(after >> height) - first for height, first in enumerate(firsts)]
        noise: NDArray[np.int64] = np.empty(sum(counts), np.int64)
        offsets: NDArray[np.int64] = np.empty(self.levels, np.int64)
        begin = 0
        for height, (first, size) in enumerate(zip(firsts, counts, strict=True)):
            stream = StreamId(Purpose.COUNTER, height, self.number)
            sampler.fill(noise[begin : begin + size], self.law, self.key, stream, first)
            offsets[height] = begin - first
            begin += size
        above, out = self.above.copy(), np.empty(steps.size, np.int64)
        total = binary_counter.count_on(steps, self.seen, np.int64(self.total), above, noise, offsets, out)
        return replace(self, seen=after, total=int(total), above=above), out
