"""ToPL: streams in the local model (CCS 2021, section 4), users and server simulated in one process.

Each user sends one report about one value.  The first m reports, square waves, give the threshold; every later user
clips at it and reports through the hybrid mechanism.  Range sums add up reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import NOT_FINITE, Nonfinite, as_column, as_floats, entry_at
from fastdp.arrays.whole import as_whole
from fastdp.errors import DataError, StateError
from fastdp.guarantee import Guarantee
from fastdp.local.client_words import MAX_START
from fastdp.randomness.key import Key
from fastdp.releases.release import Release
from fastdp.state import codec
from fastdp.state.persistence import Chunk, Position
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Rebuilt
from fastdp.systems.stream.parameters import DEFAULT_HOLDOUT
from fastdp.systems.topl.server import ToPLServer
from fastdp.thresholds import Fixed, SquareWave
from fastdp.thresholds.square_wave import Scale

Floats = NDArray[np.float64]


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
        """Standard error of :meth:`range_sum` around the sum of clipped values, at most.

        Reports are independent, so it is the root of (stop - start) times the largest variance.  What clipping at
        theta takes away comes on top, and nobody knows it.

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


class ToPL(Rebuilt):
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
    Whoever runs this sees the true values, so it is for experiments, or for a curator who wants the local model's
    guarantee for what leaves.  Output does not depend on how the stream is cut into chunks.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> simulation = fastdp.ToPL(epsilon=1.0, bound=100, holdout=1000, max_range=4096, seed=1)
    >>> simulation.publish(np.full(1500, 20.0)).size
    500
    """

    _PARTS = ToPLServer._PARTS

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
        super().__init__()
        self._server = ToPLServer(
            epsilon,
            bound,
            holdout,
            max_range,
            threshold=threshold,
            threshold_epsilon=threshold_epsilon,
            publish_epsilon=publish_epsilon,
        )
        self.nonfinite = validation.choice("nonfinite", nonfinite, ("raise", "zero"))
        self._key = Key.choose(seed, key).bind("ToPL", self._arguments)
        self._n_held = self._n_published = 0

    @property
    def server(self) -> ToPLServer:
        """The server that collects and publishes."""
        return self._server

    @property
    def threshold(self) -> float | None:
        """Theta in units of the input; None until the hold-out is complete."""
        return self._server.threshold

    @property
    def holdout(self) -> int:
        """Users before the threshold."""
        return self._server.holdout

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._n_held + self._n_published

    @property
    def n_published(self) -> int:
        """Values published."""
        return self._n_published

    @property
    def guarantee(self) -> Guarantee:
        """Of both groups of users; ``simulated`` with a seed."""
        return replace(self._server.guarantee, simulated=self._key.simulated)

    @exclusive
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
        return self._checked(as_column(chunk), "chunk")

    def _checked(self, values: NDArray[Any], name: str) -> Floats:
        used = max(self._n_held, self._n_published)
        if used + values.size > MAX_START:
            raise StateError(
                f"{name} has {values.size} values after {used}: expected at most {MAX_START} "
                "under one key; go on with a new ToPL"
            )
        finite = np.isfinite(as_floats(values))
        if not finite.all():
            if self.nonfinite == "raise":
                raise DataError(
                    f"{entry_at(name, ~finite, NOT_FINITE)}; expected finite values (or nonfinite='zero')"
                )
            values = np.where(finite, values, 0.0)
        return self._consume(lambda simulation: simulation._publish(values), as_floats(values))

    def _publish(self, values: NDArray[Any]) -> Floats:
        # After an interrupt m reports may be in without a theta.
        self._server.choose()
        held = 0 if self.threshold is not None else min(values.size, self.holdout - self._server.n_collected)
        if held:
            client = self._server.announcement.mechanism
            # The place first: whatever interrupts the rest, no word is used for two values.
            start, self._n_held = self._n_held, self._n_held + held
            self._server.collect(client.perturb(values[:held], key=self._key, start=start))
        if held == values.size:
            return np.empty(0)
        client = self._server.announcement.mechanism
        start, self._n_published = self._n_published, self._n_published + values.size - held
        return self._server.publish(client.perturb(values[held:], key=self._key, start=start))

    @exclusive
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
        published = self._checked(column, "values")
        published.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return LocalRelease(
            published, self.holdout, self.threshold, self.guarantee, value_variance=self._server.value_variance
        )

    # State files.

    @property
    def _consumed(self) -> int:
        return self.n_seen

    @property
    def _arguments(self) -> dict[str, Any]:
        return {**self._server._arguments, "nonfinite": self.nonfinite}

    def _chunk(self, parts: tuple[Any, ...]) -> Chunk:
        values: Floats = parts[0]
        return values

    def _position(self) -> Position:
        counts = {"n_held": self._n_held, "n_published": self._n_published}
        return {"n_seen": self.n_seen, **counts, "server": self._server._position()}

    def _resume(self, saved: Position) -> None:
        self._server._resume(saved["server"])
        self._n_held, self._n_published = codec.whole(saved["n_held"]), codec.whole(saved["n_published"])
        if min(self._n_held, self._n_published) < 0 or saved["n_seen"] != self.n_seen:
            raise ValueError("counts out of range")

    def _led_by(self, values: Chunk) -> Position:
        twin = self._twin(self._key)
        twin._publish(values)
        return twin._position()

    def _take_over(self, twin: Self, **own: Any) -> None:
        counts = {"_n_held": twin._n_held, "_n_published": twin._n_published}
        # Both in one call of the interpreter, between whose parts no interrupt comes.
        both = self.__dict__, self._server.__dict__
        list(map(dict.update, both, (counts | own, twin._server._changing())))
