"""The publisher of streams for every composition (ToPS section 3.2, Algorithm 1; ``docs/streams.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from fastdp import validation
from fastdp.data.column import Nonfinite, as_column, as_whole
from fastdp.data.frames import source_of
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Json, Values
from fastdp.noise.key import Key
from fastdp.perturbers import HierarchyShape, Perturber
from fastdp.releases.release import Release
from fastdp.smoothers import Smoother
from fastdp.state.driver import Publisher
from fastdp.state.machine import Column, record, single_caller
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.columns import Streams as State
from fastdp.streams.fixed_blocks import FixedBlocks
from fastdp.streams.parameters import DEFAULT_RANGE, StreamParameters, composed
from fastdp.streams.stream_machine import Schedule
from fastdp.thresholds import Threshold
from fastdp.thresholds.renewals import Renewal

if TYPE_CHECKING:
    from fastdp.data.frames import StreamColumns, Streams


def _public(name: str) -> Any:
    return property(attrgetter(f"_machine.composition.{name}"), doc=f"The parameter ``{name}``.")


class StreamPublisher(Publisher[State]):
    """Publishes a stream of values online under event-level differential privacy.

    Parameters
    ----------
    threshold : Threshold or float, optional
        Of :mod:`fastdp.thresholds`, by default that of the method with this perturber: chooses theta from the first
        values.  A number is publicly known.
    perturber : Perturber
        Of :mod:`fastdp.perturbers`: adds noise to the rest.
    smoother : Smoother or None
        Of :mod:`fastdp.smoothers`: predicts the values within a block; None if the perturber releases every value.
    epsilon : float
        Budget of the threshold and, on disjoint values, of the perturber.
    bound : float
        Public upper bound of a value, in units of the input; None with a sensitivity.
    holdout : int, optional
        m: the first values, which choose theta or, up to an eighth with :class:`fastdp.perturbers.Blocks`, are
        released as sums.  By default 65,536; 0 with a fixed threshold.
    max_range : int
        r: the longest query; a new tree of noise begins every r published values, in full blocks.
    resolution : float, optional
        Grid step; by default the largest power of two not above bound * 2^-32.
    nonfinite : "raise" or "zero"
        NaN and infinity are refused, or count as 0.
    renewal : Renewal, optional
        Lets theta follow the stream: of :mod:`fastdp.thresholds.renewals`.
    contributions : int
        w: epsilon is for any w consecutive values together (w-event privacy), whose noise is w times as wide.
    delta : float
        Probability that epsilon may fail, with Gaussian noise, such as ``Hierarchy(noise="gaussian")``.
    sensitivity : float, optional
        Largest change of a value by one event: see :class:`fastdp.Adaptive`.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Privacy: pure epsilon, exact on this machine, with ``NoisyMax``, ``ScaleFree`` or ``Fixed`` and Laplace noise;
    quantile thresholds add a delta or rest on real arithmetic.  Output does not depend on chunking.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.StreamPublisher(
    ...     threshold=fastdp.thresholds.Fixed(40.0),
    ...     perturber=fastdp.perturbers.Hierarchy(),
    ...     smoother=fastdp.smoothers.Recent(),
    ...     epsilon=1.0, bound=100.0, max_range=4096, seed=1,
    ... )
    >>> publisher.publish(np.full(1500, 20.0)).size
    1500
    """

    _MACHINE: ClassVar[Any] = Schedule
    _machine: Schedule
    epsilon: float = _public("epsilon")
    delta: float = _public("delta")
    bound: float | None = _public("bound")
    sensitivity: float | None = _public("sensitivity")
    contributions: int = _public("contributions")
    holdout: int = _public("holdout")
    max_range: int = _public("max_range")
    resolution: float = _public("resolution")
    #: Secret of :meth:`release_many`, until it has released.
    _secret: Key | None = None

    @validation.plain
    def __init__(
        self,
        *,
        threshold: Threshold | float | None = None,
        perturber: Perturber,
        smoother: Smoother | None = None,
        epsilon: float,
        bound: float | None = None,
        holdout: int | None = None,
        max_range: int = DEFAULT_RANGE,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        renewal: Renewal | None = None,
        contributions: int = 1,
        sensitivity: float | None = None,
        delta: float = 0.0,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        composition = composed(
            threshold=threshold,
            perturber=perturber,
            smoother=smoother,
            epsilon=epsilon,
            bound=bound,
            holdout=holdout,
            max_range=max_range,
            resolution=resolution,
            nonfinite=nonfinite,
            renewal=renewal,
            contributions=contributions,
            sensitivity=sensitivity,
            delta=delta,
        )
        self._compose(composition, seed, key)

    def _compose(self, composition: StreamParameters, seed: int | str | None, key: Key | bytes | None) -> None:
        self._secret = Key.choose(seed, key)
        self._begin(Schedule(composition), composition.noise_key(self._secret))

    # Parameters and progress.

    @property
    def composition(self) -> StreamParameters:
        """Threshold, perturber and smoother with all parameters."""
        return self._machine.composition

    @property
    def plan(self) -> HierarchyShape:
        """Public shape of the hierarchy."""
        return self.composition.plan

    @property
    def block(self) -> int:
        """g, the number of values in the next block to close."""
        pipeline = self._pipeline
        return pipeline.block(self._state) if isinstance(pipeline, AdaptiveBlocks) else self.plan.block

    @property
    def threshold(self) -> float | None:
        """The current theta; None during the hold-out."""
        steps = self._pipeline.steps(self._state)
        return steps * self.resolution if steps else None

    @property
    def n_seen(self) -> int:
        """Number of values consumed, the hold-out included."""
        return int(self._state.rows["n_seen"][0])

    @property
    def n_published(self) -> int:
        """Number of values published."""
        return max(0, self.n_seen - self.holdout)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the endless stream."""
        return self.composition.guarantee(simulated=self._key.simulated)

    @property
    def _pipeline(self) -> FixedBlocks | AdaptiveBlocks:
        return self._machine.pipeline(self._key)

    def __repr__(self) -> str:
        size = f"bound={self.bound:g}" if self.bound is not None else f"sensitivity={self.sensitivity:g}"
        together = f"contributions={self.contributions}, " if self.contributions > 1 else ""
        return (
            f"{type(self).__name__}(epsilon={self.epsilon:g}, {size}, {together}holdout={self.holdout}, "
            f"max_range={self.max_range}, n_seen={self.n_seen}, threshold={self.threshold})"
        )

    # Publishing.

    @single_caller
    def publish(self, chunk: Values) -> Floats:
        """Consume the next values and publish one for each after the hold-out.

        Parameters
        ----------
        chunk : array-like
            Any number of values: a list, NumPy array, pandas or polars series, Arrow array.

        Returns
        -------
        float64[n]
            In units of the input.

        Raises
        ------
        DataError
            For no column of real numbers, or NaN or infinity (``nonfinite="raise"``); the publisher is unchanged.
        """
        published: Floats = self._take(record(Column, (as_column(chunk), "chunk", False)))()
        return published

    @single_caller
    def release(self, values: Values) -> Release:
        """Publish a full array, longer than the hold-out (a fresh publisher only)."""
        column = as_whole(values, self.n_seen, self.holdout)
        # Nodes are summed after the values were published: both must see the same memory, even if a thread writes.
        column = column.copy() if self.composition.perturber.released_nodes else column
        made: Release = self._take(Column(column, "values", finished=True))()
        return replace(made, source=source_of(values))

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
        from fastdp.data.frames import as_streams

        threads = validation.threads(threads)
        return self._release_many(as_streams(streams, offsets, value, by, time), ids, threads)

    def _release_many(self, streams: Streams, ids: object, threads: int) -> Release:
        from fastdp.streams.release_many import release_rows, unused

        made = release_rows(self.composition, unused(self._secret), streams, ids, threads)
        self._secret = None
        return made

    @classmethod
    def _fits(cls, content: Json, kind: Any) -> bool:
        # The file names the components, so a ToPS also loads as a StreamPublisher.
        composed = cls is StreamPublisher and "perturber" in content["composition"]
        return composed or super()._fits(content, kind)
