"""Numbers, arrays, records and components as MessagePack and back."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec
import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import StateError
from fastdp.kinds import Array, Json
from fastdp.noise.canonical import check_rule, rule_of
from fastdp.noise.key import Binding, Key
from fastdp.record import values_of

#: A value that JSON has, or bytes.
JsonValue: TypeAlias = Any
#: A state as such values (:meth:`fastdp.state.machine.Machine.pack`).
Packed: TypeAlias = Json
#: Classes of components by their names.
Parts = Mapping[str, type]


class NamedParts(Mapping[str, type]):
    """Dataclasses among public names of `packages`, loaded on use, and `others`."""

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
    """Content of a state as MessagePack."""
    try:
        return _ENCODER.encode(content)
    except (OverflowError, UnicodeEncodeError):
        plain = msgspec.to_builtins(content, builtin_types=(bytes,), enc_hook=float.__float__)
        return _ENCODER.encode(_with_extensions(plain))


def decode(raw: bytes) -> JsonValue:
    """Content that :func:`encode` wrote."""
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
    """Array of :func:`pack`; ValueError or TypeError for other bytes."""
    return np.frombuffer(raw, kind)


def require_int(number: object) -> int:
    """`number`, if an int; ValueError for 2.0 too."""
    if type(number) is not int:
        raise ValueError(f"a {type(number).__name__} in place of a whole number")
    return number


def describe(record: object) -> JsonValue:
    """Plain values of a record: of numbers, texts, arrays, tuples and dataclasses."""
    if isinstance(record, np.ndarray):
        return {"shape": list(record.shape), "data": pack(record, _KINDS[record.dtype.type])}
    if isinstance(record, (list, tuple)):
        return [describe(entry) for entry in record]
    if dataclasses.is_dataclass(record):
        return {name: describe(value) for name, value in values_of(record).items()}
    return record


def restore(kind: Any, described: JsonValue) -> Any:
    """Record of type `kind` from :func:`describe`; else ValueError."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if described is None else restore(inner[0], described)
    if origin is np.ndarray:
        scalar = typing.get_args(inner[1])[0]
        array = unpack(described["data"], _KINDS[scalar]).astype(scalar)
        return array.reshape([require_int(side) for side in described["shape"]])
    if origin is list:
        return [restore(inner[0], entry) for entry in described]
    if origin is tuple:
        kinds = (inner[0],) * len(described) if inner[-1] is Ellipsis else inner
        return tuple(restore(k, entry) for k, entry in zip(kinds, described, strict=True))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: restore(hints[name], described[name]) for name in names})  # type: ignore[operator]
    if type(described) is not kind:
        raise ValueError(f"a {type(described).__name__} in place of a {kind.__name__}")
    return described


@typing.runtime_checkable
class Described(typing.Protocol):
    """Component with plain values for ``from_description``."""

    def describe(self) -> Json: ...


def describe_part(part: object, known: Parts) -> JsonValue:
    """Plain value of a parameter, components by name, rule, parameters; StateError for an unknown one."""
    if part is None or isinstance(part, (bool, int, float, str)):
        return part
    if isinstance(part, (list, tuple)):
        return [describe_part(entry, known) for entry in part]
    name = type(part).__name__
    if known.get(name) is not type(part):
        raise StateError(f"a {name} of your own cannot be saved: expected one of {', '.join(sorted(known))}")
    named = {"name": name, "rule": rule_of(part)}
    if isinstance(part, Described):
        return {**named, **part.describe()}
    fields = dataclasses.fields(part)  # type: ignore[arg-type]
    return {**named, **values_of(part, *(each.name for each in fields if each.init))}


def build_part(description: JsonValue, known: Parts) -> Any:
    """Parameter that :func:`describe_part` wrote, from the classes `known`."""
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
    """Turn damage within an authenticated state into a StateError that names another version `writer`."""
    try:
        yield
    except DAMAGE as error:
        same = writer in (None, __version__)
        shown = validation.shown(writer).strip("'")
        other = "" if same else f" (or needs fastdp {shown}, which wrote it; this is {__version__})"
        raise StateError(f"{name} is damaged{other}: {error}") from error


def content_of(frames: list[bytes], name: str) -> Json:
    """Content of a state with later records applied; StateError if damaged."""
    with decode_errors(name):
        content: JsonValue = decode(frames[0])
        if not isinstance(content, dict) or not {"class", "fastdp", "home", "before", "now"} <= set(content):
            raise ValueError("no publisher in it")
        for frame in frames[1:]:
            record = decode(frame)
            before = {**content["now"], **record["drawn"]}
            digest = content["digest"] if content["chunk"] is None else content["chunk"]["digest"]
            content |= {"before": before, "now": record["now"], "chunk": record["chunk"], "digest": digest}
            if "log" in content:
                content["log"] += record.get("log", [])
                # Absent from the state before.
                content["fresh"] = len(record.get("log", []))
    return content


def key_of(content: Json) -> Key:
    """Key in a state; else ValueError, LookupError or TypeError."""
    noise, member = content["noise"], require_int(content["member"])
    if type(noise) is not int or noise != Binding.COMPOSITION:
        raise ValueError(f"noise format {validation.shown(noise)}: expected {int(Binding.COMPOSITION)}")
    secret, family = (bytes.fromhex(content[name]) for name in ("secret", "family"))
    return Key(secret, simulated=content["simulated"], member=member, binding=Binding.COMPOSITION, family=family)
