"""PAK: running sums of a stream whose bound is too high or unknown (NDSS 2019, Mechanism 1).

Readings and errata: ``docs/pak.md``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.column import NOT_FINITE, as_column, as_floats, entry_at
from fastdp.arrays.whole import as_whole
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee
from fastdp.perturbers.base import theta_key
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.releases.release import Release
from fastdp.state import persistence
from fastdp.state.planned import Planned
from fastdp.state.single_caller import exclusive
from fastdp.systems.pak.moving_average import averages
from fastdp.systems.pak.parameters import PAKParameters, usual_threshold
from fastdp.systems.pak.running_sum import RunningSum, Steps
from fastdp.systems.pak.state import PAKState
from fastdp.systems.stream.parameters import vars_of
from fastdp.thresholds import Fixed, Threshold
from fastdp.thresholds.base import held_out
from fastdp.thresholds.fixed import as_rule
from fastdp_kernels import online_pass

Floats = NDArray[np.float64]


class PAK(Planned):
    """Publishes the running sum, or moving averages, of a stream of known length.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss for one value; delta is used by the threshold alone.
    bound : float
        B: public upper bound of a value, in units of the input.
    length : int
        n: values of the whole stream, the hold-out included; at most 2^33.
    holdout : int
        m, the time lag: the first values choose the threshold tau; their sum is published at once.
    share : float
        epsilon_1 / epsilon, the threshold's share of the hold-out's budget (section VI-B: 0.8 to 0.9).
    tail_factor : float
        r >= 1: values are clipped to r tau, which a light tail makes worthwhile (Prop. 1; section VI-B: 1 to 2).
    threshold : Threshold or float, optional
        By default ``PAKQuantile(delta=delta)``.  A number is a publicly known threshold; the bound gives the plain
        binary tree, the paper's rival.
    lag_sums : bool
        Publish the running sums of the first m values too, through a tree of their own, once tau is known
        (section III-C, last remark), instead of their sum alone.
    clip : bool
        True: r tau above the bound counts as the bound, public post-processing.  False keeps it as in the paper:
        far more noise and not a value saved; to reproduce published figures only.  The threshold must then be one
        with ``clip=False`` too, as the default is.
    average : int, "all" or None
        Publish averages in place of running sums: "all", the mean of all values so far (the paper's moving average,
        section II-A); w, the mean of the last w values (and of all so far while the running sum of w values ago was
        not published).
    resolution, seed, key
        As for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    Privacy: on the first m values epsilon_1 for tau and epsilon_2 for their sum (sequential; clipped at r tau, which
    Mechanism 1 of the paper does for later values only), on the others epsilon through a binary tree (disjoint:
    parallel).  A value enters floor(log2 N) + 1 nodes of a tree of N values, so that is the number of levels that
    share the budget; with the printed log2 N the claim fails for N a power of two.  The sums are exact integers;
    tau's noise is stated for real arithmetic, and the guarantee says so.  After an interrupt compare ``n_seen``: a
    chunk that was consumed must not be sent again.

    Averages are post-processing.  Of two running sums w values apart the nodes that both contain cancel, and so does
    the noise of the first m values' sum: what is left are at most 2 floor(log2 N) + 1 nodes, in the mean over time
    about log2 w + 2, each of variance 2 (r tau levels / epsilon)^2, so the average has that over w^2 (with
    ``lag_sums`` and a window across the hold-out's end, the nodes of both trees).

    Memory: the hold-out until tau is known, then levels + 1 integers and the last w running sums.
    """

    _PLAN: ClassVar[type[PAKParameters]] = PAKParameters

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
        threshold: Threshold | float | None = None,
        lag_sums: bool = False,
        clip: bool = True,
        average: int | Literal["all"] | None = None,
        resolution: float | None = None,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        rule = usual_threshold(delta, clip) if threshold is None else as_rule(threshold)
        plan = PAKParameters(
            *(epsilon, delta, bound, length, holdout, share, tail_factor, rule),
            *(lag_sums, clip, average, resolution),
        )
        self._begin(plan, Key.choose(seed, key).bind("PAK", vars_of(plan)))

    def _begin(self, plan: PAKParameters, key: Key) -> None:
        """Take the starting position; loading a state file begins here too."""
        Planned.__init__(self)
        self._plan = plan
        self._key = key
        # Refuses what the threshold cannot do now, not at the end of the hold-out.
        self._chooser = plan.threshold.start(plan.task)
        self._state = PAKState(lag=np.empty(plan.holdout))
        if plan.holdout == 0:
            self._state = PAKState(lag=np.empty(0), tree=self._open(np.empty(0))[0])

    @property
    def epsilon(self) -> float:
        """The privacy budget."""
        return self._plan.epsilon

    @property
    def delta(self) -> float:
        """The threshold's delta is at most this."""
        return self._plan.delta

    @property
    def bound(self) -> float:
        """Public upper bound of a value."""
        return self._plan.bound

    @property
    def length(self) -> int:
        """Values of the whole stream."""
        return self._plan.length

    @property
    def holdout(self) -> int:
        """Length of the hold-out."""
        return self._plan.holdout

    @property
    def resolution(self) -> float:
        """Grid step, in units of the input."""
        return self._plan.grid.resolution

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._state.n_seen

    @property
    def threshold(self) -> float | None:
        """r tau, which noise is scaled to and values are clipped to; None until the hold-out is complete."""
        tree = self._state.tree
        return None if tree is None else tree.theta_steps * self.resolution

    @property
    def running_sum(self) -> float | None:
        """The running sum released last, in units of the input; None before any."""
        return self._state.running

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for the whole stream, derived from the parts."""
        return self._plan.guarantee(simulated=self._key.simulated)

    @exclusive
    def publish(self, chunk: Any) -> Floats:
        """Consume the next values; publish running sums, or averages.

        Parameters
        ----------
        chunk : array-like
            Any number of values.

        Returns
        -------
        float64[k]
            The running sum of the stream after each value behind the hold-out, in units of the input, or with
            ``average`` the average in its place.  The value that completes the hold-out publishes the sum of the
            first m values, or all their running sums with ``lag_sums``.

        Raises
        ------
        DataError
            For values that are no finite real numbers, or more than ``length`` of them; nothing is consumed then.
        """
        return self._publish(as_column(chunk), "chunk")

    def _publish(self, column: NDArray[Any], name: str) -> Floats:
        values, state = as_floats(column), self._state
        self._check_replay(values)
        self._check_room(values.size, name)
        if not np.isfinite(values).all():
            raise DataError(f"{entry_at(name, ~np.isfinite(values), NOT_FINITE)}; expected finite values")
        following, out = self._following(state, values)
        digest = self._digest
        if self._files.kept is not None and values.size:
            digest = self._write_ahead(values, following.describe())
        # One step: an interrupt leaves the chunk consumed or not, never half of it.
        self.__dict__.update(_state=following, _replay=None, _digest=digest)
        return out

    @exclusive
    def release(self, values: Any) -> Release:
        """Publish a whole array at once (a fresh publisher of plain running sums only).

        Parameters
        ----------
        values : array-like
            Longer than the hold-out, and at most ``length`` values.

        Returns
        -------
        Release
            Its values are the differences of neighbouring running sums, so its range sums are differences of two.
        """
        self._check_plain()
        sums = self._publish(as_whole(values, self.n_seen, self.holdout), "values")
        steps = np.diff(sums) if self.holdout else np.diff(sums, prepend=0.0)
        steps.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return Release(steps, self.holdout, self.threshold, self.guarantee)

    def _check_plain(self) -> None:
        if self._plan.average is not None or self._plan.lag_sums:
            raise StateError("release() needs plain running sums: expected average=None and lag_sums=False")

    def _check_room(self, size: int, name: str = "values") -> None:
        if self.n_seen + size > self.length:
            room = self.length - self.n_seen
            raise DataError(f"{name} has {size} values: expected at most {room}, the stream has {self.length}")

    def _following(self, state: PAKState, values: Floats) -> tuple[PAKState, Floats]:
        """Where these values lead to and what they publish; the publisher is not changed."""
        held = min(values.size, max(0, self.holdout - state.n_seen))
        # Written again, not added to, if an interrupt makes the user repeat the chunk.
        state.lag[state.n_seen : state.n_seen + held] = values[:held]
        n_seen, tree, lag = state.n_seen + values.size, state.tree, state.lag
        parts: list[Steps] = []
        if tree is None and n_seen >= self.holdout:
            tree, sums = self._open(lag)
            parts.append(sums)
            lag = np.empty(0)
        if tree is not None and values.size > held:
            tree, sums = tree.count(self._steps(values[held:], tree.theta_steps))
            parts.append(sums)
        # No copy of what is alone.
        steps = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])
        out = np.multiply(steps, self.resolution, dtype=np.float64)
        running, recent = float(out[-1]) if out.size else state.running, state.recent
        if self._plan.average is not None:
            window = None if self._plan.average == "all" else self._plan.average
            out, recent = averages(steps, recent, n_seen, window, self.resolution)
        return PAKState(lag, n_seen, tree, running, recent), out

    def _open(self, lag: Floats) -> tuple[RunningSum, Steps]:
        """Choose tau, release the hold-out's sum (or sums), and plant the tree; changes nothing."""
        plan = self._plan
        chooser = self._chooser.copy()
        chooser.observe(as_floats(lag))
        # By the values that are summed, too: a threshold's summary of them may be coarser, or without their order.
        own = held_out(self._key, as_floats(lag))
        tau = chooser.choose(own)
        wide = tau if isinstance(plan.threshold, Fixed) else tau * plan.tail_factor
        # Not min(): a threshold that is no number counts as the highest too.
        theta_steps = plan.grid.snap(wide if wide <= plan.grid.bound else plan.grid.bound)
        out: Steps = np.empty(0, np.int64)
        base = 0
        if self.holdout:
            steps, rest = self._steps(lag, theta_steps), plan.epsilon_lag
            key = theta_key(own, theta_steps).within("lag")
            if plan.lag_sums:
                _, out = RunningSum.plant(key, 1, self.holdout, theta_steps, rest, 0).count(steps)
            else:
                out = np.empty(1, np.int64)
                law = sampler.discrete_laplace_law(Fraction(theta_steps) / Fraction(rest))
                sampler.fill(out, law, key, StreamId(Purpose.LAG))
                out += steps.sum()
            base = int(out[-1])
        return self._plant(theta_steps, base), out

    def _plant(self, theta_steps: int, base: int) -> RunningSum:
        """The tree of the values behind the hold-out."""
        key = theta_key(self._key, theta_steps)
        return RunningSum.plant(key, 0, self.length - self.holdout, theta_steps, self.epsilon, base)

    def _steps(self, values: Floats, theta_steps: int) -> Steps:
        steps: Steps = np.empty(values.size, np.int64)
        top = float(min(theta_steps, self._plan.bound_steps))
        online_pass.round_values(as_floats(values), 1.0 / self.resolution, top, steps)
        return steps

    # State files.

    @property
    def _public(self) -> PAKParameters:
        return self._plan

    def _position(self) -> persistence.Position:
        return self._state.describe()

    def _led_by(self, values: persistence.Chunk) -> persistence.Position:
        return self._following(self._state, values)[0].describe()

    def _resume(self, saved: persistence.Position) -> None:
        self._state = PAKState.resume(saved, self._plan, self._plant)
