"""TOML tables read key by key; whatever is wrong is named by its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from fastdp import validation
from fastdp.errors import FastDPError, ParameterError

T = TypeVar("T")
_MISSING = object()


class TableReader:
    """One table of a specification.

    Parameters
    ----------
    table : dict
        As tomllib gives it.
    place : str
        Where it stands: ``mechanisms[2]``; empty for the top.
    accepted : sequence of str, optional
        The keys it may have; others are refused.
    """

    def __init__(self, table: object, place: str, accepted: Sequence[str] | None = None) -> None:
        if not isinstance(table, dict):
            raise ParameterError(f"{place or 'specification'} = {validation.shown(table)}: expected a table")
        self._table: dict[str, Any] = table
        self.place = place
        if accepted is not None:
            self.refuse_others(accepted)

    def refuse_others(self, accepted: Sequence[str]) -> None:
        """ParameterError for a key that is none of these."""
        for key, value in self._table.items():
            if key not in accepted:
                raise ParameterError(
                    f"{self.at(key)} = {validation.shown(value)}: unknown key; expected one of {', '.join(accepted)}"
                )

    def at(self, key: str) -> str:
        """The place of a key."""
        return f"{self.place}.{key}" if self.place else key

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def one_of(self, keys: Sequence[str]) -> str:
        """The only one of these keys that is there."""
        there = [key for key in keys if key in self]
        if len(there) != 1:
            raise ParameterError(
                f"{self.place} has {', '.join(there) or 'no source'}: expected one of {', '.join(keys)}"
            )
        return there[0]

    def get(self, key: str, default: Any = _MISSING) -> Any:
        """A value as it stands; ParameterError if it is missing and has no default."""
        if key in self._table:
            return self._table[key]
        if default is _MISSING:
            raise ParameterError(f"{self.at(key)} is missing: expected a value for it")
        return default

    def integer(self, key: str, default: Any = _MISSING, low: int = 0, high: int | None = None) -> int:
        """A whole number."""
        return validation.integer(self.at(key), self.get(key, default), low, high)

    def real(self, key: str) -> float:
        """A finite number."""
        return validation.real(self.at(key), self.get(key))

    def positive(self, key: str, default: Any = _MISSING) -> float:
        """A number above 0."""
        return validation.positive(self.at(key), self.get(key, default))

    def text(self, key: str, default: Any = _MISSING) -> str:
        """A text that is not empty."""
        value = self.get(key, default)
        if not isinstance(value, str) or not value or not validation.encodes(value):
            raise ParameterError(
                f"{self.at(key)} = {validation.shown(value)}: expected a text of Unicode characters, not empty"
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise ParameterError(f"{self.at(key)} = {validation.shown(value)}: expected true or false")
        return value

    def choice(self, key: str, accepted: Sequence[str], default: Any = _MISSING) -> str:
        """One of a few names."""
        return validation.choice(self.at(key), self.get(key, default), accepted)

    def items(self, key: str, check: Callable[[str, object], T], default: Any = _MISSING) -> tuple[T, ...]:
        """A list, not empty and without repetition, whose entries all pass a check."""
        values = self.get(key, default)
        if not isinstance(values, (list, tuple)) or not values:
            raise ParameterError(f"{self.at(key)} = {validation.shown(values)}: expected a list, not empty")
        checked = tuple(check(f"{self.at(key)}[{k}]", value) for k, value in enumerate(values))
        if len(set(checked)) < len(checked):
            raise ParameterError(f"{self.at(key)} = {validation.shown(values)}: expected no entry twice")
        return checked

    def tables(self, key: str) -> Iterator[tuple[str, Any]]:
        """The entries of an array of tables, with their places."""
        values = self.get(key)
        if not isinstance(values, list) or not values:
            raise ParameterError(f"{self.at(key)} = {validation.shown(values)}: expected [[{key}]] tables")
        for k, value in enumerate(values):
            yield f"{self.at(key)}[{k}]", value


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Errors of fastdp's own parts, which begin with the argument's name, get the place in front."""
    try:
        yield
    except FastDPError as error:
        raise type(error)(f"{place}.{error}") from error
