"""Publishers that one public plan and a key make."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol, Self

from fastdp.randomness.key import Key
from fastdp.state.durable import Durable


class CellParameters(Protocol):
    """Parts and parameters, checked; it also has ``from_description``, which reads what ``describe`` wrote."""

    def describe(self) -> dict[str, Any]:
        """Parts by name, and parameters, for a state file."""
        ...


class Planned(Durable):
    """A durable publisher that :meth:`_begin` starts; what its constructor takes does not matter."""

    _PLAN: ClassVar[Any]

    @property
    @abstractmethod
    def n_seen(self) -> int:
        """Values consumed."""

    @property
    @abstractmethod
    def _public(self) -> CellParameters:
        """The plan."""

    @abstractmethod
    def _begin(self, plan: Any, key: Key) -> None:
        """Take the starting position."""

    @property
    def _consumed(self) -> int:
        return self.n_seen

    def _describe(self) -> dict[str, Any]:
        return self._public.describe()

    @classmethod
    def _restart(cls, description: dict[str, Any], key: Key, **own: Any) -> Self:
        return cls._of(cls._PLAN.from_description(description), key)

    def _fresh(self, key: Key) -> Self:
        return self._of(self._public, key)

    @classmethod
    def _of(cls, plan: CellParameters, key: Key) -> Self:
        publisher = object.__new__(cls)
        publisher._begin(plan, key)
        return publisher
