"""One publisher for every composition of threshold, perturber and smoother.

Source: ToPS section 3.2 (the framework) and Algorithm 1 in the reading of ``docs/tops.md``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError, ParameterError, StateError
from fastdp.inputs import as_column, as_floats, pieces
from fastdp.perturbers import HierarchyPlan, Perturber
from fastdp.privacy import Guarantee
from fastdp.randomness.key import Key
from fastdp.released import Release, ReleasedNodes
from fastdp.smoothers import Smoother
from fastdp.statefile import StateFile
from fastdp.systems import persistence
from fastdp.systems.alone import Alone
from fastdp.systems.composition import Composition
from fastdp.systems.pipeline import Pipeline, Progress, TreeNoise
from fastdp.thresholds import Chooser, Threshold

Floats = NDArray[np.float64]


class StreamPublisher(Alone):
    """Publishes a stream of values online under event-level differential privacy.

    Parameters
    ----------
    threshold : Threshold
        Chooses theta from the first ``holdout`` values: a member of :mod:`fastdp.thresholds`.
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
        m: the first values, which choose theta and are never published.
    max_range : int
        r: no query is meant to span more values; a new tree of noise begins every r published values, rounded
        up to whole blocks.
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
    Privacy: what ``guarantee`` says, for one value of the stream (replace one value): pure epsilon and exact on this
    machine with ``NoisyMax`` or ``Fixed``; the quantile thresholds add a delta or rest on real arithmetic.
    Output does not depend on how the stream is cut into chunks.
    """

    def __init__(
        self,
        *,
        threshold: Threshold,
        perturber: Perturber,
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
        composition = Composition(
            threshold, perturber, smoother, epsilon, bound, holdout, max_range, resolution, nonfinite
        )
        self._begin(composition, Key.choose(seed, key))

    def _begin(self, composition: Composition, key: Key) -> None:
        """Take the starting position; loading a state file begins here too."""
        Alone.__init__(self)
        self._composition = composition
        self._key = key
        self._pipeline = Pipeline(
            composition.plan, composition.grid, composition.perturber, composition.smoother, composition.epsilon, key
        )
        self._chooser: Chooser = composition.threshold.start(composition.task)
        self._progress = Progress()
        self._noise: TreeNoise | None = None
        self._copies = 0
        self._files = persistence.StateFiles()
        self._replay: persistence.Replay | None = None
        if self.holdout == 0:
            self._progress = self._pipeline.open(self._progress, self._chooser.choose(key))

    # What the publisher is and where it stands.

    @property
    def epsilon(self) -> float:
        """The privacy budget."""
        return self._composition.epsilon

    @property
    def bound(self) -> float:
        """Public upper bound of a value."""
        return self._composition.bound

    @property
    def holdout(self) -> int:
        """Length of the hold-out."""
        return self._composition.task.holdout

    @property
    def max_range(self) -> int:
        """Longest query."""
        return self._composition.max_range

    @property
    def resolution(self) -> float:
        """Grid step, in units of the input."""
        return self._composition.grid.resolution

    @property
    def plan(self) -> HierarchyPlan:
        """Public shape of the hierarchy: levels, block length, leaves."""
        return self._composition.plan

    @property
    def threshold(self) -> float | None:
        """Theta in units of the input; None until the hold-out is complete."""
        steps = self._progress.theta_steps
        return steps * self.resolution if steps else None

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._progress.n_seen

    @property
    def n_published(self) -> int:
        """Values published."""
        return max(0, self._progress.n_seen - self.holdout)

    @property
    def guarantee(self) -> Guarantee:
        """What the whole endless stream promises, derived from the parts."""
        return self._composition.guarantee(simulated=self._key.simulated)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(epsilon={self.epsilon:g}, bound={self.bound:g}, holdout={self.holdout}, "
            f"max_range={self.max_range}, n_seen={self.n_seen}, threshold={self.threshold})"
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
        with self._alone():
            return self._publish(as_column(chunk), out)

    def _publish(self, values: NDArray[Any], out: Floats | None, name: str = "chunk") -> Floats:
        """Prepare everything in private, record it, then let it leave.

        Whatever interrupts this, no output leaves before its place in the stream is recorded, so the same
        noise never meets other values; and no value of the hold-out is counted twice.
        """
        kept = self._files.kept
        if self._replay is not None:
            self._replay.check(as_floats(values), self._key)
        held = min(values.size, max(0, self.holdout - self._progress.n_seen))
        body = values[held:]
        target = self._target(out, values, body.size)
        progress, chooser = self._progress, self._chooser
        head = as_floats(values[:held])
        if held:
            head = head if np.isfinite(head).all() else self._mend(head, 0, name)
            progress = replace(progress, n_seen=progress.n_seen + held)
            if progress.n_seen < self.holdout and kept is None:
                self._progress = progress
                chooser.observe(head)
                return target
            chooser = chooser.copy()
            chooser.observe(head)
            if progress.n_seen == self.holdout:
                progress = self._pipeline.open(progress, chooser.choose(self._key))
        steps, noise = [], self._noise
        for begin, piece in pieces(body):
            step = self._pipeline.prepare(progress, noise, piece)
            if step is None:
                step = self._pipeline.prepare(progress, noise, self._mend(piece, held + begin, name))
            assert step is not None  # noqa: S101 - mended values are finite
            progress, noise = step.following, step.noise
            steps.append(step)
        if kept is not None and values.size:
            self._record(kept, progress, chooser, as_floats(values))
        self._progress, self._chooser, self._noise, self._replay = progress, chooser, noise, None
        if out is None and len(steps) == 1 and steps[0].predictions is None:
            return steps[0].totals
        begin = 0
        for step in steps:
            self._pipeline.emit(step, target[begin : begin + step.count])
            begin += step.count
        return target

    def _record(self, kept: StateFile, progress: Progress, chooser: Chooser, values: Floats) -> None:
        """Write ahead: the position before and after a chunk, and the chunk's fingerprint."""
        now = persistence.position(progress, chooser)
        before = self._files.position_at(self.n_seen) or persistence.position(self._progress, self._chooser)
        chunk = persistence.Replay.of(values, self._key)
        self._files.write(kept, self._content(kept=True, now=now, before=before, chunk=chunk))

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
        if column.size <= self.holdout:
            hint = " (choose a smaller holdout)" if self.holdout > 1 else ""
            raise DataError(
                f"values has {column.size} entries: expected more than the hold-out of {self.holdout}, "
                f"which is never published{hint}"
            )
        # Nodes are summed after the values were published: both must see the same memory, whoever else writes to it.
        column = column.copy() if self._composition.perturber.released_nodes else column
        with self._alone():
            published = self._publish(column, None, "values")
            nodes = self._nodes(column)
        published.flags.writeable = False
        assert self.threshold is not None  # noqa: S101 - the hold-out is complete
        return Release(
            values=published,
            offset=self.holdout,
            threshold=self.threshold,
            guarantee=self.guarantee,
            block=self.plan.block,
            nodes=nodes,
        )

    def _nodes(self, column: NDArray[Any]) -> ReleasedNodes | None:
        if not self._composition.perturber.released_nodes:
            return None
        body = as_floats(column[self.holdout :])
        finite = body if np.isfinite(body).all() else self._mend(body, self.holdout, "values")
        return self._pipeline.released_nodes(self._progress.theta_steps, finite)

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

    def _mend(self, values: Floats, before: int, name: str) -> Floats:
        """Zeros for NaN and infinity, or the error that names the first of them."""
        wrong = ~np.isfinite(values)
        if self._composition.nonfinite == "raise":
            first = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{name}[{before + first}] = {values[first]}: expected finite values "
                "(nonfinite='zero' makes them count as 0)"
            )
        return np.where(wrong, 0.0, values)

    # State files.

    def save(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """Write the publisher's state to a file, once.

        Parameters
        ----------
        path : path
            Replaced atomically; readable by the owner alone.  It must be new, or a file of this publisher.
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates the file (AES-256-GCM).  Without it the file is in the clear: whoever
            reads it has the noise (so with the outputs the data), the hold-out's histogram and the open block's
            exact sum.

        Raises
        ------
        StateError
            If the file belongs to another publisher or cannot be written.

        Notes
        -----
        What is published after the save is not in the file: going on from it with other values than those
        published gives them the same noise and reveals the difference.  :meth:`keep` closes that gap.
        """
        file = StateFile(path, key)
        with self._alone():
            self._refuse_replay("save")
            same = self._files.kept is not None and self._files.kept.real == file.real
            self._files.write(file, self._content(kept=same))

    def keep(self, path: str | os.PathLike[str], key: bytes | str | None = None) -> None:
        """From now on, save the state before every :meth:`publish` returns (write-ahead).

        Parameters, errors as for :meth:`save`.  A publisher loaded from a kept file keeps it already.  If a
        write fails, ``publish`` raises and the chunk is not consumed.
        """
        file = StateFile(path, key)
        with self._alone():
            self._refuse_replay("keep")
            self._files.write(file, self._content(kept=True))
            self._files.kept = file

    def _refuse_replay(self, call: str) -> None:
        """A file without the recorded chunk would let altered values pass."""
        if self._replay is not None:
            raise StateError(f"{call}() on a publisher that waits for a replay: expected the recorded chunk first")

    @classmethod
    def load(cls, path: str | os.PathLike[str], key: bytes | str | None = None, *, replay: bool = False) -> Self:
        """A publisher that continues exactly where a saved one stood; from a kept file, it keeps the file too.

        Parameters
        ----------
        path, key
            As given to :meth:`save` or :meth:`keep`.
        replay : bool
            False: continue after the last chunk recorded.  True: go back to the start of that chunk, because
            its outputs were lost; the same values must then come again in one call, are checked against
            their fingerprint, and give the same outputs.

        Raises
        ------
        StateError
            If the file is missing, cut short, altered, of another version or publisher, or the key is wrong.
        """
        file = StateFile(path, key)
        content, header = persistence.read(file)
        name = repr(os.fspath(path))
        if content["class"] != cls.__name__ and cls is not StreamPublisher:
            raise StateError(f"state file {name} holds a {content['class']}: expected a {cls.__name__}")
        if replay and content["before"] is None:
            raise StateError(f"state file {name} records no chunk to replay: expected replay=False")
        publisher = object.__new__(cls)
        with persistence.trusting(name):
            secret = Key(bytes.fromhex(content["secret"]), simulated=content["simulated"])
            publisher._begin(Composition.from_description(content["composition"]), secret)
            saved = content["before" if replay else "now"]
            publisher._progress = persistence.restore(saved, publisher._chooser, publisher._composition)
            publisher._replay = persistence.Replay(**content["chunk"]) if replay else None
            publisher._files = persistence.StateFiles(file, header, saved, kept=content["kept"])
        return publisher

    def _content(self, *, kept: bool, now: persistence.Position | None = None, **chunk: Any) -> dict[str, Any]:
        """What a state file holds of this publisher."""
        now = persistence.position(self._progress, self._chooser) if now is None else now
        return persistence.content(type(self).__name__, self._composition, self._key, now, kept=kept, **chunk)

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
        with self._alone():
            self._copies += 1
            key = self._key.derive("copy", self._copies) if self._key.simulated else Key.random()
            twin = object.__new__(type(self))
            twin._begin(self._composition, key)
            twin._progress, twin._chooser = self._progress, self._chooser.copy()
            return twin

    def __reduce__(self) -> NoReturn:
        raise StateError(
            f"a {type(self).__name__} cannot be pickled: the noise key would be neither encrypted nor owner-only; "
            "use save(path, key) and load(path, key)"
        )
