"""Every argument of every public constructor, and function of fastdp itself, refuses wrong values by its name.

Wrong values follow from annotations, and from the kinds and ranges that records declare; none of their entries is
shown.  ``python -m tests.packaging.test_refusals`` writes the declared ranges to ``ranges.toml``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.record import Checked, Choice, Flag, Keyed, Kind, PartOf, Real, Whole, meanings, parameters
from tests.privacy import canary_arguments

COLUMN = [17.25, 18.5]
HUGE = 10**5000  # which Python refuses to print
RANGES = Path(__file__).with_name("ranges.toml")


class Stranger:
    """A foreign object whose repr shows an entry."""

    def __repr__(self) -> str:
        return "Stranger(17.25)"


HAS_ENTRIES: list[Any] = [COLUMN, np.array(COLUMN), {17.25: 18.5}, Stranger()]
#: Arguments that take texts too, by name.
BY_NAME: dict[str, list[Any]] = {
    "seed": [*HAS_ENTRIES, 1.5, True, -1, b"x", "\ud800", object],
    "key": [*HAS_ENTRIES, 5, "text", b"short", object],
    "every": [*HAS_ENTRIES, "soon", True, 0.0, -1.0, np.nan, object],
    "focus": [*HAS_ENTRIES, "shortest", 0, 1.5, True, (3, 2), object],
}
#: Results, whose constructors the package calls; an argument that None stands for; a limit that follows from others.
WITHOUT = {"Guarantee"}
EXCEPT: dict[tuple[str, str], Any] = {("plan", "delta"): None, ("perturbers.Hierarchy", "prune"): HUGE}
EXCEPT |= {("baselines.Zeros", "holdout"): HUGE, ("plan", "every"): "soon"}


def kinds_of(hint: Any) -> set[Any]:
    """The members of a union and of its aliases; Literal for texts of a choice."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return set().union(*map(kinds_of, typing.get_args(hint)))
    if typing.get_origin(hint) is Literal:
        return {Literal}
    return {typing.get_origin(hint) or hint}


def is_part(kind: Any) -> bool:
    """True if objects of a protocol are expected."""
    return isinstance(kind, type) and getattr(kind, "_is_protocol", False)


def wrong_for(hint: Any) -> list[Any]:
    """Values that an annotation does not name; none where it names others than numbers, choices and parts."""
    kinds = kinds_of(hint)
    if any(kind not in (float, int, bool, Literal, type(None)) and not is_part(kind) for kind in kinds):
        return []
    values = [*HAS_ENTRIES, object, 1j, "none of them", "17.25", b"17.25"]
    if type(None) not in kinds:
        values.append(None)
    if kinds & {float, int}:
        values += [True, np.nan, np.inf, -np.inf, HUGE, -HUGE]
    if int in kinds and float not in kinds:
        values += [1.5, -1]
    if kinds.isdisjoint({float, int}):
        values += [2, 17.25]
    return values


def refused_by(kind: Kind) -> list[Any]:
    """Values that a declaration does not accept."""
    values: list[Any] = [] if type(kind) is Kind else [*HAS_ENTRIES]
    if not kind.optional and type(kind) is not Kind:
        values.append(None)
    if isinstance(kind, Real):
        values += ["1", True, 1j, np.nan, np.inf, HUGE]
        values += [end for end in (kind.above, kind.below) if end is not None]
        values += [end - 1.0 for end in (kind.least,) if end is not None]
        values += [2.0 * end for end in (kind.most,) if end]
    if isinstance(kind, Whole):
        values += ["1", True, 1.5, kind.low - 1, *([] if kind.high is None else [kind.high + 1])]
    if isinstance(kind, Flag):
        values += [1, "yes"]
    if isinstance(kind, Choice):
        values += ["none of them", 1]
    if isinstance(kind, PartOf):
        values += [1.0, "text", kind.protocol]
    return values


def records() -> dict[str, type]:
    """The records of all modules of fastdp, by the names of their classes."""
    found = {}
    for module in pkgutil.walk_packages(fastdp.__path__, "fastdp."):
        if module.name.startswith(("fastdp.engines.", "fastdp.interop.", "fastdp.__main__")):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__") and parameters(kind):
                found[kind.__name__] = kind
    found.pop(Keyed.__name__, None)
    return dict(sorted(found.items()))


def arguments() -> Iterator[tuple[str, str, list[Any]]]:
    """Names of calls, of their arguments, and wrong values of each."""
    for name in canary_arguments.names():
        thing = canary_arguments.look_up(name)
        if name in WITHOUT or not (isinstance(thing, type) or "." not in name):
            continue
        function = inspect.unwrap(thing.__init__ if isinstance(thing, type) else thing)
        made = getattr(function, "record", thing)
        declared = parameters(made) if hasattr(made, "__dataclass_fields__") else {}
        modules = {**vars(sys.modules[function.__module__]), **vars(sys.modules[thing.__module__])}
        try:
            hints = {} if declared else typing.get_type_hints(function, modules)
        except NameError:  # of an import for type checkers
            hints = {}
        for each in inspect.signature(thing).parameters:
            values = [*BY_NAME.get(each, []), *(refused_by(declared[each]) if each in declared else [])]
            values = values or wrong_for(hints.get(each, Any))
            values = [value for value in values if value is not EXCEPT.get((name, each), COLUMN)]
            if values:
                yield name, each, values


CASES = list(arguments())


def check(said: str, argument: str, value: Any) -> None:
    """The message names the argument and says what is expected, in one line and without entries."""
    named = argument in said.partition(":")[0].split(", ")
    assert named or said.startswith((argument, "stream")) or f"{argument} = " in said, said
    assert "expected" in said, said
    assert "\n" not in said, said
    assert len(said) < 500, said
    assert isinstance(value, (float, str, bytes)) or "17.25" not in said, said


@pytest.mark.parametrize("name", sorted({name for name, _, _ in CASES}))
def test_each_argument_refuses_what_it_does_not_accept(name: str, tmp_path: Path) -> None:
    call = canary_arguments.Call(name, tmp_path)
    for argument, values in ((argument, values) for own, argument, values in CASES if own == name):
        for value in values:
            with pytest.raises(ParameterError) as caught:
                call.make(argument, value)
            check(str(caught.value), argument, value)
    with pytest.raises(TypeError, match="epsilom"):
        call.make("epsilom", 1.0)


def test_most_arguments_are_tried() -> None:
    assert len({name for name, _, _ in CASES}) >= 45
    assert len(CASES) >= 250
    assert {"Adaptive", "PAK", "ToPS", "StreamPublisher", "release", "PHDStream"} <= {name for name, _, _ in CASES}


@pytest.mark.parametrize("made", records().values(), ids=lambda made: made.__name__)
def test_each_field_of_a_record_refuses_what_it_does_not_accept(made: type) -> None:
    for name, kind in parameters(made).items():
        for value in refused_by(kind):
            with pytest.raises(ParameterError) as caught:
                kind.check(name, value)
            check(str(caught.value), name, value)
            assert caught.value.parameter == name


def ranges() -> dict[str, dict[str, str]]:
    """Accepted values of each record's fields, by their declarations."""
    return {
        name: {field: shown(kind) for field, kind in parameters(made).items() if not isinstance(kind, Checked)}
        for name, made in records().items()
    }


def shown(kind: Kind) -> str:
    """A declaration, without what has no end."""
    given = {
        name: value for name, value in vars(kind).items() if value not in (None, (), False) and name != "protocol"
    }
    return " ".join([type(kind).__name__, *(f"{name}={value!r}" for name, value in given.items())])


def test_ranges_are_the_ones_written_down() -> None:
    """An end that is moved by mistake would move the refused values with it."""
    found, written = ranges(), tomllib.loads(RANGES.read_text())
    assert {name for name, fields in found.items() if fields} == written.keys()
    for name, fields in written.items():
        assert found[name].items() >= fields.items()


def test_a_constructor_has_the_arguments_of_its_record() -> None:
    signature = inspect.signature(fastdp.PAK)
    assert [*signature.parameters][:4] == ["epsilon", "delta", "bound", "length"]
    assert {"seed", "key"} <= set(signature.parameters)
    assert {*signature.parameters} <= {*meanings(fastdp.PAK)}


if __name__ == "__main__":
    lines = [
        f"[{name}]\n" + "".join(f'{field} = "{kind}"\n' for field, kind in fields.items())
        for name, fields in ranges().items()
        if fields
    ]
    RANGES.write_text("\n".join(lines))
