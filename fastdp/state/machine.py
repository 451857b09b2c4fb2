"""An online mechanism as a pure machine, whose state is a value."""

from __future__ import annotations

import functools
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from os import getpid
from types import MappingProxyType
from typing import Any, ClassVar, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from fastdp.data.column import as_column, as_floats
from fastdp.errors import StateError
from fastdp.kinds import Array, Json
from fastdp.noise.key import ENABLED, Key
from fastdp.record import values_of
from fastdp.state import codec
from fastdp.state.atomic_files import token

S = TypeVar("S")
#: A batch as the method ``read`` of its machine returns it, and the output of a call.
Batch: TypeAlias = Any
Output: TypeAlias = Any

#: Makes a NamedTuple from all its fields, faster than its own constructor.
record = tuple.__new__
#: A replay draws everything again.
NOTHING_DRAWN: Mapping[str, codec.JsonValue] = MappingProxyType({})


class Column(NamedTuple):
    """A batch of values, with their name in errors; a `finished` stream is a release."""

    values: Array
    name: str = "chunk"
    finished: bool = False


def nothing(*_: object) -> None:
    """Publish nothing."""


class Transition(NamedTuple, Generic[S]):
    """Leads to the state after one batch; its calls follow the record of that state.

    Attributes
    ----------
    state : S
        State after the batch.
    emit : callable
        Makes the output.
    finish : callable, optional
        Updates data that accumulates in place, such as a histogram.
    drawn : dict
        Draws that a replay must not repeat, as fields of the state before.

    Examples
    --------
    >>> from fastdp.state import Transition
    >>> after = Transition(4, emit=lambda: "four batches")
    >>> after.state, after.emit()
    (4, 'four batches')
    """

    state: S
    emit: Callable[..., Output] = nothing
    finish: Callable[[], None] | None = None
    drawn: Mapping[str, codec.JsonValue] = NOTHING_DRAWN


class Record(NamedTuple):
    """State without its log, entries added to the log, and True to write a complete file."""

    now: Json
    added: list[bytes]
    rewrite: bool


class Machine(ABC, Generic[S]):
    """Defines an online mechanism as a step from state to state.

    A frozen dataclass of the public parameters (``docs/tutorials/own_mechanism.md``).  The state, of ``start``'s
    annotated type, is a frozen dataclass or NamedTuple of numbers, texts, bytes, int64 and float64 arrays, and such
    records.  Files are checked by declared ranges of fields, such as ``Annotated[int, Whole(0)]``.  ``step`` changes
    neither state nor batch, but may fill the unused rest of an array.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from fastdp.state import Machine, Publisher, Transition
    >>> @dataclass(frozen=True)
    ... class Seen:
    ...     n_seen: int
    >>> @dataclass(frozen=True)
    ... class Counting(Machine[Seen]):
    ...     def start(self, key) -> Seen:
    ...         return Seen(0)
    ...     def step(self, state, batch, key):
    ...         after = Seen(state.n_seen + 1)
    ...         return Transition(after, lambda: after.n_seen)
    >>> publisher = Publisher(Counting())
    >>> publisher.step("a"), publisher.step("b")
    (1, 2)
    """

    #: Parts that parameters may hold, by class name; a file never names anything else.
    PARTS: ClassVar[codec.Parts] = {}
    #: Number of the rule that steps follow: raised when their draws or releases change and no parameter does.
    rule: ClassVar[int] = 1
    #: Whether batches are columns of values, and n values the same as n batches of one.
    SPLITS: ClassVar[bool] = False

    @abstractmethod
    def start(self, key: Key) -> S:
        """State before the first batch."""

    @abstractmethod
    def step(self, state: S, batch: Batch, key: Key) -> Transition[S]:
        """Transition after a batch of :meth:`read`; an error leaves no trace.

        Equal states and batches must draw the same words under `key`, this publisher's alone.
        """

    def bind(self, key: Key) -> Key:
        """Key of this mechanism under a user's secret."""
        return key.bind(self)

    def read(self, *batch: Any) -> Batch:
        """Check and convert a batch, to a column if batches split; else DataError."""
        return Column(as_column(*batch)) if self.SPLITS else batch

    def log_messages(self, before: S, after: S) -> Iterator[tuple[int, str]]:
        """Log messages of a step, with levels; public numbers only."""
        return iter(())

    def consumed(self, state: S) -> int:
        """Count that grows with every change."""
        return int(state.n_seen)  # type: ignore[attr-defined]

    def parts(self, batch: Batch) -> tuple[Array | bytes, ...]:
        """Input of a step for fingerprints."""
        if self.SPLITS:
            return (as_floats(batch.values),)
        return tuple(each if isinstance(each, bytes) else np.asarray(each) for each in batch)

    def first(self, batch: Batch, count: int) -> Batch:
        """First `count` entries of a batch that splits."""
        return batch._replace(values=batch.values[:count])

    def describe(self) -> Json:
        """Plain values of public parameters."""
        return {name: codec.describe_part(value, self.PARTS) for name, value in values_of(self).items()}

    @classmethod
    def from_description(cls, description: Json, **own: Any) -> Self:
        """Machine of :meth:`describe`; `own`: components that a file cannot hold."""
        return cls(**{name: codec.build_part(value, cls.PARTS) for name, value in description.items()}, **own)

    def pack(self, state: S) -> codec.Packed:
        """Plain values of a state, with an optional "log" that :meth:`record` extends."""
        return {"n_seen": self.consumed(state), "state": codec.describe(self.settled(state))}

    def unpack(self, packed: codec.Packed, key: Key) -> S:
        """State of :meth:`pack`; else ValueError, LookupError or TypeError."""
        kind = typing.get_type_hints(type(self).start)["return"]
        state = self.restored(codec.restore(kind, packed["state"], self, self.start(key)), key)
        if self.consumed(state) != codec.require_int(packed["n_seen"]) or self.consumed(state) < 0:
            raise ValueError("a position out of range")
        return state

    def restored(self, state: S, key: Key) -> S:
        """State of a file with derived fields; ValueError if fields do not fit together."""
        return state

    def record(self, before: S, after: S) -> Record:
        """Record of a call, by default of the full state."""
        return Record(self.pack(after), [], False)

    def settled(self, state: S) -> S:
        """State after :attr:`Transition.finish`; a copy, if different."""
        return state

    def rekeyed(self, state: S, key: Key) -> S:
        """State of a copy with another key."""
        return state


# One call at a time, in the process that owns the object.

P = ParamSpec("P")
R = TypeVar("R")


class CallGuard:
    """Refuses two threads at once, and use after a fork unless `forks`: both would repeat noise on other values."""

    __slots__ = ("calls", "forks", "number", "token")

    def __init__(self, *, forks: bool = False) -> None:
        self.calls: set[object] = set()
        self.number, self.token = getpid(), token[0]
        self.forks = forks


class Guarded(Protocol):
    """Object with a :class:`CallGuard`."""

    _guard: CallGuard


G = TypeVar("G", bound=Guarded)


def single_caller(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Decorator: a method runs in one thread at a time, in its object's process."""

    @functools.wraps(method)
    def guarded(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        guard = self._guard
        # atomic_files.identity(), inlined for speed.
        if (token[0] is not guard.token or getpid() != guard.number) and not guard.forks:
            raise StateError(
                f"a {type(self).__name__} used in a forked process: expected a publisher made in the process that "
                "uses it (a fork would repeat its noise on other values)"
            )
        drawn = getattr(self, "_key").drawn if ENABLED and hasattr(self, "_key") else None  # noqa: B009
        mark, call, calls = None, object(), guard.calls
        # Each of add and discard is one step of the interpreter, and a call that never came in is discarded too: an
        # interrupt anywhere leaves nothing locked, which a lock and a context manager do not achieve.
        try:
            calls.add(call)
            if len(calls) > 1:
                raise StateError(
                    f"{type(self).__name__}.{method.__name__} was called from two threads at once; "
                    "expected one call at a time"
                )
            if drawn is None:
                return method(self, *args, **kwargs)
            mark = drawn.mark
            result = method(self, *args, **kwargs)
            drawn.keep()
            return result
        except BaseException:
            # The next call may repeat the draws of a failed one: nothing was released.
            if drawn is not None and mark is not None:
                drawn.forget(mark)
            raise
        finally:
            calls.discard(call)

    return guarded
