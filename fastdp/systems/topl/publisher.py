"""ToPL: streams in the local model (CCS 2021, section 4), users and server simulated in one process.

Each user sends one report about one value.  The first m reports, square waves, give the threshold; every later user
clips at it and reports through the hybrid mechanism.  Range sums add up reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from fastdp import validation
from fastdp.arrays.column import Nonfinite
from fastdp.arrays.kinds import Floats, Indices
from fastdp.arrays.whole import as_whole
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.releases.error_bars import ErrorBars
from fastdp.releases.intervals import DrawnNoise
from fastdp.releases.release import Release
from fastdp.state.machine import Column
from fastdp.state.publisher import Publisher
from fastdp.state.single_caller import single_caller
from fastdp.systems.stream.parameters import DEFAULT_HOLDOUT
from fastdp.systems.topl.machine import ServerMachine
from fastdp.systems.topl.server import ToPLServer
from fastdp.systems.topl.simulation import SimulationMachine, SimulationState
from fastdp.thresholds import Fixed, SquareWave
from fastdp.thresholds.square_wave import Scale


@dataclass(frozen=True, eq=False, repr=False)
class LocalRelease(Release):
    """A stream of unbiased estimates, one a user.

    Attributes
    ----------
    value_variance : float
        Largest variance of one estimate around the value clipped at theta, in units of the input squared.
    """

    value_variance: float = math.nan

    def standard_error(self, starts: Any, stops: Any) -> Floats:
        """Standard error of :meth:`range_sum` around the sum of clipped values, at most; as :meth:`std_error`.

        Reports are independent, so it is the root of (stop - start) times the largest variance.  What clipping at
        theta removes is added to it, and is unknown.

        Parameters
        ----------
        starts, stops
            As for :meth:`range_sum`.

        Returns
        -------
        float64[q]
            In units of the input.
        """
        first, last = self._ranges(starts, stops)
        errors: Floats = np.sqrt((last - first) * self.value_variance)
        return errors

    def _scaled(self, shift: int) -> LocalRelease:
        scaled = cast("LocalRelease", super()._scaled(shift))
        return replace(scaled, value_variance=math.ldexp(self.value_variance, 2 * shift))

    def _error_bars(self, first: Indices, last: Indices) -> ErrorBars:
        """Independent reports: the largest variance, with the wider quantile of the normal and the Laplace law."""
        none = np.zeros(first.size, np.int64)
        variances: Floats = np.multiply(last - first, self.value_variance)
        sums, ones = self.range_sum(first, last), np.ones(first.size)
        return ErrorBars(sums, DrawnNoise(1.0), 1.0, none, ones, variances, width=1.0)


class ToPL(Publisher[SimulationState]):
    """Simulates users and server in one process, with the numbers that the two roles give apart.

    Parameters
    ----------
    epsilon, bound, holdout, max_range, threshold, threshold_epsilon, publish_epsilon
        As for :class:`ToPLServer`.
    nonfinite : "raise" or "zero"
        NaN and infinity are refused, or count as 0.
    seed, key
        Where the users' random words come from: user i takes word i.  By default a fresh secret key.

    Notes
    -----
    Anyone who runs this sees the true values, so it is for experiments, or for a curator who wants the local model's
    guarantee for what leaves.  Output does not depend on how the stream is cut into chunks.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> simulation = fastdp.ToPL(epsilon=1.0, bound=100, holdout=1000, max_range=4096, seed=1)
    >>> simulation.publish(np.full(1500, 20.0)).size
    500
    """

    _MACHINE: ClassVar[Any] = SimulationMachine
    _machine: SimulationMachine

    def __init__(
        self,
        epsilon: float,
        bound: float,
        holdout: int = DEFAULT_HOLDOUT,
        max_range: int = 2**20,
        *,
        threshold: SquareWave | Fixed | float | Scale | None = None,
        threshold_epsilon: float | None = None,
        publish_epsilon: float | None = None,
        nonfinite: Nonfinite = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        server = ToPLServer(
            epsilon,
            bound,
            holdout,
            max_range,
            threshold=threshold,
            threshold_epsilon=threshold_epsilon,
            publish_epsilon=publish_epsilon,
        )
        checked = validation.choice("nonfinite", nonfinite, ("raise", "zero"))
        machine = SimulationMachine(cast("ServerMachine", server.machine), checked)
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def server(self) -> ToPLServer:
        """The server that collects and publishes, as it stands now; another object at each call."""
        server = ToPLServer._of(self._machine.server, self._key)
        server._state = self._machine.server.rekeyed(self._state.server, self._key)
        return server

    @property
    def nonfinite(self) -> str:
        """What NaN and infinity count as."""
        return self._machine.nonfinite

    @property
    def threshold(self) -> float | None:
        """Theta in units of the input; None until the hold-out is complete."""
        return self._state.server.theta

    @property
    def holdout(self) -> int:
        """Users before the threshold."""
        return self._machine.server.holdout

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._machine.consumed(self._state)

    @property
    def n_published(self) -> int:
        """Values published."""
        return self._state.n_published

    @property
    def guarantee(self) -> Guarantee:
        """Of both groups of users; ``simulated`` with a seed."""
        return replace(self.server.guarantee, simulated=self._key.simulated)

    @single_caller
    def publish(self, chunk: Any) -> Floats:
        """Consume the next values, one a user; publish one estimate for each after the hold-out.

        Parameters
        ----------
        chunk : array-like
            Any number of values, in units of the input.

        Returns
        -------
        float64[n]
            Unbiased estimates of the values clipped to [0, theta].

        Raises
        ------
        DataError
            If the chunk is no column of real numbers, or holds NaN or infinity (with ``nonfinite="raise"``);
            nothing is consumed then.
        StateError
            After 2^33 values, when the key's words are used up; nothing is consumed then.
        """
        published: Floats = self._call(self._machine.read(chunk))
        return published

    @single_caller
    def release(self, values: Any) -> LocalRelease:
        """Publish a whole array at once (a fresh simulation only).

        Parameters
        ----------
        values : array-like
            Longer than the hold-out.

        Returns
        -------
        LocalRelease
            Bit for bit what :meth:`publish` gives for any chunking.
        """
        column = as_whole(values, self.n_seen, self.holdout)
        published: Floats = self._call(Column(column, "values"))
        published.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return LocalRelease(
            published, self.holdout, self.threshold, self.guarantee, value_variance=self.server.value_variance
        )


__all__ = ["LocalRelease", "ToPL"]
