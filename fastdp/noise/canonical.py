"""Encode mechanism and parameters as bytes, from which noise keys are derived (``docs/noise.md``, section 1)."""

from __future__ import annotations

import dataclasses
import numbers
import struct
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from fastdp.kinds import Json

# The encoding is injective.  A value is a letter, the content's length in 8 bytes, and the content: n None; i a
# decimal integer; d a float64, big-endian; s UTF-8 text; b bytes; l a list; m a mapping, ordered by name; a an array
# (type, shape, bytes); q a fraction; p a component (name, rule, parameters).  Truth values are t or f alone.

#: Version of the rule that turns a secret, a composition and a prefix into noise.
NOISE_FORMAT = 1
#: A parameter: number, text, array, component, a list or mapping of these, or None if unreadable.
Encodable: TypeAlias = Any


class Component(NamedTuple):
    """A component in an encoding, with parameters or None if unreadable."""

    name: str
    rule: int
    parameters: Json | None


def encode(value: Encodable) -> bytes:
    """Encode `value`; TypeError if it has no encoding."""
    # Text and numbers first, by their very type: most parameters are such, and each publisher with a key pays.
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is float:
        return _double(value)
    if kind is int:
        return _integer(value)
    if value is None:
        return _NONE
    if kind is bool:
        return b"t" if value else b"f"
    if kind is Component:
        return tagged(b"p", _head(value.name, value.rule) + encode(value.parameters))
    if isinstance(value, dict):
        return tagged(b"m", b"".join([_name(name) + encode(value[name]) for name in sorted(value)]))
    if isinstance(value, (list, tuple)):
        return tagged(b"l", b"".join([encode(entry) for entry in value]))
    # Rarer types and subclasses.
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, bytes):
        return tagged(b"b", value)
    if isinstance(value, np.ndarray):
        return tagged(b"a", encode([value.dtype.str, list(value.shape), value.tobytes()]))
    if isinstance(value, Fraction):
        return tagged(b"q", encode([value.numerator, value.denominator]))
    if isinstance(value, numbers.Integral):
        return encode(int(value))
    if isinstance(value, np.floating) and float(value) == value:
        return encode(float(value))
    raise TypeError(f"a {type(value).__name__} has no encoding")


def tagged(tag: bytes, content: bytes) -> bytes:
    """Join a letter, a content's size, and the content."""
    return _SIZED(tag, len(content)) + content


def _text(text: str) -> bytes:
    return tagged(b"s", text.encode("utf-8", "surrogatepass"))


def _integer(number: int) -> bytes:
    return tagged(b"i", b"%d" % number)


def _double(number: float) -> bytes:
    # Negative zero is the same parameter as zero.
    return _DOUBLE(b"d", 8, number + 0.0)


_SIZED, _DOUBLE = struct.Struct(">cQ").pack, struct.Struct(">cQd").pack
_NONE = tagged(b"n", b"")
#: The same parameters have the same names each time; values are not kept.
_name = lru_cache(maxsize=1024)(_text)


@lru_cache(maxsize=1024)
def _head(name: str, rule: int) -> bytes:
    return _text(name) + _integer(rule)


#: Types that :func:`identity` returns unchanged.
PLAIN = frozenset({str, float, int, bool, bytes, type(None)})


def identity(value: Encodable) -> Encodable:
    """Convert a parameter for :func:`encode`; else TypeError."""
    kind = cast("type", type(value))
    if kind in PLAIN or isinstance(value, (str, float, int, bytes)):
        return value
    if isinstance(value, (list, tuple)):
        # A class with named entries may be a component; its class counts too.
        if hasattr(kind, "_fields"):
            named = zip(kind._fields, value, strict=True)
            return Component(part_name(value), rule_of(value), {name: identity(entry) for name, entry in named})
        return [identity(entry) for entry in value]
    mapping, number = _abstract(kind)
    if mapping and all(isinstance(name, str) for name in value):
        return {name: entry if type(entry) in PLAIN else identity(entry) for name, entry in value.items()}
    if number:
        if isinstance(value, np.ndarray) and value.dtype.kind in "OV":
            raise TypeError("an array of objects has no encoding")  # its bytes are addresses
        return value
    read = {name: entry if type(entry) in PLAIN else identity(entry) for name, entry in parameters_of(value).items()}
    return Component(part_name(value), rule_of(value), read)


def parameters_of(component: Encodable) -> Json:
    """Parameters of a component: ``identity()``, dataclass fields, attributes of foreign classes; else TypeError."""
    kind = cast("type", type(component))
    fields = _fields(kind)
    if fields is not None:
        # Parameters that have one value are part of keys besides.
        values = {**getattr(kind, "constant_parameters", {}), **{name: getattr(component, name) for name in fields}}
        # fastdp's own components keep derived values there.
        return values if _is_own(kind) else {**values, **_attributes(component, kind)}
    if hasattr(kind, "identity"):
        said: Json = component.identity()
        return said
    if not hasattr(component, "__dict__") or callable(component) or isinstance(component, Mapping):
        raise TypeError(f"a {kind.__name__} has no encoding")
    return _attributes(component, kind)


def _attributes(component: object, kind: type) -> Json:
    held = object.__getstate__(component)
    parts = held if isinstance(held, tuple) else (held,)
    return {
        name: value
        for attributes in parts
        for name, value in (attributes or {}).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }


def rule_of(component: object) -> int:
    """Version of the rule by which a component draws: 1, plus the excess over 1 of each class's attribute ``rule``.

    Raise it when a class draws otherwise, so that old keys give other words.
    """
    return _rule(cast("type", type(component)))


def _rule(kind: type) -> int:
    rules: list[int] = [vars(base).get("rule", 1) for base in kind.__mro__]
    return 1 + sum([rule - 1 for rule in rules])


def check_rule(kind: type, written: object) -> None:
    """ValueError for a file written under another rule."""
    rule = _rule(kind)
    if type(written) is not int or written != rule:
        raise ValueError(f"rule {written!r} of {kind.__name__}: expected {rule}")


@lru_cache(maxsize=1024)
def _abstract(kind: type) -> tuple[bool, bool]:
    return issubclass(kind, Mapping), issubclass(kind, (numbers.Real, np.ndarray))


@lru_cache(maxsize=1024)
def _fields(kind: type) -> list[str] | None:
    if hasattr(kind, "identity") or not dataclasses.is_dataclass(kind):
        return None
    return [field.name for field in dataclasses.fields(kind) if field.init]


def part_name(component: object) -> str:
    """Class name; foreign classes include their module."""
    return _class_name(cast("type", type(component)))


@lru_cache(maxsize=1024)
def _class_name(kind: type) -> str:
    return kind.__qualname__ if _is_own(kind) else f"{kind.__module__}.{kind.__qualname__}"


@lru_cache(maxsize=1024)
def _is_own(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("fastdp", "fastdp_lab")
