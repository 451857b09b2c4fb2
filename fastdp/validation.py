"""Checks of parameters, which raise :class:`~fastdp.errors.ParameterError`."""

from __future__ import annotations

import inspect
import itertools
import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from numbers import Real
from typing import Any, ParamSpec, TypeVar, cast

from fastdp.errors import ParameterError

P = ParamSpec("P")
R = TypeVar("R")
MAX_SHOWN_LENGTH = 80
MAX_THREADS = 1024
_SCALARS = frozenset({bool, int, float, complex, str, type(None)})
#: Packages whose scalars print no entries.
_MODULES = frozenset({"builtins", "datetime", "decimal", "fractions", "numpy", "pathlib", "fastdp"})


def is_scalar(value: object) -> bool:
    """True for one text, number, time or fastdp object."""
    kind = type(value)
    if kind in _SCALARS or isinstance(value, type):
        return True
    # NumPy's scalars have no length; arrays do, even where they have no axis.
    return not hasattr(value, "__len__") and kind.__module__.partition(".")[0] in _MODULES


def shown(value: object) -> str:
    """Shorten `value` for a message, to its type if a container, which may hold private values."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"<a {'negative ' if value < 0 else ''}whole number of {value.bit_length()} bits>"
    try:
        text = repr(value) if is_scalar(value) else f"<{type(value).__name__}>"
    except Exception:  # a foreign repr, or an int inside it that is too long to print
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_SHOWN_LENGTH else text[: MAX_SHOWN_LENGTH - 3] + "..."


def refusal(name: str, value: object, expected: str) -> ParameterError:
    """Error about a parameter, its value and accepted ones."""
    return ParameterError(f"{name} = {shown(value)}: expected {expected}", parameter=name)


def plain(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: ParameterError for an array or list in place of a scalar."""
    unwrapped = inspect.unwrap(function)
    checked = {name: accepted(kind) for name, kind in unwrapped.__annotations__.items() if name != "return"}
    names = unwrapped.__code__.co_varnames[: unwrapped.__code__.co_argcount]

    @wraps(function)
    def check(*args: P.args, **kwargs: P.kwargs) -> R:
        if unwrapped.__annotations__.keys() >= kwargs.keys():
            for name, value in itertools.chain(zip(names, args, strict=False), kwargs.items()):
                if taken := checked.get(name):
                    kinds(name, value, taken)
        else:
            _explain(unwrapped, kwargs)
        return function(*args, **kwargs)

    return check


def spelled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a TypeError about an unknown keyword names a similar one."""
    unwrapped = inspect.unwrap(function)

    @wraps(function)
    def check(*args: P.args, **kwargs: P.kwargs) -> R:
        if not unwrapped.__annotations__.keys() >= kwargs.keys():
            _explain(unwrapped, kwargs)
        return function(*args, **kwargs)

    return check


def _explain(function: Callable[..., object], options: Mapping[str, object]) -> None:
    # Python itself reports a name that is like no other.
    from difflib import get_close_matches  # as slow to import as all of this package

    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in () if code.co_flags & inspect.CO_VARKEYWORDS else options.keys() - set(names):
        if alike := get_close_matches(name, names, 1):
            raise TypeError(f"{function.__qualname__}() has no parameter {name!r}: did you mean {alike[0]!r}?")


def kinds(name: str, value: object, accepted: Sequence[tuple[Callable[[object], bool], str]]) -> None:
    """ParameterError unless `value` passes a test."""
    if not any(takes(value) for takes, _ in accepted):
        words = dict.fromkeys(said for _, said in accepted)
        raise refusal(name, value, " or ".join(words))


def accepted(annotation: str) -> list[tuple[Callable[[object], bool], str]] | None:
    """Tests and words for an annotation, or None."""
    while (shorter := re.sub(r"\[[^][]*\]", "", annotation)) != annotation:
        annotation = shorter
    tests = [_KINDS.get(kind) for kind in annotation.split(" | ")]
    return None if None in tests else cast("list[tuple[Callable[[object], bool], str]]", tests)


def real(name: str, value: object) -> float:
    """`value` as a finite float, no bool or text."""
    # By type first: isinstance with an abstract class takes ten times as long.
    if type(value) not in (float, int) and (isinstance(value, bool) or not isinstance(value, Real)):
        raise refusal(name, value, f"a real number, got {type(value).__name__}")
    try:
        number = float(cast("float", value))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise refusal(name, value, "a finite number")
    return number


def positive(name: str, value: object) -> float:
    """`value` as a finite float above 0."""
    number = real(name, value)
    if number <= 0.0:
        raise refusal(name, value, "a number above 0")
    return number


def check_mean(value: float, low: float, high: float) -> float:
    """Expected mean of values within a bound; else ParameterError."""
    if not low <= value <= high:
        raise refusal("mean", value, f"a mean of values from {low:g} to {high:g}, their bound, or a wider bound")
    return value


def probability(name: str, value: object) -> float:
    """`value` as a float in (0, 1)."""
    number = real(name, value)
    if not 0.0 < number < 1.0:
        raise refusal(name, value, "above 0 and below 1")
    return number


def period(name: str, value: object) -> float:
    """Period of a stream as float, from 2 to 2^40 values."""
    number = real(name, value)
    if not 2.0 <= number <= 2.0**40:
        raise ParameterError(f"{name} = {number:g}: expected from 2 to 2^40 values")
    return number


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """`value` as an int in [`low`, `high`], no bool."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < low or (high is not None and number > high):
        accepted = f"a whole number of at least {low}" + ("" if high is None else f" and at most {high}")
        raise refusal(name, value, accepted)
    return number


def flag(name: str, value: object) -> bool:
    """`value` as bool."""
    # By name, so that NumPy's bool_ counts without an import.
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        raise refusal(name, value, "True or False")
    return bool(value)


def part(name: str, value: object, kind: type, module: str) -> None:
    """ParameterError unless `value` has all members of protocol `kind`."""
    missing = sorted(member for member in vars(kind) if member[0] != "_" and not hasattr(value, member))
    if isinstance(value, type) or missing:
        lacking = "it is a class" if isinstance(value, type) else f"it lacks {', '.join(missing)}"
        raise refusal(name, value, f"an object from {module} ({lacking})")


#: Test and words for each type in an annotation.
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "bool": (is_scalar, "True or False"),
    "int": (is_scalar, "a whole number"),
    "float": (is_scalar, "a number"),
    "str": (is_scalar, "a text"),
    "Literal": (is_scalar, "a text"),
    "Path": (lambda value: isinstance(value, os.PathLike), "a path"),
    "None": (lambda value: value is None, "None"),
    "bytes": (lambda value: isinstance(value, (bytes, bytearray, memoryview)), "bytes"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a mapping"),
    "Callable": (callable, "a function"),
}


def encodes(text: str) -> bool:
    """True for a text without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def path(name: str, value: object) -> str:
    """`value` as the text of a possible path."""
    try:
        text = os.fsdecode(value)  # type: ignore[arg-type]
        if text and b"\0" not in os.fsencode(text):
            return text
    except (TypeError, UnicodeError):
        pass
    raise refusal(name, value, "the path of a file or folder, without NUL characters")


def pair(name: str, value: object) -> tuple[Any, Any]:
    """Two entries of a list or tuple."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise refusal(name, value, "two entries")
    return value[0], value[1]


def ends(name: str, value: object) -> tuple[float, float]:
    """Two finite floats from a list or tuple."""
    low, high = pair(name, value)
    try:
        return real(name, low), real(name, high)
    except ParameterError:  # its message shows an entry
        raise refusal(name, value, "two finite numbers") from None


def choice(name: str, value: object, accepted: Sequence[str]) -> str:
    """`value`, if one of the `accepted` names."""
    if not isinstance(value, str) or value not in accepted:
        listed = ", ".join(repr(option) for option in accepted)
        raise refusal(name, value, f"one of {listed}")
    return value


def threads(value: object) -> int:
    """Number of threads from 1 to MAX_THREADS."""
    return integer("threads", value, 1, MAX_THREADS)


# Lengths of time written as texts: "30min", "1.5h", "1d".

#: Microseconds of the units of fixed length.
FIXED = {"us": 1, "ms": 1_000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6}
DAY = 24 * FIXED["h"]
_TEXT = re.compile(r"(\d{0,12}(?:\.\d{1,6})?) ?([a-z]+)", re.ASCII)


def split_duration(text: object) -> tuple[Fraction, str]:
    """Split "30min" into number, by default 1, and unit; 0 for another text."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return (Fraction(match[1] or 1), match[2]) if match else (Fraction(0), "")
