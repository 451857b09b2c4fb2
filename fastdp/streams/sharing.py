"""Publishers alike share one composition, with all that follows from it: checks, guarantee, the encoding for keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from fastdp.noise.key import Binding, Key

_PLAIN = frozenset({bool, int, float, str, type(None)})


def shared(make: Callable[..., Any], *fields: Any, warns: bool = False) -> Any:
    """The composition that ``make``, which ``warns`` or not, makes of these fields.

    Shared where they are plain numbers and texts, or fastdp's own parts made of such: parts of one's own may change.
    """
    if warns:
        return make(*fields)
    held: list[type] = []
    for field in fields:
        if type(field) not in _PLAIN:
            types = _types(field)
            if types is None:
                return make(*fields)
            held += types
    return _shared(tuple(held), make, *fields)


def _types(part: Any) -> list[type] | None:
    """Types of what a part is made of; None where it may change."""
    if not _frozen(cast("type", type(part))):
        return None
    types = list(map(type, vars(part).values()))
    return types if _PLAIN.issuperset(types) else None


@lru_cache(maxsize=256)
def _frozen(kind: type) -> bool:
    """Whether this is a class of fastdp whose objects never change."""
    own = kind.__module__.partition(".")[0] == "fastdp" and "__slots__" not in vars(kind)
    parameters = vars(kind).get("__dataclass_params__")
    return own and parameters is not None and bool(parameters.frozen)


@lru_cache(maxsize=128, typed=True)
def _shared(_types: tuple[type, ...], make: Callable[..., Any], *fields: Any) -> Any:
    """Numbers that are equal but of other types may give other noise: hence the types."""
    made = make(*fields)
    vars(made).setdefault("encoding", None)
    return made


def noise_key(composition: Any, secret: Key) -> Key:
    """The noise key of a composition under a secret: :meth:`fastdp.noise.key.Key.bind`."""
    if secret.binding is not Binding.ROOT:
        return secret
    return secret.bound(encoded(composition, secret))


def encoded(composition: Any, secret: Key) -> bytes:
    """What :meth:`fastdp.noise.key.Key.composition` gives under any root secret.

    That of a shared composition is kept; it takes ten times as long as a key.
    """
    own = vars(composition)
    encoding: bytes | None = own.get("encoding")
    if encoding is None:
        encoding = secret.composition(composition)
        if "encoding" in own:
            own["encoding"] = encoding
    return encoding
