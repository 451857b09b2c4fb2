"""Fleet: one publisher for many keyed streams, whose state is arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import compress
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.counters.running import CountMachine, RunningCounts
from fastdp.data.column import as_column, as_finite, as_floats, entry_at
from fastdp.errors import DataError, MissingError, ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Indices, Json, Values
from fastdp.noise import chain_keys
from fastdp.noise.canonical import check_rule, rule_of
from fastdp.noise.key import Binding, Key
from fastdp.noise.words import Words
from fastdp.state.codec import decode, decode_errors, encode
from fastdp.state.driver import Publisher
from fastdp.state.machine import CallGuard, Machine, single_caller
from fastdp.state.state_file import MIN_BYTES, Seal
from fastdp.streams.ids import Id, RowIndex, as_ids, shards_of
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.release_many import guarantee_of_many
from fastdp.streams.rows import NO_ROWS, MachineRows, Rows, StreamRows
from fastdp.streams.stream_machine import Schedule

#: Ids or values, one a row.
Column: TypeAlias = Values | Sequence[object]
#: Bytes of arrays in one frame of a state; with its envelope a frame then has 2^26 bytes.
FRAME_BYTES = 2**26 - 2**14
#: Version of a fleet's format.
VERSION = 2
MACHINES: dict[str, type[Schedule] | type[CountMachine]] = {"Schedule": Schedule, "CountMachine": CountMachine}
_PUBLISHERS: dict[str, type[StreamPublisher | RunningCounts]] = {
    "Schedule": StreamPublisher,
    "CountMachine": RunningCounts,
}
Packed = tuple[Json, bytes]
#: Stands for a missing parameter; equal to nothing else.
_NONE = object()


class Fleet:
    """Publishes many streams, each under the same mechanism with its own noise.

    Parameters
    ----------
    parameters : Publisher or Machine
        A publisher before its first value, whose key is not used: of streams, :class:`fastdp.counters.RunningCounts`
        of one sum, or your own mechanism.
    key : Key or 32 bytes, optional
        The secret of all streams; by default the operating system's.
    seed : int or str, optional
        Simulation: reproducible noise, no privacy.
    threads : int
        Number of threads, on which the output does not depend.

    Notes
    -----
    Stream ``i`` is, bit for bit, a publisher's with ``key=secret.of_stream(i)``.  Ids are all texts, or all integers
    from 0 to 2^32 - 2.

    Privacy: that of one stream; a person's values in several streams add up.  After hold-outs publishers of streams
    are one compiled pass; other mechanisms are called stream by stream.

    Examples
    --------
    >>> import fastdp
    >>> publisher = fastdp.Adaptive(epsilon=1.0, bound=10.0, threshold=5.0)
    >>> fleet = fastdp.Fleet(publisher, seed=1)
    >>> ids, out = fleet.publish([7, 8, 7], [2.0, 3.0, 2.5])
    >>> ids.tolist(), len(fleet)
    ([7, 8, 7], 2)
    """

    @validation.spelled
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
        self._begin(machine, secret, threads)

    def _begin(self, machine: Machine[Any], secret: Key, threads: int = 1) -> None:
        self.threads = validation.threads(threads)
        self._guard = CallGuard()
        self._machine, self._key = machine, machine.bind(secret)
        self._secret = _checked_with(secret, self._key)
        kind: Any = StreamRows if isinstance(machine, Schedule) else MachineRows
        self._rows: Rows = kind(machine, self._key)
        #: Row of each id; epochs of ids that were forgotten (each has its own noise); shard, and number of shards.
        self._index = RowIndex()
        self._epochs: dict[Id, int] = {}
        self._shard: tuple[int, int] | None = None
        #: True if another fleet took the streams over, or if a call was interrupted while it changed them.
        self._lost = False

    @classmethod
    def _of(cls, machine: Machine[Any], secret: Key) -> Self:
        fleet = object.__new__(cls)
        fleet._begin(machine, secret)
        return fleet

    def _empty(self, shard: tuple[int, int] | None = None) -> Self:
        other = object.__new__(type(self))
        # Each object keeps its own record of draws.
        key = self._key.again()
        fields = {"_guard": CallGuard(), "_key": key, "_secret": _checked_with(self._secret, key), "_lost": False}
        fields |= {"_index": RowIndex(), "_rows": self._rows.taken(NO_ROWS, key), "_epochs": {}}
        other.__dict__.update(vars(self), **fields, _shard=shard)
        return other

    def _check(self) -> None:
        if self._lost:
            raise MissingError(
                "this fleet was split or merged, or a call was interrupted while it changed the streams: expected "
                "its parts, the merged fleet, or Fleet.from_bytes(state)"
            )

    def __len__(self) -> int:
        self._check()
        return len(self._index)

    def __repr__(self) -> str:
        if self._lost:
            return "Fleet that was split, merged or interrupted"
        shard = "" if self._shard is None else ", part {} of {}".format(*self._shard)
        promised = self.guarantee if type(self.machine).__name__ in _PUBLISHERS else self.machine
        return f"Fleet of {len(self):,} streams{shard}: {promised}"

    @property
    def ids(self) -> Indices | list[str]:
        """Ids, int64[n] or texts, in order of their start; those that one call restarts are last."""
        self._check()
        return self._index.ids()

    @property
    def machine(self) -> Machine[Any]:
        """The mechanism, with its public parameters."""
        self._check()
        return self._machine

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all streams, for one value that of its stream."""
        kind = _PUBLISHERS.get(type(self.machine).__name__)
        if kind is None:
            raise ParameterError(
                f"machine = {validation.shown(self.machine)}: expected one of {', '.join(MACHINES)}; the guarantee "
                "of a fleet of your own mechanism is that of one stream"
            )
        return guarantee_of_many(kind._of(self.machine, self._key.again()).guarantee)

    @property
    def noise_fingerprint(self) -> str | None:
        """Mark of secret and mechanism, by which ledgers refuse a second use; None for simulations."""
        if self._key.simulated:
            return None
        return f"{self.machine.bind(self._secret.of_stream(0)).family.hex()}:*"

    @property
    def nbytes(self) -> int:
        """Bytes of the states, without ids; MissingError if they are not arrays."""
        self._check()
        if isinstance(self._rows, MachineRows):
            raise MissingError("nbytes: expected publishers of streams, whose states are arrays")
        return sum(column.nbytes for column in self._rows.columns)

    @single_caller
    def publish(self, ids: Column, values: Column) -> tuple[Indices | list[str], Floats]:
        """Consume one value a row, of any of the streams, and publish.

        Parameters
        ----------
        ids : integers or texts, one a value
            Stream of each value; a new id begins a stream.  Rows of a stream are in its order.
        values : array-like
            A list, NumPy array, pandas or polars series, Arrow array.

        Returns
        -------
        ids : int64[m] or list of m texts
            Ids of the rows that publish, after hold-outs.
        out : float64[m]
            Their published values, in units of the input.

        Raises
        ------
        DataError
            For ids or values that are not accepted; nothing is consumed.  A threshold rule's error, or warning made
            an error, loses the fleet: load its last state.
        """
        self._check()
        column = as_column(values, "values")
        checked = self._checked(ids, column.size)
        rule = self._machine.composition.nonfinite if isinstance(self._machine, Schedule) else "raise"
        floats = as_finite(as_floats(column), rule, "values")
        if not column.size:
            return checked, np.empty(0)
        threads, known = validation.threads(self.threads), len(self._index)
        self._lost = True
        try:
            consume = self._rows.prepare(self._rows_of(checked), floats, threads)
        except Exception:
            # Nothing was consumed: remove the streams that this call started.
            if self._rows.size == len(self._index):
                if len(self._index) > known:
                    self._keep(np.arange(known))
                self._lost = False
            raise
        published, out = consume()
        self._lost = False
        if published is None:
            return checked, out
        shown = [checked[i] for i in np.flatnonzero(published)] if isinstance(checked, list) else checked[published]
        return shown, out

    def _checked(self, ids: object, count: int | None = None) -> Indices | list[str]:
        self._check()
        checked = as_ids(ids, count)
        if not len(checked):
            return checked
        texts, known = isinstance(checked, list), self._of_texts
        if known is not None and known is not texts:
            wanted, present = ("texts", "whole numbers") if known else ("whole numbers", "texts")
            raise DataError(f"ids holds {present}: expected {wanted}, as this fleet's other ids are")
        if self._shard is not None:
            mine, n = self._shard
            owners = shards_of(checked, n)
            strange = owners != mine
            if strange.any():
                other = int(owners[int(np.argmax(strange))])
                raise DataError(
                    f"{entry_at('ids', strange, f'belongs to part {other}')}; expected ids of part {mine} of {n}, as "
                    "Fleet.part_of gives them"
                )
        return checked

    @single_caller
    def forget(self, ids: Column) -> None:
        """Drop streams that have ended; an unknown id is a DataError.

        An id that appears again starts a new stream with its own noise.
        """
        checked = self._checked(ids)
        rows = self._index.find(checked)
        if (rows < 0).any():
            raise DataError(f"{entry_at('ids', rows < 0, 'no stream of this fleet')}; expected ids that have begun")
        self._lost = True
        ids, stays = self._index.ids(), np.ones(len(self._index), np.bool_)
        stays[rows] = False
        self._keep(np.flatnonzero(stays))
        for row in np.flatnonzero(~stays).tolist():
            name = ids[row] if isinstance(ids, list) else int(ids[row])
            self._epochs[name] = self._epochs.get(name, 0) + 1
        self._lost = False

    # Rows of streams.

    @property
    def _of_texts(self) -> bool | None:
        if len(self._index):
            return self._index.of_texts
        return next((isinstance(name, str) for name in self._epochs), None)

    def _rows_of(self, ids: Indices | list[str]) -> Indices:
        rows = self._index.find(ids)
        new = rows < 0
        if not new.any():
            return rows
        size = len(self._index)
        if isinstance(ids, list):
            self._begin_texts(list(dict.fromkeys(compress(ids, new.tolist()))))
            return self._index.find(ids)
        distinct, first, inverse = _distinct(ids[new])
        again = np.isin(distinct, list(self._epochs)) if self._epochs else np.zeros(distinct.size, np.bool_)
        # Ids in their first epoch get their keys in one call of the cipher, and their rows first.
        new_rows, begun = np.empty(distinct.size, np.int64), size
        for group in (~again, again):
            firsts = np.zeros(inverse.size, np.bool_)
            firsts[first[group]] = True
            new_rows[group] = begun + (np.cumsum(firsts) - 1)[first[group]]
            begun += int(np.count_nonzero(group))
            fresh = ids[new][firsts]
            if fresh.size:
                self._rows.begin(fresh if group is not again else self._keys_of(fresh))
        self._index.merge(distinct, new_rows)
        rows[new] = new_rows[inverse]
        return rows

    def _begin_texts(self, fresh: list[str]) -> None:
        again = [text for text in fresh if text in self._epochs] if self._epochs else []
        first = [text for text in fresh if text not in self._epochs] if again else fresh
        for texts, begin in ((first, self._secrets_of), (again, self._keys_of)):
            if texts:
                self._rows.begin(begin(texts))
                self._index.add(texts)

    def _secrets_of(self, texts: list[str]) -> Words | list[Key]:
        if not isinstance(self._machine, Schedule) or self._key.given is not None:
            return self._keys_of(texts)
        bound = self._secret.binding is not Binding.ROOT
        composition = None if bound else self._secret.composition(self._machine.composition)
        return chain_keys.named_secrets(self._secret, texts, composition)

    def _names_of(self, ids: Indices | list[str]) -> Indices | Words | list[Key]:
        if self._epochs or not len(ids):
            return self._keys_of(ids)
        return self._secrets_of(ids) if isinstance(ids, list) else ids

    def _keys_of(self, ids: Indices | list[str]) -> list[Key]:
        names: list[Id] = [*ids] if isinstance(ids, list) else ids.tolist()
        secrets = [self._secret.of_stream(name) for name in names]
        if isinstance(self._machine, Schedule):
            keys = self._machine.composition.noise_keys(secrets)
        else:
            keys = [self._machine.bind(secret) for secret in secrets]
        if not self._epochs:
            return keys
        epochs = [self._epochs.get(name, 0) for name in names]
        return [key.within("life", epoch) if epoch else key for key, epoch in zip(keys, epochs, strict=True)]

    def _keep(self, rows: Indices) -> None:
        self._index = RowIndex(_at(self._index.ids(), rows))
        self._rows.keep(rows)

    # Shards of a fleet.

    @staticmethod
    def part_of(ids: Column, n: int) -> Indices:
        """Shard of each id among `n`, the same on every machine: int64[m]; see :meth:`split`."""
        return shards_of(as_ids(ids), validation.integer("n", n, 1, 2**20))

    @single_caller
    def split(self, n: int) -> list[Fleet]:
        """Split the fleet into `n` shards that publish side by side; this object refuses further calls."""
        self._check()
        if self._shard is not None:
            raise StateError("split() of a part: expected a whole fleet; merge its parts first")
        n = validation.integer("n", n, 1, 2**20)
        ids, shards = self._index.ids(), [self._empty((number, n)) for number in range(n)]
        owners = shards_of(ids, n)
        order = np.argsort(owners, kind="stable")
        borders = np.searchsorted(owners[order], np.arange(1, n))
        for shard, rows in zip(shards, np.split(order, borders), strict=True):
            shard._index, shard._rows = RowIndex(_at(ids, rows)), self._rows.taken(rows, shard._key)
        for name, epochs in self._epochs.items():
            shards[int(shards_of(as_ids([name]), n)[0])]._epochs[name] = epochs
        self._lost, self._index = True, RowIndex()
        self._rows.keep(NO_ROWS)
        return list(shards)

    @classmethod
    def merge(cls, parts: Sequence[Fleet]) -> Fleet:
        """Merge all shards of one :meth:`split` into a fleet; they refuse further calls."""
        if not isinstance(parts, (list, tuple)) or not all(isinstance(shard, Fleet) for shard in parts):
            raise ParameterError(f"parts = {validation.shown(parts)}: expected a list of fleets")
        for shard in parts:
            shard._check()
        numbers = sorted(shard._shard for shard in parts if shard._shard is not None)
        if not parts or numbers != [(k, len(parts)) for k in range(len(parts))]:
            raise ParameterError(f"parts are {numbers}: expected all parts of one fleet, each once")
        if not all(parts[0]._same_fleet(other) for other in parts):
            raise ParameterError("parts: expected parts of one fleet, with one mechanism and one secret")
        if len({shard._of_texts for shard in parts} - {None}) > 1:
            raise ParameterError(
                "parts: expected ids of one kind; some have whole numbers as ids, and some texts, which one fleet "
                "cannot hold"
            )
        given_up: list[Fleet] = []
        try:
            for shard in parts:
                shard._give_up()
                given_up.append(shard)
            merged: Fleet = parts[0]._empty()
            for shard in parts:
                merged._index.add(shard._index.ids())
                merged._epochs |= shard._epochs
            merged._rows.join([shard._rows for shard in parts])
        except BaseException:
            for shard in given_up:
                shard._lost = False
            raise
        for shard in parts:
            shard._index = RowIndex()
            shard._rows.keep(NO_ROWS)
        return merged

    @single_caller
    def _give_up(self) -> None:
        """Refuse further calls; StateError within a call, or after a fork."""
        self._lost = True

    def _same_fleet(self, other: Fleet) -> bool:
        mine, others = self._secret, other._secret
        one_secret = mine.reveal() == others.reveal() and mine.binding is others.binding
        return one_secret and mine.simulated == others.simulated and self._machine == other._machine

    # State as bytes.

    @single_caller
    def to_bytes(self, key: bytes | str | None = None) -> bytes:
        """Encode the state for :meth:`from_bytes`.

        Continue from the bytes or this fleet, not both.  `key`, 32 bytes or a passphrase, encrypts (AES-256-GCM);
        without it all secrets are in clear.
        """
        self._check()
        content, data = self._pack()
        seal = Seal(key)
        header, first_frame = seal.pack(encode(content))
        frames = [first_frame]
        for number, begin in enumerate(range(0, len(data), FRAME_BYTES), start=1):
            chunk = data[begin : begin + FRAME_BYTES]
            frames.append(seal.frame(header, number, chunk, MIN_BYTES, compress=False))
        return b"".join(frames)

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
        """Restore a fleet from :meth:`to_bytes`, with the same `key`; `machine` is the class of your own mechanism.

        Raises
        ------
        StateError
            If the bytes are truncated, altered, of another version or class, or the key is wrong.
        """
        fleet = cls._opened(state, key, machine)
        fleet.threads = validation.threads(threads)
        return fleet

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "a Fleet cannot be pickled: the secret would be neither encrypted nor owner-only; use to_bytes(key) and "
            "from_bytes(state, key)"
        )

    @cached_property
    def _described(self) -> Json:
        return {
            "fleet": VERSION,
            "fastdp": __version__,
            "class": type(self._machine).__name__,
            "rule": rule_of(self._machine),
            "composition": self._machine.describe(),
            "secret": self._secret.reveal().hex(),
            "binding": int(self._secret.binding),
            "simulated": self._secret.simulated,
        }

    def _pack(self) -> Packed:
        described, arrays = self._rows.pack()
        ids = self._index.ids()
        content = self._described | {
            "part": self._shard,
            "epochs": list(self._epochs.items()),
            "size": len(self._index),
            "ids": ids if isinstance(ids, list) else None,
            "rows": described,
        }
        columns = arrays if isinstance(ids, list) else [ids, *arrays]
        # The types are little-endian on every machine that fastdp runs on, and named here for others.
        little = [column.astype(column.dtype.newbyteorder("<"), copy=False) for column in columns]
        return content, b"".join(np.ascontiguousarray(column).data.cast("B") for column in little if column.size)

    @classmethod
    def _opened(
        cls,
        state: bytes,
        key: bytes | str | None,
        machine: type[Machine[Any]] | None,
        like: Fleet | None = None,
    ) -> Fleet:
        opened = Seal(key).open(bytes(state), "the state")
        if not opened.complete:
            raise StateError("the state was cut short: expected all that to_bytes() gave")
        with decode_errors("the state"):
            content = decode(opened.frames[0])
            if not isinstance(content, dict) or "fleet" not in content:
                raise StateError("the state holds no fleet: expected what Fleet.to_bytes() gave")
            return cls._read((content, b"".join(opened.frames[1:])), machine, like)

    @classmethod
    def _read(cls, packed: Packed, machine: type[Machine[Any]] | None = None, like: Fleet | None = None) -> Fleet:
        content, data = packed
        if like is not None and all(content[name] == value for name, value in like._described.items()):
            return like._empty()._filled(content, data)
        if content["fleet"] != VERSION:
            raise StateError(f"the state has fleet format {validation.shown(content['fleet'])}: expected {VERSION}")
        if like is not None and content["class"] != type(like._machine).__name__:
            refuse_other({"mechanism": content["class"]}, {"mechanism": type(like._machine).__name__})
        kind: Any = MACHINES.get(content["class"], machine)
        if kind is None or kind.__name__ != content["class"]:
            raise StateError(
                f"the fleet is one of {validation.shown(content['class'])}: expected machine=, that class"
            )
        check_rule(kind, content["rule"])
        secret = bytes.fromhex(content["secret"])
        key = Key(secret, simulated=content["simulated"], binding=Binding(content["binding"]))
        fleet = cls._of(kind.from_description(content["composition"]), key)
        if like is not None:
            refuse_other(fleet._machine.describe(), like._machine.describe())
        return fleet._filled(content, data)

    def _filled(self, content: Json, data: bytes) -> Fleet:
        at = 0

        def take(dtype: Any, shape: tuple[int, ...]) -> Array:
            nonlocal at
            stored = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), math.prod(shape), at)
            at += stored.nbytes
            return stored.astype(dtype).reshape(shape)

        size = int(content["size"])
        ids = as_ids(take(np.int64, (size,)) if content["ids"] is None else content["ids"], size)
        self._index.add(ids)
        self._epochs = {name: int(count) for name, count in content["epochs"]}
        if any(count < 1 for count in self._epochs.values()):
            raise ValueError("an id that was forgotten less than once")
        if content["part"] is not None:
            mine, n = self._shard = int(content["part"][0]), int(content["part"][1])
            if not 0 <= mine < n or (shards_of(ids, n) != mine).any():
                raise ValueError("ids of another part")
        self._rows.unpack(size, partial(self._names_of, ids), content["rows"], take)
        if at != len(data):
            raise ValueError("more numbers than streams")
        return self


def _flat(description: object, name: str = "") -> Json:
    if not isinstance(description, dict):
        return {name: description}
    nested = (_flat(value, f"{name}.{inner}".lstrip(".")) for inner, value in description.items())
    return {path: value for fields in nested for path, value in fields.items()}


def refuse_other(stored: Json, asked: Json) -> None:
    """Raise StateError that names parameters in which descriptions differ."""
    stored, asked = _flat(stored), _flat(asked)
    differ = [
        f"{name} = {_of(stored, name)} in the state, {_of(asked, name)} asked for"
        for name in dict.fromkeys([*stored, *asked])
        if stored.get(name, _NONE) != asked.get(name, _NONE)
    ]
    if differ:
        raise StateError(
            f"the state was made with other parameters ({'; '.join(differ)}): expected those of the state, or a job "
            "with another name, which begins every stream again and costs its epsilon beside this one's"
        )


def _of(parameters: Json, name: str) -> str:
    return repr(parameters[name])[: validation.MAX_SHOWN_LENGTH] if name in parameters else "nothing"


def _checked_with(secret: Key, key: Key) -> Key:
    return Key(secret.reveal(), simulated=secret.simulated, binding=secret.binding, drawn=key.drawn)


def _distinct(ids: Indices) -> tuple[Indices, Indices, Indices]:
    order = np.argsort(ids)
    ordered = ids[order]
    begins = np.empty(ids.size, np.bool_)
    begins[:1], begins[1:] = True, ordered[1:] != ordered[:-1]
    inverse = np.empty(ids.size, np.int64)
    inverse[order] = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    return ordered[starts], np.minimum.reduceat(order, starts), inverse


def _at(ids: Indices | list[str], rows: Indices) -> Indices | list[str]:
    return [ids[row] for row in rows.tolist()] if isinstance(ids, list) else ids[rows]
