"""One publisher for every composition of threshold, perturber and smoother.

Source: ToPS section 3.2 (the framework) and Algorithm 1 in the reading of ``docs/tops.md``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.grid import make_grid
from fastdp.inputs import as_column
from fastdp.perturbers import Hierarchy, HierarchyPlan
from fastdp.privacy import Guarantee, parallel
from fastdp.randomness.key import Key
from fastdp.released import Release
from fastdp.smoothers import Smoother
from fastdp.systems.keeping import Keeping, snapshot
from fastdp.systems.pipeline import Pipeline, Progress, TreeNoise
from fastdp.thresholds import Chooser, Threshold, ThresholdTask

Floats = NDArray[np.float64]


class StreamPublisher(Keeping):
    """Publishes a stream of values online under event-level differential privacy.

    Parameters
    ----------
    threshold : Threshold
        Chooses theta from the first ``holdout`` values: a member of :mod:`fastdp.thresholds`.
    perturber : Hierarchy
        Adds noise to the rest, clipped to theta: a member of :mod:`fastdp.perturbers`.
    smoother : Smoother or None
        Predicts the values within a block: a member of :mod:`fastdp.smoothers`.  None only where the
        perturber releases every value (prune = 0).
    epsilon : float
        Budget of the threshold and, on disjoint values, of the perturber.
    bound : float
        Public upper bound of a value, in units of the input; values outside [0, bound] are clipped.
    holdout : int
        m: the first values, which choose theta and are never published.
    max_range : int
        r: no query is meant to span more values; a new tree of noise begins every r published values.
    resolution : float, optional
        Grid step; by default the largest power of two not above bound * 2^-32.
    nonfinite : "raise" or "zero"
        NaN and infinity are refused, or count as 0.
    seed : int or str, optional
        Simulation: noise that anybody can reproduce; the guarantee then says ``simulated``.
    key : Key or 32 bytes, optional
        A secret of your own; by default a fresh one from the operating system.

    Notes
    -----
    Privacy: pure epsilon for one value of the stream (replace one value), exact on this machine; see
    ``guarantee``.  Output does not depend on how the stream is cut into chunks.
    """

    def __init__(
        self,
        *,
        threshold: Threshold,
        perturber: Hierarchy,
        smoother: Smoother | None = None,
        epsilon: float,
        bound: float,
        holdout: int | None = None,
        max_range: int = 2**20,
        resolution: float | None = None,
        nonfinite: str = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        self._compose(
            threshold=threshold,
            perturber=perturber,
            smoother=smoother,
            epsilon=epsilon,
            bound=bound,
            holdout=holdout,
            max_range=max_range,
            resolution=resolution,
            nonfinite=nonfinite,
            key=Key.choose(seed, key),
        )

    def _compose(
        self,
        *,
        threshold: Threshold,
        perturber: Hierarchy,
        smoother: Smoother | None,
        epsilon: float,
        bound: float,
        holdout: int | None,
        max_range: int,
        resolution: float | None,
        nonfinite: str,
        key: Key,
    ) -> None:
        """Check the parameters and take the starting position; loading a state file begins here too."""
        self._epsilon = validation.positive("epsilon", epsilon)
        self._bound = validation.positive("bound", bound)
        self._max_range = validation.integer("max_range", max_range, 1, 2**40)
        self._nonfinite = validation.choice("nonfinite", nonfinite, ("raise", "zero"))
        validation.part("threshold", threshold, "start", "fastdp.thresholds")
        validation.part("perturber", perturber, "plan", "fastdp.perturbers")
        if smoother is not None:
            validation.part("smoother", smoother, "step", "fastdp.smoothers")
        least = 1 if threshold.uses_holdout else 0
        default = 65_536 if threshold.uses_holdout else 0
        self._holdout = validation.integer("holdout", default if holdout is None else holdout, least, 2**50)
        self._threshold = threshold
        self._perturber = perturber
        self._smoother = smoother
        self._plan = perturber.plan(self._epsilon, self._max_range)
        if smoother is None and self._plan.block > 1:
            raise ParameterError(
                f"smoother = None: expected a smoother, because the perturber releases blocks of {self._plan.block} "
                "values (or prune=0)"
            )
        self._grid = make_grid(
            self._bound, resolution, self._epsilon, self._max_range, self._plan.levels, self._plan.fan_out
        )
        self._task = ThresholdTask(self._epsilon, self._bound, self._holdout, self._max_range)
        self._chooser: Chooser = threshold.start(self._task)
        self._key = key
        self._pipeline = Pipeline(self._plan, self._grid, perturber, smoother, self._epsilon, key)
        self._copies = 0
        self._noise: TreeNoise | None = None
        self._progress = Progress()
        self._keeper = None
        self._loaded = None
        self._replay = None
        if self._holdout == 0:
            self._progress = self._pipeline.open(self._progress, self._chooser.choose(self._key))

    # What the publisher is and where it stands.

    @property
    def epsilon(self) -> float:
        """The privacy budget."""
        return self._epsilon

    @property
    def bound(self) -> float:
        """Public upper bound of a value."""
        return self._bound

    @property
    def holdout(self) -> int:
        """Length of the hold-out."""
        return self._holdout

    @property
    def max_range(self) -> int:
        """Longest query."""
        return self._max_range

    @property
    def resolution(self) -> float:
        """Grid step, in units of the input."""
        return self._grid.resolution

    @property
    def plan(self) -> HierarchyPlan:
        """Public shape of the hierarchy: levels, block length, leaves."""
        return self._plan

    @property
    def threshold(self) -> float | None:
        """Theta in units of the input; None until the hold-out is complete."""
        steps = self._progress.theta_steps
        return steps * self._grid.resolution if steps else None

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._progress.n_seen

    @property
    def n_published(self) -> int:
        """Values published."""
        return max(0, self._progress.n_seen - self._holdout)

    @property
    def guarantee(self) -> Guarantee:
        """What the whole endless stream promises, derived from the parts."""
        chosen = self._threshold.guarantee(self._task)
        published = self._perturber.guarantee(self._plan, self._epsilon).of("perturber")
        whole = published if chosen is None else parallel(chosen.of("threshold"), published)
        return replace(whole, simulated=self._key.simulated)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(epsilon={self._epsilon:g}, bound={self._bound:g}, holdout={self._holdout}, "
            f"max_range={self._max_range}, n_seen={self.n_seen}, threshold={self.threshold})"
        )

    # Publishing.

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
        values = as_column(chunk)
        return self._publish(values, out)

    def _publish(self, values: Floats, out: Floats | None, name: str = "chunk") -> Floats:
        if self._replay is not None:
            self._replay.check(values, self._key)
        held = min(values.size, max(0, self._holdout - self._progress.n_seen))
        progress, chooser, pipeline = self._progress, self._chooser, self._pipeline
        before = snapshot(progress, chooser) if self._keeper is not None else None
        body = values[held:]
        # Before the hold-out is counted: a refused ``out`` must leave no trace.
        target = self._target(out, values, body.size)
        if held:
            head = values[:held] if np.isfinite(values[:held]).all() else self._mend(values[:held], 0, name)
            completes = progress.n_seen + held == self._holdout
            # The chunk can still be rejected behind the hold-out, or its state file not be written.
            chooser = chooser.copy() if completes or self._keeper is not None else chooser
            chooser.observe(head)
            progress = replace(progress, n_seen=progress.n_seen + held)
            if completes:
                progress = pipeline.open(progress, chooser.choose(self._key))
        # A kept publisher's outputs leave, even into the caller's array, only after its state is on disk.
        published = target if self._keeper is None else np.empty(body.size)
        noise = self._noise
        if body.size:
            following, noise, bad = pipeline.step(progress, noise, body, published)
            if bad:
                # A mended chunk gets the same noise: what came out here must not be seen as well.
                published.fill(np.nan)
                following, noise, _ = pipeline.step(progress, noise, self._mend(body, held, name), published)
            progress = following
        if self._keeper is not None and values.size:
            self._keeper.write(self._content(progress, chooser, before, values))
            if out is not None:
                target[:] = published
        self._progress, self._chooser, self._noise, self._replay = progress, chooser, noise, None
        return published if out is None else target

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
        if self.n_seen:
            raise StateError(
                f"release() on a publisher that has seen {self.n_seen} values: expected a fresh one (use publish())"
            )
        column = as_column(values, "values")
        if column.size <= self._holdout:
            raise DataError(
                f"values has {column.size} entries: expected more than the hold-out of {self._holdout}, "
                "which is never published (choose a smaller holdout)"
            )
        published = self._publish(column, None, "values")
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return Release(
            values=published,
            offset=self._holdout,
            threshold=self.threshold,
            guarantee=self.guarantee,
            block=self._plan.block,
        )

    def _target(self, out: Any, values: Floats, size: int) -> Floats:
        if out is None:
            return np.empty(size)
        usable = isinstance(out, np.ndarray) and out.dtype == np.float64 and out.ndim == 1
        if not usable or not out.flags.c_contiguous or not out.flags.writeable or out.size < size:
            raise ParameterError(f"out: expected a writable, contiguous float64 array of at least {size} entries")
        if np.may_share_memory(out, values):
            raise ParameterError("out: expected memory of its own, it overlaps the chunk")
        target: Floats = out[:size]
        return target

    def _mend(self, values: Floats, before: int, name: str) -> Floats:
        """Zeros for NaN and infinity, or the error that names the first of them."""
        wrong = ~np.isfinite(values)
        if self._nonfinite == "raise":
            first = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{name}[{before + first}] = {values[first]}: expected finite values "
                "(or construct the publisher with nonfinite='zero')"
            )
        return np.where(wrong, 0.0, values)

    # Copies: never the same noise twice.

    def __copy__(self) -> Self:
        return self._rekeyed_copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self._rekeyed_copy()

    def _rekeyed_copy(self) -> Self:
        """An independent publisher at the same place with noise of its own.

        Equal noise on different values would reveal their difference, so a copy never keeps the key.
        """
        twin = object.__new__(type(self))
        self._copies += 1
        twin.__dict__.update(self.__dict__)
        twin._key = self._key.derive("copy", self._copies) if self._key.simulated else Key.random()
        twin._pipeline = replace(self._pipeline, key=twin._key)
        twin._chooser = self._chooser.copy()
        twin._noise = None
        twin._copies = 0
        twin._keeper = twin._loaded = twin._replay = None
        return twin

    def __reduce__(self) -> NoReturn:
        raise StateError(
            f"a {type(self).__name__} cannot be pickled: the noise key would be neither encrypted nor owner-only; "
            "use save(path, key) and load(path, key)"
        )
