"""The streams of a fleet: ids, states, and their serialisation."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.counters.running import CountMachine
from fastdp.errors import StateError
from fastdp.kinds import Array, Indices, Json
from fastdp.noise.canonical import check_rule, rule_of
from fastdp.noise.key import Binding, Key
from fastdp.state.codec import as_text, decode_errors
from fastdp.state.machine import Machine
from fastdp.state.sealed_file import MIN_BYTES, Seal
from fastdp.streams.adaptive_rows import AdaptiveRows, MachineRows
from fastdp.streams.ids import Id, Places, as_ids, parts_of
from fastdp.streams.stream_machine import Schedule

#: Bytes of arrays in one frame of a state; with its envelope a frame then has 2^26 bytes.
FRAME_BYTES = 2**26 - 2**14
#: Version of a fleet's format.
VERSION = 1
MACHINES: dict[str, type[Schedule] | type[CountMachine]] = {"Schedule": Schedule, "CountMachine": CountMachine}
Packed = tuple[Json, bytes]
#: Stands for a missing parameter; equal to nothing else.
_NONE = object()


class Streams:
    """Ids, and a row of state for each.

    Attributes
    ----------
    machine : Machine
        Mechanism of every stream.
    secret, key : Key
        Of the user, and of the mechanism under it; without a stream number.
    places : Places
        Row of each id.
    rows : AdaptiveRows or MachineRows
        The states.
    epochs : dict
        How often each id was forgotten; every epoch has its own noise.
    part : (int, int) or None
        Number of this shard, and the number of shards.
    """

    def __init__(self, machine: Machine[Any], secret: Key) -> None:
        self.machine, self.key = machine, machine.bind(secret)
        self.secret = _checked_with(secret, self.key)
        self.rows: Any = AdaptiveRows.of(machine, self.key) or MachineRows(machine, self.key)
        self.places = Places()
        self.epochs: dict[Id, int] = {}
        self.part: tuple[int, int] | None = None

    @cached_property
    def _described(self) -> Json:
        """Header fields shared by all fleets of this mechanism and secret."""
        return {
            "fleet": VERSION,
            "fastdp": __version__,
            "class": type(self.machine).__name__,
            "rule": rule_of(self.machine),
            "composition": self.machine.describe(),
            "secret": self.secret.reveal().hex(),
            "binding": int(self.secret.binding),
            "simulated": self.secret.simulated,
        }

    def empty(self, part: tuple[int, int] | None = None) -> Streams:
        """A container without streams, of this mechanism and secret, as shard `part`."""
        other = copy.copy(self)
        # Each object keeps its own record of draws.
        other.key = self.key.again()
        other.secret = _checked_with(self.secret, other.key)
        other.places, other.rows, other.epochs = Places(), self.rows.taken(np.empty(0, np.int64), other.key), {}
        other.part = part
        return other

    @property
    def ids(self) -> Indices | list[str]:
        """Ids of all streams, by row: int64[n] or a list of texts."""
        return self.places.ids()

    @property
    def of_texts(self) -> bool | None:
        """True if ids are texts, forgotten ones included; None without ids."""
        if len(self.places):
            return self.places.of_texts
        return next((isinstance(each, str) for each in self.epochs), None)

    def rows_of(self, found: Indices | list[str]) -> Indices:
        """Row of each id, int64[m]; new ids start streams."""
        rows = self.places.find(found)
        new = rows < 0
        if not new.any():
            return rows
        size = len(self.places)
        if isinstance(found, list):
            fresh: Any = list(dict.fromkeys(found[i] for i in np.flatnonzero(new)))
            self.rows.begin(self._keys_of(fresh))
            self.places.add(fresh)
            return self.places.find(found)
        distinct, first, inverse = _distinct(found[new])
        again = np.isin(distinct, list(self.epochs)) if self.epochs else np.zeros(distinct.size, np.bool_)
        # Ids in their first epoch get their keys in one call of the cipher, and their rows first.
        place, begun = np.empty(distinct.size, np.int64), size
        for group in (~again, again):
            firsts = np.zeros(inverse.size, np.bool_)
            firsts[first[group]] = True
            place[group] = begun + (np.cumsum(firsts) - 1)[first[group]]
            begun += int(np.count_nonzero(group))
            fresh = found[new][firsts]
            if fresh.size:
                self.rows.begin(fresh if group is not again else self._keys_of(fresh))
        self.places.merge(distinct, place)
        rows[new] = place[inverse]
        return rows

    def _keys_of(self, ids: Indices | list[str]) -> list[Key]:
        """Noise keys of these ids in their current epochs."""
        names: list[Id] = [*ids] if isinstance(ids, list) else ids.tolist()
        secrets = [self.secret.of_stream(each) for each in names]
        if isinstance(self.machine, Schedule):
            keys = self.machine.composition.noise_keys(secrets)
        else:
            keys = [self.machine.bind(secret) for secret in secrets]
        if not self.epochs:
            return keys
        epochs = [self.epochs.get(each, 0) for each in names]
        return [key.within("life", epoch) if epoch else key for key, epoch in zip(keys, epochs, strict=True)]

    def keep(self, rows: Indices) -> None:
        """Drop all streams except those in `rows`."""
        ids = self.ids
        self.places = Places(_at(ids, rows))
        self.rows.keep(rows)

    def forget(self, rows: Indices) -> None:
        """Drop the streams in `rows`, whose ids may start again in a new epoch."""
        ids, stays = self.ids, np.ones(len(self.places), np.bool_)
        stays[rows] = False
        gone = [ids[row] for row in np.flatnonzero(~stays).tolist()]
        self.keep(np.flatnonzero(stays))
        for each in gone:
            name = each if isinstance(each, str) else int(each)
            self.epochs[name] = self.epochs.get(name, 0) + 1

    def split(self, n: int) -> list[Streams]:
        """The streams in `n` shards, assigned by id."""
        ids, parts = self.ids, [self.empty((number, n)) for number in range(n)]
        owners = parts_of(ids, n)
        order = np.argsort(owners, kind="stable")
        borders = np.searchsorted(owners[order], np.arange(1, n))
        for part, rows in zip(parts, np.split(order, borders), strict=True):
            part.places, part.rows = Places(_at(ids, rows)), self.rows.taken(rows, part.key)
        for each, epochs in self.epochs.items():
            parts[int(parts_of(as_ids([each]), n)[0])].epochs[each] = epochs
        return parts

    def same_fleet(self, other: Streams) -> bool:
        """True if both have the same mechanism and the same secret."""
        mine, others = self.secret, other.secret
        one_secret = mine.reveal() == others.reveal() and mine.binding is others.binding
        return one_secret and mine.simulated == others.simulated and self.machine == other.machine

    @classmethod
    def joined(cls, parts: Sequence[Streams]) -> Streams:
        """The streams of all `parts` in one object; ids are of one kind."""
        whole = cls(parts[0].machine, parts[0].secret)
        for part in parts:
            whole.places.add(part.ids)
            whole.epochs |= part.epochs
        whole.rows.join([part.rows for part in parts])
        return whole

    # As bytes.

    def pack(self) -> Packed:
        """The state as JSON, and all arrays as bytes."""
        described, arrays = self.rows.pack()
        ids = self.ids
        content = self._described | {
            "part": self.part,
            "epochs": list(self.epochs.items()),
            "size": len(self.places),
            "ids": ids if isinstance(ids, list) else None,
            "rows": described,
        }
        columns = arrays if isinstance(ids, list) else [ids, *arrays]
        # The types are little-endian on every machine that fastdp runs on, and named here for others.
        little = [each.astype(each.dtype.newbyteorder("<"), copy=False) for each in columns]
        return content, b"".join(np.ascontiguousarray(each).data.cast("B") for each in little if each.size)

    def to_bytes(self, key: bytes | str | None) -> bytes:
        """The packed state, sealed with `key`."""
        content, data = self.pack()
        seal = Seal(key)
        header, whole = seal.pack(as_text(content))
        frames = [whole]
        for number, begin in enumerate(range(0, len(data), FRAME_BYTES), start=1):
            part = data[begin : begin + FRAME_BYTES]
            frames.append(seal.frame(header, number, part, MIN_BYTES, compress=False))
        return b"".join(frames)

    @classmethod
    def from_bytes(
        cls,
        state: bytes,
        key: bytes | str | None,
        machine: type[Machine[Any]] | None,
        like: Streams | None = None,
    ) -> Streams:
        """The streams of :meth:`to_bytes`, with the mechanism of `like` if given; StateError names the problem."""
        opened = Seal(key).open(bytes(state), "the state")
        if not opened.complete:
            raise StateError("the state was cut short: expected all that to_bytes() gave")
        with decode_errors("the state"):
            content = json.loads(opened.frames[0])
            if not isinstance(content, dict) or "fleet" not in content:
                raise StateError("the state holds no fleet: expected what Fleet.to_bytes() gave")
            return cls.read((content, b"".join(opened.frames[1:])), machine, like)

    @classmethod
    def read(cls, packed: Packed, machine: type[Machine[Any]] | None = None, like: Streams | None = None) -> Streams:
        """The streams of :meth:`pack`; ValueError, LookupError or TypeError if the content is malformed."""
        content, data = packed
        if like is not None and all(content[name] == each for name, each in like._described.items()):
            return like.empty()._filled(content, data)
        if content["fleet"] != VERSION:
            raise StateError(f"the state has fleet format {validation.shown(content['fleet'])}: expected {VERSION}")
        if like is not None and content["class"] != type(like.machine).__name__:
            _refuse_other({"mechanism": content["class"]}, {"mechanism": type(like.machine).__name__})
        kind: Any = MACHINES.get(content["class"], machine)
        if kind is None or kind.__name__ != content["class"]:
            raise StateError(
                f"the fleet is one of {validation.shown(content['class'])}: expected machine=, that class"
            )
        check_rule(kind, content["rule"])
        secret = bytes.fromhex(content["secret"])
        key = Key(secret, simulated=content["simulated"], binding=Binding(content["binding"]))
        found = cls(kind.from_description(content["composition"]), key)
        if like is not None:
            _refuse_other(_parameters(found.machine.describe()), _parameters(like.machine.describe()))
        return found._filled(content, data)

    def _filled(self, content: Json, data: bytes) -> Streams:
        """The packed streams, restored into this object, which has none."""
        at = 0

        def take(dtype: Any, shape: tuple[int, ...]) -> Array:
            nonlocal at
            stored = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), math.prod(shape), at)
            at += stored.nbytes
            return stored.astype(dtype).reshape(shape)

        size = int(content["size"])
        ids = as_ids(take(np.int64, (size,)) if content["ids"] is None else content["ids"], size)
        self.places.add(ids)
        self.epochs = {each: int(count) for each, count in content["epochs"]}
        if any(count < 1 for count in self.epochs.values()):
            raise ValueError("an id that was forgotten less than once")
        if content["part"] is not None:
            mine, n = self.part = int(content["part"][0]), int(content["part"][1])
            if not 0 <= mine < n or (parts_of(ids, n) != mine).any():
                raise ValueError("ids of another part")
        if isinstance(self.rows, AdaptiveRows):
            self.rows.unpack(size, content["rows"], take)
        else:
            self.rows.unpack(self._keys_of(ids), content["rows"], take)
        if at != len(data):
            raise ValueError("more numbers than streams")
        return self


def _parameters(description: object, name: str = "") -> Json:
    """Public parameters of a mechanism as a flat dictionary, nested ones under dotted names."""
    if not isinstance(description, dict):
        return {name: description}
    parts = (_parameters(each, f"{name}.{inner}".lstrip(".")) for inner, each in description.items())
    return {path: value for part in parts for path, value in part.items()}


def _refuse_other(stored: Json, asked: Json) -> None:
    """StateError that names each parameter in which `stored` and `asked` differ, if any."""
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
    """The parameter's value as short text, or "nothing" if it is absent."""
    return repr(parameters[name])[: validation.MAX_SHOWN_LENGTH] if name in parameters else "nothing"


def _checked_with(secret: Key, key: Key) -> Key:
    """`secret`, sharing the record of draws of `key`, so that keys of text ids are checked together with it."""
    return Key(secret.reveal(), simulated=secret.simulated, binding=secret.binding, drawn=key.drawn)


def _distinct(ids: Indices) -> tuple[Indices, Indices, Indices]:
    """Sorted distinct ids, first index and inverse, as :func:`numpy.unique`; first may be any occurrence."""
    order = np.argsort(ids)
    ordered = ids[order]
    begins = np.empty(ids.size, np.bool_)
    begins[:1], begins[1:] = True, ordered[1:] != ordered[:-1]
    inverse = np.empty(ids.size, np.int64)
    inverse[order] = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    return ordered[starts], np.minimum.reduceat(order, starts), inverse


def _at(ids: Indices | list[str], rows: Indices) -> Indices | list[str]:
    """The ids in `rows`."""
    return [ids[row] for row in rows.tolist()] if isinstance(ids, list) else ids[rows]
