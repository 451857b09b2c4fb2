"""Parameters as records: type, range and default of each are declared once, on a field.

A frozen dataclass whose fields are :func:`parameter` calls::

    @record
    class Exponential:
        alpha: float = parameter(Real(above=0.0, most=1.0), default=0.5)

From these follow checks, constructor, JSON, noise identity and command line options.  A field annotated with None is
optional; ``words=("auto",)`` accepts these texts too; ``_check`` checks relations between fields.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, dataclass_transform

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Json
from fastdp.validation import refusal

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
_METADATA = "fastdp"
_ENTRY = re.compile(r"^(\w[\w, ]*)(?: : [^\n]*)?\n((?:[ ]+[^\n]*\n?|\n(?=[ ]))+)", re.MULTILINE)


@dataclass(frozen=True)
class Kind:
    """Parameter that ``_check`` validates, or one of `words`."""

    words: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    optional: bool = dataclasses.field(default=False, kw_only=True)

    def check(self, name: str, value: object) -> object:
        """Return the value to store; else ParameterError."""
        return value

    def checker(self, annotation: str) -> Callable[[str, object], object]:
        tests = validation.accepted(annotation) if type(self) is Kind else None

        def check(name: str, value: object) -> object:
            if isinstance(value, str) and value in self.words:
                return value
            if tests is not None:
                validation.kinds(name, value, tests)
            return self.check(name, value)

        return check if tests is not None or self.words else self.check


@dataclass(frozen=True)
class Real(Kind):
    """Finite number between `above` (or `least`) and `below` (or `most`)."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None

    def check(self, name: str, value: object) -> float:
        number = validation.real(name, value)
        low = (self.above is None or number > self.above) and (self.least is None or number >= self.least)
        if low and (self.below is None or number < self.below) and (self.most is None or number <= self.most):
            return number
        raise refusal(name, value, self.accepted)

    @property
    def accepted(self) -> str:
        named = (("above", self.above), ("of at least", self.least), ("below", self.below), ("at most", self.most))
        return "a number " + " and ".join(f"{word} {end:g}" for word, end in named if end is not None)


@dataclass(frozen=True)
class Whole(Kind):
    """Integer from `low` to `high`."""

    low: int
    high: int | None = None

    def check(self, name: str, value: object) -> int:
        return validation.integer(name, value, self.low, self.high)


@dataclass(frozen=True)
class Flag(Kind):
    """True or False."""

    def check(self, name: str, value: object) -> bool:
        return validation.flag(name, value)


@dataclass(frozen=True)
class Text(Kind):
    """Text of `least` to `longest` Unicode characters."""

    longest: int | None = None
    least: int = 1

    def check(self, name: str, value: object) -> str:
        most = math.inf if self.longest is None else self.longest
        if isinstance(value, str) and validation.encodes(value) and self.least <= len(value) <= most:
            return value
        size = "" if self.longest is None else f"{self.least} to {self.longest} "
        raise refusal(name, value, f"a text of {size}Unicode characters")


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few names."""

    accepted: tuple[str, ...]

    def check(self, name: str, value: object) -> str:
        return validation.choice(name, value, self.accepted)


@dataclass(frozen=True)
class Numbers(Kind):
    """List or tuple of `count` numbers, each as `each`."""

    each: Real
    count: int

    def check(self, name: str, value: object) -> tuple[float, ...]:
        if isinstance(value, (list, tuple)) and len(value) == self.count:
            try:
                return tuple(self.each.check(name, entry) for entry in value)
            except ParameterError:  # its message shows an entry
                pass
        wanted = self.each.accepted.removeprefix("a number ")
        raise refusal(name, value, f"{self.count} numbers, each {wanted}")


@dataclass(frozen=True)
class PartOf(Kind):
    """Object with all members of a protocol from `module`."""

    protocol: type
    module: str

    def check(self, name: str, value: object) -> object:
        validation.part(name, value, self.protocol, self.module)
        return value


@dataclass(frozen=True)
class Checked(Kind):
    """Value for which `function` (name, value) returns the stored one."""

    function: Callable[[str, object], object]

    def check(self, name: str, value: object) -> object:
        return self.function(name, value)


def parameter(kind: Kind, *, default: object = MISSING, kw_only: Any = MISSING) -> Any:
    """Declare a record's field by its kind."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={_METADATA: kind})


@dataclass_transform(frozen_default=True, field_specifiers=(parameter, dataclasses.field))
def record(made: type[T]) -> type[T]:
    """Decorator: a class becomes a frozen dataclass that checks its parameters."""
    relate = getattr(made, "_check", None)

    def check(self: object, *_: object) -> None:
        # The record's __post_init__, which InitVars give arguments that it does not need.
        for name, held_by, optional in checks:
            value = getattr(self, name)
            if value is not None or not optional:
                held = held_by(name, value)
                if held is not value:
                    put(self, **{name: held})
        if relate is not None:
            relate(self)

    made.__post_init__ = check  # type: ignore[attr-defined]
    kind = dataclass(frozen=True)(made)
    kind.__init__ = validation.spelled(kind.__init__)  # type: ignore[method-assign]
    annotations = {field.name: cast("str", field.type) for field in dataclasses.fields(cast("Any", kind))}
    checks = [(name, field.checker(annotations[name]), field.optional) for name, field in parameters(kind).items()]
    return kind


def parameters(kind: type) -> dict[str, Kind]:
    """Kinds of a record's parameters by name."""
    fields = dataclasses.fields(cast("Any", kind))
    return {
        field.name: dataclasses.replace(field.metadata[_METADATA], optional="None" in field.type.split(" | "))
        for field in fields
        if _METADATA in field.metadata
    }


def meanings(public: Callable[..., object]) -> dict[str, str]:
    """Meanings of parameters, from the docstring of `public`."""
    _, _, rest = inspect.cleandoc(public.__doc__ or "").partition("Parameters\n----------\n")
    section = re.split(r"^\w[\w ]*\n-{3,}$", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return {
        name.strip(): " ".join(text.split())
        for names, text in _ENTRY.findall(section + "\n")
        for name in names.split(",")
    }


@record
class Keyed:
    """Adds seed and secret key to a record, outside its identity."""

    seed: dataclasses.InitVar[int | str | None] = dataclasses.field(default=None, kw_only=True)
    key: dataclasses.InitVar[Any] = dataclasses.field(default=None, kw_only=True)


def constructor(
    made: Callable[P, T],
) -> Callable[[Callable[[S, T, Any, Any], None]], Callable[Concatenate[S, P], None]]:
    """Decorator of ``__init__(self, record, seed, key)``, for callers that give fields of the record."""

    def decorate(start: Callable[[S, T, Any, Any], None]) -> Callable[Concatenate[S, P], None]:
        @functools.wraps(start)
        def construct(self: S, *args: Any, seed: object = None, key: object = None, **options: Any) -> None:
            named = dict(zip(names, args, strict=False))
            if len(args) > len(names) or named.keys() & options.keys():
                # Python's own error about the arguments.
                made(*args, **options)
            start(self, shared(made, **named, **options), seed, key)

        # Python's own errors about arguments name the public class.
        inspect.unwrap(made.__init__).__qualname__ = start.__qualname__
        construct.record = made  # type: ignore[attr-defined]
        signature = inspect.signature(cast("Any", made).__init__)
        arguments = sorted(signature.parameters.values(), key=lambda one: (one.kind, one.name in ("seed", "key")))
        names = [one.name for one in arguments if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
        construct.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
        return cast("Callable[Concatenate[S, P], None]", construct)

    return decorate


def put(made: object, **fields: object) -> None:
    """Store `fields` of a frozen dataclass under construction."""
    for name, value in fields.items():
        object.__setattr__(made, name, value)


def values_of(made: object, *names: str) -> Json:
    """Fields of a dataclass, or these attributes, by name."""
    return {name: getattr(made, name) for name in names or _names(cast("type", type(made)))}


@functools.lru_cache(maxsize=256)
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cast("Any", kind)))


_PLAIN = frozenset({bool, int, float, str, type(None)})


def shared(make: Callable[..., T], *, warns: bool = False, **fields: object) -> T:
    """Call ``make(**fields)``, or reuse its result for equal plain fields unless it ``warns``."""
    if warns:
        return make(**fields)
    held: list[type] = []
    for field in fields.values():
        if type(field) not in _PLAIN:
            types = _types(field)
            if types is None:
                return make(**fields)
            held += types
    return cast("T", _shared(tuple(held), make, **fields))


def _types(value: object) -> list[type] | None:
    if not _frozen(cast("type", type(value))):
        return None
    types = list(map(type, vars(value).values()))
    return types if _PLAIN.issuperset(types) else None


@functools.lru_cache(maxsize=256)
def _frozen(kind: type) -> bool:
    ours = kind.__module__.partition(".")[0] == "fastdp" and "__slots__" not in vars(kind)
    settings = vars(kind).get("__dataclass_params__")
    return ours and settings is not None and bool(settings.frozen)


@functools.lru_cache(maxsize=128, typed=True)
def _shared(_types: tuple[type, ...], make: Callable[..., object], **fields: object) -> object:
    made = make(**fields)
    # Slot for the record's encoding (fastdp.noise.key), which takes ten times as long as deriving a key.
    vars(made).setdefault("encoding", None)
    return made
