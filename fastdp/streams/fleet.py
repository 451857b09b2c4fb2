"""Fleet: one publisher for many keyed streams (meters, devices, shops), whose state is arrays.

Source: the project's design of fleets, section 1; noise as in ``docs/privacy.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from fastdp import validation
from fastdp.counters import RunningCounts
from fastdp.data.column import as_column, as_finite, as_floats, entry_at
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Indices, Values
from fastdp.noise.key import Key
from fastdp.state.driver import Publisher
from fastdp.state.machine import CallGuard, Machine, single_caller
from fastdp.streams.adaptive_rows import AdaptiveRows
from fastdp.streams.fleet_streams import MACHINES, Streams
from fastdp.streams.ids import as_ids, parts_of
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.release_many import guarantee_of_many

#: Ids or values, one a row.
Column: TypeAlias = Values | Sequence[object]
_PUBLISHERS: dict[str, type[StreamPublisher | RunningCounts]] = {
    "Schedule": StreamPublisher,
    "CountMachine": RunningCounts,
}


class Fleet:
    """Publishes many streams, each under the same mechanism with its own noise.

    Parameters
    ----------
    parameters : Publisher or Machine
        The mechanism: a publisher before its first value, whose key is not used, such as
        ``fastdp.Adaptive(epsilon=0.5, bound=100, threshold=20.0)``.  It must take columns of values or one value a
        call:
        the streams of :mod:`fastdp.streams`, :class:`fastdp.counters.RunningCounts` of one sum, or your own.
    key : Key or 32 bytes, optional
        The secret of all streams; by default a fresh one from the operating system.
    seed : int or str, optional
        Simulation: noise that anyone can reproduce.
    threads : int
        Number of threads; the output does not depend on it.

    Notes
    -----
    Stream ``i`` is, bit for bit, the output of a publisher with ``key=secret.of_stream(i)``.  Ids are whole numbers
    from 0
    to 2^32 - 2, or texts, all of one kind.

    Privacy: that of one stream, for each value of each stream (parallel composition).  One person's values in several
    streams add up their losses.

    Speed: :class:`fastdp.Adaptive` with a public threshold is one compiled pass over arrays; other mechanisms, and
    those
    with hold-outs or a season, are called stream by stream.

    Examples
    --------
    >>> import fastdp
    >>> fleet = fastdp.Fleet(fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0), seed=1)
    >>> ids, out = fleet.publish([7, 8, 7], [2.0, 3.0, 2.5])
    >>> ids.tolist(), len(fleet)
    ([7, 8, 7], 2)
    """

    def __init__(
        self,
        parameters: Publisher[Any] | Machine[Any],
        *,
        key: Key | bytes | None = None,
        seed: int | str | None = None,
        threads: int = 1,
    ) -> None:
        machine: object = parameters.machine if isinstance(parameters, Publisher) else parameters
        if not isinstance(machine, Machine):
            raise ParameterError(
                f"parameters = {validation.shown(machine)}: expected a publisher before its first value, or a Machine"
            )
        if isinstance(parameters, Publisher) and machine.consumed(parameters.state):
            raise ParameterError(
                "parameters: this publisher has consumed values; expected one before its first value"
            )
        secret = Key.choose(seed, key)
        if secret.member:
            raise ParameterError(f"key = {secret!r}: expected a key without a stream number")
        self._open(Streams(machine, secret), threads)

    def _open(self, streams: Streams, threads: int) -> None:
        """Attach `streams` to this object."""
        self.threads = validation.threads(threads)
        self._guard = CallGuard()
        self._key = streams.key
        #: None if another fleet took the streams over, or if a call was interrupted while it changed them.
        self._present: Streams | None = streams

    @classmethod
    def _of(cls, streams: Streams, threads: int) -> Fleet:
        """A fleet of these streams."""
        fleet = object.__new__(cls)
        fleet._open(streams, threads)
        return fleet

    @property
    def _streams(self) -> Streams:
        """The streams; StateError if another fleet took them over, or if a call was interrupted."""
        if self._present is None:
            raise StateError(
                "this fleet was split or merged, or a call was interrupted while it changed the streams: expected "
                "its parts, the merged fleet, or Fleet.from_bytes(state)"
            )
        return self._present

    def __len__(self) -> int:
        return len(self._streams.places)

    def __repr__(self) -> str:
        if self._present is None:
            return "Fleet that was split, merged or interrupted"
        part = "" if self._present.part is None else ", part {} of {}".format(*self._present.part)
        promised = self.guarantee if type(self.machine).__name__ in _PUBLISHERS else self.machine
        return f"Fleet of {len(self):,} streams{part}: {promised}"

    @property
    def ids(self) -> Indices | list[str]:
        """Ids of all streams in order of their start: int64[n] or a list of texts.

        Within one call, forgotten numbers that start again come after new ones.
        """
        return self._streams.ids

    @property
    def machine(self) -> Machine[Any]:
        """The mechanism, with its public parameters."""
        return self._streams.machine

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all streams together: for one value, that of its stream."""
        kind = _PUBLISHERS.get(type(self.machine).__name__)
        if kind is None:
            raise ParameterError(
                f"machine = {validation.shown(self.machine)}: expected one of {', '.join(MACHINES)}; the guarantee "
                "of a fleet of your own mechanism is that of one stream"
            )
        return guarantee_of_many(kind._of(self.machine, self._key.again()).guarantee)

    @property
    def noise_fingerprint(self) -> str | None:
        """Fingerprint for ledgers, common to all streams of this secret and mechanism; None for a simulation.

        A ledger refuses it together with another fleet's, a job's, or that of a publisher of one of these streams.
        """
        streams = self._streams
        if streams.key.simulated:
            return None
        return f"{streams.machine.bind(streams.secret.of_stream(0)).family.hex()}:*"

    @property
    def nbytes(self) -> int:
        """Memory of the states in bytes, without ids; ParameterError if they are not arrays."""
        rows = self._streams.rows
        if not isinstance(rows, AdaptiveRows):
            raise ParameterError("nbytes: expected an Adaptive with a public threshold, whose states are arrays")
        return rows.nbytes

    @single_caller
    def publish(self, ids: Column, values: Column) -> tuple[Indices | list[str], Floats]:
        """Consume one value a row, of any of the streams, and publish.

        Parameters
        ----------
        ids : whole numbers or texts, one a value
            Whose value it is.  A new id begins a stream.  Rows of one stream are in its order.
        values : array-like
            A list, NumPy array, pandas or polars series, Arrow array.

        Returns
        -------
        ids : int64[m] or list of m texts
            Of the rows that publish: all, but for those within a hold-out.
        out : float64[m]
            Their published values, in units of the input.

        Raises
        ------
        DataError
            For ids or values that are not accepted, naming the first by its index; nothing is consumed then.
        """
        streams = self._streams
        column = as_column(values, "values")
        found = self._checked(ids, column.size)
        rule = getattr(getattr(streams.machine, "composition", None), "nonfinite", "raise")
        floats = as_finite(as_floats(column), rule, "values")
        if not column.size:
            return found, np.empty(0)
        threads, known = validation.threads(self.threads), len(streams.places)
        self._present = None
        try:
            consume = streams.rows.prepare(streams.rows_of(found), floats, threads)
        except Exception:
            # Nothing was consumed: remove the streams that this call started.
            if streams.rows.size == len(streams.places):
                if len(streams.places) > known:
                    streams.keep(np.arange(known))
                self._present = streams
            raise
        published, out = consume()
        self._present = streams
        if published is None:
            return found, out
        return [found[i] for i in np.flatnonzero(published)] if isinstance(found, list) else found[published], out

    def _checked(self, ids: object, count: int | None = None) -> Indices | list[str]:
        """`ids` as numbers or texts; DataError if they are of another kind, or belong to another shard."""
        streams, found = self._streams, as_ids(ids, count)
        if not len(found):
            return found
        texts, known = isinstance(found, list), streams.of_texts
        if known is not None and known is not texts:
            wanted, given = ("texts", "whole numbers") if known else ("whole numbers", "texts")
            raise DataError(f"ids holds {given}: expected {wanted}, as this fleet's other ids are")
        if streams.part is not None:
            mine, n = streams.part
            owners = parts_of(found, n)
            strange = owners != mine
            if strange.any():
                other = int(owners[int(np.argmax(strange))])
                raise DataError(
                    f"{entry_at('ids', strange, f'belongs to part {other}')}; expected ids of part {mine} of {n}, as "
                    "Fleet.part_of gives them"
                )
        return found

    @single_caller
    def forget(self, ids: Column) -> None:
        """Drop streams that have ended.

        An id that appears again starts a new stream with its own noise; for this, a counter is kept for each
        forgotten id.

        Parameters
        ----------
        ids : whole numbers or texts
            Streams of this fleet; for an unknown id DataError names the first, and nothing is forgotten.
        """
        streams, found = self._streams, self._checked(ids)
        rows = streams.places.find(found)
        if (rows < 0).any():
            raise DataError(f"{entry_at('ids', rows < 0, 'no stream of this fleet')}; expected ids that have begun")
        self._present = None
        streams.forget(rows)
        self._present = streams

    # Parts of a fleet.

    @staticmethod
    def part_of(ids: Column, n: int) -> Indices:
        """Number of the shard, of `n`, that each id belongs to, on every machine: int64[m]; see :meth:`split`."""
        return parts_of(as_ids(ids), validation.integer("n", n, 1, 2**20))

    @single_caller
    def split(self, n: int) -> list[Fleet]:
        """Split the fleet into `n` shards that publish side by side; this object refuses further calls.

        A shard takes the ids that :meth:`part_of` assigns to it and refuses others, so no stream starts in two
        shards.
        """
        streams = self._streams
        if streams.part is not None:
            raise StateError("split() of a part: expected a whole fleet; merge its parts first")
        parts = streams.split(validation.integer("n", n, 1, 2**20))
        self._present = None
        return [Fleet._of(part, self.threads) for part in parts]

    @classmethod
    def merge(cls, parts: Sequence[Fleet]) -> Fleet:
        """The fleet merged from all shards of one :meth:`split`, in any order; they refuse further calls."""
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, Fleet) for part in parts):
            raise ParameterError(f"parts = {validation.shown(parts)}: expected a list of fleets")
        found = [part._streams for part in parts]
        numbers = sorted(each.part for each in found if each.part is not None)
        if not found or numbers != [(k, len(found)) for k in range(len(found))]:
            raise ParameterError(f"parts are {numbers}: expected all parts of one fleet, each once")
        if not all(found[0].same_fleet(other) for other in found):
            raise ParameterError("parts: expected parts of one fleet, with one mechanism and one secret")
        if len({each.of_texts for each in found} - {None}) > 1:
            raise ParameterError(
                "parts: expected ids of one kind; some have whole numbers as ids, and some texts, which one fleet "
                "cannot hold"
            )
        given_up: list[Fleet] = []
        try:
            for part in parts:
                part._give_up()
                given_up.append(part)
            return cls._of(Streams.joined(found), parts[0].threads)
        except BaseException:
            for part, streams in zip(given_up, found, strict=False):
                part._present = streams
            raise

    @single_caller
    def _give_up(self) -> None:
        """Refuse further calls; StateError within a call of another thread, or in a forked process."""
        self._present = None

    # State as bytes.

    @single_caller
    def to_bytes(self, key: bytes | str | None = None) -> bytes:
        """The complete state as bytes, with which the fleet continues elsewhere.

        Parameters
        ----------
        key : 32 bytes or passphrase, optional
            Encrypts and authenticates (AES-256-GCM).  Without it the state, including the secret of all streams, is
            in clear.

        Returns
        -------
        bytes
            For :meth:`from_bytes`.  Continue from them or from this fleet, not from both: with noise drawn in trees
            (:class:`fastdp.ToPS`), different values would get the same noise.
        """
        return self._streams.to_bytes(key)

    @classmethod
    @validation.plain
    def from_bytes(
        cls,
        state: bytes,
        key: bytes | str | None = None,
        *,
        machine: type[Machine[Any]] | None = None,
        threads: int = 1,
    ) -> Fleet:
        """The fleet that :meth:`to_bytes` described.

        Parameters
        ----------
        state : bytes
            From :meth:`to_bytes`.
        key : 32 bytes or passphrase, optional
            As given there.
        machine : class of Machine, optional
            Class of a mechanism of your own.
        threads : int
            As for the class.

        Raises
        ------
        StateError
            If the bytes are cut short, altered, of another version or class, or the key is wrong.
        """
        return cls._of(Streams.from_bytes(state, key, machine), threads)

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "a Fleet cannot be pickled: the secret would be neither encrypted nor owner-only; use to_bytes(key) and "
            "from_bytes(state, key)"
        )
