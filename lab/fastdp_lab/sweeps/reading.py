"""Tables of a specification become dataclasses; every error names the key by its path in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

import numpy as np

from fastdp import validation
from fastdp._optional import imported
from fastdp.errors import FastDPError, ParameterError, StateError

T = TypeVar("T")
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def at(place: str, key: str) -> str:
    """The path of a key: ``mechanisms[2].prune``."""
    return f"{place}.{key}" if place else key


def as_table(value: object, place: str) -> dict[str, Any]:
    """The value as a table, or ParameterError."""
    if not isinstance(value, dict):
        raise ParameterError(f"{place or 'specification'} = {validation.shown(value)}: expected a table")
    return value


def check_keys(table: Mapping[str, Any], place: str, accepted: Sequence[str], required: Sequence[str] = ()) -> None:
    """ParameterError for a key that is not accepted, and for a required one that is missing."""
    for key, value in table.items():
        if key not in accepted:
            listed = f"one of {', '.join(accepted)}" if accepted else "no parameters"
            raise ParameterError(f"{at(place, key)} = {validation.shown(value)}: unknown key; expected {listed}")
    for key in required:
        if key not in table:
            raise ParameterError(f"{at(place, key)} is missing: expected a value for it")


def read(kind: type[T], table: object, place: str, accepted: Sequence[str] | None = None, /, **given: Any) -> T:
    """A dataclass from a table: msgspec converts each value to the field's type, the class checks its range.

    Parameters
    ----------
    kind : type
        The dataclass.
    table : object
        As ``tomllib`` returns it.
    place : str
        The table's path; empty for the top level.
    accepted : sequence of str, optional
        Keys that the table may have; by default all fields that are not given.
    **given
        Fields that do not come from the table.
    """
    checked, hints = as_table(table, place), get_type_hints(kind)
    own = [each for each in fields(kind) if each.name not in given]  # type: ignore[arg-type]
    required = [each.name for each in own if each.default is MISSING and each.default_factory is MISSING]
    check_keys(checked, place, [each.name for each in own] if accepted is None else accepted, required)
    values = {key: convert(value, hints[key], at(place, key)) for key, value in checked.items()}
    with placed(place):
        return kind(**values, **given)


def convert(value: object, kind: Any, place: str) -> Any:
    """A value of a TOML file as a Python type; ParameterError with the entry's path if it has another type."""
    told = "a specification needs msgspec, which is not installed: pip install 'fastdp-streams[lab]'"
    msgspec = imported("msgspec", StateError(told))
    try:
        return msgspec.convert(_builtin(value), kind)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        wrong: Any = value
        for index in re.findall(r"\[(\d+)\]", path):
            wrong = wrong[int(index)]
        wanted = re.match(r"Expected `(.*?)`", said)
        names = (
            [_EXPECTED.get(name, name) for name in wanted[1].split(" | ") if name != "null"]
            if wanted
            else [f"another value ({said})"]
        )
        raise ParameterError(
            f"{place}{path.rstrip('`')} = {validation.shown(wrong)}: expected {' or '.join(names)}"
        ) from None


def _builtin(value: object) -> object:
    """NumPy's numbers as Python's, for tables that are made in Python."""
    if isinstance(value, (list, tuple)):
        return [_builtin(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def text(name: str, value: object) -> str:
    """A text that is not empty and can be stored."""
    if not isinstance(value, str) or not value or not validation.encodes(value):
        shown = validation.shown(value)
        raise ParameterError(f"{name} = {shown}: expected a text of Unicode characters, not empty")
    return value


def check_entries(name: str, values: Sequence[T], check: Callable[[str, T], object]) -> None:
    """ParameterError unless a list has entries, all different, that pass a check."""
    shown = validation.shown(list(values))
    if not values:
        raise ParameterError(f"{name} = {shown}: expected a list, not empty")
    for k, value in enumerate(values):
        check(f"{name}[{k}]", value)
    if len(set(values)) < len(values):
        raise ParameterError(f"{name} = {shown}: expected no entry twice")


def check_rising(name: str, values: Sequence[int], low: int, what: str) -> None:
    """ParameterError unless a list has whole numbers of at least ``low``, in rising order."""
    check_entries(name, values, lambda place, value: validation.integer(place, value, low))
    if list(values) != sorted(values):
        raise ParameterError(f"{name} = {list(values)}: expected rising {what}")


def tables(table: Mapping[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of an array of tables, with their paths."""
    check_keys(table, "", tuple(table), (key,))
    if not isinstance(table[key], list) or not table[key]:
        raise ParameterError(f"{key} = {validation.shown(table[key])}: expected [[{key}]] tables")
    for k, value in enumerate(table[key]):
        place = f"{key}[{k}]"
        yield place, as_table(value, place)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Put the path in front of errors that begin with an argument's name."""
    try:
        yield
    except FastDPError as error:
        raise type(error)(at(place, str(error))) from error
