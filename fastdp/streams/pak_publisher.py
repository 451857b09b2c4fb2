"""PAK: running sums of a stream whose bound is too high or unknown (NDSS 2019, Mechanism 1).

Readings and errata: ``docs/pak.md``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from fastdp.data.column import as_whole
from fastdp.errors import StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats
from fastdp.noise.key import Key
from fastdp.record import constructor
from fastdp.releases.intervals import SumNoise
from fastdp.releases.release import Release
from fastdp.state.machine import Column, single_caller
from fastdp.state.publisher import Publisher
from fastdp.streams.pak_machine import PAKMachine, PAKState
from fastdp.streams.pak_parameters import PAKParameters


class PAK(Publisher[PAKState]):
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

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.PAK(epsilon=1.0, delta=1e-9, bound=100, length=2000, holdout=500, seed=1)
    >>> publisher.publish(np.full(2000, 20.0)).size  # the sum of the first 500 values, and 1,500 running sums
    1501
    >>> publisher.guarantee.arithmetic
    'real'
    """

    _MACHINE: ClassVar[Any] = PAKMachine
    _machine: PAKMachine

    @constructor(PAKParameters)
    def __init__(self, plan: PAKParameters, seed: int | str | None, key: Key | bytes | None) -> None:
        machine = PAKMachine(plan)
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def _plan(self) -> PAKParameters:
        return self._machine.plan

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

    @single_caller
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
        published: Floats = self._call(self._machine.read(chunk))
        return published

    @single_caller
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
        self.check_plain()
        sums = self._call(Column(as_whole(values, self.n_seen, self.holdout), "values"))
        steps = np.diff(sums) if self.holdout else np.diff(sums, prepend=0.0)
        steps.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        levels = (self.length - self.holdout).bit_length()
        noise = SumNoise("counter", float(Fraction(levels) / Fraction(self.epsilon)), self.resolution)
        return Release(steps, self.holdout, self.threshold, self.guarantee, noise=noise)

    def check_room(self, size: int) -> None:
        """DataError for more values than are left of the stream; their number is public."""
        self._machine.check_room(self._state, size)

    def check_plain(self, size: int = 0) -> None:
        """StateError or DataError where :meth:`release` would refuse so many values; looks at no value."""
        self.check_room(size)
        if self._plan.average is not None or self._plan.lag_sums:
            raise StateError("release() needs plain running sums: expected average=None and lag_sums=False")
