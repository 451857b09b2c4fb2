"""Durable objects that a state file can make again from the arguments of their constructor.

Source: ``docs/state.md``.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.randomness.key import Key
from fastdp.state import codec, persistence
from fastdp.state.durable import Durable


class Rebuilt(Durable):
    """A durable object that its public arguments and a key make."""

    #: Parts that a state file may name; loading a file never runs anything that the file brings along.
    _PARTS: ClassVar[codec.Parts] = {}

    @property
    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """What the constructor was given, but for the key."""

    @classmethod
    def _make(cls, arguments: dict[str, Any], key: Key) -> Self:
        return cls(**{**arguments, "key": key})

    def _describe(self) -> dict[str, Any]:
        return self._description

    @cached_property
    def _description(self) -> dict[str, Any]:
        # Once: a domain may be a map of a whole country.
        return {name: codec.describe_part(value, self._PARTS) for name, value in self._arguments.items()}

    @classmethod
    def _restart(cls, description: dict[str, Any], key: Key, **own: Any) -> Self:
        arguments = {name: codec.build_part(value, cls._PARTS) for name, value in description.items()}
        return cls._make({**arguments, **own}, key)

    def _fresh(self, key: Key) -> Self:
        return self._make(self._arguments, key)


class Keyless(Rebuilt):
    """One whose key serves the fingerprints of kept files alone."""

    #: There is no noise.
    noise_fingerprint = None

    def __init__(self) -> None:
        super().__init__()
        self._key = Key.choose(None, None)

    @classmethod
    def _make(cls, arguments: dict[str, Any], key: Key) -> Self:
        made = cls(**arguments)
        made._key = key
        return made


class Reports(Keyless):
    """One that draws no noise: what it collects is private already, so forks, copies and pickles harm nobody."""

    _forks = True
    #: What its calls change.
    _CHANGING: ClassVar[tuple[str, ...]]

    def _chunk(self, parts: tuple[Any, ...]) -> persistence.Chunk:
        # Reports may come back as another kind of numbers.
        return persistence.as_one(*(_raw(part) for part in parts))

    def _changing(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._CHANGING}

    def _take_over(self, twin: Self, **own: Any) -> None:
        self.__dict__.update(twin._changing() | own)

    def __reduce__(self) -> Any:
        return self._unpickled, (self._arguments, self._position())

    @classmethod
    def _unpickled(cls, arguments: dict[str, Any], position: persistence.Position) -> Self:
        twin = cls._make(arguments, Key.choose(None, None))
        twin._resume(position)
        return twin


class Stepwise(Rebuilt):
    """A durable object whose whole state is one value, ``_state``, replaced by each call.

    Its type, ``_STATE``, is made of what :func:`codec.describe` knows.
    """

    _STATE: ClassVar[Any]
    _state: Any

    @abstractmethod
    def _check(self, state: Any) -> None:
        """ValueError for a state that this object cannot have."""

    def _packed(self, state: Any) -> Any:
        return codec.describe(state)

    def _unpacked(self, described: Any) -> Any:
        return codec.restore(self._STATE, described)

    def _position_of(self, state: Any, consumed: int) -> persistence.Position:
        return {"n_seen": consumed, "state": self._packed(state)}

    def _position(self) -> persistence.Position:
        return self._position_of(self._state, self._consumed)

    def _resume(self, saved: persistence.Position) -> None:
        state = self._unpacked(saved["state"])
        self._check(state)
        self._state = state
        if self._consumed != codec.whole(saved["n_seen"]):
            raise ValueError("a position out of range")

    def _commit(self, following: Any, *parts: Any, **drawn: Any) -> None:
        """Record the state that a batch leads to, where a file is kept, and take it."""
        digest = self._digest
        if self._files.kept is not None:
            digest = self._write_ahead(self._chunk(parts), self._position_of(following, self._consumed + 1), **drawn)
        # One step: an interrupt leaves the batch consumed or not, never half of it.
        self.__dict__.update(_state=following, _replay=None, _digest=digest)


def expect(state: NDArray[Any], like: NDArray[Any]) -> None:
    """ValueError unless an array has the type and shape of another."""
    if state.dtype != like.dtype or state.shape != like.shape:
        raise ValueError(f"an array of {state.dtype} and shape {state.shape}, not {like.dtype} and {like.shape}")


def _raw(part: Any) -> NDArray[np.float64] | bytes:
    return bytes(part) if isinstance(part, (bytes, bytearray, memoryview)) else np.asarray(part, np.float64)
