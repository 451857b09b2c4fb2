"""PAK: running sums of a stream whose bound is too high or unknown (NDSS 2019, Mechanism 1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple, cast

import numpy as np

from fastdp import validation
from fastdp.data.column import as_finite, as_floats, as_whole
from fastdp.data.frames import StreamColumns, as_streams, source_of
from fastdp.errors import DataError, ParameterError, StateError, argument
from fastdp.guarantee import Guarantee, parallel, remainder, sequential
from fastdp.integer_grid import Grid, make_grid
from fastdp.kinds import Floats, Indices, Integers, Values
from fastdp.noise import sampler
from fastdp.noise.chain_keys import theta_key
from fastdp.noise.key import Key
from fastdp.noise.words import MAX_WORDS, Purpose, StreamId
from fastdp.record import Flag, Keyed, Kind, Real, Whole, constructor, parameter, put, record
from fastdp.releases.intervals import SumNoise
from fastdp.releases.release import Release
from fastdp.state import codec
from fastdp.state.driver import Publisher
from fastdp.state.machine import Column, Machine, Transition, single_caller
from fastdp.streams.parameters import PARTS, noise_key
from fastdp.streams.release_many import (
    borders_of,
    concurrently,
    guarantee_of_many,
    names_of,
    of_one_length,
    unused,
)
from fastdp.thresholds import Fixed, PAKQuantile, SmoothQuantile, Threshold, ThresholdTask
from fastdp.thresholds.base import as_rule, held_out
from fastdp.validation import refusal
from fastdp_kernels.noise import binary_counter
from fastdp_kernels.streams import online_pass

MIN_EPSILON = 2.0**-60
#: A threshold further out than this tail probability of its noise is cut off there, public post-processing.
MIN_TAIL = 2.0**-54
#: Covers the rounding of the highest threshold.
ABOVE_ROUNDING = 1.0 + 2.0**-30


def usual_threshold(delta: object, clip: bool) -> PAKQuantile:
    """PAK's own rule; ParameterError for delta = 0."""
    number = validation.real("delta", delta)
    if number == 0.0:
        raise ParameterError(
            f"delta = {delta!r}: expected a number above 0, which PAKQuantile needs, or another "
            f"{argument(threshold=...)} (SmoothQuantile with Cauchy-type noise needs none)"
        )
    return PAKQuantile(delta=number, clip=clip)


# The counter, and the machine.


class RunningSum(NamedTuple):
    """Binary counter over N values in [0, theta]: noise theta levels / epsilon."""

    #: Sensitivity, in grid steps.
    theta_steps: Annotated[int, Whole(1)]
    #: Values counted.
    seen: Annotated[int, codec.COUNT]
    #: Base plus exact sum, in grid steps. Secret.
    total: Annotated[int, codec.INT64]
    #: int64[levels + 1]. Noise of the open nodes, summed from each height up. Secret.
    above: Integers
    key: Annotated[Key, codec.DERIVED] = cast("Key", None)
    #: Number of the counter in the stream.
    number: Annotated[int, codec.DERIVED] = 0
    #: N.
    length: Annotated[int, codec.DERIVED] = 0
    #: Of floor(log2 N) + 1 levels.
    distribution: Annotated[sampler.LaplaceDistribution, codec.DERIVED] = cast("sampler.LaplaceDistribution", None)

    def __repr__(self) -> str:
        # Without the secrets.
        return f"RunningSum(length={self.length}, theta_steps={self.theta_steps}, seen={self.seen})"

    @classmethod
    def start(cls, key: Key, number: int, length: int, theta_steps: int, epsilon: float, base: int) -> RunningSum:
        levels = length.bit_length()
        distribution = sampler.laplace_distribution(Fraction(theta_steps * levels) / Fraction(epsilon))
        return cls(theta_steps, 0, base, np.zeros(levels + 1, np.int64), key, number, length, distribution)

    def advance(self, steps: Integers) -> tuple[RunningSum, Integers]:
        """Count `steps`; return the next counter and noisy sums, int64 (modulo 2^64)."""
        after, above, out = self.seen + steps.size, self.above.copy(), np.empty(steps.size, np.int64)
        noise, offsets = sampler.draw_counter_noise(
            self.distribution, self.key, self.number, self.seen, after, self.above.size - 1
        )
        total = binary_counter.count_on(steps, self.seen, self.total, above, noise, offsets, out)
        return self._replace(seen=after, total=total, above=above), out


def averages(
    sums: Integers, recent: Integers, position: int, window: int | None, resolution: float
) -> tuple[Floats, Integers]:
    """Average for each running sum, float64[k], and the last sums for the next call.

    (S_t - S_{t-w}) / w if S_{t-w} was published, else S_t / t; `window` None for all.
    """
    counts = np.arange(position - sums.size + 1, position + 1, dtype=np.float64)
    out: Floats = np.multiply(sums, resolution, dtype=np.float64) / counts
    if window is None:
        return out, recent
    known = np.concatenate([recent, sums])
    full = min(sums.size, max(0, known.size - window))
    if full:
        # Exact differences of integers, so noise that both sums share cancels completely.
        rise = known[known.size - full :] - known[known.size - full - window : known.size - window]
        out[sums.size - full :] = np.multiply(rise, resolution, dtype=np.float64) / window
    return out, known[max(0, known.size - window) :].copy()


NO_STEPS: Integers = np.empty(0, np.int64)


class PAKState(NamedTuple):
    """State of a PAK stream."""

    #: float64[m]. The hold-out, written in place; dropped once the threshold is chosen. Secret.
    lag: Annotated[Floats, Real()]
    #: Values consumed.
    n_seen: Annotated[int, codec.COUNT] = 0
    #: Counter after the hold-out.
    tree: RunningSum | None = None
    #: The running sum released last.
    running: Annotated[float | None, Real()] = None
    #: int64[at most w]. The last sums, in grid steps, for averages.
    recent: Integers = NO_STEPS

    def __repr__(self) -> str:
        # Without the secrets.
        return f"PAKState(n_seen={self.n_seen}, tree={self.tree}, running={self.running})"


@record
class PAKParameters(Machine[PAKState], Keyed):
    """Parameters and transition function of Mechanism 1."""

    SPLITS: ClassVar[bool] = True
    PARTS: ClassVar[codec.Parts] = PARTS
    rule: ClassVar[int] = 1

    epsilon: float = parameter(Real(above=0.0))
    delta: float = parameter(Real(least=0.0, below=1.0))
    bound: float = parameter(Real(above=0.0))
    length: int = parameter(Whole(1, MAX_WORDS))
    _: KW_ONLY
    holdout: int = parameter(Kind(), default=65_536)
    share: float = parameter(Real(above=0.0, below=1.0), default=0.85)
    tail_factor: float = parameter(Real(least=1.0), default=1.0)
    threshold: Threshold | float | None = parameter(Kind(), default=None)
    lag_sums: bool = parameter(Flag(), default=False)
    clip: bool = parameter(Flag(), default=True)
    average: int | Literal["all"] | None = parameter(Kind(), default=None)
    resolution: float | None = parameter(Real(above=0.0), default=None)

    def _check(self) -> None:
        rule = self.threshold
        put(self, threshold=usual_threshold(self.delta, self.clip) if rule is None else as_rule("threshold", rule))
        self._check_threshold(self.clip)
        rule = self.chosen_by
        holdout = self.holdout if rule.uses_holdout else 0
        put(self, holdout=validation.integer("holdout", holdout, 0, self.length - 1))
        if rule.uses_holdout and self.holdout == 0:
            raise refusal("holdout", self.holdout, f"at least 1 and less than the length, {self.length}")
        if self.average is not None and self.average != "all":
            put(self, average=validation.integer("average", self.average, 1, self.length))
        if min(self.epsilon_threshold, self.epsilon_lag) < MIN_EPSILON:
            raise refusal("share", self.share, f"both parts of epsilon = {self.epsilon!r} above 2^-60")
        put(self, resolution=self.grid.resolution)
        # The narrowest noise must be drawable; checked now, not at the end of the hold-out.
        sampler.laplace_distribution(Fraction(1) / Fraction(self.epsilon))
        chosen = rule.guarantee(self.task)
        if chosen is not None and chosen.delta > self.delta:
            raise refusal("delta", self.delta, f"at least {chosen.delta!r}, which the threshold uses")

    def _check_threshold(self, clip: bool) -> None:
        rule = self.threshold
        validation.part("threshold", rule, Threshold, "fastdp.thresholds")
        endless = isinstance(rule, (PAKQuantile, SmoothQuantile)) and not rule.clip and rule.noise != "cauchy"
        if not clip and not endless:
            given = rule.theta if isinstance(rule, Fixed) else rule
            raise ParameterError(
                f"threshold = {validation.shown(given)}: expected PAKQuantile or SmoothQuantile that does not clip, "
                f"with {argument(clip=False)}, and no Cauchy-type noise (whose theta may be any number)"
            )

    @property
    def chosen_by(self) -> Threshold:
        return cast("Threshold", self.threshold)

    @cached_property
    def epsilon_threshold(self) -> float:
        return self.epsilon * self.share

    @cached_property
    def epsilon_lag(self) -> float:
        """epsilon_2, such that epsilon_1 + epsilon_2 is at most epsilon, exactly."""
        return remainder(self.epsilon, self.epsilon_threshold)

    @cached_property
    def grid(self) -> Grid:
        top = self.bound if self.clip else self._highest()
        least = self.epsilon_lag if self.holdout else self.epsilon
        levels = max(self.length - self.holdout, self.holdout).bit_length()
        try:
            grid = make_grid(top, self.resolution, least, self.length, levels, 2)
        except ParameterError as error:
            reach = "" if self.clip else f"clip = False: r tau may reach {top:.3g}, and then "
            budget = f"; {least!r} is epsilon_2, the rest of epsilon = {self.epsilon!r}" if self.holdout else ""
            raise ParameterError(f"{reach}{error}{budget if repr(least) in str(error) else ''}") from None
        if grid.resolution > self.bound:
            raise ParameterError(
                f"clip = False: r tau may reach {top:.3g}, whose grid has a resolution of {grid.resolution:g}; "
                f"expected at most the bound, {self.bound!r} (a larger epsilon or a shorter stream)"
            )
        return grid

    def _highest(self) -> float:
        rule, task = self.threshold, self._task_on(self.bound)
        assert isinstance(rule, (PAKQuantile, SmoothQuantile))  # noqa: S101 - checked on construction
        noise = rule.smooth_noise(task)
        farthest = rule.kappa(task) / noise.a * (noise.magnitude(MIN_TAIL) + rule.offset(task))
        return self.tail_factor * self.bound * (1.0 + farthest) * ABOVE_ROUNDING

    @cached_property
    def bound_steps(self) -> int:
        return Grid(self.bound, self.grid.resolution).bound_steps

    @property
    def task(self) -> ThresholdTask:
        return self._task_on(self.grid.resolution)

    def _task_on(self, resolution: float) -> ThresholdTask:
        holdout = max(self.holdout, 1)
        return ThresholdTask(self.epsilon_threshold, self.bound, holdout, self.length, resolution, self.epsilon)

    def guarantee(self, *, simulated: bool) -> Guarantee:
        levels = (self.length - self.holdout).bit_length()
        stream = Guarantee(
            epsilon=self.epsilon,
            arithmetic="exact",
            derivation=(f"binary tree over the other values: each enters at most {levels} nodes, epsilon in all",),
        )
        chosen = self.chosen_by.guarantee(self.task)
        if self.holdout and chosen is not None:
            total = Guarantee(
                epsilon=self.epsilon_lag,
                arithmetic="exact",
                derivation=(self._lag_step,),
            )
            stream = parallel(sequential(chosen.of("threshold"), total), stream)
        return replace(stream, simulated=simulated or stream.simulated)

    def released(self, values: Floats, thetas: Floats, *, simulated: bool) -> Release:
        values.flags.writeable = False
        levels = (self.length - self.holdout).bit_length()
        noise = SumNoise("counter", float(Fraction(levels) / Fraction(self.epsilon)), self.grid.resolution)
        guarantee = self.guarantee(simulated=simulated)
        return Release(values, self.holdout, thetas, guarantee, noise=noise, online=True)

    @property
    def _lag_step(self) -> str:
        if self.lag_sums:
            return (
                f"running sums of the first values: each enters at most {self.holdout.bit_length()} nodes, epsilon_2"
            )
        return "sum of the first values, noise of scale r tau / epsilon_2: epsilon_2"

    # The machine.

    def start(self, key: Key) -> PAKState:
        # Raises errors of the threshold now, not at the end of the hold-out.
        self.chosen_by.start(self.task)
        if self.holdout:
            return PAKState(lag=np.empty(self.holdout))
        return PAKState(lag=np.empty(0), tree=self._open(np.empty(0), key)[0])

    def log_messages(self, before: PAKState, after: PAKState) -> Iterator[tuple[int, str]]:
        if before.tree is None and after.tree is not None:
            theta = after.tree.theta_steps * self.grid.resolution
            yield logging.INFO, f"threshold chosen: {theta:g}, {after.n_seen:,} values seen"

    def step(self, state: PAKState, batch: Column, key: Key) -> Transition[PAKState]:
        values = as_floats(batch.values)
        self.check_room(state, values.size, batch.name)
        n_seen, tree, lag = state.n_seen + values.size, state.tree, state.lag
        if tree is not None and values.size:
            tree, steps = tree.advance(self._steps(values, tree.theta_steps, batch.name))
        else:
            tree, lag, steps = self._hold(state, values, batch.name, key)
        resolution = self.grid.resolution
        out = np.multiply(steps, resolution, dtype=np.float64)
        running, recent = float(out[-1]) if out.size else state.running, state.recent
        if self.average is not None:
            window = None if self.average == "all" else self.average
            out, recent = averages(steps, recent, n_seen, window, resolution)
        return Transition(PAKState(lag, n_seen, tree, running, recent), lambda: out)

    def _hold(
        self, state: PAKState, values: Floats, name: str, key: Key
    ) -> tuple[RunningSum | None, Floats, Integers]:
        as_finite(values, "raise", name)
        tree, lag, steps = state.tree, state.lag, NO_STEPS
        held = min(values.size, max(0, self.holdout - state.n_seen))
        # Overwritten, not appended: after an interrupt the user may repeat the chunk.
        lag[state.n_seen : state.n_seen + held] = values[:held]
        if tree is None and state.n_seen + values.size >= self.holdout:
            tree, steps = self._open(lag, key)
            lag = np.empty(0)
            if values.size > held:
                tree, sums = tree.advance(self._steps(values[held:], tree.theta_steps, name))
                steps = np.concatenate([steps, sums])
        return tree, lag, steps

    def check_room(self, state: PAKState, size: int, name: str = "values") -> None:
        length = self.length
        if state.n_seen + size > length:
            room = length - state.n_seen
            raise DataError(f"{name} has {size} values: expected at most {room}, the stream has {length}")

    def _open(self, lag: Floats, key: Key) -> tuple[RunningSum, Integers]:
        chooser = self.chosen_by.start(self.task)
        chooser.observe(as_floats(lag))
        # By the values that are summed, too: a threshold's summary of them may be coarser, or without their order.
        choice_key = held_out(key, as_floats(lag))
        tau = chooser.choose(choice_key)
        wide = tau if isinstance(self.threshold, Fixed) else tau * self.tail_factor
        # Not min(): NaN counts as the highest threshold too.
        theta_steps = self.grid.snap(wide if wide <= self.grid.bound else self.grid.bound)
        out: Integers = np.empty(0, np.int64)
        base = 0
        if self.holdout:
            steps, rest = self._steps(as_floats(lag), theta_steps, "values"), self.epsilon_lag
            lag_key = theta_key(choice_key, theta_steps).within("lag")
            if self.lag_sums:
                _, out = RunningSum.start(lag_key, 1, self.holdout, theta_steps, rest, 0).advance(steps)
            else:
                distribution = sampler.laplace_distribution(Fraction(theta_steps) / Fraction(rest))
                out = sampler.draws(1, distribution, lag_key, StreamId(Purpose.LAG)) + steps.sum()
            base = int(out[-1])
        return self._tree(theta_steps, base, key), out

    def _tree(self, theta_steps: int, base: int, key: Key) -> RunningSum:
        tree_key = theta_key(key, theta_steps)
        return RunningSum.start(tree_key, 0, self.length - self.holdout, theta_steps, self.epsilon, base)

    def _steps(self, values: Floats, theta_steps: int, name: str) -> Integers:
        steps: Integers = np.empty(values.size, np.int64)
        top = float(min(theta_steps, self.bound_steps))
        if online_pass.round_values(values, 1.0 / self.grid.resolution, top, steps):
            as_finite(values, "raise", name)
        return steps

    # State files.

    def pack(self, state: PAKState) -> codec.Packed:
        # Without values that a failed call has written after those held.
        return super().pack(state._replace(lag=state.lag[: state.n_seen]))

    def restored(self, state: PAKState, key: Key) -> PAKState:
        tree, seen, shown = state.tree, state.lag.size, 0
        lag = np.empty(self.holdout if tree is None else 0)
        if tree is None:
            if state.lag.ndim != 1 or seen >= self.holdout:
                raise ValueError("a position out of range")
            lag[:seen] = state.lag
        else:
            if seen or tree.theta_steps > self.grid.bound_steps:
                raise ValueError("a threshold out of range")
            begun = self._tree(tree.theta_steps, 0, key)
            codec.expect(tree.above, begun.above)
            if tree.seen > begun.length:
                raise ValueError("a counter out of range")
            first = self.holdout if self.lag_sums else min(self.holdout, 1)
            seen, shown = self.holdout + tree.seen, first + tree.seen
            tree = begun._replace(seen=tree.seen, total=tree.total, above=tree.above)
        window = self.average if isinstance(self.average, int) else 0
        if state.n_seen != seen or state.recent.shape != (min(window, shown),):
            raise ValueError("a position out of range")
        return state._replace(lag=lag, tree=tree)

    def rekeyed(self, state: PAKState, key: Key) -> PAKState:
        return self.restored(state._replace(lag=state.lag[: state.n_seen]), key)


class PAK(Publisher[PAKState]):
    """Publishes the running sum, or moving averages, of a stream of known length.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss for one value; delta is the threshold's alone.
    bound : float
        B: public upper bound of a value, in units of the input.
    length : int
        n: total number of values, the hold-out included; at most 2^33.
    holdout : int
        m, the time lag: the first values choose the threshold tau, and are published as one sum.
    share : float
        The threshold's fraction of the hold-out's budget.
    tail_factor : float
        r >= 1: values are clipped to r tau, for light tails (Prop. 1).
    threshold : Threshold or float, optional
        By default ``PAKQuantile(delta=delta)``.  A number is publicly known; the bound gives a plain tree.
    lag_sums : bool
        True also publishes the running sums of the first m values, by a tree of their own.
    clip : bool
        True: r tau is at most the bound; False, the paper's, needs a threshold that does not clip.
    average : int, "all" or None
        Averages in place of sums: of all values so far, or of the last w.
    resolution
        As for :class:`fastdp.StreamPublisher`.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Privacy: the first m values spend epsilon_1 on tau and epsilon_2 on their sum, the others epsilon in a binary tree
    (``docs/streams_proofs.md``, "PAK").  Sums are exact, tau's noise in real arithmetic.  After an interrupt compare
    ``n_seen``.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.PAK(
    ...     epsilon=1.0, delta=1e-9, bound=100,
    ...     length=2000, holdout=500, seed=1,
    ... )
    >>> publisher.publish(np.full(2000, 20.0)).size  # a sum of 500, 1,500 more
    1501
    >>> publisher.guarantee.arithmetic
    'real'
    """

    _MACHINE = PAKParameters
    _machine: PAKParameters
    epsilon: float
    delta: float
    bound: float
    length: int
    holdout: int
    resolution: float
    #: Secret of :meth:`release_many`, until it has released.
    _secret: Key | None = None

    @constructor(PAKParameters)
    def __init__(self, machine: PAKParameters, seed: int | str | None, key: Key | bytes | None) -> None:
        self._secret = Key.choose(seed, key)
        self._begin(machine, noise_key(machine, self._secret))

    @property
    def n_seen(self) -> int:
        """Number of values consumed, the hold-out included."""
        return self._state.n_seen

    @property
    def threshold(self) -> float | None:
        """r tau, to which values are clipped; None during the hold-out."""
        tree = self._state.tree
        return None if tree is None else tree.theta_steps * self.resolution

    @property
    def running_sum(self) -> float | None:
        """The running sum released last; None before any."""
        return self._state.running

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) of the full stream."""
        return self._machine.guarantee(simulated=self._key.simulated)

    @single_caller
    def publish(self, chunk: Values) -> Floats:
        """Consume the next values (any number); publish running sums, or averages.

        Returns
        -------
        float64[k]
            The sum (or average) after each value past the hold-out.  The hold-out's last value publishes the sum of
            the first m values, or with ``lag_sums`` all.

        Raises
        ------
        DataError
            For values that are not finite real numbers, or more than ``length``; nothing is consumed.
        """
        published: Floats = self._call(self._machine.read(chunk))
        return published

    @single_caller
    def release(self, values: Values) -> Release:
        """Publish a full array, longer than the hold-out (a fresh publisher of plain sums only)."""
        self.check_plain()
        sums = self._call(Column(as_whole(values, self.n_seen, self.holdout), "values"))
        made = self._machine.released(self._rises(sums), np.array([self.threshold]), simulated=self._key.simulated)
        return replace(made, source=source_of(values), noise_fingerprint=self.noise_fingerprint)

    @single_caller
    @validation.plain
    def release_many(
        self,
        streams: StreamColumns,
        *,
        value: str | None = None,
        by: str | None = None,
        time: str | None = None,
        offsets: Values | None = None,
        ids: Values | Sequence[int | str] | None = None,
        threads: int = 1,
    ) -> Release:
        """Release many finished streams (once, by a fresh publisher); arguments as of :func:`fastdp.release_many`."""
        self.check_plain()
        threads, read = validation.threads(threads), as_streams(streams, offsets, value, by, time)
        secret, machine, lengths = unused(self._secret), self._machine, read.rows.lengths
        names = names_of(read, ids, self.holdout, secret)
        given = list(names) if isinstance(names, tuple) else names.tolist()
        borders, thetas = borders_of(lengths - self.holdout), np.empty(lengths.size)
        released = np.empty(int(borders[-1]))

        def publish(which: Indices) -> None:
            values, starts = read.rows.take(which, 0)
            for i, start in zip(which.tolist(), starts.tolist(), strict=True):
                key = noise_key(machine, secret.of_stream(given[i]))
                batch = Column(values[start : start + lengths[i]], f"streams[{i}]")
                made = machine.step(machine.start(key), batch, key)
                released[borders[i] : borders[i + 1]] = self._rises(made.emit())
                thetas[i] = cast("RunningSum", made.state.tree).theta_steps * machine.grid.resolution

        concurrently(threads, publish, of_one_length(lengths))
        self._secret = None
        many = replace(machine.released(released, thetas, simulated=secret.simulated), ids=names, borders=borders)
        mark = None if secret.simulated else f"{noise_key(machine, secret.of_stream(0)).family.hex()}:*"
        said = guarantee_of_many(many.guarantee)
        return replace(many, guarantee=said, source=read.source, noise_fingerprint=mark)

    def _rises(self, sums: Floats) -> Floats:
        return np.diff(sums) if self.holdout else np.diff(sums, prepend=0.0)

    def check_room(self, size: int) -> None:
        """Raise DataError if `size` more values exceed the public length."""
        self._machine.check_room(self._state, size)

    def check_plain(self, size: int = 0) -> None:
        """Raise StateError or DataError if :meth:`release` would refuse `size` values."""
        self.check_room(size)
        if self._machine.average is not None or self._machine.lag_sums:
            raise StateError("release() needs plain running sums: expected average=None and lag_sums=False")
