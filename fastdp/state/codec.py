"""Encode numbers, arrays, records and components as MessagePack."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias, cast

import msgspec
import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import ParameterError, StateError
from fastdp.kinds import Array, Json
from fastdp.noise.canonical import check_rule, rule_of
from fastdp.noise.key import Binding, Key
from fastdp.record import Kind, Whole, values_of

#: A value that JSON has, or bytes.
JsonValue: TypeAlias = Any
#: A state as such values (:meth:`fastdp.state.machine.Machine.pack`).
Packed: TypeAlias = Json
#: Classes of components by their names.
Parts = Mapping[str, type]


class NamedParts(Mapping[str, type]):
    """Dataclasses of `packages`, loaded on use, and `others` by name."""

    def __init__(self, packages: Iterable[types.ModuleType], *others: type) -> None:
        self._homes = {name: package for package in packages for name in package.__all__}
        self._others = {kind.__name__: kind for kind in others}

    def __getitem__(self, name: str) -> type:
        kind: type = self._others[name] if name in self._others else getattr(self._homes[name], name)
        if not dataclasses.is_dataclass(kind):
            raise KeyError(name)
        return kind

    def __iter__(self) -> Iterator[str]:
        return (name for name in (*self._homes, *self._others) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: NumPy's floats count as Python's.
_ENCODER = msgspec.msgpack.Encoder(enc_hook=float.__float__)
#: Extension types: integers beyond 64 bits, and texts with lone surrogates, such as names of files that are no UTF-8.
_INTEGER, _TEXT = 1, 2
_KINDS = {np.int64: "<i8", np.float64: "<f8"}


def encode(content: object) -> bytes:
    """Encode a state's content as MessagePack."""
    try:
        return _ENCODER.encode(content)
    except (OverflowError, UnicodeEncodeError):
        plain = msgspec.to_builtins(content, builtin_types=(bytes,), enc_hook=float.__float__)
        return _ENCODER.encode(_with_extensions(plain))


def decode(raw: bytes) -> JsonValue:
    """Decode content of :func:`encode`."""
    return msgspec.msgpack.decode(raw, ext_hook=_of_extension)


def _with_extensions(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _with_extensions(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_extensions(each) for each in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return msgspec.msgpack.Ext(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
        return msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _of_extension(code: int, data: memoryview) -> int | str:
    if code not in (_INTEGER, _TEXT):
        raise ValueError(f"extension {code} of MessagePack")
    raw = bytes(data)
    return int.from_bytes(raw, "little", signed=True) if code == _INTEGER else raw.decode("utf-8", "surrogatepass")


def pack(array: Array, kind: str) -> bytes:
    """Entries as bytes of type `kind`."""
    return array.astype(kind).tobytes()


def unpack(raw: bytes, kind: str) -> Array:
    """Array of :func:`pack`; else ValueError or TypeError."""
    return np.frombuffer(raw, kind)


def require_int(number: object) -> int:
    """`number`, if an int; ValueError for 2.0 too."""
    if type(number) is not int:
        raise ValueError(f"a {type(number).__name__} in place of a whole number")
    return number


# A state as a tree of records: NamedTuples and dataclasses of numbers, texts, bytes, arrays and such records.


class Form:
    """Annotation of a field that a file holds in another form."""

    def describe(self, value: Any) -> JsonValue:
        raise NotImplementedError

    def restore(self, described: JsonValue, machine: Any) -> Any:
        raise NotImplementedError


# Annotations of fields besides ranges, which are kinds of :mod:`fastdp.record`, of arrays for each entry.

#: An array with the type and shape of the one that the machine starts with.
LIKE_START = object()
#: Not in a file: it follows from the other fields (:meth:`fastdp.state.machine.Machine.restored`).
DERIVED = object()
#: Ranges of integers: NumPy's, and counts.
INT64, COUNT = Whole(-(2**63), 2**63 - 1), Whole(0, 2**63 - 1)


@functools.cache
def _fields(record: type) -> dict[str, tuple[Any, Form | None]]:
    hints, found = typing.get_type_hints(record, include_extras=True), {}
    for name in getattr(record, "_fields", None) or [field.name for field in dataclasses.fields(record)]:
        notes = typing.get_args(hints[name])[1:]
        if DERIVED not in notes:
            found[name] = hints[name], _form_in(notes)
    return found


def _form_in(notes: Iterable[object]) -> Form | None:
    return next((note for note in notes if isinstance(note, Form)), None)


def _is_record(kind: object) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")


def describe(value: object) -> JsonValue:
    """Plain values of a record."""
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "data": pack(value, _KINDS[value.dtype.type])}
    if _is_record(value):
        found = {}
        for name, (_, form) in _fields(cast("type", type(value))).items():
            each = getattr(value, name)
            found[name] = describe(each) if form is None or each is None else form.describe(each)
        return found
    if isinstance(value, (list, tuple)):
        return [describe(entry) for entry in value]
    return value


def restore(kind: Any, described: JsonValue, machine: Any = None, start: Any = None, name: str = "state") -> Any:
    """Record of type `kind` from :func:`describe`; else ValueError.

    `machine`: for forms; `start`: for arrays of its shapes; `name`: for errors.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        form = _form_in(inner[1:])
        if form is not None and not (described is None and type(None) in typing.get_args(inner[0])):
            return form.restore(described, machine)
        return _within(restore(inner[0], described, machine, start, name), inner[1:], start, name)
    if origin in (types.UnionType, typing.Union):
        return None if described is None else restore(inner[0], described, machine, start, name)
    if origin is np.ndarray:
        scalar = typing.get_args(inner[1])[0]
        array = unpack(described["data"], _KINDS[scalar]).astype(scalar)
        return array.reshape([require_int(side) for side in described["shape"]])
    if origin is list:
        return [restore(inner[0], entry, machine, None, name) for entry in described]
    if origin is tuple:
        kinds = (inner[0],) * len(described) if inner[-1] is Ellipsis else inner
        starts = start if isinstance(start, tuple) and len(start) == len(described) else (None,) * len(described)
        each = zip(kinds, described, starts, strict=True)
        return tuple(restore(k, entry, machine, begun, name) for k, entry, begun in each)
    if _is_record(kind):
        values = {
            field: restore(hint, described[field], machine, getattr(start, field, None), field)
            for field, (hint, _) in _fields(kind).items()
        }
        return kind(**values)
    if type(described) is not kind:
        raise ValueError(f"{name}: a {type(described).__name__} in place of a {kind.__name__}")
    return described


def _within(value: Any, notes: tuple[object, ...], start: Any, name: str) -> Any:
    """`value`, if in the ranges of its annotations; else ValueError, without the value, which may be secret."""
    if value is None:
        return None
    if LIKE_START in notes and start is not None:
        expect(value, start)
    array = isinstance(value, np.ndarray)
    entries = [value] if not array else [value.min().item(), value.max().item()] if value.size else []
    try:
        for note, entry in itertools.product(notes, entries):
            if isinstance(note, Kind):
                note.check(name, entry)
    except ParameterError:
        raise ValueError(f"{name} out of range") from None
    return value


def describe_part(part: object, known: Parts) -> JsonValue:
    """Plain value of a parameter; StateError for an unknown component."""
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    if isinstance(part, (list, tuple)):
        return [describe_part(entry, known) for entry in part]
    name = type(part).__name__
    if known.get(name) is not type(part):
        raise StateError(f"a {name} of your own cannot be saved: expected one of {', '.join(sorted(known))}")
    named = {"name": name, "rule": rule_of(part)}
    own = getattr(part, "describe", None)
    if own is not None:
        return {**named, **own()}
    fields = dataclasses.fields(part)  # type: ignore[arg-type]
    return {**named, **values_of(part, *(each.name for each in fields if each.init))}


def build_part(description: JsonValue, known: Parts) -> Any:
    """Parameter of :func:`describe_part`, from `known` classes."""
    if isinstance(description, list):
        return [build_part(entry, known) for entry in description]
    if not isinstance(description, dict):
        return description
    parameters = dict(description)
    kind = known[parameters.pop("name")]
    check_rule(kind, parameters.pop("rule"))
    return getattr(kind, "from_description", kind)(**parameters)


def expect(state: Array, like: Array) -> None:
    """ValueError unless `state` has the type and shape of `like`."""
    if state.dtype != like.dtype or state.shape != like.shape:
        raise ValueError(f"an array of {state.dtype} and shape {state.shape}, not {like.dtype} and {like.shape}")


#: Errors of reading a text that is no description or packed state.
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@contextmanager
def decode_errors(name: str, writer: object = __version__) -> Iterator[None]:
    """Turn errors of damage into a StateError that names another `writer`."""
    try:
        yield
    except DAMAGE as error:
        same = writer in (None, __version__)
        shown = validation.shown(writer).strip("'")
        other = "" if same else f" (or needs fastdp {shown}, which wrote it; this is {__version__})"
        raise StateError(f"{name} is damaged{other}: {error}") from error


def content_of(frames: list[bytes], name: str) -> Json:
    """Content of a state after later records; StateError if damaged."""
    with decode_errors(name):
        content: JsonValue = decode(frames[0])
        if not isinstance(content, dict) or not {"class", "fastdp", "home", "before", "now"} <= set(content):
            raise ValueError("no publisher in it")
        for frame in frames[1:]:
            record = decode(frame)
            before = with_drawn(content["now"], record["drawn"])
            digest = content["digest"] if content["chunk"] is None else content["chunk"]["digest"]
            content |= {"before": before, "now": record["now"], "chunk": record["chunk"], "digest": digest}
            if "log" in content:
                content["log"] += record.get("log", [])
                # Absent from the state before.
                content["fresh"] = len(record.get("log", []))
    return content


def with_drawn(packed: Packed, drawn: Mapping[str, JsonValue]) -> Packed:
    """Packed state with fields that a replay does not draw again."""
    return {**packed, "state": {**packed["state"], **drawn}} if drawn else packed


def key_of(content: Json) -> Key:
    """Key in a state; else ValueError, LookupError or TypeError."""
    noise, member = content["noise"], require_int(content["member"])
    if type(noise) is not int or noise != Binding.COMPOSITION:
        raise ValueError(f"noise format {validation.shown(noise)}: expected {int(Binding.COMPOSITION)}")
    if type(content["simulated"]) is not bool:
        raise ValueError("simulated is neither true nor false")
    secret, family = (bytes.fromhex(content[name]) for name in ("secret", "family"))
    return Key(secret, simulated=content["simulated"], member=member, binding=Binding.COMPOSITION, family=family)
