"""One publisher for every composition of threshold, perturber and smoother.

Source: ToPS section 3.2 (the framework) and Algorithm 1 in the reading of ``docs/tops.md``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.column import NOT_FINITE, Nonfinite, as_column, as_floats
from fastdp.arrays.whole import as_whole
from fastdp.errors import DataError, ParameterError
from fastdp.perturbers import Perturber
from fastdp.randomness.key import Key
from fastdp.releases.release import Release, ReleasedNodes
from fastdp.smoothers import Smoother
from fastdp.state import persistence
from fastdp.state.single_caller import exclusive
from fastdp.systems.stream.adaptive_blocks import AdaptiveBlocks
from fastdp.systems.stream.fixed_blocks import FixedBlocks, Step, next_chain
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.systems.stream.stages import Output, Schedule, position, restore
from fastdp.systems.stream.view import StreamView
from fastdp.thresholds import Threshold
from fastdp.thresholds.fixed import as_rule
from fastdp.thresholds.renewals import Renewal

if TYPE_CHECKING:
    from fastdp.systems.stream.repeat import Repetitions

Floats = NDArray[np.float64]


class StreamPublisher(StreamView):
    """Publishes a stream of values online under event-level differential privacy.

    Parameters
    ----------
    threshold : Threshold or float
        Chooses theta from the first ``holdout`` values: a member of :mod:`fastdp.thresholds`.  A number is a
        publicly known threshold, ``Fixed(number)``.
    perturber : Perturber
        Adds noise to the rest, clipped to theta: a member of :mod:`fastdp.perturbers`.
    smoother : Smoother or None
        Predicts the values within a block: a member of :mod:`fastdp.smoothers`.  None only where the
        perturber releases every value (prune = 0).
    epsilon : float
        Budget of the threshold and, on disjoint values, of the perturber.
    bound : float
        Public upper bound of a value, in units of the input; values outside [0, bound] are clipped.
    holdout : int
        m: the first values, which choose theta; published values begin after them.  :class:`fastdp.perturbers.Blocks`
        releases up to an eighth of them as noisy sums instead.
    max_range : int
        r: no query is meant to span more values; a new tree of noise begins every r published values, rounded
        up to whole blocks.
    resolution : float, optional
        Grid step; by default the largest power of two not above bound * 2^-32.
    nonfinite : "raise" or "zero"
        NaN and infinity are refused, or count as 0.
    renewal : Renewal, optional
        Lets theta follow the stream: a member of :mod:`fastdp.thresholds.renewals`.  By default it is chosen once.
    seed : int or str, optional
        Simulation: noise that anybody can reproduce; the guarantee then says ``simulated``.
    key : Key or 32 bytes, optional
        A secret of your own; by default a fresh one from the operating system.

    Notes
    -----
    Privacy: what ``guarantee`` says, for one value of the stream (replace one value): pure epsilon and exact on this
    machine with ``NoisyMax`` or ``Fixed``; the quantile thresholds add a delta or rest on real arithmetic.
    Output does not depend on how the stream is cut into chunks.
    """

    _PLAN: ClassVar[type[StreamParameters]] = StreamParameters

    def __init__(
        self,
        *,
        threshold: Threshold | float,
        perturber: Perturber,
        smoother: Smoother | None = None,
        epsilon: float,
        bound: float,
        holdout: int | None = None,
        max_range: int = 2**20,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        renewal: Renewal | None = None,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        composition = StreamParameters(
            *(as_rule(threshold), perturber, smoother, epsilon, bound, holdout, max_range, resolution),
            *(nonfinite, renewal),
        )
        self._begin(composition, composition.noise_key(Key.choose(seed, key)))

    def _begin(self, composition: StreamParameters, key: Key) -> None:
        """Take the starting position; loading a state file begins here too."""
        StreamView.__init__(self)
        self._composition = composition
        self._key = key
        self._course = Schedule(composition, key)
        self._standing = self._course.begin()

    # Publishing.

    @exclusive
    def publish(self, chunk: Any, *, out: Floats | None = None) -> Floats:
        """Consume the next values of the stream and publish one value for each after the hold-out.

        Parameters
        ----------
        chunk : array-like
            Any number of values, none included: a list, NumPy array, pandas or polars series, Arrow array.
        out : float64[>= number of values], optional
            Receives the published values, to save an allocation.

        Returns
        -------
        float64[n]
            One published value per value after the hold-out, in units of the input (a view of ``out`` if
            given).

        Raises
        ------
        DataError
            If the chunk is no column of real numbers, or holds NaN or infinity (with ``nonfinite="raise"``).
            The publisher is then as it was; the mended chunk continues the stream.
        """
        return self._publish(as_column(chunk), out)

    def _publish(self, values: NDArray[Any], out: Floats | None, name: str = "chunk") -> Floats:
        return self._advance(values, out, name)[0]

    def _advance(self, values: NDArray[Any], out: Floats | None, name: str) -> tuple[Floats, list[Output]]:
        """Prepare everything in private, record it, then let it leave.

        Whatever interrupts this, no output leaves before its place in the stream is recorded, so the same
        noise never meets other values; and no value of the hold-out is counted twice.
        """
        kept = self._files.kept
        if self._replay is not None:
            self._check_replay(as_floats(values))
        target = self._target(out, values, values.size - min(values.size, max(0, self.holdout - self.n_seen)))
        journey = self._course.follow(
            self._standing, values, lambda part, at: self._replace_nonfinite(part, at, name)
        )
        steps = journey.steps
        if kept is not None and values.size:
            standing = journey.settled()
            digest = self._write_ahead(as_floats(values), position(standing))
            # One step: an interrupt leaves the chunk consumed or not, never half of it.
            self.__dict__.update(_standing=standing, _replay=None, _digest=digest)
        else:
            # Recorded first: whatever interrupts the chooser now, no value is counted twice.
            self._standing = journey.standing
            journey.observe()
            self._replay = None
        if out is None and len(steps) == 1 and isinstance(steps[0], Step) and steps[0].predictions is None:
            return steps[0].totals, steps
        begin = 0
        for step in steps:
            step.emit(target[begin : begin + step.count])
            begin += step.count
        return target, steps

    @exclusive
    def release(self, values: Any) -> Release:
        """Publish a whole array at once (a fresh publisher only).

        Parameters
        ----------
        values : array-like
            Longer than the hold-out.

        Returns
        -------
        Release
            Bit for bit what :meth:`publish` gives for any chunking.
        """
        column = as_whole(values, self.n_seen, self.holdout)
        # Nodes are summed after the values were published: both must see the same memory, whoever else writes.
        column = column.copy() if self._composition.perturber.released_nodes else column
        published, steps = self._advance(column, None, "values")
        nodes, pipeline = self._nodes(column), self._course.pipeline
        revision = None
        if isinstance(pipeline, AdaptiveBlocks):
            revision = pipeline.revised(steps, self._progress.theta_steps)
        published.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return Release(
            values=published,
            offset=self.holdout,
            threshold=self.threshold,
            guarantee=self.guarantee,
            block=self.plan.block,
            nodes=nodes,
            revision=revision,
        )

    @exclusive
    def repeat(
        self,
        values: Any,
        repetitions: int,
        *,
        queries: tuple[Any, Any] | None = None,
        first: int = 0,
        threads: int = 1,
        progress: bool = False,
    ) -> Repetitions:
        """Release the same array many times, to simulate; what is not noise is done once for all (a seed only).

        Parameters
        ----------
        values : array-like
            Longer than the hold-out.
        repetitions : int
            How many, at least 1.
        queries : (starts, stops), optional
            Ranges [start, stop) as :meth:`Release.range_sum` takes them; then only their answers are kept.
            Without queries all published values are: 8 bytes a value and repetition.
        first : int
            Number of the first repetition, to go on where a call before ended.
        threads : int
            How many work at once; the output does not depend on it.
        progress : bool
            Whether a bar shows on standard error.

        Returns
        -------
        Repetitions
            Repetition k is bit for bit what a publisher with the same parameters and
            ``key=Key.from_seed(seed).of_stream(k)`` releases.

        Raises
        ------
        ParameterError
            Also if the publisher has no seed: repetitions of a real release would each cost epsilon again; and
            if it renews its threshold.
        """
        from fastdp.systems.stream.repeat import Repeater

        repeater = Repeater.checked(self._composition, self._key, repetitions, first, threads, progress)
        floats = as_floats(as_whole(values, self.n_seen, self.holdout))
        finite = floats if np.isfinite(floats).all() else self._replace_nonfinite(floats, 0, "values")
        return repeater.run(as_floats(finite), queries)

    def _nodes(self, column: NDArray[Any]) -> ReleasedNodes | None:
        if not self._composition.perturber.released_nodes:
            return None
        body = as_floats(column[self.holdout :])
        finite = body if np.isfinite(body).all() else self._replace_nonfinite(body, self.holdout, "values")
        pipeline = self._course.pipeline
        assert isinstance(pipeline, FixedBlocks)  # noqa: S101 - others release no nodes
        return pipeline.released_nodes(self._progress.theta_steps, finite)

    def _target(self, out: Any, values: NDArray[Any], size: int) -> Floats:
        if out is None:
            return np.empty(size)
        usable = isinstance(out, np.ndarray) and out.dtype == np.float64 and out.ndim == 1
        if not usable or not out.flags.c_contiguous or not out.flags.writeable or out.size < size:
            raise ParameterError(f"out: expected a writable, contiguous float64 array of at least {size} entries")
        if np.may_share_memory(out, values):
            raise ParameterError("out: expected memory of its own, it overlaps the chunk")
        target: Floats = out[:size]
        return target

    def _replace_nonfinite(self, values: Floats, before: int, name: str) -> Floats:
        """Zeros for NaN and infinity, or the error that names the first of them."""
        wrong = ~np.isfinite(values)
        if self._composition.nonfinite == "raise":
            first = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{name}[{before + first}]: {NOT_FINITE}; expected finite values "
                "(nonfinite='zero' makes them count as 0)"
            )
        return np.where(wrong, 0.0, values)

    # State files.

    @property
    def _public(self) -> StreamParameters:
        return self._composition

    @classmethod
    def _loads(cls, content: dict[str, Any]) -> bool:
        # The parts are in the file: a ToPS loads as what it is composed of, too.
        composed = cls is StreamPublisher and "perturber" in content["composition"]
        return composed or super()._loads(content)

    def _position(self) -> persistence.Position:
        return position(self._standing)

    def _resume(self, saved: persistence.Position) -> None:
        self._standing = restore(saved, self._course)

    def _led_by(self, values: persistence.Chunk) -> persistence.Position:
        journey = self._course.follow(
            self._standing, values, lambda part, at: self._replace_nonfinite(part, at, "chunk")
        )
        return position(journey.settled())

    def _twin(self, key: Key) -> Self:
        twin = self._fresh(key)
        standing = self._standing.forked()
        progress, pipeline = standing.progress, twin._course.pipeline
        if progress.theta_steps and key is not self._key:
            chain = next_chain(pipeline.perturber, key, progress.theta_steps, pipeline.epsilon, progress.chain)
            progress = replace(progress, chain=chain)
        # Not the noise: it belongs to the key.
        twin._standing = replace(standing, progress=progress, noise=None)
        return twin
